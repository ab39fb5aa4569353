"""Conversion between Spark's content blocks and Toolcrib's content. Pure functions.

A block is `{"text"}`, `{"json"}`, `{"image"}`, `{"document"}`, `{"toolUse"}` or `{"toolResult"}`, as in Bedrock.
"""

from collections.abc import Iterable
from typing import Any

from ....core import Content, File, Image, Text
from ....formats import read_block
from ....schema import serialize_any

_KINDS = frozenset({"text", "image", "document", "json", "toolUse", "toolResult", "reasoningContent", "guardContent"})
_HIDDEN = frozenset({"reasoningContent", "guardContent"})


def is_block(value: Any) -> bool:
    """Return whether *value* is a block, and not a dictionary that only shares a key with one."""
    if not isinstance(value, dict) or _KINDS.isdisjoint(value):
        return False
    return len(value) == 1 or value.get("type") == "text"  # the second form is OpenAI's


def as_blocks(value: Any) -> list[dict[str, Any]]:
    """Return *value* as blocks: text, a block, or a list of both. Anything else becomes JSON text."""
    if value is None or value == "":
        return []
    if isinstance(value, list | tuple) and all(isinstance(part, str) or is_block(part) for part in value):
        return [{"text": part} if isinstance(part, str) else dict(part) for part in value]
    if is_block(value):
        return [dict(value)]
    return [{"text": value if isinstance(value, str) else as_json(value)}]


def text_of(value: Any) -> str:
    """Return the text in *value*, one line for each text block."""
    return "\n".join(block["text"] for block in as_blocks(value) if isinstance(block.get("text"), str))


def readable_blocks(value: Any) -> list[dict[str, Any]]:
    """Return *value* as blocks that `toolcrib.formats.bedrock` reads: no reasoning, and unknown ones as JSON text."""
    return [_readable(block) for block in as_blocks(value) if _HIDDEN.isdisjoint(block)]


def content_of(values: Iterable[Any]) -> tuple[Content, ...]:
    """Return Toolcrib's content for *values*, each of which `as_blocks` accepts."""
    blocks = (block for value in values for block in as_blocks(value) if _HIDDEN.isdisjoint(block))
    return tuple(_content(block) or Text(as_json(block)) for block in blocks)


def blocks_from(content: Iterable[Content]) -> list[dict[str, Any]]:
    """Return blocks for Toolcrib's *content*. Structured values become JSON text."""
    blocks: list[dict[str, Any]] = []
    for part in content:
        match part:
            case Image(data, media_type):
                blocks.append({"image": {"format": media_type.rpartition("/")[2], "source": {"bytes": data}}})
            case File(data, media_type, name):
                kind = media_type.rpartition("/")[2]
                blocks.append({"document": {"name": name or "file", "format": kind, "source": {"bytes": data}}})
            case _:
                blocks.append({"text": part.text})
    return blocks


def as_json(value: Any) -> str:
    """Return *value* as JSON text."""
    return serialize_any("message", value)


def _readable(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"toolUse": {}}:
            return block
        case {"toolResult": {**result}}:
            return {"toolResult": {**result, "content": readable_blocks(result.get("content"))}}
        case _:
            return block if _content(block) else {"text": as_json(block)}


def _content(block: dict[str, Any]) -> Content | None:
    """Return Toolcrib's content for *block*; None if it is not content."""
    try:
        return read_block(block, "The block")
    except ValueError:
        return None
