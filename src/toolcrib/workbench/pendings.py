"""A store in memory for what calls wait for: bounded, expiring, for any number of event loops and threads."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from ..core import Answer, Pending, PendingKind, SetupError, StoredPending, ToolError

_REMEMBERED = timedelta(hours=1)
"""How long what has expired is still known, so that a late answer gets the reason."""

_ORDER = timedelta(seconds=1)
"""What is earlier by less comes from a thread that was slow, and not from a clock that stepped back."""

_Question = tuple[str, PendingKind, str]


class MemoryPendings:
    """A PendingStore for one process: what waits is lost with it.

    At most *size* are stored, *per_principal* of one principal, with *size_bytes* of arguments and schemas in all.
    Where there is no room, what has ended goes first; then no more calls may wait.

    What has expired stays expired when the clock steps back: the time that has passed is counted here.
    """

    def __init__(self, *, size: int = 10_000, per_principal: int = 1_000, size_bytes: int = 64 * 1024 * 1024) -> None:
        if min(size, per_principal, size_bytes) < 1:
            raise SetupError("The bounds of MemoryPendings are numbers of at least 1.")
        self._size = size
        self._per_principal = per_principal
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._stored: dict[str, StoredPending] = {}
        self._by_question: dict[_Question, list[str]] = {}
        self._by_principal: Counter[str] = Counter()
        self._bytes = 0
        self._now: datetime | None = None
        self._passed = timedelta()
        self._ends: dict[str, timedelta] = {}  # by id: how much time has passed then

    async def open(self, pending: Pending, /, *, now: datetime, made: str = "") -> Pending:
        with self._lock:
            self._pass(now)
            for stored in self._about(pending.digest, pending.kind, pending.key):
                if stored.state == "open" and not self._has_expired(stored.pending, now):
                    return stored.pending
            new = StoredPending(pending, made=made)
            self._require_room(new, now)
            self._store(new)
            return pending

    async def get(self, id: str, /) -> StoredPending | None:  # noqa: A002
        with self._lock:
            stored = self._stored.get(id)
            is_late = stored is not None and stored.state == "open" and self._ends[id] <= self._passed
            return replace(stored, state="expired") if stored is not None and is_late else stored

    async def answer(self, id: str, answer: Answer, /, *, by: str, now: datetime) -> bool:  # noqa: A002
        with self._lock:
            self._pass(now)
            stored = self._stored.get(id)
            if stored is None or stored.state != "open" or self._has_expired(stored.pending, now):
                return False
            self._stored[id] = replace(stored, state="answered", answer=answer, by=by)
            return True

    async def take(self, digest: str, kind: PendingKind, key: str, /, *, now: datetime) -> StoredPending | None:
        with self._lock:
            self._pass(now)
            for stored in self._about(digest, kind, key):
                if stored.state == "answered" and not self._has_expired(stored.pending, now):
                    # The answer goes with the call: it may be a password, and nobody else needs it.
                    self._stored[stored.pending.id] = replace(stored, state="taken", answer=None)
                    return replace(stored, state="taken")
            return None

    async def give_back(self, stored: StoredPending, /) -> None:
        with self._lock:
            self._store(replace(stored, state="answered"))

    async def waiting(self, *, now: datetime) -> Sequence[Pending]:
        with self._lock:
            self._pass(now)
            return [
                stored.pending
                for stored in self._stored.values()
                if stored.state == "open" and not self._has_expired(stored.pending, now)
            ]

    def __repr__(self) -> str:
        return f"<MemoryPendings: {len(self._stored)}>"

    # With the lock held

    def _pass(self, now: datetime) -> None:
        if self._now is not None and now > self._now:
            self._passed += now - self._now
        if self._now is None or now > self._now or self._now - now > _ORDER:
            self._now = now

    def _has_expired(self, pending: Pending, now: datetime) -> bool:
        return pending.expires_at <= now or self._ends[pending.id] <= self._passed

    def _about(self, digest: str, kind: PendingKind, key: str) -> list[StoredPending]:
        return [self._stored[id] for id in self._by_question.get((digest, kind, key), ())]  # noqa: A001

    def _store(self, stored: StoredPending) -> None:
        pending = stored.pending
        if pending.id not in self._stored:
            self._by_question.setdefault((pending.digest, pending.kind, pending.key), []).append(pending.id)
            self._by_principal[pending.principal] += 1
            self._bytes += _bytes(stored)
            self._ends[pending.id] = (
                timedelta.max if self._now is None else self._passed + (pending.expires_at - self._now)
            )
        self._stored[pending.id] = stored

    def _drop(self, stored: StoredPending) -> None:
        pending = stored.pending
        del self._stored[pending.id], self._ends[pending.id]
        question = (pending.digest, pending.kind, pending.key)
        self._by_question[question].remove(pending.id)
        if not self._by_question[question]:
            del self._by_question[question]
        self._by_principal[pending.principal] -= 1
        if not self._by_principal[pending.principal]:
            del self._by_principal[pending.principal]
        self._bytes -= _bytes(stored)

    def _require_room(self, new: StoredPending, now: datetime) -> None:
        self._clear(now - _REMEMBERED, ended=False)
        if self._has_room(new):
            return
        self._clear(now, ended=True)
        if not self._has_room(new):
            raise ToolError(
                "Too many calls wait for an answer, and no more may wait. Try again when they have been answered.",
                "limited",
            )

    def _has_room(self, new: StoredPending) -> bool:
        return (
            len(self._stored) < self._size
            and self._by_principal[new.pending.principal] < self._per_principal
            and self._bytes + _bytes(new) <= self._size_bytes
        )

    def _clear(self, expired_at: datetime, *, ended: bool) -> None:
        """Drop what expired before *expired_at*, and, if *ended*, what was used."""
        if not ended:
            # In order of arrival, which is nearly that of expiry: mostly this looks at one.
            for stored in list(islice(self._stored.values(), 32)):
                if stored.pending.expires_at > expired_at:
                    return
                self._drop(stored)
            return
        for stored in list(self._stored.values()):
            if stored.pending.expires_at <= expired_at or stored.state == "taken":
                self._drop(stored)


def _bytes(stored: StoredPending) -> int:
    pending = stored.pending
    return len(pending.arguments) + len(pending.message) + len(str(pending.schema or "")) + len(stored.made)
