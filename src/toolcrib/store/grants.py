"""A GrantStore in a database. Nothing is kept in memory, so a revoked grant counts nowhere from then on.

Of a row, only what opens is believed: one that was changed, or written by others, is logged, and grants nothing.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, or_, select

from ..core import Grant, StoreError
from ..machinery import require_grants_room
from .tables import APPROVALS, decode_bytes, decode_name, decode_time, encode_name, encode_time, of_approval

if TYPE_CHECKING:
    from .database import Database

_log = logging.getLogger("toolcrib")

_OPERATOR = "the operator"
"""Who revokes a grant by the command, as events name them: no principal of a key or an issuer has a space."""
_t = APPROVALS.c
_FIND = (
    APPROVALS.select()
    .where(_t.principal == bindparam("principal"), _t.thread == bindparam("thread"), _t.rule == bindparam("rule"))
    .order_by(_t.number)
)


class DatabaseGrants:
    """A GrantStore in *store*. What this process has seen expired stays so when the clock steps back."""

    def __init__(self, store: "Database") -> None:
        self._store = store
        self._now = datetime.min.replace(tzinfo=UTC)

    async def add(self, grant: Grant, /, *, now: datetime) -> None:
        await self._store.transact(lambda connection: self.insert(connection, grant, now), lock=b"gran")

    def insert(self, connection: Connection, grant: Grant, now: datetime) -> None:
        """Do the same as `add`, in a transaction."""
        connection.execute(APPROVALS.delete().where(_t.expires_at <= encode_time(now)))
        row = self._row(grant)
        count = select(func.count()).select_from(APPROVALS).where(_t.principal == row["principal"])
        require_grants_room(connection.execute(count).scalar_one())
        connection.execute(APPROVALS.insert(), row)
        self._add_event(connection, "granted", grant, grant.given_by)

    async def find(self, principal: str, thread: str, rule: str, /, *, now: datetime) -> Sequence[Grant]:
        values = {"principal": encode_name(principal), "thread": encode_name(thread), "rule": encode_name(rule)}
        return [grant for grant, _ in self._current(await self._store.read(_FIND, values), now)]

    async def page(
        self, *, now: datetime, of: str | None = None, after: int = 0, limit: int = 50
    ) -> tuple[Sequence[Grant], int | None]:
        query = APPROVALS.select().where(_t.number > after).order_by(_t.number).limit(limit + 1)
        query = query.where(_t.expires_at > encode_time(max(now, self._now)))
        query = query.where(*_those_of(of))
        rows = await self._store.transact(lambda c: c.execute(query).mappings().fetchall(), write=False)
        following = rows[limit - 1]["number"] if len(rows) > limit else None
        return [grant for grant, _ in self._current(rows[:limit], now)], following

    async def revoke(self, id: str, /, *, of: str | None = None) -> Grant | None:  # noqa: A002
        where = (_t.id == encode_name(id), *_those_of(of))

        def revoke(connection: Connection) -> Grant | None:
            row = connection.execute(APPROVALS.select().where(*where)).mappings().one_or_none()
            grant = None if row is None else self._decode(row)
            if row is not None:  # also one that does not open
                connection.execute(APPROVALS.delete().where(_t.number == row["number"]))
            if grant is not None:
                self._add_event(connection, "revoked", grant, of or _OPERATOR)
            return grant

        return await self._store.transact(revoke)

    def __repr__(self) -> str:
        return f"<DatabaseGrants in {self._store.place}>"

    def _current(self, rows: Iterable[Mapping[Any, Any]], now: datetime) -> Iterator[tuple[Grant, Mapping[Any, Any]]]:
        self._now = now = max(now, self._now)
        for row in rows:
            if (grant := self._decode(row)) is not None and grant.expires_at > now:
                yield grant, row

    def _add_event(self, connection: Connection, kind: str, grant: Grant, by: str) -> None:
        names = {"id": grant.id, "thread": grant.thread, "rule": grant.rule_name, "by": by}
        self._store.events.add(connection, kind, principal=grant.principal, **names, question="grant")

    def _row(self, grant: Grant) -> dict[str, Any]:
        names = ("id", "principal", "thread", "rule", "given_by")
        row: dict[str, Any] = {name: encode_name(getattr(grant, name)) for name in names}
        row["expires_at"] = encode_time(grant.expires_at)
        body = {"tools": dict(grant.tools), "where": dict(grant.where), "given_at": grant.given_at.isoformat()}
        return row | {"body": self._store.keys.seal(json.dumps(body).encode(), *of_approval(row))}

    def _decode(self, row: Mapping[Any, Any]) -> Grant | None:
        try:
            body = json.loads(self._store.keys.unseal(decode_bytes(row["body"]), *of_approval(row)))
            names = ("id", "principal", "thread", "rule", "given_by")
            return Grant(
                **{name: decode_name(row[name]) for name in names},
                tools=body["tools"],
                where=body["where"],
                given_at=datetime.fromisoformat(body["given_at"]),
                expires_at=decode_time(row["expires_at"]),
            )
        except (StoreError, ValueError, TypeError, KeyError, RecursionError) as error:
            _log.warning("A grant in the store %s is damaged, and grants nothing: %s", self._store.place, error)
            return None


def _those_of(principal: str | None) -> tuple[ColumnElement[bool], ...]:
    """Return the condition for grants that *principal* has, or has given; none where that is everybody."""
    name = None if principal is None else encode_name(principal)
    return () if name is None else (or_(_t.principal == name, _t.given_by == name),)
