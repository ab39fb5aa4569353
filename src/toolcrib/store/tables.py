"""Tables: how rooms declare and migrate theirs, values as rows have them, and the tables of this room.

A room declares its migrations; a store applies those that a database lacks, in one transaction, under a lock.

What comes from a database is untrusted: whatever it is, decoding raises only ValueError. Tables are declared without
types, so that a row is read as it is, and a damaged one does not hide the others.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, inspect, text

from ..core import StoreError

_VERSIONS = "CREATE TABLE IF NOT EXISTS toolcrib_versions (room TEXT PRIMARY KEY, version BIGINT NOT NULL)"
_FOUND = "SELECT room, version FROM toolcrib_versions"
_TYPES = {
    "sqlite": {"bytes": "BLOB", "number": "INTEGER PRIMARY KEY AUTOINCREMENT"},
    "postgresql": {"bytes": "BYTEA", "number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"},
}
_EPOCH = datetime.fromtimestamp(0, UTC)
_ODD = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


BATCH = 200
"""How many of many rows a transaction reads or changes."""
PRUNE_INTERVAL = 256
"""How many writes come between two deletions of what has expired."""


def table(name: str, *columns: str, key: tuple[str, ...]) -> Table:
    """Return the table *name*, whose types are known to its migrations only.

    *key* are the columns of its primary key.
    """
    return Table(name, MetaData(), *(Column(column, primary_key=column in key, nullable=True) for column in columns))


@dataclass(frozen=True, slots=True)
class Sealed:
    """A column of envelopes, and what each of them is bound to, given its row. NULL is not an envelope."""

    table: Table
    column: str
    binding: Callable[[Mapping[str, Any]], Sequence[str]]
    is_secret: bool = False
    """Whether it is in no export."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one *room*. Each of *migrations* is a few statements, and leads to the next version.

    What has been released is never changed: a change is another migration. In a statement, `{bytes}` is the type of
    binary data and `{number}` that of a primary key that counts up. Names of tables begin with `toolcrib_`. *sealed*
    are the columns that `Store.rotate_key` seals again. *principals* has for every table the column that says
    whose a row is, by which it is exported and forgotten; None where rows are of no principal.
    """

    room: str
    migrations: Sequence[Sequence[str]]
    sealed: Sequence[Sealed] = ()
    principals: Mapping[Table, str | None] = field(default_factory=dict[Table, str | None])


def missing(connection: Connection, schemas: Iterable[Schema], place: str) -> Sequence[str]:
    """Return the rooms of *schemas* that have migrations which the database lacks.

    Raises StoreError where it is newer.
    """
    has_versions = inspect(connection).has_table("toolcrib_versions")
    rows = connection.exec_driver_sql(_FOUND) if has_versions else ()
    versions: dict[str, Any] = dict(map(tuple, rows))
    behind: list[str] = []
    for schema in schemas:
        version, newest = versions.get(schema.room, 0), len(schema.migrations)
        if not isinstance(version, int) or version < 0:
            raise StoreError(f"The store {place} cannot be used: the version of its '{schema.room}' tables is damaged.")
        if version > newest:
            raise StoreError(
                f"The store {place} is of a newer Toolcrib: its '{schema.room}' tables are at version {version}, "
                f"and {newest} is the newest known here. Update Toolcrib, or use another store."
            )
        if version < newest:
            behind.append(schema.room)
    return behind


def migrate(connection: Connection, schemas: Iterable[Schema]) -> None:
    """Bring the tables of *schemas* to their newest versions. To be called in a transaction, under a lock."""
    connection.exec_driver_sql(_VERSIONS)
    versions: dict[str, int] = dict(map(tuple, connection.exec_driver_sql(_FOUND)))
    types = _TYPES[connection.dialect.name]
    for schema in schemas:
        newest = len(schema.migrations)
        for statements in schema.migrations[versions.get(schema.room, 0) :]:
            for statement in statements:
                connection.exec_driver_sql(statement.format_map(types))
        if versions.get(schema.room, 0) < newest:
            mark = "?" if connection.dialect.name == "sqlite" else "%s"
            connection.exec_driver_sql(f"DELETE FROM toolcrib_versions WHERE room = {mark}", (schema.room,))  # noqa: S608
            connection.exec_driver_sql(f"INSERT INTO toolcrib_versions VALUES ({mark}, {mark})", (schema.room, newest))  # noqa: S608


# Values


def hold_lock(connection: Connection, lock: bytes) -> None:
    """Wait for *lock*, and hold it until the transaction ends: on PostgreSQL, for SQLite has one writer at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": int.from_bytes(lock)})


def encode_name(name: str) -> str:
    """Return *name* as text that every database takes: NULs, lone surrogates and backslashes escaped, one to one."""
    is_plain = name.isascii() and "\\" not in name and "\0" not in name  # looked up in a fifth of the time
    return name if is_plain else _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", name)


def decode_name(value: object) -> str:
    """Return the text that `encode_name` wrote."""
    if not isinstance(value, str):
        raise ValueError(f"a name is text, not {type(value).__name__}")
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), value) if "\\" in value else value


def encode_time(moment: datetime) -> int:
    """Return *moment*, an aware datetime, in microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def decode_time(value: object) -> datetime:
    """Return the moment that `encode_time` wrote, in UTC."""
    if not isinstance(value, int):
        raise ValueError(f"a time is a number, not {type(value).__name__}")
    try:
        return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        raise ValueError("a time out of range") from None


def decode_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"sealed data is bytes, not {type(value).__name__}")
    return value


# The tables of this room: pending calls, large results, leases, the ledger of calls with a key.
#
# Sealed are what a call runs with and asks, what was answered, steps and events of tasks, and results. In clear are the
# columns that rows are found by: names of tools, principals and threads, digests, times and states. Each envelope is
# bound to the clear columns that say whose it is and what it is about; not to states, which a result or an answer that
# opens must bear out, nor to who runs a task, and when.

PENDINGS = table(
    "toolcrib_pendings",
    *("number", "id", "digest", "kind", "question", "tool", "principal", "thread", "expires_at", "state"),
    *("answered_by", "size_bytes", "body", "answer", "opened_at", "hook_at", "hook_tries"),
    key=("number",),
)
RESULTS = table(
    "toolcrib_results",
    *("number", "handle", "principal", "thread", "tool", "stored_at", "expires_at", "size_bytes", "content"),
    key=("number",),
)
LEASES = table("toolcrib_leases", "name", "owner", "fence", "expires_at", key=("name",))
LEDGER = table(
    "toolcrib_ledger",
    *("id", "principal", "key", "digest", "tool", "thread", "idempotent", "state", "owner", "fence", "lease_until"),
    *("started_at", "expires_at", "body", "result", "is_task", "run_at", "attempts", "cancelled"),
    *("hook_at", "hook_tries", "definition"),
    key=("id",),
)
RATES = table("toolcrib_rates", "name", "principal", "next_at", key=("name",))
WAITS = table("toolcrib_waits", "task", "principal", "subject", key=("task", "subject"))
"""What tasks wait for: the id of a question, or of another task."""
STEPS = table("toolcrib_steps", "task", "principal", "position", "key", "value", key=("task", "position"))
TASK_EVENTS = table("toolcrib_task_events", "number", "task", "principal", "event", key=("number",))


APPROVALS = table(
    "toolcrib_approvals",
    *("number", "id", "principal", "thread", "rule", "given_by", "expires_at", "body"),
    key=("number",),
)


def of_pending(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("id", "digest", "kind", "question", "tool", "principal", "thread", "expires_at")
    return ("pending", *(str(row[name]) for name in names))


def of_approval(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("approval", *(str(row[name]) for name in ("id", "principal", "thread", "rule", "given_by", "expires_at")))


def of_answer(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("answer", str(row["answered_by"]), *of_pending(row))


def of_result(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("result", *(str(row[name]) for name in ("handle", "principal", "thread", "tool", "stored_at")))


def of_entry(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("id", "principal", "key", "digest", "tool", "thread", "idempotent", "started_at")
    return ("entry", *[str(row[name]) for name in names])


def of_end(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("end", *of_entry(row))


def of_step(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("step", *(str(row[name]) for name in ("task", "principal", "position", "key")))


def of_event(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("event", str(row["task"]), str(row["principal"]))


STORE = Schema(
    "store",
    [
        (
            """CREATE TABLE toolcrib_pendings (
                number {number}, id TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, kind TEXT NOT NULL,
                question TEXT NOT NULL, tool TEXT NOT NULL, principal TEXT NOT NULL, thread TEXT NOT NULL,
                expires_at BIGINT NOT NULL, state TEXT NOT NULL, answered_by TEXT, size_bytes BIGINT NOT NULL,
                body {bytes} NOT NULL, answer {bytes})""",
            "CREATE INDEX toolcrib_pendings_question ON toolcrib_pendings (digest, kind, question)",
            "CREATE INDEX toolcrib_pendings_expiry ON toolcrib_pendings (expires_at)",
            """CREATE TABLE toolcrib_results (
                number {number}, handle TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, thread TEXT NOT NULL,
                tool TEXT NOT NULL, stored_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, size_bytes BIGINT NOT NULL,
                content {bytes} NOT NULL)""",
            "CREATE INDEX toolcrib_results_caller ON toolcrib_results (principal, thread)",
            "CREATE INDEX toolcrib_results_expiry ON toolcrib_results (expires_at)",
            """CREATE TABLE toolcrib_leases (
                name TEXT PRIMARY KEY, owner TEXT NOT NULL, fence BIGINT NOT NULL, expires_at BIGINT NOT NULL)""",
        ),
        # With what bounds count: they are counted without a look at the rows.
        ("CREATE INDEX toolcrib_pendings_principal ON toolcrib_pendings (principal, number, state, size_bytes)",),
        (
            """CREATE TABLE toolcrib_ledger (
                id TEXT PRIMARY KEY, principal TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL,
                tool TEXT NOT NULL, thread TEXT NOT NULL, idempotent BIGINT NOT NULL, state TEXT NOT NULL,
                owner TEXT NOT NULL, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, started_at BIGINT NOT NULL,
                expires_at BIGINT NOT NULL, body {bytes} NOT NULL, result {bytes}, UNIQUE (principal, key))""",
            "CREATE INDEX toolcrib_ledger_expiry ON toolcrib_ledger (expires_at)",
            "CREATE INDEX toolcrib_ledger_running ON toolcrib_ledger (owner) WHERE state = 'running'",
        ),
        (
            "ALTER TABLE toolcrib_ledger ADD COLUMN is_task BIGINT NOT NULL DEFAULT 0",
            "ALTER TABLE toolcrib_ledger ADD COLUMN run_at BIGINT NOT NULL DEFAULT 0",
            "ALTER TABLE toolcrib_ledger ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0",
            "ALTER TABLE toolcrib_ledger ADD COLUMN cancelled BIGINT NOT NULL DEFAULT 0",
            "ALTER TABLE toolcrib_ledger ADD COLUMN waits_on TEXT",
            "CREATE INDEX toolcrib_ledger_due ON toolcrib_ledger (run_at) WHERE is_task = 1 AND state <> 'ended'",
            "CREATE INDEX toolcrib_ledger_waiting ON toolcrib_ledger (waits_on) WHERE state = 'waiting'",
            """CREATE TABLE toolcrib_steps (
                task TEXT NOT NULL, principal TEXT NOT NULL, position BIGINT NOT NULL, key TEXT NOT NULL,
                value {bytes} NOT NULL, PRIMARY KEY (task, position))""",
            """CREATE TABLE toolcrib_task_events (
                number {number}, task TEXT NOT NULL, principal TEXT NOT NULL, event {bytes} NOT NULL)""",
            "CREATE INDEX toolcrib_task_events_task ON toolcrib_task_events (task, number)",
        ),
        (
            """CREATE TABLE toolcrib_waits (
                task TEXT NOT NULL, principal TEXT NOT NULL, subject TEXT NOT NULL, PRIMARY KEY (task, subject))""",
            "CREATE INDEX toolcrib_waits_subject ON toolcrib_waits (subject)",
            """INSERT INTO toolcrib_waits (task, principal, subject)
                SELECT l.id, l.principal, p.id
                FROM toolcrib_ledger l JOIN toolcrib_pendings p ON p.digest = l.waits_on""",
            "DROP INDEX toolcrib_ledger_waiting",
            "ALTER TABLE toolcrib_ledger DROP COLUMN waits_on",
        ),
        (
            "ALTER TABLE toolcrib_pendings ADD COLUMN opened_at BIGINT",
            "ALTER TABLE toolcrib_pendings ADD COLUMN hook_at BIGINT",
            "ALTER TABLE toolcrib_pendings ADD COLUMN hook_tries BIGINT NOT NULL DEFAULT 0",
            "CREATE INDEX toolcrib_pendings_hook ON toolcrib_pendings (hook_at) WHERE hook_at IS NOT NULL",
            "ALTER TABLE toolcrib_ledger ADD COLUMN hook_at BIGINT",
            "ALTER TABLE toolcrib_ledger ADD COLUMN hook_tries BIGINT NOT NULL DEFAULT 0",
            "CREATE INDEX toolcrib_ledger_hook ON toolcrib_ledger (hook_at) WHERE hook_at IS NOT NULL",
        ),
        ("CREATE TABLE toolcrib_rates (name TEXT PRIMARY KEY, principal TEXT NOT NULL, next_at BIGINT NOT NULL)",),
        ("CREATE INDEX toolcrib_ledger_open ON toolcrib_ledger (principal) WHERE is_task = 1 AND state <> 'ended'",),
        ("ALTER TABLE toolcrib_ledger ADD COLUMN definition TEXT NOT NULL DEFAULT ''",),
        (
            """CREATE TABLE toolcrib_approvals (
                number {number}, id TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, thread TEXT NOT NULL,
                rule TEXT NOT NULL, given_by TEXT NOT NULL, expires_at BIGINT NOT NULL, body {bytes} NOT NULL)""",
            "CREATE INDEX toolcrib_approvals_caller ON toolcrib_approvals (principal, thread, rule)",
        ),
    ],
    sealed=(
        Sealed(PENDINGS, "body", of_pending),
        Sealed(PENDINGS, "answer", of_answer),
        Sealed(APPROVALS, "body", of_approval),
        Sealed(RESULTS, "content", of_result),
        Sealed(LEDGER, "body", of_entry),
        Sealed(LEDGER, "result", of_end),
        Sealed(STEPS, "value", of_step),
        Sealed(TASK_EVENTS, "event", of_event),
    ),
    principals={
        **dict.fromkeys((PENDINGS, RESULTS, LEDGER, STEPS, TASK_EVENTS, WAITS, RATES, APPROVALS), "principal"),
        LEASES: None,
    },
)
