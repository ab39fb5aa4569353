"""A semaphore with a concurrency and a rate, first come first served, for any event loop and any thread.

asyncio's own locks belong to one loop. Here the state is behind a lock that is held for a few instructions only, and
each waiter is woken on its own loop. No loop is ever blocked. What a call holds is held until its work has really
ended, also where the work outlives its answer.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from .cancel import CancellationToken


class SemaphoreFull(Exception):
    """There was no room in time; there may be after *retry_after_s*. *is_cancelled*: the caller gave up."""

    def __init__(self, retry_after_s: float, *, is_cancelled: bool = False) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s
        self.is_cancelled = is_cancelled


class Deadlock(Exception):
    """Whoever is inside waits for what the call holds that wants to come in."""


class Semaphore:
    """Admits at most *concurrency* at a time, and *burst* at once, which is refilled at *per_s* a second.

    None means no such limit. *clock* is the time of the refills, in seconds.
    """

    __slots__ = (
        *("_burst", "_clock", "_held_s", "_inside", "_lock", "_per_s", "_refilled", "_room", "_size", "_tokens"),
        "_waiting",
    )

    def __init__(
        self,
        concurrency: int | None = None,
        *,
        burst: int | None = None,
        per_s: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._size = self._room = concurrency
        self._burst = burst
        self._tokens = float(burst or 0)
        self._per_s = per_s
        self._clock = clock
        self._refilled = clock()
        self._held_s = 0.0
        self._inside: dict[Permit, None] = {}
        self._waiting: dict[_Waiter, None] = {}  # in order of arrival
        # Reentrant: an abandoned call releases its permit when it is collected, and that may be at any moment.
        self._lock = threading.RLock()

    async def acquire(
        self,
        *,
        patience_s: float | None = None,
        cancellation: CancellationToken | None = None,
        outer: "tuple[Permit, ...] | None" = None,
    ) -> "Permit":
        """A permit, to be released. Waits for it at most *patience_s*. Raises SemaphoreFull.

        *outer* is what the call holds meanwhile. With it, raises Deadlock where waiting would not end by itself.
        """
        with self._lock:
            if not self._waiting and self._take():
                return self._admitted(asyncio.get_running_loop())
            self._refill()
            # Tokens come by the clock alone, so for them it is known when waiting is of no use.
            if patience_s is not None and (patience_s <= 0 or self._tokens_in_s(len(self._waiting) + 1) > patience_s):
                raise SemaphoreFull(self._room_in_s())
            waiter = _Waiter(self)
            self._waiting[waiter] = None
            self._set_alarm()
        held: tuple[_Held, ...] = () if outer is None else (*outer, *standing_still.get())
        timer = None if patience_s is None else waiter.loop.call_later(patience_s, waiter.end)
        unlink = None if cancellation is None else cancellation.add_callback(lambda: waiter.call_soon(waiter.end))
        permit: Permit | None = None
        try:
            if held:
                _begin_wait(waiter, held)
            await waiter.ended
            with self._lock:
                permit = waiter.permit
                if permit is None:
                    raise SemaphoreFull(
                        self._room_in_s(), is_cancelled=cancellation is not None and cancellation.is_cancelled()
                    )
                return permit
        finally:
            if held:
                _end_wait(waiter, held)
            if permit is None:
                self._leave(waiter)
            if timer is not None:
                timer.cancel()
            if waiter.alarm is not None:
                waiter.alarm.cancel()
            if unlink is not None:
                unlink()

    def share(self, permit: "Permit") -> bool:
        """Hold *permit* once more; False where it has been released already."""
        with self._lock:
            if permit.holders:
                permit.holders += 1
            return permit.holders > 0

    def release(self, permit: "Permit", *, unused: bool = False) -> None:
        """Hold *permit* once less. *unused*: what it was acquired for never began, so it does not count."""
        with self._lock:
            permit.holders -= 1
            if permit.holders == 0:
                held_s = monotonic() - permit.acquired
                self._held_s = held_s if not self._held_s else 0.8 * self._held_s + 0.2 * held_s
                self._give_back(permit, unused=unused)
                self._admit()

    def is_kept_by(self, stays: "Callable[[_Held], bool]", waiter: "_Waiter") -> bool:
        """Whether *waiter* is not admitted as long as those wait for which *stays* is true."""
        earlier = itertools.takewhile(lambda each: each is not waiter, tuple(self._waiting))
        if any(stays(each.loop) for each in earlier):
            return True
        inside = tuple(self._inside)
        return self._room == 0 and bool(inside) and all(stays(each) or stays(each.loop) for each in inside)

    def is_idle(self) -> bool:
        """Whether nobody is in or waits, and the rate is refilled: a new semaphore would be the same."""
        with self._lock:
            self._refill()
            return not self._waiting and self._room == self._size and self._tokens >= (self._burst or 0)

    # With the lock held

    def _take(self) -> bool:
        self._refill()
        if self._room == 0 or (self._burst is not None and self._tokens < 1 - 1e-6):
            return False
        if self._room is not None:
            self._room -= 1
        if self._burst is not None:
            self._tokens -= 1
        return True

    def _admitted(self, loop: asyncio.AbstractEventLoop) -> "Permit":
        permit = Permit(self, loop)
        self._inside[permit] = None
        return permit

    def _give_back(self, permit: "Permit", *, unused: bool) -> None:
        del self._inside[permit]
        if self._room is not None:
            self._room += 1
        if self._burst is not None and unused:
            self._tokens = min(self._burst, self._tokens + 1)

    def _admit(self) -> None:
        """Admit whom there is room for, in order of arrival."""
        while self._waiting and self._take():
            first = next(iter(self._waiting))
            self._waiting.pop(first, None)
            permit = self._admitted(first.loop)
            if first.call_soon(first.end):
                first.permit = permit
            else:
                self._give_back(permit, unused=True)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Where only the rate is exhausted, the first in line looks again when it is refilled."""
        while self._waiting and self._room != 0 and self._burst is not None:
            first = next(iter(self._waiting))
            if first.has_alarm:
                return
            first.has_alarm = True
            if first.call_soon(self._schedule, first, self._tokens_in_s(1)):
                return
            self._waiting.pop(first, None)

    def _refill(self) -> None:
        if self._burst is not None:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._per_s)
            self._refilled = now

    def _tokens_in_s(self, number: int) -> float:
        return 0.0 if self._burst is None else max(0.0, (number - self._tokens) / self._per_s)

    def _room_in_s(self) -> float:
        """An estimate: permits are held as long as they were until now."""
        ahead = len(self._waiting) + 1
        held_s = ahead / self._size * (self._held_s or 1.0) if self._size is not None and self._room == 0 else 0.0
        return round(max(held_s, self._tokens_in_s(ahead), 0.001), 3)

    # On the loop of a waiter

    def _schedule(self, waiter: "_Waiter", wait_s: float) -> None:
        if not waiter.ended.done():
            waiter.alarm = waiter.loop.call_later(wait_s, self._wake, waiter)

    def _wake(self, waiter: "_Waiter") -> None:
        with self._lock:
            waiter.has_alarm = False
            self._admit()

    def _leave(self, waiter: "_Waiter") -> None:
        with self._lock:
            if waiter.permit is not None:
                self._give_back(waiter.permit, unused=True)
            else:
                self._waiting.pop(waiter, None)
            self._admit()


class Permit:
    """A place inside a semaphore, held by one or by several: it is free when the last one has released it."""

    __slots__ = ("acquired", "holders", "loop", "semaphore")

    def __init__(self, semaphore: Semaphore, loop: asyncio.AbstractEventLoop) -> None:
        self.semaphore = semaphore
        self.loop = loop
        self.holders = 1
        self.acquired = monotonic()


class _Waiter:
    """The semaphore's lock guards `permit` and `has_alarm`; the rest happens on the waiter's loop."""

    __slots__ = ("alarm", "ended", "has_alarm", "loop", "permit", "semaphore")

    def __init__(self, semaphore: Semaphore) -> None:
        self.semaphore = semaphore
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.alarm: asyncio.TimerHandle | None = None
        self.permit: Permit | None = None
        self.has_alarm = False

    def call_soon(self, work: Callable[..., None], *args: object) -> bool:
        """Run *work* on the loop of this waiter; False where that loop is closed."""
        try:
            self.loop.call_soon_threadsafe(work, *args)
        except RuntimeError:
            return False
        return True

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


_Held = Permit | asyncio.AbstractEventLoop
"""What cannot go on while a call waits: what the call is inside of, and the loops that it blocks."""


class _OnLoop:
    """Work of a call that another event loop does."""

    __slots__ = ("loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop


_Wait = _Waiter | _OnLoop

_waits: dict[_Held, dict[_Wait, None]] = {}
_cycles = threading.RLock()


@contextmanager
def waiting_for(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """In the block, the running call waits for what *loop* does for it."""
    held: tuple[_Held, ...] = (*(each for each in held_permits.get() if each.holders), *standing_still.get())
    wait = _OnLoop(loop)
    _begin_wait(wait, held)
    try:
        yield
    finally:
        _end_wait(wait, held)


def _begin_wait(wait: _Wait, held: tuple[_Held, ...]) -> None:
    """Note that *held* waits with *wait*. Raises Deadlock where a waiter waits for *held* in turn."""
    with _cycles:
        for each in held:
            _waits.setdefault(each, {})[wait] = None
        if isinstance(wait, _Waiter) and _waits_for(wait, frozenset(held), frozenset()):
            raise Deadlock


def _end_wait(wait: _Wait, held: tuple[_Held, ...]) -> None:
    with _cycles:
        for each in held:
            if (waits := _waits.get(each)) is not None:
                waits.pop(wait, None)
                if not waits:
                    del _waits[each]


def _waits_for(wait: _Wait, held: frozenset[_Held], path: frozenset[_Wait]) -> bool:
    """Whether *wait* does not end before *held* goes on. *path* has been followed up to here."""
    if wait in path:
        return True
    path |= {wait}

    def stays(each: _Held) -> bool:
        return each in held or any(_waits_for(inner, held, path) for inner in tuple(_waits.get(each, ())))

    return stays(wait.loop) if isinstance(wait, _OnLoop) else wait.semaphore.is_kept_by(stays, wait)


held_permits: ContextVar[tuple[Permit, ...]] = ContextVar("toolcrib_held_permits", default=())
"""What the running call holds, and the calls that it is a part of."""


standing_still: ContextVar[tuple[asyncio.AbstractEventLoop, ...]] = ContextVar("toolcrib_standing_still", default=())
"""The event loops that are blocked until the running call has ended."""


def share_permits() -> tuple[Permit, ...]:
    """Hold once more what the running call holds; to be given to `release_permits`."""
    permits = held_permits.get()
    return tuple(permit for permit in permits if permit.semaphore.share(permit)) if permits else permits


def release_permits(permits: tuple[Permit, ...]) -> None:
    for permit in permits:
        permit.semaphore.release(permit)
