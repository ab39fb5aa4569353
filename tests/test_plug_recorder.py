"""A recorder that the package does not know: a table of SQLite, written in a thread."""

import asyncio
import sqlite3
from pathlib import Path

from toolcrib import Approve, Caller, Crib, tool
from toolcrib.core import CallRecord, Recorder

ran: list[list[tuple[str, str]]] = []


class SqliteRecorder(Recorder):
    with_content = True

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.connect() as connection:
            connection.execute("CREATE TABLE calls (id PRIMARY KEY, tool, principal, status, code, arguments, result)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    async def started(self, record: CallRecord, /) -> None:
        await asyncio.to_thread(self.write, record)

    async def finished(self, record: CallRecord, /) -> None:
        await asyncio.to_thread(self.write, record)

    def write(self, record: CallRecord) -> None:
        connection = self.connect()
        with connection:
            connection.execute(
                "INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(record.call_id, record.tool, record.caller.principal, record.status, record.code),
                    *(record.arguments, record.result),
                ),
            )
        connection.close()

    def rows(self, columns: str) -> list[tuple[str, ...]]:
        connection = self.connect()
        try:
            return connection.execute(f"SELECT {columns} FROM calls ORDER BY rowid").fetchall()
        finally:
            connection.close()


async def test_the_start_is_written_before_the_work_and_the_end_after_it(tmp_path: Path) -> None:
    recorder = SqliteRecorder(tmp_path / "calls.db")

    @tool
    async def login(user: str, key: str) -> str:
        during.extend(recorder.rows("tool, status, arguments"))
        return f"{user} is in, with {key}"

    @tool
    async def fail() -> None:
        raise ValueError

    during: list[tuple[str, ...]] = []
    async with Crib([login, fail], recorder=recorder, secrets=["s3cret-key"]) as crib:
        bench = crib.workbench(Caller("alice"))
        await bench.call("login", {"user": "al", "key": "s3cret-key"})
        await bench.call("fail")
        await bench.call("nothing")
        await bench.call("login", '{"user": "\ud800"')
    assert during == [("login", "started", '{"user": "al", "key": "[secret]"}')]
    assert recorder.rows("tool, principal, status, code") == [
        ("login", "alice", "success", None),
        ("fail", "alice", "error", "failed"),
        ("nothing", "alice", "error", "unknown_tool"),
        ("login", "alice", "error", "invalid_arguments"),
    ]
    assert recorder.rows("result")[0] == ("al is in, with [secret]",)


async def test_calls_that_wait_and_calls_at_the_same_time_are_recorded_once_each(tmp_path: Path) -> None:
    recorder = SqliteRecorder(tmp_path / "calls.db")

    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with Crib([add], recorder=recorder, policy=lambda *_: "ask") as crib:
        bench = crib.workbench()
        pending = (await bench.call(add, 1, 2)).pending
        assert pending is not None
        await bench.answer(pending.id, Approve(), by="bob")
        await asyncio.gather(bench.call(add, 1, 2), bench.call(add, 3, 4))
    assert sorted(recorder.rows("status")) == [("pending",), ("pending",), ("success",)]
