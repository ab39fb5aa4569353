"""Clients of the older era that lose a stream and come back for what they missed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import httpx2
import mcp_types as wire
import pytest
from mcp import Client
from mcp.server.streamable_http import GET_STREAM_KEY, EventMessage

from toolcrib import Crib, tool
from toolcrib.serve import close_stream, mcp_streams
from toolcrib.serve.mcp_streams import EventMemory, SessionEvents

from .serving import served

ACCEPT = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def request(id: int | None, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})


class Session:
    """A session of the older era, request by request."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http, self.url, self.headers = http, url, dict(ACCEPT)

    async def open(self) -> "Session":
        answer = await self.http.post(self.url, json=request(0, "initialize", **HELLO), headers=self.headers)
        self.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        await self.http.post(self.url, json=request(None, "notifications/initialized"), headers=self.headers)
        return self

    async def lose(self, **params: Any) -> str:
        """Make a call, and lose its stream. Returns the id of the event that came first."""
        made = request(1, "tools/call", **params)
        async with self.http.stream("POST", self.url, json=made, headers=self.headers) as stream:
            return (await anext(events(stream)))["id"]

    async def resume(self, last: str) -> list[dict[str, str]]:
        """What comes of the stream of the event *last* after it, until it ends."""
        headers = {**self.headers, "Last-Event-ID": last}
        async with self.http.stream("GET", self.url, headers=headers) as stream:
            assert stream.status_code == 200
            return [each async for each in events(stream)]


async def events(stream: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    event: dict[str, str] = {}
    async for line in stream.aiter_lines():
        if line and not line.startswith(":"):
            name, _, value = line.partition(":")
            event[name] = value.strip()
        elif event:
            yield event
            event = {}


@asynccontextmanager
async def session_with(*tools: Any) -> AsyncIterator[Session]:
    async with served(Crib(tools)) as url, httpx2.AsyncClient(timeout=60) as http:
        yield Session(http, url)


async def test_a_client_that_lost_its_stream_gets_the_answer_and_nobody_elses() -> None:
    go_on = asyncio.Event()

    @tool
    async def wait(name: str) -> str:
        """Wait."""
        await go_on.wait()
        return name

    async with session_with(wait) as first:
        await first.open()
        second = await Session(first.http, first.url).open()
        # Both use the same ids for their requests.
        lost = [await one.lose(name="wait", arguments={"name": name}) for one, name in ((first, "a"), (second, "b"))]
        waiting = asyncio.create_task(first.resume(lost[0]))  # before there is an answer
        await asyncio.sleep(0)
        go_on.set()
        answers = [await waiting, await second.resume(lost[1])]  # and after
        found = [json.loads(each[-1]["data"])["result"]["structuredContent"] for each in answers]
        assert found == [{"result": "a"}, {"result": "b"}]
        # What came is not sent again to whoever has had it; an unknown id brings nothing.
        again = await first.resume(lost[0])
        assert [each["data"] for each in again] == [each["data"] for each in answers[0]]
        assert await first.resume("999") == []
        assert await first.resume("x" * 100) == []


async def test_a_tool_can_let_go_of_the_connection_and_the_client_comes_back_for_the_answer() -> None:
    can: list[bool] = []

    @tool
    async def leave() -> str:
        """Let go."""
        can.append(await close_stream())
        return "here"

    async with session_with(leave) as session:
        await session.open()
        made = request(1, "tools/call", name="leave", arguments={})
        async with session.http.stream("POST", session.url, json=made, headers=session.headers) as stream:
            first = [each async for each in events(stream)]
        assert [(each["data"], each["retry"]) for each in first] == [("", "1000")]
        [*_, answer] = await session.resume(first[0]["id"])
        assert json.loads(answer["data"])["result"]["structuredContent"] == {"result": "here"}
        assert await session.resume(answer["id"]) == []  # nothing comes after the answer
        async with Client(session.url, mode="2026-07-28") as client:
            assert not (await client.call_tool("leave")).is_error
    assert can == [True, False]


def answer(text: str) -> wire.JSONRPCResponse:
    return wire.JSONRPCResponse(jsonrpc="2.0", id="1", result={"text": text})


def notice(method: str) -> wire.JSONRPCNotification:
    return wire.JSONRPCNotification(jsonrpc="2.0", method=method)


class Stored(SessionEvents):
    """The events of a session, and what is sent again of them: ids, and messages as they are written."""

    async def replayed(self, last: str) -> tuple[list[tuple[str, str]], str | None]:
        sent: list[tuple[str, str]] = []

        async def send(event: EventMessage) -> None:
            sent.append((event.event_id or "", written(event.message)))

        async with asyncio.timeout(60):
            return sent, await self.replay_events_after(last, send)


def written(message: Any) -> str:
    return message.model_dump_json(by_alias=True, exclude_unset=True)


async def test_what_is_sent_again_is_what_came_after_on_that_stream_as_it_was() -> None:
    events = Stored(EventMemory())
    failed = wire.JSONRPCError(jsonrpc="2.0", id=2, error=wire.ErrorData(code=1, message="no"))
    first = await events.store_event("1", None)
    other = await events.store_event("2", None)
    second = await events.store_event("1", notice("one"))
    end = await events.store_event("2", failed)
    waiting = asyncio.create_task(events.replayed(second))
    await asyncio.sleep(0)  # it waits now, since what came is no answer
    third = await events.store_event("1", notice("two"))
    last = await events.store_event("1", answer("mine"))
    expected = [(third, written(notice("two"))), (last, written(answer("mine")))]
    assert await waiting == (expected, None)
    assert await events.replayed(first) == ([(second, written(notice("one"))), *expected], None)
    assert await events.replayed(other) == ([(end, written(failed))], None)
    assert await events.replayed(last) == ([], None)
    for unknown in ("999", "0", "", "x", "-1", "9" * 5000):
        assert await events.replayed(unknown) == ([], None)


async def test_the_stream_of_notices_goes_on_after_what_came_meanwhile() -> None:
    events = Stored(EventMemory())
    first = await events.store_event(GET_STREAM_KEY, notice("one"))
    # An answer on the stream of notices is one that another stream was to bring: the stream does not end with it.
    second = await events.store_event(GET_STREAM_KEY, answer("late"))
    third = await events.store_event(GET_STREAM_KEY, notice("two"))
    expected = [(second, written(answer("late"))), (third, written(notice("two")))]
    assert await events.replayed(first) == (expected, GET_STREAM_KEY)
    assert await events.replayed(second) == (expected[1:], GET_STREAM_KEY)


async def test_who_has_the_most_to_be_sent_again_loses_their_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_streams, "_MAX_BYTES", 10 * mcp_streams._EVENT_BYTES)
    memory = EventMemory()
    alice = Stored(memory, "alice")
    start = await alice.store_event("1", None)
    await alice.store_event("1", answer("mine"))
    for session in [Stored(memory, "eve") for _ in range(5)]:  # she has many sessions, and they are one share
        for _ in range(5):
            await session.store_event("1", notice("x" * 200))
    assert [*alice.events] == [1, 2]
    assert [json.loads(message)["result"] for _, message in (await alice.replayed(start))[0]] == [{"text": "mine"}]


async def test_what_is_kept_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = EventMemory()
    one, other = Stored(memory), Stored(memory)
    first = await one.store_event("1", None)
    await one.store_event("1", answer("mine"))
    # Too large to be kept: then that is what is sent, and of a notice nothing.
    start = await other.store_event("1", None)
    await other.store_event("1", notice("x" * 2**20))
    await other.store_event("1", answer("x" * 2**20))
    [(_, lost)], _ = await other.replayed(start)
    reason = "The stream of this request was lost, and the answer was too large to be kept."
    assert json.loads(lost) == {"jsonrpc": "2.0", "id": "1", "error": {"code": -32603, "message": reason}}
    monkeypatch.setattr(mcp_streams, "_EVENT_BYTES", 0)
    monkeypatch.setattr(mcp_streams, "_MAX_BYTES", 700)
    memory, others = EventMemory(), other
    one, other = Stored(memory), Stored(memory)
    first = await one.store_event("1", None)
    await one.store_event("1", answer("mine"))
    assert len(others.events) == 3
    await other.store_event("1", answer("y" * 300))
    assert [*one.events] == [1, 2]
    await other.store_event("1", answer("y" * 300))
    assert ([*one.events], await one.replayed(first)) == ([], ([], None))
    # What went is no longer counted: after another that makes room for itself, there is room for a small one.
    await other.store_event("1", answer("y" * 300))
    before = len(other.events)
    await other.store_event("1", None)
    assert len(other.events) == before + 1
    later_s = monotonic() + 1000
    monkeypatch.setattr(mcp_streams, "monotonic", lambda: later_s)
    await one.store_event("1", None)
    assert (len(one.events), len(other.events)) == (1, 0)
