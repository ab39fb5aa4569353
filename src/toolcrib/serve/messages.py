"""Messages as they come, before the SDK parses them: what it would read otherwise than it was sent.

Of a name that stands twice in an object it would take the last, and another reader of the same message, such as a proxy
that decides what may be called, the first: such a message is refused. Numbers it reads as floats: where a call has one
with more digits, its arguments travel as text beside them.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from secrets import token_hex
from typing import Any

import mcp_types as wire
from anyio.to_thread import run_sync
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..machinery import LONG_CHARS
from ..schema.json_text import LIMIT_BYTES, JSONError, parse_exact, refuse_repeated_names, write_json
from .wire import header


def refused(data: bytes) -> wire.JSONRPCError | None:
    """Return the answer to a message, JSON in UTF-8, with a name twice in an object, or an id of the wrong kind; else
    None.

    What is not JSON is for the SDK to refuse, and longer arguments for the check. A request with such an id the SDK
    takes for a notice, which has no answer.
    """
    if len(data) > LIMIT_BYTES + LONG_CHARS:
        return None
    try:
        if b"\0" in data:
            raise JSONError("there is a NUL in it")  # UTF-16, which some readers take; MCP is UTF-8
        refuse_repeated_names(data)
        if _ODD_ID.search(data) and _has_odd_id(data):
            raise JSONError("the id of a request is a text or a whole number")
    except JSONError as error:
        reason = str(error)
    except (IndexError, ValueError):
        return None
    else:
        return None
    message = f"This message cannot be read with certainty: {reason}."
    return wire.JSONRPCError(
        jsonrpc="2.0", id=_id(data), error=wire.ErrorData(code=wire.INVALID_REQUEST, message=message)
    )


def exact(data: bytes) -> bytes:
    """Return the message *data*; where it is a call with numbers that no float holds, with its arguments as text beside
    them.

    Of longer messages than the SDK takes, the numbers are read as floats.
    """
    if not _LONG_NUMBER.search(data):
        return data
    try:
        message: Any = parse_exact(data.decode())
        params = message["params"]
        arguments = write_json(params["arguments"])
        if message["method"] != "tools/call" or not _has_decimal(params["arguments"]):
            return data
        json.dumps(message, ensure_ascii=False, default=str).encode()  # half of a character is for the SDK to refuse
        beside = {**(params.get("_meta") or {}), _ARGUMENTS: arguments}
        text = write_json({**message, "params": {**params, "_meta": beside}}).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return data
    return text if len(text) <= LIMIT_BYTES else data


def arguments_of(params: wire.CallToolRequestParams) -> str | Mapping[str, Any] | None:
    """Return the arguments of a call, with all digits."""
    text: Any = (params.meta or {}).get(_ARGUMENTS)
    return text if isinstance(text, str) else params.arguments


_ARGUMENTS = f"toolcrib/arguments-{token_hex(16)}"
"""No client knows it, so none can send other arguments there."""
_ODD_ID = re.compile(rb'"(?:i|\\u0069)(?:d|\\u0064)"\s*:\s*(?!["\s]|-?\d+\s*[,}])')
_LONG_NUMBER = re.compile(rb"\d[\d.]{15}|\d[eE]")


def _has_odd_id(data: bytes) -> bool:
    message: Any = json.loads(data)
    return (
        isinstance(message, dict) and "method" in message and "id" in message and type(message["id"]) not in (str, int)
    )


def _has_decimal(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_decimal, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Decimal)


def _id(data: bytes, *, of_request: bool = False) -> Any:
    """Return the id of a message, so that the answer reaches the request that waits for it.

    JSON-RPC 2.0 §5.1: null where not known.
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    is_match = isinstance(message, dict) and (not of_request or "method" in message)
    request_id = message.get("id") if is_match else None
    return request_id if type(request_id) in (str, int) else None


def read(data: bytes) -> tuple[bytes, wire.JSONRPCError | None]:
    """Return the message *data* for the SDK, and the answer to it where it is refused."""
    answer = refused(data)
    return (exact(data) if answer is None else data), answer


REQUEST_ID = "toolcrib.request_id"
"""Where `ExactMessages` puts the id of a request of the older era in its scope; None where it has none."""


class ExactMessages:
    """ASGI middleware that answers what is refused itself, and passes on what is exact."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []
        body = b""
        more = True
        while more and len(body) <= LIMIT_BYTES:  # the SDK takes no more
            message = await receive()
            messages.append(message)
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if message["type"] == "http.disconnect":
                return  # the rest of the message never comes
        if not more:
            checked_body, answer = read(body) if len(body) <= LONG_CHARS else await run_sync(read, body)
            if answer is not None:
                await JSONResponse(answer.model_dump(mode="json"), 400)(scope, receive, send)
                return
            if checked_body is not body:
                messages = [{"type": "http.request", "body": checked_body, "more_body": False}]
            if header(scope, b"mcp-session-id"):
                find = partial(_id, body, of_request=True)
                scope = {**scope, REQUEST_ID: find() if len(body) <= LONG_CHARS else await run_sync(find)}

        async def replayed() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replayed, send)
