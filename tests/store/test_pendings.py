"""What waits, and what was answered, in a database: bounded, shared by processes, sealed, and used once."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.pool import Pool

from toolcrib import Approve, Caller, Deny, Input, Pending, SetupError, ToolError, Workbench, tool
from toolcrib.core import AnswerError, StoreError
from toolcrib.machinery import PendingStore, StoredPending
from toolcrib.store import DatabasePendings, Store
from toolcrib.store.keys import KeyFile
from toolcrib.store.tables import encode_time
from toolcrib.workbench import MemoryPendings, Rule, Rules

from .conftest import MakeStore, Race, execute

NOW = datetime.fromtimestamp(1000, UTC)


def pending(name: str, *, digest: str | None = None, principal: str = "bob", **changed: Any) -> Pending:
    expires_at = NOW + timedelta(seconds=60)
    made = Pending(name, "approval", "?", digest or name, "pay", principal, "t", expires_at)
    return replace(made, **changed)


MakePendings = Callable[..., PendingStore]


@pytest.fixture(params=[DatabasePendings, MemoryPendings])
def make_pendings(request: pytest.FixtureRequest, store: Store) -> MakePendings:
    """Gives stores of pending calls, of both kinds."""
    return partial(DatabasePendings, store) if request.param is DatabasePendings else MemoryPendings


async def test_one_question_of_one_call_is_open_once(make_pendings: MakePendings) -> None:
    pendings = make_pendings()
    first = pending("1", digest="d")
    assert await pendings.open(first, now=NOW) == first
    assert await pendings.open(pending("2", digest="d"), now=NOW) == first
    others = [
        pending("3", digest="e"),
        pending("4", digest="d", key="k"),
        pending("5", digest="d", kind="input", schema={"type": "string"}, url="https://x", others_only=True),
    ]
    for other in others:
        assert await pendings.open(other, now=NOW) == other
    assert await pendings.waiting(now=NOW) == [first, *others]
    later = pending("6", digest="d", expires_at=NOW + timedelta(seconds=120))
    assert await pendings.open(later, now=NOW + timedelta(seconds=60)) == later
    assert await pendings.waiting(now=NOW + timedelta(seconds=60)) == [later]


async def test_what_one_principal_waits_for_is_listed_alone(
    make_pendings: MakePendings, caplog: pytest.LogCaptureFixture
) -> None:
    pendings = make_pendings()
    for number, principal in enumerate(("bob", "eve", "bob", "ann\\")):
        await pendings.open(pending(str(number), principal=principal), now=NOW)
    await pendings.answer("0", Approve(), by="alice", now=NOW)
    names = ("bob", "eve", "ann\\", "carl", "")
    own = [[item.id for item in await pendings.waiting(now=NOW, principal=name)] for name in names]
    assert own == [["2"], ["1"], ["3"], [], []]
    assert await pendings.waiting(now=NOW + timedelta(seconds=60), principal="bob") == []


async def test_a_list_opens_only_the_rows_that_it_shows_and_not_on_the_loop(
    store: Store, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bob", "eve"):
        await DatabasePendings(store).open(pending(name, principal=name), now=NOW)
    await execute(store, "UPDATE toolcrib_pendings SET body = 'x' WHERE id = 'eve'")
    threads: list[int] = []

    def keys() -> Sequence[bytes]:
        threads.append(threading.get_ident())
        return KeyFile(tmp_path / "store.key")()

    other = Store(url, key=keys)
    with caplog.at_level(logging.WARNING):
        assert [item.id for item in await DatabasePendings(other).waiting(now=NOW, principal="bob")] == ["bob"]
        assert (caplog.text, len(threads), threading.get_ident() in threads) == ("", 1, False)
        assert [item.id for item in await DatabasePendings(other).waiting(now=NOW)] == ["bob"]
    assert "is ignored" in caplog.text
    other.close()


async def test_what_opening_costs_does_not_grow_with_the_table(tmp_path: Path) -> None:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    def count(connection: Any, _: object) -> None:
        connection.set_progress_handler(step, 10)

    event.listen(Pool, "connect", count)
    store = Store(tmp_path / "steps.db")
    try:
        pendings, costs = DatabasePendings(store), []
        for number in range(400):  # a look at each would cost over 100 steps
            steps = 0
            await pendings.open(pending(f"p{number}", principal=f"user-{number}"), now=NOW)
            costs.append(steps)
        assert max(costs[-20:]) <= max(costs[20:40]) + 5
    finally:
        event.remove(Pool, "connect", count)
        store.close()


@pytest.mark.parametrize("bounds", [{"size": 6}, {"size_bytes": 600}])
async def test_bounds_hold_for_all_processes_together(make_store: MakeStore, bounds: dict[str, int]) -> None:
    one, other = (DatabasePendings(make_store(), **bounds) for _ in range(2))
    sums = text("SELECT count(*), sum(size_bytes) FROM toolcrib_pendings")
    for number in range(20):
        for who, pendings in (("a", one), ("b", other)):
            with suppress(ToolError):  # who comes last pays where all hold the same
                await pendings.open(pending(f"{who}{number}", principal=f"{who}{number}"), now=NOW)
            count, size = await make_store().transact(lambda connection: tuple(connection.execute(sums).one()))
            assert (count <= bounds.get("size", count), size <= bounds.get("size_bytes", size)) == (True, True)
    assert len(await one.waiting(now=NOW)) >= 5
    # What others have ended is room again, although it was counted here.
    for item in await other.waiting(now=NOW):
        await other.answer(item.id, Deny(), by="x", now=NOW)
        await other.take(item.digest, "approval", "", now=NOW)
    names = [f"c{number}" for number in range(5)]
    for name in names:
        await one.open(pending(name, principal=name), now=NOW)
    assert [item.id for item in await other.waiting(now=NOW)] == names


async def test_what_a_failed_opening_had_deleted_is_still_counted(store: Store) -> None:
    pendings = DatabasePendings(store, size=3)
    before, later = NOW - timedelta(hours=2), NOW + timedelta(hours=1)
    for name, ends in (("old1", before), ("old2", before), ("taken", later)):
        await pendings.open(pending(name, principal=name, expires_at=ends), now=before - timedelta(seconds=1))
    with pytest.raises(StoreError):  # the id is taken, so nothing is deleted after all
        await pendings.open(pending("taken", principal="new", digest="other"), now=NOW)
    await execute(store, "UPDATE toolcrib_pendings SET expires_at = :later", later=encode_time(later))
    with pytest.raises(ToolError, match="Too many calls wait"):
        await pendings.open(pending("new", principal="new"), now=NOW)
    assert await store.transact(lambda c: c.execute(text("SELECT count(*) FROM toolcrib_pendings")).scalar()) == 3


async def test_an_answer_goes_from_open_to_answered_to_taken_and_back(
    make_pendings: MakePendings,
) -> None:
    pendings = make_pendings()
    waits = await pendings.open(pending("1", kind="input"), now=NOW)
    assert await pendings.get("1") == StoredPending(waits)
    assert await pendings.get("2") is None
    assert await pendings.take("1", "input", "", now=NOW) is None
    assert not await pendings.answer("2", Input(1), by="alice", now=NOW)
    assert await pendings.answer("1", Input(1), by="alice", now=NOW)
    assert not await pendings.answer("1", Input(2), by="carl", now=NOW)
    assert await pendings.waiting(now=NOW) == []
    assert await pendings.take("1", "approval", "", now=NOW) is None
    taken = await pendings.take("1", "input", "", now=NOW)
    assert taken == StoredPending(waits, "taken", Input(1), "alice")
    assert await pendings.take("1", "input", "", now=NOW) is None
    # What is left of it says who answered, not what.
    assert await pendings.get("1") == StoredPending(waits, "taken", None, "alice")
    await pendings.give_back(taken)
    assert await pendings.take("1", "input", "", now=NOW) == taken
    await pendings.give_back(taken)
    await pendings.open(pending("2"), now=NOW)
    assert await pendings.take("1", "input", "", now=NOW + timedelta(seconds=60)) is None
    assert not await pendings.answer("2", Approve(), by="alice", now=NOW + timedelta(seconds=60))


async def test_an_answer_given_elsewhere_can_be_put_in(make_pendings: MakePendings) -> None:
    pendings = make_pendings()
    await pendings.give_back(StoredPending(pending("1"), "taken", Approve(), "alice"))
    taken = await pendings.take("1", "approval", "", now=NOW)
    assert taken == StoredPending(pending("1"), "taken", Approve(), "alice")


async def test_there_is_room_for_so_many_and_what_has_ended_goes_first(make_pendings: MakePendings) -> None:
    pendings = make_pendings(size=3, per_principal=2)
    await pendings.open(pending("1"), now=NOW)
    await pendings.open(pending("2"), now=NOW)
    with pytest.raises(ToolError) as full:
        await pendings.open(pending("3"), now=NOW)
    assert full.value.code == "limited"
    await pendings.open(pending("4", principal="eve"), now=NOW)
    # Of who has the most:
    await pendings.open(pending("5", principal="carl"), now=NOW)
    assert [p.id for p in await pendings.waiting(now=NOW)] == ["2", "4", "5"]
    with pytest.raises(ToolError):
        await pendings.open(pending("6", principal="carl"), now=NOW)
    # Used:
    await pendings.answer("2", Deny(), by="alice", now=NOW)
    await pendings.take("2", "approval", "", now=NOW)
    await pendings.open(pending("3", expires_at=NOW + timedelta(seconds=5)), now=NOW)
    assert await pendings.get("2") is None
    # Expired:
    await pendings.open(pending("6"), now=NOW + timedelta(seconds=5))
    assert [p.id for p in await pendings.waiting(now=NOW)] == ["4", "5", "6"]
    long = make_pendings(size_bytes=1000)
    with pytest.raises(ToolError):
        await long.open(pending("7", arguments="x" * 2000), now=NOW)
    for name in ("size", "per_principal", "size_bytes"):
        with pytest.raises(SetupError, match="at least 1"):
            make_pendings(**{name: 0})


async def test_one_principal_cannot_keep_others_from_waiting(make_pendings: MakePendings) -> None:
    """The case of 64 MiB that one principal fills, and a second one: many accounts, and an answer that is not lost."""
    pendings = make_pendings(size=1_000, size_bytes=100_000)
    await pendings.open(pending("alice", principal="alice"), now=NOW)
    await pendings.open(pending("eve-answered", principal="eve0", arguments="y" * 100), now=NOW)
    await pendings.answer("eve-answered", Approve(), by="x", now=NOW)
    for account in range(3):
        with pytest.raises(ToolError, match="Too many calls wait") as full:
            for number in range(100):
                name = f"eve{account}-{number}"
                await pendings.open(pending(name, principal=f"eve{account}", arguments="x" * 5_000), now=NOW)
        assert full.value.code == "limited"
    for number in range(10):
        await pendings.open(pending(f"bob-{number}", arguments="x" * 1_000), now=NOW)
    held = Counter(waits.principal for waits in await pendings.waiting(now=NOW))
    assert (held["alice"], held["bob"]) == (1, 10)
    assert {5, 6, 7, 8} >= {held[f"eve{account}"] for account in range(3)}
    assert await pendings.take("eve-answered", "approval", "", now=NOW) is not None


async def test_an_answer_that_was_seen_to_be_expired_stays_so_when_the_clock_steps_back(
    make_pendings: MakePendings,
) -> None:
    """A second case beside the answer that is used late: what is asked after a clock was ahead can be answered."""
    pendings = make_pendings()
    late = NOW + timedelta(days=1)
    await pendings.open(pending("answered"), now=NOW)
    await pendings.answer("answered", Approve(), by="alice", now=NOW)
    await pendings.open(pending("open"), now=NOW)
    assert await pendings.waiting(now=late) == []
    assert await pendings.take("answered", "approval", "", now=NOW) is None
    assert not await pendings.answer("open", Approve(), by="alice", now=NOW)
    assert [entry.state for name in ("answered", "open") if (entry := await pendings.get(name))] == ["expired"] * 2
    again = pending("again", digest="answered")
    assert await pendings.open(again, now=NOW) == again
    assert await pendings.answer("again", Approve(), by="alice", now=NOW)
    assert await pendings.take("answered", "approval", "", now=NOW) is not None


async def test_steps_of_less_than_a_second_write_nothing_and_revive_nothing(make_store: MakeStore) -> None:
    """The second case is many small steps: together they are a step that is noted for other processes."""
    one, other = DatabasePendings(make_store()), DatabasePendings(make_store())
    await one.open(pending("1"), now=NOW)
    await one.answer("1", Approve(), by="alice", now=NOW)
    end = NOW + timedelta(seconds=60)
    await one.waiting(now=end)
    for tenths in range(1, 10):
        step = end - timedelta(seconds=tenths / 10)
        assert await one.take("1", "approval", "", now=step) is None
        assert [entry.state for entry in [await other.get("1")] if entry] == ["answered"]
    await one.waiting(now=end - timedelta(seconds=1.1))
    assert [entry.state for entry in [await other.get("1")] if entry] == ["expired"]


async def test_what_has_expired_is_known_for_an_hour_and_then_forgotten(make_pendings: MakePendings) -> None:
    pendings = make_pendings()
    await pendings.open(pending("old"), now=NOW)
    late = NOW + timedelta(seconds=60 + 3599)
    await pendings.open(pending("1", expires_at=late + timedelta(days=1)), now=late)
    assert await pendings.get("old") is not None
    await pendings.open(pending("2", expires_at=late + timedelta(days=1)), now=late + timedelta(seconds=1))
    assert await pendings.get("old") is None


async def test_what_waits_survives_a_restart_and_an_approval_is_used_once(make_store: MakeStore) -> None:
    ran: list[str] = []

    @tool
    def pay(to: str) -> str:
        ran.append(to)
        return "paid"

    def bench() -> Workbench:
        rules = Rules([Rule(tools="pay", do="ask")])
        return Workbench([pay], policy=rules, store=make_store(), caller=Caller("bob"))

    async with bench() as before, bench() as after, bench() as other:
        waits = (await before.call("pay", {"to": "ann"})).pending
        assert (await after.call("pay", {"to": "ann"})).pending == waits
        await other.answer(waits.id, Approve(), by="alice")
        assert (await after.call("pay", {"to": "ann"})).value == "paid"
        assert (await before.call("pay", {"to": "ann"})).status == "pending"
    assert ran == ["ann"]


@pytest.mark.full
async def test_of_many_processes_one_opens_and_one_takes(store: Store, race: Race) -> None:
    pendings = DatabasePendings(store)
    opened = race(*(("open", f"p{number}") for number in range(4)))
    assert len(set(opened)) == 1
    assert [p.id for p in await pendings.waiting(now=NOW)] == [opened[0]]
    assert await pendings.answer(opened[0], Approve(), by="alice", now=NOW)
    assert sorted(race(*[("take", "")] * 4)) == ["", "", "", opened[0]]


async def test_what_is_private_is_not_in_the_database(store: Store, url: str) -> None:
    pendings = DatabasePendings(store)
    await pendings.open(pending("1", message="canary-1", arguments='{"to": "canary-2"}', url="canary-3"), now=NOW)
    await pendings.answer("1", Input("canary-4"), by="alice", now=NOW)

    dumped = repr(await store.read(text("SELECT * FROM toolcrib_pendings")))
    assert "alice" in dumped
    assert "canary" not in dumped
    store.close()
    if url.startswith("sqlite"):
        assert b"canary" not in Path(url.removeprefix("sqlite:///")).read_bytes()


FORGED = {
    "marked as answered": "UPDATE toolcrib_pendings SET state = 'answered', answered_by = 'eve'",
    "with the envelope of its question": "UPDATE toolcrib_pendings SET state = 'answered', answered_by = 'eve', "
    "answer = body",
    "of another": "UPDATE toolcrib_pendings SET state = 'answered', answered_by = 'alice', "
    "answer = (SELECT answer FROM toolcrib_pendings WHERE id = '2')",
    "moved": "UPDATE toolcrib_pendings SET digest = '1x', id = '3' WHERE id = '2'",
}


@pytest.mark.parametrize("statement", FORGED.values(), ids=FORGED)
async def test_a_row_that_was_forged_is_not_an_approval(
    statement: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    pendings = DatabasePendings(store)
    await pendings.open(pending("1"), now=NOW)
    await pendings.open(pending("2"), now=NOW)
    await pendings.answer("2", Approve(), by="alice", now=NOW)
    where = "" if "WHERE id = '2'" in statement and "SET digest" in statement else " WHERE id = '1'"
    assert await execute(store, statement + where) == 1
    with caplog.at_level(logging.WARNING):
        for digest in ("1", "1x"):
            assert await pendings.take(digest, "approval", "", now=NOW) is None
    assert "is ignored" in caplog.text
    with pytest.raises(StoreError):
        await pendings.get("3" if "digest" in statement else "1")


GARBAGE = {
    "body": ["x", 7, 10**18, 1.5, b"", b"\x01", b"\x01" * 200],
    "expires_at": ["soon", 2**62, 1.5, b"\xff", 9 * 10**15],
    "principal": [7, b"\xff\xfe", "eve"],
    "thread": [1.5],
    "answer": [b"x", 7],
    "state": ["lost", 7],
}


@pytest.mark.parametrize(("column", "value"), [(name, value) for name, each in GARBAGE.items() for value in each])
async def test_a_damaged_row_does_not_hide_the_others(
    column: str, value: Any, sqlite_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store = sqlite_store
    pendings = DatabasePendings(store)
    far = NOW + timedelta(seconds=60)
    for id in ("1", "2"):
        await pendings.open(pending(id, digest=id, expires_at=far), now=NOW)
    await pendings.answer("1", Approve(), by="alice", now=NOW)
    state = "answered" if column in ("answer", "state") else "open"
    await execute(store, "UPDATE toolcrib_pendings SET state = :state WHERE id = '1'", state=state)
    await execute(store, f"UPDATE toolcrib_pendings SET {column} = :value WHERE id = '1'", value=value)
    with caplog.at_level(logging.WARNING):
        assert [p.id for p in await pendings.waiting(now=NOW)] == ["2"]
        assert await pendings.take("1", "approval", "", now=NOW) is None
    with pytest.raises(StoreError, match=r"damaged|cannot be opened"):
        await pendings.get("1")
    assert (await pendings.open(pending("3", digest="1"), now=NOW)).id == "3"


async def test_a_store_that_fails_is_how_the_call_ends(store: Store) -> None:
    @tool
    def pay(to: str) -> str:
        return "paid"

    async with Workbench([pay], policy=Rules([Rule(tools="pay", do="ask")]), store=store) as bench:
        await bench.call("pay", {"to": "ann"})
        await execute(store, "DROP TABLE toolcrib_pendings")
        result = await bench.call("pay", {"to": "canary"})
        assert (result.error.code, result.error.retry) == ("unavailable", "later")
        assert "canary" not in result.error.message
        with pytest.raises(StoreError):
            await bench.answer("any", Approve(), by="alice")


async def test_an_answer_that_is_not_json_is_refused_without_quoting_it(store: Store) -> None:
    pendings = DatabasePendings(store)
    await pendings.open(pending("1"), now=NOW)
    with pytest.raises(AnswerError, match="JSON data") as refused:
        await pendings.answer("1", Input({"canary"}), by="alice", now=NOW)
    assert "canary" not in str(refused.value)
