"""Each request of a served crib runs for the caller that it was identified as."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from toolcrib import Caller, Context, Crib, Depends, Source, StatefulTool, tool
from toolcrib.serve import server
from toolcrib.serve.access.callers import Callers
from toolcrib.store import Store

from ..waiting import until
from .serving import served


def of(**headers: str) -> HTTPConnection:
    """Return a request with these *headers*."""
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "headers": encoded})


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
async def client(url: str, token: str, mode: str) -> AsyncIterator[Any]:
    async with httpx2.AsyncClient(headers={"Authorization": token}) as http:  # noqa: SIM117
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as connected:
            yield connected


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_each_request_runs_for_its_own_caller(mode: str) -> None:
    async with served(Crib([Counter, who, only_alice]), identify) as url:  # noqa: SIM117
        async with client(url, "Bearer a", mode) as alice, client(url, "Bearer b", mode) as bob:
            assert [(await each.call_tool("who")).content[0].text for each in (alice, bob)] == ["alice", "bob"]
            counts = [await each.call_tool("increment") for each in (alice, alice, bob)]
            assert [count.content[0].text for count in counts] == ["1", "2", "1"]
            listed = [[each.name for each in (await one.list_tools()).tools] for one in (alice, bob)]
            assert listed == [["increment", "who", "only_alice"], ["increment", "who"]]


async def test_a_request_that_cannot_be_identified_is_refused_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Crib([who]), identify) as url:
        async with httpx2.AsyncClient() as http:
            answer = await http.post(url, headers={"Authorization": "Bearer nobody"}, json={})
        assert answer.status_code == 401
        assert answer.json()["detail"] == "The caller of this request could not be identified."
    assert f"could not be identified (KeyError, at {__file__}:" in caplog.text
    assert "Bearer nobody" not in caplog.text  # it may be a key of another service


async def test_one_caller_has_one_workbench_behind_both_doors() -> None:
    async with (
        served(Crib([Counter]), identify) as url,
        client(url, "Bearer a", "2026-07-28") as mcp,
        httpx2.AsyncClient(headers={"Authorization": "Bearer a"}) as http,
    ):

        async def over_http(**headers: str) -> object:
            answer = await http.post(f"{url[: -len('/mcp')]}/api/tools/increment/call", json={}, headers=headers)
            return answer.json()["content"][0]["data"]

        assert (await mcp.call_tool("increment")).structured_content == {"result": 1}
        assert await over_http() == 2
        assert (await mcp.call_tool("increment")).structured_content == {"result": 3}
        assert await over_http(Authorization="Bearer b") == 1


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_nothing_is_answered_for_a_client_that_cannot_be_identified(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    def nobody(_: Mapping[str, str]) -> Caller:
        raise LookupError

    async with Crib([who]) as crib, Client(server(crib, nobody), mode=mode) as client:
        requests: list[Callable[[], Any]] = [
            *(client.list_tools, client.list_prompts, client.list_resources, client.list_resource_templates),
            lambda: client.call_tool("who"),
            lambda: client.read_resource("n://a"),
            lambda: client.get_prompt("hi"),
            lambda: client.complete(PromptReference(name="hi"), {"name": "who", "value": ""}),
        ]
        if mode == "legacy":
            requests += [lambda: client.subscribe_resource("n://a"), lambda: client.unsubscribe_resource("n://a")]
        else:
            requests.append(lambda: client.listen(tools_list_changed=True).__aenter__())
        for request in requests:
            with pytest.raises(MCPError, match="could not be identified"):
                await request()
    assert "A request could not be identified" in caplog.text


def as_request(work: Callable[..., Any]) -> Callable[..., asyncio.Task[Any]]:
    """Return *work*, each time in a task of its own, as servers run requests."""
    return lambda *args: asyncio.create_task(work(*args))


async def test_many_accounts_with_many_threads_take_nothing_from_who_has_less() -> None:
    async with Crib([Counter]) as crib:
        callers = Callers(crib, lambda headers: Caller(headers["name"], thread=headers["thread"]), 100)

        @as_request
        async def count(name: str, thread: str = "t") -> object:
            return (await (await callers.workbench(of(name=name, thread=thread))).call("increment")).value

        assert [await count("alice"), await count("alice", "other")] == [1, 1]
        for account in range(20):
            for thread in range(10):
                await count(f"eve{account}", str(thread))
        assert len(list(callers)) == 100
        assert [await count("alice"), await count("alice", "other"), await count("bob")] == [2, 2, 1]
        await until(lambda: not callers._stopping)


@pytest.mark.parametrize("door", ["legacy", "2026-07-28", "http"])
async def test_what_a_running_call_uses_stays_open_whoever_comes_meanwhile(door: str) -> None:
    """The case of closed workbenches, and a second one: at the door for HTTP, and of the principal who has the most."""
    runs, go_on, closed = asyncio.Event(), asyncio.Event(), list[str]()

    async def connection(caller: Caller) -> AsyncIterator[list[str]]:
        yield []
        closed.append(caller.principal)

    @tool
    async def work(is_open: Annotated[list[str], Depends(connection, scope="session")], ctx: Context) -> bool:
        runs.set()
        await go_on.wait()
        return ctx.caller.principal not in closed

    def of_any(headers: Mapping[str, str]) -> Caller:
        return Caller(headers["authorization"], thread=headers.get("toolcrib-thread", "t"))

    async def called(url: str) -> object:
        if door == "http":
            async with httpx2.AsyncClient(headers={"Authorization": "a"}, timeout=60) as http:
                answer = await http.post(f"{url[: -len('/mcp')]}/api/tools/work/call", json={})
            return answer.json()["content"][0]["data"]
        async with client(url, "a", door) as connected:
            return (await connected.call_tool("work")).structured_content["result"]

    async with (
        served(Crib([work, who]), of_any, workbenches=2) as url,
        httpx2.AsyncClient() as http,
        asyncio.timeout(60),
    ):
        call = asyncio.create_task(called(url))
        await runs.wait()
        for name in ("b", "c", "d", "a"):
            for thread in ("1", "2"):
                headers = {"Authorization": name, "Toolcrib-Thread": thread}
                answer = await http.post(f"{url[: -len('/mcp')]}/api/tools/who/call", json={}, headers=headers)
                assert answer.status_code == 200
        go_on.set()
        assert await call is True
        for name in ("b", "c", "d"):  # and when the call has ended, its workbench goes as any other
            await http.post(f"{url[: -len('/mcp')]}/api/tools/who/call", json={}, headers={"Authorization": name})
        await until(lambda: closed == ["a"])


async def test_many_threads_of_one_principal_take_nothing_from_others() -> None:
    async with Crib([Counter]) as crib:
        callers = Callers(crib, lambda headers: Caller(headers["name"], thread=headers["thread"]))

        @as_request
        async def count(name: str, thread: int) -> object:
            bench = await callers.workbench(of(name=name, thread=str(thread)))
            return (await bench.call("increment")).value

        assert await count("bob", 0) == 1
        for thread in range(101):
            assert await count("alice", thread) == 1
        assert len(list(callers)) == 101
        assert [await count("alice", 100), await count("alice", 0), await count("bob", 0)] == [2, 1, 2]


async def test_more_callers_than_are_kept_may_come_while_the_tools_start() -> None:
    class Slow(Source):
        async def start(self) -> None:
            await asyncio.sleep(0.05)

        def tools(self) -> list[Any]:
            return [who]

    crib = Crib([Slow()])
    callers = Callers(crib, identify, 1)
    try:
        requests = [callers.workbench(of(authorization=f"Bearer {name}")) for name in "ab"]
        benches = await asyncio.gather(*requests)
        assert [bench.caller.principal for bench in benches] == ["alice", "bob"]
        assert (await benches[1].call("who")).text == "bob"
    finally:
        await crib.stop()


async def test_the_tool_for_large_results_is_listed_from_the_start_where_a_store_has_them(tmp_path: Path) -> None:
    for limit in (1000, 0):
        store = Store(tmp_path / "store.db", key=lambda: [b"k" * 32])
        async with (
            served(Crib([who], store=store, max_result_chars=limit)) as url,
            httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as http,
            Client(url, mode="2026-07-28") as client,
        ):
            expected = ["who"] if limit == 0 else ["who", "read_result"]
            assert [each["name"] for each in (await http.get("/api/tools")).json()["tools"]] == expected
            assert [each.name for each in (await client.list_tools()).tools] == expected


async def test_the_first_request_starts_the_tools_also_where_it_only_lists_them() -> None:
    class Later(Source):
        found: Sequence[Any] = ()

        async def start(self) -> None:
            self.found = [who]

        def tools(self) -> Sequence[Any]:
            return self.found

    crib = Crib([Later()])
    async with Client(server(crib)) as connected:
        assert [each.name for each in (await connected.list_tools()).tools] == ["who"]
    await crib.stop()


async def test_where_the_tools_cannot_be_started_each_call_says_so() -> None:
    class Broken:
        name = "broken"

        async def start(self) -> None:
            raise OSError("no such device")

        @tool
        async def read(self) -> int:
            return 1

    async with Client(server(Crib([Broken(), who]))) as connected:
        assert [each.name for each in (await connected.list_tools()).tools] == ["read", "who"]
        result = await connected.call_tool("who")
        assert result.is_error
        assert result.content[0].text == (
            "Tool 'who' is not available now: what it needs could not be started. Try again later."
        )
