"""How many calls, and how often: per tool, per principal, per workbench. Limits are data; a Limiter counts.

A call above a limit waits its turn; what would have to wait too long is refused, with the time to try again. A shared
limit counts in the store, for all processes that use it.
"""

import asyncio
import hashlib
import inspect
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakValueDictionary

from annotated_doc import Doc
from annotated_types import Ge

from ..call import Retry
from ..core import Call, Caller, Middleware, Result, SetupError, Tool, ToolError, ToolSpec
from ..machinery import (
    Deadlock,
    Globs,
    Next,
    Permit,
    Semaphore,
    SemaphoreFull,
    compile_globs,
    current_deadline,
    held_permits,
)

if TYPE_CHECKING:
    from ..store import Lease
    from ..store.limits import SharedLimits

Per = Literal["tool", "principal", "workbench"]

NESTED_TURN_WAIT_S = 30.0
"""How long a serial tool that another one calls waits for its turn in other processes, where there is no deadline."""

_RATE = re.compile(r"([0-9]{1,9}) ?/ ?([0-9]{0,9}) ?(s|min|h)")
_SECONDS = {"s": 1, "min": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Limit:
    """How many calls of some tools run at a time, and how often: a *concurrency*, a *rate*, or both.

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
        if self.concurrency is None and self.rate is None:
            raise SetupError('A limit needs a concurrency, as in 4, or a rate, as in "10/s".')
        if self.rate is not None:
            _rate(self.rate)
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

    def __str__(self) -> str:
        parts = [] if self.concurrency is None else [f"{self.concurrency} at a time"]
        return " and ".join(parts if self.rate is None else [*parts, self.rate])


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
        turns = stored if stored is not None and (stored.is_server or shared) else None

        async def limited(tool: Tool, call: Call, caller: Caller, go_on: Next, /) -> Result[Any]:
            outer = tuple(permit for permit in held_permits.get() if permit.holders)
            permits: list[Permit] = []
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
                        if (of_all := shared.get(number)) is not None:
                            permits.append(await _acquire_shared(of_all, limit, share, tool, caller))
                            continue
                        key: Hashable = (number, share)
                        permits.append(await _acquire(counts.semaphore(key, limit), limit, tool, caller))
                held_permits.set((*outer, *permits))
                has_begun = True
                return await go_on()
            finally:
                for permit in reversed(permits):
                    permit.semaphore.release(permit, unused=not has_begun)

        return limited

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

    def semaphore(self, key: Hashable, limit: Limit) -> Semaphore:
        with self._lock:
            semaphore = self._semaphores.get(key)
            if semaphore is None:
                if len(self._semaphores) >= self._sweep_at:
                    self._sweep()
                    self._sweep_at = max(64, 2 * len(self._semaphores))
                semaphore = self._semaphores[key] = self._dropped.get(key) or limit.semaphore(self._clock)
            return semaphore

    def __len__(self) -> int:
        with self._lock:
            self._sweep()
            return len(self._semaphores)

    def _sweep(self) -> None:
        for key in [key for key, semaphore in self._semaphores.items() if semaphore.is_idle()]:
            self._dropped[key] = self._semaphores.pop(key)


async def _acquire(semaphore: Semaphore, limit: Limit, tool: Tool, caller: Caller) -> Permit:
    deadline = current_deadline.get()
    patience_s = limit.wait_s if deadline is None else min(limit.wait_s, deadline.left_s)
    try:
        return await semaphore.acquire(principal=caller.principal, patience_s=patience_s)
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
    deadline, name = current_deadline.get(), limit.shared_name(share)
    give_up = monotonic() + (limit.wait_s if deadline is None else min(limit.wait_s, deadline.left_s))
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
            while wait_s := await stored.admit(name, principal, burst=burst, per_s=per_s):
                if wait_s > give_up - monotonic():
                    raise SemaphoreFull(wait_s)
                await asyncio.sleep(wait_s)
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
