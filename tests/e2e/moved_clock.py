"""Runs a program whose clock is wrong: `moved_clock.py SECONDS PROGRAM ARGUMENTS...`, as many seconds ahead."""

import datetime
import runpy
import sys
import time
from typing import Any


def move_clock(seconds: float) -> None:
    """Set the clock of this process, as all code of Python reads it that is loaded from now on."""
    real_time, real = time.time, datetime.datetime
    is_datetime = type("IsDatetime", (type,), {"__instancecheck__": lambda _, value: isinstance(value, real)})

    class Moved(real, metaclass=is_datetime):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:
            return real.fromtimestamp(time.time(), tz)

    time.time = lambda: real_time() + seconds
    datetime.datetime = Moved  # type: ignore[misc]


if __name__ == "__main__":
    _, ahead_s, *sys.argv = sys.argv
    if float(ahead_s):
        move_clock(float(ahead_s))
    runpy.run_path(sys.argv[0], run_name="__main__")
