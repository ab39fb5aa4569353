"""The ledger of calls with a key, in real databases: one claim over processes, leases that end, and fences."""

import asyncio
import signal
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from toolcrib.core import SetupError, StoreError
from toolcrib.machinery import LedgerEntry
from toolcrib.store import DatabaseLedger, Store
from toolcrib.store.tasks import DatabaseTasks

from ..conftest import freeze
from ..waiting import until
from .conftest import MakeStore, Race, StartWorker, execute, let_go

NOW = datetime.fromtimestamp(1000, UTC)


def entry(key: str = "k", *, principal: str = "bob", digest: str = "d", is_idempotent: bool = False) -> LedgerEntry:
    return LedgerEntry(f"run_{principal}_{key}", principal, key, digest, "pay", "t", is_idempotent, NOW)


async def abandoned(ledger: DatabaseLedger, claimed: LedgerEntry) -> LedgerEntry:
    """Give *claimed* up, and return it once that shows."""
    ledger.give_up(claimed)
    return await until_abandoned(ledger)


async def until_abandoned(ledger: DatabaseLedger) -> LedgerEntry:
    async with asyncio.timeout(30):
        while (found := await ledger.find("bob", "k")) is None or not found.is_abandoned:
            await asyncio.sleep(0.01)
    return found


async def test_an_entry_comes_back_as_it_was_and_ends_once(ledger: DatabaseTasks) -> None:
    claimed = await ledger.claim(replace(entry(), arguments='{"to": "ann"}', approved_by="ann", approval="a"))
    assert claimed.is_own
    assert await ledger.find("bob", "k") == replace(claimed, is_own=False)
    assert await ledger.find("ann", "k") is None
    assert await ledger.claim(entry(digest="other")) == replace(claimed, is_own=False)
    assert await ledger.finish(claimed, {"text": "paid"})
    assert not await ledger.finish(claimed, {"text": "paid twice"})
    found = await ledger.find("bob", "k")
    assert (found.state, found.result) == ("ended", {"text": "paid"})
    assert not (await ledger.claim(entry())).is_own


async def test_of_many_processes_one_claims(race: Race, store: Store) -> None:
    await store.pending_migrations()
    assert sorted(race(*[("claim", "k")] * 6)) == ["False"] * 5 + ["True"]


async def test_what_was_released_runs_again_for_the_same_call_alone(ledger: DatabaseTasks) -> None:
    await ledger.finish(await ledger.claim(entry()), None)
    assert not (await ledger.claim(entry(digest="other"))).is_own
    again = await ledger.claim(entry())
    assert (again.is_own, again.fence) == (True, 2)


async def test_an_abandoned_idempotent_entry_is_taken_over_and_the_late_write_is_refused(make_store: MakeStore) -> None:
    one, two = make_store().ledger, make_store().ledger
    first = await one.claim(entry(is_idempotent=True))
    assert not (await abandoned(one, first)).is_lost
    second = await two.claim(entry(is_idempotent=True))
    assert (second.is_own, second.fence) == (True, 2)
    assert not await one.finish(first, {"text": "late"})
    assert await two.finish(second, {"text": "first"})


async def test_each_run_has_an_id_of_its_own(ledger: DatabaseTasks) -> None:
    first = await ledger.claim(replace(entry(), id="run_1"))
    await ledger.finish(first, None)
    assert (await ledger.claim(replace(entry(), id="run_2"))).id == "run_2"
    assert not await ledger.finish(replace(first, fence=2), None)
    assert await ledger.find_id("run_1") is None


async def test_a_claim_that_is_given_up_while_it_is_stored_leaves_the_key_free(store: Store) -> None:
    is_begun, is_free = threading.Event(), threading.Event()

    class SlowLedger(DatabaseLedger):
        def _claim(self, connection: Connection, entry: LedgerEntry, owner: str) -> LedgerEntry:
            current = super()._claim(connection, entry, owner)
            is_begun.set()
            is_free.wait(30)
            return current

    ledger = SlowLedger(store)
    claiming = asyncio.create_task(ledger.claim(entry()))
    await asyncio.to_thread(is_begun.wait, 30)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    is_free.set()
    async with asyncio.timeout(10):
        while not (await ledger.claim(replace(entry(), id="run_2"))).is_own:
            await asyncio.sleep(0.02)


async def test_what_was_given_up_while_the_store_was_away_is_abandoned_later(
    sqlite_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = DatabaseLedger(sqlite_store, lease_s=0.3)
    claimed = await ledger.claim(entry())
    await ledger.claim(entry("another, which runs on"))
    file = sqlite_store.file
    away = file.rename(file.with_name("away.db"))
    ledger.give_up(claimed)
    await until(lambda: "could not be renewed" in caplog.text)
    away.rename(file)
    await until_abandoned(ledger)


async def test_a_lost_entry_is_not_claimed_until_it_is_settled(ledger: DatabaseTasks) -> None:
    claimed = await ledger.claim(entry())
    assert not await ledger.settle(claimed, None)  # it runs
    lost = await abandoned(ledger, claimed)
    assert lost.is_lost
    assert not (await ledger.claim(entry())).is_own
    assert [found.id for found in await ledger.lost()] == [lost.id]
    assert await ledger.settle(lost, {"text": "it was"})
    found = await ledger.find_id(lost.id)
    assert (found.result, await ledger.lost()) == ({"text": "it was"}, [])


async def test_a_process_that_was_only_slow_still_ends_what_nobody_else_has_run(ledger: DatabaseTasks) -> None:
    claimed = await ledger.claim(entry())
    await abandoned(ledger, claimed)
    assert await ledger.finish(claimed, {"text": "paid"})


async def test_the_lease_of_a_long_call_is_renewed(make_store: MakeStore) -> None:
    store = make_store()
    ledger = DatabaseLedger(store, lease_s=0.6)
    await ledger.claim(entry())
    leases = set()
    async with asyncio.timeout(30):
        while len(leases) < 3:
            rows = await store.transact(lambda c: c.execute(text("SELECT lease_until FROM toolcrib_ledger")).scalars())
            leases |= set(rows)
            found = await ledger.find("bob", "k")
            assert not found.is_abandoned
            await asyncio.sleep(0.05)


@pytest.mark.full
async def test_the_lease_of_a_killed_process_ends_and_one_of_a_frozen_process_is_overtaken(
    start: StartWorker, ledger: DatabaseTasks, url: str
) -> None:
    process = start("hold key", "k", sys.executable)  # what is forked cannot be frozen
    let_go(process)
    assert process.stdout.readline() == "True\n"
    freeze(process.pid, url)
    await until_abandoned(ledger)
    again = await ledger.claim(entry(is_idempotent=True))
    assert (again.is_own, again.fence) == (True, 2)
    process.send_signal(signal.SIGCONT)
    assert process.stdout.readline() == "False\n"  # what it then writes is refused
    found = await ledger.find("bob", "k")
    assert found.state == "running"


async def test_a_store_that_is_closed_renews_nothing_and_goes_on_when_it_is_used_again(make_store: MakeStore) -> None:
    store, others = make_store(), {*threading.enumerate()}
    claimed = await store.ledger.claim(entry())
    threads = [thread for thread in {*threading.enumerate()} - others if thread.name == "toolcrib-leases"]
    assert threads
    store.close()
    assert not any(thread.is_alive() for thread in threads)
    assert not await store.ledger.finish(claimed, {"text": "paid"})  # another process, as far as it knows
    assert (await store.ledger.claim(entry("other"))).is_own


async def test_keys_expire_after_they_have_ended(make_store: MakeStore) -> None:
    ledger = DatabaseLedger(make_store(), keep_s=0.2)
    await ledger.finish(await ledger.claim(entry()), {"text": "paid"})
    async with asyncio.timeout(30):
        while await ledger.find("bob", "k") is not None:
            await asyncio.sleep(0.02)
    assert (await ledger.claim(entry(digest="another"))).is_own


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE toolcrib_ledger SET result = body",
        "UPDATE toolcrib_ledger SET digest = 'another'",
        "UPDATE toolcrib_ledger SET principal = 'ann'",
        "UPDATE toolcrib_ledger SET idempotent = 1",
        "UPDATE toolcrib_ledger SET state = 'paid'",
        "UPDATE toolcrib_ledger SET result = NULL",
    ],
)
async def test_a_row_that_was_changed_in_the_database_is_no_result(
    store: Store, ledger: DatabaseTasks, damage: str
) -> None:
    await ledger.finish(await ledger.claim(entry()), {"text": "paid"})
    await execute(store, damage)
    with pytest.raises(StoreError, match="damaged"):
        await ledger.find("ann" if "ann" in damage else "bob", "k")


async def test_nothing_of_arguments_and_results_is_in_clear(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    try:
        claimed = await store.ledger.claim(replace(entry(), arguments='{"to": "Margaret"}', approved_by="Hamilton"))
        await store.ledger.finish(claimed, {"text": "Lovelace"})
    finally:
        store.close()
    data = b"".join(file.read_bytes() for file in tmp_path.glob("store.db*"))
    assert b"toolcrib_ledger" in data
    assert not any(word in data for word in (b"Margaret", b"Hamilton", b"Lovelace"))


def test_times_are_above_zero(tmp_path: Path) -> None:
    for times in ({"keep_s": 0}, {"lease_s": -1}):
        with pytest.raises(SetupError, match="above 0"):
            DatabaseLedger(Store(tmp_path / "store.db"), **times)
