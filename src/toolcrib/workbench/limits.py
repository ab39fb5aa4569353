"""How many calls, and how often: per tool, per principal, per workbench. Limits are data; a Limiter keeps the count.

A call above a limit waits its turn; what would have to wait too long is refused and told when to come again.
"""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from threading import RLock
from time import monotonic
from typing import Any, Literal, TypeVar, get_args

from ..call import Retries, held, put_back, time_left_s
from ..core import (
    Around,
    Call,
    Caller,
    Full,
    Gate,
    Next,
    Patterns,
    Result,
    SetupError,
    Slot,
    Tool,
    ToolError,
    matching,
)

Per = Literal["tool", "principal", "workbench"]
D = TypeVar("D", "Limit", Retries)

_RATE = re.compile(r"([0-9]{1,9}) ?/ ?([0-9]{0,9}) ?(s|min|h)")
_SECONDS = {"s": 1, "min": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Limit:
    """At most *concurrency* calls at a time, or a *rate* of them, of the *tools* whose names fit a pattern. Data.

    *per* says who share it: the calls of each `tool`, all calls of each `principal`, or all calls of the `workbench`.
    *rate* is `"10/s"`, `"100/min"`, `"1000/h"` or `"5/30s"`: so many at once, refilled evenly over that time. A call
    waits for its turn at most *wait_s* seconds, and never past its deadline; 0 refuses it at once.

    Raises SetupError.
    """

    tools: Patterns = "*"
    per: Per = "tool"
    concurrency: int | None = None
    rate: str | None = None
    wait_s: float = 5.0
    names: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.per not in get_args(Per):
            raise SetupError(f"A limit is per one of {', '.join(get_args(Per))}, not per {self.per!r}.")
        if self.concurrency is None and self.rate is None:
            raise SetupError('A limit limits something: give it a concurrency, as 4, or a rate, as "10/s".')
        if self.concurrency is not None and (type(self.concurrency) is not int or self.concurrency < 1):
            raise SetupError("concurrency is how many calls run at a time: a whole number, 1 or more.")
        if type(self.wait_s) not in (int, float) or not math.isfinite(self.wait_s) or self.wait_s < 0:
            raise SetupError("wait_s is how long a call may wait for its turn: a number of seconds, 0 or more.")
        if self.rate is not None:
            _rate(self.rate)
        object.__setattr__(self, "names", matching(self.tools))

    def gate(self, clock: Callable[[], float]) -> Gate:
        """A gate that nobody has gone through yet."""
        burst, per_s = (None, 0.0) if self.rate is None else _rate(self.rate)
        return Gate(self.concurrency, burst=burst, per_s=per_s, clock=clock)

    def __str__(self) -> str:
        said = [] if self.concurrency is None else [f"{self.concurrency} at a time"]
        return " and ".join(said if self.rate is None else [*said, self.rate])


class Limiter:
    """Keeps the count of *limits*. Give one to several workbenches, and their calls count together.

    Only limits per workbench are counted for each workbench alone. What is counted is dropped when it makes no
    difference any more, so that the number of principals does not matter; `len(limiter)` says how much is kept.
    *clock* tells the time of rates, in seconds.
    """

    def __init__(self, limits: Iterable[Limit] = (), *, clock: Callable[[], float] = monotonic) -> None:
        self.limits = tuple(limits)
        if wrong := [limit for limit in self.limits if not isinstance(limit, Limit)]:
            raise SetupError(
                f'limits are Limit values, as in limits=[Limit("db_*", concurrency=4)], not {type(wrong[0]).__name__}.'
            )
        self._clock = clock
        self._shared = _Gates(clock)

    def around(self) -> Around:
        """What wraps the calls of one workbench. It also sees to it that calls of `serial` tools take turns."""
        own = _Gates(self._clock)

        async def limited(tool: Tool, call: Call, caller: Caller, go_on: Next, /) -> Result[Any]:
            outer = tuple(slot for slot in held.get() if slot.holders)
            slots: list[Slot] = []
            visits: list[tuple[_Gates, Hashable]] = []
            begun = False
            try:
                # The turn first: who waits for it must not keep others from what they could use.
                if tool.turn is not None:
                    slots.append(await _take_turn(tool.turn, tool, call, outer))
                for number, limit in enumerate(self.limits):
                    if limit.names.fullmatch(tool.spec.name):
                        gates = own if limit.per == "workbench" else self._shared
                        whose = {"tool": tool.spec.name, "principal": caller.principal, "workbench": None}[limit.per]
                        gate = gates.visit((number, whose), limit)
                        visits.append((gates, (number, whose)))
                        slots.append(await _enter(gate, limit, tool, call))
                before = held.set((*outer, *slots))
                begun = True
                try:
                    return await go_on()
                finally:
                    put_back(held, before)
            finally:
                for slot in reversed(slots):
                    slot.gate.release(slot, unused=not begun)
                for gates, key in visits:
                    gates.leave(key)

        return limited

    def __len__(self) -> int:
        return len(self._shared)

    def __repr__(self) -> str:
        return f"<Limiter of {len(self.limits)} limits>"


class _Gates:
    """Gates by key, each made when it is needed and dropped when a new one would be the same."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = RLock()
        self._kept: dict[Hashable, _Visited] = {}
        self._sweep_at = 64

    def visit(self, key: Hashable, limit: Limit) -> Gate:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                if len(self._kept) >= self._sweep_at:
                    self._kept = {key: kept for key, kept in list(self._kept.items()) if not kept.is_idle()}
                    self._sweep_at = max(64, 2 * len(self._kept))
                kept = self._kept[key] = _Visited(limit.gate(self._clock))
            kept.visitors += 1
            return kept.gate

    def leave(self, key: Hashable) -> None:
        with self._lock:
            kept = self._kept[key]
            kept.visitors -= 1
            if kept.is_idle():
                del self._kept[key]

    def __len__(self) -> int:
        return len(self._kept)


@dataclass(slots=True)
class _Visited:
    gate: Gate
    visitors: int = 0

    def is_idle(self) -> bool:
        return self.visitors == 0 and self.gate.is_idle()


async def _enter(gate: Gate, limit: Limit, tool: Tool, call: Call) -> Slot:
    left_s = time_left_s()
    patience_s = limit.wait_s if left_s is None else min(limit.wait_s, left_s)
    try:
        return await gate.enter(patience_s=patience_s, given_up=call.cancellation)
    except Full as full:
        raise _refusal(full, tool, f"Tool '{tool.spec.name}' is at its limit of {limit}.") from None


async def _take_turn(turn: Gate, tool: Tool, call: Call, outer: tuple[Slot, ...]) -> Slot:
    name = tool.spec.name
    if any(slot.gate is turn for slot in outer):
        raise ToolError(
            f"Tool '{name}' runs one call at a time, and was called from within such a call, which waits for it.",
            "limited",
            retry="never",
        )
    try:
        return await turn.enter(patience_s=time_left_s(), given_up=call.cancellation)
    except Full as full:
        raise _refusal(full, tool, f"Tool '{name}' runs one call at a time, and its turn did not come.") from None


def _refusal(full: Full, tool: Tool, message: str) -> ToolError:
    if full.given_up:
        return ToolError(f"Tool '{tool.spec.name}' was cancelled before it began.", "cancelled")
    after_s = full.retry_after_s
    return ToolError(f"{message} Try again in {after_s:g} s.", "limited", details={"retry_after_s": after_s})


def limits_from_data(data: Any) -> list[Limit]:
    """Limits as TOML has them, a list of tables with the fields of Limit. Raises SetupError, naming the entry."""
    return _from_data(Limit, "limit", data)


def retries_from_data(data: Any) -> list[Retries]:
    """Retries as TOML has them, a list of tables with its fields. Raises SetupError, naming the entry."""
    return _from_data(Retries, "retry", data)


def _from_data(kind: type[D], word: str, data: Any) -> list[D]:
    from ..schema import nearest, spoken

    names = [one.name for one in fields(kind) if one.init]
    if not isinstance(data, list | tuple):
        raise SetupError(f"A list of {word} tables was expected, not {type(data).__name__}.")
    made: list[D] = []
    for number, entry in enumerate(data, 1):
        place = f"{word.capitalize()} {number}"
        if not isinstance(entry, Mapping):
            raise SetupError(f"{place} is no table of {', '.join(names)}, but {type(entry).__name__}.")
        for key in entry:
            if key not in names:
                meant = nearest(str(key), names)
                hint = f" Did you mean '{meant}'?" if meant else ""
                raise SetupError(f"{place} has a key '{spoken(str(key))}'.{hint} It takes: {', '.join(names)}.")
        try:
            made.append(kind(**entry))
        except SetupError as error:
            raise SetupError(f"{place}: {error}") from None
    return made


def _rate(rate: Any) -> tuple[int, float]:
    """How many at once, and how many a second."""
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    number, seconds = (int(found[1]), int(found[2] or 1) * _SECONDS[found[3]]) if found else (0, 0)
    if not number or not seconds:
        raise SetupError('rate is a text: so many calls in a time, as "10/s", "100/min", "1000/h" or "5/30s".')
    return number, number / seconds
