"""What a result is made of, what may be shown of it, and what a running call reports before its result."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


# Text and Data are not frozen, for the reason that Result is not: one is made for every call.
@dataclass(slots=True, unsafe_hash=True)
class Text:
    """Plain text."""

    text: str


@dataclass(slots=True, unsafe_hash=True)
class Data:
    """A structured value, as JSON text."""

    json: str

    @property
    def text(self) -> str:
        return self.json

    @property
    def value(self) -> Any:
        """The JSON value, decoded at each access."""
        return json.loads(self.json)


@dataclass(frozen=True, slots=True)
class _Media:
    data: bytes
    media_type: str

    def __post_init__(self) -> None:
        value: object = self.data
        if not isinstance(value, bytes | bytearray | memoryview):
            kind, wrong = type(self).__name__, type(value).__name__
            raise TypeError(
                f"The data of {kind} are bytes, not {wrong}: Path(name).read_bytes(), or base64.b64decode(text)."
            )

    @property
    def text(self) -> str:
        return f"[{self._label}: {self.media_type}, {len(self.data)} bytes]"

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()

    @property
    def _label(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True, slots=True)
class Image(_Media):
    """An image: its bytes (not base64) and its media type (RFC 6838)."""

    media_type: str = "image/png"


@dataclass(frozen=True, slots=True)
class Audio(_Media):
    """Sound: its bytes (not base64) and its media type (RFC 6838)."""

    media_type: str = "audio/wav"


@dataclass(frozen=True, slots=True)
class File(_Media):
    """Any other bytes, with their media type (RFC 6838) and, where there is one, a name."""

    media_type: str = "application/octet-stream"
    name: str | None = None

    @property
    def _label(self) -> str:
        return f"file {self.name}" if self.name else "file"


Content = Text | Data | Image | Audio | File

_TEXT_TYPES = frozenset(
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

_KINDS = ("text", "data", "image", "audio", "file")


def content_to_dict(part: Content, *, exact: bool = False) -> dict[str, Any]:
    """Return *part* as JSON data, from which `content_from_dict` makes it again; bytes are in base64.

    With *exact*, a structured value stays the JSON text that it is. Otherwise one that Python does not read, with
    numbers of over 4,300 digits, is text.
    """
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Data(text) if exact:
            return {"type": "data", "json": text}
        case Data(text):
            try:
                return {"type": "data", "data": json.loads(text, parse_constant=_refuse)}
            except (ValueError, RecursionError):
                return {"type": "text", "text": text}
        case File():
            return {"type": "file", "data": part.base64, "media_type": part.media_type, "name": part.name}
        case Image() | Audio():
            kind = "image" if isinstance(part, Image) else "audio"
            return {"type": kind, "data": part.base64, "media_type": part.media_type}


def text_of_file(part: Content) -> str | None:
    """Return the text of a text file; None for any other content, and where it is empty or not UTF-8."""
    if not isinstance(part, File):
        return None
    kind = part.media_type.partition(";")[0].strip().lower()
    if not (kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))):
        return None
    try:
        return part.data.decode() or None
    except UnicodeDecodeError:
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def content_from_dict(data: Mapping[str, Any]) -> Content:
    """Return the content that `content_to_dict` wrote. Raises ValueError, naming the member, for anything else."""
    match data:
        case {"type": "text"}:
            return Text(_string(data, "text"))
        case {"type": "data", "json": _}:
            return Data(_string(data, "json"))
        case {"type": "data", "data": value}:
            return Data(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        case {"type": "data"}:
            raise ValueError("Content of type 'data' has no 'data'.")
        case {"type": "image"}:
            return Image(_bytes(data), _string(data, "media_type"))
        case {"type": "audio"}:
            return Audio(_bytes(data), _string(data, "media_type"))
        case {"type": "file"}:
            return File(_bytes(data), _string(data, "media_type"), _string(data, "name") if data.get("name") else None)
        case {"type": str(kind)}:
            type_text = f"'{kind[:40]}'"
        case _:
            type_text = "missing"
    raise ValueError(f"Content is an object with a 'type' of {', '.join(_KINDS)}; the type is {type_text}.")


def _string(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ValueError(f"Content of type '{data['type']}': '{name}' must be a string, not {type(value).__name__}.")
    return value


def _bytes(data: Mapping[str, Any]) -> bytes:
    text = _string(data, "data")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"Content of type '{data['type']}': 'data' is not valid base64.") from None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is: *done* of *total* (None where that is not known), with a message."""

    done: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Emitted:
    """Content that a call gives while it still runs. Not a part of its result.

    *value* is for the program, and is not redacted: a tool that emits an Emitted may put one there.
    """

    content: tuple[Content, ...]
    value: Any = field(default=None, repr=False, compare=False)


Event = Progress | Emitted
