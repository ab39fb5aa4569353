"""What can be read of a stored result: text, its JSON value or bytes; whole, at a JSON pointer, or in slices.

This file does no I/O. Known secrets are redacted before anything is cut.
"""

import base64
import json
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic_core import from_json, to_json

from ..core import Content, Data, Redaction, Text, ToolError, redacted_content
from ..schema import closest_match, did_you_mean, display_name
from ..schema.parse import LIMIT_BYTES
from .long_json import LongList, LongObject
from .long_json import parse as parse_long

LONG_CHARS = 1024 * 1024
"""What is longer is read in a thread: on the event loop it would hold up everything else."""

_NAMES_SHOWN = 20
_TEXT_TYPES = re.compile(r"text/|application/(json|xml|octet-stream|[\w.-]+\+(json|xml))\b")


class ResultContent:
    """The content of a result as it can be read, with known secrets redacted."""

    def __init__(self, content: Sequence[Content], redaction: Redaction | None) -> None:
        self._redaction = redaction
        self._original = tuple(content)
        self._parts = tuple(self._redacted(_decoded(part)) for part in content)
        self.text = "\n".join(part.text for part in self._parts)
        # What the last page was cut from: the next one is mostly of the same.
        self._place: tuple[str, Any] | None = None
        self._lines: tuple[str, array[int]] | None = None
        self._bytes: tuple[str, bytes] | None = None

    @property
    def data(self) -> bytes | None:
        """The bytes of a single image or file that is not text."""
        only = self._parts[0] if len(self._parts) == 1 else None
        return None if only is None or isinstance(only, Text | Data) else only.data

    @property
    def data_bytes(self) -> int:
        """The size of all images and files that are not text."""
        return sum(len(part.data) for part in self._parts if not isinstance(part, Text | Data))

    @property
    def looks_like_json(self) -> bool:
        """Whether `value` can be expected to work."""
        match self._parts:
            case (Data(),):
                return True
            case (Text(text),):
                return text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]")
            case _:
                return False

    def whole(self) -> tuple[Content, ...]:
        """All parts, files as files."""
        return tuple(map(self._redacted, self._original))

    def value(self) -> Any:
        """The JSON value: one text is parsed as JSON; several parts are a list. Raises ToolError."""
        match self._parts:
            case (Data() | Text() as part,):
                return _parsed(part.text)
            case (_,):
                raise _not_json()
            case parts:
                return [_parsed(part.json) if isinstance(part, Data) else part.text for part in parts]

    def at(self, pointer: str) -> Any:
        """The value at *pointer*. Raises ToolError."""
        known = self._place
        if known is None or known[0] != pointer:
            whole = self._whole if pointer else self.value()
            known = (pointer, at_pointer(whole, pointer))
            self._place = known if len(self.text) > LONG_CHARS else None
        return known[1]

    @cached_property
    def _whole(self) -> Any:
        return self.value()

    def lines(self, text: str, offset: int, limit: int, room: int) -> "Slice":
        """Lines of *text*, which is this or a part of it."""
        known = self._lines
        if known is None or known[0] is not text:
            known = self._lines = (text, _line_starts(text))
        return lines(text, known[1], offset, limit, room)

    def utf8_bytes(self, text: str, offset: int, limit: int) -> "Slice":
        """Bytes of *text*, which is this or a part of it."""
        known = self._bytes
        if known is None or known[0] is not text:
            known = self._bytes = (text, text.encode(errors="surrogatepass"))
        return utf8_bytes(known[1], offset, limit)

    def json_text(self, pointer: str) -> str:
        """The value at *pointer* as JSON text, where one text is a string. Raises ToolError where it is not JSON."""
        match self._parts:
            case (Data(text),) if not pointer:
                written = text
            case (Text(text),) if not pointer:
                return as_json(text)
            case _:
                value = at_pointer(self.value(), pointer)
                written = as_json(value)
                if not isinstance(value, LongList | LongObject):
                    return written
        if len(written) <= LIMIT_BYTES:  # longer text is not used
            try:
                from_json(written)  # what is not JSON could add other arguments to those that it is put into
            except ValueError:
                raise _not_json() from None
        return written

    def base64(self) -> str | None:
        """The bytes of a single image or file, text or not."""
        only = self._original[0] if len(self._original) == 1 else None
        return None if only is None or isinstance(only, Text | Data) else only.base64

    def _redacted(self, part: Content) -> Content:
        return redacted_content(part, self._redaction)


def at_pointer(value: Any, pointer: str) -> Any:
    """The value at a JSON pointer (RFC 6901). Raises ToolError with the part of the pointer that leads somewhere."""
    if not pointer:
        return value
    if not pointer.startswith("/"):
        raise ToolError(
            f"'{display_name(pointer)}' is not a JSON pointer: one begins with '/', as in /rows/0/name.",
            "invalid_arguments",
        )
    walked = ""
    for token in pointer[1:].split("/"):
        if re.search(r"~(?![01])", token):
            raise ToolError(
                f"'{display_name(pointer)}' is not a JSON pointer: in a name, write '~' as '~0' and '/' as '~1'.",
                "invalid_arguments",
            )
        try:
            value = _member(value, token.replace("~1", "/").replace("~0", "~"), walked)
        except ValueError:
            raise _not_json() from None
        walked += "/" + token
    return value


def _member(value: Any, name: str, walked: str) -> Any:
    where = f"'{display_name(walked)}'" if walked else "the result"
    if isinstance(value, dict):
        if name in value:
            return value[name]
        hint = did_you_mean(closest_match(name, value))
        names = ", ".join(display_name(key) for key in list(value)[:_NAMES_SHOWN])
        more = ", …" if len(value) > _NAMES_SHOWN else ""
        raise ToolError(
            f"There is no '{display_name(name)}' in {where}.{hint} It has: {names or 'nothing'}{more}.",
            "invalid_arguments",
        )
    if isinstance(value, list):
        if re.fullmatch(r"0|[1-9][0-9]{0,15}", name) and int(name) < len(value):
            return value[int(name)]
        has = f"its items are 0 to {len(value) - 1}" if value else "it is empty"
        raise ToolError(
            f"There is no item '{display_name(name)}' in {where}, which is a list: {has}.", "invalid_arguments"
        )
    raise ToolError(f"The pointer goes on after {where}, which is {kind_of(value)}.", "invalid_arguments")


def as_text(value: Any) -> str:
    """A JSON value as text to read: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    if isinstance(value, LongList | LongObject):
        return value.json
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value)  # half of a surrogate pair is in it


def item_json(value: Any, names: list[str] | None, index: int) -> str:
    """The item of a list, or with *names* the member of an object, as JSON."""
    if names is None:
        return as_json(value[index])
    return f"{as_json(names[index])}:{as_json(value[names[index]])}"


def kind_of(value: Any) -> str:
    """What a JSON value is, with its size."""
    match value:
        case dict():
            return f"an object with {_count(len(value), 'key')}"
        case list():
            return f"a list of {_count(len(value), 'item')}"
        case str():
            return f"a string of {_count(len(value), 'character')}"
        case None:
            return "null"
        case bool():
            return "a boolean"
        case _:
            return "a number"


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of something: `text`, from `start` up to `end` of `total`, counted in `unit`.

    `rest` where a single member did not fit: then `text` is its beginning, and `rest` how to read all of it.
    """

    text: str
    start: int
    end: int
    total: int
    unit: str
    rest: str | None = None


def characters(text: str, offset: int, limit: int) -> Slice:
    """*limit* characters, from *offset* on."""
    start, end = _bounds(offset, limit, len(text))
    return Slice(text[start:end], start, end, len(text), "characters")


def utf8_bytes(data: bytes, offset: int, limit: int) -> Slice:
    """The characters of *data*, text in UTF-8, whose first byte is one of *limit* bytes, from *offset* on."""
    start, end = _bounds(offset, limit, len(data))
    cut = data[_character_start(data, start) : _character_start(data, end)]
    return Slice(cut.decode(errors="surrogatepass"), start, end, len(data), "bytes")


def base64_bytes(data: bytes, offset: int, limit: int) -> Slice:
    """*limit* bytes, from *offset* on, in base64."""
    start, end = _bounds(offset, limit, len(data))
    return Slice(base64.b64encode(data[start:end]).decode(), start, end, len(data), "bytes in base64")


def lines(text: str, starts: Sequence[int], offset: int, limit: int, room: int) -> Slice:
    """At most *limit* lines with their ends, from line *offset* on (the first is 0), and at most *room* characters.

    *starts* is where the lines of *text* begin.
    """
    total = len(starts)
    start, last = _bounds(offset, limit, total)
    at = stop = starts[start] if start < total else 0
    end = start
    while end < last:
        line_end = starts[end + 1] if end + 1 < total else len(text)
        if line_end - at > room and end > start:
            break
        if line_end - at > room:
            rest = f"it has {line_end - at} characters; read on by characters from offset {at + room}"
            return Slice(text[at : at + room], start, start + 1, total, "lines", rest)
        end, stop = end + 1, line_end
    return Slice(text[at:stop], start, end, total, "lines")


def items(value: list[Any] | dict[str, Any], offset: int, limit: int, room: int, *, pointer: str) -> Slice:
    """At most *limit* items of a list, or members of an object, as JSON of at most *room* characters.

    *pointer* is where *value* was found.
    """
    start, last = _bounds(offset, limit, len(value))
    names = list(value) if isinstance(value, dict) else None
    shown: list[str] = []
    room_left = room - 2
    for index in range(start, last):
        item = item_json(value, names, index)
        room_left -= len(item) + 1
        if room_left < 0 and not shown:
            name = escaped(str(start if names is None else names[start]))
            place = f"{pointer[:200]}/{display_name(name)}"
            rest = f"it has {len(item)} characters of JSON; read it with the pointer '{place}'"
            return Slice(item[:room], start, start + 1, len(value), "items", rest)
        if room_left < 0:
            break
        shown.append(item)
    opening, closing = "[]" if names is None else "{}"
    return Slice(opening + ",".join(shown) + closing, start, start + len(shown), len(value), "items")


def escaped(name: str) -> str:
    """A name as it is written in a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _line_starts(text: str) -> "array[int]":
    starts = array("Q")
    at = 0
    while at < len(text):
        starts.append(at)
        at = text.find("\n", at) + 1 or len(text)
    return starts


def _bounds(offset: int, limit: int, total: int) -> tuple[int, int]:
    start = min(offset, total)
    return start, min(start + limit, total)


def _character_start(data: bytes, at: int) -> int:
    """The first place from *at* on where a character begins."""
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


def _decoded(part: Content) -> Content:
    """A file of text as its text."""
    if isinstance(part, Text | Data) or not _TEXT_TYPES.match(part.media_type):
        return part
    try:
        text = part.data.decode()
    except UnicodeDecodeError:
        return part
    return part if "\0" in text else Text(text)


def _parsed(text: str) -> Any:
    try:
        return parse_long(text) if len(text) > LONG_CHARS else from_json(text)
    except (ValueError, RecursionError):
        raise _not_json() from None


def _not_json() -> ToolError:
    return ToolError(
        "The result is not valid JSON, so it has no items and no JSON pointers. Read it by characters or lines.",
        "invalid_arguments",
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
