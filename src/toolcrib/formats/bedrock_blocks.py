"""Content blocks of Bedrock Converse: text, JSON, images, audio and documents, to them and back."""

import re
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


def with_unique_names(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*messages* with numbers added to repeated names of documents: Bedrock refuses repeated names in a request."""
    seen: dict[str, int] = {}
    for message in messages:
        for block in message["content"]:
            for inner in block["toolResult"]["content"] if "toolResult" in block else [block]:
                if "document" in inner:
                    name = inner["document"]["name"]
                    seen[name] = number = seen.get(name, 0) + 1
                    if number > 1:
                        inner["document"]["name"] = f"{name} ({number})"
    return messages
