"""MCP servers of the same tools, each by its library's own means: `python servers.py KIND COUNT DOOR`.

KIND is `toolcrib`, `sdk` or `fastmcp`; DOOR is `stdio`, or the port of loopback for HTTP. Run by serving_calls.py.
"""

import asyncio
import sys
from collections.abc import Callable
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
    from toolcrib import Crib
    from toolcrib.serve import serve_http, serve_stdio

    crib = Crib(tools(count))
    asyncio.run(serve_stdio(crib) if door == "stdio" else serve_http(crib, port=int(door)))


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
        import uvicorn

        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(door), log_level="error")
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
        server.run(transport="http", host="127.0.0.1", port=int(door), show_banner=False, log_level="error")


if __name__ == "__main__":
    kind, how_many, at = sys.argv[1:]
    {"toolcrib": toolcrib, "sdk": sdk, "fastmcp": fastmcp}[kind](int(how_many), at)
