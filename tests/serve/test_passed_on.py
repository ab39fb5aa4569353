"""Resources and prompts of a server at which each caller logs in: passed on to that caller, with their changes."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as wire
import pytest
from mcp import Client

from toolcrib import Call, Caller, Crib, Pending, ToolAuth, ToolError
from toolcrib.core import Broker, Credential, Requirement
from toolcrib.serve import AuthenticationError, server

from .serving import served

TOKENS = {"alice": "token-of-alice-0123456789", "carol": "token-of-carol-0123456789"}


class Granted(Broker):
    """Alice and Carol have logged in at the server, and Bob has not."""

    async def authorize(
        self, requirements: Sequence[Requirement], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        if caller.principal not in TOKENS:
            raise ToolError("Nobody has asked you to log in.", "unauthorized")
        return [
            Credential(each.provider, TOKENS[caller.principal]) for each in requirements if isinstance(each, ToolAuth)
        ]

    async def has_granted(self, required: ToolAuth, caller: Caller, /) -> bool:
        return caller.principal in TOKENS


def library() -> Crib:
    """What the server has: the same for all who get in."""
    crib = Crib()

    @crib.resources.add("far://mine", name="mine")
    async def mine(*, who: Caller) -> str:
        return f"of {who.principal}, with {TOKENS[who.principal]}"

    @crib.prompts.add
    def greet(who: str) -> str:
        """Greet somebody."""
        return f"Hello {who}"

    return crib


def identify(headers: Mapping[str, str]) -> Caller:
    names = {f"Bearer {token}": name for name, token in TOKENS.items()}
    if headers.get("authorization") not in names:
        raise AuthenticationError("Log in first.", None)
    return Caller(names[headers["authorization"]])


class Person:
    """A client of the gateway *crib*, by name, and the notices that it gets."""

    def __init__(self, crib: Crib, name: str, mode: str) -> None:
        self.crib, self.name, self.mode = crib, name, mode
        self.notices: asyncio.Queue[str] = asyncio.Queue()

    async def _note(self, message: Any) -> None:
        if isinstance(message, wire.ResourceUpdatedNotification):
            self.notices.put_nowait(f"updated {message.params.uri}")
        elif (method := getattr(message, "method", "")).endswith("list_changed"):
            self.notices.put_nowait(method.split("/")[1])

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        made = server(self.crib, lambda _: Caller(self.name))
        async with Client(made, mode=self.mode, message_handler=self._note) as client:
            if self.mode == "legacy":
                yield client
                return
            async with client.listen(
                resources_list_changed=True, prompts_list_changed=True, resource_subscriptions=["far://mine"]
            ) as events:
                following = asyncio.create_task(self._follow(events))
                yield client
                following.cancel()
                await asyncio.wait({following})

    async def _follow(self, events: Any) -> None:
        names = {"ResourcesListChanged": "resources", "PromptsListChanged": "prompts"}
        async for event in events:
            self.notices.put_nowait(names.get(type(event).__name__) or f"updated {event.uri}")

    async def until(self, notice: str) -> list[str]:
        """What came until *notice*."""
        seen: list[str] = []
        async with asyncio.timeout(60):
            while notice not in seen:
                seen.append(await self.notices.get())
        return seen


@pytest.mark.filterwarnings("ignore:resources.subscribe is removed")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_each_caller_is_offered_what_their_own_session_has_and_hears_of_its_changes(mode: str) -> None:
    upstream = library()
    async with served(upstream, identify) as url, Crib([url], broker=Granted()) as gateway:
        alice, bob = Person(gateway, "alice", mode), Person(gateway, "bob", mode)
        async with alice.connected() as client, bob.connected() as other:
            assert [each.uri for each in (await client.list_resources()).resources] == ["far://mine"]
            assert [each.name for each in (await client.list_prompts()).prompts] == ["greet"]
            [content] = (await client.read_resource("far://mine")).contents
            assert content.text == "of alice, with [secret]"
            [message] = (await client.get_prompt("greet", {"who": "Bob"})).messages
            assert "Hello Bob" in str(message.content)
            assert [(await other.list_resources()).resources, (await other.list_prompts()).prompts] == [[], []]
            with pytest.raises(Exception, match="no resource at"):
                await other.read_resource("far://mine")
            if mode == "legacy":
                for each in (client, other):
                    await each.subscribe_resource("far://mine")
            upstream.resources.updated("far://mine")
            await alice.until("updated far://mine")
            upstream.resources.add("far://second", "2")
            await alice.until("resources")
            upstream.prompts.add(lambda: "hi", name="hi")
            await alice.until("prompts")
            gateway.resources.add("near://own", "mine")
            assert await bob.until("resources") == ["resources"]  # of all that, this alone concerns him
            async with Client(server(gateway, lambda _: Caller("carol"))) as third:
                [content] = (await third.read_resource("far://mine")).contents
                assert content.text == "of carol, with [secret]"
