"""The tables of the rooms, and their versions.

A room declares its migrations; a store applies those that a database lacks, in one transaction, under a lock.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, inspect

from ..core import StoreError

_VERSIONS = "CREATE TABLE IF NOT EXISTS toolcrib_versions (room TEXT PRIMARY KEY, version BIGINT NOT NULL)"
_FOUND = "SELECT room, version FROM toolcrib_versions"
_TYPES = {
    "sqlite": {"bytes": "BLOB", "number": "INTEGER PRIMARY KEY AUTOINCREMENT"},
    "postgresql": {"bytes": "BYTEA", "number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"},
}


@dataclass(frozen=True, slots=True)
class Sealed:
    """A column of envelopes, and what each of them is bound to, given its row. NULL is not an envelope."""

    table: Table
    column: str
    binding: Callable[[Mapping[str, Any]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one *room*. Each of *migrations* is a few statements, and leads to the next version.

    What has been released is never changed: a change is another migration. In a statement, `{bytes}` is the type of
    binary data and `{number}` that of a primary key that counts up. Names of tables begin with `toolcrib_`. *sealed*
    are the columns that `Store.rotate_key` seals again.
    """

    room: str
    migrations: Sequence[Sequence[str]]
    sealed: Sequence[Sealed] = ()


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
