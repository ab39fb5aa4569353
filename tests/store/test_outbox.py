"""What is to be announced: with the row that it is about, in every database, and by one process at a time."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest

from toolcrib import Approve, Input
from toolcrib.core import Pending
from toolcrib.machinery import LedgerEntry
from toolcrib.store import Store, Webhook, outbox, principals
from toolcrib.store.outbox import Outbox

from .conftest import MakeStore, execute

NOW = datetime.now(UTC)
HOOK = Webhook("https://example.com/", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    store = make_store()
    store.webhooks = {"tasks": HOOK, "pending": HOOK}
    return store


def pending(name: str, kind: Any = "approval") -> Pending:
    return Pending(name, kind, "Drop it?", f"d-{name}", "drop", "ann", "t", NOW + timedelta(hours=1))


async def ended(store: Store, name: str, *, is_task: bool = True) -> None:
    call = {} if is_task else None
    entry = LedgerEntry(name, "ann", name, "d", "dig", "t", True, NOW, call=call, run_at=NOW)
    if is_task:
        await store.ledger.submit(replace(entry, state="queued"))
        (entry,) = await store.ledger.take([{"dig": ""}], 10)
    else:
        entry = await store.ledger.claim(entry)
    assert await store.ledger.finish(entry, {"text": "a hole"})


async def due(store: Store, topic: Any) -> list[str]:
    return [row["id"] for row in await Outbox(store).claim(topic, 10)]


async def test_tasks_that_ended_and_questions_of_people_are_due_once(store: Store, make_store: MakeStore) -> None:
    await ended(store, "task_1")
    await ended(store, "run_1", is_task=False)
    for name, kind in (("p1", "approval"), ("p2", "input"), ("p3", "authorization"), ("p4", "approval")):
        await store.pendings.open(pending(name, kind), now=NOW)
    await store.pendings.answer("p4", Approve(), by="bob", now=NOW)
    other = make_store()
    assert (await due(other, "tasks"), sorted(await due(other, "pending"))) == (["task_1"], ["p1", "p2"])
    assert (await due(store, "tasks"), await due(store, "pending")) == ([], [])


async def test_a_claim_ends_with_its_lease_and_what_it_says_later_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.pendings.open(pending("p1", "input"), now=NOW)
    monkeypatch.setattr(outbox, "HOOK_LEASE_S", -1.0)
    (first,) = await Outbox(store).claim("pending", 10)
    monkeypatch.undo()
    (second,) = await Outbox(store).claim("pending", 10)
    assert (first["hook_tries"], second["hook_tries"]) == (0, 1)
    await Outbox(store).settle("pending", first, retry_s=0)
    assert await due(store, "pending") == []
    await Outbox(store).settle("pending", second, retry_s=0)
    (third,) = await Outbox(store).claim("pending", 10)
    await Outbox(store).settle("pending", third, retry_s=0)
    await store.pendings.answer("p1", Input("Oslo"), by="bob", now=NOW)
    assert await due(store, "pending") == []


async def test_two_who_look_at_once_do_not_both_claim(store: Store, make_store: MakeStore) -> None:
    stores = [store, *(make_store() for _ in range(3))]
    for number in range(20):
        await ended(store, f"task_{number}")
    claims = await asyncio.gather(*(due(process, "tasks") for process in stores * 4))
    assert sorted(chain(*claims)) == sorted(f"task_{number}" for number in range(20))


async def test_what_is_lost_is_due_and_again_when_it_is_settled(store: Store) -> None:
    entry = LedgerEntry("task_1", "ann", "k", "d", "pay", "t", False, NOW, state="queued", call={}, run_at=NOW)
    await store.ledger.submit(entry)
    await store.ledger.take([{"pay": ""}], 10)
    await execute(store, "UPDATE toolcrib_ledger SET owner = 'dead', lease_until = 0")
    for expected in ("running", None):
        rows = await Outbox(store).claim("tasks", 10)
        assert [row["state"] for row in rows] == [expected] * (expected is not None)
        for row in rows:
            subject, _ = Outbox(store).subject("tasks", row)
            assert subject.is_lost
            await Outbox(store).settle("tasks", row)
    (lost,) = await store.ledger.lost()
    assert await store.ledger.settle(lost, {"text": "paid"})
    (row,) = await Outbox(store).claim("tasks", 10)
    assert (row["state"], row["hook_tries"]) == ("ended", 0)


async def test_what_is_not_asked_for_or_was_forgotten_is_not_announced(store: Store) -> None:
    store.webhooks = {}
    await ended(store, "task_1")
    await store.pendings.open(pending("p1"), now=NOW)
    assert (await due(store, "tasks"), await due(store, "pending")) == ([], [])
    store.webhooks = {"tasks": HOOK}
    await ended(store, "task_2")
    await principals.forget(store, "ann", lambda *_: None)
    assert await due(store, "tasks") == []


async def test_a_pending_of_before_the_upgrade_is_not_announced(store: Store) -> None:
    await store.pendings.open(pending("p1"), now=NOW)
    await execute(store, "UPDATE toolcrib_pendings SET hook_at = NULL, opened_at = NULL")
    assert await due(store, "pending") == []
