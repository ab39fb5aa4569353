"""Doubles for tests: other providers, another clock, other worker processes, in cribs that are made meanwhile."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from ..sandbox import Processes
from ..workbench.options import DOUBLES, Doubles


@contextmanager
def doubles(
    *,
    overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
    clock: Callable[[], datetime] | None = None,
    processes: Processes | None = None,
) -> Generator[None]:
    """Have each Workbench and Crib that is made in the `with` block use these doubles, for as long as it lives.

    *overrides* are providers of `Depends` in place of others; *clock* is the time by which pending calls expire, as an
    aware datetime; *processes* run tools with `isolation="process"`, and are closed by the test.
    """
    outer = DOUBLES.get() or Doubles()
    inner = Doubles(overrides or outer.overrides, clock or outer.clock, processes or outer.processes)
    token = DOUBLES.set(inner)
    try:
        yield
    finally:
        DOUBLES.reset(token)
