"""A gate: so many at a time, so many in a while, in order of arrival, from any event loop and any thread.

asyncio's own locks belong to one loop. Here the state is behind a lock that is held for a few instructions only, and
each one who waits is woken on the loop it waits on. No loop is ever blocked.
"""

import asyncio
import threading
from collections.abc import Callable
from time import monotonic

from .cancel import CancellationToken


class Full(Exception):
    """There was no room in time. *retry_after_s* is when there may be; *given_up* where the caller's token said so."""

    def __init__(self, retry_after_s: float, *, given_up: bool = False) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s
        self.given_up = given_up


class Gate:
    """Lets at most *concurrency* in at a time, and *burst* at once, which is refilled at *per_s* a second.

    None stands for no such limit. *clock* tells the time of the refills, in seconds.
    """

    __slots__ = ("_burst", "_clock", "_filled_s", "_held_s", "_lock", "_per_s", "_room", "_size", "_tokens", "_waiting")

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
        self._filled_s = clock()
        self._held_s = 0.0
        self._waiting: dict[_Waiter, None] = {}  # in order of arrival
        # Reentrant: a call that was abandoned gives its place back when it is collected, and that may be at any moment.
        self._lock = threading.RLock()

    async def enter(self, *, patience_s: float | None = None, given_up: CancellationToken | None = None) -> "Slot":
        """A slot, which is to be released. Waits for it no longer than *patience_s*. Raises Full."""
        with self._lock:
            if not self._waiting and self._take():
                return Slot(self)
            self._refill()
            # Tokens come by the clock alone, so for them it is known when waiting is of no use.
            if patience_s is not None and (patience_s <= 0 or self._tokens_in_s(len(self._waiting) + 1) > patience_s):
                raise Full(self._room_in_s())
            waiter = _Waiter()
            self._waiting[waiter] = None
            self._set_alarm()
        timer = None if patience_s is None else waiter.loop.call_later(patience_s, waiter.end)
        unlink = None if given_up is None else given_up.add_callback(lambda: waiter.tell(waiter.end))
        entered = False
        try:
            await waiter.ended
            with self._lock:
                entered = waiter.entered
                if not entered:
                    raise Full(self._room_in_s(), given_up=given_up is not None and given_up.is_cancelled())
        finally:
            if not entered:
                self._leave(waiter)
            if timer is not None:
                timer.cancel()
            if waiter.alarm is not None:
                waiter.alarm.cancel()
            if unlink is not None:
                unlink()
        return Slot(self)

    def keep(self, slot: "Slot") -> bool:
        """Hold *slot* once more; False where it has been given back already."""
        with self._lock:
            if slot.holders:
                slot.holders += 1
            return slot.holders > 0

    def release(self, slot: "Slot", *, unused: bool = False) -> None:
        """Hold *slot* once less. *unused* where what it was taken for was never begun: then it does not count."""
        with self._lock:
            slot.holders -= 1
            if slot.holders == 0:
                held_s = monotonic() - slot.since_s
                self._held_s = held_s if not self._held_s else 0.8 * self._held_s + 0.2 * held_s
                self._give_back(unused=unused)
                self._admit()

    def is_idle(self) -> bool:
        """Whether nobody is in or waits, and all that was spent has been refilled: a new gate would be the same."""
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
        """Let in whom there is room for, the first to come first."""
        while self._waiting and self._take():
            first = next(iter(self._waiting))
            self._waiting.pop(first, None)
            first.entered = first.tell(first.end)
            if not first.entered:
                self._give_back(unused=True)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Where only time is wanting, the first in the line looks again when it has passed."""
        while self._waiting and self._room != 0 and self._burst is not None:
            first = next(iter(self._waiting))
            if first.has_alarm:
                return
            first.has_alarm = True
            if first.tell(self._wind, first, self._tokens_in_s(1)):
                return
            self._waiting.pop(first, None)

    def _refill(self) -> None:
        if self._burst is not None:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_s) * self._per_s)
            self._filled_s = now

    def _tokens_in_s(self, number: int) -> float:
        return 0.0 if self._burst is None else max(0.0, (number - self._tokens) / self._per_s)

    def _room_in_s(self) -> float:
        """A guess: what is held is held as long as it was until now."""
        ahead = len(self._waiting) + 1
        held_s = ahead / self._size * (self._held_s or 1.0) if self._size is not None and self._room == 0 else 0.0
        return round(max(held_s, self._tokens_in_s(ahead), 0.001), 3)

    # On the loop of a waiter

    def _wind(self, waiter: "_Waiter", wait_s: float) -> None:
        if not waiter.ended.done():
            waiter.alarm = waiter.loop.call_later(wait_s, self._ring, waiter)

    def _ring(self, waiter: "_Waiter") -> None:
        with self._lock:
            waiter.has_alarm = False
            self._admit()

    def _leave(self, waiter: "_Waiter") -> None:
        with self._lock:
            if waiter.entered:
                self._give_back(unused=True)
            else:
                self._waiting.pop(waiter, None)
            self._admit()


class Slot:
    """A place inside a gate, held by one or by several: the last one to let go gives it back."""

    __slots__ = ("gate", "holders", "since_s")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.holders = 1
        self.since_s = monotonic()


class _Waiter:
    """One who waits. The gate's lock guards `entered` and `has_alarm`; the rest happens on its loop."""

    __slots__ = ("alarm", "ended", "entered", "has_alarm", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.alarm: asyncio.TimerHandle | None = None
        self.entered = self.has_alarm = False

    def tell(self, what: Callable[..., None], *args: object) -> bool:
        """Have *what* run on the loop of this waiter; False where that loop is no more."""
        try:
            self.loop.call_soon_threadsafe(what, *args)
        except RuntimeError:
            return False
        return True

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
