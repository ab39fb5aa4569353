"""A semaphore with a concurrency and a rate, first come first served.

A thread may release what a call on an event loop has acquired: a call holds its permits until its work has really
ended, also where a thread goes on with the work after the answer. So the state is behind a lock that is held for a few
instructions only, and each waiter is woken on its own loop.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import monotonic

from ..core.cancel import from_any_thread


class SemaphoreFull(Exception):
    """There was no room in time; there may be after *retry_after_s*."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s


class Deadlock(Exception):
    """The calls inside of a semaphore wait for the call that wants to come in."""


class Semaphore:
    """Admits at most *concurrency* at a time, and *burst* at once, which is refilled at *per_s* a second.

    None means no such limit. *clock* is the time of the refills, in seconds.
    """

    __slots__ = (
        "__weakref__",
        *("_burst", "_clock", "_held_s", "_inside", "_lock", "_per_s", "_refilled", "_room", "_size", "_tokens"),
        "_waiters",
    )

    def __init__(
        self,
        concurrency: int | None = None,
        *,
        burst: int | None = None,
        per_s: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._size = concurrency
        self._room = inf if concurrency is None else concurrency
        self._burst = self._tokens = inf if burst is None else float(burst)
        self._per_s = per_s
        self._clock = clock
        self._refilled = clock()
        self._held_s = 0.0  # how long permits are held, as a running average
        self._inside: dict[Permit, None] = {}
        self._waiters: dict[_Waiter, None] = {}  # in order of arrival
        # Reentrant: an abandoned call releases its permit when it is collected, and that may be at any moment.
        self._lock = threading.RLock()

    async def acquire(self, *, patience_s: float | None = None, outer: "tuple[Permit, ...]" = ()) -> "Permit":
        """Return a permit, to be released. Waits for it at most *patience_s*. Raises SemaphoreFull.

        *outer* is what the call holds meanwhile. Raises Deadlock where waiting with it would not end by itself.
        """
        with self._lock:
            if not self._waiters and self._take():
                return self._new_permit()
            # Tokens come by the clock alone, so for them it is known when waiting is of no use.
            if patience_s is not None and (patience_s <= 0 or self._tokens_in_s() > patience_s):
                raise SemaphoreFull(self._room_in_s())
            waiter = _Waiter()
            self._waiters[waiter] = None
        due = inf if patience_s is None else monotonic() + patience_s
        permit: Permit | None = None
        try:
            with self._waited_for_by(outer):
                while permit is None and (left_s := due - monotonic()) > 0:
                    await waiter.wait(min(left_s, self._tokens_in_s(waiter) or inf))
                    with self._lock:
                        self._admit()
                        permit = waiter.permit
            if permit is None:
                raise SemaphoreFull(self._room_in_s())
            return permit
        finally:
            if permit is None:
                self._leave(waiter)

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

    def is_idle(self) -> bool:
        """Return whether nothing is inside or waits, and the rate is refilled: a new semaphore would be the same."""
        with self._lock:
            self._refill()
            return not self._waiters and not self._inside and self._tokens >= self._burst

    # Deadlocks. Two tools that run one call at a time may each call the other: A waits for B's semaphore with a permit
    # of its own, in which a call waits for A's.

    @contextmanager
    def _waited_for_by(self, outer: "tuple[Permit, ...]") -> Generator[None]:
        """Note in the block that *outer* waits for this semaphore. Raises Deadlock."""
        for permit in outer:
            permit.waits_for.append(self)
        try:
            if outer and self._is_stuck(frozenset(outer), frozenset()):
                raise Deadlock
            yield
        finally:
            for permit in outer:
                permit.waits_for.remove(self)

    def _is_stuck(self, held: "frozenset[Permit]", path: "frozenset[Semaphore]") -> bool:
        """Return whether every permit inside waits for *held*. *path* are the semaphores followed up to here."""
        if self in path:
            return True
        inside, path = tuple(self._inside), path | {self}
        return bool(inside) and all(
            permit in held or any(semaphore._is_stuck(held, path) for semaphore in tuple(permit.waits_for))
            for permit in inside
        )

    # With the lock held

    def _take(self) -> bool:
        self._refill()
        if not self._room or self._tokens < 1 - 1e-6:
            return False
        self._room -= 1
        self._tokens -= 1
        return True

    def _new_permit(self) -> "Permit":
        permit = Permit(self)
        self._inside[permit] = None
        return permit

    def _give_back(self, permit: "Permit", *, unused: bool) -> None:
        del self._inside[permit]
        self._room += 1
        if unused:
            self._tokens = min(self._burst, self._tokens + 1)

    def _admit(self) -> None:
        """Admit waiters, oldest first, while there is room."""
        while self._waiters and self._take():
            first = next(iter(self._waiters))
            del self._waiters[first]
            permit = self._new_permit()
            if first.wake():
                first.permit = permit
            else:
                self._give_back(permit, unused=True)

    def _leave(self, waiter: "_Waiter") -> None:
        with self._lock:
            if waiter.permit is not None:
                self._give_back(waiter.permit, unused=True)
            self._waiters.pop(waiter, None)
            self._admit()

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._per_s)
        self._refilled = now

    def _tokens_in_s(self, waiter: "_Waiter | None" = None) -> float:
        """Return when there is a token for *waiter*, or for the next one to wait."""
        if not self._per_s:
            return 0.0
        with self._lock:
            self._refill()
            waiters = list(self._waiters)
        number = waiters.index(waiter) + 1 if waiter in waiters else len(waiters) + 1
        return max(0.0, (number - self._tokens) / self._per_s)

    def _room_in_s(self) -> float:
        """Return an estimate of when there is room: permits are held as long as they were until now."""
        ahead = len(self._waiters) + 1
        held_s = ahead / self._size * (self._held_s or 1.0) if self._size is not None and not self._room else 0.0
        return round(max(held_s, self._tokens_in_s(), 0.001), 3)


class Permit:
    """A place inside a semaphore, held by one or by several: it is free when the last one has released it."""

    __slots__ = ("acquired", "holders", "semaphore", "waits_for")

    def __init__(self, semaphore: Semaphore) -> None:
        self.semaphore = semaphore
        self.holders = 1
        self.acquired = monotonic()
        self.waits_for: list[Semaphore] = []
        """The semaphores that the call which holds this waits for: several, where it makes several calls at once."""


class _Waiter:
    """One that waits for a semaphore, whose lock guards `permit`."""

    __slots__ = ("_event", "permit", "wake")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.permit: Permit | None = None
        self.wake = from_any_thread(self._event.set)
        """Wake it, from any thread; False where its loop is closed."""

    async def wait(self, timeout_s: float) -> None:
        """Wait until `wake`, and at most *timeout_s*."""
        try:
            async with asyncio.timeout(None if timeout_s == inf else timeout_s):
                await self._event.wait()
        except TimeoutError:
            pass


held_permits: ContextVar[tuple[Permit, ...]] = ContextVar("toolcrib_held_permits", default=())
"""What the running call holds, and the calls that it is a part of."""


def share_permits() -> tuple[Permit, ...]:
    """Hold once more what the running call holds; to be given to `release_permits`."""
    permits = held_permits.get()
    return tuple(permit for permit in permits if permit.semaphore.share(permit)) if permits else permits


def release_permits(permits: tuple[Permit, ...]) -> None:
    for permit in permits:
        permit.semaphore.release(permit)
