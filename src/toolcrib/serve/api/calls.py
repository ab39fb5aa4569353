"""`POST /api/tools/{name}/call`: arguments in, result out. The road is short, since every call takes it.

The body goes to the check as it came, so what the check refuses of JSON (a name twice, other encodings than UTF-8,
numbers beyond any bound) is refused here, and numbers keep their digits.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, nullcontext, suppress
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...core import Call, Emitted, Progress, Result, ToolError
from ...schema.json_text import LIMIT_BYTES, JSONError, parse_exact, parse_json, write_json
from ...workbench import LogLine, TaskEvent, Workbench
from ..access.callers import Callers, require_key_for
from ..problems import Refused, problem
from ..wire import TooLarge, header, part_bytes, read_body, result_bytes, to_bytes

STATUSES = {
    "unknown_tool": (404, "Unknown tool"),
    "invalid_arguments": (422, "Invalid arguments"),
    "unauthorized": (403, "Unauthorized"),
    "denied": (403, "Denied"),
    "limited": (429, "Too many calls"),
    "conflict": (409, "Conflict"),
}
"""The codes of errors that are problems of the request. How else a call ends is the content of an answer."""

_HEARTBEAT_INTERVAL_S = 15.0
"""How often a stream without news has a comment: proxies close what is silent."""
_MAX_ANSWER_BYTES = 1024 * 1024
_UNWATCHED_INTERVAL_S = 0.02
_EVENTS = "text/event-stream"

T = TypeVar("T")


async def bench_for(callers: Callers, scope: Scope) -> Workbench:
    """Return the workbench of a request's caller, which `Authentication` has identified."""
    return await callers.workbench(HTTPConnection(scope))


async def json_object(request: Request, *, exact: str = "") -> dict[str, Any]:
    """Return the body of *request*, its member *exact* as text that has each digit. Raises Refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "Not JSON", "The body is a JSON object, with the header 'Content-Type: application/json'.")
    try:
        body = await read_body(request.receive, _MAX_ANSWER_BYTES)
        value = parse_json(body)
    except TooLarge:
        raise Refused(413, "Answer too large", f"An answer has at most {_MAX_ANSWER_BYTES} bytes of JSON.") from None
    except JSONError as error:
        raise Refused(400, "Not JSON", f"The body is not valid JSON: {error}.") from None
    except EOFError:
        raise Refused(400, "Not JSON", "The body is not complete.") from None
    if not isinstance(value, dict):
        raise Refused(422, "Invalid answer", 'An answer is a JSON object, as in {"kind": "approve"}.')
    if exact in value:
        value[exact] = write_json(parse_exact(body)[exact])
    return value


class CallEndpoint:
    """An ASGI application that makes the call of a request.

    A client that leaves cancels it, unless it has an idempotency key: then it comes back for the result.
    """

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bench = await bench_for(self._callers, scope)
        try:
            body = await read_arguments(scope, receive)
        except EOFError:
            return
        trace, key = header(scope, b"traceparent") or None, _idempotency_key(bench, scope)
        call = Call(unquote(scope["path_params"]["name"]), body, traceparent=trace, idempotency_key=key)
        with Watched(receive) if key is None else nullcontext():
            if _wants_events(header(scope, b"accept")):
                await _answer_events(bench, call, scope, receive, send)
            else:
                await answer_to(await bench.call(call))(scope, receive, send)


class Watched:
    """Ends what the task that made it does inside, when the client of its request is gone.

    It looks after a while only: most calls are over by then, and a task takes as long as they do.
    """

    def __init__(self, receive: Receive) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.is_gone = False
        self._watching: asyncio.Task[None] | None = None
        self._begin = task.get_loop().call_later(_UNWATCHED_INTERVAL_S, self._start, receive)

    def _start(self, receive: Receive) -> None:
        self._watching = asyncio.create_task(self._watch(receive))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        self.task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._begin.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if kind is asyncio.CancelledError and self.is_gone:
            self.task.uncancel()
            return True
        return False


def _kind_of(error: ToolError) -> tuple[int, str] | None:
    """Return the status and title of *error*; None where it is no problem of the request."""
    if error.code == "lost" and "id" in error.details:  # a call with a key, to be settled
        return 409, "Unknown whether it took effect"
    return STATUSES.get(error.code)


def answer_to(result: Result[Any]) -> Response:
    """Return the answer with *result*: the problem, where it is one of the request."""
    error = result.error
    if error is None or (kind := _kind_of(error)) is None:
        return Response(result_bytes(result), media_type="application/json")
    status, title = kind
    fields: dict[str, Any] = {"call_id": result.call_id, "tool": result.tool, "code": error.code, "retry": error.retry}
    if "repeated" in result.metadata:
        fields["repeated"] = True
    own = {name: value for name, value in error.details.items() if name not in ("status", "title", "detail", "type")}
    # With the note on arguments that a person has changed: these are what is denied.
    detail = result.text if "edited" in result.metadata.get("decision", ()) else error.message
    return problem(status, title, detail, **{**own, **fields})


def _idempotency_key(bench: Workbench, scope: Scope) -> str | None:
    """Return the idempotency key of a request; None where it has none. Raises Refused."""
    keys = {value.decode("latin-1") for name, value in scope["headers"] if name == b"idempotency-key"}
    try:
        return require_key_for(bench, keys.pop() if len(keys) == 1 else None) if keys else None
    except ToolError as error:
        raise Refused(400, "Invalid idempotency key", error.message, code=error.code, retry=error.retry) from None


async def read_arguments(scope: Scope, receive: Receive) -> bytes | None:
    """Return the arguments of a call, JSON; None without a body.

    Raises Refused, and EOFError where the client leaves.
    """
    try:
        length = header(scope, b"content-length")
        if length.isdecimal() and int(length[:20]) > LIMIT_BYTES:
            raise TooLarge
        body = await read_body(receive, LIMIT_BYTES)
    except TooLarge:
        raise Refused(413, "Arguments too large", f"Arguments have at most {LIMIT_BYTES} bytes of JSON.") from None
    if not body:
        return None
    media_type = header(scope, b"content-type").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refused(
            415, "Not JSON", "The arguments are a JSON object, with the header 'Content-Type: application/json'."
        )
    if body.lstrip()[:1] != b"{":
        raise Refused(422, "Invalid arguments", "The arguments are one JSON object, in UTF-8.")
    return body


def _wants_events(accept: str) -> bool:
    """Return whether events are named in the header `Accept`, and not after JSON."""
    for item in accept.split(",") if _EVENTS in accept.lower() else ():
        media_type, _, parameters = item.lower().partition(";")
        if parameters.replace(" ", "") in ("q=0", "q=0.0"):
            continue
        if media_type.strip() in (_EVENTS, "application/json"):
            return media_type.strip() == _EVENTS
    return False


async def _answer_events(bench: Workbench, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the events of a call. A problem of the request is answered as one, as long as nothing was sent."""
    async with paused(bench.stream(call)) as events:
        first = await anext(events)
        if isinstance(first, Result) and first.error and _kind_of(first.error):
            await answer_to(first)(scope, receive, send)
        else:
            await send_events(send, events, first)


def paused(
    events: AsyncIterator[TaskEvent | Result[Any]],
) -> aclosing[AsyncGenerator[TaskEvent | Result[Any] | None]]:
    """Return *events*, to be closed, with None where there is none for a while."""
    return aclosing(_with_pauses(cast(AsyncGenerator[TaskEvent | Result[Any]], events), _HEARTBEAT_INTERVAL_S))


async def send_events(
    send: Send, events: AsyncIterator[TaskEvent | Result[Any] | None], first: TaskEvent | Result[Any] | None
) -> None:
    """Send *first* and *events*: `progress`, `output` and `log`, comments where there is None, and last `result`."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _event_bytes(first), "more_body": True})
    async for event in events:
        await send({"type": "http.response.body", "body": _event_bytes(event), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


_ON_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


def _event_bytes(event: TaskEvent | Result[Any] | None) -> bytes:
    match event:
        case None:
            return b": still running\n\n"
        case Progress():
            kind, data = b"progress", to_bytes({"done": event.done, "total": event.total, "message": event.message})
        case Emitted():
            kind, data = b"output", b'{"content":[' + b",".join(map(part_bytes, event.content)) + b"]}"
        case LogLine():
            kind, data = b"log", to_bytes({"level": event.level, "message": event.message})
        case Result():
            kind, data = b"result", result_bytes(event)
    # In JSON, line breaks stand between values only.
    return b"event: %b\ndata: %b\n\n" % (kind, data.translate(_ON_ONE_LINE))


async def _with_pauses(items: AsyncGenerator[T], pause_s: float) -> AsyncGenerator[T | None]:
    """Yield *items*, and None after each *pause_s* seconds without one. Closing it closes *items*."""
    following: asyncio.Task[T] | None = None
    try:
        while True:
            following = following or asyncio.create_task(_next(items))
            done, _ = await asyncio.wait({following}, timeout=pause_s)
            if not done:
                yield None
                continue
            try:
                item = following.result()
            except StopAsyncIteration:
                return
            following = None
            yield item
    finally:
        if following is not None and not following.done():
            following.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await following
        await items.aclose()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
