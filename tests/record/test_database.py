"""The call log in a store: what is in it, what is not, and that calls go on without it."""

import asyncio
import gc
import random
import sqlite3
import string
import subprocess
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, TextClause, create_engine, text

from toolcrib import Approve, Call, Caller, Crib, SetupError, ToolError, Workbench, tool
from toolcrib.core import CallRecord
from toolcrib.record import DatabaseCalls, database
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

from .. import fuzz
from ..conftest import cut_off
from ..store.conftest import MakeStore
from ..waiting import until

WORKER = Path(__file__).with_name("call_worker.py")
HOUR = timedelta(hours=1)
SECRETS = ["s3cret-key", "s3cret-name"]
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool(read_only=True)
async def count(text: str) -> int:
    return len(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def log_of(crib: Crib | Workbench) -> DatabaseCalls:
    runtime: Any = crib.crib if isinstance(crib, Workbench) else crib
    (log,) = runtime.recorders
    assert isinstance(log, DatabaseCalls)
    return log


async def rows(log: DatabaseCalls, **filters: Any) -> list[CallRecord]:
    """The calls, the oldest first."""
    await log.flush()
    return [*reversed(await log.newest(**filters))]


async def end(log: DatabaseCalls, call: CallRecord) -> None:
    """End *call*: a call that runs is noted in the store until its process ends."""
    call.status = "success"
    await log.finished(call)
    await log.flush()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process, as it were, writes all the time."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def test_a_store_has_who_called_what_when_and_how_it_ended(store: Store) -> None:
    @tool
    async def refuse(why: str) -> None:
        raise ToolError("no", "conflict")

    rules = Rules([Rule(tools="refuse", do="ask")])
    before = datetime.now(UTC)
    async with Crib([add, refuse, count], store=store, policy=rules) as crib:
        ann = crib.workbench(Caller("ann", "work", "t1"))
        await ann.call(Call("add", '{"a": 1, "b": "2"}', id="model-1", traceparent=TRACE))
        await crib.workbench().call("ad", {})
        pending = (await ann.call("refuse", {"why": "ü"})).pending
        await crib.answer(pending.id, Approve(), by="bob")
        await ann.call("refuse", {"why": "ü"})
        await ann.call("count", {"txt": 1})
    first, unknown, waits, ended, wrong = found = await rows(log_of(crib))
    assert [one.status for one in found] == ["success", "error", "pending", "error", "error"]
    assert before <= first.started_at <= datetime.now(UTC)
    assert 0 < first.duration_s < 60
    assert first == CallRecord(
        call_id="model-1",
        tool="add",
        caller=Caller("ann", "work", "t1"),
        status="success",
        started_at=first.started_at,
        duration_s=first.duration_s,
        repairs=1,
        repaired=(("b", "string", "integer"),),
        id=first.id,
        decision="allow",
        rule="default",
        arguments_bytes=18,
        result_bytes=1,
        traceparent=TRACE,
    )
    assert (unknown.tool, unknown.code, unknown.caller) == ("ad", "unknown_tool", Caller())
    assert (waits.pending, waits.decision, waits.answered_by) == ("approval", "ask", None)
    assert (ended.code, ended.decision, ended.answered_by, ended.arguments_bytes) == ("conflict", "ask", "bob", 13)
    assert wrong.code == "invalid_arguments"
    assert {(one.arguments, one.result) for one in found} == {(None, None)}
    assert len({one.id for one in found}) == 5
    for one in found:  # with the time first: an index has those of one moment side by side
        assert -0.01 < int(one.id[4:15], 16) / 1000 - one.started_at.timestamp() < 60
    log = log_of(crib)
    assert await log.find(first.id) == first
    assert await log.find("run_no") is None


async def test_calls_are_found_by_tool_principal_status_and_time_page_by_page(store: Store) -> None:
    now = datetime.now(UTC)
    log = DatabaseCalls(store)
    names = ("plain", "n\0l", "%_.*", "\\u0000", "\ud800")
    for number, name in enumerate(names):
        record = CallRecord(f"c{number}", name, Caller(name), now + number * HOUR, "error", code="failed")
        await log.finished(record)
    assert [one.tool for one in await rows(log)] == [*names]
    for name in names:
        assert [one.tool for one in await rows(log, tool=name)] == [name]
        assert [one.tool for one in await rows(log, principal=name)] == [name]
    assert await rows(log, tool="plai_") == []
    assert await rows(log, status="success") == []
    assert len(await rows(log, since=now + 3 * HOUR)) == 2
    seen: list[str] = []
    before = None
    while page := await log.newest(limit=2, before=before):
        assert len(page) <= 2
        seen += [one.call_id for one in page]
        before = page[-1].id
    assert seen == ["c4", "c3", "c2", "c1", "c0"]


@pytest.mark.parametrize("commit_start", [True, False])
async def test_the_start_is_committed_before_the_work_unless_it_is_read_only_or_that_is_off(
    commit_start: bool, path: Path
) -> None:
    during: list[list[Any]] = []

    def look() -> int:
        with sqlite3.connect(path) as connection:
            found = connection.execute("SELECT tool, status FROM toolcrib_calls").fetchall()
        connection.close()
        during.append(found)
        return 1

    @tool
    def write() -> int:
        return look()

    @tool(read_only=True)
    def read() -> int:
        return look()

    store = Store(path)
    log = DatabaseCalls(store, commit_start=commit_start)
    async with Crib([write, read], recorder=log) as crib:
        await log.finished(CallRecord("c", "warm", Caller(), datetime.now(UTC), "success"))
        await log.flush()
        await crib.workbench().call("write")
        await log.flush()
        await crib.workbench().call("read")
    writes = [("warm", "success")] + ([("write", "started")] if commit_start else [])
    assert during == [writes, [("warm", "success"), ("write", "success")]]
    store.close()


_HOW_DURABLE = {
    "sqlite": (
        "CREATE TABLE seen (durable TEXT)",
        """CREATE TRIGGER look AFTER INSERT ON toolcrib_calls
        BEGIN INSERT INTO seen SELECT synchronous FROM pragma_synchronous; END""",
    ),
    "postgresql": (
        "CREATE TABLE seen (durable TEXT)",
        """CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO seen SELECT current_setting('synchronous_commit'); RETURN NULL; END $$""",
        "CREATE TRIGGER look AFTER INSERT ON toolcrib_calls EXECUTE FUNCTION look()",
    ),
}


async def test_a_log_that_is_durable_to_the_end_of_the_process_leaves_the_rest_of_the_store_as_it_is(
    store: Store,
) -> None:
    logs = {durable: DatabaseCalls(store, durable=durable) for durable in ("normal", "full")}  # type: ignore[arg-type]

    def prepare(connection: Connection) -> str:
        for statement in _HOW_DURABLE[connection.dialect.name]:
            connection.exec_driver_sql(statement)
        return connection.dialect.name

    values = {"sqlite": ["1", "2"], "postgresql": ["off", "on"]}[await store.transact(prepare)]
    for log in logs.values():
        async with Crib([add], recorder=log) as crib:
            await crib.workbench().call(add, 1, 2)
            await log.flush()
    seen = [row[0] for row in await store.transact(lambda c: c.exec_driver_sql("SELECT * FROM seen").fetchall())]
    assert list(dict.fromkeys(seen)) == values
    look = "PRAGMA synchronous" if values[0] == "1" else "SHOW synchronous_commit"
    assert await store.transact(lambda c: str(c.exec_driver_sql(look).scalar())) == values[1]
    with pytest.raises(SetupError, match="'full' or 'normal', not 'off'"):
        DatabaseCalls(store, durable="off")  # type: ignore[arg-type]


async def test_content_is_recorded_where_it_is_asked_for_bounded_redacted_and_sealed(path: Path) -> None:
    @tool
    async def login(user: str, key: str) -> str:
        return f"{user} is in with {key}" + "x" * 20_000

    store = Store(path)
    log = DatabaseCalls(store, with_content=True)
    async with Crib([login], recorder=log, store=store, secrets=SECRETS, max_result_chars=0) as crib:
        bench = crib.workbench()
        await bench.call("login", {"user": "canary-user", "key": "s3cret-key"})
        await bench.call(Call("s3cret-name", {"s3cret-key": 1}, id="call_s3cret-key"))
        await bench.call("login", {"user": "u" * 5_000_000, "key": "k"})
    first, unknown, huge = await rows(log)
    assert first.arguments == '{"user": "canary-user", "key": "[secret]"}'
    assert first.result.startswith("canary-user is in with [secret]xx")
    assert len(first.result) <= 10_001
    assert (unknown.tool, unknown.call_id) == ("[secret]", "call_[secret]")
    assert huge.arguments_bytes == 5_000_024
    assert len(huge.arguments) == 10_001
    store.close()
    data = b"".join(file.read_bytes() for file in path.parent.glob("store.db*"))
    assert b"canary-user" not in data
    assert b"s3cret" not in data
    again = DatabaseCalls(Store(path))
    await again._store.rotate_key()
    assert await again.find(first.id) == first


async def test_content_that_was_moved_to_another_call_is_not_shown(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    log = DatabaseCalls(store, with_content=True)
    for name in ("ann", "bob"):
        await log.finished(CallRecord("c", "t", Caller(name), datetime.now(UTC), "success", arguments=f"of {name}"))
    assert [one.arguments for one in await rows(log)] == ["of ann", "of bob"]
    move = "UPDATE toolcrib_calls SET content = (SELECT content FROM toolcrib_calls AS a WHERE a.principal = 'ann')"
    await store.transact(lambda connection: connection.execute(text(move)).rowcount)
    assert [one.arguments for one in await rows(log)] == ["of ann"]
    assert "is left out" in caplog.text


async def test_what_is_too_old_or_too_much_is_deleted_but_nothing_that_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_TIDY_S", 0.0)
    now = datetime.now(UTC)
    log = DatabaseCalls(store, max_age_s=3600, max_bytes=1500)
    runs = CallRecord("runs", "t", Caller(), now - 3 * HOUR)
    await log.started(runs)
    await log.finished(CallRecord("old", "t", Caller(), now - HOUR, "success"))
    await log.finished(CallRecord("young", "t", Caller(), now - HOUR + timedelta(minutes=1), "success"))
    await until_kept(log, ["runs", "young"])
    for number in range(5):
        await log.finished(CallRecord(f"c{number}", "t", Caller(), now, "success"))
        await log.flush()
    await until_kept(log, ["runs", *(f"c{number}" for number in range(5))])
    for name in ("max_age_s", "max_bytes", "size"):
        with pytest.raises(SetupError, match="above 0"):
            DatabaseCalls(store, **{name: 0})  # type: ignore[arg-type]
    await end(log, runs)


async def until_kept(log: DatabaseCalls, call_ids: list[str]) -> None:
    """Wait until these calls are left: no call waits until others are deleted."""
    async with asyncio.timeout(60):
        while [call.call_id for call in await rows(log)] != call_ids:
            await asyncio.sleep(0.01)


async def test_several_processes_that_make_room_at_once_delete_no_more_than_one(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_TIDY_S", 0.0)
    monkeypatch.setattr(database, "_DELETED_AT_ONCE", 2)
    now = datetime.now(UTC)
    first = DatabaseCalls(make_store())
    for number in range(20):
        await first.finished(CallRecord(f"c{number}", "t", Caller(), now, "success"))
    await first.flush()
    logs = [DatabaseCalls(make_store(), max_bytes=3000) for _ in range(4)]
    last = [f"last{number}" for number in range(4)]
    await asyncio.gather(
        *(log.finished(CallRecord(name, "t", Caller(), now, "success")) for log, name in zip(logs, last, strict=True))
    )
    async with asyncio.timeout(60):
        while len(await first.newest()) > 10:
            await asyncio.gather(*(log.flush() for log in logs))
    await asyncio.gather(*(log.flush() for log in logs))
    kept = [call.call_id for call in await rows(first)]
    assert kept[:6] == [f"c{number}" for number in range(14, 20)]
    assert {*kept[6:]} == {*last}


def fill(path: Path, count: int, *, started_at: datetime) -> None:
    """Put *count* calls into the log at *path*, whose tables are there."""
    connection = sqlite3.connect(path)
    connection.execute(
        "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ?) "
        "INSERT INTO toolcrib_calls (id, call_id, tool, principal, profile, thread, status, repairs, read_only, "
        "started_at, duration_us, owner, lost_after, size_bytes) SELECT 'old' || n, 'call', 'tool', 'ann', 'default', "
        "'main', 'success', 0, 0, ?, 1, 'owner', 0, 300 FROM counted",
        (count, int(started_at.timestamp() * 1e6)),
    )
    connection.commit()
    connection.close()


@pytest.mark.full
@pytest.mark.parametrize("reason", ["too old", "too much"])
async def test_no_start_of_a_call_waits_until_others_are_deleted(reason: str, path: Path) -> None:
    """A log of months is over its bounds (after an update, or a lower `max_age_s`), and two processes start calls."""
    now, count, stores = datetime.now(UTC), 500_000, [Store(path), Store(path)]
    await DatabaseCalls(stores[0]).newest()
    fill(path, count, started_at=now - (40 if reason == "too old" else 1) * 24 * HOUR)
    logs = [DatabaseCalls(store, max_bytes=2**40 if reason == "too old" else 300_000) for store in stores]
    query = text("SELECT COUNT(*) FROM toolcrib_calls WHERE tool = 'tool'")

    async def call(log: DatabaseCalls) -> None:
        record = CallRecord("call", "work", Caller(), datetime.now(UTC))
        await log.started(record)
        record.status = "success"
        await log.finished(record)

    left, started = count, 0
    async with asyncio.timeout(300):
        while left > count - 2_000:
            await asyncio.gather(*map(call, logs))
            started += 2
            (row,) = await stores[0].read(query)
            left = next(iter(row.values()))
    assert left > 0  # it goes bit by bit
    assert [log.unconfirmed for log in logs] == [0, 0]
    for log in logs:
        await log.flush()
    assert len(await logs[0].newest(tool="work", status="success", limit=started + 1)) == started
    for store in stores:
        store.close()


async def test_who_fills_the_log_loses_their_own_calls_and_what_never_ran_goes_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case of calls of unknown tools, and a second one: calls that ran, from many accounts."""
    monkeypatch.setattr(database, "_TIDY_S", 0.0)
    now, log = datetime.now(UTC), DatabaseCalls(store, max_bytes=60 * 300)

    async def note(name: str, principal: str, status: str = "success", **changed: Any) -> None:
        await log.finished(CallRecord(name, "t", Caller(principal), now, status, **changed))

    async def settle() -> list[str]:
        async with asyncio.timeout(60):
            while len(names := [call.call_id for call in await rows(log)]) > 60:
                await log.finished(CallRecord("u", "t", Caller("eve"), now, "error", code="unknown_tool"))
                await log.flush()
        return names

    await note("wipe", "alice")
    await note("refused", "alice", "error", code="denied")
    for number in range(80):
        await note(f"u{number}", "eve", "error", code="unknown_tool")
        await note(f"r{number}", "mallory", read_only=True)
        await note(f"p{number}", "mallory", "pending", pending="approval")
    names = await settle()
    assert names[:2] == ["wipe", "refused"]
    for account in range(5):
        for number in range(40):
            await note(f"e{account}-{number}", f"eve{account}")
    await note("pay", "alice", "error", code="timeout")
    names = await settle()
    assert {"wipe", "pay"} <= {*names}
    assert not any(name.startswith(("u", "r", "p")) for name in names if name not in ("pay", "u"))
    counts = Counter(name.partition("-")[0] for name in names)
    assert {counts[f"e{account}"] for account in range(5)} <= {8, 9, 10, 11, 12, 13, 14}


_DELETIONS = [database._DELETE_OLD, database._DELETE_SPARE, database._DELETE_FIRST]


@pytest.mark.parametrize("statement", _DELETIONS, ids=["old", "spare", "first"])
async def test_what_is_deleted_is_found_by_an_index(statement: TextClause, path: Path) -> None:
    store = Store(path)
    await DatabaseCalls(store).newest()
    with sqlite3.connect(path) as connection:
        values = {"now": 1, "most": 1, "oldest": 1, "last": 1, "principal": "p"}
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.text}", values).fetchall()
    connection.close()
    store.close()
    assert [step[-1] for step in plan if step[-1].startswith("SCAN")] == []


# What the database refuses


@pytest.fixture
def latin1(postgres: str) -> str:
    """A database whose encoding lacks most characters."""
    admin = create_engine(postgres.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    name = f"latin_{uuid4().hex}"
    with admin.connect() as connection:
        statement = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(text(statement))
    admin.dispose()
    return postgres.replace("/postgres?", f"/{name}?")


LONG = "".join(random.Random(1).choices(string.ascii_letters, k=9_000))
"""A name that no index of PostgreSQL takes, not even compressed."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("tool_name", "principal", "reason"),
    [
        pytest.param("add", LONG, "2,700 bytes", id="a long principal"),
        pytest.param("add", "michał", "lacks a character", id="a letter of a principal"),
        pytest.param("meł\nunek", "ann", "lacks a character", id="not in the report: a name that a model made up"),
    ],
)
async def test_a_call_that_postgresql_refuses_is_left_out_and_no_other(
    tool_name: str, principal: str, reason: str, latin1: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [Store(latin1, key=tmp_path / "store.key") for _ in range(2)]
    log, other = map(DatabaseCalls, stores)
    is_known = tool_name == "add"
    async with Crib([add], recorder=log) as crib:
        bench, poisoned = crib.workbench(Caller("ann")), crib.workbench(Caller(principal))
        calls = [bench.call(Call("add", {"a": number, "b": 1}, id=f"c{number}")) for number in range(20)]
        calls.insert(7, poisoned.call(Call(tool_name, {"a": 1, "b": 1}, id="poison")))
        results = await asyncio.gather(*calls)
        await log.flush()
        assert sum(result.status == "success" for result in results) == 20 + is_known
        assert not log._writer().failing
        assert (log.dropped, log.unconfirmed) == (1, int(is_known))
        await bench.call(Call("add", {"a": 1, "b": 1}, id="after"))
    assert {call.call_id for call in await rows(log)} == {"after", *(f"c{number}" for number in range(20))}
    await other.finished(CallRecord("other", "t", Caller(), datetime.now(UTC), "success"))
    assert len(await rows(other)) == 22
    lines = [line for record in caplog.records if "is left out of the call log" in (line := record.getMessage())]
    assert len(lines) == 1 + is_known  # its start and its end
    for line in lines:
        assert reason in line
        assert "\n" not in line
        assert len(line) < 500
    for store in stores:
        store.close()


async def test_a_call_with_a_number_that_no_database_takes_is_left_out_and_no_other(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """What a middleware has put there by accident; it is not in the report of this fault."""
    log, now = DatabaseCalls(store), datetime.now(UTC)
    for number in range(9):
        await log.finished(CallRecord(f"c{number}", "t", Caller(), now, "success"))
    await log.finished(CallRecord("large", "t\nx", Caller(), now, "success", repairs=2**70))
    await log.finished(CallRecord("endless", "t", Caller(), now, "success", duration_s=float("inf")))
    await log.finished(CallRecord("last", "t", Caller(), now, "success"))
    assert [call.call_id for call in await rows(log)] == [*(f"c{number}" for number in range(9)), "last"]
    assert log.dropped == 2
    start = CallRecord("start", "t", Caller(), now, repairs=2**70)
    await log.started(start)
    assert (log.dropped, log.unconfirmed) == (2, 1)
    await log.finished(start)
    await log.flush()
    assert log.dropped == 3
    assert "of the tool 't\\nx' by 'local' is left out of the call log: " in caplog.text


# What fails


async def test_calls_go_on_while_the_database_is_gone_which_is_logged_once(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_RETRY_S", 0.05)
    folder = path.parent / "gone"
    folder.write_text("a file where the folder would be")
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def hold() -> bool:
        begun.set()
        return await may_end.wait()

    async with Crib([add, hold], store=folder / "store.db") as crib:
        bench, log = crib.workbench(), log_of(crib)
        results = await asyncio.gather(*(bench.call(add, n, 1) for n in range(50)))
        results += [await bench.call(add, n, 1) for n in range(49)]
        assert {result.status for result in results} == {"success"}
        held = asyncio.create_task(bench.call(hold))
        await begun.wait()
        assert log.unconfirmed == 100
        lines = [one for one in caplog.records if "call log" in one.getMessage()]
        assert len(lines) == 1
        assert lines[0].getMessage().startswith("The call log cannot be written; calls go on without it. The store")
        folder.unlink()
        folder.mkdir()
        await until(lambda: not log._writer().failing)
        assert Counter(one.status for one in await rows(log)) == {"success": 99, "started": 1}
        may_end.set()
        assert (await held).status == "success"
    assert "The call log is written again. Calls that are not in it: 0." in caplog.text


async def test_who_asks_for_the_log_waits_for_no_retry(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_RETRY_S", 3600.0)
    folder = path.parent / "gone"
    folder.write_text("a file where the folder would be")
    async with Crib([count], store=folder / "store.db") as crib:
        bench, log = crib.workbench(), log_of(crib)
        await bench.call(count, "abc")
        await log.flush()
        assert log._writer().failing
        folder.unlink()
        folder.mkdir()
        assert [one.tool for one in await rows(log)] == ["count"]
    assert "could not be written in time" not in caplog.text


async def test_calls_that_come_one_after_the_other_are_written_together_and_then_the_log_is_freed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BATCH_INTERVAL_S", 3600.0)
    monkeypatch.setattr(database, "_IDLE_S", 0.01)
    batches: list[int] = []
    put = database._put_all
    monkeypatch.setattr(database, "_put_all", lambda *parts: (batches.append(len(parts[1])), put(*parts))[1])
    log = DatabaseCalls(store)
    async with Workbench([count], recorder=log) as bench:
        for _ in range(50):
            await bench.call(count, "abc")
        writer, thread = weakref.ref(log._writer()), log._writer()._thread
        assert len(await rows(log)) == 50
    assert batches == [50]
    await asyncio.to_thread(thread.join)
    del log, bench, thread
    gc.collect()
    assert writer() is None


@pytest.mark.parametrize("flood", ["of calls that ran", "of unknown tools, before", "of reads, after"])
async def test_who_floods_the_log_while_it_cannot_be_written_loses_their_own_calls(
    path: Path, monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    """Another caller hides what they, or others, did while the store was down. Also by calls that never ran."""
    monkeypatch.setattr(database, "_RETRY_S", 0.05)
    folder = path.parent / "gone"
    log = DatabaseCalls(store := Store(folder / "store.db", key=path.parent / "store.key"), size=40)
    async with Crib([add, count], recorder=log) as crib:
        mallory, bob = (crib.workbench(Caller(name)) for name in ("mallory", "bob"))
        await mallory.call(add, 0, 0)
        await log.flush()
        folder.rename(path.parent / "away")
        folder.write_text("a file where the folder was")

        async def fill() -> None:
            for number in range(100):
                if flood == "of calls that ran":
                    await mallory.call(add, number, 0)
                else:
                    await mallory.call("no_such_tool" if "unknown" in flood else "count", {"text": "a"})

        if "after" not in flood:
            await fill()
        for number in range(10):
            assert (await bob.call(add, number, 1)).status == "success"
        if "after" in flood:
            await fill()
        folder.unlink()
        (path.parent / "away").rename(folder)
        await until(lambda: not log._writer().failing)
        calls = await rows(log)
    assert [call.status for call in calls if call.caller.principal == "bob"] == ["success"] * 10
    counts = Counter(call.caller.principal for call in calls)
    assert counts["bob"] == 10 and 35 <= counts.total() <= 41
    assert {call.status for call in calls} <= {"success", "error"}, "none is kept as running"
    assert log.dropped + counts.total() == 111
    store.close()


async def test_a_locked_database_delays_few_calls_and_not_for_long(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_START_TIMEOUT_S", 0.6)
    store = Store(path)
    log = DatabaseCalls(store, size=30)
    async with Crib([add], recorder=log) as crib:
        bench = crib.workbench()
        await bench.call(add, 0, 0)
        with locked(path):
            began = time.monotonic()
            for number in range(40):
                assert (await bench.call(add, number, 1)).status == "success"
            assert time.monotonic() - began < 20  # which is less than 40 times as long as one waits
            assert log.unconfirmed == 40
            assert log.dropped > 0
        await bench.call(add, 100, 1)
        found = await rows(log)
    assert "longer than 0.6 s" in caplog.text
    assert 1 < len(found) < 42
    store.close()


async def test_a_call_that_is_not_heard_of_for_30_seconds_is_lost(store: Store) -> None:
    now = datetime.now(UTC)
    log = DatabaseCalls(store, clock=lambda: now)
    runs = CallRecord("c1", "t", Caller(), now, read_only=True)
    await log.started(runs)
    assert [one.status for one in await rows(log)] == ["started"]
    for seconds, status in ((29, "started"), (1, "lost")):
        now += timedelta(seconds=seconds)
        assert [one.status for one in await log.newest()] == [status]
        assert [one.call_id for one in await log.newest(status=status)] == ["c1"]
    await end(log, runs)


async def test_what_a_program_leaves_unwritten_is_written_when_it_ends(path: Path, forked_python: str) -> None:
    run(forked_python, path, "leave")
    log = DatabaseCalls(Store(path))
    assert [one.status for one in await rows(log)] == ["success"] * 3


async def test_a_full_disk_takes_no_call_with_it(path: Path, forked_python: str) -> None:
    done = run(forked_python, path, "full")
    assert done.stdout == "500\n"
    assert done.stderr.count("The call log cannot be written") == 1


def run(python: str, path: Path, job: str) -> "subprocess.CompletedProcess[str]":
    command = [python, str(WORKER), job, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)


@pytest.fixture
def start(path: Path, forked_python: str) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []

    def start(job: str, *options: str) -> "subprocess.Popen[str]":
        command = [forked_python, str(WORKER), job, str(path), *options]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("durable", ["full", "normal"])
@pytest.mark.parametrize("times", [1, pytest.param(25, marks=pytest.mark.full)])
async def test_kill_9_leaves_no_effect_without_its_start(
    times: int, durable: str, path: Path, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    effects, moments = path.with_name("effects"), random.Random(fuzz.seed(6))
    for _ in range(times):
        process = start("work", durable)
        assert process.stdout.readline() == "begun\n"
        await asyncio.sleep(moments.uniform(0.05, 0.5))
        process.kill()
        process.communicate()
    store = Store(path)
    later = DatabaseCalls(store, clock=lambda: datetime.now(UTC) + timedelta(seconds=database.LOST_TIMEOUT_S + 1))
    found = {one.call_id: one for one in await rows(later, limit=1_000_000)}
    done = effects.read_text().split()
    assert done
    assert {*done} <= found.keys()
    assert {one.status for one in found.values()} <= {"success", "lost"}
    # What had ended is whole, and what had not began in time to be seen.
    assert all(one.result_bytes == 4 and one.tool == "work" for one in found.values() if one.status == "success")
    assert {one.call_id for one in found.values() if one.status == "success"} <= {*done}
    assert [one for one in await later.newest(status="lost") if one.duration_s] == []
    now = DatabaseCalls(store)
    assert {one.status for one in await rows(now, limit=1_000_000)} <= {"success", "started", "lost"}
    store.close()


async def test_calls_of_other_processes_are_followed_and_one_that_died_is_lost(
    path: Path, start: Callable[[str], "subprocess.Popen[str]"]
) -> None:
    now = datetime.now(UTC)
    store = Store(path)
    log = DatabaseCalls(store, clock=lambda: now)
    followed: list[tuple[str, str]] = []
    more = asyncio.Event()

    async def follow() -> None:
        async for record in log.follow(tool="wait"):
            followed.append((record.call_id, record.status))
            more.set()

    await log.newest()
    task = asyncio.create_task(follow())
    async with asyncio.timeout(60):
        while not more.is_set():  # until it looks
            await log.finished(CallRecord("before", "wait", Caller(), now, "success"))
            await log.finished(CallRecord("other", "other", Caller(), now, "success"))
            await log.flush()
    process = start("wait")
    async with asyncio.timeout(60):
        while ("c1", "started") not in followed:
            await asyncio.sleep(0.01)
        process.kill()
        process.communicate()
        now += timedelta(hours=1)
        while ("c1", "lost") not in followed:
            await asyncio.sleep(0.01)
    task.cancel()
    assert [one for one in followed if one != ("before", "success")] == [("c1", "started"), ("c1", "lost")]
    assert [one.call_id for one in await log.newest(status="lost")] == ["c1"]
    assert await log.newest(status="started") == []
    store.close()


async def test_a_call_that_still_runs_is_not_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BEAT_INTERVAL_S", 3600.0)
    go_on = asyncio.Event()

    @tool
    async def wait() -> None:
        await go_on.wait()

    skipped = timedelta()
    store = Store(path)
    log = DatabaseCalls(store, clock=lambda: datetime.now(UTC) + skipped)
    async with Crib([wait], recorder=log) as crib:
        task = asyncio.create_task(crib.workbench().call("wait"))
        while not await log.newest():
            await asyncio.sleep(0.01)
        skipped = timedelta(hours=1)
        assert (await log.newest())[0].status == "lost"  # until it is noted again that it runs
        monkeypatch.setattr(database, "BEAT_INTERVAL_S", 0.05)
        await log.flush()
        async with asyncio.timeout(60):
            while (await log.newest())[0].status != "started":
                await asyncio.sleep(0.01)
        go_on.set()
        await task
    assert (await log.newest())[0].status == "success"
    store.close()


async def test_after_a_fork_each_process_writes_its_own(path: Path, forked_python: str) -> None:
    done = run(forked_python, path, "fork")
    assert done.stdout == "done\n"
    log = DatabaseCalls(Store(path))
    found = await rows(log)
    assert sorted(one.call_id for one in found) == ["child", "parent", "parent-2"]
    assert {one.status for one in found} == {"success"}


@pytest.mark.parametrize("read_only", [False, True], ids=["whose start is written", "whose start waits"])
async def test_a_call_that_has_begun_has_room_for_its_end(make_store: MakeStore, read_only: bool) -> None:
    log, now = DatabaseCalls(make_store(), size=1), datetime.now(UTC)
    started, ended = (CallRecord("call_1", "add", Caller(), now, read_only=read_only, id="run_1") for _ in range(2))
    await log.started(started)
    ended.status = "success"
    await log.finished(CallRecord("call_2", "add", Caller(), now, "success"))  # takes the room
    await log.finished(ended)
    await log.flush()
    statuses = {record.call_id: record.status for record in await log.newest()}
    assert statuses.get("call_1", "success" if read_only else "missing") == "success", "it is not kept as running"
    assert len(statuses) + log.dropped == 2


# A server that is killed


@pytest.mark.full
async def test_calls_go_on_without_their_server_and_are_logged_again_once_it_is_back(
    server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_RETRY_S", 0.05)
    monkeypatch.setattr(database, "_START_TIMEOUT_S", 0.2)
    store = Store(server.get_uri(), key=tmp_path / "store.key")
    log = DatabaseCalls(store, size=200)
    results: list[str] = []
    async with Crib([add], recorder=log) as crib:
        bench, is_over = crib.workbench(), asyncio.Event()

        async def call_on() -> None:
            while not is_over.is_set():
                results.append((await bench.call(add, len(results), 1)).status)
                await asyncio.sleep(0.001)

        async def until_called(count: int) -> None:
            while len(results) < count:
                await asyncio.sleep(0.01)

        callers = [asyncio.create_task(call_on()) for _ in range(4)]
        async with asyncio.timeout(120):
            await until_called(100)
            await log.flush()
            await asyncio.to_thread(cut_off, server)
            while not log._writer().failing:
                await asyncio.sleep(0.01)
            await until_called(len(results) + 300)  # more than is kept in memory
            await asyncio.to_thread(server.ensure_postgres_running)
            while log._writer().failing:
                await asyncio.sleep(0.01)
            await until_called(len(results) + 100)
            is_over.set()
            await asyncio.gather(*callers)
            await log.flush()
        found = await log.newest(limit=1_000_000)
    store.close()
    assert set(results) == {"success"}
    assert log.dropped > 0
    whole = [one for one in found if one.status == "success"]
    assert len(whole) + log.dropped == len(results)
    assert {one.status for one in found if one not in whole} <= {"lost"}
    assert "The call log cannot be written; calls go on without it." in caplog.text
    assert "The call log is written again. Calls that are not in it: " in caplog.text


async def test_calls_that_end_while_the_system_starts_no_thread_are_in_the_log_later(store: Store) -> None:
    crib = Crib([add, count], store=store)
    async with crib.workbench(Caller("anna")) as bench:
        size = threading.stack_size(1 << 47)  # there is no memory for a stack of this size
        try:
            assert (await bench.call("count", {"text": "abc"})).value == 3
        finally:
            threading.stack_size(size)
        assert (await bench.call("add", {"a": 1, "b": 2})).value == 3
        assert [call.tool for call in await rows(log_of(crib))] == ["count", "add"]


async def test_a_log_of_an_earlier_version_is_migrated(path: Path) -> None:
    store = Store(path)
    log = DatabaseCalls(store)
    await log.finished(CallRecord("old", "t", Caller(), datetime.now(UTC), "success"))
    await log.flush()
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        for column in ("repeated", "repaired"):
            connection.execute(f"ALTER TABLE toolcrib_calls DROP COLUMN {column}")
        connection.execute("UPDATE toolcrib_versions SET version = 3 WHERE room = 'record'")
        connection.commit()
    store = Store(path)
    log = DatabaseCalls(store)
    await log.finished(CallRecord("new", "t", Caller(), datetime.now(UTC), "success", repeated=True))
    await log.flush()
    calls = await log.newest()
    assert [(call.call_id, call.repeated, call.repaired) for call in calls] == [("new", True, ()), ("old", False, ())]
    store.close()
