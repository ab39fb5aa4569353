"""A semaphore with a concurrency and a rate. Of those who wait, the principal who holds the fewest permits is next.

A thread may release what a call on an event loop has acquired: a call holds its permits until its work has really
ended, also where a thread goes on with the work after the answer. So the state is behind a lock that is held for a few
instructions only, and each waiter is woken on its own loop.
"""

import asyncio
import threading
from collections import Counter
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

    None means no such limit. Principals who hold nothing have *spare* places more. *clock* is the time of the refills,
    in seconds.
    """

    __slots__ = (
        "__weakref__",
        *("_burst", "_clock", "_held_s", "_inside", "_lock", "_per_s", "_refilled", "_room", "_size", "_spare"),
        *("_tokens", "_waiters"),
    )

    def __init__(
        self,
        concurrency: int | None = None,
        *,
        burst: int | None = None,
        per_s: float = 0.0,
        spare: int = 0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._size = concurrency
        self._spare = spare
        self._room = inf if concurrency is None else concurrency
        self._burst = self._tokens = inf if burst is None else float(burst)
        self._per_s = per_s
        self._clock = clock
        self._refilled = clock()
        self._held_s = 0.0  # how long permits are held, as a running average
        self._inside: dict[Permit, None] = {}
        # By principal, each in order of arrival; the principal who released a permit last comes last.
        self._waiters: dict[str, dict[_Waiter, None]] = {}
        # Reentrant: an abandoned call releases its permit when it is collected, and that may be at any moment.
        self._lock = threading.RLock()

    async def acquire(
        self, *, principal: str = "", patience_s: float | None = None, outer: "tuple[Permit, ...]" = ()
    ) -> "Permit":
        """Return a permit for *principal*, to be released. Waits for it at most *patience_s*. Raises SemaphoreFull.

        *outer* is what the call holds meanwhile. Raises Deadlock where waiting with it would not end by itself.
        """
        with self._lock:
            if not self._waiters and self._take(principal):
                return self._new_permit(principal)
            self._require_patience(principal, patience_s)
            waiter = _Waiter(principal)
            self._waiters.setdefault(principal, {})[waiter] = None
            self._admit()
        due = inf if patience_s is None else monotonic() + patience_s
        permit: Permit | None = None
        try:
            with self._waited_for_by(outer):
                while permit is None and (left_s := due - monotonic()) > 0:
                    await waiter.wait(min(left_s, self._token_in_s() or inf))
                    with self._lock:
                        self._admit()
                        permit = waiter.permit
            if permit is None:
                raise SemaphoreFull(self._room_in_s(principal))
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

    def _require_patience(self, principal: str, patience_s: float | None) -> None:
        """Raise SemaphoreFull where waiting is of no use: tokens come by the clock alone, so for them that is known."""
        if patience_s is not None and (patience_s <= 0 or self._tokens_in_s(principal) > patience_s):
            raise SemaphoreFull(self._room_in_s(principal))

    def _take(self, principal: str) -> bool:
        self._refill()
        if self._tokens < 1 - 1e-6:
            return False
        if self._room <= 0 and (self._room <= -self._spare or any(p.principal == principal for p in self._inside)):
            return False
        self._room -= 1
        self._tokens -= 1
        return True

    def _new_permit(self, principal: str) -> "Permit":
        permit = Permit(self, principal)
        self._inside[permit] = None
        return permit

    def _give_back(self, permit: "Permit", *, unused: bool) -> None:
        del self._inside[permit]
        self._room += 1
        if (waiters := self._waiters.pop(permit.principal, None)) is not None:
            self._waiters[permit.principal] = waiters
        if unused:
            self._tokens = min(self._burst, self._tokens + 1)

    def _admit(self) -> None:
        """Admit waiters while there is room: of the principal who holds the fewest permits, the oldest first."""
        while self._waiters:
            principal = next(iter(self._waiters))
            if len(self._waiters) > 1:
                principal = min(self._waiters, key=Counter(permit.principal for permit in self._inside).__getitem__)
            if not self._take(principal):
                return
            first = next(iter(self._waiters[principal]))
            self._remove(first)
            permit = self._new_permit(principal)
            if first.wake():
                first.permit = permit
            else:
                self._give_back(permit, unused=True)

    def _leave(self, waiter: "_Waiter") -> None:
        with self._lock:
            if waiter.permit is not None:
                self._give_back(waiter.permit, unused=True)
            elif waiter in self._waiters.get(waiter.principal, ()):
                self._remove(waiter)
            self._admit()

    def _remove(self, waiter: "_Waiter") -> None:
        waiters = self._waiters[waiter.principal]
        del waiters[waiter]
        if not waiters:
            del self._waiters[waiter.principal]

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._per_s)
        self._refilled = now

    def _token_in_s(self, number: int = 1) -> float:
        """Return when there is a token for the next one to be admitted, or for the one at this *number*."""
        if not self._per_s:
            return 0.0
        with self._lock:
            self._refill()
            return max(0.0, (number - self._tokens) / self._per_s)

    def _tokens_in_s(self, principal: str) -> float:
        """Return when there is a token for *principal*, if they wait from now on."""
        return self._token_in_s(self._number(principal)) if self._per_s else 0.0

    def _room_in_s(self, principal: str) -> float:
        """Return an estimate of when there is room: permits are held as long as they were until now."""
        full = self._size is not None and self._room <= 0
        held_s = self._number(principal) / (self._size or 1) * (self._held_s or 1.0) if full else 0.0
        return round(max(held_s, self._tokens_in_s(principal), 0.001), 3)

    def _number(self, principal: str) -> int:
        """Return the place of one more waiter of *principal*, where principals take turns."""
        with self._lock:
            own = len(self._waiters.get(principal, ())) + 1
            return own + sum(min(len(waiters), own) for name, waiters in self._waiters.items() if name != principal)


class Permit:
    """A place inside a semaphore, held by one or by several: it is free when the last one has released it."""

    __slots__ = ("acquired", "holders", "principal", "semaphore", "waits_for")

    def __init__(self, semaphore: Semaphore, principal: str) -> None:
        self.semaphore = semaphore
        self.principal = principal
        self.holders = 1
        self.acquired = monotonic()
        self.waits_for: list[Semaphore] = []
        """The semaphores that the call which holds this waits for: several, where it makes several calls at once."""


class _Waiter:
    """One that waits for a semaphore, whose lock guards `permit`."""

    __slots__ = ("_event", "permit", "principal", "wake")

    def __init__(self, principal: str) -> None:
        self.principal = principal
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
