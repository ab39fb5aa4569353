"""Content as Spark's messages and results have it, and as we have it. Pure functions.

A block is `{"text"}`, `{"json"}`, `{"image"}`, `{"document"}`, `{"toolUse"}` or `{"toolResult"}`, as Bedrock has them.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from ....core import Content, Data, File, Image, Text

_BLOCKS = frozenset({"text", "image", "document", "json", "toolUse", "toolResult", "reasoningContent", "guardContent"})


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """*content* as blocks: text, blocks, a list of both. Anything else is JSON text."""
    if content is None or content == "":
        return []
    if isinstance(content, list | tuple) and all(isinstance(part, str) or is_block(part) for part in content):
        return [{"text": part} if isinstance(part, str) else dict(part) for part in content]
    if is_block(content):
        return [dict(content)]
    return [{"text": content if isinstance(content, str) else as_json(content)}]


def words_of(content: Any) -> str:
    """The text in *content*."""
    return "\n".join(block["text"] for block in blocks_of(content) if isinstance(block.get("text"), str))


def shown(content: Iterable[Any]) -> tuple[Content, ...]:
    """What the *content* of a ToolResult shows, item by item."""
    return tuple(part for item in content for part in parts_of(blocks_of(item)))


def parts_of(blocks: Iterable[Mapping[str, Any]]) -> tuple[Content, ...]:
    """What *blocks* show."""
    return tuple(part for block in blocks for part in _parts_of(block))


def blocks_from(content: Iterable[Content]) -> list[dict[str, Any]]:
    """Our *content* as blocks: text, structured values as JSON text, and images."""
    found: list[dict[str, Any]] = []
    for part in content:
        match part:
            case Text(text):
                found.append({"text": text})
            case Image(data, media_type):
                found.append({"image": {"format": media_type.rpartition("/")[2], "source": {"bytes": data}}})
            case File(data, media_type, name):
                kind = media_type.rpartition("/")[2]
                found.append({"document": {"name": name or "file", "format": kind, "source": {"bytes": data}}})
            case _:
                found.append({"text": part.text})
    return found


def as_json(value: Any) -> str:
    """*value* as JSON text."""
    from ....schema import write_any

    return write_any("message", value)


def _parts_of(block: Mapping[str, Any]) -> list[Content]:
    match block:
        case {"text": str(text)}:
            return [Text(text)]
        case {"json": value}:
            return [Data(as_json(value))]
        case {"image": {"format": str(kind), "source": {"bytes": given}}} if (data := _bytes(given)) is not None:
            return [Image(data, f"image/{kind}")]
        case {"document": {"source": {"bytes": given}} as document} if (data := _bytes(given)) is not None:
            kind = str(document.get("format", ""))
            media_type = "application/pdf" if kind == "pdf" else f"text/{kind}" if kind else "application/octet-stream"
            return [File(data, media_type, document.get("name"))]
        case {"reasoningContent": _} | {"guardContent": _}:
            return []
        case _:
            return [Text(as_json(block))]


def _bytes(given: Any) -> bytes | None:
    """*given* itself, or what it is in base64; None where it is neither."""
    if isinstance(given, bytes):
        return given
    try:
        return base64.b64decode(given, validate=True)
    except (TypeError, ValueError):
        return None


def is_block(part: Any) -> bool:
    """Whether *part* is a block, and not just a dictionary that has something in common with one."""
    if not isinstance(part, dict) or _BLOCKS.isdisjoint(part):
        return False
    return len(part) == 1 or part.get("type") == "text"  # the second is OpenAI's
