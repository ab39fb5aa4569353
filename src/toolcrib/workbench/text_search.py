"""Search a result: plain text in pieces on the event loop, a regular expression in a process that can be killed."""

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from ..core import ToolError
from .regex_search import TIMED_OUT
from .slices import escaped

MAX_PATTERN_CHARS = 1000
_MAX_MATCHES = 10_000
"""How many matches are counted."""

_PIECE_CHARS = 1024 * 1024
"""How much is searched before other tasks get their turn."""

_REGEX_S = 1.5
"""How long a regular expression may take, once its process has read the text."""

_PROCESS_S = 12.0
"""How long its process may take in all."""

_POINTERS_S = 0.5
_TOKENS_AT_ONCE = 2000
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Matches:
    """Some of the matches, as (start, end) in characters, and how many there are; `more` where counting was given up.

    `pointers` are to the JSON values around them; None where the text is not JSON.
    """

    spans: Sequence[tuple[int, int]]
    pointers: Sequence[str | None]
    total: int
    more: bool


async def search(text: str, pattern: str, *, regex: bool, is_json: bool, skip: int, limit: int) -> Matches:
    """Return the matches of *pattern* in *text* after the first *skip*, at most *limit*.

    *pattern* is found as it is, or with *regex* as one of Python's regular expressions. Raises ToolError for a pattern
    that is not valid, and for one that takes too long.
    """
    if not pattern:
        raise ToolError("There is nothing to search for: the text to search is empty.", "invalid_arguments")
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(
            f"The text to search for is longer than {MAX_PATTERN_CHARS} characters. Search for a part of it.",
            "invalid_arguments",
        )
    find = _find_regex if regex else _find_text
    spans, total = await find(text, pattern, skip, limit)
    pointers: Sequence[str | None] = [None] * len(spans)
    if is_json:
        with suppress(ValueError, IndexError):  # not valid JSON after all
            pointers = await _pointers(text, [start for start, _ in spans])
    return Matches(spans, pointers, total, total == _MAX_MATCHES)


async def _find_text(text: str, pattern: str, skip: int, limit: int) -> tuple[list[tuple[int, int]], int]:
    spans: list[tuple[int, int]] = []
    at = total = 0
    next_turn = _PIECE_CHARS
    while at < len(text) and total < _MAX_MATCHES:
        found = text.find(pattern, at, at + _PIECE_CHARS + len(pattern) - 1)
        if found >= 0 and skip <= total < skip + limit:
            spans.append((found, found + len(pattern)))
        total += found >= 0
        at = at + _PIECE_CHARS if found < 0 else found + len(pattern)
        if at >= next_turn:
            next_turn = at + _PIECE_CHARS
            await asyncio.sleep(0)
    return spans, total


async def _pointers(text: str, places: Sequence[int]) -> list[str | None]:
    """For each of *places*, in order, the JSON pointer to the value around it; None where time has run out."""
    pointers: list[str | None] = []
    waiting = iter(places)
    place = next(waiting, None)
    until = monotonic() + _POINTERS_S
    path: list[Any] = []  # of what is open: an index, or a key
    for count, token in enumerate(_TOKEN.finditer(text), 1):
        if place is None or (count % _TOKENS_AT_ONCE == 0 and monotonic() > until):
            break
        if count % _TOKENS_AT_ONCE == 0:
            await asyncio.sleep(0)
        kind = token.group()[0]
        is_key = (
            kind == '"'
            and path
            and isinstance(path[-1], str)
            and text[token.end() : token.end() + 20].lstrip()[:1] == ":"
        )
        if is_key:
            path[-1] = json.loads(token.group())
        while place is not None and place < token.end():
            pointers.append("".join("/" + escaped(str(part)) for part in path))
            place = next(waiting, None)
        match kind:
            case "{":
                path.append("")
            case "[":
                path.append(0)
            case "}" | "]":
                path.pop()
            case ",":
                path[-1] = path[-1] + 1 if isinstance(path[-1], int) else ""
            case _:
                pass
    return pointers + [None] * (len(places) - len(pointers))


async def _find_regex(text: str, pattern: str, skip: int, limit: int) -> tuple[list[tuple[int, int]], int]:
    job = {"text": text, "pattern": pattern, "skip": skip, "limit": limit, "max_matches": _MAX_MATCHES}
    status, answer = await _run_process(json.dumps({**job, "timeout_s": _REGEX_S}).encode())
    if status == TIMED_OUT:
        raise ToolError(
            f"The search was stopped after {_REGEX_S} s. A pattern with repeats inside repeats, like (a+)+, can take "
            "forever: send a simpler one, or narrow the search with a JSON pointer.",
            "timeout",
            retry="changed",
        )
    if status != 0:
        raise ToolError(
            "The search ended without an answer; it may have needed too much memory. Narrow it with a JSON pointer.",
            "too_large",
        )
    found = json.loads(answer)
    if "error" in found:
        raise ToolError(
            f"The regular expression is not valid: {found['error']}. Send one that Python's re takes, or search for "
            "plain text, without regex.",
            "invalid_arguments",
        )
    return [(start, end) for start, end in found["spans"]], found["total"]


async def _run_process(job: bytes) -> tuple[int, bytes]:
    """The exit status of a search, and what it printed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(Path(__file__).with_name("regex_search.py"))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except (OSError, NotImplementedError):
        raise ToolError(
            "Regular expressions cannot be used here: each needs a process, and none can be started. Search for plain "
            "text, or read the result by offset and limit.",
            "unavailable",
            retry="never",
        ) from None
    try:
        async with asyncio.timeout(_PROCESS_S):
            answer, _ = await process.communicate(job)
        return await process.wait(), answer
    except TimeoutError:
        return TIMED_OUT, b""
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
