"""Workbenches for tests, made in a line and stopped when the test ends; and doubles of what they use.

This file does not import pytest.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Unpack

from ..core import Caller
from ..sandbox import Processes
from ..workbench import Options, Registry, Workbench
from ..workbench.options import DOUBLES, Doubles


class Bench(Workbench):
    """A Workbench of a test. Its errors have the text of exceptions, unless `show_errors=False`."""

    def __init__(
        self, sources: Any, made: "MakeBench", *, caller: Caller | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(sources, caller=caller, **options)
        self._made = made
        self._left: list[Callable[[], None]] = []

    def as_caller(self, principal: str = "local", *, profile: str = "default", thread: str = "default") -> "Bench":
        """Make a bench of the same crib for another caller."""
        return self._made.bench(self.crib, Caller(principal, profile, thread))

    def finish(self) -> None:
        """Stop, from where no event loop runs. A loop at rest, as a test leaves it, runs again to close what it has."""
        loop = self._home.loop
        if loop is None or loop.is_running() or loop.is_closed():
            self.__exit__(None, None, None)
        else:
            loop.run_until_complete(self.stop())
        while self._left:
            self._left.pop()()

    def ended(self) -> None:
        """Forget what was started. What was opened on a loop at rest, as that of a module, is kept for `finish`."""
        loop, session = self._home.loop, self._session
        if loop is not None and session is not None and not loop.is_closed():

            def close() -> None:
                if loop.is_running() or loop.is_closed():
                    session.abandon()
                else:
                    loop.run_until_complete(session.close())

            self._left.append(close)
            self._session = None
        super().ended()


class MakeBench:
    """Makes benches, and stops them all at the end. What the fixture `bench` is."""

    def __init__(self) -> None:
        self._benches: list[Bench] = []

    def __call__(
        self,
        *sources: Any,
        caller: Caller | None = None,
        overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
        clock: Callable[[], datetime] | None = None,
        **options: Unpack[Options],
    ) -> Bench:
        """Make a bench of *sources*: `bench(add, "tools.py")`, `bench([add])`, or one Registry.

        It starts itself at the first call. *overrides* and *clock* are those of `doubles`. Raises as Workbench does.
        """
        first = sources[0] if len(sources) == 1 else None
        tools: Iterable[Any] = first if isinstance(first, list | tuple | Registry) else sources
        options.setdefault("show_errors", True)
        with doubles(overrides=overrides, clock=clock):
            return self.bench(tools, caller, **options)

    def bench(self, sources: Any, caller: Caller | None, **options: Unpack[Options]) -> Bench:
        bench = Bench(sources, self, caller=caller, **options)
        self._benches.append(bench)
        return bench

    def finish(self) -> None:
        """Stop every bench that was made, the newest first."""
        while self._benches:
            self._benches.pop().finish()


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
