"""Leases: one holder of a name at a time, over all processes that share a store.

A lease ends by itself, so a holder that was killed does not hold it for ever. One that was only slow may find that it
has lost it: the *fence* counts the holders of a name, and `still_held`, in the transaction that writes what the lease
was for, refuses all holders but the last. Time is the database's.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection

from ..core import SetupError
from .database import Database, Now, by_dialect
from .tables import LEASES, encode_name

_FIRST_S, _LONGEST_S = 0.01, 0.25

_t = LEASES.c
_ACQUIRE = by_dialect(
    "INSERT INTO toolcrib_leases AS held (name, owner, fence, expires_at) "
    "VALUES (:name, :owner, 1, {now} + :life) ON CONFLICT (name) DO UPDATE "
    "SET owner = excluded.owner, fence = held.fence + 1, expires_at = excluded.expires_at "
    "WHERE held.expires_at <= {now} RETURNING fence"
)


@dataclass(frozen=True, slots=True)
class Lease:
    """A name that *owner* holds. *fence* is higher than that of every holder before."""

    name: str
    owner: str
    fence: int


class Leases:
    """The leases of *store*."""

    def __init__(self, store: Database) -> None:
        self._store = store

    async def acquire(self, name: str, owner: str, *, for_s: float) -> Lease | None:
        """Return the lease of *name* for so many seconds; None where it is held, also by *owner*."""
        values = {"name": encode_name(name), "owner": encode_name(owner), "life": _micros(for_s)}
        fence = await self._store.transact(lambda c: c.execute(_ACQUIRE[c.dialect.name], values).scalar())
        return None if fence is None else Lease(name, owner, fence)

    async def renew(self, lease: Lease, *, for_s: float) -> bool:
        """Hold *lease* for so many seconds from now. False where it was lost."""
        return await self._store.transact(lambda connection: _extended(connection, lease, for_s))

    async def release(self, lease: Lease) -> None:
        """Let others have it now. Nothing happens where it was lost."""
        end = LEASES.update().where(*_is(lease)).values(expires_at=0)
        await self._store.execute(end)

    @asynccontextmanager
    async def hold(self, name: str, owner: str, *, for_s: float, wait_s: float) -> AsyncGenerator[Lease | None]:
        """Hold *name* in the block, and wait for it that long before; None where others held it all the time."""
        lease = await retried(partial(self.acquire, name, owner, for_s=for_s), wait_s)
        try:
            yield lease
        finally:
            if lease is not None:
                await asyncio.shield(self.release(lease))

    @staticmethod
    def still_held(connection: Connection, lease: Lease) -> bool:
        """Return whether *lease* is held in the transaction of *connection*, and stays so until that ends."""
        return _extended(connection, lease, None)


async def retried(acquire: Callable[[], Awaitable[Lease | None]], wait_s: float) -> Lease | None:
    """Return what *acquire* returns, asked again for that long; None where others held it all the time."""
    give_up = time.monotonic() + wait_s
    pause = _FIRST_S
    while (lease := await acquire()) is None and time.monotonic() < give_up:
        # Not in step with the others who wait.
        await asyncio.sleep(min(pause * random.uniform(0.5, 1.5), max(0.0, give_up - time.monotonic())))  # noqa: S311
        pause = min(pause * 1.5, _LONGEST_S)
    return lease


def _extended(connection: Connection, lease: Lease, for_s: float | None) -> bool:
    until: Any = _t.expires_at if for_s is None else Now() + _micros(for_s)
    # An update, also where nothing changes: it locks the row.
    update = LEASES.update().where(*_is(lease), _t.expires_at > Now()).values(expires_at=until)
    return connection.execute(update).rowcount == 1


def _is(lease: Lease) -> tuple[Any, ...]:
    return _t.name == encode_name(lease.name), _t.owner == encode_name(lease.owner), _t.fence == lease.fence


def _micros(for_s: float) -> int:
    if not 0 < for_s < 86_400:
        raise SetupError("A lease is for more than 0 seconds and less than a day.")
    return int(for_s * 1_000_000)
