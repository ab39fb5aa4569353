"""What threads remember in a database: known to every process, counted together, and forgotten in time."""

import asyncio

import pytest
from sqlalchemy import text

from toolcrib.store import Store, threads

from .conftest import MakeStore, execute

SEEN = frozenset({"seen untrusted"})


async def test_each_process_with_the_store_knows_it(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    await one.threads.remember("ada", "t1", {"seen untrusted", "after backup_*"})
    assert await other.threads.recall("ada", "t1", {"seen untrusted", "seen internal"}) == SEEN
    for principal, thread in (("ada", "t2"), ("Ada", "t1"), ("bob", "t1"), ("ada", "T1")):
        assert await other.threads.recall(principal, thread, SEEN) == frozenset()
    for fact in ("seen UNTRUSTED", "seen %", "seen untruste_", "after backup_"):
        assert await other.threads.recall("ada", "t1", {fact}) == frozenset()


async def test_processes_count_together(make_store: MakeStore) -> None:
    stores = [make_store(), make_store()]
    taken = await asyncio.gather(*(store.threads.take("ada", "t1", "rule 1", 5) for store in stores * 6))
    assert sum(taken) == 5
    assert not await stores[0].threads.take("ada", "t1", "rule 1", 5)
    assert await stores[0].threads.take("ada", "t2", "rule 1", 5)
    assert await stores[0].threads.take("ada", "t1", "rule 1", 6)


@pytest.mark.parametrize("name", ["", " ", "%", "_", "ada\0", "\ud800", "ada' --", "a" * 5000, "\n"])
async def test_any_name_of_a_principal_or_thread_is_its_own(store: Store, name: str) -> None:
    await store.threads.remember(name, name, SEEN)
    await store.threads.remember("ada", "t1", SEEN)
    assert await store.threads.recall(name, name, SEEN) == SEEN
    assert await store.threads.clear(name, "t1") + await store.threads.clear("ada", name) == 0
    assert await store.threads.clear(name, name) == 1
    assert await store.threads.recall("ada", "t1", SEEN) == SEEN


async def test_a_fact_ends_in_time_and_is_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PRUNE_INTERVAL", 4)
    for thread in ("t1", "default"):
        await store.threads.remember("ada", thread, SEEN)
    back = "UPDATE toolcrib_rates SET next_at = next_at - 3601000000"
    await execute(store, back)
    assert await store.threads.recall("ada", "t1", SEEN) == SEEN
    assert await store.threads.recall("ada", "default", SEEN) == frozenset()
    assert await store.threads.take("ada", "default", "rule 1", 1)
    await store.threads.remember("ada", "default", SEEN)
    assert await store.threads.recall("ada", "default", SEEN) == SEEN
    await execute(store, back)
    for _ in range(4):
        await store.threads.remember("bob", "t1", SEEN)
    rows = "SELECT count(*) FROM toolcrib_rates WHERE principal = 'ada'"
    assert await store.transact(lambda connection: connection.execute(text(rows)).scalar()) == 1
