"""Searches text, in a process of its own that can be killed: Python's `re` cannot be interrupted.

Run as a script by `search.py`, isolated and without site packages: standard library only, and no other module of ours.
"""

import json
import re
import sys
import time
from typing import Any

MOST = 10_000
"""How many matches are counted."""

_MEMORY_BYTES = 1024**3
_CPU_S = 20
_POINTERS_S = 0.5

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)


def find(text: str, pattern: "re.Pattern[str]", skip: int, limit: int) -> tuple[list[tuple[int, int]], int]:
    """The matches after the first *skip*, at most *limit*, as (start, end), and how many there are, at most MOST."""
    found: list[tuple[int, int]] = []
    total = 0
    for match in pattern.finditer(text):
        if match.start() == match.end():
            continue  # the empty text is everywhere
        if skip <= total < skip + limit:
            found.append(match.span())
        total += 1
        if total == MOST:
            break
    return found, total


def pointers(text: str, places: list[int], *, until_s: float) -> list[str | None]:
    """For each of *places*, in order, the JSON pointer to the value around it; None where time has run out."""
    said: list[str | None] = []
    waiting = iter(places)
    place = next(waiting, None)
    path: list[Any] = []  # of what is open: an index, or a key
    for count, token in enumerate(_TOKEN.finditer(text)):
        if count % 10_000 == 0 and time.monotonic() > until_s:
            break
        while place is not None and place < token.end():
            if path and isinstance(path[-1], str) and token.group()[0] == '"' and _is_key(text, token.end()):
                path[-1] = json.loads(token.group())
            said.append("".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path))
            place = next(waiting, None)
        if place is None:
            return said
        match token.group()[0]:
            case "{":
                path.append("")
            case "[":
                path.append(0)
            case "}" | "]":
                path.pop()
            case ",":
                path[-1] = path[-1] + 1 if isinstance(path[-1], int) else ""
            case _:
                if path and isinstance(path[-1], str) and _is_key(text, token.end()):
                    path[-1] = json.loads(token.group())
    return said + [None] * (len(places) - len(said))


def _is_key(text: str, end: int) -> bool:
    return text[end : end + 20].lstrip()[:1] == ":"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        # If the host is gone there is nobody to end this.
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    except (ImportError, OSError, ValueError):
        pass  # not on this system; the time is bounded all the same
    job = json.loads(sys.stdin.buffer.read())
    _say("ready")
    try:
        # Line by line, as in every tool that searches text: ^ and $ are of lines.
        pattern = re.compile(job["pattern"] if job["regex"] else re.escape(job["pattern"]), re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        _say(json.dumps({"error": str(error)}))
        return
    found, total = find(job["text"], pattern, job["skip"], job["limit"])
    places = [start for start, _ in found] if job["json"] else []
    try:
        said = pointers(job["text"], places, until_s=time.monotonic() + _POINTERS_S)
    except (ValueError, IndexError):
        said = []
    _say(json.dumps({"found": found, "total": total, "pointers": said}))


if __name__ == "__main__":
    main()
