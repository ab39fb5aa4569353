"""What several providers' messages are made of: files that can be read as text, arguments as an object."""

import json
from collections.abc import Mapping
from typing import Any

from ..core import Call, Content, Data, File
from . import answers

_READABLE = frozenset(
    {
        "application/json",
        "application/x-ndjson",
        "application/xml",
        "application/yaml",
        "application/toml",
        "application/javascript",
        "application/sql",
    }
)


def readable(part: Content) -> str | None:
    """The text of a file of text; None for any other content, and where it is empty or not UTF-8."""
    if not isinstance(part, File):
        return None
    kind = part.media_type.partition(";")[0].strip().lower()
    if not (kind.startswith("text/") or kind in _READABLE or kind.endswith(("+json", "+xml"))):
        return None
    try:
        return part.data.decode() or None
    except UnicodeDecodeError:
        return None


def arguments(call: Call) -> dict[str, Any]:
    """The arguments of a call that is told to a provider anew."""
    given = call.arguments
    return told(given.decode(errors="replace") if isinstance(given, bytes) else given)


def told(given: Any) -> dict[str, Any]:
    """Arguments as providers take them back: an object. What is none is told inside one, in Anthropic's own form."""
    where = "The arguments of a call"
    written = given
    if isinstance(given, str):
        try:
            written = answers.plain(json.loads(given or "{}", parse_constant=_refused), where)
        except (ValueError, RecursionError):
            return {"INVALID_JSON": answers.whole_letters(given)}
    if written is None:
        return {}
    said: dict[str, Any] = answers.plain(written if isinstance(written, Mapping) else {"INVALID_JSON": given}, where)
    return said


def json_value(part: Data) -> Any:
    """The value of *part*, or its text where JSON proper has no such value (NaN, infinities)."""
    try:
        return json.loads(part.json, parse_constant=_refused)
    except ValueError:
        return part.json


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _refused(constant: str) -> None:
    raise ValueError(constant)
