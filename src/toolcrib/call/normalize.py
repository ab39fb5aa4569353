"""Any value → content that may be shown, secrets struck out."""

from typing import Any

from ..core import Audio, Content, Data, File, Image, Redaction, Result, Text, Tool

_READY = (Text, Data, Image, Audio, File)


def normalize(tool: Tool, value: Any, redaction: Redaction | None) -> tuple[Content, ...]:
    """*value* as content: text as it is, bytes as a file, a list with content in it part by part, the rest as JSON.

    Raises ToolError `invalid_result` for what has no JSON form, and the error of a failed Result.
    """
    content: tuple[Content, ...]
    if type(value) is str:
        content = (Text(value),)
    elif isinstance(value, bytes | bytearray):
        content = (File(bytes(value)),)
    elif isinstance(value, Result):
        value.unwrap()
        content = value.content
    elif isinstance(value, _READY):
        content = (value,)
    elif type(value) in (list, tuple) and any(isinstance(part, _READY) for part in value):
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
