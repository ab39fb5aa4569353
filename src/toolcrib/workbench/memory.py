"""Stores in memory for what calls wait for and for large results: bounded, expiring, for any number of threads."""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ..core import Answer, Grant, Pending, PendingKind, SetupError, ToolError
from ..machinery import (
    Shares,
    StoredPending,
    StoredResult,
    fact_of_call,
    is_grant_of,
    life_s,
    require_grants_room,
    room_for,
)

_REMEMBERED = timedelta(hours=1)
"""How long what has expired is still known, so that a late answer gets the reason."""


class MemoryPendings:
    """A PendingStore for one process: what waits is lost with it.

    At most *size* are stored, *per_principal* of one principal, with *size_bytes* of arguments and messages in all.
    Where there is no room, what has ended goes first, then the oldest open call of the principal who holds the most.
    A new call of that principal may not wait.

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
        self.grants = MemoryGrants()

    async def open(self, pending: Pending, /, *, now: datetime, made: str = "") -> Pending:
        with self._lock:
            self._see(now)
            for entry in self._current("open"):
                if _question(entry.pending) == _question(pending):
                    return entry.pending
            new = StoredPending(pending, made=made)
            self._require_room(new, now)
            self._stored[pending.id] = new
            return pending

    async def get(self, id: str, /) -> StoredPending | None:  # noqa: A002
        with self._lock:
            return self._stored.get(id)

    async def answer(
        self,
        id: str,  # noqa: A002
        answer: Answer,
        /,
        *,
        by: str,
        now: datetime,
        grant: Grant | None = None,
    ) -> bool:
        with self._lock:
            self._see(now)
            entry = self._stored.get(id)
            if entry is None or entry.state != "open":
                return False
            if grant is not None:
                self.grants.put(grant, now)
            self._stored[id] = replace(entry, state="answered", answer=answer, by=by)
            return True

    async def take(self, digest: str, kind: PendingKind, key: str, /, *, now: datetime) -> StoredPending | None:
        with self._lock:
            self._see(now)
            for entry in self._current("answered"):
                if _question(entry.pending) == (digest, kind, key):
                    # The answer goes with the call: it may be a password, and no other call needs it.
                    self._stored[entry.pending.id] = replace(entry, state="taken", answer=None)
                    return replace(entry, state="taken")
            return None

    async def give_back(self, stored: StoredPending, /) -> None:
        with self._lock:
            self._stored[stored.pending.id] = replace(stored, state="answered")

    async def waiting(self, *, now: datetime, principal: str | None = None) -> Sequence[Pending]:
        with self._lock:
            self._see(now)
            pendings = [entry.pending for entry in self._current("open")]
            return [pending for pending in pendings if principal in (None, pending.principal)]

    async def page(
        self, after: str, limit: int, /, *, now: datetime, principal: str | None = None
    ) -> Sequence[tuple[str, Pending]]:
        """Return at most *limit* of what `waiting` does, after the id *after*, each with its own."""
        with self._lock:
            self._see(now)
            ids = [*self._stored]
            later = {*ids[ids.index(after) + 1 :]} if after in self._stored else {*ids}
            pendings = [entry.pending for entry in self._current("open") if entry.pending.id in later]
        return [(one.id, one) for one in pendings if principal in (None, one.principal)][:limit]

    # With the lock held

    def _see(self, now: datetime) -> None:
        """Note what has expired by *now*. Where the clock is set back, it stays so."""
        for id, entry in self._stored.items():  # noqa: A001
            if entry.pending.expires_at <= now and entry.state in ("open", "answered"):
                self._stored[id] = replace(entry, state="expired", answer=None)

    def _current(self, state: str) -> list[StoredPending]:
        """Return what is in *state*, the oldest first."""
        return [entry for entry in self._stored.values() if entry.state == state]

    def _require_room(self, new: StoredPending, now: datetime) -> None:
        self._keep(lambda entry: entry.pending.expires_at > now - _REMEMBERED)
        if self._going(new) != []:
            self._keep(lambda entry: entry.state in ("open", "answered"))
        if (going := self._going(new)) is None:
            raise ToolError(
                "Too many calls wait for an answer, and no more may wait. Try again when they have been answered.",
                "limited",
            )
        self._keep(lambda entry: entry.pending.id not in going)

    def _keep(self, condition: Callable[[StoredPending], bool]) -> None:
        self._stored = {id: entry for id, entry in self._stored.items() if condition(entry)}  # noqa: A001

    def _going(self, new: StoredPending) -> list[str] | None:
        """Return the ids of those that make room for *new* when they go; None where none can."""
        principal, stored = new.pending.principal, self._stored.items()
        if sum(entry.pending.principal == principal for _, entry in stored) >= self._per_principal:
            return None
        rows = ((id, entry.pending.principal, _bytes(entry), entry.state == "open") for id, entry in stored)  # noqa: A001
        return room_for(principal, _bytes(new), rows, max_count=self._size, max_size=self._size_bytes)


class MemoryGrants:
    """A GrantStore for one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stored: dict[int, Grant] = {}
        self._now = datetime.min.replace(tzinfo=UTC)
        self._number = 0

    async def add(self, grant: Grant, /, *, now: datetime) -> None:
        self.put(grant, now)

    def put(self, grant: Grant, now: datetime) -> None:
        """Do the same as `add`."""
        with self._lock:
            own = [stored for stored in self._current(now).values() if stored.principal == grant.principal]
            require_grants_room(len(own))
            self._number += 1
            self._stored[self._number] = grant

    async def find(self, principal: str, thread: str, rule: str, /, *, now: datetime) -> Sequence[Grant]:
        with self._lock:
            grants = self._current(now).values()
            asked = (principal, thread, rule)
            return [grant for grant in grants if (grant.principal, grant.thread, grant.rule) == asked]

    async def page(
        self, *, now: datetime, of: str | None = None, after: int = 0, limit: int = 50
    ) -> tuple[Sequence[Grant], int | None]:
        with self._lock:
            rows = [row for row in self._current(now).items() if row[0] > after and is_grant_of(row[1], of)]
        return [grant for _, grant in rows[:limit]], rows[limit - 1][0] if len(rows) > limit else None

    async def revoke(self, id: str, /, *, of: str | None = None) -> Grant | None:  # noqa: A002
        with self._lock:
            numbers = [number for number, grant in self._stored.items() if grant.id == id and is_grant_of(grant, of)]
            return self._stored.pop(numbers[0]) if numbers else None

    def _current(self, now: datetime) -> dict[int, Grant]:
        """Return those that have not expired. What has, stays so when the clock steps back."""
        self._now = now = max(now, self._now)
        self._stored = {number: grant for number, grant in self._stored.items() if grant.expires_at > now}
        return self._stored


class MemoryResults:
    """Stores results in memory: of each principal at most *max_count* and *max_bytes*, each for *max_age_s* seconds.

    A principal's least recently used results make room for their new ones. All principals together have
    *max_total_bytes*; when these are full, the principal who has the most makes room. *clock* is in seconds.
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
        # By handle: the result, and when it expires on the clock.
        self._entries: Shares[str, tuple[StoredResult, float]] = Shares()

    async def store(self, stored: StoredResult, /) -> bool:
        size, principal, entries = stored.size_bytes, stored.principal, self._entries
        if size > min(self._max_bytes, self._max_total_bytes):
            return False
        with self._lock:
            self._drop_expired()
            entries.put(stored.handle, (stored, self._clock() + self._max_age_s), principal, size)
            while entries.count(principal) > self._max_count or entries.held(principal) > self._max_bytes:
                entries.drop(of=principal)
            while entries.size > self._max_total_bytes:
                entries.drop()
            return entries.get(stored.handle) is not None

    async def find(self, handle: str, principal: str, thread: str, /) -> StoredResult | None:
        with self._lock:
            self._drop_expired()
            entry = self._entries.get(handle)
            is_theirs = entry is not None and (entry[0].principal, entry[0].thread) == (principal, thread)
            return entry[0] if entry is not None and is_theirs else None

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries = Shares()

    def __len__(self) -> int:
        return len(self._entries)

    def _drop_expired(self) -> None:
        now = self._clock()
        for handle in [handle for handle, (_, expires_at) in self._entries.items() if expires_at <= now]:
            self._entries.pop(handle)


class MemoryThreads:
    """A ThreadStore for one process, of at most *size* facts, *per_principal* of one principal.

    Where there is no room, nothing is forgotten: the principal who holds the most gets no more. *clock* is in seconds.
    """

    def __init__(
        self, *, size: int = 100_000, per_principal: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._size = size
        self._per_principal = per_principal
        self._clock = clock
        self._lock = threading.Lock()
        self._facts: dict[str, dict[tuple[str, str], float]] = {}  # by principal: thread and fact, and until when

    async def remember(self, principal: str, thread: str, facts: Collection[str], /) -> None:
        with self._lock:
            for fact in facts:
                self._put(principal, thread, fact)

    async def recall(self, principal: str, thread: str, facts: Collection[str], /) -> frozenset[str]:
        with self._lock:
            return frozenset(fact for fact in facts if self._has(principal, thread, fact))

    async def take(self, principal: str, thread: str, name: str, most: int, /) -> bool:
        with self._lock:
            facts = (fact_of_call(name, number) for number in range(1, most + 1))
            fact = next((fact for fact in facts if not self._has(principal, thread, fact)), None)
            if fact is not None:
                self._put(principal, thread, fact)
            return fact is not None

    async def clear(self, principal: str | None = None, thread: str | None = None, /) -> int:
        with self._lock:
            before = self._count()
            for owner in [owner for owner in self._facts if principal in (None, owner)]:
                facts = self._facts.pop(owner)
                if thread is not None and (rest := {key: end for key, end in facts.items() if key[0] != thread}):
                    self._facts[owner] = rest
            return before - self._count()

    # With the lock held

    def _has(self, principal: str, thread: str, fact: str) -> bool:
        return self._facts.get(principal, {}).get((thread, fact), 0.0) > self._clock()

    def _put(self, principal: str, thread: str, fact: str) -> None:
        own, now = self._facts.setdefault(principal, {}), self._clock()
        if (thread, fact) not in own and not self._has_room(principal):
            for owner, facts in [*self._facts.items()]:
                self._facts[owner] = {key: end for key, end in facts.items() if end > now}
            own = self._facts[principal]
            if not self._has_room(principal):
                raise ToolError("Too much is remembered of the threads of this caller. Use a database.", "limited")
        own[thread, fact] = now + life_s(thread)

    def _has_room(self, principal: str) -> bool:
        held = len(self._facts[principal])
        is_most = held >= self._size // len(self._facts)
        return held < self._per_principal and not (is_most and self._count() >= self._size)

    def _count(self) -> int:
        return sum(map(len, self._facts.values()))


def _question(pending: Pending) -> tuple[str, PendingKind, str]:
    return pending.digest, pending.kind, pending.key


def _bytes(entry: StoredPending) -> int:
    return len(entry.pending.arguments) + len(entry.pending.message) + len(entry.made)
