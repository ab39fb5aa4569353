"""An MCP server over HTTP, in this process, that says on the wire exactly what a test has it say, in either era."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from toolcrib import Workbench
from toolcrib.tools.remote import MCPSource

from ..waiting import until

ANY: dict[str, Any] = {"type": "object"}
HINTS = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
EVENTS = "text/event-stream"


@dataclass
class Asked:
    """One request, its JSON-RPC message (empty where it has none), and how it is answered."""

    verb: str
    headers: Mapping[str, str]
    message: dict[str, Any]
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int = 200, **headers: str) -> None:
        """The head of a response, whose body ends with the connection."""
        lines = [f"HTTP/1.1 {status} Status", "connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def body(self, body: bytes, status: int = 200, **headers: str) -> None:
        about = {"content_type": "application/json", "content_length": str(len(body)), **headers}
        await self.head(status, **about)  # type: ignore[arg-type]  # none of them is `status`
        await self.send(body)

    async def result(self, result: Mapping[str, Any], **headers: str) -> None:
        message = {"jsonrpc": "2.0", "id": self.message["id"], "result": {**HINTS, **result}}
        await self.body(json.dumps(message).encode(), **headers)

    async def event(self, message: Mapping[str, Any], **lines: str) -> None:
        fields = "".join(f"{name}: {value}\n" for name, value in lines.items())
        await self.send(f"{fields}data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n".encode())


Answer = Callable[[Asked], Awaitable[None]] | Mapping[str, Any]


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": ANY, **more}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
NEW: Mapping[str, Answer] = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES},
}
OLD: Mapping[str, Answer] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": "raw", "version": "1"},
    },
}


ERAS = pytest.mark.parametrize("era", [OLD, NEW], ids=["2025-11-25", "2026-07-28"])


class Upstream:
    """A server that answers as *says*: by method and name, by method, or by HTTP's verb."""

    def __init__(self, says: Mapping[str, Answer]) -> None:
        self.says: dict[str, Answer] = {"tools/list": {"tools": []}, **says}
        self.asked: list[Asked] = []
        self.open = 0
        """How many connections are open."""
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def seen(self, method: str) -> list[Asked]:
        return [each for each in self.asked if each.message.get("method", each.verb) == method]

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self.open += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._answer(await self._read(reader, writer), reader)
        self.open -= 1
        self._tasks.discard(task)
        writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Asked:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        asked = Asked(lines[0].split()[0], headers, json.loads(body) if body else {}, writer)
        self.asked.append(asked)
        return asked

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader) -> None:
        method = asked.message.get("method", "")
        name = asked.message.get("params", {}).get("name", asked.message.get("params", {}).get("uri", ""))
        # What has no answer of its own is named by the verb.
        is_request = method and "id" in asked.message
        keys = (f"{method} {name}", method, *(() if is_request else (asked.verb,)))
        answer = next((self.says[key] for key in keys if key in self.says), None)
        if answer is None:
            error = {"jsonrpc": "2.0", "id": asked.message.get("id"), "error": {"code": -32601, "message": "No."}}
            await (asked.body(json.dumps(error).encode(), 404) if "id" in asked.message else asked.head(202))
        elif isinstance(answer, Mapping):
            await asked.result(answer)
        else:
            gone = asyncio.ensure_future(reader.read())  # until the client closes
            answering = asyncio.ensure_future(answer(asked))
            try:
                await asyncio.wait({gone, answering}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (gone, answering):
                    task.cancel()
                await asyncio.gather(gone, answering, return_exceptions=True)

    async def close(self) -> None:
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def raw_upstream(says: Mapping[str, Answer]) -> AsyncIterator[Upstream]:
    made = Upstream(says)
    server = await asyncio.start_server(made.connected, "127.0.0.1", 0, limit=2**20)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield made
    finally:
        server.close()
        await made.close()


async def accept(asked: Asked) -> None:
    await asked.head(202)


async def never(asked: Asked) -> None:
    """No answer, until the client has gone."""
    await asyncio.Event().wait()


@asynccontextmanager
async def connected(says: Mapping[str, Answer], **options: Any) -> AsyncIterator[tuple[Upstream, Workbench]]:
    """Such a server, whose tools are those that it says something for, and a workbench of it."""
    listed = {"tools/list": {"tools": [tool(key.split()[1]) for key in says if key.startswith("tools/call ")]}}
    async with raw_upstream({**listed, **says}) as upstream:
        source = MCPSource(url=upstream.url).source("upstream")
        source.restart_after_s = 0.05
        async with Workbench([source], **options) as bench:
            await until(lambda: bool(bench.specs()))
            yield upstream, bench
