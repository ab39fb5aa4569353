"""An SQLite database as tools: what tables there are, what is in one, and queries that only read.

The database is `TOOLCRIB_EXAMPLE_DATABASE`, else a small one of planets and moons made in `examples/.data`. Nothing a
model sends can change it, open another file or run without end: the file is opened read-only, SQLite asks `_allowed`
about every action of a statement, and stops a statement when its time is up.
"""

import contextlib
import difflib
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from toolcrib import Context, Depends, ToolError, tool

_LIMIT_S = 5.0
_CELL_CHARACTERS = 500
_TOTAL_CHARACTERS = 50_000
_DATA = Path(__file__).resolve().parent / ".data"

Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what SQLite can hold
Cell = str | Integer | float | None


class Table(BaseModel):
    name: str
    kind: Literal["table", "view"]


class Tables(BaseModel):
    tables: list[Table]


class Column(BaseModel):
    name: str
    type: str
    required: bool
    in_primary_key: bool
    references: Annotated[str | None, Field(description="The column elsewhere that it refers to: table.column.")]


class Description(BaseModel):
    name: str
    columns: list[Column]


class Rows(BaseModel):
    columns: list[str]
    rows: list[list[Cell]]
    more: Annotated[bool, Field(description="Whether there are more rows than these.")]


class Database:
    """One connection, for one thread at a time: sync tools run in worker threads, several at once."""

    def __init__(self, path: Path) -> None:
        self._one_at_a_time = threading.Lock()
        self._ends_at = 0.0
        self._connection = sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, check_same_thread=False, isolation_level=None, timeout=1
        )
        try:
            self._connection.text_factory = lambda text: text.decode(errors="replace")
            self._connection.execute("PRAGMA query_only = ON").close()
            self._connection.execute("PRAGMA schema_version").close()  # the first to read the file
        except sqlite3.Error:
            self._connection.close()
            raise
        # The deadline is looked at between the steps of a statement, not within one: instr() over a megabyte is a step
        # of ten seconds. So the longest text or blob, in bytes, is bounded too.
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        self._connection.set_authorizer(_allowed)
        self._connection.set_progress_handler(lambda: monotonic() > self._ends_at, 10_000)

    def rows(self, sql: str, parameters: list[Cell], context: Context, *, limit: int) -> Rows:
        """The first rows of a statement that reads. Raises ToolError for one that does not, fails or takes too long."""
        with self._one_at_a_time:
            time_left_s = context.time_left_s
            self._ends_at = monotonic() + (_LIMIT_S if time_left_s is None else min(_LIMIT_S, time_left_s))
            with contextlib.closing(self._connection.cursor()) as cursor:
                try:
                    cursor.execute(sql, parameters)
                    if cursor.description is None:
                        raise ToolError("This statement gives no rows. Send a SELECT.", "invalid_arguments")
                    return _bounded(cursor, limit)
                except (sqlite3.Error, ValueError) as error:
                    raise _to_tool_error(error) from None

    def close(self) -> None:
        with self._one_at_a_time:
            self._connection.close()


def open_database() -> Iterator[Database]:
    """The database the tools read, opened at the first call and closed with the workbench."""
    named = os.environ.get("TOOLCRIB_EXAMPLE_DATABASE")
    try:
        database = Database(Path(named).resolve() if named else _sample())
    except (sqlite3.Error, OSError) as error:
        raise ToolError(
            f"The database cannot be opened ({error}). Name an SQLite file in TOOLCRIB_EXAMPLE_DATABASE.", "unavailable"
        ) from None
    yield database
    database.close()


Opened = Annotated[Database, Depends(open_database)]


@tool(title="List tables", read_only=True, idempotent=True, open_world=False)
def list_tables(database: Opened, context: Context) -> Tables:
    """List the tables and views of the database."""
    sql = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE ? ORDER BY name"
    found = database.rows(sql, ["sqlite_%"], context, limit=1_000)
    return Tables(tables=[Table.model_validate({"name": name, "kind": kind}) for name, kind in found.rows])


@tool(title="Describe a table", read_only=True, idempotent=True, open_world=False)
def describe_table(database: Opened, context: Context, name: str) -> Description:
    """Tell the columns of a table or view, and what they refer to.

    Args:
        name: The table or view, as list_tables names it.
    """
    sql = """
        SELECT c.name, c.type, c."notnull", c.pk, f."table" || coalesce('.' || f."to", '')
        FROM pragma_table_xinfo(?1) AS c LEFT JOIN pragma_foreign_key_list(?1) AS f ON f."from" = c.name
        WHERE c.hidden != 1 ORDER BY c.cid
    """
    found = database.rows(sql, [name], context, limit=1_000).rows
    if not found:
        names = [table.name for table in list_tables(database, context).tables]
        near = ", ".join(difflib.get_close_matches(name[:100], names, n=3) or names[:10])
        raise ToolError(f"There is no table '{name[:100]}'. There is: {near or 'none'}.", "invalid_arguments")
    fields = ("name", "type", "required", "in_primary_key", "references")
    return Description(name=name, columns=[Column.model_validate(dict(zip(fields, row, strict=True))) for row in found])


@tool(title="Query the database", read_only=True, idempotent=True, open_world=False, timeout_s=20)
def query(
    database: Opened,
    context: Context,
    sql: Annotated[str, Field(max_length=10_000)],
    parameters: list[Cell] | None = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
) -> Rows:
    """Run one SELECT in SQLite's SQL. Long cells are cut, and bytes are given by their size alone.

    Args:
        sql: One statement that only reads.
        parameters: What stands for each `?` in the statement, in order.
        limit: The most rows to give.
    """
    return database.rows(sql, parameters or [], context, limit=limit)


_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_DESCRIBING = {"table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info"}


def _allowed(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in _DESCRIBING else sqlite3.SQLITE_DENY
    # SQLite announces its own note of a virtual table (json_each, full text) so; a real change cannot get past mode=ro.
    noting = action == sqlite3.SQLITE_UPDATE and first == "sqlite_master"
    reading = action in _READING and second != "load_extension"
    return sqlite3.SQLITE_OK if reading or noting else sqlite3.SQLITE_DENY


def _bounded(cursor: sqlite3.Cursor, limit: int) -> Rows:
    rows: list[list[Cell]] = []
    size, more = 0, False
    for row in cursor:
        cells = [_shown(cell) for cell in row]
        size += sum(len(cell) for cell in cells if isinstance(cell, str))
        more = len(rows) == limit or (size > _TOTAL_CHARACTERS and bool(rows))
        if more:
            break
        rows.append(cells)
    return Rows(columns=[column[0] for column in cursor.description], rows=rows, more=more)


def _shown(cell: str | int | float | bytes | None) -> Cell:
    if isinstance(cell, bytes):
        return f"<{len(cell)} bytes>"
    return f"{cell[:_CELL_CHARACTERS]}…" if isinstance(cell, str) and len(cell) > _CELL_CHARACTERS else cell


def _to_tool_error(error: Exception) -> ToolError:
    match "SQLITE_AUTH" if "not authorized" in str(error) else getattr(error, "sqlite_errorname", None):
        case "SQLITE_INTERRUPT":
            return ToolError("The statement took too long, and was stopped. Ask for less.", "timeout", retry="changed")
        case "SQLITE_AUTH":
            return ToolError("Statements here may only read: send one SELECT.", "denied", retry="changed")
        case "SQLITE_BUSY" | "SQLITE_LOCKED":
            return ToolError("The database is in use by another program. Try again.", "unavailable")
        case _:
            message = f"SQLite refused the statement: {str(error).rstrip('.')}."
            return ToolError(f"{message} list_tables and describe_table tell what there is.", "invalid_arguments")


def _sample() -> Path:
    made = _DATA / "planets.db"
    if not made.is_file():
        _DATA.mkdir(exist_ok=True)
        # Made aside and moved into place, so that nobody ever sees half of it.
        with tempfile.TemporaryDirectory(dir=_DATA) as folder:
            with contextlib.closing(sqlite3.connect(Path(folder) / "new.db")) as new:
                new.executescript(Path(__file__).with_name("planets.sql").read_text(encoding="utf-8"))
            (Path(folder) / "new.db").replace(made)
    return made
