"""How a worker and its host speak: frames of JSON, each behind its length in four bytes. This file does no I/O.

No pickle: a worker that was taken over must not be able to make its host run anything.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

_HEAD = struct.Struct(">I")
_encode = json.JSONEncoder(separators=(",", ":")).encode
LIMIT_BYTES = 64 * 1024 * 1024
READ_BYTES = 262_144
"""How much is read at once."""


class TooLarge(ValueError):
    """A frame over the limit."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{size_bytes} bytes are over the limit of {limit_bytes} bytes")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


def pack(message: Mapping[str, Any], *, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """Return a frame. Raises TooLarge."""
    body = _encode(message).encode()
    if len(body) > limit_bytes:
        raise TooLarge(len(body), limit_bytes)
    return _HEAD.pack(len(body)) + body


class Frames:
    """Bytes as they come in → messages."""

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    def take(self) -> dict[str, Any] | None:
        """Return the next message; None while it is not there as a whole.

        Raises TooLarge; ValueError for what is none.
        """
        data = self._data
        if len(data) < _HEAD.size:
            return None
        (length,) = _HEAD.unpack_from(data)
        if length > self._limit_bytes:
            raise TooLarge(length, self._limit_bytes)
        end = _HEAD.size + length
        if len(data) < end:
            return None
        message = json.loads(data[_HEAD.size : end])
        del data[:end]
        if not isinstance(message, dict):
            raise ValueError("a frame is a JSON object")
        return message
