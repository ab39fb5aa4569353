"""What is yet to be announced of a store: tasks that have ended or are lost, and calls that begin to wait for a person.

There is no row for it but the one that it is about, so it is there if and only if that was committed. `hook_at` is when
it is due, and NULL for nothing; while a process sends it, it lies ahead: that is the lease. `hook_tries` counts these.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, Table, bindparam

from ..core import Pending, SetupError
from ..machinery import LedgerEntry
from .ledger import IS_LATE, SELECT, Now
from .tables import LEDGER, PENDINGS, decode_time

if TYPE_CHECKING:
    from .database import Row
    from .store import Store

Topic = Literal["tasks", "pending"]
HOOK_LEASE_S = 30.0
_URL = re.compile(r"https?://(?P<host>\[[\da-fA-F:.]+\]|[^\[\]/?#@:\s]+)(:\d+)?([/?#].*)?$")
_SECRET = re.compile(r"whsec_([A-Za-z0-9+/]{4}){8,21}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")

_t, _p = LEDGER.c, PENDINGS.c
_ENDED_OR_LOST = SELECT.where(_t.hook_at <= Now(), (_t.state == "ended") | IS_LATE).order_by(_t.hook_at)
_OPEN = PENDINGS.select().where(_p.hook_at <= Now(), _p.state == "open", _p.expires_at > Now()).order_by(_p.hook_at)
_DUE: dict[Topic, tuple[Table, Any]] = {
    "tasks": (LEDGER, _ENDED_OR_LOST.limit(bindparam("count"))),
    "pending": (PENDINGS, _OPEN.limit(bindparam("count"))),
}


@dataclass(frozen=True, slots=True, repr=False)
class Webhook:
    """A receiver at *url*, and the *secret* that signs what it gets: `whsec_` and 24 to 64 bytes in base64.

    Where its host is a name, that must lead to public addresses, or be among *allow*, as `toolcrib.net.client` takes
    them. *base_url* is that of the HTTP API, for the addresses in messages. Raises SetupError.
    """

    url: str
    secret: str
    base_url: str | None = None
    allow: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not _URL.match(self.url):
            raise SetupError("The URL of a webhook begins with https:// and a host, without a user name.")
        if not _SECRET.fullmatch(self.secret):
            raise SetupError(
                "A webhook needs a secret that signs its messages: 'whsec_' and 24 to 64 bytes in base64, as from: "
                "echo whsec_$(openssl rand -base64 32)"
            )

    @property
    def host(self) -> str:
        return _URL.sub(lambda match: match["host"].strip("[]"), self.url)

    def __repr__(self) -> str:
        return f"<Webhook at {self.host}>"


class Outbox:
    """What the processes with *store* announce: each row is claimed by one of them at a time."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    async def claim(self, topic: Topic, count: int) -> "list[Row]":
        """Claim at most *count* rows that are due. Each is due again after a lease, unless `settle` says otherwise."""
        table, due = _DUE[topic]
        if not await self._store.read(due, {"count": 1}):
            return []
        lease = table.update().values(hook_at=Now() + int(HOOK_LEASE_S * 1e6), hook_tries=table.c.hook_tries + 1)

        def claim(connection: Connection) -> "list[Row]":
            rows = connection.execute(due, {"count": count}).mappings().fetchall()
            columns = [table.c[name] for name in ("id", "state", "hook_tries")]
            updates = [(row, lease.where(*(column == row[column.name] for column in columns))) for row in rows]
            return [row for row, update in updates if connection.execute(update).rowcount]

        return await self._store.transact(claim)

    def subject(self, topic: Topic, row: "Row") -> tuple[LedgerEntry | Pending, datetime]:
        """Return what the claimed *row* is about, and when it was opened or lost. Raises StoreError."""
        if topic == "pending":
            return self._store.pendings._decode(row).pending, decode_time(row["opened_at"])  # pyright: ignore[reportPrivateUsage] - a friend
        return self._store.ledger._decode(row, is_brief=True), decode_time(row["lease_until"])  # pyright: ignore[reportPrivateUsage]

    async def settle(self, topic: Topic, row: "Row", *, retry_s: float | None = None) -> None:
        """Have the claimed *row* due again in *retry_s*, or no more. Nothing happens where the lease was lost."""
        table, _ = _DUE[topic]
        own = (table.c.id == row["id"], table.c.hook_tries == row["hook_tries"] + 1)
        update = table.update().where(*own).values(hook_at=None if retry_s is None else Now() + int(retry_s * 1e6))
        await self._store.transact(lambda connection: connection.execute(update).rowcount)
