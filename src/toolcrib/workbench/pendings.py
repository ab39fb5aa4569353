"""A store in memory for what calls wait for: bounded, expiring, for any number of event loops and threads."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ..core import Answer, Pending, PendingKind, SetupError, ToolError
from ..machinery import StoredPending

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


def _question(pending: Pending) -> tuple[str, PendingKind, str]:
    return pending.digest, pending.kind, pending.key


def _bytes(entry: StoredPending) -> int:
    return len(entry.pending.arguments) + len(entry.pending.message) + len(entry.made)
