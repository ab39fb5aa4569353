"""Clients of the older era that lose a stream and come back for what they missed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, cast

import httpx2
import pytest
from mcp import Client

from toolcrib import Crib, tool
from toolcrib.serve import close_stream
from toolcrib.serve.protocol import sessions
from toolcrib.serve.protocol.reply import Reply
from toolcrib.serve.protocol.session import Session as State
from toolcrib.serve.protocol.sessions import EventMemory, HttpSession, Sessions, Stream

from .serving import Waits, served

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


def kept(memory: EventMemory, owner: str | None = None) -> tuple[HttpSession, Stream]:
    """A session without its server, and the stream of a request of it."""
    of = Sessions(cast(Any, None), cast(Any, None), None, cast(Any, None))
    of.memory = memory
    session = HttpSession(of, "s", owner, State())
    return session, Stream(session)


class Sent(Reply):
    """A reply, and what was sent of it."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

        async def send(part: Any) -> None:
            self.parts.append(part.get("body", b""))

        super().__init__(send)

    def events(self) -> list[tuple[str, str]]:
        """The ids and messages."""
        frames = b"".join(self.parts).decode().split("\r\n\r\n")
        fields = [dict(line.split(": ", 1) for line in frame.split("\r\n")) for frame in frames if "data" in frame]
        return [(of["id"], of["data"]) for of in fields]


async def again(stream: Stream, position: int) -> list[tuple[str, str]]:
    reply = Sent()
    await stream.send_again(reply, position)
    return reply.events()


async def test_what_is_sent_again_is_what_came_after_on_that_stream_as_it_was() -> None:
    session, one = kept(EventMemory())
    other = Stream(session)
    one.reply = lost = Sent()
    await one.prime()
    await other.write(b"theirs")
    await one.write(b"one")
    one.reply = None
    await one.write(b"two")
    await one.end(b"mine")
    assert lost.events() == [("1", ""), ("3", "one")]
    assert await again(one, 1) == [("3", "one"), ("4", "two"), ("5", "mine")]
    assert await again(one, 3) == [("4", "two"), ("5", "mine")]
    assert await again(one, 5) == []
    assert await again(other, 0) == [("2", "theirs")]
    await one.write(b"late")  # nothing comes after the answer
    assert await again(one, 5) == []


async def test_who_has_the_most_to_be_sent_again_loses_their_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MAX_BYTES", 10 * sessions._EVENT_BYTES)
    memory = EventMemory()
    alice, stream = kept(memory, "alice")
    await stream.write(b"one")
    await stream.end(b"mine")
    for _, of_eve in [kept(memory, "eve") for _ in range(5)]:  # she has many sessions, and they are one share
        for _ in range(5):
            await of_eve.write(b"x" * 200)
    assert [*alice.events] == [1, 2]
    assert await again(stream, 1) == [("2", "mine")]


async def test_what_is_kept_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = EventMemory()
    _, large = kept(memory)
    # Too large to be kept: then that is what is sent, and of a notice nothing.
    await large.write(b"x" * (2**20 + 1))
    await large.end(b'{"jsonrpc":"2.0","id":"1","result":{"text":"%b"}}' % (b"x" * 2**20))
    [(_, text)] = await again(large, 0)
    reason = "The stream of this request was lost, and the answer was too large to be kept."
    assert json.loads(text) == {"jsonrpc": "2.0", "id": "1", "error": {"code": -32603, "message": reason}}
    monkeypatch.setattr(sessions, "_EVENT_BYTES", 0)
    monkeypatch.setattr(sessions, "_MAX_BYTES", 700)
    memory = EventMemory()
    (one, first), (other, second) = kept(memory), kept(memory)
    await first.write(b"x" * 50)
    await second.write(b"y" * 350)
    assert [*one.events] == [1]
    await second.write(b"y" * 350)
    assert ([*one.events], await again(first, 0)) == ([], [])
    # What went is no longer counted: after another that makes room for itself, there is room for a small one.
    await second.write(b"y" * 350)
    before = len(other.events)
    await second.write(b"")
    assert len(other.events) == before + 1
    later_s = monotonic() + 1000
    monkeypatch.setattr(sessions, "monotonic", lambda: later_s)
    await first.write(b"")
    assert (len(one.events), len(other.events)) == (1, 0)


async def test_a_stream_of_notices_is_taken_up_again_and_the_one_before_it_ends() -> None:
    crib = Crib([])
    async with served(crib) as url, httpx2.AsyncClient(timeout=60) as http, asyncio.timeout(60):
        session = await Session(http, url).open()
        async with http.stream("GET", url, headers=session.headers) as first:
            assert (await http.get(url, headers=session.headers)).status_code == 409
            coming = events(first)
            crib.prompts.add(by_name)
            last = (await anext(coming))["id"]
            async with http.stream("GET", url, headers={**session.headers, "Last-Event-ID": last}) as second:
                assert [event async for event in coming] == []
                crib.prompts.remove("by_name")
                rest = events(second)
                event = await anext(rest)
                assert json.loads(event["data"])["method"] == "notifications/prompts/list_changed"
                ended = await http.delete(url, headers=session.headers)
                assert (ended.status_code, [each async for each in rest]) == (200, [])
        assert (await http.get(url, headers=session.headers)).status_code == 404


def by_name(name: str) -> str:
    """Greet somebody."""
    return name


async def test_a_call_is_cancelled_by_its_client_and_not_by_a_lost_stream() -> None:
    waits = Waits()
    async with session_with(waits.tool) as session, asyncio.timeout(60):
        await session.open()
        last = await session.lose(name="wait", arguments={})
        assert waits.ended == []
        waiting = asyncio.create_task(session.resume(last))
        cancelled = request(None, "notifications/cancelled", requestId=1)
        assert (await session.http.post(session.url, json=cancelled, headers=session.headers)).status_code == 202
        await waits.until("cancelled")
        [answer] = await waiting
        assert json.loads(answer["data"])["error"]["code"] == -32800
        waits.began.clear()
        posting = asyncio.create_task(session.lose(name="wait", arguments={}))
        await waits.began.wait()
        assert (await session.http.delete(session.url, headers=session.headers)).status_code == 200
        await waits.until("cancelled", "cancelled")  # a session that ends takes its calls with it
        posting.cancel()


async def test_what_an_idle_session_has_here_ends_and_of_one_with_an_open_stream_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "_SWEEP_INTERVAL_S", 0.01)
    clock = monotonic()
    monkeypatch.setattr(sessions, "monotonic", lambda: clock)
    ended: list[str] = []
    close = HttpSession.close

    async def noted(self: HttpSession) -> None:
        ended.append(self.id)
        await close(self)

    monkeypatch.setattr(HttpSession, "close", noted)
    async with session_with() as idle, asyncio.timeout(60):
        await idle.open()
        listening = await Session(idle.http, idle.url).open()
        ping = request(1, "ping")
        async with idle.http.stream("GET", idle.url, headers=listening.headers) as stream:
            assert stream.status_code == 200
            clock += sessions._IDLE_TIMEOUT_S - 1
            for _ in range(3):
                assert (await idle.http.post(idle.url, json=ping, headers=listening.headers)).status_code == 200
            assert not ended
            clock += 2
            while not ended:
                await asyncio.sleep(0.01)
            clock += sessions._IDLE_TIMEOUT_S + 1
            await asyncio.sleep(0.05)
            assert ended == [idle.headers["Mcp-Session-Id"]]
            for session in (listening, idle):  # whose id makes it again
                assert (await idle.http.post(idle.url, json=ping, headers=session.headers)).status_code == 200
