"""Any value → content that may be shown, secrets struck out."""

from collections.abc import Callable
from typing import Any

from ..core import Audio, Content, Data, File, Image, Redaction, Result, Text, Tool

_READY = (Text, Data, Image, Audio, File)
_READY_SET = frozenset(_READY)
_BYTES = (bytes, bytearray)


def normalize(tool: Tool, value: Any, redaction: Redaction | None) -> tuple[Content, ...]:
    """The result *value* of a tool as content.

    Raises ToolError `invalid_result` for what is not as promised or has no JSON form, and the error of a failed Result.
    """
    promised = tool.spec.output_schema
    if promised is None:
        content = content_of(value, tool.encode)
    elif type(value) is str:
        if promised.get("type") != "string":
            tool.encode(value)  # raises where no text was promised
        content = (Text(value),)
    else:
        content = (Data(tool.encode(value)),)
    return content if redaction is None else tuple(_struck(part, redaction) for part in content)


def content_of(value: Any, encode: Callable[[Any], str]) -> tuple[Content, ...]:
    """Text as it is, bytes as a file, a list with content in it part by part, the rest as *encode* writes it."""
    if isinstance(value, str):
        return (Text(value),)
    if isinstance(value, _BYTES):
        return (File(bytes(value)),)
    if isinstance(value, Result):
        value.unwrap()
        return value.content
    if isinstance(value, _READY):
        return (value,)
    if type(value) in (list, tuple) and not _READY_SET.isdisjoint(map(type, value)):
        return tuple(inner for part in value for inner in content_of(part, encode))
    return (Data(encode(value)),)


def _struck(part: Content, redaction: Redaction) -> Content:
    if isinstance(part, Text):
        struck = redaction.strike(part.text)
        return part if struck is part.text else Text(struck)
    if isinstance(part, Data):
        struck = redaction.strike(part.json)
        return part if struck is part.json else Data(struck)
    return part
