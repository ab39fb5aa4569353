"""The tools of the gateway: one needs an account of its caller, one needs nothing, and one is of a dead server."""

import asyncio
from collections.abc import Sequence
from typing import Any

from toolcrib import Context, Source, ToolAuth, tool


@tool(auth=ToolAuth("local", scopes=["openid", "read"]))
async def who(context: Context) -> str:
    """Who I am there."""
    host = context.credentials["local"].hosts[0]
    response = await context.http("local").get(f"http://{host}/me")
    return f"{response.status_code} {response.json().get('sub')}"


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def search(text: str) -> str:
    """Search in a server that is dead."""
    raise AssertionError("nobody is there")


class DeadServer(Source):
    """A server that nobody started."""

    def tools(self) -> Sequence[Any]:
        return [search]

    async def start(self) -> None:
        await asyncio.open_connection("127.0.0.1", 9)


dead = DeadServer()
