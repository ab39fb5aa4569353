"""MCP servers of the same tools, each by its library's own means: `python servers.py KIND COUNT DOOR`.

KIND is one of those at the end; DOOR is `stdio`, or the port of loopback for HTTP. All HTTP servers run on uvicorn
with httptools and uvloop, which the extra `serve` brings. Run by serving_calls.py.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

NAME = "tool_{}"


def tools(count: int) -> list[Callable[..., Any]]:
    """*count* times the same function, under names of their own."""

    def made(number: int) -> Callable[..., Any]:
        async def add(a: int, b: int) -> int:
            return a + b

        add.__name__ = add.__qualname__ = NAME.format(number)
        add.__doc__ = f"Add two numbers, in the way number {number}."
        return add

    return [made(number) for number in range(count)]


def toolcrib(count: int, door: str) -> None:
    """The command with its defaults: a store, a call log, pages for people. No tool is marked as read-only."""
    from toolcrib.cli import main

    lines = ["from toolcrib import tool\n"]
    for number in range(count):
        lines.append(f"@tool\nasync def {NAME.format(number)}(a: int, b: int) -> int:")
        lines.append(f'    """Add two numbers, in the way number {number}."""\n    return a + b\n')
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tools.py").write_text("\n".join(lines))
        at = ["--stdio"] if door == "stdio" else ["--port", door]
        # In the folder of a project's own store: beside the file, each write would wake what watches that for changes.
        main(["serve", f"{folder}/tools.py", *at, "--store", f"{folder}/.toolcrib/store.db"])


def storeless(count: int, door: str) -> None:
    """A program of a few lines, which stores nothing. Over HTTP a header says who calls."""
    import uvloop

    from toolcrib import Caller, Crib
    from toolcrib.serve import serve_http, serve_stdio

    def identify(headers: Any) -> Caller:
        return Caller(headers.get("x-principal", "local"))

    crib = Crib(tools(count))
    if door == "stdio":
        asyncio.run(serve_stdio(crib))
    else:
        uvloop.run(serve_http(crib, identify, port=int(door)))


def sdk(count: int, door: str) -> None:
    """The official SDK's low-level server: the tools are found by name, and their schemas are known."""
    import json

    import mcp_types as wire
    from mcp.server.lowlevel import Server

    functions = {function.__name__: function for function in tools(count)}
    number = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    listed = [
        wire.Tool(name=name, description=function.__doc__, input_schema=schema) for name, function in functions.items()
    ]

    async def list_tools(context: Any, params: Any) -> wire.ListToolsResult:
        return wire.ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        value = await functions[params.name](**(params.arguments or {}))
        return wire.CallToolResult(content=[wire.TextContent(type="text", text=json.dumps(value))])

    server: Any = Server(
        "bench",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda name: schema if name in functions else None,
    )
    if door != "stdio":
        _on_uvicorn(server.streamable_http_app(), door)
        return

    async def serve() -> None:
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(serve())


def fastmcp(count: int, door: str) -> None:
    from fastmcp import FastMCP

    server = FastMCP("bench")
    for function in tools(count):
        server.tool(function)
    if door == "stdio":
        server.run(transport="stdio", show_banner=False)
    else:
        _on_uvicorn(server.http_app(), door)


def route(_: int, door: str) -> None:
    """A bare Starlette route that parses and answers the same JSON as Toolcrib's HTTP API."""
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
                "tool": NAME.format(0),
                "started_at": "2026-11-22T16:07:41.850536+00:00",
                "finished_at": "2026-11-22T16:07:41.850582+00:00",
            }
        )

    _on_uvicorn(Starlette(routes=[Route(f"/api/tools/{NAME.format(0)}/call", call, methods=["POST"])]), door)


def commit(_: int, door: str) -> None:
    """No MCP and no framework: a row is committed before the answer, as the start of a call is."""
    import json
    import sqlite3

    answer = {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(f"{folder}/calls.db", check_same_thread=False, isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE calls (number INTEGER PRIMARY KEY, tool TEXT, status TEXT)")
        insert = partial(database.execute, "INSERT INTO calls (tool, status) VALUES ('add', 'started')")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            request = json.loads((await receive())["body"])
            await asyncio.to_thread(insert)
            body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        _on_uvicorn(app, door, lifespan="off")


def _on_uvicorn(app: Any, port: str, **options: Any) -> None:
    import uvicorn

    parts = {"http": "httptools", "loop": "uvloop"}
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", access_log=False, **parts, **options)


KINDS = {"toolcrib": toolcrib, "storeless": storeless, "sdk": sdk, "fastmcp": fastmcp, "route": route, "commit": commit}

if __name__ == "__main__":
    kind, how_many, at = sys.argv[1:]
    KINDS[kind](int(how_many), at)
