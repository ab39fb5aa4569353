"""A store in memory for what calls wait for: bounded, expiring, for any number of event loops and threads."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ..core import Answer, Pending, PendingKind, SetupError, StoredPending, ToolError

_REMEMBERED = timedelta(hours=1)
"""How long what has expired is still known, so that a late answer gets the reason."""

_Question = tuple[str, PendingKind, str]


class MemoryPendings:
    """A PendingStore for one process: what waits is lost with it.

    At most *size* are stored, *per_principal* of one principal, with *size_bytes* of arguments and schemas in all.
    Where there is no room, what has ended goes first; then no more calls may wait.
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

    async def open(self, pending: Pending, /, *, now: datetime) -> Pending:
        with self._lock:
            for stored in self._about(pending.digest, pending.kind, pending.key):
                if stored.state == "open" and stored.pending.expires_at > now:
                    return stored.pending
            self._require_room(pending, now)
            self._store(StoredPending(pending))
            return pending

    async def get(self, id: str, /) -> StoredPending | None:  # noqa: A002
        with self._lock:
            return self._stored.get(id)

    async def answer(self, id: str, answer: Answer, /, *, by: str, now: datetime) -> bool:  # noqa: A002
        with self._lock:
            stored = self._stored.get(id)
            if stored is None or stored.state != "open" or stored.pending.expires_at <= now:
                return False
            self._stored[id] = replace(stored, state="answered", answer=answer, by=by)
            return True

    async def take(self, digest: str, kind: PendingKind, key: str, /, *, now: datetime) -> StoredPending | None:
        with self._lock:
            for stored in self._about(digest, kind, key):
                if stored.state == "answered" and stored.pending.expires_at > now:
                    # The answer goes with the call: it may be a password, and nobody else needs it.
                    self._stored[stored.pending.id] = replace(stored, state="taken", answer=None)
                    return replace(stored, state="taken")
            return None

    async def give_back(self, stored: StoredPending, /) -> None:
        with self._lock:
            self._store(replace(stored, state="answered"))

    async def waiting(self, *, now: datetime) -> Sequence[Pending]:
        with self._lock:
            return [
                stored.pending
                for stored in self._stored.values()
                if stored.state == "open" and stored.pending.expires_at > now
            ]

    def __repr__(self) -> str:
        return f"<MemoryPendings: {len(self._stored)}>"

    # With the lock held

    def _about(self, digest: str, kind: PendingKind, key: str) -> list[StoredPending]:
        return [self._stored[id] for id in self._by_question.get((digest, kind, key), ())]  # noqa: A001

    def _store(self, stored: StoredPending) -> None:
        pending = stored.pending
        if pending.id not in self._stored:
            self._by_question.setdefault((pending.digest, pending.kind, pending.key), []).append(pending.id)
            self._by_principal[pending.principal] += 1
            self._bytes += _bytes(pending)
        self._stored[pending.id] = stored

    def _drop(self, pending: Pending) -> None:
        del self._stored[pending.id]
        question = (pending.digest, pending.kind, pending.key)
        self._by_question[question].remove(pending.id)
        if not self._by_question[question]:
            del self._by_question[question]
        self._by_principal[pending.principal] -= 1
        if not self._by_principal[pending.principal]:
            del self._by_principal[pending.principal]
        self._bytes -= _bytes(pending)

    def _require_room(self, pending: Pending, now: datetime) -> None:
        self._clear(now - _REMEMBERED, ended=False)
        if self._has_room(pending):
            return
        self._clear(now, ended=True)
        if not self._has_room(pending):
            raise ToolError(
                "Too many calls wait for an answer, and no more may wait. Try again when they have been answered.",
                "limited",
            )

    def _has_room(self, pending: Pending) -> bool:
        return (
            len(self._stored) < self._size
            and self._by_principal[pending.principal] < self._per_principal
            and self._bytes + _bytes(pending) <= self._size_bytes
        )

    def _clear(self, expired_at: datetime, *, ended: bool) -> None:
        """Drop what expired before *expired_at*, and, if *ended*, what was used."""
        if not ended:
            # In order of arrival, which is nearly that of expiry: mostly this looks at one.
            for stored in list(self._first(32)):
                if stored.pending.expires_at > expired_at:
                    return
                self._drop(stored.pending)
            return
        for stored in list(self._stored.values()):
            if stored.pending.expires_at <= expired_at or stored.state == "taken":
                self._drop(stored.pending)

    def _first(self, number: int) -> list[StoredPending]:
        return [stored for stored, _ in zip(self._stored.values(), range(number), strict=False)]


def _bytes(pending: Pending) -> int:
    return len(pending.arguments) + len(pending.message) + len(str(pending.schema or ""))
