"""Events: a log of who asked, answered and ran what, which cannot be rewritten in silence.

Rows change; events are only appended, in the transaction of what they are about. Each process has a chain of its own:
an event has a hash over its fields and the event before. Checkpoints, signed by the store's key, say how far a chain
has got. They are a chain themselves, one over all processes: so the end of a chain that is missing is noticed, and a
whole one. What is deleted leaves a stub, signed too, in which the hash remains.
"""

import hashlib
import json
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import getpid
from secrets import token_hex
from threading import Lock
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from .keys import Keys, ciphers
from .tables import Schema, encode_name, hold_lock, table

EVENTS = table(
    "toolcrib_events",
    *("number", "chain", "position", "at", "principal", "fields", "hash", "stub", "signature"),
    key=("number",),
)
"""`fields` are JSON. A `stub` is of as many events, up to its own; it has no fields. `number` is only for the order.
Checkpoints and stubs are of no principal."""

LOG = Schema(
    "events",
    [
        (
            """CREATE TABLE toolcrib_events (
                number {number}, chain TEXT NOT NULL, position BIGINT NOT NULL, at BIGINT NOT NULL,
                principal TEXT, fields TEXT, hash TEXT NOT NULL, stub BIGINT, signature TEXT,
                UNIQUE (chain, position))""",
            "CREATE INDEX toolcrib_events_stubs ON toolcrib_events (number) WHERE stub IS NOT NULL",
        ),
    ],
    principals={EVENTS: "principal"},
)

CHECKPOINTS = ""
"""The name of the chain of checkpoints. Others have random ones."""
CHECKPOINT_INTERVAL_S = 1.0
"""How long what is written in batches may be without a signature."""
REST_S = 3600.0
"""After which time without an event a chain has ended, and the next event begins another one."""

_t = EVENTS.c
_INSERT = {
    dialect: "INSERT INTO toolcrib_events (chain, position, at, principal, fields, hash, signature) "  # noqa: S608
    f"VALUES ({', '.join([mark] * 7)})"
    for dialect, mark in (("sqlite", "?"), ("postgresql", "%s"))
}
_quoted = json.encoder.encode_basestring_ascii
_NEWEST_CHECKPOINT = select(_t.position, _t.hash).where(_t.chain == CHECKPOINTS).order_by(_t.position.desc()).limit(1)
_HASH = select(_t.hash).where(_t.chain == bindparam("of"), _t.position == bindparam("place"))
_ROW = EVENTS.select().where(_t.chain == bindparam("of"), _t.position == bindparam("place"))

Event = tuple[str, str]
"""The principal that it is about, encoded, and the fields, as JSON."""


def execute_many(connection: Connection, statements: Mapping[str, str], rows: Sequence[Any]) -> int:
    """Execute the one of *statements* for this database, by the driver: SQLAlchemy takes as long as all the rest.

    Return how many rows it has changed.
    """
    if not rows:
        return 0
    cursor = connection.connection.cursor()
    cursor.executemany(statements[connection.dialect.name], rows)
    return cursor.rowcount


def event_hash(previous: str, chain: str, position: int, at: int, principal: str | None, fields: str) -> str:
    """Return the hash of an event, after the one whose hash is *previous*."""
    # None of them has a NUL: names are encoded, and JSON has none.
    owner = "" if principal is None else f"={principal}"
    parts = f"{previous}\0{chain}\0{position}\0{at}\0{owner}\0{fields}"
    return hashlib.sha256(parts.encode(errors="surrogateescape")).hexdigest()


def fields_json(kind: str, fields: Mapping[str, Any]) -> str:
    """Return the fields of an event as JSON, without those that are None: as `json` does, in a third of the time."""
    parts = [
        f'"{name}":{_quoted(value) if type(value) is str else value if type(value) is int else json.dumps(value)}'
        for name, value in fields.items()
        if value is not None
    ]
    return f'{{"kind":"{kind}",{",".join(parts)}}}'


def hash_of(previous: str, row: Mapping[Any, Any]) -> str:
    """Return the hash of the event in *row*."""
    return event_hash(previous, *(row[name] for name in ("chain", "position", "at", "principal", "fields")))


def signed_part(row: Mapping[Any, Any], *, of_file: bool = False) -> bytes:
    """Return what the signature in *row*, a checkpoint or a stub, is of. A stub *of_file* is none in a store."""
    if row["stub"] is None:
        return signed_checkpoint(row["hash"])
    parts = (f"toolcrib {'export ' * of_file}stub", row["chain"], row["position"], row["at"], row["stub"], row["hash"])
    return "\0".join(map(str, parts)).encode(errors="surrogateescape")


def is_signed(data: bytes, signature: Any, public_keys: Iterable[bytes]) -> bool:
    """Return whether *signature*, as a row or a file has it, is of *data*, by one of *public_keys*."""
    for key in public_keys:
        with suppress(ciphers.InvalidSignature, ValueError, TypeError):
            ciphers.Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(signature), data)
            return True
    return False


def signed_checkpoint(name: str) -> bytes:
    """Return what the signature of the checkpoint with this hash is of."""
    return f"toolcrib checkpoint\0{name}".encode()


class Events:
    """The events of a store; those of this process are appended."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._chains: dict[int, _Chain] = {}
        self._added: dict[Connection, list[Event]] = {}
        self._unhurried: set[Connection] = set()

    def add(self, connection: Connection, kind: str, *, principal: str, **fields: Any) -> None:
        """Append an event of *kind*, about a call or a grant of *principal*, when this transaction is committed.

        None stands for what is not known. What could be tried out is only in as a keyed digest: a `digest`, which
        binds an approval, is made one here. Secrets are redacted before.
        """
        if (digest := fields.get("digest")) is not None:
            fields["digest"] = self._keys.digest(digest.encode())
        self._added.setdefault(connection, []).append((encode_name(principal), fields_json(kind, fields)))

    def add_batch(self, connection: Connection, events: Sequence[Event]) -> None:
        """Append *events*; their checkpoint may come a second later, with others, or by `Database.sign_events`."""
        if events:
            self._unhurried.add(connection)
            self._added.setdefault(connection, []).extend(events)

    @property
    def are_signed(self) -> bool:
        """Whether a checkpoint has all events of this process."""
        return self._chain.signed

    @contextmanager
    def committed(self, connection: Connection) -> Generator[None]:
        """Append what was added to *connection*, which is to be committed in this block."""
        events, is_unhurried = self._added.pop(connection, None), connection in self._unhurried
        self._unhurried.discard(connection)
        if events is None:
            yield
        else:
            with self._chain.appended(connection, events, at_once=not is_unhurried):
                yield

    def sign(self, connection: Connection) -> None:
        """Add a checkpoint, if there are events without one, when this transaction is committed."""
        self._added.setdefault(connection, [])

    def roll_back(self, connection: Connection) -> None:
        self._added.pop(connection, None)
        self._unhurried.discard(connection)

    @property
    def _chain(self) -> "_Chain":
        # By process: what a child that was forked appends is not the parent's.
        pid = getpid()
        return self._chains.get(pid) or self._chains.setdefault(pid, _Chain(self._keys))

    def trim(self, connection: Connection, *, oldest: int, max_count: int, most: int) -> bool:
        """Replace the first events, and checkpoints, by a stub for each chain. Return whether there are more to go.

        Those from before *oldest* go, and what there is beyond *max_count*; at most *most*. What was changed stays.
        """
        live = _t.stub.is_(None) | (_t.stub < _t.position)
        columns = (_t.number, _t.chain, _t.position, _t.at)
        rows = connection.execute(select(*columns).where(live).order_by(_t.number).limit(most)).fetchall()
        if not rows:
            return False
        excess = 0
        if rows[0].at >= oldest:
            excess = connection.execute(select(func.count()).select_from(EVENTS)).scalar_one() - max_count
        ends: dict[str, Any] = {}
        for index, row in enumerate(rows):
            if row.at >= oldest and index >= excess:
                break
            ends[row.chain] = row
        count = 0
        for row in ends.values():
            if self._stub(connection, row.chain, row.position, whole=True):
                of_chain = (_t.chain == row.chain, _t.position < row.position, _t.number < row.number)
                count += connection.execute(EVENTS.delete().where(*of_chain)).rowcount + 1
        if count:
            self._drop_stubs(connection, oldest)
        return count > 0 and len(rows) == most and ends[rows[-1].chain] == rows[-1]

    def _drop_stubs(self, connection: Connection, oldest: int) -> None:
        """Delete stubs of chains that have ended, and that no checkpoint names any more."""
        later, names = EVENTS.alias().c, EVENTS.alias().c
        goes_on = select(later.number).where(later.chain == _t.chain, later.position > _t.position).exists()
        oldest_name = (
            select(names.at).where(names.chain == CHECKPOINTS, names.stub.is_(None)).order_by(names.position).limit(1)
        )
        until = func.coalesce(oldest_name.scalar_subquery(), oldest) - int(2 * REST_S * 1e6)
        is_whole = (_t.stub.is_not(None), _t.stub == _t.position, _t.chain != CHECKPOINTS)
        connection.execute(EVENTS.delete().where(*is_whole, _t.at < until, _t.at < oldest, ~goes_on))

    def forget(self, connection: Connection, principal: str, after: int, most: int) -> tuple[int, int]:
        """Replace events of *principal* by stubs, at most *most* *after* a number. Return how many, and their last."""
        query = select(_t.number, _t.chain, _t.position).where(_t.principal == encode_name(principal))
        rows = connection.execute(query.where(_t.number > after).order_by(_t.number).limit(most)).fetchall()
        for number, chain, position in rows:
            if not self._stub(connection, chain, position):
                # It was changed: it goes all the same, without a signature.
                connection.execute(EVENTS.update().where(_t.number == number).values(principal=None, fields=None))
        return len(rows), rows[-1].number if rows else after

    def _stub(self, connection: Connection, chain: str, position: int, *, whole: bool = False) -> bool:
        """Replace an event by a stub, unless it was changed; *whole*: a stub of all up to it."""
        row = connection.execute(_ROW, {"of": chain, "place": position}).mappings().first()
        if row is None or not self._is_sound(connection, row):
            return False
        stub = stub_of(self._keys, row, position if whole else 1)
        where = (_t.chain == chain, _t.position == position)
        return connection.execute(EVENTS.update().where(*where).values(stub)).rowcount == 1

    def _is_sound(self, connection: Connection, row: Mapping[Any, Any]) -> bool:
        """Return whether *row* is as it was written: else a stub of it would be a signature under what was changed."""
        if row["stub"] is not None or row["chain"] == CHECKPOINTS:
            if not is_signed(signed_part(row), row["signature"], self._keys.public_keys()):
                return False
            if row["stub"] is not None:
                return True
        previous = connection.execute(_HASH, {"of": row["chain"], "place": row["position"] - 1}).scalar()
        return bool(hash_of(previous or "", row) == row["hash"])

    def exported(self, connection: Connection, since: int | None) -> Iterator[dict[str, Any]]:
        """Yield all events as rows, in the order in which they were written; before those of a chain from before
        *since*, a stub of them.
        """
        firsts: dict[str, int] = {}
        if since is not None:
            positions = select(_t.chain, func.min(_t.position)).where(_t.at >= since, _t.stub.is_(None))
            firsts = dict(map(tuple, connection.execute(positions.group_by(_t.chain))))
            ends = connection.execute(select(_t.chain, func.max(_t.position)).group_by(_t.chain)).fetchall()
            for chain, end in ends:
                if not isinstance(end, int):  # it was damaged, and is shown as it is
                    firsts.pop(chain, None)
                    continue
                firsts.setdefault(chain, end + 1)
                row = connection.execute(_ROW, {"of": chain, "place": firsts[chain] - 1}).mappings().first()
                if row is not None and self._is_sound(connection, row):
                    yield {**row, **stub_of(self._keys, row, row["position"], of_file=True)}
        query = EVENTS.select().order_by(_t.number).execution_options(stream_results=True, yield_per=1_000)
        for row in connection.execute(query).mappings():
            if row["chain"] not in firsts or row["position"] >= firsts[row["chain"]]:
                yield dict(row)


def stub_of(keys: Keys, row: Mapping[Any, Any], count: int, *, of_file: bool = False) -> dict[str, Any]:
    """Return what of *row* becomes another value where it becomes a stub of *count* events."""
    values = {"principal": None, "fields": None, "stub": count}
    return values | {"signature": keys.sign(signed_part({**row, **values}, of_file=of_file)).hex()}


class _Chain:
    """The chain of this process. Its head is in memory: what is deleted behind it is noticed."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._turn = Lock()  # from the first event of a transaction until it is committed
        self._line = (0, "")  # its own last checkpoint: position and hash
        self._begin()

    def _begin(self) -> None:
        self._name = token_hex(8)
        self._head = (0, "")  # position and hash
        self._signed, self._signed_at, self._added_at = 0, 0.0, time.monotonic()
        self._tried: tuple[int, str] | None = None
        """The head of a transaction of which it is not known whether it was committed."""

    @property
    def signed(self) -> bool:
        return self._signed == self._head[0]

    @contextmanager
    def appended(self, connection: Connection, events: Sequence[Event], *, at_once: bool) -> Generator[None]:
        with self._turn:
            now = time.monotonic()
            self._find_head(connection)
            if now - self._added_at > REST_S:
                self._begin()
            position, head = self._head
            rows: list[tuple[Any, ...]] = []
            at = time.time_ns() // 1000
            for event in events:
                position += 1
                row = (self._name, position, at, *event)
                head = event_hash(head, *row)
                rows.append((*row, head, None))
            if rows:
                execute_many(connection, _INSERT, rows)
                self._added_at = now
            is_due = position > self._signed and (at_once or now - self._signed_at >= CHECKPOINT_INTERVAL_S)
            line = self._add_checkpoint(connection, position, head) if is_due else self._line
            self._tried = (position, head)
            yield
            self._head, self._tried, self._line = (position, head), None, line
            if is_due:
                self._signed, self._signed_at = position, now

    def _find_head(self, connection: Connection) -> None:
        """Look whether the last transaction was committed, where its answer was lost."""
        if self._tried is not None:
            position, head = self._tried
            if connection.execute(_HASH, {"of": self._name, "place": position}).scalar() == head:
                self._head = self._tried
            self._tried = None

    def _add_checkpoint(self, connection: Connection, position: int, head: str) -> tuple[int, str]:
        """Add a checkpoint of this chain. Return its own place and hash."""
        hold_lock(connection, b"line")
        newest = connection.execute(_NEWEST_CHECKPOINT).first()
        # Its own, where those after it were deleted: so there is a gap.
        last, previous = self._line
        if newest is not None and newest.position > last:
            last, previous = newest
        fields = fields_json("checkpoint", {"chain": self._name, "position": position, "head": head})
        row = (CHECKPOINTS, last + 1, time.time_ns() // 1000, None, fields)
        name = event_hash(previous, *row)
        signature = self._keys.sign(signed_checkpoint(name)).hex()
        execute_many(connection, _INSERT, [(*row, name, signature)])
        return last + 1, name
