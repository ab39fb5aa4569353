"""Search text by a regular expression, in a process that ends itself in time: Python's `re` cannot be interrupted.

Run as a script by `search.py`, isolated and without site packages: standard library only, and no other module of ours.
"""

import faulthandler
import json
import re
import sys
from contextlib import suppress

TIMED_OUT = 1
"""The exit status of a process that was ended by `faulthandler`."""

_MEMORY_BYTES = 1024**3


def main() -> None:
    with suppress(ImportError, OSError, ValueError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    job = json.loads(sys.stdin.buffer.read())
    # A thread that needs no interpreter: it also ends a process that is inside of `re`.
    faulthandler.dump_traceback_later(job["timeout_s"], exit=True)
    try:
        # Line by line, as in every tool that searches text: ^ and $ are of lines.
        pattern = re.compile(job["pattern"], re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        print(json.dumps({"error": str(error)}))  # noqa: T201
        return
    spans: list[tuple[int, int]] = []
    total = 0
    for match in pattern.finditer(job["text"]):
        if match.start() == match.end():
            continue  # the empty text is everywhere
        if job["skip"] <= total < job["skip"] + job["limit"]:
            spans.append(match.span())
        total += 1
        if total == job["max_matches"]:
            break
    print(json.dumps({"spans": spans, "total": total}))  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        sys.exit(2)
