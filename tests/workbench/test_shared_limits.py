"""Limits that all processes with a store share, in real processes and databases."""

import asyncio
import sqlite3
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Call, Caller, Context, Crib, SetupError, Tool, Workbench, tool
from toolcrib.store import Store
from toolcrib.store import limits as stored
from toolcrib.workbench import Limit

from .conftest import Start


def line(process: "subprocess.Popen[str]", patience_s: float | None = None) -> str:
    assert process.stdin is not None
    if patience_s is not None:
        process.stdin.write(f"{patience_s}\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


@tool
async def look() -> str:
    return "seen"


@pytest.mark.full
def test_a_rate_and_a_place_are_shared_by_processes_and_a_killed_one_gives_its_place_back(
    start_program: Start,
) -> None:
    processes = [start_program("limited.py", 4, "hold") for _ in range(3)]
    words = " ".join(line(process) for process in processes).split()
    assert sorted(words) == ["limited"] * 9 + ["seen"] * 3
    holder, other, third = processes
    assert line(holder, 600) == "holds"
    assert line(other, 600) == "Tool 'hold' is at its limit of 1 at a time. Try again in 1 s."
    holder.kill()
    holder.wait()
    time.sleep(stored.PLACE_LEASE_S + 1)  # a lease has no event
    assert line(third, 600) == "holds"


@pytest.mark.full
def test_a_serial_tool_runs_in_one_process_at_a_time_and_a_killed_one_gives_its_turn_back(
    start_program: Start,
) -> None:
    holder, other = (start_program("limited.py", 0, "alone") for _ in range(2))
    assert [line(process) for process in (holder, other)] == ["", ""]
    assert line(holder, 600) == "holds"
    late = line(other, 1)
    assert late.startswith(("Tool 'alone' has not run: its deadline", "Tool 'alone' runs one call at a time")), late
    holder.kill()
    assert line(other, 600) == "holds"


Enter = Callable[[Context, str], Awaitable[str]]


def serial_cribs(stores: Callable[[], Store], enter: Enter) -> list[Crib]:
    """Return two cribs, as of two processes, with the serial tools `a` and `b`."""
    return [
        Crib(
            [Tool(partial(enter), name=name, serial=True) for name in "ab"],
            store=stores(),
            limits=[Limit("a", concurrency=9, shared=True)],
        )
        for _ in range(2)
    ]


async def test_serial_calls_of_two_processes_do_not_overlap(stores: Callable[[], Store]) -> None:
    inside = most = 0

    async def enter(ctx: Context, then: str = "") -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1
        return "left"

    one, two = serial_cribs(stores, enter)
    async with one, two:
        results = await asyncio.gather(*(crib.workbench().call("b") for crib in (one, two) for _ in range(5)))
    assert [result.text for result in results] == ["left"] * 10
    assert most == 1


@pytest.mark.parametrize("timeout_s", [None, 1.0])
async def test_serial_tools_that_call_each_other_in_two_processes_end(
    stores: Callable[[], Store], timeout_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.workbench.limits.NESTED_TURN_WAIT_S", 0.5)
    both, codes, benches = asyncio.Barrier(2), list[Any](), dict[str, Workbench]()

    async def enter(ctx: Context, then: str = "") -> str:
        if then:
            await both.wait()
            inner = await benches[then].call(then)
            codes.append(inner.error and inner.error.code)
        return "left"

    one, two = serial_cribs(stores, enter)
    async with one, two:
        benches |= {"b": one.workbench(), "a": two.workbench()}  # by what is called inside
        calls = [
            benches[then].call(Call(name, {"then": then}, timeout_s=timeout_s))
            for name, then in (("a", "b"), ("b", "a"))
        ]
        async with asyncio.timeout(60):
            results = await asyncio.gather(*calls)
    if timeout_s is None:
        assert "conflict" in codes
        assert [result.text for result in results] == ["left"] * 2
    else:
        assert {result.error and result.error.code for result in results} <= {"timeout", None}
        assert set(codes) <= {"timeout", "conflict", "cancelled", None}


async def test_an_object_s_serial_method_has_its_turn_in_its_own_process(stores: Callable[[], Store]) -> None:
    class Door:
        @tool(serial=True)
        async def enter(self) -> str:
            await both.wait()
            return "left"

    both, limits = asyncio.Barrier(2), [Limit(concurrency=9, shared=True)]
    async with (
        Crib([Door()], store=stores(), limits=limits) as one,
        Crib([Door()], store=stores(), limits=limits) as two,
    ):
        async with asyncio.timeout(60):
            results = await asyncio.gather(*(crib.workbench().call("enter") for crib in (one, two)))
    assert [result.text for result in results] == ["left"] * 2


async def test_a_place_taken_for_a_call_that_was_cancelled_meanwhile_is_given_back(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "store.db", key=tmp_path / "store.key")) as store:
        assert await store.limits.take("other", 1) is not None
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            taking = asyncio.create_task(store.limits.take("one", 1))
            done, _ = await asyncio.wait([taking], timeout=0.5)
            assert not done  # it has asked, and waits for the writer
            taking.cancel()
            await asyncio.wait([taking])
            writer.execute("ROLLBACK")
        async with asyncio.timeout(60):
            while await store.limits.take("one", 1) is None:
                await asyncio.sleep(0.01)


async def test_who_waits_gets_the_place_that_another_process_gives_back(stores: Callable[[], Store]) -> None:
    may_end = asyncio.Event()

    async def hold() -> str:
        await may_end.wait()
        return "held"

    limits = [Limit(concurrency=2, wait_s=60, shared=True)]
    async with Crib([hold], store=stores(), limits=limits) as one, Crib([hold], store=stores(), limits=limits) as two:
        first = [asyncio.create_task(bench.call("hold")) for bench in (one.workbench(), two.workbench())]
        await asyncio.sleep(0)
        calls = [*first, asyncio.create_task(one.workbench().call("hold"))]
        done, _ = await asyncio.wait(calls, timeout=0.5)
        assert not done
        may_end.set()
        assert {(await call).text for call in calls} == {"held"}


async def test_a_place_is_kept_for_as_long_as_its_call_runs(
    stores: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PLACE_LEASE_S", 1.5)
    limits = stores().limits
    place = await limits.take("one", 1)
    assert place is not None
    await asyncio.sleep(2)  # longer than its lease
    assert await stores().limits.take("one", 1) is None
    limits.release(place)
    assert await stores().limits.take("one", 1, 60) is not None


def test_a_place_whose_loop_has_ended_is_free_after_its_lease(
    stores: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PLACE_LEASE_S", 0.6)
    limits = stores().limits
    place = asyncio.run(limits.take("one", 1))
    assert place is not None
    limits.release(place)

    async def later() -> Any:
        assert await limits.take("two", 1) is not None  # which renews what is held
        await asyncio.sleep(1.5)
        return await stores().limits.take("one", 1)

    assert asyncio.run(later()) is not None


async def test_places_and_rates_of_others_are_others(stores: Callable[[], Store]) -> None:
    limits = [Limit(per="principal", rate="1/h", wait_s=0, shared=True)]
    async with Crib([look], store=stores(), limits=limits) as one, Crib([look], store=stores(), limits=limits) as two:
        outcomes = [
            (await crib.workbench(Caller(name)).call("look")).status for name in ("ann", "bob") for crib in (one, two)
        ]
    assert outcomes == ["success", "error"] * 2


async def test_a_rate_is_refilled_evenly(stores: Callable[[], Store]) -> None:
    limits, began_at = stores().limits, time.monotonic()
    waits = [await limits.admit("name", "", burst=2, per_s=4) for _ in range(3)]
    took_s = time.monotonic() - began_at
    assert waits[:2] == [0.0, 0.0]
    assert 0.24 - took_s <= waits[2] <= 0.25
    await asyncio.sleep(waits[2])
    assert await stores().limits.admit("name", "", burst=2, per_s=4) == 0.0


async def test_what_makes_no_difference_any_more_is_deleted(stores: Callable[[], Store]) -> None:
    store = stores()
    place = await store.limits.take("one", 3)
    assert place is not None
    store.limits.release(place)
    async with asyncio.timeout(60):
        while [row["expires_at"] for row in await store.read(stored.LEASES.select())] != [0]:
            await asyncio.sleep(0.01)
    assert await store.limits.admit("over", "ann", burst=1, per_s=1e6) == 0.0
    await asyncio.sleep(0.01)
    other = stores()
    assert await other.limits.admit("new", "ann", burst=1, per_s=0.001) == 0.0  # its first one looks
    rows = [dict(row) for row in await other.read(stored.RATES.select())]
    assert [row["name"] for row in rows] == ["new"]
    assert await other.read(stored.LEASES.select()) == []


@pytest.mark.parametrize("shared", [None, False])
async def test_on_sqlite_limits_are_of_one_process_unless_they_say_otherwise(tmp_path: Path, shared: Any) -> None:
    limits = [Limit(rate="1/h", wait_s=0, shared=shared)]
    for _ in range(2):
        async with Crib([look], store=tmp_path / "store.db", limits=limits) as crib:
            assert (await crib.workbench().call("look")).status == "success"


@pytest.mark.full
async def test_on_postgresql_limits_are_shared(postgres: str, tmp_path: Path) -> None:
    limits = [Limit("look", rate="1/h", wait_s=0)]
    outcomes: list[str] = []
    for _ in range(2):
        with closing(Store(postgres, key=tmp_path / "store.key")) as store:
            async with Crib([look], store=store, limits=limits) as crib:
                outcomes.append((await crib.workbench().call("look")).status)
    assert outcomes == ["success", "error"]


async def test_where_the_store_cannot_be_used_the_call_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"this is not a database" * 500)
    async with Crib([look], store=tmp_path / "store.db", limits=[Limit(rate="1/h", shared=True)]) as crib:
        result = await crib.workbench().call("look")
    assert result.error.code == "unavailable"


def test_a_shared_limit_needs_a_database() -> None:
    with pytest.raises(SetupError, match=r"shared by all processes, which needs a database"):
        Workbench([look], limits=[Limit(rate="1/h", shared=True)])
    with pytest.raises(SetupError, match="A limit per workbench is of one process"):
        Limit(per="workbench", rate="1/h", shared=True)
