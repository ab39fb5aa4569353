"""The stores in memory, and what workbenches share of them. What each store does is in tests/store."""

from toolcrib import Approve, Caller, Text, Workbench
from toolcrib.core.result import EPOCH
from toolcrib.machinery import StoredResult
from toolcrib.workbench import MemoryPendings, MemoryResults, Stores


async def test_workbenches_that_share_a_store_share_what_waits_and_nothing_else() -> None:
    ran: list[str] = []

    async def pay(amount: int) -> None:
        ran.append(str(amount))

    store = MemoryPendings()
    benches = {
        name: Workbench([pay], caller=Caller(name), policy=lambda *_: "ask", store=Stores(pendings=store))
        for name in ("bob", "alice", "eve")
    }
    result = await benches["bob"].call("pay", {"amount": 5})
    assert await benches["alice"].pendings() == [result.pending]
    await benches["alice"].answer(result.pending.id, Approve(), by="alice")
    for name in ("alice", "eve"):
        assert (await benches[name].call("pay", {"amount": 5})).status == "pending"
    assert (await benches["bob"].call("pay", {"amount": 5})).status == "success"
    assert ran == ["5"]


async def test_the_store_is_bounded_by_count_bytes_and_age() -> None:
    now = 0.0

    def kept(number: int, size: int = 10) -> StoredResult:
        return StoredResult(f"result_{number}", "me", "here", "t", (Text("é" * (size // 2)),), EPOCH)

    async def there(store: MemoryResults) -> list[int]:
        return [n for n in range(10) if await store.find(f"result_{n}", "me", "here")]

    store = MemoryResults(max_count=3, max_bytes=100, max_age_s=10, clock=lambda: now)
    for number in range(4):
        assert await store.store(kept(number))
    assert await there(store) == [1, 2, 3]
    await store.find("result_1", "me", "here")  # used, and so kept longer than 2
    assert await store.store(kept(4))
    assert await there(store) == [1, 3, 4]
    assert await store.store(kept(5, size=90))
    assert await there(store) == [4, 5]
    assert not await store.store(kept(6, size=102))
    assert await there(store) == [4, 5]
    now = 10.0
    assert await there(store) == []
    assert len(store) == 0


async def test_a_principal_pushes_nobody_elses_results_out_of_a_shared_store() -> None:
    def of(principal: str, number: int, size: int) -> StoredResult:
        handle = f"result_{principal}_{number}"
        return StoredResult(handle, principal, "here", "t", (Text("x" * size),), EPOCH)

    async def there(principal: str) -> list[int]:
        return [n for n in range(20) if await store.find(f"result_{principal}_{n}", principal, "here")]

    store = MemoryResults(max_count=5, max_bytes=100, max_total_bytes=250)
    assert await store.store(of("ada", 0, 60))
    for number in range(20):
        assert await store.store(of("eve", number, 10))
    assert (await there("ada"), await there("eve")) == ([0], [15, 16, 17, 18, 19])
    assert await store.store(of("eve", 0, 95))
    assert (await there("ada"), await there("eve")) == ([0], [0])
    assert await store.store(of("bob", 0, 90))
    # All of them together are full: who has the most makes room.
    assert await store.store(of("dan", 0, 10))
    assert (await there("ada"), await there("eve"), await there("bob"), await there("dan")) == ([0], [], [0], [0])
    assert await store.store(of("bob", 1, 90))
    assert (await there("ada"), await there("bob"), await there("dan")) == ([0], [1], [0])
