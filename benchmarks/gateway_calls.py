"""A call of a tool of an MCP server: by the SDK's own client, and through a workbench whose source the server is."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cases import Loop
from mcp import Client, StdioServerParameters
from report import BARE, FLOOR
from servers import NAME
from serving_calls import http_process

from toolcrib import MCPSource, Workbench

_SERVER = [str(Path(__file__).with_name("servers.py")), "sdk", "4", "stdio"]
_TEXT = '{"a": 1, "b": 2}'


@asynccontextmanager
async def over_stdio() -> AsyncGenerator[Mapping[str, Loop]]:
    """The same server twice: a process for each of the two."""
    server = StdioServerParameters(command=sys.executable, args=_SERVER)
    async with _calls(server, MCPSource(command=[sys.executable, *_SERVER])) as loops:
        yield loops


@asynccontextmanager
async def over_http() -> AsyncGenerator[Mapping[str, Loop]]:
    """One server in a process of its own."""
    with http_process("sdk", 4) as (_, port):
        url = f"http://127.0.0.1:{port}/mcp"
        async with _calls(url, MCPSource(url=url)) as loops:
            yield loops


@asynccontextmanager
async def _calls(server: Any, source: MCPSource) -> AsyncGenerator[Mapping[str, Loop]]:
    name = NAME.format(0)
    async with Client(server) as client, Workbench([source]) as bench:

        async def by_sdk(times: int) -> str:
            text = ""
            for _ in range(times):
                result = await client.call_tool(name, json.loads(_TEXT))
                text = result.content[0].text  # type: ignore[union-attr]
            return text

        async def by_toolcrib(times: int) -> str:
            text = ""
            for _ in range(times):
                text = (await bench.call(name, _TEXT)).text
            return text

        yield {FLOOR: by_sdk, BARE: by_toolcrib}
