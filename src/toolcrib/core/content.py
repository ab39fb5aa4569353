"""What a result is made of, and what may be shown of it."""

import base64
import json
from dataclasses import dataclass
from typing import Any


# Text and Data are not frozen, for the reason that Result is not: one is made for every call.
@dataclass(slots=True, unsafe_hash=True)
class Text:
    """Words."""

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
        """The JSON value, decoded anew at each reading."""
        return json.loads(self.json)


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its bytes (not base64) and its media type (RFC 6838)."""

    data: bytes
    media_type: str = "image/png"

    @property
    def text(self) -> str:
        return _placeholder("image", self.media_type, self.data)

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()


@dataclass(frozen=True, slots=True)
class Audio:
    """Sound: its bytes (not base64) and its media type (RFC 6838)."""

    data: bytes
    media_type: str = "audio/wav"

    @property
    def text(self) -> str:
        return _placeholder("audio", self.media_type, self.data)

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()


@dataclass(frozen=True, slots=True)
class File:
    """Any other bytes, with their media type (RFC 6838) and, where there is one, a name."""

    data: bytes
    media_type: str = "application/octet-stream"
    name: str | None = None

    @property
    def text(self) -> str:
        return _placeholder(f"file {self.name}" if self.name else "file", self.media_type, self.data)

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()


Content = Text | Data | Image | Audio | File


def _placeholder(what: str, media_type: str, data: bytes) -> str:
    return f"[{what}: {media_type}, {len(data)} bytes]"
