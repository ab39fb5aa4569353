"""The stateless era over Streamable HTTP, a raw ASGI application: a request is a POST, answered by JSON or a stream.

An answer is JSON unless something is sent before it, or it takes long: then it is a stream of events. A client that
leaves cancels its request.
"""

from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as wire
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...core import Redaction
from ..wire import header
from . import core
from .connection import Answer, outcome
from .messages import Refusal, read_soon
from .reply import Reply, accepts, read_post, until_gone


class Stateless:
    """Answers requests of the stateless era by *answer*, and leaves others to *app*.

    *input_schema* returns that of a tool whose arguments stand in headers, else None.
    """

    def __init__(
        self,
        app: ASGIApp,
        answer: Answer,
        input_schema: Callable[[str], Mapping[str, Any] | None],
        redaction: Redaction | None,
    ) -> None:
        self._app = app
        self._answer = answer
        self._input_schema = input_schema
        self._redaction = redaction

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or core.is_handshake(header(scope, core.VERSION.encode())):
            await self._app(scope, receive, send)
        elif (refusal := _refusal(scope)) is not None:
            await refusal(scope, receive, send)
        else:
            await self._answer_post(scope, receive, send)

    async def _answer_post(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (body := await read_post(scope, receive, send)) is None:
            return
        reply = Reply(send)
        # Of the white space around a value httptools leaves what is behind it.
        pairs = [
            (name.decode("latin-1"), value.decode("latin-1").strip())
            for name, value in scope["headers"]
            if name.startswith(b"mcp-")
        ]
        headers = dict(reversed(pairs))
        try:
            request = core.read_request(await read_soon(body), headers, pairs)
            if request is None:
                await Response(status_code=202)(scope, receive, send)
                return
            connection = HTTPConnection(scope)
            self._require_headers(request, connection)
        except Refusal as refused:
            await reply.end(core.status_of(refused.error.code), core.error(refused.request_id, refused.error))
            return
        if request.method == core.LISTEN and not accepts(header(scope, b"accept"), b"text/event-stream"):
            await Response(status_code=406)(scope, receive, send)
            return
        exchange = core.Exchange.of(request, reply.send_event, connection)
        await until_gone(self._respond(exchange, reply), receive, reply.ping)

    def _require_headers(self, request: core.Request, connection: HTTPConnection) -> None:
        """Raise Refusal where headers of arguments say something else than the body."""
        name: Any = request.params.get("name")
        if request.method == "tools/call" and isinstance(name, str):
            schema = self._input_schema(name)
            if schema is not None:
                core.require_param_headers(request, schema, connection.headers)

    async def _respond(self, exchange: core.Exchange, reply: "Reply") -> None:
        result = await outcome(self._answer, exchange, self._redaction)
        if isinstance(result, wire.ErrorData):
            await reply.end(core.status_of(result.code), core.error(exchange.request_id, result))
        else:
            await reply.end(200, core.result(exchange.request_id, result))


def _refusal(scope: Scope) -> Response | None:
    """Return the answer to a request that is none of this protocol's by its method and headers."""
    if scope["method"] != "POST":
        return Response(status_code=405, headers={"Allow": "POST"})
    if not header(scope, b"content-type").lower().startswith("application/json"):
        return Response("Invalid Content-Type header", 400)
    accept = header(scope, b"accept")
    if not (accepts(accept, b"application/json") and accepts(accept, b"text/event-stream")):
        return Response(status_code=406)
    return None
