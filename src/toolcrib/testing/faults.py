"""Faults on purpose: tools that are late, fail, or give too much or nonsense, so that a test sees what becomes of it.

A fault is in the work of a tool, in the place where a real one would be. So all around it is real: the check before
it, deadlines, retries, limits and what is done with results.
"""

import asyncio
import copy
import json
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..core import SetupError, ToolError, UnknownToolError, matching
from ..tools import Tool
from ..workbench import View
from ..workbench.registry import unknown

Kind = Literal["late", "failing", "oversized", "garbled"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, and at which calls of a tool: at all, unless `on`, `every` or `sometimes` says which.

    `late`, `failing`, `oversized` and `garbled` make one.
    """

    kind: Kind
    seconds: float = 0.0
    error: Exception | None = field(default=None, compare=False)
    chars: int = 0
    numbers: tuple[int, ...] = ()
    each: int = 1
    share: float = 1.0

    def on(self, *numbers: int) -> "Fault":
        """At these calls only, counted from 1: `failing().on(1, 3)`."""
        if not numbers or not all(type(number) is int and number >= 1 for number in numbers):
            raise SetupError("on takes the numbers of calls, counted from 1: failing().on(1, 3).")
        return replace(self, numbers=numbers)

    def every(self, nth: int) -> "Fault":
        """At every *nth* call."""
        if type(nth) is not int or nth < 1:
            raise SetupError("every takes a whole number from 1: late(2.0).every(3).")
        return replace(self, each=nth)

    def sometimes(self, share: float) -> "Fault":
        """At a *share* of the calls, from 0 to 1: which, the seed of `Faults` says."""
        if not 0 <= share <= 1:
            raise SetupError("sometimes takes a share of the calls, from 0 to 1: garbled().sometimes(0.2).")
        return replace(self, share=share)

    def comes(self, number: int, chance: float) -> bool:
        """Whether it comes at call *number*; *chance* is from 0 to 1."""
        if self.numbers:
            return number in self.numbers
        return number % self.each == 0 and chance < self.share


def late(seconds: float) -> Fault:
    """The work begins only after *seconds*."""
    if not seconds >= 0:
        raise SetupError("late takes a number of seconds: late(2.0).")
    return Fault("late", seconds=float(seconds))


def failing(error: Exception | str = "The service does not answer.") -> Fault:
    """The work is not done: *error* is raised; text is a ToolError `unavailable`."""
    return Fault("failing", error=ToolError(error, "unavailable") if isinstance(error, str) else error)


def oversized(chars: int = 1_000_000) -> Fault:
    """The result is made larger, to at least *chars* characters: texts and lists in it are repeated.

    A result with neither becomes text; where none was promised, that is refused as any such result.
    """
    if type(chars) is not int or chars < 1:
        raise SetupError("oversized takes a number of characters: oversized(100_000).")
    return Fault("oversized", chars=chars)


def garbled() -> Fault:
    """The result breaks off somewhere, with characters behind it that belong in no text."""
    return Fault("garbled")


@dataclass(frozen=True, slots=True)
class Met:
    """A fault that came: at which call of which tool, counted from 1."""

    tool: str
    number: int
    kind: Kind


class Faults:
    """Puts faults into tools. A value of *plan* is a Fault or a list of them, a key the name of a tool or a pattern.

        faults = Faults({"search*": late(2.0), "send": failing().on(1)})
        bench = Workbench([faults(search, send, "more.py")])

    Of several that would come at a call, the first does. *seed* decides which calls `sometimes` means, and how results
    are garbled: by the tool and the number of the call, so that it is the same however calls run side by side. `met`
    is what came, in order. Attempts that are made again count as calls.

    Raises SetupError for a plan that is none.
    """

    def __init__(self, plan: Mapping[str, Fault | Sequence[Fault]], *, seed: int | str = 0) -> None:
        self._plan: list[tuple[str, Any, tuple[Fault, ...]]] = []
        for pattern, given in plan.items():
            faults = (given,) if isinstance(given, Fault) else tuple(given)
            if not faults or not all(isinstance(fault, Fault) for fault in faults):
                raise SetupError(f"{pattern!r} has no fault. Name one, or a list: {{'search*': late(2.0)}}.")
            self._plan.append((pattern, matching(pattern, of="a plan of faults"), faults))
        self._seed = seed
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.met: list[Met] = []

    def __call__(self, *sources: Any) -> View:
        """The tools of *sources*, with the faults in them: a source itself.

        Loading it raises UnknownToolError for a name in the plan that no tool has, and SetupError for a tool whose work
        runs in a process.
        """
        return View("faults", sources, self._change)

    def _change(self, tools: list[Tool[..., Any]]) -> list[Tool[..., Any]]:
        names = [tool.spec.name for tool in tools]
        for pattern, _, _ in self._plan:
            if not set(pattern) & set("*?[") and pattern not in names:
                raise UnknownToolError(unknown(pattern, names))
        return [self._with_faults(tool) for tool in tools]

    def _with_faults(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        name = tool.spec.name
        faults = [fault for _, names, some in self._plan if names.fullmatch(name) for fault in some]
        if not faults:
            return tool
        if tool.runs == "process":
            raise SetupError(
                f"Tool '{name}' runs in a process of its own, where no fault can be put into it. Leave it out of the "
                'plan, or test it without isolation="process".'
            )
        begin = _Begin(self, name, faults)
        wrap = _WRAPS[tool.runs]
        work_of = tool._work_of  # pyright: ignore[reportPrivateUsage] - the tools of an object get their work by it
        made = copy.copy(tool)
        made.work = wrap(tool.work, begin)
        made._work_of = lambda fn: wrap(work_of(fn), begin)  # pyright: ignore[reportPrivateUsage]
        return made

    def begin(self, name: str, faults: Sequence[Fault]) -> "_Now":
        """A call of the tool *name* begins: what comes at it."""
        with self._lock:
            self._numbers[name] += 1
            number = self._numbers[name]
            chance = random.Random(f"{self._seed}/{name}/{number}")  # noqa: S311 - nothing is guarded by it
            drawn = chance.random()
            fault = next((fault for fault in faults if fault.comes(number, drawn)), None)
            if fault is not None:
                self.met.append(Met(name, number, fault.kind))
        return _Now(fault, chance)


@dataclass(frozen=True, slots=True)
class _Begin:
    faults: Faults
    name: str
    plan: Sequence[Fault]

    def __call__(self) -> "_Now":
        return self.faults.begin(self.name, self.plan)


@dataclass(frozen=True, slots=True)
class _Now:
    """What comes at one call."""

    fault: Fault | None
    chance: random.Random

    @property
    def wait_s(self) -> float:
        return 0.0 if self.fault is None else self.fault.seconds

    def fail(self) -> None:
        if self.fault is not None and self.fault.error is not None:
            # Without the frames of the calls before, which an exception that is raised again collects.
            raise self.fault.error.with_traceback(None)

    def changed(self, value: Any) -> Any:
        match self.fault:
            case Fault(kind="oversized", chars=chars):
                return _grown(value, chars)
            case Fault(kind="garbled"):
                return _garbled(value, self.chance)
            case _:
                return value


Work = Callable[..., Any]


def _async(work: Work, begin: _Begin) -> Work:
    async def faulty(**given: Any) -> Any:
        now = begin()
        await asyncio.sleep(now.wait_s)
        now.fail()
        return now.changed(await work(**given))

    return faulty


def _sync(work: Work, begin: _Begin) -> Work:
    def faulty(**given: Any) -> Any:
        now = begin()
        time.sleep(now.wait_s)
        now.fail()
        value = work(**given)
        # A plain function may hand out an awaitable.
        return _awaited(value, now) if hasattr(type(value), "__await__") else now.changed(value)

    return faulty


async def _awaited(value: Any, now: _Now) -> Any:
    return now.changed(await value)


def _async_generator(work: Work, begin: _Begin) -> Work:
    async def faulty(**given: Any) -> AsyncGenerator[Any, None]:
        now = begin()
        await asyncio.sleep(now.wait_s)
        now.fail()
        last: list[Any] = []
        async with aclosing(work(**given)) as items:
            async for item in items:
                for before in last:
                    yield before
                last = [item]
        for item in last:
            yield now.changed(item)  # the last is the result

    return faulty


def _generator(work: Work, begin: _Begin) -> Work:
    def faulty(**given: Any) -> Generator[Any]:
        now = begin()
        time.sleep(now.wait_s)
        now.fail()
        last: list[Any] = []
        with closing(work(**given)) as items:
            for item in items:
                yield from last
                last = [item]
        for item in last:
            yield now.changed(item)

    return faulty


_WRAPS: Mapping[str, Callable[[Work, _Begin], Work]] = {
    "async": _async,
    "sync": _sync,
    "async_generator": _async_generator,
    "generator": _generator,
}


def _grown(value: Any, chars: int) -> Any:
    larger = _larger(value, chars)
    return ("too much\n" * (chars // 9 + 1)) if larger is None else larger


def _larger(value: Any, chars: int) -> Any:
    """*value*, of its own kind, with at least *chars* characters; None where it cannot be made larger."""
    match value:
        case str() if value:
            return value * (chars // len(value) + 1)
        case list() if value:
            return value * (chars // max(1, len(_text(value)) - 1) + 1)
        case dict():
            for name, inner in value.items():
                if (larger := _larger(inner, chars)) is not None:
                    return {**value, name: larger}
            return None
        case _:
            return None


def _garbled(value: Any, chance: random.Random) -> str:
    text = value if isinstance(value, str) else _text(value)
    # Broken off, a byte that was no text, a NUL, and what would clear a terminal.
    return f"{text[: chance.randrange(len(text) + 1)]}\N{REPLACEMENT CHARACTER}\x00\x1b[2J"


def _text(value: Any) -> str:
    from ..schema import shown

    return json.dumps(json.loads(shown({"value": value}))["value"], ensure_ascii=False)
