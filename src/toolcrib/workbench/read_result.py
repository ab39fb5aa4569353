"""The tool that reads kept results: slices, pages, JSON pointers, searches. What it gives is bounded itself."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ..core import RESULT_CHARS, Text, Tool, ToolError
from ..tools import Tool as FunctionTool
from . import reading
from .reading import Slice, View, at_pointer, kind_of, words
from .results import Results
from .search import Found, search

Unit = Literal["characters", "lines", "bytes", "items"]

_HEAD_CHARS = 600
"""Room for the line above what was read."""

_MATCHES = 50
_BEFORE, _SHOWN, _AFTER = 80, 200, 120


def read_result(results: Results, *, name: str) -> Tool:
    """The tool for *results*, called *name*."""

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

        Without a search, this gives a slice and says at which offset the next one begins. With a search, it gives the
        places where the text was found.

        Args:
            handle: The handle, as in the preview of the result.
            offset: How many characters, lines, bytes, items or matches to skip.
            limit: How many to give at most; as many as fit if left out.
            by: What offset and limit count; if left out, items of a list and characters of anything else.
            pointer: A JSON pointer (RFC 6901) to the part to read, as in /rows/0/name; the whole if empty.
            search: Text to look for, as it is, upper and lower case told apart.
            regex: Whether the search is a regular expression; ^ and $ are of lines, (?i) ignores case.
        """
        view = await results.view(handle)
        room = min(results.limit_chars, RESULT_CHARS) - _HEAD_CHARS
        if search is not None:
            return await _searched(results, view, pointer, search, regex, offset, limit, room)
        return _told(_slice(view, pointer, by, offset, limit, room), pointer)

    return FunctionTool(read, name=name, title="Read a large result", read_only=True, idempotent=True, open_world=False)


def _slice(view: View, pointer: str, by: Unit | None, offset: int, limit: int | None, room: int) -> Slice:
    if view.data is not None:
        if pointer or by not in (None, "bytes"):
            raise _binary()
        return reading.raw(view.data, offset, min(limit or room, room * 3 // 4))
    if pointer or by == "items" or (by is None and view.looks_like_json()):
        try:
            value = at_pointer(view.value(), pointer)
        except ToolError:
            if pointer or by == "items":
                raise
        else:
            if by == "items" and not isinstance(value, list | dict):
                raise ToolError(
                    f"There are no items in {kind_of(value)}. Read it by characters or lines.", "invalid_arguments"
                )
            if by == "items" or (by is None and isinstance(value, list)):
                return reading.items(value, offset, limit or len(value) or 1, room, pointer=pointer)
            if pointer:
                return _of_text(words(value), by, offset, limit, room)
    return _of_text(view.text, by, offset, limit, room)


def _of_text(text: str, by: Unit | None, offset: int, limit: int | None, room: int) -> Slice:
    if by == "lines":
        return reading.lines(text, offset, limit or len(text) or 1, room)
    if by == "bytes":
        return reading.utf8(text, offset, min(limit or room, room))
    return reading.characters(text, offset, min(limit or room, room))


def _told(part: Slice, pointer: str) -> list[Text]:
    of = "" if not pointer else f" at '{pointer[:100]}{'…' if len(pointer) > 100 else ''}'"
    if part.start == part.end:
        return [Text(f"[Nothing is there: the {part.unit}{of} end at {part.total}.]"), Text("")]
    said = f"{part.unit} {part.start} to {part.end - 1} of {part.total}{of}"
    if part.rest is not None:
        said += f"; only the first {len(part.text)} characters of it are shown: {part.rest}"
    said += f"; the next: offset {part.end}" if part.end < part.total else "; the end"
    return [Text(f"[{said}]"), Text(part.text)]


async def _searched(
    results: Results, view: View, pointer: str, pattern: str, regex: bool, offset: int, limit: int | None, room: int
) -> list[Text]:
    if view.data is not None:
        raise _binary()
    value = at_pointer(view.value(), pointer) if pointer else None
    text = words(value) if pointer else view.text
    is_json = not isinstance(value, str) if pointer else view.looks_like_json()
    async with results.turn():
        found = await search(
            text, pattern, regex=regex, is_json=is_json, skip=min(offset, 10**9), limit=min(limit or _MATCHES, 1000)
        )
    shown: list[str] = []
    used = 0
    for line in _matches(text, found, pointer):
        if used + len(line) + 1 > room:
            break
        shown.append(line)
        used += len(line) + 1
    end = offset + len(shown)
    total = f"at least {found.total}" if found.more else str(found.total)
    if not shown:
        return [Text(f"[Found {total} times{f', none from offset {offset} on' if found.total else ''}.]"), Text("")]
    following = f"; the next: offset {end}" if end < found.total else "; the end"
    said = f"[matches {offset} to {end - 1} of {total}{following}; offsets are of characters]"
    return [Text(said), Text("\n".join(shown))]


def _matches(text: str, found: Found, pointer: str) -> list[str]:
    shown: list[str] = []
    line, counted = 0, 0
    for match in found.matches:
        line += text.count("\n", counted, match.start)
        counted = match.start
        start = max(text.rfind("\n", 0, match.start) + 1, match.start - _BEFORE)
        line_end = text.find("\n", match.end)
        stop = min(match.end, match.start + _SHOWN)
        end = min(len(text) if line_end < 0 else line_end, stop + _AFTER) if stop == match.end else stop
        place = f"offset {match.start}" + (f", line {line}" if "\n" in text else "")
        if match.pointer is not None:
            place += f", pointer {pointer}{match.pointer}"[:300]
        before = "…" if start > 0 and text[start - 1] != "\n" else ""
        after = "…" if end < len(text) and text[end] != "\n" else ""
        shown.append(f"{place}: {before}{text[start:end]}{after}")
    return shown


def _binary() -> ToolError:
    return ToolError(
        'The result is an image or a file, and no text. Read its bytes, in base64, with by "bytes".',
        "invalid_arguments",
    )
