"""Workbenches for tests: made in a line, and stopped when the test ends.

This file does not import pytest.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack

from ..call import Retries
from ..core import Around, Asker, Caller, MayAnswer, PendingStore, Policy, Recorder, ResultStore
from ..workbench import Limit, Limiter, Registry, Workbench
from ..workbench.processes import Processes


class Settings(TypedDict, total=False):
    """What a Workbench can be told beside its tools and its caller. See `Workbench`."""

    repair: bool
    timeout_s: float | None
    policy: Policy | None
    secrets: Iterable[str]
    recorder: Recorder | None
    overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None
    variables: Mapping[str, Any] | None
    show_errors: bool
    limits: Limiter | Iterable[Limit]
    retries: Iterable[Retries]
    around: Iterable[Around]
    max_result_chars: int | None
    results: ResultStore | None
    ask: Asker | None
    may_answer: MayAnswer | None
    pendings: PendingStore | None
    pending_s: float
    processes: Processes | None
    clock: Callable[[], float]


class Bench(Workbench):
    """A Workbench of a test. It says what exceptions say, unless told not to: `show_errors=False`."""

    def __init__(
        self, sources: Iterable[Any] | Registry, made: "MakeBench", caller: Caller | None, settings: Settings
    ) -> None:
        super().__init__(sources, caller=caller, **settings)
        self._made = made
        self._settings = settings

    def as_caller(self, principal: str = "local", *, profile: str = "default", thread: str = "default") -> "Bench":
        """A bench with the same tools and settings for another caller, with what `Depends` gives opened anew."""
        other = self._made.bench(self.registry, Caller(principal, profile, thread), self._settings)
        other.problems = self.problems
        return other

    def finish(self) -> None:
        """Stop, from where no event loop runs. A loop at rest, as a test leaves it, runs again to close what it has."""
        for loop in reversed([*self._sessions]):
            if not loop.is_running() and not loop.is_closed():
                loop.run_until_complete(self._sessions.pop(loop).close())
        self.__exit__(None, None, None)


class MakeBench:
    """Makes benches, and stops them all at the end. What the fixture `bench` is."""

    def __init__(self) -> None:
        self._benches: list[Bench] = []

    def __call__(self, *sources: Any, caller: Caller | None = None, **settings: Unpack[Settings]) -> Bench:
        """A bench of *sources*: `bench(add, "tools.py")`, `bench([add])`, or one Registry.

        It starts itself at the first call. Raises as Workbench does.
        """
        first = sources[0] if len(sources) == 1 else None
        tools = first if isinstance(first, list | tuple | Registry) else sources
        return self.bench(tools, caller, {"show_errors": True, **settings})

    def bench(self, sources: Iterable[Any] | Registry, caller: Caller | None, settings: Settings) -> Bench:
        made = Bench(sources, self, caller, settings)
        self._benches.append(made)
        return made

    def finish(self) -> None:
        """Stop every bench that was made, the newest first."""
        while self._benches:
            self._benches.pop().finish()
