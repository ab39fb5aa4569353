"""Calls with keys while their store is full, read-only, replaced, locked or away: nothing runs twice, and the caller
gets what docs/durable.md says."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from toolcrib import Approve, Result, Workbench, tool
from toolcrib.core import AnswerError, StoreError
from toolcrib.store import DatabaseLedger, Store, database
from toolcrib.workbench import Rule, Rules

from ..conftest import cut_off

Fault = Callable[[Store], Iterator[None]]


def full(store: Store) -> Iterator[None]:
    assert store.file is not None
    with closing(sqlite3.connect(store.file)) as other:
        (pages,) = other.execute("PRAGMA page_count").fetchone()
    yield from _with_pragma(store, f"max_page_count = {pages}", "max_page_count = 1000000")


def read_only(store: Store) -> Iterator[None]:
    yield from _with_pragma(store, "query_only = 1", "query_only = 0")


def replaced(store: Store) -> Iterator[None]:
    assert store.file is not None
    original = store.file.rename(store.file.with_name("original.db"))
    store.file.write_bytes(b"")
    yield
    original.replace(store.file)


def locked(store: Store) -> Iterator[None]:
    assert store.file is not None
    with closing(sqlite3.connect(store.file, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def _with_pragma(store: Store, pragma: str, end: str) -> Iterator[None]:
    """Run *pragma* on every connection that writes, now and later; at last *end* in its place."""
    process = store._process()
    assert process._engine is not None
    run = pragma

    def execute(connection: Any, *_: Any) -> None:
        connection.execute(f"PRAGMA {run}")

    def execute_on_writers() -> None:
        with process._writing:
            for connection in process._writers.values():
                execute(connection.connection.dbapi_connection)

    event.listen(process._engine, "checkout", execute)
    execute_on_writers()
    yield
    run = end
    execute_on_writers()


FAULTS = [full, read_only, replaced, locked]


@dataclass
class Bank:
    paid: list[str] = field(default_factory=list)
    fault: Callable[[], object] = lambda: None

    @tool
    async def pay(self, note: str) -> str:
        """Pay."""
        self.paid.append(note)
        await asyncio.to_thread(self.fault)
        return note

    @tool(idempotent=True)
    async def put(self, note: str) -> str:
        """Put."""
        return await Bank.pay(self, note)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(database, "_BUSY_S", 0.3)
    store = Store(tmp_path / "store.db")
    store.ledger = DatabaseLedger(store, lease_s=0.6)
    yield store
    store.close()


async def until_known(bench: Workbench, name: str, note: str, key: str = "k") -> Result[Any]:
    """Call again as long as that is what the caller is told to do."""
    async with asyncio.timeout(30):
        while True:
            result = await bench.call(name, {"note": note}, idempotency_key=key)
            if result.error is None or result.error.retry != "later":
                return result
            await asyncio.sleep(0.05)


NOTE = "x" * 100_000  # needs pages of its own


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_store_that_cannot_be_written_before_the_work(store: Store, fault: Fault) -> None:
    bank = Bank()
    async with Workbench([bank], store=store) as bench:
        await bench.call("pay", {"note": ""}, idempotency_key="opens the store")
        away = fault(store)
        next(away)
        result = await bench.call("pay", {"note": NOTE}, idempotency_key="k")
        next(away, None)
        assert result.error is not None
        assert (result.error.code, result.error.retry, bank.paid) == ("unavailable", "later", [""])
        assert (await until_known(bench, "pay", NOTE)).value == NOTE
    assert bank.paid == ["", NOTE]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["pay", "put"])
async def test_a_store_that_cannot_be_written_when_the_work_ends(store: Store, fault: Fault, name: str) -> None:
    bank = Bank()
    async with Workbench([bank], store=store) as bench:
        await bench.call("pay", {"note": ""}, idempotency_key="opens the store")
        away = fault(store)
        bank.fault = lambda: next(away)
        result = await bench.call(name, {"note": NOTE}, idempotency_key="k")
        bank.fault = lambda: None
        next(away, None)
        assert result.error is not None
        assert (result.error.code, bank.paid) == ("lost", ["", NOTE])
        again = await until_known(bench, name, NOTE)
    if name == "pay":
        assert again.error is not None
        assert (again.error.code, again.error.retry, bank.paid) == ("lost", "never", ["", NOTE])
    else:
        assert (again.value, bank.paid) == (NOTE, ["", NOTE, NOTE])


async def test_two_people_who_answer_at_once_while_the_store_is_away_answer_once_later(store: Store) -> None:
    bank = Bank()
    async with Workbench([bank], store=store, policy=Rules([Rule(tools="pay", do="ask")])) as bench:
        pending = (await bench.call("pay", {"note": "5"}, idempotency_key="k")).pending
        assert pending is not None

        async def answers() -> list[Any]:
            people = (bench.answer(pending.id, Approve(), by=name) for name in ("ann", "bob"))
            return await asyncio.gather(*people, return_exceptions=True)

        away = replaced(store)
        next(away)
        assert [type(answer) for answer in await answers()] == [StoreError, StoreError]
        next(away, None)
        problems = [answer.reason for answer in await answers() if isinstance(answer, AnswerError)]
        assert problems == ["replayed"]
        results = await asyncio.gather(*(until_known(bench, "pay", "5") for _ in range(2)))
        assert {result.status for result in results} <= {"success", "pending"}  # the approval is for one of them
        assert (await until_known(bench, "pay", "5")).value == "5"
    assert bank.paid == ["5"]


# PostgreSQL

_CUT = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND state <> 'idle' ORDER BY random() LIMIT 1"
)


@asynccontextmanager
async def connections_cut(store: Store, every_s: float = 0) -> AsyncGenerator[None]:
    """Cut a connection of another store to the database of *store*, again and again in the block."""
    is_over, cuts = False, 0

    async def cut() -> None:
        nonlocal cuts
        while not is_over:
            cuts += len(await store.transact(lambda connection: connection.execute(_CUT).fetchall()))
            await asyncio.sleep(every_s)

    cutting = asyncio.create_task(cut())
    try:
        yield
    finally:
        is_over = True
        await cutting
    print(f"{cuts} cuts")
    assert cuts > 0


@pytest.mark.full
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_connections_to_postgresql_that_are_cut_at_any_moment(url: str, tmp_path: Path) -> None:
    store, other = Store(url, key=tmp_path / "store.key"), Store(url, key=tmp_path / "store.key")
    store.ledger = DatabaseLedger(store, lease_s=0.6)
    bank, told = Bank(), {}
    async with Workbench([bank], store=store) as bench:
        await bench.call("pay", {"note": "0"}, idempotency_key="opens the store")
        bank.paid.clear()

        async def pay(note: str) -> None:
            told[note] = await bench.call("pay", {"note": note}, idempotency_key=note)

        async with connections_cut(other):
            for start in range(0, 300, 10):
                await asyncio.gather(*(pay(str(number)) for number in range(start, start + 10)))
        for note, result in told.items():
            again = await until_known(bench, "pay", note, note)
            if result.error is None:
                assert again.value == result.value == note
            else:
                assert result.error.code in ("unavailable", "lost")
                assert again.error is None or result.error.code == again.error.code == "lost"
    store.close()
    other.close()
    assert sorted(bank.paid) == sorted(told)  # each once


@pytest.mark.full
@pytest.mark.parametrize("name", ["pay", "put"])
async def test_a_postgresql_server_that_is_restarted_in_the_work_and_away_before_it(
    server: Any, tmp_path: Path, name: str
) -> None:
    def restart() -> None:
        cut_off(server)
        server.ensure_postgres_running()

    store = Store(server.get_uri(), key=tmp_path / "store.key")
    store.ledger = DatabaseLedger(store, lease_s=0.6)
    bank = Bank()
    async with Workbench([bank], store=store) as bench:
        bank.fault = restart
        assert (await until_known(bench, name, "1", "restarted")).value == "1"
        bank.fault = partial(cut_off, server)
        ended = await bench.call(name, {"note": "2"}, idempotency_key="k")
        away = await bench.call(name, {"note": "3"}, idempotency_key="other")
        bank.fault = lambda: None
        await asyncio.to_thread(server.ensure_postgres_running)
        again = await until_known(bench, name, "2")
        assert (await until_known(bench, name, "3", "other")).value == "3"
    store.close()
    assert ended.error is not None
    assert away.error is not None
    assert (ended.error.code, away.error.code, away.error.retry) == ("lost", "unavailable", "later")
    assert bank.paid == (["1", "2", "3"] if name == "pay" else ["1", "2", "2", "3"])
    assert (again.value, again.error and again.error.code) == (("2", None) if name == "put" else (None, "lost"))
