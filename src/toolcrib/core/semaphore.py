"""A semaphore with a concurrency and a rate, first come first served, for any event loop and any thread.

asyncio's own locks belong to one loop. Here the state is behind a lock that is held for a few instructions only, and
each waiter is woken on its own loop. No loop is ever blocked. What a call holds is held until its work has really
ended, also where the work outlives its answer.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic

from .cancel import CancellationToken


class SemaphoreFull(Exception):
    """There was no room in time; there may be after *retry_after_s*. *is_cancelled*: the caller gave up."""

    def __init__(self, retry_after_s: float, *, is_cancelled: bool = False) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s
        self.is_cancelled = is_cancelled


class Semaphore:
    """Admits at most *concurrency* at a time, and *burst* at once, which is refilled at *per_s* a second.

    None means no such limit. *clock* is the time of the refills, in seconds.
    """

    __slots__ = ("_burst", "_clock", "_held_s", "_lock", "_per_s", "_refilled", "_room", "_size", "_tokens", "_waiting")

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
        self._waiting: dict[_Waiter, None] = {}  # in order of arrival
        # Reentrant: an abandoned call releases its permit when it is collected, and that may be at any moment.
        self._lock = threading.RLock()

    async def acquire(
        self, *, patience_s: float | None = None, cancellation: CancellationToken | None = None
    ) -> "Permit":
        """A permit, to be released. Waits for it at most *patience_s*. Raises SemaphoreFull."""
        with self._lock:
            if not self._waiting and self._take():
                return Permit(self)
            self._refill()
            # Tokens come by the clock alone, so for them it is known when waiting is of no use.
            if patience_s is not None and (patience_s <= 0 or self._tokens_in_s(len(self._waiting) + 1) > patience_s):
                raise SemaphoreFull(self._room_in_s())
            waiter = _Waiter()
            self._waiting[waiter] = None
            self._set_alarm()
        timer = None if patience_s is None else waiter.loop.call_later(patience_s, waiter.end)
        unlink = None if cancellation is None else cancellation.add_callback(lambda: waiter.call_soon(waiter.end))
        admitted = False
        try:
            await waiter.ended
            with self._lock:
                admitted = waiter.admitted
                if not admitted:
                    raise SemaphoreFull(
                        self._room_in_s(), is_cancelled=cancellation is not None and cancellation.is_cancelled()
                    )
        finally:
            if not admitted:
                self._leave(waiter)
            if timer is not None:
                timer.cancel()
            if waiter.alarm is not None:
                waiter.alarm.cancel()
            if unlink is not None:
                unlink()
        return Permit(self)

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
                self._give_back(unused=unused)
                self._admit()

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

    def _give_back(self, *, unused: bool) -> None:
        if self._room is not None:
            self._room += 1
        if self._burst is not None and unused:
            self._tokens = min(self._burst, self._tokens + 1)

    def _admit(self) -> None:
        """Admit whom there is room for, in order of arrival."""
        while self._waiting and self._take():
            first = next(iter(self._waiting))
            self._waiting.pop(first, None)
            first.admitted = first.call_soon(first.end)
            if not first.admitted:
                self._give_back(unused=True)
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
            if waiter.admitted:
                self._give_back(unused=True)
            else:
                self._waiting.pop(waiter, None)
            self._admit()


class Permit:
    """A place inside a semaphore, held by one or by several: it is free when the last one has released it."""

    __slots__ = ("acquired", "holders", "semaphore")

    def __init__(self, semaphore: Semaphore) -> None:
        self.semaphore = semaphore
        self.holders = 1
        self.acquired = monotonic()


class _Waiter:
    """The semaphore's lock guards `admitted` and `has_alarm`; the rest happens on the waiter's loop."""

    __slots__ = ("admitted", "alarm", "ended", "has_alarm", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.alarm: asyncio.TimerHandle | None = None
        self.admitted = self.has_alarm = False

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


held_permits: ContextVar[tuple[Permit, ...]] = ContextVar("toolcrib_held_permits", default=())
"""What the running call holds, and the calls that it is a part of."""


def share_permits() -> tuple[Permit, ...]:
    """Hold once more what the running call holds; to be given to `release_permits`."""
    permits = held_permits.get()
    return tuple(permit for permit in permits if permit.semaphore.share(permit)) if permits else permits


def release_permits(permits: tuple[Permit, ...]) -> None:
    for permit in permits:
        permit.semaphore.release(permit)
