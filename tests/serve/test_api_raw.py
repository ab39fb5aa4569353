"""The HTTP API as an ASGI server calls it: bodies in pieces, clients that leave, and what a request leaves behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolcrib import Crib
from toolcrib.serve import Application, asgi_app, problem
from toolcrib.serve.api import calls as module
from toolcrib.serve.protocol import reply

from ..waiting import until
from .serving import Waits, add

BODY = b'{"a": 1, "b": 2}'
GONE = {"type": "http.disconnect"}


@asynccontextmanager
async def running(*tools: Any) -> AsyncIterator[Application]:
    made = asgi_app(Crib([add, *tools]))
    async with made.lifespan():
        yield made


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def ask(
    app: Application,
    *messages: dict[str, Any],
    path: str = "/api/tools/add/call",
    receive: Callable[[], Any] | None = None,
    **headers: str,
) -> list[dict[str, Any]]:
    """What is sent for a request that comes as *messages*; nothing more ever comes."""
    left = [*messages]

    async def following() -> dict[str, Any]:
        return left.pop(0) if left else await asyncio.Event().wait()  # type: ignore[return-value]

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    named = {"host": "localhost", "content-type": "application/json", **headers}
    scope = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "path": path,
        "query_string": b"",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()],
    }
    await app(scope, receive or following, send)
    return sent


def status(sent: list[dict[str, Any]]) -> int:
    return int(sent[0]["status"])


async def test_arguments_come_in_pieces_and_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as app:
        monkeypatch.setattr(module, "LIMIT_BYTES", 100)
        most = BODY + b" " * (100 - len(BODY))
        for pieces, expected in [
            ([piece(most)], 200),
            ([piece(most[:60], more=True), piece(most[60:])], 200),
            ([piece(most, more=True), piece(b"")], 200),
            ([{"type": "http.request", "body": BODY}], 200),  # `more_body` may be left out (ASGI 3.0)
            ([piece(most + b" ")], 413),
            ([piece(most, more=True), piece(b" ")], 413),
            ([piece(most + b" ", more=True)], 413),  # and no more of it is read
        ]:
            async with asyncio.timeout(60):
                assert status(await ask(app, *pieces)) == expected, pieces
        assert status(await ask(app, piece(most), content_length="100")) == 200

        async def never() -> Any:
            raise AssertionError("what is declared as too long is not read")

        for length in ("101", "9" * 5000):
            assert status(await ask(app, receive=never, content_length=length)) == 413


async def test_a_client_that_leaves_half_way_makes_no_call_and_gives_no_answer() -> None:
    async with running() as app:
        assert await ask(app, piece(BODY[:5], more=True), GONE) == []
        assert await ask(app, piece(BODY, more=True), GONE) == []
        for version in ("2025-11-25", "2026-07-28"):
            mcp = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version}
            assert await ask(app, piece(b"{", more=True), GONE, path="/mcp", **mcp) == []
        path = "/api/pending/nothing/answer"
        assert status(await ask(app, piece(b'{"kind":', more=True), GONE, path=path)) == 400


async def test_a_client_that_leaves_cancels_its_call_and_not_what_serves_it() -> None:
    waits = Waits()
    async with running(waits.tool) as app:
        async with asyncio.timeout(60):
            assert await ask(app, piece(b"{}"), GONE, path="/api/tools/wait/call") == []
        assert waits.ended == ["cancelled"]
        task = asyncio.current_task()
        assert task.cancelling() == 0


async def test_whoever_cancels_a_request_cancels_its_call() -> None:
    waits = Waits()
    async with running(waits.tool) as app:
        asking = asyncio.create_task(ask(app, piece(b"{}"), path="/api/tools/wait/call"))
        await waits.began.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert waits.ended == ["cancelled"]


async def test_what_is_cancelled_when_serving_stops_is_answered_and_not_what_serves_it() -> None:
    waits = Waits()

    async def serve() -> int:
        sent = await ask(app, piece(b"{}"), path="/api/tools/wait/call")
        task = asyncio.current_task()
        assert status(sent) == 503
        return task.cancelling()

    app = asgi_app(Crib([waits.tool]), grace_s=0.01)
    async with app.lifespan():
        asking = asyncio.create_task(serve())
        await waits.began.wait()
    assert await asking == 0


@pytest.mark.parametrize("unwatched_s", [0.0, 0.01])
async def test_a_call_that_is_over_looks_after_its_client_no_more(
    monkeypatch: pytest.MonkeyPatch, unwatched_s: float
) -> None:
    waits = Waits()
    async with running(waits.tool) as app:
        monkeypatch.setattr(reply, "_QUICK_S", unwatched_s)
        before = asyncio.all_tasks()
        messages = [piece(b"{}")]
        asked = asyncio.Event()

        async def receive() -> Any:
            if messages:
                return messages.pop()
            asked.set()
            return await asyncio.Event().wait()

        if unwatched_s == 0.0:
            asking = asyncio.create_task(ask(app, path="/api/tools/wait/call", receive=receive))
            await asked.wait()  # now it is looked after
            waits.go_on.set()
            assert status(await asking) == 200
        else:
            waits.go_on.set()
            assert status(await ask(app, path="/api/tools/wait/call", receive=receive)) == 200
            await asyncio.sleep(0.05)  # timers run in their order: a look that was not given up begins before its end
        await until(lambda: not asyncio.all_tasks() - before)


async def test_a_server_that_does_not_hand_over_the_raw_path_is_served_too() -> None:
    async with running() as app:
        sent = await ask(app, piece(b""), path="/api/tools/read a%2F/call")
        assert (status(sent), b"'read a%2F'" in sent[1]["body"]) == (404, True)


async def test_a_server_that_does_not_know_its_client_is_served_too() -> None:
    async with running() as app:
        assert status(await ask(app, piece(BODY), authorization="Bearer x")) == 200


def test_a_problem_has_its_pause_as_a_header_in_whole_seconds() -> None:
    assert problem(429, "Too many", "Wait.", retry_after_s=2.6).headers["retry-after"] == "3"
    assert "retry-after" not in problem(404, "Unknown", "There is none.").headers
