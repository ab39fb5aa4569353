"""What threads remember, for all processes with a store. A fact is a row of RATES, which ends when it is forgotten."""

from collections.abc import Collection
from hashlib import sha256
from json import dumps
from typing import Any

from sqlalchemy import Connection, delete, select

from ..machinery import fact_of_call, life_s
from .database import Database, Now, by_dialect
from .tables import PRUNE_INTERVAL, RATES, encode_name

_t = RATES.c

_KEEP = (
    "INSERT INTO toolcrib_rates AS fact (name, principal, next_at) "
    "VALUES (:name, :principal, {now} + :life) ON CONFLICT (name) DO UPDATE SET next_at = {now} + :life"
)
_REMEMBER = by_dialect(_KEEP)
_TAKE = by_dialect(f"{_KEEP} WHERE fact.next_at <= {{now}} RETURNING name")


class DatabaseThreads:
    """A ThreadStore in *store*."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._writes = 0

    async def remember(self, principal: str, thread: str, facts: Collection[str], /) -> None:
        rows = [_row(principal, thread, fact) for fact in sorted(facts)]
        self._writes += 1
        prunes = self._writes % PRUNE_INTERVAL == 1

        def remember(connection: Connection) -> None:
            if prunes:
                connection.execute(delete(RATES).where(_t.next_at <= Now()))
            connection.execute(_REMEMBER[connection.dialect.name], rows)

        await self._store.transact(remember)

    async def recall(self, principal: str, thread: str, facts: Collection[str], /) -> frozenset[str]:
        names = {_row(principal, thread, fact)["name"]: fact for fact in facts}
        statement = select(_t.name).where(_t.name.in_(names), _t.next_at > Now())
        return frozenset(names[row["name"]] for row in await self._store.fetch(statement))

    async def take(self, principal: str, thread: str, name: str, most: int, /) -> bool:
        rows = [_row(principal, thread, fact_of_call(name, number)) for number in range(1, most + 1)]

        def take(connection: Connection) -> bool:
            statement = _TAKE[connection.dialect.name]
            return any(connection.execute(statement, row).scalar() is not None for row in rows)

        return await self._store.transact(take)

    async def clear(self, principal: str | None = None, thread: str | None = None, /) -> int:
        statement = delete(RATES).where(_t.name.like("thread %"))
        if principal is not None:
            statement = statement.where(_t.principal == encode_name(principal))
            if thread is not None:
                statement = statement.where(_t.name.like(f"{_prefix(principal, thread)}%"))
        return await self._store.execute(statement)

    def __repr__(self) -> str:
        return f"<DatabaseThreads in {self._store.place}>"


def _prefix(principal: str, thread: str) -> str:
    return f"thread {sha256(dumps([principal, thread]).encode()).hexdigest()} "


def _row(principal: str, thread: str, fact: str) -> dict[str, Any]:
    name = _prefix(principal, thread) + encode_name(fact)
    return {"name": name, "principal": encode_name(principal), "life": round(life_s(thread) * 1e6)}
