"""The database example, on real SQLite files."""

import contextlib
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from toolcrib import Call, Result, Workbench

Ask = Callable[..., Awaitable[Result[Any]]]

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database whose path and names need care."""
    path = tmp_path / "what? a #1 file%20.db"
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.executescript("""
            CREATE TABLE authors (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
            CREATE TABLE "odd ""table" (a BLOB, b REAL, "author id" INTEGER REFERENCES authors (id));
            CREATE VIEW names AS SELECT name FROM authors;
            INSERT INTO authors VALUES (1, 'Ursula Le Guin'), (2, 'Stanisław Lem'), (3, 'Octavia Butler');
            INSERT INTO "odd ""table" VALUES (x'00ff', 9e999, 1), (CAST(x'ff41' AS TEXT), NULL, NULL);
        """)
    monkeypatch.setenv("TOOLCRIB_EXAMPLE_DATABASE", str(path))
    return path


@pytest.fixture
async def ask(database: Path, examples: Path, asking: Callable[[Workbench], Ask]) -> AsyncIterator[Ask]:
    async with Workbench([examples / "database.py"]) as bench:
        yield asking(bench)


def failure(result: Result[Any]) -> tuple[str, str]:
    assert result.error is not None, result.text
    return result.error.code, result.error.message


async def test_tables_and_views_are_listed(ask: Ask) -> None:
    tables = (await ask("list_tables")).unwrap().tables
    assert [(table.name, table.kind) for table in tables] == [
        ("authors", "table"),
        ("names", "view"),
        ('odd "table', "table"),
    ]


async def test_a_query_takes_parameters_and_says_when_there_is_more(ask: Ask) -> None:
    sql = "SELECT id, name FROM authors WHERE id > ? ORDER BY id"
    first = await ask("query", sql=sql, parameters=[0], limit=2)
    assert first.unwrap().model_dump() == {
        "columns": ["id", "name"],
        "rows": [[1, "Ursula Le Guin"], [2, "Stanisław Lem"]],
        "more": True,
    }
    assert (await ask("query", sql=sql, parameters=[1], limit=2)).unwrap().more is False


WRITES = """
DELETE FROM authors
INSERT INTO authors (name) VALUES ('x') RETURNING id
WITH x AS (SELECT 9) INSERT INTO authors (id, name) SELECT 9, 'x' FROM x
DROP TABLE authors
CREATE TABLE t (a)
CREATE TEMP TABLE t (a)
CREATE TEMP TABLE t AS SELECT 1
SELECT load_extension('x')
PRAGMA query_only = OFF
PRAGMA writable_schema = ON
PRAGMA journal_mode = WAL
BEGIN
VACUUM
ATTACH ? AS other
VACUUM INTO ?
"""


async def test_what_does_more_than_read_is_denied(ask: Ask, database: Path, tmp_path: Path) -> None:
    before = database.read_bytes()
    for sql in WRITES.strip().splitlines():
        parameters = [str(tmp_path / "new.db")] if "?" in sql else []
        refused = "denied", "Statements here may only read: send one SELECT."
        assert failure(await ask("query", sql=sql, parameters=parameters)) == refused, sql
        assert database.read_bytes() == before
        assert list(tmp_path.iterdir()) == [database]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("UPDATE sqlite_master SET sql = 'x'", "table sqlite_master may not be modified"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT hex(zeroblob(900000000))", "string or blob too big"),
        ("SELECT nme FROM authors", "no such column: nme"),
        ("SELECT ?", "Incorrect number of bindings"),
        ("SELECT 'a\0b'", "null character"),
        ("-- nothing", "gives no rows"),
        ("", "gives no rows"),
    ],
)
async def test_what_sqlite_cannot_run_is_refused_in_its_words(ask: Ask, sql: str, reason: str) -> None:
    code, message = failure(await ask("query", sql=sql))
    assert code == "invalid_arguments"
    assert reason in message


async def test_virtual_tables_and_a_look_at_the_plan_work(ask: Ask) -> None:
    assert (await ask("query", sql="SELECT value FROM json_each('[1, 2]')")).unwrap().rows == [[1], [2]]
    assert (await ask("query", sql="EXPLAIN QUERY PLAN SELECT * FROM authors")).status == "success"


async def test_an_endless_query_is_stopped_at_the_deadline_and_frees_the_database(
    database: Path, examples: Path
) -> None:
    async with Workbench([examples / "database.py"]) as bench:
        begun = monotonic()
        assert failure(await bench.call(Call("query", {"sql": ENDLESS}, timeout_s=0.5)))[0] == "timeout"
        # It waits for the connection, so it only works because the statement was stopped as well.
        assert (await bench.call("query", {"sql": "SELECT 1"})).unwrap().rows == [[1]]
        assert monotonic() - begun < 30


@pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc")
async def test_calls_at_once_share_one_read_only_connection_which_is_closed_at_the_end(
    database: Path, examples: Path
) -> None:
    import fcntl

    def ways_opened() -> list[int]:
        ways = []
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if link.readlink() == database:
                    ways.append(fcntl.fcntl(int(link.name), fcntl.F_GETFL) & os.O_ACCMODE)
        return ways

    async with Workbench([examples / "database.py"]) as bench:
        calls = [Call("query", {"sql": "SELECT count(*), ? FROM authors", "parameters": [n]}) for n in range(50)]
        results = await bench.call_many(calls)
        assert [result.unwrap().rows for result in results] == [[[3, n]] for n in range(50)]
        assert ways_opened() == [os.O_RDONLY]
    assert ways_opened() == []


@pytest.mark.parametrize("content", [None, b"this is no database, however long it may be" * 100])
async def test_the_error_for_a_database_that_cannot_be_opened_names_the_setting(
    tmp_path: Path, examples: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    path = tmp_path / "other.db"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("TOOLCRIB_EXAMPLE_DATABASE", str(path))
    async with Workbench([examples / "database.py"]) as bench:
        code, message = failure(await bench.call("list_tables"))
        assert code == "unavailable"
        assert message.endswith("Name an SQLite file in TOOLCRIB_EXAMPLE_DATABASE.")
    assert path.exists() is (content is not None)


def test_a_model_sees_neither_the_connection_nor_the_context(examples: Path) -> None:
    specs = {spec.name: spec for spec in Workbench([examples / "database.py"]).specs()}
    assert list(specs["query"].input_schema["properties"]) == ["sql", "parameters", "limit"]
    assert list(specs["list_tables"].input_schema["properties"]) == []
