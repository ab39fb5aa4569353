"""Requests of guests, as the worker sends them. tests/tools/ has those of real guests."""

import asyncio
import base64
import json
import os
import socket
import sys
from email.message import Message
from functools import partial
from typing import Any

import pytest

from toolcrib.machinery.loops import run_on
from toolcrib.sandbox import guest_http
from toolcrib.sandbox.guest_http import GuestHttp, RequestRefused

from ..tools.conftest import Service
from ..tools.conftest import service as service
from ..waiting import until


def guest_http_of(hosts: list[str], allow: list[str]) -> GuestHttp:
    return GuestHttp(hosts, allow, partial(run_on, asyncio.get_running_loop()))


async def refusal(hosts: list[str], request: Any, **options: Any) -> str:
    http = guest_http_of(hosts, options.get("private_hosts", []))
    try:
        with pytest.raises(RequestRefused) as raised:
            await asyncio.to_thread(http.fetch, request if isinstance(request, str) else json.dumps(request))
    finally:
        await http.aclose()
    return str(raised.value)


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:10.0.0.1"])
async def test_a_name_that_leads_to_an_address_that_is_not_public_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    answer = [(family, socket.SOCK_STREAM, 6, "", (address, 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)  # a name server of the attacker's
    found = await refusal(["rebound.example.com"], {"url": "https://rebound.example.com/"})
    assert found.startswith("'rebound.example.com' may not be reached: it does not lead to a public address.")


WRONG = ['"headers": [["a"]]', '"body": "~"', '"timeout_s": "soon"']


@pytest.mark.parametrize("request_", ["[]", "{}", "[" * 100_000, *(f'{{"url": "x", {member}}}' for member in WRONG)])
async def test_a_request_that_is_not_as_it_has_to_be_is_refused(request_: str) -> None:
    expected = "A request must be a JSON object with a 'url'."
    assert await refusal(["example.com"], request_) == expected


async def test_a_request_that_is_too_large_is_not_sent() -> None:
    for body in ("A" * 12 * 1024**2, "A" * 17 * 1024**2):
        request = {"url": "https://example.com/", "method": "POST", "body": body}
        assert await refusal(["example.com"], request) == "The request has more than 8388608 bytes."


MOVED = {"Location": "/here"}


def open_sockets() -> int:
    """How many sockets this process has; 0 where that is not to be seen."""
    files = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")] if sys.platform == "linux" else []
    return sum(os.path.exists(file) and os.readlink(file).startswith("socket:") for file in files)


async def test_a_guest_sends_requests_and_reads_what_is_answered(service: Service) -> None:
    http = guest_http_of([service.netloc], ["127.0.0.1"])
    files = open_sockets()
    twice = Message()
    twice["X-Twice"], twice["X-twice"] = "1", "2"
    service.replies |= {"/here": (200, twice, b"hello"), "/nothing": (404, {}, b""), "/moved": (302, MOVED, b"")}

    async def answer(path: str = "/here", **request: Any) -> dict[str, Any]:
        text = json.dumps({"url": f"{service.url}{path}", **request})
        return json.loads(await asyncio.to_thread(http.fetch, text))

    try:
        found = await answer(headers=[["X-B", "2"], ["X-A", "1"]])
        method, path, headers, body = service.last
        assert (method, path, headers["x-a"], headers["x-b"], body) == ("GET", "/here", "1", "2", b"")
        assert (found["url"], found["status"], found["body"]) == (f"{service.url}/here", 200, "aGVsbG8=")
        assert [each for each in found["headers"] if each[0] == "x-twice"] == [["x-twice", "1"], ["x-twice", "2"]]
        assert (await answer("/nothing", method=None, timeout_s=60))["status"] == 404
        found = await answer("/moved")
        assert (found["status"], found["url"], service.last[1]) == (200, f"{service.url}/here", "/here")
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            await answer(method=method, body="AAAA")
            assert (service.last[0], service.last[3]) == (method, bytes(3))
        await answer(method="POST", body=base64.b64encode(bytes(guest_http.MAX_BYTES)).decode())
        assert (guest_http.MAX_BYTES, len(service.last[3])) == (8 * 2**20, 8 * 2**20)
    finally:
        await http.aclose()
    await until(lambda: open_sockets() <= files)  # the server's end of a connection is closed a little later


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"method": "CONNECT"}, "A request has one of the methods GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS."),
        ({"method": "get"}, "A request has one of the methods"),
        *(
            ({"headers": [["X-A", "1"], [name, value]]}, f"A request may not set the header '{name}'.")
            for name, value in (
                ("Host", "evil.example"),
                ("content-length", "1"),
                ("Transfer-Encoding", "chunked"),
                ("Proxy-Authorization", "x"),
                ("Upgrade", "h2c"),
                ("X-B", "1\r\nHost: evil.example"),
                ("X-C", "\0"),
            )
        ),
    ],
)
async def test_a_request_that_could_go_elsewhere_is_not_sent(more: dict[str, Any], message: str) -> None:
    assert (await refusal(["example.com"], {"url": "https://example.com/", **more})).startswith(message)


async def test_a_tool_that_lists_no_hosts_sends_nothing(service: Service) -> None:
    request = {"url": f"{service.url}/"}
    assert "lists no 'hosts'" in await refusal([], request, private_hosts=["127.0.0.1"])
    assert "Only these may: example.com." in await refusal(["example.com"], request, private_hosts=["127.0.0.1"])
    assert "is not a host" in await refusal(["https://example.com"], request)
    service.close()
    assert await refusal([service.netloc], request, private_hosts=["127.0.0.1"]) == "The request failed: ConnectError."
