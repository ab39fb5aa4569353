"""Limits that all processes with a store share: rates, budgets, and places that a process which dies gives back.

A rate is one number in the database (the generic cell rate algorithm: when the next call is due at the latest rate),
and is asked for in one statement. So is a budget, of which a call takes more than one part. Places are leases, renewed
while their calls run. Time is the database's.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from secrets import token_hex

from sqlalchemy import Connection, delete, select

from ..core import StoreError
from ..machinery import create_lasting_task, from_any_thread, log_failure
from .database import Database, Now, by_dialect
from .leases import Lease, Leases, retried
from .ledger import DEFAULT_LEASE_S
from .tables import LEASES, PRUNE_INTERVAL, RATES, encode_name

PLACE_LEASE_S = DEFAULT_LEASE_S
"""After how many seconds a place of a process that has died is free again."""
MAX_TRIES = 4
"""How often a place is tried for that another process has just taken."""

_ADMIT = by_dialect(
    "INSERT INTO toolcrib_rates AS rate (name, principal, next_at) "
    "VALUES (:name, :principal, {now} + :interval) ON CONFLICT (name) DO UPDATE "
    "SET next_at = {greatest}(rate.next_at, {now}) + :interval "
    "WHERE {greatest}(rate.next_at, {now}) + :interval <= {now} + :window RETURNING next_at"
)
_WAIT = by_dialect("SELECT next_at + :interval - :window - {now} FROM toolcrib_rates WHERE name = :name")
_SPENT = select(RATES.c.name, (RATES.c.next_at - Now()).label("spent")).where(RATES.c.next_at > Now())
_SPEND = by_dialect(
    "INSERT INTO toolcrib_rates AS rate (name, principal, next_at) "
    "VALUES (:name, :principal, {now} + :interval) ON CONFLICT (name) DO UPDATE "
    "SET next_at = {least}({greatest}(rate.next_at, {now}) + :interval, {now} + :most) "
    "RETURNING next_at - :window - {now}"
)
_IS_FREE = (
    "FROM place LEFT JOIN toolcrib_leases held "
    "ON held.name = :name || CAST(number AS TEXT) AND held.expires_at > {now} WHERE held.name IS NULL"
)
_PLACES = "WITH RECURSIVE place(number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM place WHERE number + 1 < :size) "
_HAS_FREE = by_dialect(f"{_PLACES} SELECT number {_IS_FREE} LIMIT 1")
_TAKE = by_dialect(
    f"{_PLACES} INSERT INTO toolcrib_leases AS lease (name, owner, fence, expires_at) "
    f"SELECT :name || CAST(number AS TEXT), :owner, 1, {{now}} + :lease {_IS_FREE} "
    "ORDER BY random() LIMIT 1 ON CONFLICT (name) DO UPDATE "
    "SET owner = excluded.owner, fence = lease.fence + 1, expires_at = excluded.expires_at "
    "WHERE lease.expires_at <= {now} RETURNING name, fence"
)


class SharedLimits:
    """The limits of *store*. A name stands for one limit and who shares it."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._leases = Leases(store)
        self._owner = token_hex(8)
        self._held: dict[Lease, Callable[[], object]] = {}
        """The places that are renewed, and what gives each back on its loop, from any thread."""
        self._releasing: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._asked = 0

    @property
    def is_server(self) -> bool:
        """Whether the database is made for many processes."""
        return self._store.file is None

    async def admit(self, name: str, principal: str, *, burst: int, per_s: float) -> float:
        """Count a call, *burst* at once and *per_s* a second. Return 0.0, or in how many seconds there is room."""
        interval = max(1, round(1e6 / per_s))
        return await self.charge(name, principal, interval, burst * interval)

    async def charge(self, name: str, principal: str, cost: int, window: int, most: int | None = None) -> float:
        """Take *cost* of what is refilled in *window*, in microseconds. Return 0.0, or in how many seconds it fits.

        Where it does not, nothing is taken; with *most*, all the same, but no more than that in all. What is below 0
        is given back.
        """
        values = {"name": name, "principal": encode_name(principal), "interval": cost, "window": window, "most": most}
        self._asked += 1
        prunes = self._asked % PRUNE_INTERVAL == 1

        def charge(connection: Connection) -> float:
            dialect = connection.dialect.name
            if prunes:
                self._prune(connection)
            if most is not None:
                return max(0, int(connection.execute(_SPEND[dialect], values).scalar_one())) / 1e6
            if connection.execute(_ADMIT[dialect], values).scalar() is not None:
                return 0.0
            wait = connection.execute(_WAIT[dialect], values).scalar()
            return max(int(wait or 0), 1) / 1e6

        return await self._store.transact(charge)

    async def spent(self, names: Iterable[str]) -> dict[str, int]:
        """Return in how many microseconds those of *names* are whole again that are not."""
        query = _SPENT.where(RATES.c.name.in_([*names]))
        return {row["name"]: int(row["spent"]) for row in await self._store.fetch(query)}

    async def take(self, name: str, size: int, wait_s: float = 0.0) -> Lease | None:
        """Return one of *size* places, to be released; None where all are taken for *wait_s* seconds."""
        values = {"name": f"limit {name} ", "size": size, "owner": self._owner, "lease": int(PLACE_LEASE_S * 1e6)}
        lease = await self._take(values)
        if lease is None and wait_s > 0:
            lease = await retried(partial(self._take_if_free, values), wait_s)
        return lease

    async def _take_if_free(self, values: Mapping[str, object]) -> Lease | None:
        """Take no turn to write, of which SQLite has one, where all places are taken."""
        if self._store.file is not None and not await self._store.read(_HAS_FREE["sqlite"], values):
            return None
        return await self._take(values)

    async def _take(self, values: Mapping[str, object]) -> Lease | None:
        acquiring = create_lasting_task(self._acquire(values))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:  # the statement runs on, and may take it for a call that has ended
            acquiring.add_done_callback(self._release_acquired)
            raise

    async def _acquire(self, values: Mapping[str, object]) -> Lease | None:
        def acquire(connection: Connection) -> Lease | None:
            dialect = connection.dialect.name
            for _ in range(MAX_TRIES):
                row = connection.execute(_TAKE[dialect], values).first()
                if row is not None:
                    return Lease(row.name, self._owner, row.fence)
                if connection.execute(_HAS_FREE[dialect], values).first() is None:
                    break
            return None

        lease = await self._store.transact(acquire)
        if lease is None:
            return None
        self._held[lease] = from_any_thread(partial(self._begin_release, lease))
        if self._renewing is None or self._renewing.done():
            self._renewing = create_lasting_task(self._renew())
        return lease

    def _release_acquired(self, acquiring: "asyncio.Task[Lease | None]") -> None:
        if not acquiring.cancelled() and acquiring.exception() is None and (lease := acquiring.result()) is not None:
            self.release(lease)

    def release(self, lease: Lease) -> None:
        """Let another call have this place soon, from any thread.

        One that cannot be given back, as where its loop has ended, is free after its lease.
        """
        if (begin_release := self._held.pop(lease, None)) is not None:
            begin_release()

    def _begin_release(self, lease: Lease) -> None:
        task = create_lasting_task(self._release(lease))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _release(self, lease: Lease) -> None:
        try:
            await self._leases.release(lease)
        except StoreError as error:
            log_failure("A place in a shared limit was not given back, and is free after its lease", error, None)

    async def _renew(self) -> None:
        while self._held:
            await asyncio.sleep(PLACE_LEASE_S / 3)
            for lease in list(self._held):
                try:
                    await self._leases.renew(lease, for_s=PLACE_LEASE_S)
                except StoreError as error:
                    log_failure("A place in a shared limit could not be kept", error, None)

    def _prune(self, connection: Connection) -> None:
        """Delete what makes no difference any more."""
        connection.execute(delete(RATES).where(RATES.c.next_at <= Now()))
        connection.execute(delete(LEASES).where(LEASES.c.name.like("limit %"), LEASES.c.expires_at <= Now()))
