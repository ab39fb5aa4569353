"""What calls wait for, kept in memory: bounded, expiring, for any number of event loops and threads."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..core import Answer, Asked, Pending, PendingKind, SetupError, ToolError

_REMEMBERED_S = 3600.0
"""How long what has expired is still known, so that a late answer is told that it is late."""

_Question = tuple[str, PendingKind, str]


class MemoryPendings:
    """A PendingStore for one process: what waits is lost with it.

    At most *size* are kept, *per_principal* of one principal, with *size_bytes* of arguments and schemas in all. Where
    there is no room, what has ended goes first; then no more calls are let wait.
    """

    def __init__(self, *, size: int = 10_000, per_principal: int = 1_000, size_bytes: int = 64 * 1024 * 1024) -> None:
        if min(size, per_principal, size_bytes) < 1:
            raise SetupError("The bounds of MemoryPendings are numbers of at least 1.")
        self._size = size
        self._per_principal = per_principal
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._kept: dict[str, Asked] = {}
        self._by_question: dict[_Question, list[str]] = {}
        self._by_principal: Counter[str] = Counter()
        self._bytes = 0

    async def open(self, pending: Pending, /, *, now_s: float) -> Pending:
        with self._lock:
            for asked in self._about(pending.digest, pending.kind, pending.key):
                if asked.state == "open" and asked.pending.expires_s > now_s:
                    return asked.pending
            self._require_room(pending, now_s)
            self._keep(Asked(pending))
            return pending

    async def get(self, id: str, /) -> Asked | None:  # noqa: A002
        with self._lock:
            return self._kept.get(id)

    async def answer(self, id: str, answer: Answer, /, *, by: str, now_s: float) -> bool:  # noqa: A002
        with self._lock:
            asked = self._kept.get(id)
            if asked is None or asked.state != "open" or asked.pending.expires_s <= now_s:
                return False
            self._kept[id] = replace(asked, state="answered", answer=answer, by=by)
            return True

    async def take(self, digest: str, kind: PendingKind, key: str, /, *, now_s: float) -> Asked | None:
        with self._lock:
            for asked in self._about(digest, kind, key):
                if asked.state == "answered" and asked.pending.expires_s > now_s:
                    # The answer goes with the call: it may be a password, and nobody else needs it.
                    self._kept[asked.pending.id] = replace(asked, state="taken", answer=None)
                    return replace(asked, state="taken")
            return None

    async def give_back(self, asked: Asked, /) -> None:
        with self._lock:
            self._keep(replace(asked, state="answered"))

    async def waiting(self, *, now_s: float) -> Sequence[Pending]:
        with self._lock:
            return [
                asked.pending
                for asked in self._kept.values()
                if asked.state == "open" and asked.pending.expires_s > now_s
            ]

    def __repr__(self) -> str:
        return f"<MemoryPendings: {len(self._kept)}>"

    # With the lock held

    def _about(self, digest: str, kind: PendingKind, key: str) -> list[Asked]:
        return [self._kept[id] for id in self._by_question.get((digest, kind, key), ())]  # noqa: A001

    def _keep(self, asked: Asked) -> None:
        pending = asked.pending
        if pending.id not in self._kept:
            self._by_question.setdefault((pending.digest, pending.kind, pending.key), []).append(pending.id)
            self._by_principal[pending.principal] += 1
            self._bytes += _bytes(pending)
        self._kept[pending.id] = asked

    def _drop(self, pending: Pending) -> None:
        del self._kept[pending.id]
        question = (pending.digest, pending.kind, pending.key)
        self._by_question[question].remove(pending.id)
        if not self._by_question[question]:
            del self._by_question[question]
        self._by_principal[pending.principal] -= 1
        if not self._by_principal[pending.principal]:
            del self._by_principal[pending.principal]
        self._bytes -= _bytes(pending)

    def _require_room(self, pending: Pending, now_s: float) -> None:
        self._clear(now_s - _REMEMBERED_S, ended=False)
        if self._has_room(pending):
            return
        self._clear(now_s, ended=True)
        if not self._has_room(pending):
            raise ToolError(
                "Too many calls wait for an answer, and no more are let wait. Try again when they have been answered.",
                "limited",
            )

    def _has_room(self, pending: Pending) -> bool:
        return (
            len(self._kept) < self._size
            and self._by_principal[pending.principal] < self._per_principal
            and self._bytes + _bytes(pending) <= self._size_bytes
        )

    def _clear(self, expired_s: float, *, ended: bool) -> None:
        """Drop what expired before *expired_s*, and, if *ended*, what was used."""
        if not ended:
            # In order of arrival, which is nearly that of expiry: mostly this looks at one.
            for asked in list(self._first(32)):
                if asked.pending.expires_s > expired_s:
                    return
                self._drop(asked.pending)
            return
        for asked in list(self._kept.values()):
            if asked.pending.expires_s <= expired_s or asked.state == "taken":
                self._drop(asked.pending)

    def _first(self, number: int) -> list[Asked]:
        return [asked for asked, _ in zip(self._kept.values(), range(number), strict=False)]


def _bytes(pending: Pending) -> int:
    return len(pending.arguments) + len(pending.message) + len(str(pending.schema or ""))
