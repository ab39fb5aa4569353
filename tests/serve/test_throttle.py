"""Wrong keys: an address may try some, and then has to wait; whoever was let in before goes on."""

import asyncio
from collections.abc import Mapping

import httpx2
import pytest

from toolcrib import Caller, Crib
from toolcrib.serve import AuthenticationError, asgi_app
from toolcrib.serve.access import throttle

from ..waiting import until
from .serving import served


def identify(headers: Mapping[str, str]) -> Caller:
    written = headers.get("authorization")
    if written is None:
        raise AuthenticationError("Show a key.", None)
    if written == "Bearer down":
        raise AuthenticationError("Try again later.", None, status=503)
    if not written.startswith("Bearer right"):
        raise AuthenticationError("There is no such key.")
    return Caller(written.removeprefix("Bearer ").rstrip(" 0123456789") or "right")


class Door:
    """A server at which the clock stands still, and clients at addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.asked: list[str] = []
        self.refusal: AuthenticationError | None = None
        monkeypatch.setattr(throttle, "monotonic", lambda: self.now_s)
        self.app = asgi_app(Crib(), self._identify)

    async def _identify(self, headers: Mapping[str, str]) -> Caller:
        self.asked.append(headers.get("authorization", ""))
        await self.go_on.wait()
        if self.refusal is not None and "right" in headers["authorization"]:
            raise self.refusal
        return identify(headers)

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


async def test_an_ipv4_address_that_a_socket_for_both_kinds_has_as_ipv6_is_one_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door(monkeypatch)
    async with door.app.lifespan():
        tries = [await door.status("wrong", "::ffff:192.0.2.1") for _ in range(throttle.TRIES + 1)]
        assert tries == [*[401] * throttle.TRIES, 429]
        found = [await door.status("wrong", each) for each in ("::ffff:192.0.2.2", "192.0.2.1", "fe80::1%eth0", "odd")]
        assert found == [401, 429, 401, 401]


async def test_wrong_keys_that_come_at_once_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch)
    door.go_on.clear()
    async with door.app.lifespan():
        tries = [asyncio.create_task(door.status(f"wrong {number}")) for number in range(100)]
        others = [asyncio.create_task(door.status(f"right {number}", "192.0.2.2")) for number in range(100)]
        async with asyncio.timeout(60):
            await until(lambda: len(door.asked) == 2 * throttle.TRIES)
            door.go_on.set()
            found = await asyncio.gather(*tries)
            assert (found.count(401), found.count(429)) == (throttle.TRIES, 100 - throttle.TRIES)
            assert {*await asyncio.gather(*others)} == {200}  # many clients may begin at once


async def test_a_key_that_is_not_right_any_more_is_one_of_the_wrong_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch)
    async with door.app.lifespan():
        assert await door.status("right 1") == 200
        for down in (403, 503):  # says nothing of the key
            door.refusal = AuthenticationError("Not now.", status=down)
            assert await door.status("right 1") == down
        door.refusal = None
        for _ in range(throttle.TRIES):
            await door.status("wrong")
        assert await door.status("right 1") == 200
        door.refusal = AuthenticationError("Revoked.")
        assert [await door.status("right 1") for _ in range(2)] == [401, 429]


async def test_what_a_request_says_of_its_address_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "monotonic", lambda: 1000.0)
    async with served(Crib(), identify) as url, httpx2.AsyncClient(timeout=60) as http:
        found = []
        for number in range(throttle.TRIES + 5):
            other = f"192.0.2.{number}"
            headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": other, "Forwarded": f"for={other}"}
            found.append((await http.get(url, headers={**headers, "X-Real-IP": other})).status_code)
    assert found == [*[401] * throttle.TRIES, *[429] * 5]


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(throttle, "monotonic", lambda: now_s)
    monkeypatch.setattr(throttle, "_MAX_COUNT", 2)
    made = throttle.Throttle()

    async def wait_s(address: str, refusal: AuthenticationError | None = None) -> int:
        try:
            async with made.trying(address):
                if refusal is not None:
                    raise refusal
        except throttle.TooManyTries as tries:
            return tries.wait_s
        except AuthenticationError:
            pass
        return 0

    for address in "aaa", "bbb", "ccc":
        for _ in range(throttle.TRIES):
            assert await wait_s(address, AuthenticationError("Wrong.")) == 0
    assert [await wait_s(address) for address in ("aaa", "bbb", "ccc")] == [0, 3, 3]

    async def find() -> Caller:
        return Caller("alice")

    async def was_right(key: str) -> bool:
        try:
            return bool(await made.admit(key, "ccc", find))
        except throttle.TooManyTries:
            return False

    for key in "xyz":
        await made.admit(key, "ddd", find)
    assert [await was_right(key) for key in "xyz"] == [False, True, True]
    assert await was_right("y")
    await made.admit("x", "ddd", find)
    assert [await was_right(key) for key in "xyz"] == [True, True, False]  # the latest, whenever they came first


async def test_who_shows_many_right_keys_takes_nobody_elses_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller who is given a new token each minute, or asks for many, at the address of an office."""
    monkeypatch.setattr(throttle, "_MAX_COUNT", 5)
    door = Door(monkeypatch)
    async with door.app.lifespan():
        assert await door.status("right alice") == 200
        for number in range(20):
            assert await door.status(f"right mallory {number}") == 200
        assert {await door.status("wrong") for _ in range(throttle.TRIES + 1)} == {401, 429}
        assert [await door.status(f"right {name}") for name in ("mallory 0", "alice")] == [429, 200]
