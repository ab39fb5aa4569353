"""The stateless era over Streamable HTTP, a raw ASGI application: a request is a POST, answered by JSON or a stream.

An answer is JSON unless something is sent before it, or it takes long: then it is a stream of events. A client that
leaves cancels its request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import mcp_types as wire
from anyio.to_thread import run_sync
from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...core import Redaction
from ...machinery import LONG_CHARS, log_failure
from ...schema.json_text import LIMIT_BYTES
from ..messages import read as read_message
from ..wire import TooLarge, header, read_body
from . import core

_PING_INTERVAL_S = 15.0
_QUICK_S = 0.05
"""Requests that are answered in this time are not watched for whether their client leaves: most are."""
_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]

Answer = Callable[[core.Exchange], Awaitable[Mapping[str, Any]]]
"""Returns the result of a request, in its shape. Raises what `core.error_of` knows, and anything else for a mistake."""


class Stateless:
    """Answers requests of the stateless era by *answer*, at *path* (None for any), and leaves others to *app*.

    *input_schema* returns that of a tool whose arguments stand in headers, else None.
    """

    def __init__(
        self,
        app: ASGIApp,
        answer: Answer,
        input_schema: Callable[[str], Mapping[str, Any] | None],
        redaction: Redaction | None,
        *,
        path: str | None = None,
    ) -> None:
        self._app = app
        self._answer = answer
        self._input_schema = input_schema
        self._redaction = redaction
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and self._path in (None, get_route_path(scope))
        if not is_ours or core.is_handshake(header(scope, core.VERSION.encode())):
            await self._app(scope, receive, send)
        elif (refusal := _refusal(scope)) is not None:
            await refusal(scope, receive, send)
        else:
            await self._answer_post(scope, receive, send)

    async def _answer_post(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive, LIMIT_BYTES)
        except TooLarge:
            await Response("Request body too large", 413)(scope, receive, send)
            return
        except EOFError:
            return  # the rest of the message never comes
        body, error = read_message(body) if len(body) <= LONG_CHARS else await run_sync(read_message, body)
        reply = _Reply(send)
        if error is not None:
            await reply.end(400, error.model_dump_json().encode())
            return
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        headers = dict(reversed(pairs))
        try:
            request = core.read_request(body, headers, pairs)
            if request is None:
                await Response(status_code=202)(scope, receive, send)
                return
            connection = HTTPConnection(scope)
            self._require_headers(request, connection.headers)
        except core.Refusal as refused:
            await reply.end(core.status_of(refused.error.code), core.error(refused.request_id, refused.error))
            return
        if request.method == core.LISTEN and not _accepts(headers.get("accept", ""), b"text/event-stream"):
            await Response(status_code=406)(scope, receive, send)
            return
        exchange = core.Exchange.of(request, reply.send_event, connection)
        await _until_gone(self._respond(exchange, reply), receive, reply)

    def _require_headers(self, request: core.Request, headers: Headers) -> None:
        """Raise Refusal where headers of arguments say something else than the body."""
        name: Any = request.params.get("name")
        if request.method == "tools/call" and isinstance(name, str):
            schema = self._input_schema(name)
            if schema is not None:
                core.require_param_headers(request, schema, headers)

    async def _respond(self, exchange: core.Exchange, reply: "_Reply") -> None:
        try:
            message, status = core.result(exchange.request_id, await self._answer(exchange)), 200
        except Exception as failure:
            error = core.error_of(failure)
            if error is None:
                log_failure(f"A request of MCP, {exchange.method[:100]!r}, has failed", failure, self._redaction)
                error = wire.ErrorData(code=wire.INTERNAL_ERROR, message="Internal server error")
            message, status = core.error(exchange.request_id, error), core.status_of(error.code)
        await reply.end(status, message)


class _Reply:
    """What a client is sent: one JSON message, or as soon as anything is sent before it, a stream."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_stream = False
        self._sending = asyncio.Lock()

    async def send_event(self, message: bytes) -> None:
        await self._write(b"event: message\r\ndata: %b\r\n\r\n" % message)

    async def ping(self) -> None:
        await self._write(b": ping\r\n\r\n")

    async def end(self, status: int, message: bytes) -> None:
        async with self._sending:
            if self._is_stream:
                message = b"event: message\r\ndata: %b\r\n\r\n" % message
            else:
                headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(message))]
                await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": message, "more_body": False})

    async def _write(self, frame: bytes) -> None:
        async with self._sending:
            if not self._is_stream:
                self._is_stream = True
                await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM})
            await self._send({"type": "http.response.body", "body": frame, "more_body": True})


async def _until_gone(work: Coroutine[Any, Any, None], receive: Receive, reply: _Reply) -> None:
    """Run *work*, which answers a request, until it ends or its client leaves; ping the client meanwhile."""
    task, is_gone = asyncio.create_task(work), False

    async def watch() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        task.cancel()

    watching = None
    try:
        if not (await asyncio.wait((task,), timeout=_QUICK_S))[0]:
            watching = asyncio.create_task(watch())
        while not task.done() and not (await asyncio.wait((task,), timeout=_PING_INTERVAL_S))[0]:
            await reply.ping()
    finally:
        if watching is not None:
            watching.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    if not (is_gone and task.cancelled()):
        task.result()


def _refusal(scope: Scope) -> Response | None:
    """Return the answer to a request that is none of this protocol's by its method and headers."""
    if scope["method"] != "POST":
        return Response(status_code=405, headers={"Allow": "POST"})
    if not header(scope, b"content-type").lower().startswith("application/json"):
        return Response("Invalid Content-Type header", 400)
    accept = header(scope, b"accept")
    if not (_accepts(accept, b"application/json") and _accepts(accept, b"text/event-stream")):
        return Response(status_code=406)
    size = header(scope, b"content-length")
    return Response("Request body too large", 413) if size.isdecimal() and int(size) > LIMIT_BYTES else None


def _accepts(accept: str, media_type: bytes) -> bool:
    whole = media_type.decode()
    kinds = {kind.partition(";")[0].strip().lower() for kind in accept.split(",")}
    return not kinds.isdisjoint(("*/*", whole, f"{whole.partition('/')[0]}/*"))
