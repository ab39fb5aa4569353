"""What waits is kept within bounds, and every answer changes hands once."""

import asyncio
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toolcrib import Approve, Caller, Deny, Input, Pending, SetupError, ToolError, Workbench, tool
from toolcrib.core import PendingStore, StoredPending
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


async def test_one_question_of_one_call_is_open_once() -> None:
    store: PendingStore = MemoryPendings()
    first = pending("1", digest="d")
    assert await store.open(first, now=NOW) is first
    assert await store.open(pending("2", digest="d"), now=NOW) is first
    others = [
        pending("3", digest="e"),
        pending("4", digest="d", key="k"),
        pending("5", digest="d", kind="input"),
    ]
    for other in others:
        assert await store.open(other, now=NOW) is other
    assert await store.waiting(now=NOW) == [first, *others]
    later = pending("6", digest="d", expires_at=NOW + timedelta(seconds=120))
    assert await store.open(later, now=NOW + timedelta(seconds=60)) is later
    assert await store.waiting(now=NOW + timedelta(seconds=60)) == [later]


async def test_an_answer_goes_from_open_to_answered_to_taken_and_back_and_no_other_way() -> None:
    store = MemoryPendings()
    kept = await store.open(pending("1", kind="input"), now=NOW)
    assert await store.get("1") == StoredPending(kept)
    assert await store.take("1", "input", "", now=NOW) is None
    assert not await store.answer("2", Input(1), by="alice", now=NOW)
    assert await store.answer("1", Input(1), by="alice", now=NOW)
    assert not await store.answer("1", Input(2), by="carl", now=NOW)
    assert await store.waiting(now=NOW) == []
    assert await store.take("1", "approval", "", now=NOW) is None
    taken = await store.take("1", "input", "", now=NOW)
    assert taken == StoredPending(kept, "taken", Input(1), "alice")
    assert await store.take("1", "input", "", now=NOW) is None
    # What is left of it says who answered, not what.
    assert await store.get("1") == StoredPending(kept, "taken", None, "alice")
    await store.give_back(taken)
    assert await store.take("1", "input", "", now=NOW) == taken


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


@pytest.mark.parametrize("look", ["open", "answer", "take", "waiting"])
async def test_whoever_has_seen_the_time_pass_it_has_passed_for_all(look: str) -> None:
    store, late = MemoryPendings(), NOW + timedelta(seconds=60)
    for name in ("1", "2"):
        await store.open(pending(name, digest=name), now=NOW)
    assert await store.answer("2", Approve(), by="alice", now=NOW)
    match look:
        case "open":
            await store.open(pending("3", expires_at=late + timedelta(seconds=60)), now=late)
        case "answer":
            await store.answer("nobody's", Approve(), by="alice", now=late)
        case "take":
            await store.take("nobody's", "approval", "", now=late)
        case "waiting":
            await store.waiting(now=late)
    assert "1" not in [each.id for each in await store.waiting(now=NOW)]
    assert not await store.answer("1", Approve(), by="alice", now=NOW)
    assert await store.take("2", "approval", "", now=NOW) is None
    again = pending("4", digest="1", expires_at=late)
    assert await store.open(again, now=NOW) is again


async def test_an_answer_given_elsewhere_can_be_put_in() -> None:
    store = MemoryPendings()
    await store.give_back(StoredPending(pending("1"), "taken", Approve(), "alice"))
    assert await store.take("1", "approval", "", now=NOW) == StoredPending(pending("1"), "taken", Approve(), "alice")


async def test_there_is_room_for_so_many_and_what_has_ended_goes_first() -> None:
    store = MemoryPendings(size=3, per_principal=2)
    await store.open(pending("1"), now=NOW)
    await store.open(pending("2"), now=NOW)
    with pytest.raises(ToolError) as full:
        await store.open(pending("3"), now=NOW)
    assert full.value.code == "limited"
    await store.open(pending("4", principal="eve"), now=NOW)
    with pytest.raises(ToolError):
        await store.open(pending("5", principal="carl"), now=NOW)
    # Used:
    await store.answer("1", Deny(), by="alice", now=NOW)
    await store.take("1", "approval", "", now=NOW)
    await store.open(pending("3", expires_at=NOW + timedelta(seconds=5)), now=NOW)
    assert await store.get("1") is None
    # Expired:
    await store.open(pending("6"), now=NOW + timedelta(seconds=5))
    assert [p.id for p in await store.waiting(now=NOW)] == ["2", "4", "6"]


async def test_long_arguments_take_up_room_too() -> None:
    store = MemoryPendings(size_bytes=1000)
    await store.open(pending("1", arguments="x" * 900), now=NOW)
    with pytest.raises(ToolError):
        await store.open(pending("2", arguments="x" * 900), now=NOW)
    await store.open(pending("3", arguments="x" * 10), now=NOW)


async def test_what_has_expired_is_known_for_an_hour_and_then_forgotten() -> None:
    store = MemoryPendings()
    for number in range(100):
        await store.open(pending(str(number)), now=NOW)
    late = NOW + timedelta(seconds=60 + 3599)
    await store.open(pending("a", expires_at=late + timedelta(seconds=60)), now=late)
    assert await store.get("0") is not None
    for name in "bcde":
        await store.open(pending(name, expires_at=late + timedelta(seconds=60)), now=late + timedelta(seconds=2))
    assert [await store.get(str(number)) for number in range(100)] == [None] * 100
    assert repr(store) == "<MemoryPendings: 5>"


async def test_a_question_is_open_once_also_after_an_older_one_of_its_call_is_forgotten() -> None:
    store = MemoryPendings()
    await store.open(pending("1", digest="d"), now=NOW)
    later, end = NOW + timedelta(seconds=60), NOW + timedelta(hours=3)
    second = await store.open(pending("2", digest="d", expires_at=end), now=later)
    await store.open(pending("3", expires_at=end), now=later + timedelta(hours=2))
    assert await store.get("1") is None
    assert await store.open(pending("4", digest="d", expires_at=end), now=later + timedelta(hours=2)) is second


async def test_one_that_just_fits_is_stored() -> None:
    long = pending("1", arguments="x" * 90, message="y" * 6, schema={"a": 1})
    size = 90 + 6 + len(str({"a": 1}))
    with pytest.raises(ToolError):
        await MemoryPendings(size_bytes=size - 1).open(long, now=NOW)
    store = MemoryPendings(size=1, per_principal=1, size_bytes=size)
    for name in ("1", "2", "3"):
        assert (await store.open(replace(long, id=name, digest=name), now=NOW)).id == name
        assert await store.answer(name, Approve(), by="alice", now=NOW)
        assert await store.take(name, "approval", "", now=NOW) is not None
    small = MemoryPendings(size_bytes=1)
    assert await small.open(pending("1", message="y", arguments=""), now=NOW)


async def test_a_thousand_of_one_principal_may_wait_and_ten_thousand_in_all() -> None:
    store = MemoryPendings()
    for principal in range(10):
        for number in range(1000):
            await store.open(pending(f"{principal} {number}", principal=str(principal)), now=NOW)
        if principal < 9:
            with pytest.raises(ToolError):
                await store.open(pending("one more", principal=str(principal)), now=NOW)
    with pytest.raises(ToolError):
        await store.open(pending("one more", principal="ann"), now=NOW)


def test_threads_that_use_one_store_at_once_do_not_disturb_each_other() -> None:
    store, failed = MemoryPendings(per_principal=10_000), []

    async def use(name: str) -> None:
        for number in range(200):
            waits = pending(f"{name} {number}")
            await store.open(waits, now=NOW)
            await store.waiting(now=NOW)
            await store.answer(waits.id, Approve(), by="alice", now=NOW)
            taken = await store.take(waits.digest, "approval", "", now=NOW)
            assert taken is not None
            await store.give_back(replace(taken, pending=replace(waits, id=f"{waits.id} back", key="back")))
            await store.open(pending(f"{name} {number} last", key="last"), now=NOW)

    def run(name: str) -> None:
        try:
            asyncio.run(use(name))
        except Exception as error:
            failed.append(error)

    run_at_once(run)
    assert failed == []
    assert repr(store) == "<MemoryPendings: 2400>"
    # Every one of them was counted: there is room for so many more, and for more yet in the place of those that ended.
    asyncio.run(_fill(store, 7600))
    asyncio.run(_fill(store, 800))
    with pytest.raises(ToolError):
        asyncio.run(_fill(store, 1))


async def _fill(store: MemoryPendings, number: int) -> None:
    for each in range(number):
        await store.open(pending(f"more {each} of {number}"), now=NOW)


def run_at_once(work: Callable[[str], None]) -> None:
    """Run *work* in four threads, which take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=[str(name)]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("name", ["size", "per_principal", "size_bytes"])
def test_bounds_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(SetupError, match="at least 1"):
        MemoryPendings(**{name: 0})
    with pytest.raises(SetupError, match="pending_timeout_s"):
        Workbench([], pending_timeout_s=0)


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
