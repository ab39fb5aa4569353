"""`POST /api/tools/{name}/call`: arguments in, result out. The road is short, since every call takes it.

The body goes to the check as it came, so what the check refuses of JSON (a name twice, other encodings than UTF-8,
numbers beyond any bound) is refused here, and numbers keep their digits.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...core import Call, Emitted, Progress, Result, ToolError
from ...schema.json_text import LIMIT_BYTES, JSONError, parse_exact, parse_json, write_json
from ...workbench import LogLine, TaskEvent, Workbench
from ..access.callers import Callers, require_key_for
from ..problems import Refused, problem
from ..protocol.reply import Reply, until_gone
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

RUNNING = b": still running\n\n"
"""A comment in a stream without news: proxies close what is silent."""
_MAX_ANSWER_BYTES = 1024 * 1024
_EVENTS = "text/event-stream"


async def bench_for(callers: Callers, scope: Scope) -> Workbench:
    """Return the workbench of a request's caller, which `Authentication` has identified."""
    return await callers.workbench(HTTPConnection(scope))


def json_answer(data: Any) -> Response:
    return Response(to_bytes(data), media_type="application/json")


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
        reply = Reply(send)
        if _wants_events(header(scope, b"accept")):
            work, ping = send_events(bench.stream(call), reply), partial(reply.write, RUNNING)
        else:
            work, ping = _send_result(bench, call, reply), None
        await until_gone(work, receive, ping, is_cancelled=key is None)


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


async def _send_result(bench: Workbench, call: Call, reply: Reply) -> None:
    await reply.end_as(answer_to(await bench.call(call)))


async def send_events(events: AsyncIterator[TaskEvent | Result[Any]], reply: Reply) -> None:
    """Send `progress`, `output` and `log`, and last `result`.

    A problem of the request is answered as one, as long as nothing was sent.
    """
    async with aclosing(events):  # type: ignore[type-var]
        async for event in events:
            if not reply.is_stream and isinstance(event, Result) and event.error and _kind_of(event.error):
                await reply.end_as(answer_to(event))
                return
            await reply.write(_event_bytes(event))
    await reply.close()


_ON_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


def _event_bytes(event: TaskEvent | Result[Any]) -> bytes:
    match event:
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
