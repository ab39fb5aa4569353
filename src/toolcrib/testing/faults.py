"""Fault injection: tools that are late, fail, or return too much or garbled data.

A fault is in the work of a tool, where a real one would be. Everything around it is real: the check before it,
deadlines, retries, limits and the handling of results.
"""

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..core import Context, SetupError, ToolError, UnknownToolError
from ..machinery import Work, compile_globs
from ..tools import Tool
from ..workbench import View
from ..workbench.registry import unknown

Kind = Literal["late", "failing", "oversized", "garbled"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, and at which calls of a tool: all of them, unless `on`, `every` or `sometimes` selects some.

    Made by `late`, `failing`, `oversized` and `garbled`.
    """

    kind: Kind
    seconds: float = 0.0
    error: Exception | None = field(default=None, compare=False)
    chars: int = 0
    numbers: tuple[int, ...] = ()
    nth: int = 1
    share: float = 1.0

    def on(self, *numbers: int) -> "Fault":
        """Select these calls only, counted from 1: `failing().on(1, 3)`."""
        if not numbers or not all(type(number) is int and number >= 1 for number in numbers):
            raise SetupError("on takes the numbers of calls, counted from 1: failing().on(1, 3).")
        return replace(self, numbers=numbers)

    def every(self, nth: int) -> "Fault":
        """Select every *nth* call."""
        if type(nth) is not int or nth < 1:
            raise SetupError("every takes a whole number from 1: late(2.0).every(3).")
        return replace(self, nth=nth)

    def sometimes(self, share: float) -> "Fault":
        """Select a *share* of the calls, from 0 to 1. The seed of `Faults` selects them."""
        if not 0 <= share <= 1:
            raise SetupError("sometimes takes a share of the calls, from 0 to 1: garbled().sometimes(0.2).")
        return replace(self, share=share)

    def applies(self, number: int, chance: float) -> bool:
        """Return whether it is injected at call *number*; *chance* is from 0 to 1."""
        if self.numbers:
            return number in self.numbers
        return number % self.nth == 0 and chance < self.share


def late(seconds: float) -> Fault:
    """Let the work begin only after *seconds*."""
    if not seconds >= 0:
        raise SetupError("late takes a number of seconds: late(2.0).")
    return Fault("late", seconds=float(seconds))


def failing(error: Exception | str = "The service does not answer.") -> Fault:
    """Let the work raise *error* and do nothing else; text is a ToolError `unavailable`."""
    return Fault("failing", error=ToolError(error, "unavailable") if isinstance(error, str) else error)


def oversized(chars: int = 1_000_000) -> Fault:
    """Let the result have at least *chars* characters: texts and lists in it are repeated.

    A result with neither becomes text, which is an `invalid_result` if the tool does not return text.
    """
    if type(chars) is not int or chars < 1:
        raise SetupError("oversized takes a number of characters: oversized(100_000).")
    return Fault("oversized", chars=chars)


def garbled() -> Fault:
    """Cut the result somewhere, and end it in control characters."""
    return Fault("garbled")


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that was injected, and at which call of which tool, counted from 1."""

    tool: str
    number: int
    kind: Kind


class Faults:
    """Injects faults into tools. A value of *plan* is a Fault or a list of them, a key the name of a tool or a pattern.

        faults = Faults({"search*": late(2.0), "send": failing().on(1)})
        bench = Workbench([faults(search, send, "more.py")])

    The first fault that applies to a call is injected. *seed* determines which calls `sometimes` selects, and how
    results are garbled: by tool and number of the call, so concurrency does not change it. `injected` lists the faults
    in order. Each retry counts as a call.

    Raises SetupError for an invalid plan.
    """

    def __init__(self, plan: Mapping[str, Fault | Sequence[Fault]], *, seed: int | str = 0) -> None:
        self._plan: list[tuple[str, Any, tuple[Fault, ...]]] = []
        for pattern, value in plan.items():
            faults = (value,) if isinstance(value, Fault) else tuple(value)
            if not faults or not all(isinstance(fault, Fault) for fault in faults):
                raise SetupError(f"{pattern!r} has no fault. Name one, or a list: {{'search*': late(2.0)}}.")
            self._plan.append((pattern, compile_globs(pattern, of="a plan of faults"), faults))
        self._seed = seed
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.injected: list[InjectedFault] = []

    def __call__(self, *sources: Any) -> View:
        """Return the tools of *sources* with the faults, as a source.

        Loading it raises UnknownToolError for a name in the plan that is not a tool.
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
        faults = [fault for _, names, of_names in self._plan if names.fullmatch(name) for fault in of_names]
        if not faults:
            return tool
        return tool.wrapped(lambda work: _faulty(work, self, name, faults))

    def begin(self, name: str, faults: Sequence[Fault]) -> tuple[Fault | None, random.Random]:
        """Count a call of the tool *name*. Returns the fault that is injected into it, and chance for it."""
        with self._lock:
            self._numbers[name] += 1
            number = self._numbers[name]
            chance = random.Random(f"{self._seed}/{name}/{number}")  # noqa: S311 - not for security
            drawn = chance.random()
            fault = next((fault for fault in faults if fault.applies(number, drawn)), None)
            if fault is not None:
                self.injected.append(InjectedFault(name, number, fault.kind))
        return fault, chance


def _faulty(work: Work, faults: Faults, name: str, plan: Sequence[Fault]) -> Work:
    async def faulty(arguments: dict[str, Any], context: Context) -> Any:
        fault, chance = faults.begin(name, plan)
        if fault is not None and fault.kind == "late":
            await asyncio.sleep(fault.seconds)
        if fault is not None and fault.error is not None:
            # An exception that is raised again collects the frames of earlier calls.
            raise fault.error.with_traceback(None)
        value = await work(arguments, context)
        match fault:
            case Fault(kind="oversized", chars=chars):
                return _grown(value, chars)
            case Fault(kind="garbled"):
                return _garbled(value, chance)
            case _:
                return value

    return faulty


def _grown(value: Any, chars: int) -> Any:
    """Return *value* with at least *chars* characters, of the same type where it has a text or a list to repeat."""
    larger = _larger(value, chars)
    return "too much\n" * (chars // 9 + 1) if larger is None else larger


def _larger(value: Any, chars: int) -> Any:
    if isinstance(value, str | list) and value:
        length = len(value) if isinstance(value, str) else len(_text(value)) - 1
        return value * (chars // max(1, length) + 1)
    if isinstance(value, dict):
        for name, inner in value.items():
            if (larger := _larger(inner, chars)) is not None:
                return {**value, name: larger}
    return None


def _garbled(value: Any, chance: random.Random) -> str:
    text = value if isinstance(value, str) else _text(value)
    # Cut off, with an undecodable byte, a NUL and the escape sequence that clears a terminal.
    return f"{text[: chance.randrange(len(text) + 1)]}\N{REPLACEMENT CHARACTER}\x00\x1b[2J"


def _text(value: Any) -> str:
    from ..schema import written

    return json.dumps(written(value, mask="**********", strict=False), ensure_ascii=False)
