"""Large results: bounded when they are shown, stored whole, read in parts, and put in where an argument has a handle.

A result is stored with known secrets redacted, and redacted before anything is cut, so no way of reading it in pieces
brings one back. A preview, and what the tool `read_result` returns, are bounded themselves.
"""

import base64
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import islice
from typing import Annotated, Any, TypeGuard

from pydantic import Field
from pydantic_core import from_json, to_json

from ..core import Audio, Caller, Content, Data, File, Image, Redaction, Repair, Result, Text, Tool, ToolError
from ..machinery import (
    HANDLE_PREFIX,
    LONG_CHARS,
    MIN_RESULT_CHARS,
    RESULT_CHARS,
    ResultStore,
    StoredResult,
    in_thread,
    in_thread_if_long,
    is_handle,
    log_failure,
    new_handle,
    redacted_content,
)
from ..schema import closest_match, did_you_mean, display_name, object_members
from ..schema.describe import SHOWN
from ..schema.json_text import LIMIT_BYTES
from ..schema.view import steps
from ..tools import Tool as FunctionTool
from .memory import MemoryResults
from .registry import Registry, free_name

MAX_BINARY_BYTES = 4 * 1024 * 1024
"""The limit for images, sound and files together."""

READERS = ("read_result", "toolcrib_read_result")

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
_TEXT_TYPES = re.compile(r"text/|application/(json|xml|octet-stream|[\w.-]+\+(json|xml))\b")


class Results:
    """The large results of one workbench, for its calls and for its tool `read_result`.

    *limit_chars* None bounds nothing; handles are resolved all the same. `forget` clears *store* if it *owns_store*.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        caller: Caller,
        limit_chars: int | None,
        store: ResultStore,
        owns_store: bool,
        redaction: Redaction | None,
    ) -> None:
        self.limit_chars = sys.maxsize if limit_chars is None else limit_chars
        self._registry = registry
        self._caller = caller
        self._redaction = redaction
        self._store = store
        self._own = store if owns_store and isinstance(store, MemoryResults) else None
        self.issued = False
        self._outlives = limit_chars is not None and not isinstance(store, MemoryResults)
        self._readers: dict[str, Tool] = {}

    # For a call

    async def bound(self, result: Result[Any], tool: str, labels: AbstractSet[str], /) -> None:
        limit = self.limit_chars
        content = result.content

        def measured() -> tuple[int, list[Image | Audio | File]]:
            media = [part for part in content if isinstance(part, Image | Audio | File)]
            return sum(len(part.text) + 1 for part in content) - 1, media

        size, media = await in_thread_if_long(measured, content)
        data_fits = sum(len(part.data) for part in media) <= MAX_BINARY_BYTES
        if size <= limit and (data_fits or limit == sys.maxsize):
            return
        handle = await self._put(content, tool, labels)
        result.metadata["size_chars"] = size
        if handle is not None:
            self.issued = True
            result.metadata["handle"] = handle
        # Images and files that are not too large stay beside the preview, if there is room for it.
        beside = media if data_fits else []
        room = limit - sum(len(part.text) + 1 for part in beside)
        if room < MIN_RESULT_CHARS:
            beside, room = [], limit
        reader = self.reader_name()

        def show() -> str:
            whole = ResultContent(content, self._redaction)
            return preview(whole, room=room, handle=handle, reader=reader, beside=bool(beside))

        text = await in_thread(show) if size > LONG_CHARS else show()
        result.content = (Text(text), *beside)

    def shorten(self, error: ToolError, /) -> ToolError:
        if len(error.message) <= self.limit_chars:
            return error
        message = shortened(error.message, self.limit_chars)
        return ToolError(message, error.code, retry=error.retry, details=error.details)

    async def follow(
        self, tool: Tool, arguments: Any, repair: bool, labels: set[str], /
    ) -> tuple[Any, tuple[Repair, ...]]:
        text = _text_with_handles(arguments)
        if text is None or tool in self._readers.values():
            return arguments, ()
        handles = tool.handles or {}
        text_resolved, at = "", 0
        repairs: tuple[Repair, ...] = ()
        try:
            for member, reference in _references(tool, text, repair=repair):
                name = display_name(member.name)
                if isinstance(member.value, str):
                    repairs += (Repair("/" + escaped(member.name), "string", "object"),)
                if member.name not in handles:
                    raise _not_accepted(tool, name, self.reader_name())
                value_text = await self._value(tool, name, reference, handles[member.name], labels)
                text_resolved += text[at : member.start] + value_text
                at = member.end
        except (ValueError, RecursionError):
            return arguments, ()  # not a JSON object: the check has a better message
        return (text_resolved + text[at:] if at else arguments), repairs

    # For read_result

    async def view(self, handle: str) -> "ResultContent":
        """Return the result under *handle*. Raises ToolError, the same if it is unknown, expired or another's."""
        try:
            entry = await self._store.find(handle, self._caller.principal, self._caller.thread)
        except Exception as error:
            log_failure("The store of results could not be read", error, self._redaction)
            raise ToolError("Stored results cannot be read at the moment. Try again later.", "unavailable") from None
        if entry is None:
            raise ToolError(
                "There is no result under this handle: it is misspelled, or the result is no longer stored. Copy it "
                "exactly, or call the tool that returned it once more.",
                "unavailable",
                retry="changed",
            )
        view = partial(ResultContent, entry.content, self._redaction, entry.labels)
        return await in_thread(view) if entry.size_bytes > LONG_CHARS else view()

    # For the workbench

    def reader_name(self) -> str | None:
        """Return the name of the tool that reads results: the second, if a tool of the user has the first."""
        return free_name(self._registry, READERS)

    def reader(self, name: str | None = None) -> Tool | None:
        """Return the tool that reads results, if *name* is its name."""
        own = self.reader_name()
        if own is None or (name is not None and name != own):
            return None
        if own not in self._readers:
            self._readers[own] = read_result(self.view, name=own, limit_chars=self.limit_chars)
        return self._readers[own]

    @property
    def is_listed(self) -> bool:
        """Whether `read_result` is listed: with the first handle, or from the start where the store outlives this
        process, so that all processes that share it list the same.
        """
        return self.issued or self._outlives

    def forget(self) -> None:
        """Clear the store, unless it is the host's."""
        if self._own is not None:
            self._own.clear()
            self.issued = False

    async def _put(self, content: tuple[Content, ...], tool: str, labels: AbstractSet[str]) -> str | None:
        """Store *content*. Returns its handle, None where it cannot be stored."""
        entry = StoredResult(
            *(new_handle(), self._caller.principal, self._caller.thread, tool, content, datetime.now(UTC)),
            frozenset(labels),
        )
        await in_thread_if_long(lambda: entry.size_bytes, content)
        try:
            return entry.handle if await self._store.store(entry) else None
        except Exception as error:
            # The tool has run, and what it did is done: its result is shown as far as it can be.
            log_failure(f"A result of '{tool}' could not be stored", error, self._redaction)
            return None

    async def _value(self, tool: Tool, name: str, reference: Mapping[str, Any], schema: Any, labels: set[str]) -> str:
        """Return the JSON text that a reference stands for. Its labels are added to *labels*."""
        pointer = reference.get("pointer", "")
        try:
            if not isinstance(pointer, str):
                raise ToolError("The pointer is text, a JSON pointer as in /rows.", "invalid_arguments")
            content = await self.view(reference["handle"])
            labels |= content.labels
            if not pointer and _takes_base64(schema) and (base64_text := content.base64()) is not None:
                text = as_json(base64_text)
            elif content.data is not None:
                raise ToolError("The result is an image or a file, and this argument takes none.", "invalid_arguments")
            elif len(content.text) > LONG_CHARS:
                text = await in_thread(partial(content.json_text, pointer))
            else:
                text = content.json_text(pointer)
            if len(text) > LIMIT_BYTES:
                raise ToolError(
                    f"The result has {len(text)} characters of JSON, and arguments have at most {LIMIT_BYTES}. "
                    "Use a part of it, with a JSON pointer.",
                    "too_large",
                )
        except ToolError as error:
            message = f"Tool '{tool.spec.name}', '{name}': {error.message}"
            raise ToolError(message, error.code, retry=error.retry) from None
        return text


def _text_with_handles(arguments: Any) -> str | None:
    """Return arguments as JSON text, if there may be handles in them."""
    if isinstance(arguments, str):
        return arguments if HANDLE_PREFIX in arguments else None
    if isinstance(arguments, bytes | bytearray | memoryview):
        data = bytes(arguments)
        return data.decode(errors="replace") if HANDLE_PREFIX.encode() in data else None
    if not isinstance(arguments, Mapping) or not any(map(_may_refer, arguments.values())):
        return None
    try:
        return to_json(dict(arguments), by_alias=True).decode()
    except (ValueError, RecursionError):
        return None  # the check has the message


def _references(tool: Tool, text: str, *, repair: bool) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the members of arguments that are references, with these: with *repair* also what was sent as text."""
    for member in object_members(text):
        value = member.value
        if isinstance(value, str) and member.name in (tool.handles or ()):
            if is_handle(value):
                raise ToolError(
                    f"Tool '{tool.spec.name}': '{display_name(member.name)}' takes a handle only in the form "
                    f'{{"handle": "{HANDLE_PREFIX}..."}}, not as text.',
                    "invalid_arguments",
                )
            value = _parsed_reference(value) if repair else None
        if _is_reference(value):
            yield member, value


def _may_refer(value: Any) -> bool:
    return HANDLE_PREFIX in value if isinstance(value, str) else _is_reference(value)


def _is_reference(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return (
        isinstance(value, Mapping)
        and isinstance(handle := value.get("handle"), str)
        and handle.startswith(HANDLE_PREFIX)
        and value.keys() <= {"handle", "pointer"}
    )


def _parsed_reference(text: str) -> Any:
    """Return the reference that was sent as text; None where *text* is not one."""
    if HANDLE_PREFIX not in text or not text.lstrip().startswith("{"):
        return None
    try:
        reference = json.loads(text)
    except ValueError:
        return None
    return reference if _is_reference(reference) else None


def _not_accepted(tool: Tool, name: str, reader: str | None) -> ToolError:
    handles_hint = f" These do: {', '.join(map(display_name, tool.handles))}." if tool.handles else ""
    remedy = f"Read what you need with {reader} and send that" if reader else "Send the value itself"
    message = f"Tool '{tool.spec.name}': '{name}' does not take the handle of a result.{handles_hint} {remedy}."
    return ToolError(message, "invalid_arguments")


def _takes_base64(schema: Any) -> bool:
    branches = schema.get("anyOf", [schema]) if isinstance(schema, Mapping) else []
    return any(isinstance(of, Mapping) and of.get("format") in ("base64", "base64url") for of in branches)


# What is shown of a result, and read


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

    @property
    def json_value(self) -> Any:
        """The JSON value of content that looks like JSON; None where it is none after all."""
        try:
            return self.value if self.looks_like_json else None
        except ToolError:
            return None

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
    value = None
    if pointer:
        value = content.at(pointer)
    elif by_items:
        value = content.json_value
    if by_items and isinstance(value, list):
        return _items(value, offset, limit, room, pointer)
    text = as_text(value) if pointer else content.text
    start, end, total = _bounds(offset, min(limit or room, room), len(text))
    return Part(text[start:end], start, end, total, "characters")


def _items(value: list[Any], offset: int, limit: int | None, room: int, pointer: str) -> Part:
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
    match value := content.json_value:
        case list():
            items = value[:SHOWN]
            names = dict.fromkeys(name for item in items if isinstance(item, dict) for name in item)
            return f", a JSON list of {_count(len(value), 'item')}" + (
                f", objects with {_listed(names)}" if names else ""
            )
        case dict():
            kinds = [f"{name} ({kind_of(member)})" for name, member in islice(value.items(), SHOWN + 1)]
            return f", a JSON object with {_count(len(value), 'key')}: {_listed(kinds)}"
        case _:
            return ""


def _listed(names: Iterable[str]) -> str:
    shown_names = [display_name(name) for name in islice(names, SHOWN + 1)]
    return ", ".join(shown_names[:SHOWN]) + (", …" if len(shown_names) > SHOWN else "")


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
    first, last, _ = _bounds(offset, limit, total)
    for at in islice(_places(text, pattern), first, last):
        line = f"offset {at}: {_surroundings(text, at, at + len(pattern))}"
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


def _surroundings(text: str, start: int, end: int) -> str:
    """Return *text* from *start* to *end* in its line, as far as that is near."""
    line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    first = max(line_start, start - _MATCH_CONTEXT_CHARS)
    last = min(len(text) if line_end < 0 else line_end, end + _MATCH_CONTEXT_CHARS)
    before = "…" if first > 0 and text[first - 1] != "\n" else ""
    after = "…" if last < len(text) and text[last] != "\n" else ""
    return f"{before}{text[first:last]}{after}"


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


def _bounds(offset: int, limit: int | None, total: int) -> tuple[int, int, int]:
    start = min(offset, total)
    return start, total if limit is None else min(start + limit, total), total


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
