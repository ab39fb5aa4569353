"""The bounds of connections, over both of the parsers that uvicorn may have."""

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType
from urllib.parse import urlsplit

import pytest

from toolcrib import Crib

from .serving import served

ASK = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"


@pytest.fixture(params=["httptools", "h11"])
def connections(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, over the parser of the parameter."""
    if request.param == "h11":
        monkeypatch.setitem(sys.modules, "httptools", None)
    for name in ("uvicorn.protocols.http.auto", "toolcrib.serve.connections"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("toolcrib.serve.connections")
    assert (request.param in str(module.Connection.__mro__)) is True
    monkeypatch.setattr("toolcrib.serve.http.Web", module.Web)
    yield module


class Peer:
    """A client of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def status(self, sent: bytes = ASK) -> int:
        """Send bytes, and return the status of the answer, whose body has been read."""
        self.writer.write(sent)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
        await self.reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else None
        return int(head.split()[1])

    async def end(self) -> bytes:
        """Return what comes until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Callable[..., Awaitable[Peer]]]:
    """What opens connections, from an address of this computer, until the test ends."""
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        at = urlsplit(url)

        async def connect(address: str = "127.0.0.1") -> Peer:
            reader, writer = await asyncio.open_connection(at.hostname, at.port, local_addr=(address, 0))
            stack.callback(writer.close)
            return Peer(reader, writer)

        yield connect


async def test_a_request_that_does_not_come_in_time_is_closed_and_an_idle_connection_is_not(
    connections: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"HEAD_TIMEOUT_S": 0.05, "REQUEST_TIMEOUT_S": 0.05, "_TICKS": 1}.items():
        monkeypatch.setattr(connections, name, value)
    async with served(Crib([])) as url, opened(url) as connect:
        idle = await connect()
        assert await idle.status() == 200
        silent, head, body = await connect(), await connect(), await connect()
        head.writer.write(ASK[:-2])
        body.writer.write(POST)
        for peer in (silent, head, body):
            await peer.end()
        assert await idle.status() == 200
        idle.writer.write(ASK[:9])  # a second request on one connection has a deadline, too
        assert await idle.end() == b""


async def test_one_address_takes_half_of_the_connections_and_the_rest_stays_for_others(
    connections: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 4)
    async with served(Crib([])) as url, opened(url) as connect:
        mine = [await connect(), await connect()]
        assert [await peer.status() for peer in mine] == [200, 200]
        refused = await connect()
        assert (await refused.end()).startswith(b"HTTP/1.1 503 ")
        others = [await connect("127.0.0.2"), await connect("127.0.0.2")]
        assert [await peer.status() for peer in others] == [200, 200]
        assert (await (await connect("127.0.0.3")).end()).endswith(b"This server has too many connections.\n")
        others[0].writer.close()
        await others[0].writer.wait_closed()
        while (answer := await connect("127.0.0.3")) and (status := await answer.status()) == 503:
            await answer.end()  # until the server has seen that the other has left
        assert status == 200


async def test_headers_without_end_are_refused(connections: ModuleType) -> None:
    async with served(Crib([])) as url, opened(url) as connect:
        for before in (b"", ASK):
            peer = await connect()
            if before:
                assert await peer.status(before) == 200
            peer.writer.write(b"GET /livez HTTP/1.1\r\n")
            line = b"X-More: " + b"a" * 8_000 + b"\r\n"
            for _ in range(20):
                peer.writer.write(line)
            # The answer is lost where the system resets a connection whose bytes nobody has read.
            assert (await peer.end())[:13] in (b"HTTP/1.1 400 ", b"")
        assert await (await connect()).status() == 200
