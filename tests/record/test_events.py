"""The events of calls: what is in them, what a killed process leaves, and what goes when they are old."""

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Approve, Caller, Crib, Workbench, tool
from toolcrib.core import CallRecord
from toolcrib.record import DatabaseCalls, database
from toolcrib.record.database import CALLS
from toolcrib.store import Store
from toolcrib.store.events import EVENTS
from toolcrib.store.keys import Keys
from toolcrib.workbench import Rule, Rules

from ..store.conftest import verified

WORKER = Path(__file__).with_name("call_worker.py")


@tool
async def pay(to: str, amount: int = 1) -> str:
    return f"paid {to} {amount}"


@tool(read_only=True)
async def look(secret: str) -> str:
    return f"seen {secret}"


async def events_of(store: Store) -> list[dict[str, Any]]:
    query = EVENTS.select().where(EVENTS.c.chain != "", EVENTS.c.fields.is_not(None)).order_by(EVENTS.c.number)
    rows = await store.transact(lambda c: c.execute(query).mappings().fetchall(), write=False)
    return [{"principal": row["principal"], **json.loads(row["fields"])} for row in rows]


async def test_a_question_its_answer_the_run_and_its_result_have_one_digest(store: Store) -> None:
    rules = Rules([Rule(do="ask", tools="pay")])
    async with Crib([pay], store=store, policy=rules) as crib:
        bench = crib.workbench(Caller("ada"))
        waiting = (await bench.call("pay", {"to": "bob", "amount": "2"})).pending
        await crib.answer(waiting.id, Approve(), by="cleo")
        assert (await bench.call("pay", {"amount": 2, "to": "bob"})).text == "paid bob 2"
        assert (await bench.call("pay", {"to": "bob"})).pending is not None  # another call
    events = await events_of(store)
    assert {event["principal"] for event in events} == {"ada"}
    (digest,) = {event["digest"] for event in events if event["kind"] == "answered"}
    tied = [event for event in events if event["digest"] == digest]
    assert sorted((event["kind"], event.get("by", ""), event.get("status", "")) for event in tied) == [
        ("answered", "cleo", ""),
        ("asked", "", ""),
        ("ended", "", "pending"),
        ("ended", "cleo", "success"),
        ("started", "cleo", ""),
    ]
    (ran,) = [event for event in tied if event.get("status") == "success"]
    (began,) = [event for event in tied if event["kind"] == "started"]
    assert ran["arguments"] == began["arguments"]
    assert ran["result"] == store.keys.digest(b"paid bob 2")
    assert len({event["digest"] for event in events}) == 2
    result = await verified(store)
    assert (result.events, result.unsigned, result.problems) == (len(events), 0, [])


async def test_digests_are_of_redacted_text_and_cannot_be_tried_out(store: Store) -> None:
    log = DatabaseCalls(store, with_content=True)
    async with Workbench([look], store=store, recorder=log, secrets=["hunter2-hunter2"]) as bench:
        seen = (await bench.call("look", {"secret": "hunter2-hunter2"})).text
        await bench.call("look", {"secret": []})
    sent, refused = await events_of(store)
    record = (await log.newest())[-1]
    assert "hunter2" not in seen + record.arguments
    assert sent["arguments"] == store.keys.digest(record.arguments.encode())
    assert sent["result"] == store.keys.digest(seen.encode())
    assert (refused["status"], refused["code"]) == ("error", "invalid_arguments")
    assert Keys(lambda: [b"o" * 32], place="another").digest(seen.encode()) != sent["result"]


async def test_that_a_call_is_lost_is_an_event_once(store: Store) -> None:
    now = datetime.now(UTC)
    log = DatabaseCalls(store, clock=lambda: now)
    await log.started(CallRecord("c1", "pay", Caller("ada", thread="t"), now, id="run_1"))
    await log.flush()
    for _ in range(2):  # each as a process that has just started
        later = DatabaseCalls(store, clock=lambda: now + timedelta(minutes=1))
        await later.finished(CallRecord("c2", "look", Caller("bob"), now, "success", read_only=True))
        await later.flush()
    events = await events_of(store)
    (lost,) = [event for event in events if event["kind"] == "lost"]
    about = {"id": "run_1", "call_id": "c1", "tool": "pay", "profile": "default", "thread": "t"}
    assert lost == {"kind": "lost", "principal": "ada", **about}
    assert [record.id for record in await DatabaseCalls(store).newest(status="lost")] == ["run_1"]
    assert (await verified(store)).problems == []


async def test_old_events_leave_a_stub(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_TIDY_S", 0.0)
    now = datetime.now(UTC)
    for days in (0, 2):
        log = DatabaseCalls(store, max_age_s=24 * 3600, clock=lambda days=days: now + timedelta(days=days))  # type: ignore[misc]
        for number in range(300):
            await log.finished(CallRecord(f"c{number}", "pay", Caller("ada"), now, "success"))
        await log.flush()
    while (result := await verified(store)).left_out < 300:
        await log.finished(CallRecord("c", "pay", Caller("ada"), now, "success"))
        await log.flush()
    assert result.problems == []


@pytest.mark.parametrize(
    "change",
    [
        {"tool": "look"},
        {"principal": "eve"},
        {"status": "error"},
        {"decision": "allow", "answered_by": "eve"},
        {"started_at": 0},
        {"call_id": "d"},
        {"profile": "admin"},
        {"thread": "t"},
        {"duration_us": 1},
        {"repeated": 0},
        {"id": "run_x"},
    ],
)
async def test_a_listed_call_that_is_not_as_its_event_says_is_named(store: Store, change: dict[str, Any]) -> None:
    log, now = DatabaseCalls(store), datetime.now(UTC) + timedelta(minutes=2)
    for name in ("ada\\x", "bob"):
        caller = Caller(name, "p\\x", "t\\x")
        await log.started(CallRecord("c\0", "pay", caller, now, id=f"run_{name}1"))
        ended = CallRecord("c\0", "pay", caller, now, "success", code="\0x", id=f"run_{name}1", repeated=True)
        await log.finished(ended)
        await log.started(CallRecord("c", "pay", caller, now, id=f"run_{name}2"))
    await log.flush()
    assert (await verified(store)).problems == []
    update = CALLS.update().where(CALLS.c.id == "run_bob1").values(change)
    await store.transact(lambda connection: connection.execute(update).rowcount)
    (problem,) = (await verified(store)).problems
    assert change.get("id", "run_bob1") in problem


async def test_that_all_events_were_removed_is_named(store: Store) -> None:
    log, now = DatabaseCalls(store), datetime.now(UTC)
    await log.finished(CallRecord("c", "pay", Caller("ada"), now, "success", id="run_1"))
    await log.flush()
    assert (await verified(store)).problems == []
    await store.transact(lambda connection: connection.execute(EVENTS.delete()).rowcount)
    (problem,) = (await verified(store)).problems
    assert problem.startswith("Calls are listed (1), and there is no event at all: all were removed")


async def test_what_processes_leave_that_are_killed_verifies(tmp_path: Path, forked_python: str) -> None:
    path = tmp_path / "store.db"
    for durable in ("full", "normal"):
        command = [forked_python, WORKER, "work", path, durable]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for worker in workers:
            worker.stdout.readline()
        for worker in workers:
            worker.kill()
            worker.communicate()
    store = Store(path)
    result = await verified(store)
    store.close()
    assert (result.chains, result.problems) == (4, [])
    assert result.events > result.unsigned


async def test_a_child_that_was_forked_has_a_chain_of_its_own(tmp_path: Path, forked_python: str) -> None:
    path = tmp_path / "store.db"
    subprocess.run([forked_python, WORKER, "fork", path], check=True, timeout=100, capture_output=True)
    store = Store(path)
    result = await verified(store)
    store.close()
    assert (result.chains, result.problems, result.unsigned) == (2, [], 0)
