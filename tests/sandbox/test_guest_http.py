"""Requests of guests, as the worker sends them. tests/tools/ has those of real guests."""

import asyncio
import base64
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from toolcrib.machinery.loops import run_on
from toolcrib.sandbox import guest_http
from toolcrib.sandbox.guest_http import GuestHttp, RequestRefused


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


@pytest.mark.parametrize(
    "request_",
    [
        "[]",
        "{}",
        '{"url": "x", "headers": [["a"]]}',
        '{"url": "x", "body": "~"}',
        '{"url": "x", "timeout_s": "soon"}',
        "[" * 100_000,
    ],
)
async def test_a_request_that_is_not_as_it_has_to_be_is_refused(request_: str) -> None:
    expected = "A request must be a JSON object with a 'url'."
    assert await refusal(["example.com"], request_) == expected


async def test_a_request_that_is_too_large_is_not_sent() -> None:
    for body in ("A" * 12 * 1024**2, "A" * 17 * 1024**2):
        request = {"url": "https://example.com/", "method": "POST", "body": body}
        assert await refusal(["example.com"], request) == "The request has more than 8388608 bytes."


class Echo:
    """Answers what it was sent, as a JSON list: method, path, its headers `x-...`, and the size of the body."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = len(self.rfile.read(int(self.headers.get("content-length", 0))))
                ours = sorted([name.lower(), value] for name, value in self.headers.items() if name.startswith("X-"))
                answer = json.dumps([self.command, self.path, ours, size]).encode()
                self.send_response({"/nothing": 404, "/moved": 302}.get(self.path, 200))
                if self.path == "/moved":
                    self.send_header("Location", "/here")
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("X-Twice", "1")
                self.send_header("X-Twice", "2")
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


def open_sockets() -> int:
    """How many sockets this process has; 0 where that is not to be seen."""
    files = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")] if sys.platform == "linux" else []
    return sum(os.path.exists(file) and os.readlink(file).startswith("socket:") for file in files)


async def test_a_guest_sends_requests_and_reads_what_is_answered(echo: Echo) -> None:
    http = guest_http_of([echo.host], ["127.0.0.1"])
    files = open_sockets()

    async def answer(**request: Any) -> tuple[dict[str, Any], Any]:
        request = {"url": f"http://{echo.host}/here", **request}
        found = json.loads(await asyncio.to_thread(http.fetch, json.dumps(request)))
        return found, json.loads(base64.b64decode(found["body"]) or "null")

    try:
        found, sent = await answer(headers=[["X-B", "2"], ["X-A", "1"]])
        assert sent == ["GET", "/here", [["x-a", "1"], ["x-b", "2"]], 0]
        assert (found["url"], found["status"]) == (f"http://{echo.host}/here", 200)
        assert [each for each in found["headers"] if each[0] == "x-twice"] == [["x-twice", "1"], ["x-twice", "2"]]
        found, _ = await answer(url=f"http://{echo.host}/nothing", method=None, timeout_s=60)
        assert found["status"] == 404
        found, sent = await answer(url=f"http://{echo.host}/moved")
        assert (found["status"], found["url"], sent[1]) == (200, f"http://{echo.host}/here", "/here")
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            assert (await answer(method=method, body="AAAA"))[1] == [method, "/here", [], 3]
        largest = base64.b64encode(bytes(guest_http.MAX_BYTES)).decode()
        assert (guest_http.MAX_BYTES, (await answer(method="POST", body=largest))[1][3]) == (8 * 2**20, 8 * 2**20)
    finally:
        await http.aclose()
    async with asyncio.timeout(60):
        while open_sockets() > files:  # the server's end of a connection is closed a little later
            await asyncio.sleep(0.01)


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


async def test_a_tool_that_lists_no_hosts_sends_nothing(echo: Echo) -> None:
    request = {"url": f"http://{echo.host}/"}
    assert "lists no 'hosts'" in await refusal([], request, private_hosts=["127.0.0.1"])
    assert "Only these may: example.com." in await refusal(["example.com"], request, private_hosts=["127.0.0.1"])
    assert "is not a host" in await refusal(["https://example.com"], request)
    echo.close()
    assert await refusal([echo.host], request, private_hosts=["127.0.0.1"]) == "The request failed: ConnectError."
