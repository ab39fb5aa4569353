"""What is yet to be announced of a store: tasks that have ended or are lost, and calls that begin to wait for a person.

There is no row for it but the one that it is about, so it is there if and only if that was committed. `hook_at` is when
it is due, and NULL for nothing; while a process sends it, it lies ahead: that is the lease. `hook_tries` counts these.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, bindparam, literal_column, select

from ..core import Pending
from ..machinery import LedgerEntry
from .database import Now, Row
from .ledger import DEFAULT_LEASE_S, IS_LATE, SELECT
from .tables import LEDGER, PENDINGS, decode_time
from .webhook import Topic

if TYPE_CHECKING:
    from .store import Store

HOOK_LEASE_S = 30.0

_t, _p = LEDGER.c, PENDINGS.c
_ENDED_OR_LOST = SELECT.where(_t.hook_at <= Now(), (_t.state == "ended") | IS_LATE).order_by(_t.hook_at)
_OPEN = PENDINGS.select().where(_p.hook_at <= Now(), _p.state == "open", _p.expires_at > Now()).order_by(_p.hook_at)
_DUE: dict[Topic, tuple[Table, Any]] = {
    "tasks": (LEDGER, _ENDED_OR_LOST.limit(bindparam("count"))),
    "pending": (PENDINGS, _OPEN.limit(bindparam("count"))),
}
# As the index `toolcrib_ledger_running` has it: no bound value.
_IS_LOST = (_t.state == literal_column("'running'")) & (_t.is_task == 1) & (_t.idempotent == 0) & IS_LATE
_IS_NEW = (_t.hook_at.is_(None), _t.hook_tries == 0)
_LOST = select(_t.id).where(_IS_LOST, *_IS_NEW).limit(1)
_ANNOUNCE_LOST = LEDGER.update().where(_IS_LOST, *_IS_NEW).values(hook_at=0)


class Outbox:
    """What the processes with *store* announce: each row is claimed by one of them at a time."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    async def claim(self, topic: Topic, count: int) -> list[Row]:
        """Claim at most *count* rows that are due. Each is due again after a lease, unless `settle` says otherwise."""
        table, due = _DUE[topic]
        if topic == "tasks" and await self._store.read(_LOST) and not self._store.was_away(DEFAULT_LEASE_S):
            await self._store.execute(_ANNOUNCE_LOST)
        if not await self._store.read(due, {"count": 1}):
            return []
        lease = table.update().values(hook_at=Now() + int(HOOK_LEASE_S * 1e6), hook_tries=table.c.hook_tries + 1)

        def claim(connection: Connection) -> list[Row]:
            rows = connection.execute(due, {"count": count}).mappings().fetchall()
            columns = [table.c[name] for name in ("id", "state", "hook_tries")]
            updates = [(row, lease.where(*(column == row[column.name] for column in columns))) for row in rows]
            return [row for row, update in updates if connection.execute(update).rowcount]

        return await self._store.transact(claim)

    def subject(self, topic: Topic, row: Row) -> tuple[LedgerEntry | Pending, datetime]:
        """Return what the claimed *row* is about, and when it was opened or lost. Raises StoreError."""
        if topic == "pending":
            return self._store.pendings._decode(row).pending, decode_time(row["opened_at"])  # pyright: ignore[reportPrivateUsage] - a friend
        return self._store.ledger._decode(row, is_brief=True), decode_time(row["lease_until"])  # pyright: ignore[reportPrivateUsage]

    async def settle(self, topic: Topic, row: Row, *, retry_s: float | None = None) -> None:
        """Have the claimed *row* due again in *retry_s*, or no more. Nothing happens where the lease was lost."""
        table, _ = _DUE[topic]
        own = (table.c.id == row["id"], table.c.hook_tries == row["hook_tries"] + 1)
        update = table.update().where(*own).values(hook_at=None if retry_s is None else Now() + int(retry_s * 1e6))
        await self._store.execute(update)
