"""Sessions of the older era whose ids another process opens."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib import Caller, Context, Crib, tool
from toolcrib.serve import server
from toolcrib.serve.access.callers import CALLER, thread_of
from toolcrib.serve.protocol import sessions
from toolcrib.store import Store

from .test_protocol import ask, body, status
from .test_protocol_session import HELLO, sent

HERE = {"mcp_protocol_version": "2025-11-25", "mcp_method": None, "mcp_name": None}
LIST = sent("tools/list", 1)
KEY = b"k" * 32


@tool
def thread(context: Context) -> str:
    """Return the thread of a call."""
    return context.caller.thread


@tool
async def confirm(context: Context) -> str:
    """Ask for a word."""
    return await context.ask("word", str, "Which word?")


def identify(headers: Mapping[str, str]) -> Caller:
    return Caller(headers.get("x-user", "alice"), thread=thread_of(headers))


@asynccontextmanager
async def process(*tools: Any, store: Path | None = None, key: bytes = KEY, **options: Any) -> AsyncGenerator[Any]:
    """The application of one process, and its server."""
    at = {} if store is None else {"store": Store(f"{store}/store.db", key=lambda: (key,))}
    async with Crib([*tools], **at, **options) as crib:
        own = server(crib, identify)
        older = own.sessions()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            names = {name.decode(): value.decode() for name, value in scope["headers"]}
            await older({**scope, CALLER: identify(names)}, receive, send)

        async with own.handlers.running(), older.run():
            older.crib = crib
            yield app, older


async def begun(app: ASGIApp, **options: Any) -> str:
    hello = await ask(app, sent("initialize", 0, **HELLO | options), **HERE)
    return dict(hello[0]["headers"])[b"mcp-session-id"].decode()


async def answered(app: ASGIApp, message: bytes, session_id: str, **options: Any) -> int:
    return status(await ask(app, message, **{**HERE, "mcp_session_id": session_id, **options}))


async def test_any_process_with_the_key_answers_a_session(tmp_path: Path) -> None:
    async with process(thread, store=tmp_path) as (one, _), process(thread, store=tmp_path) as (other, _):
        session_id = await begun(
            one, protocolVersion="2025-06-18", capabilities={"experimental": {"x": {"y": "z" * 9999}}}
        )
        assert len(session_id) < 2000
        assert all(" " < each < "\x7f" for each in session_id)
        call = sent("tools/call", 1, name="thread", arguments={})
        texts = [body(await ask(app, call, **HERE, mcp_session_id=session_id)) for app in (one, other)]
        assert texts[0] == texts[1]
        assert json.loads(texts[0])["result"]["structuredContent"] == {"result": session_id.partition(".")[0]}


async def test_an_id_that_is_not_ours_as_it_is_or_is_too_old_is_answered_by_404(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(store=tmp_path) as (one, _), process(store=tmp_path) as (other, _):
        session_id = await begun(one)
        assert await answered(other, LIST, session_id, x_user="eve") == 404
        for place, letter in enumerate(session_id):
            if letter == ".":
                continue
            changed = session_id[:place] + ("A" if letter != "A" else "B") + session_id[place + 1 :]
            assert await answered(other, LIST, changed) == 404, place
        for part in (session_id[:-1], session_id + "A", session_id + "=", session_id.partition(".")[0], "x.", "."):
            assert await answered(other, LIST, part) == 404
        async with process(store=tmp_path, key=b"o" * 32) as (stranger, _), process() as (alone, _):
            assert await answered(stranger, LIST, session_id) == 404
            assert await answered(alone, LIST, session_id) == 404
            assert await answered(one, LIST, await begun(alone)) == 404
        now_s = sessions.time()
        monkeypatch.setattr(sessions, "time", lambda: now_s + sessions._MAX_AGE_S + 1)
        assert await answered(other, LIST, session_id) == 404
        assert await answered(one, LIST, session_id) == 200  # which has it still


async def test_who_has_ended_a_session_has_ended_it_there(tmp_path: Path) -> None:
    async with process(store=tmp_path) as (one, _), process(store=tmp_path) as (other, _):
        session_id = await begun(one)
        assert await answered(other, b"", session_id, method="DELETE") == 200
        assert [await answered(app, LIST, session_id) for app in (other, one)] == [404, 200]
        assert await answered(other, b"", session_id, method="DELETE") == 404


async def test_a_session_goes_on_after_its_process(tmp_path: Path) -> None:
    async with process(store=tmp_path) as (before, _):
        session_id = await begun(before)
    async with process(store=tmp_path) as (after, _):
        assert await answered(after, LIST, session_id) == 200


async def test_a_session_made_of_its_id_counts_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MAX_OF_PRINCIPAL", 2)
    async with process(store=tmp_path) as (one, older), process(store=tmp_path) as (other, others):
        ids = [await begun(one) for _ in range(3)]
        # Of several requests that come first, each is answered, in one session.
        assert (
            await asyncio.gather(*(answered(other, sent("tools/list", n), ids[n % 2]) for n in range(8))) == [200] * 8
        )
        assert await answered(other, LIST, ids[2]) == 200
        assert (len(older._sessions), len(others._sessions)) == (2, 2)


async def test_an_answer_that_comes_to_another_process_is_refused_and_counts_for_no_other_question(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(60),
        process(confirm, store=tmp_path) as (one, _),
        process(confirm, store=tmp_path) as (other, _),
    ):
        session_id = await begun(one, capabilities={"elicitation": {}})
        questions, calls = list[Any](), list[Any]()
        for number, app in enumerate((one, other)):
            question = asyncio.get_running_loop().create_future()

            async def note(part: Any, question: Any = question) -> None:
                if b"elicitation/create" in part.get("body", b""):
                    question.set_result(json.loads(part["body"].partition(b"data: ")[2]))

            call = sent("tools/call", number, name="confirm", arguments={})
            calls.append(asyncio.create_task(ask(app, call, sent=note, **HERE, mcp_session_id=session_id)))
            questions.append(await question)

        def answer(number: int) -> bytes:
            result = {"action": "accept", "content": {"value": "ab"[number]}}
            return json.dumps({"jsonrpc": "2.0", "id": questions[number]["id"], "result": result}).encode()

        refused = await ask(other, answer(0), **HERE, mcp_session_id=session_id)
        assert (status(refused), json.loads(body(refused))["error"]["message"]) == (400, sessions._STRAY)
        assert await answered(one, b'{"jsonrpc":"2.0","id":"x","result":{}}', session_id) == 400
        assert await answered(one, answer(0), session_id) == 202
        assert await answered(one, answer(0), session_id) == 202  # it comes twice
        assert await answered(other, answer(1), session_id) == 202
        for number, text in enumerate("ab"):
            assert json.dumps(text).encode() in body(await calls[number])


async def test_a_stream_taken_up_at_another_process_ends_at_once_and_goes_on_at_its_own(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await go_on.wait()
        return "here"

    async with (
        asyncio.timeout(60),
        process(wait, store=tmp_path) as (one, _),
        process(wait, store=tmp_path) as (other, _),
    ):
        session_id = await begun(one, protocolVersion="2025-11-25")
        first, leaves = asyncio.get_running_loop().create_future(), asyncio.Event()

        async def note(part: Any) -> None:
            if part.get("body", b"").startswith(b"id: ") and not first.done():
                first.set_result(part["body"][4:].partition(b"\r")[0].decode())
                leaves.set()

        call = sent("tools/call", 1, name="wait", arguments={})
        await ask(one, call, sent=note, leaves=leaves, **HERE, mcp_session_id=session_id)
        options = {**HERE, "mcp_session_id": session_id, "method": "GET", "last_event_id": await first}
        # Its own events have other numbers.
        await ask(
            other, sent("tools/call", 1, name="wait", arguments={}), leaves=leaves, **HERE, mcp_session_id=session_id
        )
        ended = await ask(other, b"", **options)
        assert (status(ended), body(ended)) == (200, b"")
        going_on = asyncio.create_task(ask(one, b"", **options))
        await asyncio.sleep(0)
        go_on.set()
        assert b'"here"' in body(await going_on)


async def test_notices_come_where_the_stream_is(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(60),
        process(store=tmp_path) as (one, _),
        process(store=tmp_path) as (other, at),
    ):
        session_id = await begun(one)
        await answered(one, sent("notifications/initialized"), session_id)
        leaves, has_begun = asyncio.Event(), asyncio.Event()

        async def note(part: Any) -> None:
            has_begun.set()
            if b"prompts/list_changed" in part.get("body", b""):
                leaves.set()

        options = {**HERE, "mcp_session_id": session_id, "method": "GET"}
        listening = asyncio.create_task(ask(other, b"", sent=note, leaves=leaves, **options))
        await has_begun.wait()
        at.crib.prompts.add(greeting)
        await listening


def greeting(name: str) -> str:
    """Greet somebody."""
    return name
