"""Searching text within bounds of time: in a process that is killed when it takes too long."""

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..core import ToolError
from .seek import MOST

LONGEST_PATTERN = 1000
_START_S = 10.0
_SEARCH_S = 1.5
"""How long a search may take, once its process has read the text."""


@dataclass(frozen=True, slots=True)
class Match:
    """Where something was found, in characters; `pointer` is to the JSON value around it."""

    start: int
    end: int
    pointer: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """Some of the matches, and how many there are; `more` where counting them was given up."""

    matches: tuple[Match, ...]
    total: int
    more: bool


async def search(text: str, pattern: str, *, regex: bool, is_json: bool, skip: int, limit: int) -> Found:
    """The places of *pattern* in *text*: as it is, or with *regex* as a regular expression of Python's.

    Raises ToolError for a pattern that is none, and for one that takes too long.
    """
    if not pattern:
        raise ToolError("There is nothing to search for: the text to search is empty.", "invalid_arguments")
    if len(pattern) > LONGEST_PATTERN:
        raise ToolError(
            f"The text to search for is longer than {LONGEST_PATTERN} characters. Search for a part of it.",
            "invalid_arguments",
        )
    job = {"text": text, "pattern": pattern, "regex": regex, "json": is_json, "skip": skip, "limit": limit}
    answer = json.loads(await _killable(json.dumps(job).encode()))
    if "error" in answer:
        raise ToolError(
            f"The regular expression cannot be read: {answer['error']}. Send one that Python's re takes, "
            "or search for plain text, without regex.",
            "invalid_arguments",
        )
    pointers = answer["pointers"] or [None] * len(answer["found"])
    matches = tuple(Match(start, end, at) for (start, end), at in zip(answer["found"], pointers, strict=True))
    return Found(matches, answer["total"], answer["total"] == MOST)


async def _killable(job: bytes) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(Path(__file__).with_name("seek.py"))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=2**24,
        )
    except (OSError, NotImplementedError):
        raise ToolError(
            "Nothing can be searched here: a search needs a process of its own, and none can be started. "
            "Read the result by offset and limit instead.",
            "unavailable",
            retry="never",
        ) from None
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_S):
            with suppress(ConnectionError):
                process.stdin.write(job)
                await process.stdin.drain()
            process.stdin.close()
            await process.stdout.readline()
        async with asyncio.timeout(_SEARCH_S):
            answer = await process.stdout.read()
            await process.wait()
    except TimeoutError:
        raise ToolError(
            f"The search was stopped after {_SEARCH_S} s. A pattern with repeats inside repeats, like (a+)+, can take "
            "forever: send a simpler one, or narrow the search with a JSON pointer.",
            "timeout",
            retry="changed",
        ) from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    if process.returncode != 0:
        raise ToolError(
            "The search ended without an answer; it may have needed too much memory. Narrow it with a JSON pointer.",
            "too_large",
        )
    return answer
