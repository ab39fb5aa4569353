"""What may be read of a kept result: text, or the JSON value it is, or bytes; whole, or at a JSON pointer; in slices.

This file does no I/O. Known secrets are struck out of the whole before anything is cut from it.
"""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from ..core import Content, Data, Redaction, Text, ToolError
from ..schema import nearest, spoken

_NAMED = 20
_TEXTUAL = re.compile(r"text/|application/(json|xml|[\w.-]+\+(json|xml))\b")


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of something: `text`, from `start` up to `end` of `total`, counted in `unit`.

    `rest` where the one member it is about did not fit: then `text` is its beginning, and `rest` says how to read all
    of it.
    """

    text: str
    start: int
    end: int
    total: int
    unit: str
    rest: str | None = None


class View:
    """What may be read of *content*."""

    def __init__(self, content: Sequence[Content], redaction: Redaction | None) -> None:
        self._whole = tuple(content)
        self._content = tuple(_readable(part) for part in content)
        self._redaction = redaction

    @property
    def data(self) -> bytes | None:
        """The bytes of a single image or file that is no text."""
        only = self._content[0] if len(self._content) == 1 else None
        return None if only is None or isinstance(only, Text | Data) else only.data

    @property
    def data_bytes(self) -> int:
        """How many bytes of images and files that are no text it has."""
        return sum(len(part.data) for part in self._content if not isinstance(part, Text | Data))

    @property
    def text(self) -> str:
        """All of it in words."""
        return self._struck("\n".join(part.text for part in self._content))

    def whole(self) -> tuple[Content, ...]:
        """All of it as it is kept."""
        parts: list[Content] = []
        for part in self._whole:
            if isinstance(part, Text):
                part = Text(self._struck(part.text))
            elif isinstance(part, Data):
                part = Data(self._struck(part.json))
            parts.append(part)
        return tuple(parts)

    def json_text(self) -> str:
        """The value as JSON text. Raises ToolError where it is no JSON."""
        match self._content:
            case (Data() as data,):
                written = self._struck(data.json)
                _parsed(written)  # what is no JSON would end up in the midst of other arguments
                return written
            case (Text(text),):
                return as_json(self._struck(text))
            case _:
                return as_json(self.value())

    def base64(self) -> str | None:
        """The bytes of a single image or file, text or not."""
        only = self._whole[0] if len(self._whole) == 1 else None
        return None if only is None or isinstance(only, Text | Data) else only.base64

    def value(self) -> Any:
        """The JSON value: of text, what is written there; of several parts, their list. Raises ToolError."""
        match self._content:
            case (Data() | Text() as part,):
                return _parsed(self._struck(part.text))
            case (_,):
                raise _no_json()
            case _:
                return [self._member(part) for part in self._content]

    def looks_like_json(self) -> bool:
        """Whether `value` can be expected to work."""
        match self._content:
            case (Data(),):
                return True
            case (Text(text),):
                return text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]")
            case _:
                return False

    def _member(self, part: Content) -> Any:
        if isinstance(part, Data):
            return _parsed(self._struck(part.json))
        return self._struck(part.text)

    def _struck(self, text: str) -> str:
        return text if self._redaction is None else self._redaction.strike(text)


def at_pointer(value: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) leads to. Raises ToolError, naming how far it leads."""
    if not pointer:
        return value
    if not pointer.startswith("/"):
        raise ToolError(
            f"'{spoken(pointer)}' is no JSON pointer: one begins with '/', as in /rows/0/name.", "invalid_arguments"
        )
    walked = ""
    for token in pointer[1:].split("/"):
        if re.search(r"~(?![01])", token):
            raise ToolError(
                f"'{spoken(pointer)}' is no JSON pointer: in a name, '~' is written '~0' and '/' is written '~1'.",
                "invalid_arguments",
            )
        value = _step(value, token.replace("~1", "/").replace("~0", "~"), walked)
        walked += "/" + token
    return value


def _step(value: Any, name: str, walked: str) -> Any:
    where = f"'{spoken(walked)}'" if walked else "the result"
    if isinstance(value, dict):
        if name in value:
            return value[name]
        meant = nearest(name, value)
        hint = f" Did you mean '{spoken(meant)}'?" if meant else ""
        names = ", ".join(spoken(key) for key in list(value)[:_NAMED]) + (", …" if len(value) > _NAMED else "")
        raise ToolError(
            f"There is no '{spoken(name)}' in {where}.{hint} It has: {names or 'nothing'}.", "invalid_arguments"
        )
    if isinstance(value, list):
        if re.fullmatch(r"0|[1-9][0-9]{0,15}", name) and int(name) < len(value):
            return value[int(name)]
        has = f"its items are 0 to {len(value) - 1}" if value else "it is empty"
        raise ToolError(f"There is no item '{spoken(name)}' in {where}, which is a list: {has}.", "invalid_arguments")
    raise ToolError(f"The pointer leads on from {where}, and that is {kind_of(value)}.", "invalid_arguments")


def words(value: Any) -> str:
    """A JSON value as text to read: a string as it is, the rest as JSON."""
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value)  # half of a surrogate pair is in it


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


def characters(text: str, offset: int, limit: int) -> Slice:
    """*limit* characters, from *offset* on."""
    start = min(offset, len(text))
    end = min(start + limit, len(text))
    return Slice(text[start:end], start, end, len(text), "characters")


def utf8(text: str, offset: int, limit: int) -> Slice:
    """The characters of *text* whose first byte in UTF-8 is one of *limit* bytes, from *offset* on."""
    data = text.encode(errors="surrogatepass")
    start = min(offset, len(data))
    end = min(start + limit, len(data))
    cut = data[_whole(data, start) : _whole(data, end)]
    return Slice(cut.decode(errors="surrogatepass"), start, end, len(data), "bytes")


def raw(data: bytes, offset: int, limit: int) -> Slice:
    """*limit* bytes, from *offset* on, in base64."""
    start = min(offset, len(data))
    end = min(start + limit, len(data))
    return Slice(base64.b64encode(data[start:end]).decode(), start, end, len(data), "bytes in base64")


def lines(text: str, offset: int, limit: int, room: int) -> Slice:
    """At most *limit* lines with their ends, from line *offset* on (the first is 0), and at most *room* characters."""
    total = text.count("\n") + bool(text and not text.endswith("\n"))
    start = min(offset, total)
    if start == total:
        return Slice("", total, total, total, "lines")
    at = 0
    for _ in range(start):
        at = text.index("\n", at) + 1
    end, stop = start, at
    while end < total and end - start < limit:
        newline = text.find("\n", stop)
        past = len(text) if newline < 0 else newline + 1
        if past - at > room:
            if end == start:
                rest = f"it has {past - at} characters; read on by characters from offset {at + room}"
                return Slice(text[at : at + room], start, start + 1, total, "lines", rest)
            break
        end, stop = end + 1, past
    return Slice(text[at:stop], start, end, total, "lines")


def items(value: list[Any] | dict[str, Any], offset: int, limit: int, room: int, *, pointer: str) -> Slice:
    """At most *limit* items of a list, or members of an object, as JSON of at most *room* characters.

    *pointer* is where *value* was found.
    """
    total = len(value)
    start = min(offset, total)
    shown: list[str] = []
    used = 2
    names = list(value) if isinstance(value, dict) else None
    for index in range(start, min(start + limit, total)):
        item = written(value, names, index)
        if used + len(item) + 1 > room:
            if not shown:
                to = spoken(str(start if names is None else names[start]).replace("~", "~0").replace("/", "~1"))
                rest = f"it has {len(item)} characters of JSON; read it with the pointer '{pointer[:200]}/{to}'"
                return Slice(item[:room], start, start + 1, total, "items", rest)
            break
        shown.append(item)
        used += len(item) + 1
    opening, closing = "{}" if names is not None else "[]"
    return Slice(opening + ",".join(shown) + closing, start, start + len(shown), total, "items")


def written(value: Any, names: list[str] | None, index: int) -> str:
    """The item of a list, or with *names* the member of an object, as JSON."""
    if names is None:
        return as_json(value[index])
    return f"{as_json(names[index])}:{as_json(value[names[index]])}"


def _readable(part: Content) -> Content:
    """A file that is text as its text."""
    if isinstance(part, Text | Data):
        return part
    if _TEXTUAL.match(part.media_type) or part.media_type == "application/octet-stream":
        try:
            text = part.data.decode()
        except UnicodeDecodeError:
            return part
        return part if "\0" in text else Text(text)
    return part


def _whole(data: bytes, at: int) -> int:
    """The first place from *at* on where a character begins."""
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


def _parsed(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        raise _no_json() from None


def _no_json() -> ToolError:
    return ToolError(
        "The result is no JSON, so neither a JSON pointer nor an item leads into it. Read it by characters or lines.",
        "invalid_arguments",
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
