"""Wrong keys: an address may try some, and then has to wait; whoever was let in before goes on."""

from collections.abc import Mapping

import httpx2
import pytest

from toolcrib import Caller, Crib
from toolcrib.serve import AuthenticationError, asgi_app, throttle


def identify(headers: Mapping[str, str]) -> Caller:
    written = headers.get("authorization")
    if written is None:
        raise AuthenticationError("Show a key.", None)
    if written == "Bearer down":
        raise AuthenticationError("Try again later.", None, status=503)
    if not written.startswith("Bearer right"):
        raise AuthenticationError("There is no such key.")
    return Caller(written.removeprefix("Bearer "))


class Door:
    """A server at which the clock stands still, and clients at addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(throttle, "monotonic", lambda: self.now_s)
        self.app = asgi_app(Crib(), identify)

    async def knock(self, key: str | None, address: str = "192.0.2.1") -> httpx2.Response:
        transport = httpx2.ASGITransport(self.app, client=(address, 4711))
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http:
            return await http.get("/api/tools")

    async def status(self, key: str | None, address: str = "192.0.2.1") -> int:
        return (await self.knock(key, address)).status_code


async def test_too_many_wrong_keys_from_one_address_have_to_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    door = Door(monkeypatch)
    async with door.app.lifespan():
        assert await door.status("right 1") == 200
        # What says nothing of a key is no try.
        assert {await door.status(None) for _ in range(30)} == {401}
        assert {await door.status("down") for _ in range(30)} == {503}
        tries = [await door.status(f"wrong {number}") for number in range(21)]
        assert tries == [*[401] * 20, 429]
        refused = await door.knock("wrong")
        assert refused.headers["cache-control"] == "no-store"
        assert "too many wrong keys came from its address" in caplog.text
        assert (refused.headers["retry-after"], refused.headers["content-type"]) == ("3", "application/problem+json")
        assert "Try again in 3 seconds" in refused.json()["detail"]
        # A key is not tried then, so nobody learns whether it is right; one that was right before goes on.
        assert [await door.status("right 2"), await door.status("right 1")] == [429, 200]
        # Without a key nothing is tried; other addresses are others.
        assert [await door.status(None), await door.status("wrong", "192.0.2.2")] == [401, 401]
        door.now_s += throttle.AGAIN_S - 0.5
        assert (await door.knock("wrong")).headers["retry-after"] == "1"
        door.now_s += 0.5
        assert [await door.status("wrong") for _ in range(2)] == [401, 429]
        door.now_s += throttle.AGAIN_S
        assert await door.status("right 2") == 200


async def test_a_network_of_one_host_is_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch)
    async with door.app.lifespan():
        tries = [await door.status("wrong", f"2001:db8:0:1::{n:x}") for n in range(throttle.TRIES + 1)]
        assert tries == [*[401] * throttle.TRIES, 429]
        assert await door.status("wrong", "2001:db8:0:1:8000::1") == 429
        assert await door.status("wrong", "2001:db8:0:2::1") == 401


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(throttle, "monotonic", lambda: now_s)
    monkeypatch.setattr(throttle, "_MOST", 2)
    made = throttle.Throttle()
    for address in "aaa", "bbb", "ccc":
        for _ in range(throttle.TRIES):
            made.note_wrong(address)
    assert [made.wait_s(address, "k") for address in ("aaa", "bbb", "ccc")] == [0, 3, 3]
    for key in "xyz":
        made.note_right(key)
    assert [made.wait_s("ccc", key) for key in "xyz"] == [3, 0, 0]
    for key in "yx":
        made.note_right(key)  # the latest are remembered, whenever they came first
    assert [made.wait_s("ccc", key) for key in "xyz"] == [0, 0, 3]
