"""Tasks in a ledger, in real databases: what is due, who runs it, and what is kept of it."""

import asyncio
import sqlite3
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from toolcrib.core import StoreError, ToolError
from toolcrib.machinery import LedgerEntry
from toolcrib.store import Store
from toolcrib.store.ledger import follow_end
from toolcrib.store.tables import WAITS, of_step
from toolcrib.store.tasks import MAX_EVENTS, DatabaseTasks

from ..waiting import until
from .conftest import MakeStore, execute

NOW = datetime.fromtimestamp(1000, UTC)
LATER = datetime.now(UTC) + timedelta(days=30)


def task(id: str, *, tool: str = "dig", key: str | None = None, principal: str = "bob", **more: Any) -> LedgerEntry:
    values = {"state": "queued", "call": {"arguments": "{}"}, "run_at": NOW, **more}
    return LedgerEntry(id, principal, key or id, "d", tool, "t", values.pop("is_idempotent", False), NOW, **values)


async def test_what_is_due_is_taken_once_by_who_has_its_tool(make_store: MakeStore) -> None:
    one, two = make_store().ledger, make_store().ledger
    for id in ("a", "b", "c"):
        await one.submit(task(id, tool="dig" if id < "c" else "fly"))
    taken = [
        *(await one.take([{"dig": ""}], 1)),
        *(await two.take([{"dig": "", "swim": ""}], 5)),
        *(await one.take([{"dig": ""}], 5)),
    ]
    assert sorted(entry.id for entry in taken) == ["a", "b"]
    assert all(entry.is_own and entry.call == {"arguments": "{}"} and entry.fence == 2 for entry in taken)


async def test_a_task_whose_start_could_not_be_committed_begins_once(make_store: MakeStore) -> None:
    store = make_store()
    await store.ledger.submit(task("a"))

    def break_off(connection: Connection) -> None:
        raw: Any = connection.connection.dbapi_connection
        raw.close()

    event.listen(store._process()._engine, "commit", break_off, once=True)
    with pytest.raises(StoreError):
        await store.ledger.take([{"dig": ""}], 8)
    (entry,) = await store.ledger.take([{"dig": ""}], 8)  # at once, as where another task has woken its process
    assert (entry.id, entry.fence) == ("a", 2)
    assert await store.ledger.take([{"dig": ""}], 8) == ()


async def test_who_floods_the_places_of_tasks_leaves_half_of_the_rest_to_others(ledger: DatabaseTasks) -> None:
    for number in range(12):
        await ledger.submit(task(f"e{number}", principal="eve"))
    taken = [*await ledger.take([{"dig": ""}], 8)]
    assert [entry.principal for entry in taken] == ["eve"] * 4
    assert await ledger.take([{"dig": ""}], 8, {"eve": 4}) == ()
    for number in range(3):
        await ledger.submit(replace(task(f"a{number}", principal="ann"), run_at=datetime.now(UTC)))
    await ledger.submit(replace(task("b", principal="bob"), run_at=datetime.now(UTC)))
    others = await ledger.take([{"dig": ""}], 8, {"eve": 4})
    assert sorted(entry.id for entry in others) == ["a0", "a1", "b"]
    assert await ledger.take([{"dig": ""}], 8, {"eve": 4, "ann": 2, "bob": 1}) == ()
    (entry,) = await ledger.take([{"dig": ""}], 8, {"eve": 2, "ann": 2, "bob": 1})  # two of eve's have ended
    assert entry.principal == "eve"


async def test_a_task_is_taken_by_who_has_its_definition_and_by_another_once_that_is_gone(
    make_store: MakeStore,
) -> None:
    store, ledger = make_store(), make_store().ledger
    for id in ("a", "b", "c"):
        await ledger.submit(replace(task(id), definition="" if id == "c" else "old"))
    assert [entry.id for entry in await ledger.take([{"dig": "new"}], 5)] == ["c"]
    await execute(store, "UPDATE toolcrib_ledger SET run_at = 0")
    assert await ledger.take([{"dig": "new"}], 5) == ()  # its processes may just have died
    (entry,) = await store.ledger.take([{"dig": "old"}], 1)
    await execute(store, "UPDATE toolcrib_ledger SET lease_until = lease_until - 60000000 WHERE state = 'queued'")
    assert await ledger.take([{"dig": "new"}], 5) == ()  # a process that has it is there, and runs another
    await store.ledger.finish(entry, {"text": "done"})
    (entry,) = await ledger.take([{"dig": "new"}], 5)
    assert (entry.attempts, entry.definition) == (0, "old")
    await ledger.park(entry, None)
    (entry,) = await ledger.take([{"dig": "new"}], 5)  # without another minute
    assert entry.definition == "new"


async def test_what_has_a_higher_priority_is_taken_first_and_a_flood_is_not_in_its_way(ledger: DatabaseTasks) -> None:
    for number in range(20):
        await ledger.submit(task(f"flood{number}", tool="fly", principal="eve"))
    for number, tool in enumerate(("dig", "swim", "dig", "fly")):
        now = NOW + timedelta(seconds=number)
        await ledger.submit(replace(task(f"{tool}{number}", tool=tool, principal="ann"), run_at=now))
    levels, order = [{"dig": ""}, {"swim": "", "sit": ""}, {"fly": ""}], list[LedgerEntry]()
    while taken := await ledger.take(levels, 3):
        order += taken
        for entry in taken:
            await ledger.finish(entry, {"text": "done"})
    ids = [entry.id for entry in order]
    assert ids[:3] == ["dig0", "dig2", "flood0"]  # of three places, ann has two
    assert [id for id in ids if not id.startswith("flood")] == ["dig0", "dig2", "swim1", "fly3"]
    assert ids.index("fly3") < 9, "she does not wait for a flood of 20"


async def test_no_more_tasks_of_a_principal_run_than_allowed_in_all_processes(make_store: MakeStore) -> None:
    stores = [make_store() for _ in range(4)]
    for number in range(20):
        await stores[0].ledger.submit(task(f"e{number}", principal="eve"))
    for number in range(2):
        await stores[0].ledger.submit(replace(task(f"b{number}"), run_at=datetime.now(UTC)))

    async def take(store: Store) -> list[LedgerEntry]:
        return [*await store.ledger.take([{"dig": ""}], 16, per_principal=3)]

    taken = [entry for entries in await asyncio.gather(*map(take, stores)) for entry in entries]
    assert sorted(entry.principal for entry in taken) == ["bob"] * 2 + ["eve"] * 3
    assert [await take(store) for store in stores] == [[]] * 4
    entry = next(entry for entry in taken if entry.principal == "eve")
    assert [await store.ledger.finish(entry, {"text": "done"}) for store in stores].count(True) == 1
    again = [entry for entries in await asyncio.gather(*map(take, stores)) for entry in entries]
    assert [entry.principal for entry in again] == ["eve"]
    end = "UPDATE toolcrib_ledger SET lease_until = 0 WHERE principal = 'eve'"  # as of processes that died
    await execute(stores[0], end)
    await asyncio.gather(*map(take, stores))
    count = text("SELECT count(*) FROM toolcrib_ledger WHERE state = 'running' AND lease_until > 0")
    assert await stores[0].transact(lambda connection: connection.execute(count).scalar()) == 5


async def test_a_principal_has_a_bounded_number_of_open_tasks(
    ledger: DatabaseTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.store.tasks.MAX_OPEN", 3)
    for id in ("a", "b", "c"):
        await ledger.submit(task(id))
    with pytest.raises(ToolError, match="Too many tasks of 'bob'") as refused:
        await ledger.submit(task("d"))
    assert refused.value.code == "limited"
    assert await ledger.find_id("d") is None
    assert (await ledger.submit(task("e", key="a"))).id == "a"  # which is there
    await ledger.submit(task("f", principal="ann"))
    (entry,) = await ledger.take([{"dig": ""}], 1)
    assert await ledger.finish(entry, {"text": "done"})
    await ledger.submit(task("d"))


async def test_what_is_due_is_found_by_its_index_and_not_among_all_that_has_ended(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    await store.ledger.submit(task("a"))
    query, values = store.ledger._due_of({"dig": "d"}, 1, ("eve",))  # pyright: ignore[reportPrivateUsage]

    def plan(connection: Connection) -> str:
        compiled = query.compile(connection)
        steps = connection.exec_driver_sql(
            f"EXPLAIN QUERY PLAN {compiled}",
            tuple((dict(compiled.params) | values)[name] for name in compiled.positiontup),
        )
        return " ".join(step[-1] for step in steps)

    steps = await store.transact(plan, write=False)
    assert "toolcrib_ledger_due (run_at<?)" in steps
    assert "B-TREE" not in steps
    store.close()


async def test_a_task_that_waits_is_due_at_its_time_or_once_it_is_cancelled(ledger: DatabaseTasks) -> None:
    await ledger.submit(task("a"))
    (entry,) = await ledger.take([{"dig": ""}], 1)
    assert await ledger.park(entry, LATER)
    assert not await ledger.park(entry, LATER)
    assert await ledger.take([{"dig": ""}], 1) == ()
    found = await ledger.find_id("a")
    assert (found.state, found.run_at) == ("waiting", LATER.replace(microsecond=LATER.microsecond))
    await ledger.submit(task("b"))
    (entry,) = await ledger.take([{"dig": ""}], 1)
    assert not await ledger.cancel(entry, {"text": "stopped"})
    assert await ledger.cancelled() == ["b"]
    assert await ledger.park(entry, LATER)  # it is due, so that it ends
    (entry,) = await ledger.take([{"dig": ""}], 1)
    assert entry.is_cancelled
    assert await ledger.cancel(found, {"text": "stopped"})
    assert not await ledger.cancel(found, {"text": "stopped"})


async def test_a_process_that_was_overtaken_does_not_change_what_a_task_waits_for(make_store: MakeStore) -> None:
    one, two = (DatabaseTasks(make_store(), lease_s=0.1) for _ in range(2))
    await two.submit(task("b"))
    await one.submit(task("a", tool="fly", is_idempotent=True))
    (overtaken,) = await one.take([{"fly": ""}], 1)
    one._stop()  # as where it is frozen
    runs = await until(lambda: two.take([{"fly": ""}], 1))
    assert await two.park(runs[0], LATER, ["b"])
    assert not await one.park(overtaken, NOW)
    (other,) = await two.take([{"dig": ""}], 1)
    assert await two.finish(other, {"text": "done"})
    assert [entry.id for entry in await two.take([{"fly": ""}], 1)] == ["a"]


async def test_a_task_waits_for_whichever_of_several_comes_first(ledger: DatabaseTasks) -> None:
    for id in ("first", "second", "over"):
        await ledger.submit(task(id, tool=id))
    (over,), (first,) = await ledger.take([{"over": ""}], 1), await ledger.take([{"first": ""}], 1)
    assert await ledger.finish(over, {"text": "done"})
    for id, subjects in (("a", ("first", "second")), ("b", ("second",)), ("c", ("over",))):
        await ledger.submit(replace(task(id), state="waiting", run_at=LATER), subjects)
    assert [entry.id for entry in await ledger.take([{"dig": ""}], 5)] == ["c"]  # what it waits for was there
    assert await ledger.finish(first, {"text": "done"})
    (entry,) = await ledger.take([{"dig": ""}], 5)
    assert entry.id == "a"
    assert await ledger.park(entry, LATER, ("second",))
    second = await ledger.find_id("second")
    assert await ledger.cancel(second, {"text": "stopped"})
    assert {entry.id for entry in await ledger.take([{"dig": ""}], 5)} == {"a", "b"}


async def test_what_ends_while_a_task_begins_to_wait_for_it_makes_it_due(make_store: MakeStore) -> None:
    store, other = make_store(), make_store()
    await store.ledger.submit(task("other", tool="other"))
    has_begun, may_end = threading.Event(), threading.Event()

    def end(connection: Connection) -> None:
        connection.execute(text("UPDATE toolcrib_ledger SET state = 'ended' WHERE id = 'other'"))
        follow_end(connection, ["other"])
        has_begun.set()
        assert may_end.wait(20)

    ending = asyncio.create_task(other.transact(end))
    assert await asyncio.to_thread(has_begun.wait, 20)
    waiting = replace(task("a"), state="waiting", run_at=LATER)
    submitting = asyncio.create_task(store.ledger.submit(waiting, ("other",)))
    if store.file is None:
        is_held = text("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
        async with asyncio.timeout(20):
            while not await other.transact(lambda connection: connection.execute(is_held).first(), write=False):
                await asyncio.sleep(0.01)
    may_end.set()
    await asyncio.gather(ending, submitting)
    assert [entry.id for entry in await store.ledger.take([{"dig": ""}], 5)] == ["a"]


async def test_a_store_of_before_keeps_what_its_tasks_wait_for_and_their_steps(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.executescript((Path(__file__).with_name("versions") / "store-4.sql").read_text())
    columns = (
        "id, principal, key, digest, tool, thread, idempotent, state, owner, fence, lease_until, started_at, expires_at"
    )
    values = "'a', 'bob', 'a', 'd', 'dig', 't', 1, 'waiting', '', 1, 0, 0, 0"  # it waits for 'pending_1', by its digest
    connection.execute(f"INSERT INTO toolcrib_ledger ({columns}, body, waits_on) VALUES ({values}, x'00', 'd1')")
    store = Store(tmp_path / "store.db", key=lambda: [b"k" * 32])
    step = {"task": "a", "principal": "bob", "position": 0, "key": "step one"}
    value = store.keys.seal(b"7", *of_step(step))
    connection.execute("INSERT INTO toolcrib_steps VALUES ('a', 'bob', 0, 'step one', ?)", (value,))
    connection.commit()
    connection.close()
    rows = await store.read(WAITS.select())
    assert await store.ledger.steps("a") == {0: ("step one", 7, False)}
    store.close()
    assert [dict(row) for row in rows] == [{"task": "a", "principal": "bob", "subject": "pending_1"}]


async def test_only_what_is_idempotent_is_taken_from_the_dead_and_keeps_its_id_for_its_key(
    make_store: MakeStore,
) -> None:
    one, two = make_store().ledger, make_store().ledger
    for id, is_idempotent in (("a", True), ("b", False)):
        await one.submit(task(id, is_idempotent=is_idempotent, key=f"key {id}"))
    for entry in await one.take([{"dig": ""}], 5):
        assert await one.add_step(entry, 0, "step one", 1)
        one.give_up(entry)
    async with asyncio.timeout(60):
        while not (taken := await two.take([{"dig": ""}], 5)):
            await asyncio.sleep(0.01)
        while (lost := await two.find_id("b")) is None or not lost.is_lost:
            await asyncio.sleep(0.01)
    assert [(entry.id, entry.attempts) for entry in taken] == [("a", 1)]
    again = await two.submit(task("another", is_idempotent=True, key="key a"))
    assert (again.id, again.is_own) == ("a", False)
    assert await two.steps("a") == {0: ("step one", 1, False)}
    assert not await one.add_step(taken[0], 1, "step two", 2)  # another process has it


async def test_of_many_events_the_newest_are_kept(ledger: DatabaseTasks) -> None:
    await ledger.submit(task("a"))
    (entry,) = await ledger.take([{"dig": ""}], 1)
    for number in range(12):
        await ledger.add_event(entry, {"progress": [number, 3, None]})
    events = await ledger.events("a", 0)
    assert [event["progress"][0] for _, event in events] == list(range(10))  # who reads slowly holds no more
    assert await ledger.events("a", events[1][0]) == events[2:] + await ledger.events("a", events[9][0])
    assert MAX_EVENTS == 1_000


async def test_what_a_task_reports_once_its_principal_is_forgotten_is_not_stored(
    store: Store, ledger: DatabaseTasks
) -> None:
    await ledger.submit(task("a"))
    (entry,) = await ledger.take([{"dig": ""}], 1)
    await execute(store, "DELETE FROM toolcrib_ledger")
    await ledger.add_event(entry, {"progress": [1, 2, "of bob"]})
    assert not await ledger.add_step(entry, 0, "step one", 1)
    assert (await ledger.events("a", 0), await ledger.steps("a")) == ([], {})


@pytest.mark.parametrize("state", ["queued", "running"])
async def test_a_damaged_task_keeps_no_other_from_running(store: Store, ledger: DatabaseTasks, state: str) -> None:
    for id in ("damaged", "sound"):
        await ledger.submit(task(id, principal=id, is_idempotent=True))
    damage = "UPDATE toolcrib_ledger SET body = 'x', state = :state, lease_until = 0 WHERE id = 'damaged'"
    await execute(store, damage, state=state)
    taken = [entry.id for _ in range(3) for entry in await ledger.take([{"dig": ""}], 1)]
    assert taken == ["sound"]
    assert [entry.id for entry in await ledger.listed(None, None, None, 9)] == ["sound"]
    with pytest.raises(StoreError):
        await ledger.find_id("damaged")


async def test_what_has_ended_expires_with_its_steps_and_what_waits_does_not(make_store: MakeStore) -> None:
    store = make_store()
    ledger = DatabaseTasks(store, keep_s=0.2)
    for id in ("ended", "waits", "queued"):
        await ledger.submit(task(id, tool=id))
    (ended,), (waits,) = await ledger.take([{"ended": ""}], 1), await ledger.take([{"waits": ""}], 1)
    for entry in (ended, waits):
        await ledger.add_step(entry, 0, "step one", 1)
        await ledger.add_event(entry, {"progress": [1, 2, None]})
    assert await ledger.finish(ended, {"text": "done"})
    assert await ledger.park(waits, LATER)
    async with asyncio.timeout(60):
        number = 0
        while await ledger.find_id("ended") is not None:
            number += 1
            other = replace(task(f"other {number}"), state="running", call=None, run_at=None)
            await DatabaseTasks(store, keep_s=0.2).claim(other)  # the first claim of each looks
            await asyncio.sleep(0.05)
    assert (await ledger.steps("ended"), await ledger.events("ended", 0)) == ({}, [])
    assert (await ledger.steps("waits"), len(await ledger.events("waits", 0))) == ({0: ("step one", 1, False)}, 1)
    assert await ledger.find_id("queued") is not None


async def test_the_key_of_a_step_is_sealed_as_its_value_is(store: Store) -> None:
    await store.ledger.submit(task("a"))
    (entry,) = await store.ledger.take([{"dig": ""}], 1)
    await store.ledger.add_step(entry, 0, "step pay bob", 1)
    rows = await store.read(text("SELECT * FROM toolcrib_steps"))
    assert "pay" not in str(rows)


@pytest.mark.parametrize("column", ["principal", "task"])
async def test_what_is_moved_to_another_principal_or_task_does_not_open(
    store: Store, ledger: DatabaseTasks, column: str
) -> None:
    await ledger.submit(task("a"))
    (entry,) = await ledger.take([{"dig": ""}], 1)
    await ledger.add_step(entry, 0, "step one", {"secret": 1})
    await ledger.add_event(entry, {"progress": [1, 2, "secret"]})
    for table in ("toolcrib_steps", "toolcrib_task_events"):
        await execute(store, f"UPDATE {table} SET {column} = 'b'")
    moved = "a" if column == "principal" else "b"
    for read in (ledger.steps(moved), ledger.events(moved, 0)):
        with pytest.raises(StoreError):
            await read
