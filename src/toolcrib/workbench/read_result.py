"""The tool that reads stored results: slices, pages, JSON pointers, searches. What it returns is bounded itself."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from ..core import RESULT_CHARS, Semaphore, Text, Tool, ToolError, in_thread
from ..tools import Tool as FunctionTool
from . import slices
from .slices import ResultContent, Slice
from .text_search import Matches, search

Unit = Literal["characters", "lines", "bytes", "items"]
UNITS: tuple[Unit, ...] = get_args(Unit)

_HEADER_CHARS = 600
"""Room for the line above what was read."""

_CONCURRENT_SEARCHES = 2
_MATCHES = 50
_CHARS_BEFORE, _MATCH_CHARS, _CHARS_AFTER = 80, 200, 120


def read_result(find: Callable[[str], Awaitable[ResultContent]], *, name: str, limit_chars: int) -> Tool:
    """The tool called *name* that reads the results that *find* returns for their handles."""
    searches = Semaphore(_CONCURRENT_SEARCHES)
    room = min(limit_chars, RESULT_CHARS) - _HEADER_CHARS

    async def read(
        handle: str,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1)] | None = None,
        by: Unit | None = None,
        pointer: str = "",
        search: str | None = None,
        regex: bool = False,
    ) -> Any:
        """Read a result that was too large to be shown whole, a part at a time.

        Without a search, this returns a slice and the offset of the next one. With a search, it returns the places
        where the text was found.

        Args:
            handle: The handle, as in the preview of the result.
            offset: How many characters, lines, bytes, items or matches to skip.
            limit: How many to return at most; as many as fit if left out.
            by: What offset and limit count; if left out, items of a list and characters of anything else.
            pointer: A JSON pointer (RFC 6901) to the part to read, as in /rows/0/name; the whole if empty.
            search: Text to look for, as it is, case-sensitive.
            regex: Whether the search is a regular expression; ^ and $ match at lines, (?i) ignores case.
        """
        content = await find(handle)
        if search is not None:
            turn = await searches.acquire()
            try:
                return await _search(content, pointer, search, regex, offset, limit, room)
            finally:
                searches.release(turn)
        work = partial(cut, content, pointer, by, offset, limit, room)
        part = await in_thread(work) if len(content.text) > slices.LONG_CHARS else work()
        return [Text(f"[{_header(part, pointer)}]"), Text(part.text)]

    return FunctionTool(read, name=name, title="Read a large result", read_only=True, idempotent=True, open_world=False)


def cut(content: ResultContent, pointer: str, by: Unit | None, offset: int, limit: int | None, room: int) -> Slice:
    """The part of *content* at *pointer*, from *offset* on, at most *limit* and what has *room*. Raises ToolError."""
    if content.data is not None:
        if pointer or by not in (None, "bytes"):
            raise _binary()
        return slices.base64_bytes(content.data, offset, min(limit or room, room * 3 // 4))
    text = content.text
    if pointer or by == "items" or (by is None and content.looks_like_json):
        try:
            value = content.at(pointer)
        except ToolError:
            if pointer or by == "items":
                raise
        else:
            if by == "items" and not isinstance(value, list | dict):
                raise ToolError(
                    f"There are no items in {slices.kind_of(value)}. Read it by characters or lines.",
                    "invalid_arguments",
                )
            if by == "items" or (by is None and isinstance(value, list)):
                return slices.items(value, offset, limit or len(value), room, pointer=pointer)
            text = slices.as_text(value) if pointer else text
    if by == "lines":
        return content.lines(text, offset, limit or len(text), room)
    if by == "bytes":
        return content.utf8_bytes(text, offset, min(limit or room, room))
    return slices.characters(text, offset, min(limit or room, room))


def _header(part: Slice, pointer: str) -> str:
    at = "" if not pointer else f" at '{pointer[:100]}{'…' if len(pointer) > 100 else ''}'"
    if part.start == part.end:
        return f"Nothing is there: the {part.unit}{at} end at {part.total}."
    header = f"{part.unit} {part.start} to {part.end - 1} of {part.total}{at}"
    if part.rest is not None:
        header += f"; only the first {len(part.text)} characters of it are shown: {part.rest}"
    return header + (f"; the next: offset {part.end}" if part.end < part.total else "; the end")


async def _search(
    content: ResultContent, pointer: str, pattern: str, regex: bool, offset: int, limit: int | None, room: int
) -> list[Text]:
    if content.data is not None:
        raise _binary()
    value = await in_thread(lambda: content.at(pointer)) if pointer else None
    text = slices.as_text(value) if pointer else content.text
    is_json = not isinstance(value, str) if pointer else content.looks_like_json
    matches = await search(
        text, pattern, regex=regex, is_json=is_json, skip=min(offset, 10**9), limit=min(limit or _MATCHES, 1000)
    )
    shown: list[str] = []
    for line in _match_lines(text, matches, pointer):
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    total = f"at least {matches.total}" if matches.more else str(matches.total)
    if not shown:
        beyond = f", none from offset {offset} on" if matches.total else ""
        return [Text(f"[Found {total} times{beyond}.]"), Text("")]
    end = offset + len(shown)
    following = f"the next: offset {end}" if end < matches.total else "the end"
    header = f"[matches {offset} to {end - 1} of {total}; {following}; offsets are of characters]"
    return [Text(header), Text("\n".join(shown))]


def _match_lines(text: str, matches: Matches, pointer: str) -> list[str]:
    """A line for each match: where it is, and the text around it."""
    shown: list[str] = []
    line, counted = 0, 0
    for (at, match_end), relative in zip(matches.spans, matches.pointers, strict=True):
        line += text.count("\n", counted, at)
        counted = at
        start = max(text.rfind("\n", 0, at) + 1, at - _CHARS_BEFORE)
        end = min(match_end, at + _MATCH_CHARS)
        if end == match_end:
            line_end = text.find("\n", match_end)
            end = min(len(text) if line_end < 0 else line_end, end + _CHARS_AFTER)
        place = f"offset {at}" + (f", line {line}" if "\n" in text else "")
        if relative is not None:
            place += f", pointer {pointer}{relative}"[:300]
        before = "…" if start > 0 and text[start - 1] != "\n" else ""
        after = "…" if end < len(text) and text[end] != "\n" else ""
        shown.append(f"{place}: {before}{text[start:end]}{after}")
    return shown


def _binary() -> ToolError:
    return ToolError(
        'The result is an image or a file, and not text. Read its bytes, in base64, with by "bytes".',
        "invalid_arguments",
    )
