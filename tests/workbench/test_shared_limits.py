"""Limits that all processes with a store share, in real processes and databases."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Caller, Crib, SetupError, Workbench, tool
from toolcrib.store import Store
from toolcrib.store import limits as stored
from toolcrib.workbench import Limit

PROGRAM = Path(__file__).with_name("limited.py")
Start = Callable[[int], "subprocess.Popen[str]"]


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def start(count: int) -> "subprocess.Popen[str]":
        command = [sys.executable, str(PROGRAM), url, str(tmp_path / "store.key"), str(count)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def line(process: "subprocess.Popen[str]", send: bool = False) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    if send:
        process.stdin.write("\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.fixture
def stores(url: str, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    opened: list[Store] = []

    def make() -> Store:
        opened.append(Store(url, key=tmp_path / "store.key"))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@tool
async def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.full
def test_a_rate_and_a_place_are_shared_by_processes_and_a_killed_one_gives_its_place_back(start: Start) -> None:
    processes = [start(4) for _ in range(3)]
    words = " ".join(line(process) for process in processes).split()
    assert sorted(words) == ["limited"] * 9 + ["seen"] * 3
    holder, other, third = processes
    assert line(holder, send=True) == "holds"
    assert line(other, send=True) == "Tool 'hold' is at its limit of 1 at a time. Try again in 1 s."
    holder.kill()
    holder.wait()
    time.sleep(stored.PLACE_LEASE_S + 1)  # a lease has no event
    assert line(third, send=True) == "holds"


async def test_who_waits_gets_the_place_that_another_process_gives_back(stores: Callable[[], Store]) -> None:
    may_end = asyncio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
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
    monkeypatch.setattr(stored, "PLACE_LEASE_S", 0.6)
    limits = stores().limits
    place = await limits.take("one", 1)
    assert place is not None
    await asyncio.sleep(1.5)  # longer than its lease
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
    limits = stores().limits
    waits = [await limits.admit("name", "", burst=2, per_s=5) for _ in range(3)]
    assert waits[:2] == [0.0, 0.0]
    assert 0 < waits[2] <= 0.2
    await asyncio.sleep(waits[2])
    assert await stores().limits.admit("name", "", burst=2, per_s=5) == 0.0


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
    assert result.error is not None
    assert result.error.code == "unavailable"


def test_a_shared_limit_needs_a_database() -> None:
    with pytest.raises(SetupError, match=r"shared by all processes, which needs a database"):
        Workbench([look], limits=[Limit(rate="1/h", shared=True)])
    with pytest.raises(SetupError, match="A limit per workbench is of one process"):
        Limit(per="workbench", rate="1/h", shared=True)
