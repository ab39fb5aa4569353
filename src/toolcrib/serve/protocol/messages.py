"""Messages as JSON, each read once: every name once in an object, and the numbers of a call with all their digits.

Of a name that stands twice one reader takes the last, and another of the same message, such as a proxy that decides
what may be called, the first: such a message is refused.
"""

import json
import re
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any

import jiter
import mcp_types as wire

from ...machinery import LONG_CHARS, in_thread
from ...schema.json_text import JSONError, parse_exact, refuse_repeated_names, write_json

_LONG_NUMBER = re.compile(rb"\d[\d.]{15}|\d[eE]")


class Refusal(Exception):
    """A message that is answered with an error, before any handler sees it."""

    def __init__(self, code: int, message: str, data: Any = None, request_id: wire.RequestId | None = None) -> None:
        super().__init__(message)
        self.error = wire.ErrorData(code=code, message=message, data=data)
        self.request_id = request_id


class ExactParams(dict[str, Any]):
    """The params of a call with numbers that no float holds, and its arguments as `text`."""

    def __init__(self, params: dict[str, Any], text: str) -> None:
        super().__init__(params)
        self.text = text


def read(data: bytes) -> Any:
    """Return the JSON in *data*; the params of a call as ExactParams where its numbers ask for it. Raises Refusal."""
    try:
        message = jiter.from_json(data, allow_inf_nan=True, cache_mode="keys", catch_duplicate_keys=True)
    except ValueError:
        return _read_again(data)
    if _LONG_NUMBER.search(data) and isinstance(message, dict) and message.get("method") == "tools/call":
        params = message.get("params")
        if isinstance(params, dict) and _has_decimal(arguments := parse_exact(data)["params"].get("arguments")):
            message["params"] = ExactParams(params, write_json(arguments))
    return message


async def read_soon(data: bytes) -> Any:
    """Return what `read` does; of a long message it is done in a thread."""
    # Also where the calls of tools hold every thread: the message may be what cancels one.
    return read(data) if len(data) <= LONG_CHARS else await in_thread(partial(read, data), is_cleanup=True)


def _read_again(data: bytes) -> Any:
    """Return what Python's reader accepts, such as half of a character, which the check of a call refuses later."""
    try:
        refuse_repeated_names(data)
        return json.loads(data.decode("utf-8-sig"))
    except JSONError as error:
        reason = f"This message cannot be read with certainty: {error}."
        raise Refusal(wire.INVALID_REQUEST, reason, request_id=_id_in(data)) from None
    except (ValueError, IndexError, RecursionError):
        raise Refusal(wire.PARSE_ERROR, "Parse error") from None


def _id_in(data: bytes) -> wire.RequestId | None:
    """Return the id of a message, so that the answer reaches the request that waits for it.

    JSON-RPC 2.0 §5.1: null where not known.
    """
    with suppress(ValueError, RecursionError):
        message = json.loads(data)
        request_id = message.get("id") if isinstance(message, dict) else None
        return request_id if type(request_id) in (str, int) else None
    return None


def _has_decimal(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_decimal, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Decimal)
