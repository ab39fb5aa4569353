"""A source that the package does not know: the queries that a database keeps, each of them a tool."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Crib, Result, Tool, Workbench, core


class Queries(core.Source):
    """The queries in the table `queries` of *file*. One that is kept there later is offered from then on."""

    required = False
    restart_after_s = 0.01

    def __init__(self, file: Path) -> None:
        self.file = file
        self.db: sqlite3.Connection | None = None
        self._sql: dict[str, str] = {}

    async def start(self) -> None:
        if not self.file.exists():
            raise FileNotFoundError("there is no such database")
        self.db = sqlite3.connect(self.file, isolation_level=None)
        self._sql = dict(self.db.execute("SELECT name, sql FROM queries"))
        self.changed()

    async def stop(self) -> None:
        if self.db is not None:
            self.db.close()
            self.db = None

    def keep(self, name: str, sql: str) -> None:
        assert self.db is not None
        self.db.execute("INSERT INTO queries VALUES (?, ?)", (name, sql))
        self._sql[name] = sql
        self.changed()

    def tools(self) -> list[Tool]:
        return [Tool(self._asking(sql), name=name, description=sql) for name, sql in self._sql.items()]

    def _asking(self, sql: str) -> Any:
        async def ask(value: int) -> list[tuple[Any, ...]]:
            assert self.db is not None
            return self.db.execute(sql, (value,)).fetchall()

        return ask


async def until_called(bench: Workbench, name: str, code: str | None) -> Result[Any]:
    """The first result of the tool *name* that ends with *code*."""
    async with asyncio.timeout(60):
        while True:
            result = await bench.call(name, '{"value": "3"}')
            if (result.error and result.error.code) == code:
                return result
            await asyncio.sleep(0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with sqlite3.connect(made := tmp_path / "queries.db") as db:
        db.execute("CREATE TABLE queries (name, sql)")
        db.execute("INSERT INTO queries VALUES ('double', 'SELECT 2 * ?')")
    db.close()
    return made


async def test_its_tools_run_and_what_it_learns_later_is_offered(file: Path) -> None:
    async with Crib([queries := Queries(file)]) as crib:
        bench = crib.workbench()
        result = await until_called(bench, "double", None)
        assert (result.value, len(result.repairs)) == ([(6,)], 1)
        queries.keep("half", "SELECT ? / 2.0")
        assert (await until_called(bench, "half", None)).value == [(1.5,)]
        assert [spec.name for spec in bench.specs()] == ["double", "half"]
    assert queries.db is None


async def test_while_it_is_lost_the_tools_of_others_run_and_it_comes_back(file: Path) -> None:
    async def here() -> str:
        return "here"

    async with Crib([queries := Queries(file), here]) as crib:
        bench = crib.workbench()
        await until_called(bench, "double", None)
        file.rename(away := file.with_name("away.db"))
        queries.lost()
        await until_called(bench, "double", "unavailable")
        assert (await bench.call("here")).value == "here"
        assert ["there is no such database" in problem.reason for problem in bench.problems] == [True]
        away.rename(file)
        assert (await until_called(bench, "double", None)).value == [(6,)]
        assert bench.problems == []
