"""What a probe does where a change would be: see scripts/mutants.py. Each copy of the checkout has it as a module."""

import os

seen: set[bytes] | None = None
"""What the running test has hit already; None in the processes that tests start."""


def hit(log: str, line: bytes) -> None:
    """Write *line* to the file *log*, once for each test."""
    if seen is None or line not in seen:
        if seen is not None:
            seen.add(line)
        file = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.write(file, line)
        os.close(file)
