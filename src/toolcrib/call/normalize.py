"""Any value → content that may be shown, secrets struck out."""

from typing import Any

from ..core import Audio, Content, Data, File, Image, Redaction, Result, Text, Tool

_READY = (Text, Data, Image, Audio, File)
_READY_SET = frozenset(_READY)
_BYTES = (bytes, bytearray)


def normalize(tool: Tool, value: Any, redaction: Redaction | None) -> tuple[Content, ...]:
    """*value* as content: text as it is, bytes as a file, a list with content in it part by part, the rest as JSON.

    Raises ToolError `invalid_result` for what has no JSON form, and the error of a failed Result.
    """
    content: tuple[Content, ...]
    promised = tool.spec.output_schema
    if type(value) is str:
        if promised is not None and promised.get("type") != "string":
            tool.encode(value)  # raises where no text was promised
        content = (Text(value),)
    elif promised is not None:
        content = (Data(tool.encode(value)),)
    elif isinstance(value, _BYTES):
        content = (File(bytes(value)),)
    elif isinstance(value, Result):
        value.unwrap()
        content = value.content
    elif isinstance(value, _READY):
        content = (value,)
    elif type(value) in (list, tuple) and not _READY_SET.isdisjoint(map(type, value)):
        content = tuple(inner for part in value for inner in normalize(tool, part, None))
    else:
        content = (Data(tool.encode(value)),)
    return content if redaction is None else tuple(_struck(part, redaction) for part in content)


def _struck(part: Content, redaction: Redaction) -> Content:
    if isinstance(part, Text):
        struck = redaction.strike(part.text)
        return part if struck is part.text else Text(struck)
    if isinstance(part, Data):
        struck = redaction.strike(part.json)
        return part if struck is part.json else Data(struck)
    return part
