"""Each request of a served crib runs for the caller that it was identified as."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from toolcrib import Caller, Context, Crib, StatefulTool, tool
from toolcrib.serve import serve_http


class Count(BaseModel):
    value: int = 0


class Counter(StatefulTool[Count]):
    @tool
    async def increment(self) -> int:
        self.state.value += 1
        return self.state.value


@tool
async def who(ctx: Context) -> str:
    return ctx.caller.principal


@tool(available=lambda caller: caller.principal == "alice")
async def only_alice() -> str:
    return "for alice"


async def identify(headers: Mapping[str, str]) -> Caller:
    names = {"Bearer a": "alice", "Bearer b": "bob"}
    return Caller(names[headers["authorization"]])


@asynccontextmanager
async def served(crib: Crib) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(crib, identify, port=0, ready=ready.set_result))
    try:
        yield await ready
    finally:
        serving.cancel()
        await asyncio.wait({serving})


@asynccontextmanager
async def client(url: str, token: str, mode: str) -> AsyncIterator[Any]:
    async with httpx2.AsyncClient(headers={"Authorization": token}) as http:  # noqa: SIM117
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as connected:
            yield connected


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_each_request_runs_for_its_own_caller(mode: str) -> None:
    async with served(Crib([Counter, who, only_alice])) as url:  # noqa: SIM117
        async with client(url, "Bearer a", mode) as alice, client(url, "Bearer b", mode) as bob:
            assert [(await each.call_tool("who")).content[0].text for each in (alice, bob)] == ["alice", "bob"]
            counts = [await each.call_tool("increment") for each in (alice, alice, bob)]
            assert [count.content[0].text for count in counts] == ["1", "2", "1"]
            listed = [[each.name for each in (await one.list_tools()).tools] for one in (alice, bob)]
            assert listed == [["increment", "who", "only_alice"], ["increment", "who"]]


async def test_a_request_that_cannot_be_identified_is_refused() -> None:
    async with served(Crib([who])) as url, client(url, "Bearer nobody", "2026-07-28") as stranger:
        with pytest.raises(MCPError, match="could not be identified"):
            await stranger.call_tool("who")
