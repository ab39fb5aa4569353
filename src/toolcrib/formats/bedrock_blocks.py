"""Content blocks of Bedrock Converse: text, JSON, images, audio and documents, to them and back; blocks in pieces."""

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from ..core import Audio, Content, Data, File, Image, Text
from . import reading
from .content import data_content, decoded, json_value, text_of_file

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_AUDIO = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/aac": "aac",
    "audio/mp4": "m4a",
    "audio/webm": "webm",
}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/markdown": "md",
}
_MEDIA_TYPES = {
    **{form: media_type for types in (_AUDIO, _IMAGES) for media_type, form in reversed(types.items())},
    **{form: media_type for media_type, form in _DOCUMENTS.items()},
    "txt": "text/plain",
}


def blocks_of(part: Content, *, in_result: bool = False) -> list[dict[str, Any]]:
    """*part* as at most one block."""
    match part:
        case Data() if in_result and isinstance(value := json_value(part), dict):
            return [{"json": value}]  # many models accept no other JSON than objects
        case Image(data, media_type) if data and media_type in _IMAGES:
            return [{"image": {"format": _IMAGES[media_type], "source": {"bytes": data}}}]
        case Audio(data, media_type) if data and media_type in _AUDIO and not in_result:
            return [{"audio": {"format": _AUDIO[media_type], "source": {"bytes": data}}}]
        case File(data, media_type, name) if data:
            form = _DOCUMENTS.get(media_type.partition(";")[0], "txt" if text_of_file(part) else None)
            if form is not None:
                return [{"document": {"format": form, "name": _document_name(name), "source": {"bytes": data}}}]
        case Text() | Data() | Image() | Audio() | File():
            pass
    return [{"text": part.text}] if part.text.strip() else []


def _document_name(name: str | None) -> str:
    """A name that Bedrock accepts: letters, digits, single spaces, hyphens, brackets."""
    return " ".join(re.sub(r"[^a-zA-Z0-9\-()\[\]]+", " ", name or "").split())[:180].strip() or "document"


def read_block(block: Mapping[str, Any], where: str) -> Content:
    """The content of *block*. Raises ValueError, with the place, where it is malformed."""
    if "text" in block:
        return Text(reading.require(block, "text", str, where))
    if "json" in block:
        return data_content(block["json"], where)
    kind = next((kind for kind in ("image", "audio", "document") if kind in block), None)
    if kind is None:
        raise ValueError(f"{where} must have one of text, json, image, audio, document or toolResult.")
    media = reading.require(block, kind, dict, where)
    where = f"{where}.{kind}"
    data = decoded(reading.require(media, "source", dict, where), "bytes", f"{where}.source")
    form = reading.require(media, "format", str, where)
    media_type = _MEDIA_TYPES.get(form, f"{'application' if kind == 'document' else kind}/{form}")
    if kind == "document":
        return File(data, media_type, reading.optional(media, "name", str, where))
    return Image(data, media_type) if kind == "image" else Audio(data, media_type)


# The model's own blocks, which are streamed in pieces


def start_block(start: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The block that begins with *start*."""
    block: dict[str, Any] = reading.json_data(start, where)
    if "toolResult" in block:  # of a tool of Bedrock's own
        result = reading.require(block, "toolResult", dict, where)
        result["content"] = reading.object_list(result, "content", where)
    return block


def add_delta(block: dict[str, Any], delta: Mapping[str, Any], where: str) -> None:
    """Add *delta* to *block*, as far as it has been streamed. Raises ValueError, with the place."""
    if "text" in delta:
        reading.append_text(block, "text", reading.require(delta, "text", str, where))
    elif "citation" in delta:
        block.setdefault("citations", []).append(reading.require(delta, "citation", dict, where))
    elif "image" in delta and "image" in block:
        block["image"] = {
            **reading.require(block, "image", dict, where),
            **reading.require(delta, "image", dict, where),
        }
    elif "toolResult" in delta and "toolResult" in block:
        content = block["toolResult"]["content"]
        for part in reading.object_list(delta, "toolResult", where):
            if "text" in part and content and "text" in content[-1]:
                reading.append_text(content[-1], "text", reading.require(part, "text", str, where))
            else:
                content.append(dict(part))
    elif "reasoningContent" in delta:
        reasoning = reading.require(delta, "reasoningContent", dict, where)
        _add_reasoning(block.setdefault("reasoningContent", {}), reasoning, where)


def _add_reasoning(block: dict[str, Any], delta: Mapping[str, Any], where: str) -> None:
    """Reasoning is streamed flat, and is nested in a message: text and its signature together."""
    for key in ("text", "signature"):
        if isinstance(delta.get(key), str):
            reading.append_text(block.setdefault("reasoningText", {"text": ""}), key, delta[key])
    if isinstance(delta.get("redactedContent"), str | bytes):
        block.setdefault("redactedContent", bytearray()).extend(decoded(delta, "redactedContent", where))


def whole_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A streamed *block* as it is in a message: text that has citations is a block of another kind."""
    if "citations" not in block:
        return block
    text = [{"text": block["text"]}] if "text" in block else []
    return {"citationsContent": {"content": text, "citations": block["citations"]}}


def with_bytes(value: Any) -> Any:
    """*value*, a block of JSON data, with bytes where Converse has them."""
    match value:
        case list():
            return [with_bytes(inner) for inner in value]
        case dict():
            return {name: _member(name, inner) for name, inner in value.items()}
        case _:
            return value


def _member(name: str, value: Any) -> Any:
    if name in ("bytes", "redactedContent") and isinstance(value, str):
        try:
            return b64decode(value)
        except ValueError:
            return value
    return value if name in ("input", "json") else with_bytes(value)  # these are a model's and a tool's own JSON


def with_unique_names(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*messages* with numbers added to repeated names of documents: Bedrock refuses repeated names in a request."""
    seen: dict[str, int] = {}
    for message in messages:
        for block in message["content"]:
            match block:
                case {"toolResult": {"content": [*blocks]}}:
                    pass
                case _:
                    blocks = [block]
            for inner in blocks:
                match inner:
                    case {"document": {"name": str(name)} as document}:
                        seen[name] = number = seen.get(name, 0) + 1
                        if number > 1:
                            document["name"] = f"{name} ({number})"
                    case _:
                        pass
    return messages
