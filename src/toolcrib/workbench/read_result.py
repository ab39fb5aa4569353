"""What is shown of a large result: its preview, and what the tool `read_result` reads of it, by parts or by a search.

Known secrets are redacted before anything is cut. A preview, and what the tool returns, are bounded themselves.
"""

import base64
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import from_json, to_json

from ..core import Content, Data, Redaction, Result, Text, Tool, ToolError
from ..machinery import RESULT_CHARS, in_thread_if_long, redacted_content
from ..schema import closest_match, did_you_mean, display_name
from ..schema.view import steps
from ..tools import Tool as FunctionTool

MAX_PART_CHARS = 1024 * 1024
"""The longest part of a result that a resource has."""

MAX_JSON_CHARS = 32 * 1024 * 1024
"""Longer results are text only: parsing them would hold up all other threads for a second or more."""

# Not as a section of the docstring: the package that parses those takes longer to import than a server to start.
_HANDLE = "The handle, as in the preview of the result."
_OFFSET = "How many items of a list, characters of anything else, or matches of a search to skip."
_LIMIT = "How many to return at most; as many as fit if left out."
_POINTER = "A JSON pointer (RFC 6901) to the part to read, as in /rows/0/name; the whole if empty."
_SEARCH = "Text to look for, as it is, case-sensitive."

_HEADER_CHARS = 600
_MATCH_CONTEXT_CHARS = 100
_NAMES_SHOWN = 20
_TEXT_TYPES = re.compile(r"text/|application/(json|xml|octet-stream|[\w.-]+\+(json|xml))\b")


class ResultContent:
    """The content of a result as it can be read, with known secrets redacted, and where it comes from."""

    def __init__(
        self, content: Sequence[Content], redaction: Redaction | None, labels: frozenset[str] = frozenset()
    ) -> None:
        self.labels = labels
        self._redaction = redaction
        self._original = tuple(content)
        self._parts = tuple(redacted_content(_decoded(part), redaction) for part in content)
        self.text = "\n".join(part.text for part in self._parts)

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
        """Whether the content is one text that is JSON by its first and last character."""
        match self._parts:
            case (Data(text),):
                return len(text) <= MAX_JSON_CHARS
            case (Text(text),):
                is_enclosed = text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]")
                return is_enclosed and len(text) <= MAX_JSON_CHARS
            case _:
                return False

    def whole(self) -> tuple[Content, ...]:
        """Return all parts, files as files."""
        return tuple(redacted_content(part, self._redaction) for part in self._original)

    @cached_property
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
        """Return the value at *pointer* (RFC 6901). Raises ToolError with the part of it that leads somewhere."""
        if pointer and not pointer.startswith("/"):
            raise ToolError(
                f"'{display_name(pointer)}' is not a JSON pointer: one begins with '/', as in /rows/0/name.",
                "invalid_arguments",
            )
        value, walked = self.value, ""
        for name in steps(pointer):
            value = _member(value, name, walked)
            walked += "/" + escaped(name)
        return value

    def json_text(self, pointer: str) -> str:
        """Return the value at *pointer* as JSON text; a text without a pointer is a string. Raises ToolError."""
        match self._parts:
            case (Data(text),) if not pointer:
                _parsed(text)  # text that is not JSON could add other arguments to those that it is put into
                return text
            case (Text(text),) if not pointer:
                return as_json(text)
            case _:
                return as_json(self.at(pointer))

    def base64(self) -> str | None:
        """Return the bytes of a single image or file, text or not, in base64."""
        only = self._original[0] if len(self._original) == 1 else None
        return None if only is None or isinstance(only, Text | Data) else only.base64


@dataclass(frozen=True, slots=True)
class Part:
    """A part of something: `text`, from `start` up to `end` of `total`, counted in `unit`.

    `rest` is how to read the whole of a single item that did not fit; then `text` is its beginning.
    """

    text: str
    start: int
    end: int
    total: int
    unit: str
    rest: str | None = None


def read_part(
    content: ResultContent, *, pointer: str, offset: int, limit: int | None, room: int, by_items: bool = True
) -> Part:
    """Return what is at *pointer*, from *offset* on: at most *limit*, and at most *room* characters. Raises ToolError.

    Both count the items of a list, if *by_items*, the bytes of an image or file, and else characters.
    """
    if content.data is not None:
        if pointer:
            raise _binary()
        start, end, total = _bounds(offset, min(limit or room, room * 3 // 4), len(content.data))
        return Part(base64.b64encode(content.data[start:end]).decode(), start, end, total, "bytes in base64")
    text = content.text
    if pointer or (by_items and content.looks_like_json):
        try:
            value = content.at(pointer)
        except ToolError:
            if pointer:
                raise
        else:
            if by_items and isinstance(value, list):
                return _items(value, offset, limit or len(value), room, pointer)
            text = as_text(value) if pointer else text
    start, end, total = _bounds(offset, min(limit or room, room), len(text))
    return Part(text[start:end], start, end, total, "characters")


def _items(value: list[Any], offset: int, limit: int, room: int, pointer: str) -> Part:
    start, last, total = _bounds(offset, limit, len(value))
    items: list[str] = []
    room_left = room - 2
    for index in range(start, last):
        item = as_json(value[index])
        room_left -= len(item) + 1
        if room_left < 0 and not items:
            place = f"{pointer[:200]}/{index}"
            rest = f"it has {len(item)} characters of JSON; read it with the pointer '{place}'"
            return Part(item[:room], start, start + 1, total, "items", rest)
        if room_left < 0:
            break
        items.append(item)
    return Part(f"[{','.join(items)}]", start, start + len(items), total, "items")


def preview(content: ResultContent, *, room: int, handle: str | None, reader: str | None, beside: bool = False) -> str:
    """Return the size and shape of a result, how to read it, and both its ends, in at most *room* characters.

    *reader* is the tool that reads *handle*; None without one. *beside* where images and files are shown beside it.
    """
    text, data_bytes = content.text, 0 if beside else content.data_bytes
    lines = text.count("\n") + 1
    size = f"{len(text)} characters" + (f" in {lines} lines" if lines > 1 else "")
    if data_bytes:
        size += f" and {data_bytes} bytes of images and files"
    shape = _shape(content)
    shape = shape if len(shape) <= room // 3 else shape[: room // 3 - 1] + "…"
    intro = f"[This result is too large to be shown whole: {size}{shape}."
    if handle is None:
        intro += " The rest could not be stored: ask for less.]"
    else:
        if reader is not None:
            intro += (
                f' The whole result is stored under the handle "{handle}": read on with {reader}, by offset and limit, '
                "a JSON pointer, or a search."
            )
        intro += f' Arguments that take a handle take {{"handle": "{handle}"}}.]'
    return f"{intro}\n{shortened(text, room - len(intro) - 1)}"[:room]


def shortened(text: str, room: int) -> str:
    """Return both ends of a text, cut where a line, a word or a JSON value ends, if there is such a place near."""
    if len(text) <= room:
        return text
    body_room = max(room - 60, 0)  # for the words between
    head = _cut_end(text[: body_room * 2 // 3])
    end = text[len(text) - (body_room - len(head)) :] if body_room > len(head) else ""
    tail = _cut_end(end[::-1])[::-1].lstrip("\n, ")
    return f"{head}\n… {len(text) - len(head) - len(tail)} characters left out …\n{tail}"[:room]


def _cut_end(text: str) -> str:
    """Return *text* without what follows the last line end, comma or space in its last quarter."""
    for mark in ("\n", ",", " "):
        at = text.rfind(mark, len(text) * 3 // 4)
        if at >= 0:
            return text[: at + 1].rstrip("\n")
    return text


def _shape(content: ResultContent) -> str:
    try:
        value = content.value if content.looks_like_json else None
    except ToolError:  # it was not JSON after all
        return ""
    match value:
        case list():
            items = value[:_NAMES_SHOWN]
            names = dict.fromkeys(name for item in items if isinstance(item, dict) for name in item)
            return f", a JSON list of {_count(len(value), 'item')}" + (
                f", objects with {_listed(names)}" if names else ""
            )
        case dict():
            kinds = [f"{name} ({kind_of(member)})" for name, member in islice(value.items(), _NAMES_SHOWN + 1)]
            return f", a JSON object with {_count(len(value), 'key')}: {_listed(kinds)}"
        case _:
            return ""


def _listed(names: Iterable[str]) -> str:
    shown_names = [display_name(name) for name in islice(names, _NAMES_SHOWN + 1)]
    return ", ".join(shown_names[:_NAMES_SHOWN]) + (", …" if len(shown_names) > _NAMES_SHOWN else "")


def read_result(find: Callable[[str], Awaitable[ResultContent]], *, name: str, limit_chars: int) -> Tool:
    """Return the tool called *name* that reads the results that *find* returns for their handles."""
    room = min(limit_chars, RESULT_CHARS) - _HEADER_CHARS

    async def read(
        handle: Annotated[str, Field(description=_HANDLE)],
        offset: Annotated[int, Field(ge=0, description=_OFFSET)] = 0,
        limit: Annotated[Annotated[int, Field(ge=1)] | None, Field(description=_LIMIT)] = None,
        pointer: Annotated[str, Field(description=_POINTER)] = "",
        search: Annotated[Annotated[str, Field(min_length=1)] | None, Field(description=_SEARCH)] = None,
    ) -> Any:
        """Read a result that was too large to be shown whole, a part at a time.

        Without a search, this returns a part and the offset of the next one. With a search, it returns the places
        where the text occurs.
        """
        content = await find(handle)
        if search is None:
            work = partial(_page, content, pointer, offset, limit, room)
        else:
            work = partial(_search, content, pointer, search, offset, limit, room)
        parts: tuple[Text, ...] = ()
        error: ToolError | None = None
        try:
            header, text = await in_thread_if_long(work, content.text)
            parts = Text(f"[{header}]"), Text(text)
        except ToolError as raised:  # which may name what is in the result
            error = raised
        return Result(None, parts, error, metadata={"labels": content.labels})

    return FunctionTool(read, name=name, title="Read a large result", read_only=True, idempotent=True, open_world=False)


def _page(content: ResultContent, pointer: str, offset: int, limit: int | None, room: int) -> tuple[str, str]:
    part = read_part(content, pointer=pointer, offset=offset, limit=limit, room=room)
    at = "" if not pointer else f" at '{pointer[:100]}{'…' if len(pointer) > 100 else ''}'"
    if part.start == part.end:
        return f"Nothing is there: the {part.unit}{at} end at {part.total}.", part.text
    header = f"{part.unit} {part.start} to {part.end - 1} of {part.total}{at}"
    if part.rest is not None:
        header += f"; only the first {len(part.text)} characters of it are shown: {part.rest}"
    return header + (f"; the next: offset {part.end}" if part.end < part.total else "; the end"), part.text


def _search(
    content: ResultContent, pointer: str, pattern: str, offset: int, limit: int | None, room: int
) -> tuple[str, str]:
    """Return a line for each place of *pattern* after the first *offset*, with the text around it."""
    if content.data is not None:
        raise _binary()
    text = as_text(content.at(pointer)) if pointer else content.text
    total = text.count(pattern)
    lines: list[str] = []
    first, last, _ = _bounds(offset, limit or total, total)
    for at in islice(_places(text, pattern), first, last):
        start = max(text.rfind("\n", 0, at) + 1, at - _MATCH_CONTEXT_CHARS)
        match_end = at + len(pattern)
        line_end = text.find("\n", match_end)
        end = min(len(text) if line_end < 0 else line_end, match_end + _MATCH_CONTEXT_CHARS)
        before = "…" if start > 0 and text[start - 1] != "\n" else ""
        after = "…" if end < len(text) and text[end] != "\n" else ""
        line = f"offset {at}: {before}{text[start:end]}{after}"
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    if not lines:
        return f"Found {total} times{f', none from offset {offset} on' if total else ''}.", ""
    last = offset + len(lines)
    following = f"the next: offset {last}" if last < total else "the end"
    header = f"matches {offset} to {last - 1} of {total}; {following}; offsets below are of characters"
    return header, "\n".join(lines)


def _places(text: str, pattern: str) -> Iterator[int]:
    at = text.find(pattern)
    while at >= 0:
        yield at
        at = text.find(pattern, at + len(pattern))


def escaped(name: str) -> str:
    """Return a name as a JSON pointer has it."""
    return name.replace("~", "~0").replace("/", "~1")


def as_text(value: Any) -> str:
    """Return a JSON value as text to read: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    """Return a JSON value as JSON text."""
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value)  # half of a surrogate pair is in it


def kind_of(value: Any) -> str:
    """Describe a JSON value by its kind and size."""
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


def _member(value: Any, name: str, walked: str) -> Any:
    where = f"'{display_name(walked)}'" if walked else "the result"
    if isinstance(value, dict):
        if name in value:
            return value[name]
        hint = did_you_mean(closest_match(name, value))
        message = f"There is no '{display_name(name)}' in {where}.{hint} It has: {_listed(value) or 'nothing'}."
    elif isinstance(value, list):
        if re.fullmatch(r"0|[1-9][0-9]{0,15}", name) and int(name) < len(value):
            return value[int(name)]
        has = f"its items are 0 to {len(value) - 1}" if value else "it is empty"
        message = f"There is no item '{display_name(name)}' in {where}, which is a list: {has}."
    else:
        message = f"The pointer goes on after {where}, which is {kind_of(value)}."
    raise ToolError(message, "invalid_arguments")


def _bounds(offset: int, limit: int, total: int) -> tuple[int, int, int]:
    start = min(offset, total)
    return start, min(start + limit, total), total


def _decoded(part: Content) -> Content:
    """Return a file of text as its text."""
    if isinstance(part, Text | Data) or not _TEXT_TYPES.match(part.media_type):
        return part
    try:
        text = part.data.decode()
    except UnicodeDecodeError:
        return part
    return part if "\0" in text else Text(text)


def _parsed(text: str) -> Any:
    if len(text) > MAX_JSON_CHARS:
        raise ToolError(
            f"The result is too large to be read as JSON: it has {len(text)} characters. Read it without a pointer.",
            "too_large",
        )
    try:
        return from_json(text)
    except (ValueError, RecursionError):
        raise _not_json() from None


def _not_json() -> ToolError:
    message = "The result is not valid JSON, so it has no JSON pointers. Read it by offset and limit."
    return ToolError(message, "invalid_arguments")


def _binary() -> ToolError:
    return ToolError(
        "The result is an image or a file, and not text. Read its bytes, in base64, by offset and limit.",
        "invalid_arguments",
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
