"""A call over HTTP: of a tool by Toolcrib's API, and of a bare Starlette route that parses and answers the same JSON.

Each is served by a process of its own, on uvicorn as `serve_http` sets it up. What is measured is that process's time
on the processor, for one request on a connection that stays open: this file, run as a program, is the server.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

TITLE = "call over HTTP, tiny async tool"
OURS, BARE_ROUTE = "ours", "bare"
_BODY = b'{"a": 1, "b": 2}'
_PATH = "/api/tools/add/call"


class Served:
    """A connection to a server process."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def call(self) -> Any:
        """The answer to one call, JSON data."""
        head = f"POST {_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        return self._answer(head.encode() + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY)

    def cpu_s(self) -> float:
        """The seconds that the process has had on the processor."""
        seconds: float = self._answer(b"GET /cpu HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        return seconds

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _answer(self, request: bytes) -> Any:
        self._socket.sendall(request)
        length = 0
        assert b" 200 " in self._file.readline()
        while (line := self._file.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return json.loads(self._file.read(length))


@asynccontextmanager
async def servers() -> AsyncGenerator[dict[str, Served]]:
    """A connection to each of the two servers."""
    running = [
        subprocess.Popen([sys.executable, str(Path(__file__)), name], stdout=subprocess.PIPE, text=True)
        for name in (OURS, BARE_ROUTE)
    ]
    try:
        found: dict[str, Served] = {}
        for name, process in zip((OURS, BARE_ROUTE), running, strict=True):
            assert process.stdout is not None
            found[name] = Served(int(process.stdout.readline()))
        for served in found.values():
            assert served.call()["content"] == [{"type": "data", "data": 3}]
        yield found
        for served in found.values():
            served.close()
    finally:
        for process in running:
            process.kill()
            process.wait()


def rounds(servers: dict[str, Served], count: int, calls: int) -> dict[str, list[float]]:
    """Seconds on the processor for one call of each server, round by round."""
    found: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(count):
        for name, served in servers.items():
            began = served.cpu_s()
            for _ in range(calls):
                served.call()
            found[name].append((served.cpu_s() - began) / calls)
    return found


def _ours() -> Any:
    from toolcrib import Crib, tool
    from toolcrib.serve import asgi_app

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return asgi_app(Crib([add]), routes=[_cpu()])


def _bare() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def call(request: Request) -> JSONResponse:
        arguments = await request.json()
        return JSONResponse(
            {
                "content": [{"type": "data", "data": arguments["a"] + arguments["b"]}],
                "status": "success",
                "call_id": "call_8471409371389848607",
                "tool": "add",
                "started_at": "2026-11-22T16:07:41.850536+00:00",
                "finished_at": "2026-11-22T16:07:41.850582+00:00",
            }
        )

    return Starlette(routes=[Route(_PATH, call, methods=["POST"]), _cpu()])


def _cpu() -> Any:
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def cpu(_: Request) -> JSONResponse:
        return JSONResponse(time.process_time())

    return Route("/cpu", cpu)


async def _serve(make: Callable[[], Any]) -> None:
    import uvicorn

    web = uvicorn.Server(uvicorn.Config(make(), port=0, log_config=None, access_log=False))
    serving = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0.01)
    print(web.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(_serve(_ours if sys.argv[1] == OURS else _bare))
