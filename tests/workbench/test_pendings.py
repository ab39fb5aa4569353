"""What waits in memory, and what workbenches share of it. What each store does is in tests/store/test_pendings.py."""

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from toolcrib import Approve, Caller, Pending, Workbench, tool
from toolcrib.machinery import StoredPending
from toolcrib.workbench import MemoryPendings, Stores

NOW = datetime.fromtimestamp(1000, UTC)


def pending(name: str, *, digest: str | None = None, principal: str = "bob", **changed: Any) -> Pending:
    made = Pending(
        id=name,
        kind="approval",
        message="?",
        digest=digest or name,
        tool="pay",
        principal=principal,
        thread="t",
        expires_at=NOW + timedelta(seconds=60),
    )
    return replace(made, **changed)


async def test_what_has_been_seen_expired_stays_so_at_an_earlier_time() -> None:
    store, late = MemoryPendings(), NOW + timedelta(seconds=60)
    unanswered = await store.open(pending("1"), now=NOW)
    await store.open(pending("2"), now=NOW)
    assert await store.answer("2", Approve(), by="alice", now=NOW)
    for now in (late, NOW):
        assert not await store.answer("1", Approve(), by="alice", now=now)
        assert await store.take("2", "approval", "", now=now) is None
        assert await store.get("1") == StoredPending(unanswered, "expired")
        assert await store.waiting(now=now) == []


async def test_workbenches_that_share_a_store_share_what_waits_and_nothing_else() -> None:
    ran: list[str] = []

    @tool
    async def pay(amount: int) -> None:
        ran.append(str(amount))

    store = MemoryPendings()
    benches = {
        name: Workbench([pay], caller=Caller(name), policy=lambda *_: "ask", store=Stores(pendings=store))
        for name in ("bob", "alice", "eve")
    }
    result = await benches["bob"].call("pay", {"amount": 5})
    assert result.pending is not None
    assert await benches["alice"].pendings() == [result.pending]
    await benches["alice"].answer(result.pending.id, Approve(), by="alice")
    for name in ("alice", "eve"):
        assert (await benches[name].call("pay", {"amount": 5})).status == "pending"
    assert (await benches["bob"].call("pay", {"amount": 5})).status == "success"
    assert ran == ["5"]


def test_of_calls_from_many_threads_one_has_the_approval() -> None:
    ran: list[int] = []

    @tool
    async def pay(amount: int) -> None:
        ran.append(amount)

    with Workbench([pay], policy=lambda *_: "ask") as bench:
        waiting = bench.call_sync("pay", {"amount": 5}).pending
        assert waiting is not None
        asyncio.run(bench.answer(waiting.id, Approve(), by="alice"))
        statuses: list[str] = []

        def call() -> None:
            statuses.append(asyncio.run(bench.call("pay", {"amount": 5})).status)

        threads = [threading.Thread(target=call) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(statuses) == ["pending"] * 19 + ["success"]
    assert ran == [5]
