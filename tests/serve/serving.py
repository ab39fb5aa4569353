"""A crib, or an application, that is served while a test runs."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from toolcrib import Caller, Context, Crib, tool
from toolcrib.machinery import LedgerEntry
from toolcrib.serve import serve_http
from toolcrib.store import Store

from ..waiting import until


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def by_user(headers: Mapping[str, str]) -> Caller:
    return Caller(headers["user"])


class Waits:
    """A tool that runs until it is let go, and what became of its calls."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended: list[str] = []
        self.count = 0

        @tool
        async def wait(context: Context, says: bool = False) -> str:
            """Wait."""
            try:
                self.count += 1
                if says:
                    await context.emit("waiting")
                self.began.set()
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            self.ended.append("done")
            return "done"

        self.tool = wait

    async def until(self, *ended: str) -> None:
        await until(lambda: self.ended == [*ended])


async def leave_lost_task(path: Path, tool_name: str, principal: str) -> None:
    """Leave the task `task_1` in the store at *path* as a process that died in its middle has left it."""
    store, now = Store(path), datetime.now(UTC)
    call = {"arguments": "{}", "profile": "default", "groups": [], "claims": [], "traceparent": None}
    parts: Any = ("k", "d", tool_name, "default", False, now)
    await store.ledger.submit(LedgerEntry("task_1", principal, *parts, state="queued", call=call, run_at=now))
    (entry,) = await store.ledger.take([{tool_name: ""}], 1)
    store.ledger.give_up(entry)
    await until(store.ledger.lost)
    store.close()


@asynccontextmanager
async def served(crib: Crib, *identify: Any, **options: Any) -> AsyncIterator[str]:
    """The URL of *crib* over MCP. *identify* and *options* are those of `serve_http`."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(crib, *identify, port=0, ready=ready.set_result, **options))
    try:
        await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await serving
        yield ready.result()
    finally:
        serving.cancel()
        await asyncio.wait([serving])


@asynccontextmanager
async def running(app: Any, port: int = 0) -> AsyncIterator[str]:
    """The URL of *app*, which uvicorn serves."""
    config = uvicorn.Config(app, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    web = uvicorn.Server(config)
    serving = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"
    finally:
        web.should_exit = True
        await serving


@asynccontextmanager
async def client_of(app: Any, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of *app* in this process, where it runs meanwhile."""
    transport, base_url = httpx2.ASGITransport(app), "http://localhost:8642"
    async with app.lifespan(), httpx2.AsyncClient(transport=transport, base_url=base_url, headers=headers) as opened:
        yield opened


OWN = "io.modelcontextprotocol/"
MODERN = "2026-07-28"


def request_of(method: str, capabilities: Mapping[str, Any] = {}, **params: Any) -> dict[str, Any]:
    """The headers and the content of a request of MCP's stateless era."""
    meta = {f"{OWN}protocolVersion": MODERN, f"{OWN}clientCapabilities": capabilities}
    name = params.get("name", params.get("uri", params.get("taskId")))
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
        **({"mcp-name": name} if isinstance(name, str) else {}),
    }
    content = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return {"headers": headers, "content": json.dumps(content)}


def message_of(answer: httpx2.Response) -> Any:
    """The last message of an answer, which may be a stream."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
    return json.loads([line for line in lines if line.startswith("{")][-1])
