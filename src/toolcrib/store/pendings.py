"""A PendingStore in a database, and a GrantStore: what waits, what was answered, and what later calls may do for that.

It survives a restart and is shared by processes. Of a row, only what opens is believed. One that was damaged, moved,
marked as answered or written by others in the database is no answer and no grant: it is logged, and the call asks.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, or_, select

from ..core import Answer, AnswerError, Grant, Pending, PendingKind, SetupError, StoreError, ToolError
from ..machinery import StoredPending, answer_from, require_grants_room, room_for
from .ledger import wake
from .tables import (
    APPROVALS,
    PENDINGS,
    WAITS,
    decode_bytes,
    decode_name,
    decode_time,
    encode_name,
    encode_time,
    of_answer,
    of_approval,
    of_pending,
)

if TYPE_CHECKING:
    from .database import Database

_log = logging.getLogger("toolcrib")

_REMEMBERED = timedelta(hours=1)
"""How long what has expired is still known, so that a late answer gets the reason."""
_AT_ONCE = timedelta(seconds=1)
MAX_PLACE_CHARS = 18

_t = PENDINGS.c
_BY_ID = PENDINGS.select().where(_t.id == bindparam("id"))
_ABOUT = (
    PENDINGS.select()
    .where(_t.digest == bindparam("digest"), _t.kind == bindparam("kind"), _t.question == bindparam("question"))
    .where(_t.state == bindparam("state"), _t.expires_at > bindparam("now"))
    .order_by(_t.number)
)
_ANSWER = (
    PENDINGS.update()
    .where(_t.number == bindparam("row"), _t.state == "open", _t.expires_at > bindparam("now"))
    .values(state="answered", answered_by=bindparam("by"), answer=bindparam("sealed"))
)
_WAITING = PENDINGS.select().where(_t.state == "open").order_by(_t.number)  # the oldest first
_OF_TASK = select(WAITS.c.subject).where(WAITS.c.task == bindparam("task"))
_subject = PENDINGS.alias("subject").c
_DIGESTS = select(_subject.digest).where(_subject.id.in_(_OF_TASK))
_ASKED_BY = _WAITING.where(_t.expires_at > bindparam("now"), _t.digest.in_(_DIGESTS))
_SUMS = select(func.max(_t.number), func.count(), func.sum(_t.size_bytes)).where(_t.number > bindparam("last"))


_OPERATOR = "the operator"
"""Who revokes a grant by the command, as events name them: no principal of a key or an issuer has a space."""
_NAMES = ("id", "principal", "thread", "rule", "given_by")
_g = APPROVALS.c
_GRANTS = (
    APPROVALS.select()
    .where(_g.principal == bindparam("principal"), _g.thread == bindparam("thread"), _g.rule == bindparam("rule"))
    .order_by(_g.number)
)


class DatabasePendings:
    """A PendingStore in *store*: an answer is used once over all processes.

    At most *size* are stored, *per_principal* of one principal, with *size_bytes* of arguments and schemas in all.
    Where there is no room, what has ended goes first, then the oldest open call of the principal who holds the most.
    A new call of that principal may not wait.

    What this process has seen to be expired stays so when the clock steps back.
    """

    def __init__(
        self, store: "Database", *, size: int = 10_000, per_principal: int = 1_000, size_bytes: int = 64 * 1024 * 1024
    ) -> None:
        if min(size, per_principal, size_bytes) < 1:
            raise SetupError("The bounds of DatabasePendings are numbers of at least 1.")
        self._store = store
        self.grants = DatabaseGrants(store)
        self._size = size
        self._per_principal = per_principal
        self._size_bytes = size_bytes
        self._now = datetime.min.replace(tzinfo=UTC)  # that was seen last
        # The highest number, and at most so many rows and bytes up to it. What any process adds has higher numbers.
        self._sums = (0, 0, 0)

    async def open(self, pending: Pending, /, *, now: datetime, made: str = "") -> Pending:
        now = await self._see(now)
        about = _about(pending.digest, pending.kind, pending.key, "open", now)
        for entry, _ in self._decoded(await self._store.read(_ABOUT, about)):
            return entry.pending
        row = self._row(pending, made) | {"opened_at": encode_time(now)}
        if pending.kind in ("approval", "input") and "pending" in self._store.webhooks:
            row["hook_at"] = 0  # at once

        def insert(connection: Connection) -> tuple[Pending, tuple[int, int, int]]:
            for entry, _ in self._decoded(connection.execute(_ABOUT, about).mappings()):
                return entry.pending, self._sums
            sums = self._require_room(connection, row, now)
            connection.execute(PENDINGS.insert(), row)
            self._add_event(connection, "asked", pending)
            return pending, sums

        stored, self._sums = await self._store.transact(insert, lock=b"pend")
        return stored

    async def get(self, id: str, /) -> StoredPending | None:  # noqa: A002
        rows = await self._store.read(_BY_ID, {"id": encode_name(id)})
        return self._decode(rows[0]) if rows else None

    async def answer(
        self,
        id: str,  # noqa: A002
        answer: Answer,
        /,
        *,
        by: str,
        now: datetime,
        grant: Grant | None = None,
    ) -> bool:
        now = await self._see(now)
        rows = await self._store.read(_BY_ID, {"id": encode_name(id)})
        if not rows:
            return False
        row = rows[0]
        pending = self._decode(row).pending  # raises where it is damaged
        changes = self._answered(row, answer, by)
        answer_columns = {"by": changes["answered_by"], "sealed": changes["answer"]}
        values = {"row": row["number"], "now": encode_time(now), **answer_columns}

        def answer_and_wake(connection: Connection) -> bool:
            is_answered = connection.execute(_ANSWER, values).rowcount == 1
            if is_answered:  # with the task that waits for it, and what is granted: all, or none
                wake(connection, [row["id"]])
                if grant is not None:
                    self.grants.insert(connection, grant, now)
                kind, is_edited = answer.to_dict()["kind"], getattr(answer, "arguments", None) is not None
                self._add_event(connection, "answered", pending, decision=kind, edited=is_edited or None, by=by)
            return is_answered

        return await self._store.transact(answer_and_wake)

    async def answered(self, digest: str, kind: PendingKind, key: str, /, *, now: datetime) -> StoredPending | None:
        """Return what `take` would, and leave it there."""
        now = await self._see(now)
        rows = await self._store.read(_ABOUT, _about(digest, kind, key, "answered", now))
        return next((entry for entry, _ in self._decoded(rows)), None)

    async def take(self, digest: str, kind: PendingKind, key: str, /, *, now: datetime) -> StoredPending | None:
        now = await self._see(now)
        rows = await self._store.read(_ABOUT, _about(digest, kind, key, "answered", now))
        for entry, row in self._decoded(rows):
            # The answer goes with the call: it may be a password, and no other call needs it.
            where = (_t.number == row["number"], _t.state == "answered", _t.answer == row["answer"])
            update = PENDINGS.update().where(*where).values(state="taken", answer=None)
            if await self._store.execute(update) == 1:
                return replace(entry, state="taken")
        return None

    async def give_back(self, entry: StoredPending, /) -> None:
        row = self._row(entry.pending, entry.made)
        if entry.answer is None or entry.by is None:
            raise AnswerError("Only what was answered can be given back.", "invalid")
        row |= self._answered(row, entry.answer, entry.by)

        def put(connection: Connection) -> None:
            if not connection.execute(PENDINGS.update().where(_t.id == row["id"]).values(row)).rowcount:
                connection.execute(PENDINGS.insert(), row)

        await self._store.transact(put, lock=b"pend")

    async def waiting(self, *, now: datetime, principal: str | None = None) -> Sequence[Pending]:
        query = _WAITING.where(_t.expires_at > encode_time(await self._see(now)))
        query = query if principal is None else query.where(_t.principal == encode_name(principal))
        rows = await self._store.fetch(query)
        # In a thread that writes nothing: thousands of rows take as long as a slow call.
        return await asyncio.to_thread(lambda: [entry.pending for entry, _ in self._decoded(rows)])

    async def asked_by(self, task: str, /, *, now: datetime) -> Sequence[Pending]:
        """Return what *task* has asked people and waits for, the oldest first: the questions of a task share a digest.

        Also while another one of them was answered, and it runs for that.
        """
        values = {"task": encode_name(task), "now": encode_time(await self._see(now))}
        return [entry.pending for entry, _ in self._decoded(await self._store.read(_ASKED_BY, values))]

    async def page(
        self, after: str, limit: int, /, *, now: datetime, principal: str | None = None
    ) -> Sequence[tuple[str, Pending]]:
        """Return at most *limit* of what `waiting` does, after the one at the place *after*, each with its place.

        Raises ValueError for what is no place.
        """
        if not after.isascii() or len(after) > MAX_PLACE_CHARS:
            raise ValueError("not a place")
        query = _WAITING.where(_t.expires_at > encode_time(await self._see(now)), _t.number > int(after or 0))
        query = query if principal is None else query.where(_t.principal == encode_name(principal))
        rows = await self._store.fetch(query.limit(limit))
        return await asyncio.to_thread(
            lambda: [(str(row["number"]), entry.pending) for entry, row in self._decoded(rows)]
        )

    def __repr__(self) -> str:
        return f"<DatabasePendings in {self._store.place}>"

    async def _see(self, now: datetime) -> datetime:
        """Return *now*, or what was seen already, where that is less than a second later, as it is of tasks at once.

        Where the clock was set back further, what had expired stays so, for all processes.
        """
        seen = self._now
        if now < seen < now + _AT_ONCE:
            return seen
        self._now = now
        if now < seen:
            had_expired = (_t.expires_at <= encode_time(seen), _t.state.in_(("open", "answered")))
            update = PENDINGS.update().where(*had_expired).values(state="expired", answer=None, answered_by=None)
            await self._store.execute(update)
        return now

    def _add_event(self, connection: Connection, kind: str, pending: Pending, **fields: Any) -> None:
        names = {"id": pending.id, "tool": pending.tool, "thread": pending.thread, "question": pending.kind}
        self._store.events.add(connection, kind, principal=pending.principal, **names, **fields, digest=pending.digest)

    # Rows

    def _row(self, pending: Pending, made: str) -> dict[str, Any]:
        row: dict[str, Any] = {
            "id": encode_name(pending.id),
            "digest": encode_name(pending.digest),
            "kind": pending.kind,
            "question": encode_name(pending.key),
            "tool": encode_name(pending.tool),
            "principal": encode_name(pending.principal),
            "thread": encode_name(pending.thread),
            "expires_at": encode_time(pending.expires_at),
            "state": "open",
        }
        body = {
            "message": pending.message,
            "arguments": pending.arguments,
            "url": pending.url,
            "schema": None if pending.schema is None else dict(pending.schema),
            "others_only": pending.others_only,
            **({} if pending.approvers is None else {"approvers": pending.approvers}),
            **({"rule": pending.rule} if pending.rule else {}),
            **({"made": made} if made else {}),
        }
        data = json.dumps(body).encode()
        return row | {"size_bytes": len(data), "body": self._store.keys.seal(data, *of_pending(row))}

    def _answered(self, row: Mapping[Any, Any], answer: Answer, by: str) -> dict[str, Any]:
        row = {**row, "answered_by": encode_name(by)}
        try:
            data = json.dumps(answer.to_dict()).encode()
        except (TypeError, ValueError):
            raise AnswerError("An answer that is stored in a database is JSON data.", "invalid") from None
        envelope = self._store.keys.seal(data, *of_answer(row))
        return {"state": "answered", "answered_by": row["answered_by"], "answer": envelope}

    def _decode(self, row: Mapping[Any, Any]) -> StoredPending:
        """Return what *row* has. Raises StoreError where it is not as this class wrote it."""
        try:
            body = json.loads(self._store.keys.unseal(decode_bytes(row["body"]), *of_pending(row)))
            origin = str(body.pop("made", ""))
            pending = Pending(
                id=decode_name(row["id"]),
                kind=row["kind"],
                digest=decode_name(row["digest"]),
                key=decode_name(row["question"]),
                tool=decode_name(row["tool"]),
                principal=decode_name(row["principal"]),
                thread=decode_name(row["thread"]),
                expires_at=decode_time(row["expires_at"]),
                **body,
            )
            state = row["state"]
            if state == "open":
                return StoredPending(pending, made=origin)
            if state == "expired":
                return StoredPending(pending, "expired", made=origin)
            if state not in ("answered", "taken"):
                raise ValueError("an unknown state")
            answer = None
            if state == "answered":
                data = self._store.keys.unseal(decode_bytes(row["answer"]), *of_answer(row))
                answer = answer_from(json.loads(data))
            return StoredPending(pending, state, answer, decode_name(row["answered_by"]), origin)
        except (ValueError, TypeError, RecursionError, AnswerError) as error:
            raise StoreError(f"A pending call in the store {self._store.place} is damaged ({error}).") from None

    def _decoded(self, rows: Iterable[Mapping[Any, Any]]) -> Iterator[tuple[StoredPending, Mapping[Any, Any]]]:
        for row in rows:
            try:
                yield self._decode(row), row
            except StoreError as error:
                _log.warning("A pending call in the store %s is ignored: %s", self._store.place, error)

    def _require_room(self, connection: Connection, row: Mapping[str, Any], now: datetime) -> tuple[int, int, int]:
        """Delete what makes room for *row*. Return the new `_sums`, which count once this is committed."""
        old = _t.expires_at <= encode_time(now - _REMEMBERED)
        connection.execute(PENDINGS.delete().where(old))
        if (sums := self._sums_with_room(connection, row)) is not None:
            return sums
        has_ended = (_t.expires_at <= encode_time(now)) | _t.state.in_(("taken", "expired"))
        connection.execute(PENDINGS.delete().where(has_ended))
        columns = select(_t.number, _t.principal, _t.size_bytes, _t.state == "open").order_by(_t.number)
        rows: list[Any] = [tuple(stored) for stored in connection.execute(columns)]
        principal: str = row["principal"]
        going = room_for(principal, row["size_bytes"], rows, max_count=self._size, max_size=self._size_bytes)
        own_count = sum(owner == principal for _, owner, *_ in rows)
        if going is None or own_count >= self._per_principal:
            raise ToolError(
                "Too many calls wait for an answer, and no more may wait. Try again when they have been answered.",
                "limited",
            )
        for number in going:
            connection.execute(PENDINGS.delete().where(_t.number == number))
        return (0, 0, 0)

    def _sums_with_room(self, connection: Connection, row: Mapping[str, Any]) -> tuple[int, int, int] | None:
        """Return the new `_sums` where there is room for *row*; None where there is none."""
        own_count = select(func.count()).where(_t.principal == row["principal"])
        if connection.execute(own_count).scalar_one() >= self._per_principal:
            return None
        for base in (self._sums, (0, 0, 0)):  # all are counted where those since the last time might be too many
            last, count, size = connection.execute(_SUMS, {"last": base[0]}).one()
            sums = (last or base[0], base[1] + count, base[2] + int(size or 0))
            if sums[1] < self._size and sums[2] + row["size_bytes"] <= self._size_bytes:
                return sums
        return None


def _about(digest: str, kind: PendingKind, key: str, state: str, now: datetime) -> dict[str, Any]:
    return {
        "digest": encode_name(digest),
        "kind": kind,
        "question": encode_name(key),
        "state": state,
        "now": encode_time(now),
    }


class DatabaseGrants:
    """A GrantStore in *store*. Nothing is kept in memory, so a revoked grant counts nowhere from then on.

    What this process has seen expired stays so when the clock steps back.
    """

    def __init__(self, store: "Database") -> None:
        self._store = store
        self._now = datetime.min.replace(tzinfo=UTC)

    async def add(self, grant: Grant, /, *, now: datetime) -> None:
        await self._store.transact(lambda connection: self.insert(connection, grant, now), lock=b"gran")

    def insert(self, connection: Connection, grant: Grant, now: datetime) -> None:
        """Do the same as `add`, in a transaction."""
        connection.execute(APPROVALS.delete().where(_g.expires_at <= encode_time(now)))
        row = self._row(grant)
        count = select(func.count()).select_from(APPROVALS).where(_g.principal == row["principal"])
        require_grants_room(connection.execute(count).scalar_one())
        connection.execute(APPROVALS.insert(), row)
        self._add_event(connection, "granted", grant, grant.given_by)

    async def find(self, principal: str, thread: str, rule: str, /, *, now: datetime) -> Sequence[Grant]:
        values = {"principal": encode_name(principal), "thread": encode_name(thread), "rule": encode_name(rule)}
        return self._current(await self._store.read(_GRANTS, values), now)

    async def page(
        self, *, now: datetime, of: str | None = None, after: int = 0, limit: int = 50
    ) -> tuple[Sequence[Grant], int | None]:
        query = APPROVALS.select().where(_g.number > after).order_by(_g.number).limit(limit + 1)
        query = query.where(_g.expires_at > encode_time(max(now, self._now)), *_grants_of(of))
        rows = await self._store.fetch(query)
        following = rows[limit - 1]["number"] if len(rows) > limit else None
        return self._current(rows[:limit], now), following

    async def revoke(self, id: str, /, *, of: str | None = None) -> Grant | None:  # noqa: A002
        where = (_g.id == encode_name(id), *_grants_of(of))

        def revoke(connection: Connection) -> Grant | None:
            row = connection.execute(APPROVALS.select().where(*where)).mappings().one_or_none()
            grant = None if row is None else self._decode(row)
            if row is not None:  # also one that does not open
                connection.execute(APPROVALS.delete().where(_g.number == row["number"]))
            if grant is not None:
                self._add_event(connection, "revoked", grant, of or _OPERATOR)
            return grant

        return await self._store.transact(revoke)

    def __repr__(self) -> str:
        return f"<DatabaseGrants in {self._store.place}>"

    def _current(self, rows: Iterable[Mapping[Any, Any]], now: datetime) -> Sequence[Grant]:
        self._now = now = max(now, self._now)
        return [grant for row in rows if (grant := self._decode(row)) is not None and grant.expires_at > now]

    def _add_event(self, connection: Connection, kind: str, grant: Grant, by: str) -> None:
        names = {"id": grant.id, "thread": grant.thread, "rule": grant.rule_name, "by": by}
        self._store.events.add(connection, kind, principal=grant.principal, **names, question="grant")

    def _row(self, grant: Grant) -> dict[str, Any]:
        row: dict[str, Any] = {name: encode_name(getattr(grant, name)) for name in _NAMES}
        row["expires_at"] = encode_time(grant.expires_at)
        body = {"tools": dict(grant.tools), "where": dict(grant.where), "given_at": grant.given_at.isoformat()}
        return row | {"body": self._store.keys.seal(json.dumps(body).encode(), *of_approval(row))}

    def _decode(self, row: Mapping[Any, Any]) -> Grant | None:
        try:
            body = json.loads(self._store.keys.unseal(decode_bytes(row["body"]), *of_approval(row)))
            return Grant(
                **{name: decode_name(row[name]) for name in _NAMES},
                tools=body["tools"],
                where=body["where"],
                given_at=datetime.fromisoformat(body["given_at"]),
                expires_at=decode_time(row["expires_at"]),
            )
        except (StoreError, ValueError, TypeError, KeyError, RecursionError) as error:
            _log.warning("A grant in the store %s is damaged, and grants nothing: %s", self._store.place, error)
            return None


def _grants_of(principal: str | None) -> tuple[ColumnElement[bool], ...]:
    """Return the condition for grants that *principal* has, or has given; none where that is everybody."""
    name = None if principal is None else encode_name(principal)
    return () if name is None else (or_(_g.principal == name, _g.given_by == name),)
