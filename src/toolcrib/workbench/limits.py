"""How many calls, how often and at what cost: per tool, per principal, per workbench. Limits are data.

A call above a limit waits its turn; what would have to wait too long is refused, with the time to try again. A shared
limit counts in the store, for all processes that use it.
"""

import asyncio
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import inf
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakValueDictionary

from annotated_doc import Doc
from annotated_types import Ge

from ..call import Retry, current_trail
from ..core import Call, Caller, Middleware, Result, SetupError, StoreError, Tool, ToolError, ToolSpec
from ..machinery import (
    COUNTED_UNITS,
    Deadlock,
    Globs,
    Next,
    Permit,
    Semaphore,
    SemaphoreFull,
    compile_globs,
    create_lasting_task,
    current_deadline,
    from_any_thread,
    held_permits,
    log_failure,
)

MAX_DEBT = 10
"""How many times a budget may be overdrawn by what is reported: a bug in a tool must not end it for good."""

if TYPE_CHECKING:
    from ..store import Lease
    from ..store.limits import SharedLimits

Per = Literal["tool", "principal", "workbench"]

NESTED_TURN_WAIT_S = 30.0
"""The longest that a nested call of a serial tool waits for other processes, where it has no deadline."""

_RATE = re.compile(r"([0-9]{1,9}) ?/ ?([0-9]{0,9}) ?(s|min|h)")
_BUDGET = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ([a-z][a-z0-9_]{0,31}) ?/ ?([0-9]{0,5}) ?(s|min|h|d)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Limit:
    """How many calls of some tools run at a time, how often, and at what cost: a *concurrency*, a *rate*, a *budget*.

    Raises SetupError.
    """

    tools: Annotated[
        Globs,
        Doc(
            "Globs of tool names, one or several, as in 'db_*'. '*' also counts resources that are read, prompts, "
            "lists, new sessions and calls of unknown tools."
        ),
    ] = "*"
    per: Annotated[Per, Doc("Who shares it: the calls of each tool, of each principal, or of the workbench.")] = "tool"
    concurrency: Annotated[Annotated[int, Ge(1)] | None, Doc("How many calls run at a time.")] = None
    rate: Annotated[
        str | None,
        Doc("How often: '10/s', '100/min', '1000/h' or '5/30s'. So many at once, refilled evenly over that time."),
    ] = None
    budget: Annotated[
        str | None,
        Doc(
            "How much: '1000 calls/d', '60 seconds/h', or a unit that tools declare or report, as in '20000 tokens/d'. "
            "So much at once, refilled evenly over that time."
        ),
    ] = None
    wait_s: Annotated[
        float,
        Ge(0),
        Doc("How long a call waits for its turn, in seconds, and never past its deadline; 0 refuses it at once."),
    ] = 5.0
    optional: Annotated[bool, Doc("Whether what it names may be missing: else that is an error at the start.")] = False
    shared: Annotated[
        bool | None,
        Doc("Whether all processes with the same store count together; the default is where that is PostgreSQL."),
    ] = None
    names: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from ..schema.declared import require_fields  # brings pydantic: with the first limit, and not with the package

        require_fields(self)
        if self.concurrency is None and self.rate is None and self.budget is None:
            raise SetupError(
                'A limit needs a concurrency, as in 4, a rate, as in "10/s", or a budget, as in "1000 calls/d".'
            )
        if self.rate is not None:
            _rate(self.rate)
        if self.budget is not None:
            _budget(self.budget)
        if self.shared and self.per == "workbench":
            raise SetupError("A limit per workbench is of one process. Leave out 'shared', or share it per principal.")
        object.__setattr__(self, "names", compile_globs(self.tools))

    def counts(self, spec: ToolSpec) -> bool:
        """Return whether it counts calls of *spec*."""
        if spec.kind == "tool":
            return self.names.fullmatch(spec.name) is not None
        return "*" in ([self.tools] if isinstance(self.tools, str) else self.tools)

    def semaphore(self, clock: Callable[[], float]) -> Semaphore:
        """Return a semaphore with all its permits free."""
        burst, per_s = (None, 0.0) if self.rate is None else _rate(self.rate)
        return Semaphore(self.concurrency, burst=burst, per_s=per_s, clock=clock)

    def shared_name(self, share: str | None) -> str:
        """Return the name under which all processes with this limit count the calls of *share*."""
        tools = (self.tools,) if isinstance(self.tools, str) else tuple(self.tools)
        return _digest(tools, self.per, self.concurrency, self.rate, share)

    def budget_name(self, share: str | None) -> str:
        """Return the name under which all processes with this budget count what the calls of *share* spend."""
        return _digest(self.shared_name(share), self.budget)

    def unknown_unit(self, tools: Iterable[Tool]) -> str | None:
        """Return the sentence about a unit that none of *tools* spends; None where that is not known."""
        unit = "calls" if self.budget is None else _budget(self.budget)[1]
        units = [{*(tool.cost or ())} - COUNTED_UNITS for tool in tools if self.counts(tool.spec)]
        if not units or not all(units) or unit in COUNTED_UNITS.union(*units):
            return None
        from ..schema import closest_match, did_you_mean

        hint = did_you_mean(closest_match(unit, set[str]().union(*units)))
        return f"has a budget of {unit}, which none of its tools spends.{hint}"

    def __str__(self) -> str:
        parts = ["" if self.concurrency is None else f"{self.concurrency} at a time", self.rate, self.budget]
        return " and ".join(filter(None, parts))


class Limiter:
    """Counts calls against *limits*. Give one to several workbenches, and their calls count together.

    Only limits per workbench are counted for each workbench alone. A count is dropped when it makes no difference any
    more, so that the number of principals does not matter; `len(limiter)` is how many counts there are. *clock* is the
    time of rates, in seconds.
    """

    def __init__(self, limits: Iterable[Limit] = (), *, clock: Callable[[], float] = monotonic) -> None:
        self.limits = tuple(limits)
        if wrong := [limit for limit in self.limits if not isinstance(limit, Limit)]:
            raise SetupError(
                f'limits are Limit values, as in limits=[Limit("db_*", concurrency=4)], not {type(wrong[0]).__name__}.'
            )
        self._clock = clock
        self._shared = _Counts(clock)

    def middleware(self, stored: "SharedLimits | None" = None) -> Middleware:
        """Return what wraps the calls of one workbench. Calls of tools with a lock run one at a time, too.

        *stored* counts for all processes. Raises SetupError where a limit needs it, and it is None.
        """
        own = _Counts(self._clock)
        shared = {number: stored for number, limit in enumerate(self.limits) if _is_shared(limit, stored)}
        has_budgets = any(limit.budget is not None for limit in self.limits)
        turns = stored if stored is not None and (stored.is_server or shared) else None

        async def limited(tool: Tool, call: Call, caller: Caller, go_on: Next, /) -> Result[Any]:
            outer = tuple(permit for permit in held_permits.get() if permit.holders)
            permits: list[Permit] = []
            account = _Account(tool) if has_budgets else None
            has_begun = False
            try:
                # The lock first: who waits for it must not keep others from what they could use.
                if tool.lock is not None:
                    permits.append(await _acquire_lock(tool.lock, tool, caller, outer))
                    # An object is of this process, and so is the turn of its methods.
                    if turns is not None and not inspect.ismethod(getattr(tool, "fn", None)):
                        permits.append(await _acquire_turn(turns, tool, caller, outer))
                for number, limit in enumerate(self.limits):
                    if limit.counts(tool.spec):
                        counts = own if limit.per == "workbench" else self._shared
                        share = _share(limit, tool.spec, caller)
                        of_all = shared.get(number)
                        if limit.concurrency is not None or limit.rate is not None:
                            permits.append(
                                await _acquire(counts.semaphore((number, share), limit), limit, tool, caller)
                                if of_all is None
                                else await _acquire_shared(of_all, limit, share, tool, caller)
                            )
                        if account is not None and limit.budget is not None:
                            name: Any = (number, share) if of_all is None else limit.budget_name(share)
                            principal = caller.principal if limit.per == "principal" else ""
                            await account.reserve(_Part(limit, partial((of_all or counts).charge, name, principal)))
                held_permits.set((*outer, *permits))
                has_begun = True
                return await (go_on() if account is None or not account.parts else account.run(go_on))
            finally:
                for permit in reversed(permits):
                    permit.semaphore.release(permit, unused=not has_begun)
                if account is not None:
                    account.end()

        return limited

    async def budgets(
        self, specs: Sequence[ToolSpec], caller: Caller, stored: "SharedLimits | None" = None
    ) -> list[dict[str, Any]]:
        """Return the budgets for calls of *specs* by *caller*, as JSON data, each with how much of its unit is `left`.

        Of one per tool, that is of the tool `of` which the least is left; of one per workbench, it is not known: None.
        """
        rows: list[dict[str, Any]] = []
        for number, limit in enumerate(self.limits):
            shares = {_share(limit, spec, caller) for spec in specs if limit.budget is not None and limit.counts(spec)}
            if shares:
                rows.append(
                    await self._budget_row(number, limit, shares, stored if _is_shared(limit, stored) else None)
                )
        return rows

    async def _budget_row(
        self, number: int, limit: Limit, shares: set[str | None], of_all: "SharedLimits | None"
    ) -> dict[str, Any]:
        size, unit, window = _budget(limit.budget or "")
        is_known = limit.per != "workbench"
        names: Any = {limit.budget_name(share) if of_all else (number, share): share for share in shares}
        spent: Any = await (of_all or self._shared).spent(names) if is_known else {}
        name = max(names, key=lambda name: spent.get(name, 0))
        return {
            "id": str(number),
            "tools": [limit.tools] if isinstance(limit.tools, str) else list(limit.tools),
            "per": limit.per,
            "budget": limit.budget,
            "unit": unit,
            "size": size,
            "left": round(size * (1 - spent.get(name, 0) / window), 6) if is_known else None,
            "of": names[name] if spent else None,
            "shared": of_all is not None,
        }

    def __len__(self) -> int:
        return len(self._shared)

    def __repr__(self) -> str:
        return f"<Limiter of {len(self.limits)} limits>"


def _is_shared(limit: Limit, stored: "SharedLimits | None") -> bool:
    if stored is None and limit.shared:
        raise SetupError(f"The limit of {limit} is shared by all processes, which needs a database: give it store=...")
    is_wanted = limit.shared if limit.shared is not None else stored is not None and stored.is_server
    return is_wanted and limit.per != "workbench"


def _share(limit: Limit, spec: ToolSpec, caller: Caller) -> str | None:
    if limit.per == "tool":  # all reads are one, and so are all prompts
        return spec.name if spec.kind == "tool" else spec.name.partition(" ")[0]
    return caller.principal if limit.per == "principal" else None


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class _Counts:
    """Semaphores by key, each made when it is needed; now and then those are dropped that are as good as new.

    A call in another thread may just have got one that is dropped: it counts again if it is asked for meanwhile.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = RLock()
        self._semaphores: dict[Hashable, Semaphore] = {}
        self._dropped: WeakValueDictionary[Hashable, Semaphore] = WeakValueDictionary()
        self._sweep_at = 64
        self._full_at: dict[Hashable, int] = {}
        """When each budget is full again, in microseconds."""

    async def charge(self, name: Hashable, principal: str, cost: int, window: int, most: int | None = None) -> float:
        """Do what `SharedLimits.charge` does, for this process."""
        with self._lock:
            if name not in self._full_at:
                self._sweep_if_many()
            now = int(self._clock() * 1e6)
            full_at = max(self._full_at.get(name, now), now) + cost
            if most is not None or full_at <= now + window:
                self._full_at[name] = full_at if most is None else min(full_at, now + most)
            return max(0, full_at - now - window) / 1e6

    async def spent(self, names: Iterable[Hashable]) -> dict[Hashable, int]:
        """Do what `SharedLimits.spent` does, for this process."""
        with self._lock:
            now = int(self._clock() * 1e6)
            return {name: full_at - now for name in names if (full_at := self._full_at.get(name, now)) > now}

    def semaphore(self, key: Hashable, limit: Limit) -> Semaphore:
        with self._lock:
            semaphore = self._semaphores.get(key)
            if semaphore is None:
                self._sweep_if_many()
                semaphore = self._semaphores[key] = self._dropped.get(key) or limit.semaphore(self._clock)
            return semaphore

    def __len__(self) -> int:
        with self._lock:
            self._sweep()
            return len(self._semaphores) + len(self._full_at)

    def _sweep_if_many(self) -> None:
        if len(self._semaphores) + len(self._full_at) >= self._sweep_at:
            self._sweep()
            self._sweep_at = max(64, 2 * (len(self._semaphores) + len(self._full_at)))

    def _sweep(self) -> None:
        now = int(self._clock() * 1e6)
        self._full_at = {name: full_at for name, full_at in self._full_at.items() if full_at > now}
        for key in [key for key, semaphore in self._semaphores.items() if semaphore.is_idle()]:
            self._dropped[key] = self._semaphores.pop(key)


async def _acquire(semaphore: Semaphore, limit: Limit, tool: Tool, caller: Caller) -> Permit:
    try:
        return await semaphore.acquire(principal=caller.principal, patience_s=_give_up_at(limit) - monotonic())
    except SemaphoreFull as full:
        raise _refusal(full, f"Tool '{tool.spec.name}' is at its limit of {limit}.") from None


class _Place(Semaphore):
    """A place in a shared limit, which *free* gives back, from any thread, once nobody holds its permit any more."""

    __slots__ = ("_free",)

    def __init__(self, free: Callable[[], object]) -> None:
        super().__init__(1)
        self._free = free

    def _give_back(self, permit: Permit, *, unused: bool) -> None:
        super()._give_back(permit, unused=unused)
        self._free()


class _Turn(_Place):
    """The turn of a serial tool among all processes."""

    __slots__ = ()


async def _acquire_turn(stored: "SharedLimits", tool: Tool, caller: Caller, outer: tuple[Permit, ...]) -> Permit:
    """Return the permit of the tool's only call in all processes. Calls in this one have waited for its lock."""
    name, deadline = tool.spec.name, current_deadline.get()
    patience_s = inf if deadline is None else deadline.left_s
    if deadline is None and any(isinstance(permit.semaphore, _Turn) for permit in outer):
        patience_s = NESTED_TURN_WAIT_S  # who holds the place may wait, in another process, for the caller's
    place = await stored.take(_digest("serial", name), 1, patience_s)
    if place is None:
        raise ToolError(
            f"Tool '{name}' runs one call at a time, and the call of another process did not end. Try again later.",
            "conflict",
            retry="later",
        )
    return await _Turn(partial(stored.release, place)).acquire(principal=caller.principal)


async def _acquire_shared(
    stored: "SharedLimits", limit: Limit, share: str | None, tool: Tool, caller: Caller
) -> Permit:
    """Return a permit of a limit that is counted in the store. One of a rate alone has nothing to give back."""
    name, give_up = limit.shared_name(share), _give_up_at(limit)
    place: Lease | None = None

    def release() -> None:
        if place is not None:
            stored.release(place)

    try:
        if limit.concurrency is not None:
            place = await stored.take(name, limit.concurrency, give_up - monotonic())
            if place is None:
                raise SemaphoreFull(1.0)
        if limit.rate is not None:
            burst, per_s = _rate(limit.rate)
            principal = caller.principal if limit.per == "principal" else ""
            await _reserve_in_time(partial(stored.admit, name, principal, burst=burst, per_s=per_s), give_up)
    except BaseException as error:
        release()
        if isinstance(error, SemaphoreFull):
            raise _refusal(error, f"Tool '{tool.spec.name}' is at its limit of {limit}.") from None
        raise
    return await _Place(release).acquire(principal=caller.principal)


async def _acquire_lock(lock: Semaphore, tool: Tool, caller: Caller, outer: tuple[Permit, ...]) -> Permit:
    name, deadline = tool.spec.name, current_deadline.get()
    if any(permit.semaphore is lock for permit in outer):
        raise ToolError(
            f"Tool '{name}' runs one call at a time, and was called from within such a call, which waits for it.",
            "limited",
            retry="never",
        )
    try:
        patience_s = None if deadline is None else deadline.left_s
        return await lock.acquire(principal=caller.principal, patience_s=patience_s, outer=outer)
    except Deadlock:
        raise ToolError(
            f"Tool '{name}' runs one call at a time, and the call that is running waits for the one that has made this "
            "call. Try again later.",
            "conflict",
            retry="later",
        ) from None
    except SemaphoreFull as full:
        raise _refusal(full, f"Tool '{name}' runs one call at a time, and its turn did not come.") from None


@dataclass(slots=True)
class _Part:
    """What a call takes of one budget: the *total*, in its unit. *charge* is `charge` of what counts it."""

    limit: Limit
    charge: Callable[..., Awaitable[float]]
    total: float = 0.0

    @property
    def unit(self) -> str:
        return _budget(self.limit.budget or "")[1]

    async def reserve(self, total: float) -> float:
        """Take *total*, if there is as much, and anything at all. Return 0.0, or in how many seconds there is."""
        size, _, window = _budget(self.limit.budget or "")
        wait_s = await self.charge(int(total * window / size) or 1, window)
        self.total = 0.0 if wait_s else total
        return wait_s

    async def settle(self, total: float) -> float:
        """Charge *total* in all, whatever is left. Return the seconds until the debt is paid; 0.0 without one."""
        size, _, window = _budget(self.limit.budget or "")
        more, self.total, most = total - self.total, total, window * (1 + MAX_DEBT)
        return await self.charge(min(int(more * window / size), most), window, most) if more else 0.0


class _Account:
    """What one call spends of budgets: what *tool* declares before its work, and then what that reports."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.parts: list[_Part] = []
        self._spent: dict[str, float] = {}
        self._has_begun = False
        self._settling: asyncio.Task[None] | None = None

    async def reserve(self, part: _Part) -> None:
        """Take what the tool declares. Raises ToolError `limited`."""
        amount = {"calls": 1.0, **(self._tool.cost or {})}.get(part.unit, 0.0)
        name = self._tool.spec.name
        if amount > _budget(part.limit.budget or "")[0]:
            raise ToolError(
                f"A call of '{name}' takes {amount:g} {part.unit}, and its limit is {part.limit.budget}.",
                "limited",
                retry="never",
            )
        try:
            await _reserve_in_time(partial(part.reserve, amount), _give_up_at(part.limit))
        except SemaphoreFull as full:
            raise _refusal(full, f"Tool '{name}' is at its limit of {part.limit}.") from None
        self.parts.append(part)
        self._begin_settling = from_any_thread(self._settle_later)

    async def run(self, go_on: Next) -> Result[Any]:
        """Return the result of the work, once what it has spent is counted."""
        trail, began_at = current_trail.get(), monotonic()
        current_trail.set(None)  # what the work asks of its workbench is another call
        if trail is not None:
            trail.account = self
        try:
            result = await go_on()
        finally:
            current_trail.set(trail)
            self._has_begun = trail is None or trail.begun is not None
            if self._has_begun:
                self._spent["seconds"] = monotonic() - began_at
        await self._settle()
        return result

    async def spend(self, unit: str, amount: float) -> None:
        """Count what the work has used. Raises ToolError `limited`."""
        total = self._spent[unit] = self._spent.get(unit, 0.0) + amount
        parts = [part for part in self.parts if part.unit == unit and part.total < total]
        for debt_s, part in [(await part.settle(total), part) for part in parts]:
            if debt_s:
                name = self._tool.spec.name
                raise _refusal(SemaphoreFull(debt_s), f"Tool '{name}' has used up its limit of {part.limit}.")

    def end(self) -> None:
        """Settle from any thread what was not settled: the call was refused or cut short."""
        if any(self._due(part) != part.total for part in self.parts):
            self._begin_settling()

    def _settle_later(self) -> None:
        self._settling = create_lasting_task(self._settle())

    async def _settle(self) -> None:
        try:
            for part in self.parts:
                await part.settle(self._due(part))
        except StoreError as error:
            log_failure("What a call has spent was not counted", error, None)

    def _due(self, part: _Part) -> float:
        """Return what the call has to pay in the end: what was declared, unless it is known how much it was."""
        return self._spent.get(part.unit, part.total) if self._has_begun else 0.0


def _give_up_at(limit: Limit) -> float:
    deadline = current_deadline.get()
    return monotonic() + (limit.wait_s if deadline is None else min(limit.wait_s, deadline.left_s))


async def _reserve_in_time(reserve: Callable[[], Awaitable[float]], give_up: float) -> None:
    """Return once *reserve* has room. Raises SemaphoreFull where that is later than *give_up*."""
    while wait_s := await reserve():
        if wait_s > give_up - monotonic():
            raise SemaphoreFull(wait_s)
        await asyncio.sleep(wait_s)


def _refusal(full: SemaphoreFull, message: str) -> ToolError:
    after_s = full.retry_after_s
    return ToolError(f"{message} Try again in {after_s:g} s.", "limited", details={"retry_after_s": after_s})


def limits_from_data(data: Any) -> list[Limit]:
    """Read limits from a list of tables, as TOML has them. Raises SetupError, naming the table and the key."""
    from ..schema.declared import from_rows

    return from_rows(Limit, data, of="limit")


def retries_from_data(data: Any) -> list[Retry]:
    """Read retries from a list of tables, as TOML has them. Raises SetupError, naming the table and the key."""
    from ..schema.declared import from_rows

    return from_rows(Retry, data, of="retry")


def _rate(rate: str) -> tuple[int, float]:
    """Return how many at once, and how many per second."""
    match = _RATE.fullmatch(rate)
    number, seconds = (int(match[1]), int(match[2] or 1) * _SECONDS[match[3]]) if match else (0, 0)
    if not number or not seconds:
        raise SetupError(
            "'rate' of a limit is a number of calls per time, as in '10/s', '100/min', '1000/h' or '5/30s'."
        )
    return number, number / seconds


@lru_cache(maxsize=256)
def _budget(budget: str) -> tuple[float, str, int]:
    """Return how much, of which unit, and in how many microseconds that is refilled."""
    match = _BUDGET.fullmatch(budget)
    amount, seconds = (float(match[1]), int(match[3] or 1) * _SECONDS[match[4]]) if match else (0.0, 0)
    if match is None or not amount or not seconds:
        raise SetupError(
            "'budget' of a limit is an amount of a unit per time, as in '1000 calls/d', "
            "'60 seconds/h' or '20000 tokens/30d'."
        )
    from ..schema import closest_match, did_you_mean

    unit = match[2]
    if unit not in COUNTED_UNITS and (proposal := closest_match(unit, COUNTED_UNITS)):
        raise SetupError(f"'budget' of a limit counts '{unit}'.{did_you_mean(proposal)}")
    return amount, unit, seconds * 1_000_000
