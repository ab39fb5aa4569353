"""Stores in memory for what calls wait for and for large results: bounded, expiring, for any number of threads."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ..core import Answer, Pending, PendingKind, SetupError, ToolError
from ..machinery import StoredPending, StoredResult

_REMEMBERED = timedelta(hours=1)
"""How long what has expired is still known, so that a late answer gets the reason."""


class MemoryPendings:
    """A PendingStore for one process: what waits is lost with it.

    At most *size* are stored, *per_principal* of one principal, with *size_bytes* of arguments and messages in all.
    Where there is no room, what has ended goes first; then no more calls may wait.

    What has expired stays expired when the clock steps back.
    """

    def __init__(self, *, size: int = 10_000, per_principal: int = 1_000, size_bytes: int = 64 * 1024 * 1024) -> None:
        if min(size, per_principal, size_bytes) < 1:
            raise SetupError("The bounds of MemoryPendings are numbers of at least 1.")
        self._size = size
        self._per_principal = per_principal
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._stored: dict[str, StoredPending] = {}
        self._now = datetime.min.replace(tzinfo=UTC)  # the latest time that was seen

    async def open(self, pending: Pending, /, *, now: datetime, made: str = "") -> Pending:
        with self._lock:
            self._now = max(self._now, now)
            for entry in self._current("open"):
                if _question(entry.pending) == _question(pending):
                    return entry.pending
            new = StoredPending(pending, made=made)
            self._require_room(new)
            self._stored[pending.id] = new
            return pending

    async def get(self, id: str, /) -> StoredPending | None:  # noqa: A002
        with self._lock:
            entry = self._stored.get(id)
            is_late = entry is not None and entry.state == "open" and entry.pending.expires_at <= self._now
            return replace(entry, state="expired") if entry is not None and is_late else entry

    async def answer(self, id: str, answer: Answer, /, *, by: str, now: datetime) -> bool:  # noqa: A002
        with self._lock:
            self._now = max(self._now, now)
            entry = self._stored.get(id)
            if entry is None or entry.state != "open" or entry.pending.expires_at <= self._now:
                return False
            self._stored[id] = replace(entry, state="answered", answer=answer, by=by)
            return True

    async def take(self, digest: str, kind: PendingKind, key: str, /, *, now: datetime) -> StoredPending | None:
        with self._lock:
            self._now = max(self._now, now)
            for entry in self._current("answered"):
                if _question(entry.pending) == (digest, kind, key):
                    # The answer goes with the call: it may be a password, and no other call needs it.
                    self._stored[entry.pending.id] = replace(entry, state="taken", answer=None)
                    return replace(entry, state="taken")
            return None

    async def give_back(self, stored: StoredPending, /) -> None:
        with self._lock:
            self._stored[stored.pending.id] = replace(stored, state="answered")

    async def waiting(self, *, now: datetime) -> Sequence[Pending]:
        with self._lock:
            self._now = max(self._now, now)
            return [entry.pending for entry in self._current("open")]

    def __repr__(self) -> str:
        return f"<MemoryPendings: {len(self._stored)}>"

    # With the lock held

    def _current(self, state: str) -> list[StoredPending]:
        """Return what is in *state* and has not expired, the oldest first."""
        now = self._now
        return [entry for entry in self._stored.values() if entry.state == state and entry.pending.expires_at > now]

    def _require_room(self, new: StoredPending) -> None:
        self._keep(lambda entry: entry.pending.expires_at > self._now - _REMEMBERED)
        if not self._has_room(new):
            self._keep(lambda entry: entry.pending.expires_at > self._now and entry.state != "taken")
        if not self._has_room(new):
            raise ToolError(
                "Too many calls wait for an answer, and no more may wait. Try again when they have been answered.",
                "limited",
            )

    def _keep(self, condition: Callable[[StoredPending], bool]) -> None:
        self._stored = {id: entry for id, entry in self._stored.items() if condition(entry)}  # noqa: A001

    def _has_room(self, new: StoredPending) -> bool:
        principal, all_stored = new.pending.principal, self._stored.values()
        return (
            len(all_stored) < self._size
            and sum(entry.pending.principal == principal for entry in all_stored) < self._per_principal
            and sum(map(_bytes, all_stored)) + _bytes(new) <= self._size_bytes
        )


class MemoryResults:
    """Stores results in memory: of each principal at most *max_count* and *max_bytes*, each for *max_age_s* seconds.

    A principal's least recently used results make room for their new ones. All principals together have
    *max_total_bytes*; when these are full, new results of other principals are not stored. *clock* is in seconds.
    """

    def __init__(
        self,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        max_count: int = 200,
        max_age_s: float = 3600.0,
        max_total_bytes: int = 1024 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_bytes < 1 or max_count < 1 or max_total_bytes < 1 or not max_age_s > 0:
            raise SetupError(
                "The bounds of MemoryResults, max_bytes, max_count, max_age_s and max_total_bytes, are above 0."
            )
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._max_age_s = max_age_s
        self._max_total_bytes = max_total_bytes
        self._clock = clock
        self._lock = threading.Lock()
        # By handle, the least recently used first: the result, its size, and when it expires on the clock.
        self._entries: OrderedDict[str, tuple[StoredResult, int, float]] = OrderedDict()
        self._bytes = 0

    async def store(self, stored: StoredResult, /) -> bool:
        size = stored.size_bytes
        with self._lock:
            self._drop_expired()
            own = {
                handle: own_size
                for handle, (result, own_size, _) in self._entries.items()
                if result.principal == stored.principal
            }
            own_bytes = sum(own.values())
            room = min(self._max_bytes, self._max_total_bytes - self._bytes + own_bytes) - size
            if room < 0:
                return False
            for drop_count, (handle, own_size) in enumerate(own.items()):
                if len(own) - drop_count < self._max_count and own_bytes <= room:
                    break
                self._drop(handle)
                own_bytes -= own_size
            self._entries[stored.handle] = (stored, size, self._clock() + self._max_age_s)
            self._bytes += size
        return True

    async def find(self, handle: str, principal: str, thread: str, /) -> StoredResult | None:
        with self._lock:
            self._drop_expired()
            result = self._entries[handle][0] if handle in self._entries else None
            if result is None or (result.principal, result.thread) != (principal, thread):
                return None
            self._entries.move_to_end(handle)
            return result

    async def holds(self, principal: str, thread: str, /) -> bool:
        with self._lock:
            self._drop_expired()
            return any(
                (result.principal, result.thread) == (principal, thread) for result, *_ in self._entries.values()
            )

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<MemoryResults: {len(self)} results, {self._bytes} bytes>"

    def _drop_expired(self) -> None:
        now = self._clock()
        for handle in [handle for handle, (_, _, expires_at) in self._entries.items() if expires_at <= now]:
            self._drop(handle)

    def _drop(self, handle: str) -> None:
        _, size, _ = self._entries.pop(handle)
        self._bytes -= size


def _question(pending: Pending) -> tuple[str, PendingKind, str]:
    return pending.digest, pending.kind, pending.key


def _bytes(entry: StoredPending) -> int:
    return len(entry.pending.arguments) + len(entry.pending.message) + len(entry.made)
