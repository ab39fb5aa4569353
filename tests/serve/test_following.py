"""Resources that clients follow, and sources that change: who is asked to report, until when, and what is left."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from toolcrib import Caller, Crib, tool
from toolcrib.core.source import Prompt, PromptMessage, Resource, ResourceContent, ResourceTemplate
from toolcrib.serve import local_caller, server
from toolcrib.serve.access.callers import Callers
from toolcrib.serve.mcp import changes as module
from toolcrib.serve.mcp.changes import following

from ..waiting import until
from .serving import add, served

MODERN = "2026-07-28"
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


class Far:
    """A source that is asked to report on its resources; *asked* is what it was asked, in order."""

    name = "far"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def tools(self) -> Sequence[Any]:
        return ()

    async def resources(self) -> Sequence[Resource]:
        return ()

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        return [ResourceTemplate(uri_template="far://{name}", name="far")]

    async def read_resource(self, uri: str, /) -> Sequence[ResourceContent]:
        return [ResourceContent(uri=uri, data="far")]

    async def follow_resource(self, uri: str, /) -> None:
        self.asked.append(f"follow {uri}")

    async def unfollow_resource(self, uri: str, /) -> None:
        await asyncio.sleep(0)  # as one that has to ask a server
        self.asked.append(f"unfollow {uri}")

    async def until(self, *asked: str) -> None:
        """Until that, in whatever order, is all that it was asked."""
        await until(lambda: sorted(self.asked) == sorted(asked))
        self.asked.clear()


async def test_a_connection_follows_a_resource_once_until_it_no_longer_wants_to_or_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MAX_FOLLOWED", 2)
    far = Far()
    async with Crib([far]) as crib:
        async with Client(server(crib), mode="legacy") as client:
            for name in "aab":
                await client.subscribe_resource(f"far://{name}")
            assert far.asked == ["follow far://a", "follow far://b"]
            with pytest.raises(MCPError, match="A connection follows at most 2 resources"):
                await client.subscribe_resource("far://c")
            far.asked.clear()
            for _ in range(2):
                await client.unsubscribe_resource("far://a")
            await client.subscribe_resource("far://c")
            assert far.asked == ["unfollow far://a", "follow far://c"]
            far.asked.clear()
        await far.until("unfollow far://b", "unfollow far://c")


async def test_all_connections_of_a_principal_follow_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_OF_PRINCIPAL", 2)
    far = Far()
    async with served(Crib([far])) as url, Client(url, mode="legacy") as client:
        async with Client(url, mode="legacy") as other:
            for each, name in ((client, "a"), (other, "b")):
                await each.subscribe_resource(f"far://{name}")
            for _ in range(2):
                with pytest.raises(MCPError, match="All your connections follow at most 2 resources"):
                    await client.subscribe_resource("far://c")
            await other.unsubscribe_resource("far://b")
        await far.until("follow far://a", "follow far://b", "unfollow far://b")
        await client.subscribe_resource("far://c")
        await far.until("follow far://c")


async def test_a_stream_follows_its_resources_once_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_FOLLOWED", 2)
    far = Far()
    async with Crib([far]) as crib, Client(server(crib), mode=MODERN) as client:
        async with client.listen(resource_subscriptions=["far://a", "far://b", "far://a"]):
            await far.until("follow far://a", "follow far://b")
        await far.until("unfollow far://a", "unfollow far://b")
        with pytest.raises(MCPError, match="A stream follows at most 2 resources"):
            await client.listen(resource_subscriptions=[f"far://{name}" for name in "abc"]).__aenter__()
        assert far.asked == []


async def test_of_two_streams_of_a_caller_one_may_end_and_of_both_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: weakref.WeakSet[Any] = weakref.WeakSet()

    class Noted(module._Streams):
        def __init__(self) -> None:
            super().__init__()
            made.add(self)

    monkeypatch.setattr(module, "_Streams", Noted)

    crib = Crib([add])
    async with crib, Client(server(crib), mode=MODERN) as client, asyncio.timeout(60):
        async with client.listen(resources_list_changed=True) as events:
            async with client.listen(resources_list_changed=True) as others:
                crib.resources.add("n://a", "a")
                await anext(events)
                await anext(others)
            await client.list_tools()  # answered after the end of the other stream was read
            crib.resources.add("n://b", "b")
            await anext(events)
            gc.collect()
            assert len(made) == 1
        while made:
            gc.collect()
            await asyncio.sleep(0.01)


async def test_a_stream_is_ended_when_serving_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.serve.http.END_TIMEOUT_S", 60)  # it is not cut off
    crib = Crib([add])
    ended: list[Any] = []
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(crib))
        stop = stack.pop_all()
        async with Client(url, mode=MODERN) as client, client.listen(tools_list_changed=True) as events:
            await stop.aclose()
            ended.append(await anext(events, "ended"))
    assert ended == ["ended"]


class Session:
    """A connection; `noticed` is set by the notices that it takes, and where *is_stuck*, it takes none."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        self.followed, self.closing = set[str](), dict[str, Any]()
        self.is_stuck, self.noticed = is_stuck, asyncio.Event()

    async def send_notification(self, _: object) -> None:
        self.noticed.set()
        if self.is_stuck:
            await asyncio.Event().wait()


async def test_a_client_that_takes_nothing_holds_up_neither_the_others_nor_the_end() -> None:
    crib, stuck, other = Crib([add]), Session(is_stuck=True), Session()
    callers = Callers(crib, local_caller)
    bench = await callers.workbench(None)
    before = asyncio.all_tasks()
    async with asyncio.timeout(60):
        async with following(callers) as changes:
            changes.add(cast(Any, stuck), bench)
            changes.add(cast(Any, other), bench)
            for name in ("one", "two"):
                crib.registry.add(tool(name=name)(lambda: 1))
                await other.noticed.wait()
                other.noticed.clear()
        await until(lambda: not asyncio.all_tasks() - before)


# What changes in a source


class Changing:
    """A source whose content changes, and that offers what a subclass adds."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[], None]] = []

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def tools(self) -> Sequence[Any]:
        return ()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def change(self) -> None:
        for listener in self.listeners:
            listener()


class WithPrompts(Changing):
    name = "prompts"

    async def prompts(self) -> Sequence[Prompt]:
        return ()

    async def get_prompt(self, name: str, arguments: Any, /) -> Sequence[PromptMessage]:
        raise LookupError(name)


class WithResources(Changing):
    name = "resources"

    async def resources(self) -> Sequence[Resource]:
        return ()

    async def read_resource(self, uri: str, /) -> Sequence[ResourceContent]:
        raise LookupError(uri)


class WithNeither(Changing):
    name = "neither"

    async def open(self, _caller: Caller) -> "WithNeither":
        return self


async def test_a_change_of_a_source_is_one_of_what_it_may_offer() -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def handle(message: Any) -> None:
        if (method := getattr(message, "method", "")).endswith("list_changed"):
            heard.put_nowait(method.split("/")[1])

    sources = [WithPrompts(), WithResources(), WithNeither()]
    crib = Crib(sources)
    async with asyncio.timeout(60), crib, Client(server(crib), mode="legacy", message_handler=handle) as client:
        await client.send_ping()
        for source in sources[:2]:
            source.change()
            assert {await heard.get(), await heard.get()} == {"resources", "prompts"}
        sources[2].change()
        crib.registry.add(add)
        assert await heard.get() == "tools"
    assert [len(source.listeners) for source in sources] == [0, 0, 0]
