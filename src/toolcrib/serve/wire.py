"""The bytes of the HTTP API: bodies that are read within bounds, and JSON that is written."""

import json
from typing import Any
from urllib.parse import quote, unquote

from pydantic_core import from_json, to_json
from starlette.types import Receive, Scope

from ..core import Content, Data, Result, Text, content_to_dict


def to_bytes(data: Any) -> bytes:
    """Write *data* as JSON. Half of a character, as in a file name that is not UTF-8, is replaced."""
    try:
        return to_json(data, inf_nan_mode="null")
    except ValueError:
        text = json.dumps(data, ensure_ascii=False, default=str).encode(errors="replace")
        return to_json(from_json(text), inf_nan_mode="null")


def result_bytes(result: Result[Any]) -> bytes:
    """Return *result* as `Result.to_dict` has it, as JSON. Structured values keep the digits that they have."""
    content = b",".join(map(part_bytes, result.content))
    return b'{"content":[' + content + b"]," + to_bytes(result.to_dict(with_content=False))[1:]


def part_bytes(part: Content) -> bytes:
    """Return *part* as `content_to_dict` has it, as JSON; structured data that is not JSON as text."""
    if not isinstance(part, Data):
        return to_bytes(content_to_dict(part))
    try:
        content = part.json.encode()
        from_json(content, allow_inf_nan=False)
    except ValueError:
        return to_bytes(content_to_dict(Text(part.json)))
    return b'{"type":"data","data":' + content + b"}"


def header(scope: Scope, name: bytes) -> str:
    """Return the first header called *name*, in lower case; empty where there is none. (Starlette's Headers take
    longer, and so does a generator.)
    """
    value: bytes
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return ""


def encoded_path(scope: Scope) -> str:
    """Return the path of a request under its root path as it was sent: only there a `/` in a name differs from one
    between names.
    """
    from starlette._utils import get_route_path  # not over stdio

    path: str = get_route_path(scope)
    raw_path: str = scope.get("raw_path", b"").decode("latin-1")
    at = raw_path.find("/")
    while at >= 0:
        if unquote(raw_path[at:]) == path:
            return raw_path[at:]
        at = raw_path.find("/", at + 1)
    return quote(path)


class TooLarge(Exception):
    """A body that is longer than it may be."""


async def read_body(receive: Receive, limit_bytes: int) -> bytes:
    """Return the body of a request.

    Raises TooLarge as soon as it is over *limit_bytes*; EOFError where the client leaves.
    """
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body", False) and len(body) <= limit_bytes:
        message = await receive()
        body += message.get("body", b"")
    if len(body) > limit_bytes:
        raise TooLarge
    if message["type"] != "http.request":
        raise EOFError
    return body
