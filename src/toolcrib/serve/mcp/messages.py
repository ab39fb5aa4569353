"""Messages as they come, before the SDK parses them: what it would read otherwise than it was sent.

Of a name that stands twice in an object it would take the last, and another reader of the same message, such as a proxy
that decides what may be called, the first: such a message is refused. Numbers it reads as floats: where a call has one
with more digits, its arguments travel as text beside them.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from secrets import token_hex
from typing import Any

import mcp_types as wire
from anyio.to_thread import run_sync

from ...machinery import LONG_CHARS
from ...schema.json_text import LIMIT_BYTES, JSONError, parse_exact, refuse_repeated_names, write_json


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


def _id(data: bytes) -> Any:
    """Return the id of a message, so that the answer reaches the request that waits for it.

    JSON-RPC 2.0 §5.1: null where not known.
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    request_id = message.get("id") if isinstance(message, dict) else None
    return request_id if type(request_id) in (str, int) else None


async def read(data: bytes) -> tuple[bytes, bytes | None]:
    """Return the message *data* with all its digits, and the answer to it where it is refused."""
    return read_now(data) if len(data) <= LONG_CHARS else await run_sync(read_now, data)


def read_now(data: bytes) -> tuple[bytes, bytes | None]:
    """Return what `read` does, in this thread."""
    answer = refused(data)
    return (data, answer.model_dump_json().encode()) if answer is not None else (exact(data), None)
