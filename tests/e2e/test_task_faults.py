"""Tasks while their store is full, locked, away or restarted, clocks are moved, and processes frozen: they go on by
themselves, and do nothing twice that may not be repeated. See docs/durable.md."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from toolcrib import Caller, Context, Crib, Input, Registry, tool
from toolcrib.core import AnswerError, StoreError
from toolcrib.store import Store, database
from toolcrib.store.tasks import DatabaseTasks

from ..cli.conftest import WAIT_S
from ..conftest import cut_off, freeze
from ..waiting import until
from .test_once_faults import FAULTS, Fault, connections_cut, full, locked, replaced

LEASE_S = 3.0
LARGE = "x" * 100_000  # needs pages of its own
WAYS = ("step", "sleep", "ask", "end")


class Journeys:
    """Tools with two steps, what they have done, and where they are held up."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.reached: set[str] = set()
        self.may_go_on = asyncio.Event()

    async def hold(self, key: str) -> None:
        self.reached.add(key)
        await self.may_go_on.wait()

    async def go(self, key: str, way: str, context: Context) -> str:
        async def first() -> str:
            self.effects.append(f"first {key}")
            if way == "step":
                await self.hold(key)
            return LARGE

        await context.step("first", first)
        context.progress(1, 2, "half")
        name = "nobody"
        if way == "sleep":
            self.reached.add(key)
            await context.sleep(0.5)
        if way == "ask":
            self.reached.add(key)
            name = await context.ask("name", str, f"Who is {key}?")
        await context.step("second", self.effects.append, f"second {key}")
        if way == "end":
            await self.hold(key)
        return f"{'x' * 9_000}{name}"

    def tools(self) -> list[Any]:
        @tool(task=True)
        async def book(key: str, way: str, context: Context) -> str:
            """Book, at most once."""
            return await self.go(key, way, context)

        @tool(task=True, idempotent=True)
        async def plan(key: str, way: str, context: Context) -> str:
            """Plan, any number of times."""
            return await self.go(key, way, context)

        return [book, plan]


async def submitted(crib: Crib, name: str, key: str, way: str) -> str:
    """Submit a task, as often as that is what the caller is told to do."""
    bench = crib.workbench(Caller("ann"))
    async with asyncio.timeout(WAIT_S):
        while (pending := (await bench.call(name, {"key": key, "way": way}, idempotency_key=key)).pending) is None:
            await asyncio.sleep(0.05)
    return pending.id


async def is_in(crib: Crib, id: str, *states: str) -> bool:
    with suppress(StoreError):
        return (await crib.tasks.get(id)).state in states
    return False


async def questions(crib: Crib, key: str) -> list[str]:
    with suppress(StoreError):
        return [pending.id for pending in await crib.pendings() if pending.message == f"Who is {key}?"]
    return []


async def end_of(crib: Crib, id: str, name: str = "bob") -> str:
    """Return how the task ends, whose questions *name* answers: it must never be said to be lost."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with suppress(StoreError):
                task = await crib.tasks.get(id)
                assert task.state != "lost", task
                if task.result is not None:
                    return task.result.text.removeprefix("x" * 9_000)
                for pending in await crib.pendings():
                    with suppress(AnswerError):
                        await crib.answer(pending.id, Input(name), by=name)
            await asyncio.sleep(0.05)


async def check(store: Store, effects: list[str], keys: list[str]) -> None:
    """Require that every task has ended well, in the first life of its process, and has done each step once."""
    rows = await store.transact(
        lambda c: c.execute(text("SELECT id, key, state, attempts FROM toolcrib_ledger WHERE is_task = 1")).fetchall()
    )
    assert {row.key: (row.state, row.attempts) for row in rows} == dict.fromkeys(keys, ("ended", 0))
    assert Counter(effects) == Counter(f"{step} {key}" for step in ("first", "second") for key in keys)
    for row in rows:
        entry = await store.ledger.find_id(row.id)
        assert entry is not None
        assert entry.result is not None
        assert entry.result["error"] is None, entry.result["error"]
        assert len(await store.ledger.steps(row.id)) >= 2


@pytest.fixture
def journeys() -> Journeys:
    return Journeys()


@pytest.fixture
def failures(caplog: pytest.LogCaptureFixture) -> Callable[[str], Awaitable[bool]]:
    """Tells whether something was logged that has failed."""

    async def is_there(words: str) -> bool:
        return any(re.search(words, record.getMessage()) for record in caplog.records)

    return is_there


Failures = Callable[[str], Awaitable[bool]]


# The store is away


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(database, "_BUSY_S", 0.3)
    store = Store(tmp_path / "store.db")
    store.ledger = DatabaseTasks(store, lease_s=LEASE_S)
    yield store
    store.close()


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_task_that_cannot_be_stored_is_refused_and_submitted_later(
    store: Store, journeys: Journeys, fault: Fault
) -> None:
    journeys.may_go_on.set()
    async with Crib(journeys.tools(), store=store) as crib:
        await end_of(crib, await submitted(crib, "book", "opens the store", "end"))
        away = fault(store)
        next(away)
        arguments = {"key": LARGE, "way": "end"}
        error = (await crib.workbench(Caller("ann")).call("book", arguments, idempotency_key="k")).error
        next(away, None)
        assert error is not None
        assert (error.code, error.retry) == ("unavailable", "later")
        again = (await crib.workbench(Caller("ann")).call("book", arguments, idempotency_key="k")).pending
        assert again is not None
        assert await end_of(crib, again.id) == "nobody"
    assert Counter(journeys.effects).most_common(1)[0][1] == 1


@pytest.mark.parametrize("fault", [full, *(pytest.param(fault, marks=pytest.mark.full) for fault in FAULTS[1:])])
@pytest.mark.parametrize("name", ["book", pytest.param("plan", marks=pytest.mark.full)])
async def test_tasks_outlast_a_store_that_is_away_at_a_step_a_question_and_the_end(
    store: Store, journeys: Journeys, failures: Failures, fault: Fault, name: str
) -> None:
    async with Crib(journeys.tools(), store=store) as crib:
        ids = [await submitted(crib, name, f"{name}-{way}", way) for way in WAYS]

        async def are_there() -> bool:
            waits = await is_in(crib, ids[2], "waiting")
            return waits and journeys.reached == {f"{name}-{way}" for way in WAYS}

        await until(are_there)
        away = fault(store)
        next(away)
        journeys.may_go_on.set()
        await until(partial(failures, r"store \(add_step\)"))
        await until(partial(failures, r"store \(finish\)"))
        next(away, None)
        ends = [await end_of(crib, id) for id in ids]
    assert ends == ["bob" if way == "ask" else "nobody" for way in WAYS]
    await check(store, journeys.effects, [f"{name}-{way}" for way in WAYS])


@pytest.mark.full
@pytest.mark.parametrize("fault", [replaced, locked])
async def test_an_answer_while_the_store_is_away_can_be_given_again_and_counts_once(
    store: Store, journeys: Journeys, fault: Fault
) -> None:
    async with Crib(journeys.tools(), store=store) as crib:
        id = await submitted(crib, "book", "k", "ask")
        (question,) = await until(partial(questions, crib, "k"))
        await until(partial(is_in, crib, id, "waiting"))

        async def answers() -> list[Any]:
            people = [crib.answer(question, Input(name), by=name) for name in ("ann", "bob")]
            return [*await asyncio.gather(*people, return_exceptions=True)]

        away = fault(store)
        next(away)
        assert [type(answer) for answer in await answers()] == [StoreError, StoreError]
        next(away, None)
        replies = dict(zip(("ann", "bob"), await answers(), strict=True))
        winners = [name for name, reply in replies.items() if not isinstance(reply, Exception)]
        assert len(winners) == 1, replies
        for name in ("ann", "bob"):  # the same once more
            with pytest.raises(AnswerError) as told:
                await crib.answer(question, Input(name), by=name)
            assert (told.value.reason, f"by '{winners[0]}'" in str(told.value)) == ("replayed", True)
        assert await end_of(crib, id) == winners[0]
    await check(store, journeys.effects, ["k"])


# PostgreSQL


@pytest.mark.full
async def test_tasks_in_every_state_go_on_after_a_restart_of_postgresql(
    server: Any, tmp_path: Path, journeys: Journeys, failures: Failures
) -> None:
    def opened() -> Store:
        store = Store(server.get_uri(), key=tmp_path / "store.key")
        store.ledger = DatabaseTasks(store, lease_s=LEASE_S)
        return store

    store, others = opened(), opened()
    names, registry = ("book", "plan"), Registry(journeys.tools())
    keys = [f"{name}-{way}" for name in names for way in WAYS]

    @tool(task=True)
    async def late(key: str, way: str, context: Context) -> str:
        """Run later, since no process has it that takes tasks."""
        return await journeys.go(key, way, context)

    async with Crib(registry, store=store) as crib, Crib([late], store=others) as observer:
        await observer.drain(0)
        ids = {key: await submitted(crib, key.split("-")[0], key, key.split("-")[1]) for key in keys}

        async def are_there() -> bool:
            waits = [await is_in(crib, ids[f"{name}-ask"], "waiting") for name in names]
            return all(waits) and journeys.reached == set(keys)

        await until(are_there)
        (question,) = await questions(observer, "book-ask")
        ids["late"] = await submitted(observer, "late", "late", "end")
        keys.append("late")
        cut_off(server)
        journeys.may_go_on.set()
        with pytest.raises(StoreError):
            await crib.answer(question, Input("bob"), by="bob")
        await until(partial(failures, r"store \(finish\)"))
        await asyncio.sleep(LEASE_S * 1.5)  # longer than leases last
        await asyncio.to_thread(server.ensure_postgres_running)

        async def are_renewed() -> bool:  # a task seems lost until its process has written again
            with suppress(StoreError):
                return not await store.ledger.lost()
            return False

        await until(are_renewed)
        registry.add(late)
        ends = {key: await end_of(observer, id) for key, id in ids.items()}
    assert ends == {key: "bob" if key.endswith("ask") else "nobody" for key in keys}
    await check(store, journeys.effects, keys)
    store.close()
    others.close()


@pytest.mark.full
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_tasks_whose_connections_are_cut_in_every_state_do_each_step_once(
    url: str, tmp_path: Path, journeys: Journeys
) -> None:
    store, other = (Store(url, key=tmp_path / "store.key") for _ in range(2))
    store.ledger = DatabaseTasks(store, lease_s=LEASE_S)
    journeys.may_go_on.set()
    keys = [f"{name}-{way}-{number}" for name in ("book", "plan") for way in WAYS for number in range(2)]
    async with Crib(journeys.tools(), store=store) as crib:
        await crib.tasks.list()

        async def whole(key: str) -> str:
            name, way, _ = key.split("-")
            return await end_of(crib, await submitted(crib, name, key, way))

        async with connections_cut(other, every_s=0.05):
            ends = await asyncio.gather(*map(whole, keys))
    assert ends == ["bob" if "-ask-" in key else "nobody" for key in keys]
    await check(store, journeys.effects, keys)
    store.close()
    other.close()


# Other processes


@asynccontextmanager
async def worker(
    url: str, folder: Path, lease_s: float, clock_s: float = 0.0, *command: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """Run `task_worker.py`, its clock *clock_s* ahead. Give it, and the id of the task that it has submitted."""
    clock, program = (str(Path(__file__).with_name(name)) for name in ("moved_clock.py", "task_worker.py"))
    arguments = [clock, str(clock_s), program, url, str(folder / "store.key"), str(folder), str(lease_s), *command]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield process, (await process.stdout.readline()).decode().strip() if command else ""
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def lines(folder: Path) -> dict[str, list[float]]:
    """Return what the workers' tools have done, each with the times of a clock that nobody moves."""
    found: dict[str, list[float]] = {}
    file = folder / "effects"
    for line in file.read_text().splitlines() if file.exists() else ():
        what, _, moment = line.rpartition(" ")
        found.setdefault(what, []).append(float(moment))
    return found


async def has_line(folder: Path, line: str) -> bool:
    return line in lines(folder)


@pytest.mark.parametrize("days", [1, pytest.param(-1, marks=pytest.mark.full)])
async def test_a_process_whose_clock_is_a_day_off_skips_no_sleep_and_takes_nothing_over(
    url: str, tmp_path: Path, days: int
) -> None:
    store, journeys = Store(url, key=tmp_path / "store.key"), Journeys()
    store.ledger = DatabaseTasks(store, lease_s=LEASE_S)
    async with Crib(journeys.tools(), store=store) as crib:
        held = {name: await submitted(crib, name, f"{name}-end", "end") for name in ("book", "plan")}

        async def are_held() -> bool:
            return len(journeys.reached) == 2

        await until(are_held)
        await crib.drain(0)  # the other process runs what comes
        command = ("submit", "book", "nap", "sleep")
        async with worker(url, tmp_path, LEASE_S, days * 86_400, *command) as (_, nap):
            async with asyncio.timeout(WAIT_S):
                assert (await crib.tasks.wait(nap)).error is None
            asked = await submitted(crib, "plan", "asked", "ask")
            (question,) = await until(partial(questions, crib, "asked"))
            await until(partial(is_in, crib, asked, "waiting"))
            await crib.answer(question, Input("bob"), by="ann")
            assert await end_of(crib, asked) is not None
        journeys.may_go_on.set()
        assert [await end_of(crib, id) for id in held.values()] == ["nobody", "nobody"]
        assert [(await crib.tasks.get(id)).attempts for id in held.values()] == [0, 0]
    done = lines(tmp_path)
    assert done["second nap"][0] - done["first nap"][0] >= 0.5
    assert {what: len(moments) for what, moments in done.items()} == {
        "run nap": 2,
        "first nap": 1,
        "second nap": 1,
        "run asked": 2,
        "first asked": 1,
        "second asked": 1,
    }
    assert len(journeys.effects) == 4
    store.close()


@pytest.mark.full
@pytest.mark.parametrize("name", ["book", "plan"])
async def test_a_process_that_was_frozen_past_its_lease_writes_nothing_when_it_wakes(
    url: str, tmp_path: Path, name: str
) -> None:
    store, journeys = Store(url, key=tmp_path / "store.key"), Journeys()
    store.ledger = DatabaseTasks(store, lease_s=0.6)
    journeys.may_go_on.set()
    hold = tmp_path / "hold k"
    hold.touch()
    async with worker(url, tmp_path, 0.6, 0.0, "submit", name, "k", "step") as (process, id):
        await until(partial(has_line, tmp_path, "first k"))
        freeze(process.pid, url)
        hold.unlink()
        async with Crib(journeys.tools(), store=store) as crib:
            if name == "book":
                await until(partial(is_in, crib, id, "lost"))
                entry = await store.ledger.find_id(id)
                assert entry is not None
                assert await store.ledger.settle(entry, None)  # not done: it runs again
            async with asyncio.timeout(WAIT_S):
                result = await crib.tasks.wait(id)
            assert (result.error, result.text) == (None, f"{'x' * 9_000}nobody")
            os.kill(process.pid, signal.SIGCONT)

            await crib.drain(0)
            await submitted(crib, name, "other", "step")
            await until(partial(has_line, tmp_path, "second other"))  # it is awake, and has looked at what it ran
            task = await crib.tasks.get(id)
            assert task.result is not None
            assert task.result.text == result.text
            steps = {key: value for key, value, *_ in (await store.ledger.steps(id)).values()}
            assert str(steps["step first"]).startswith("x")
    assert set(lines(tmp_path)) == {"run k", "first k", "run other", "first other", "second other"}
    assert journeys.effects == ["first k", "second k"]
    store.close()


# The tool's code


@pytest.mark.full
@pytest.mark.parametrize("change", ["renamed", "reordered", "gone"])
async def test_a_task_whose_code_changes_while_it_waits_says_so(
    store: Store, tmp_path: Path, change: str, forked_toolcrib: Path
) -> None:
    done: list[str] = []

    def version(*steps: str) -> Any:
        @tool(task=True)
        async def build(key: str, context: Context) -> str:
            """Build."""
            for step in steps:
                await context.step(step, done.append, step)
            return await context.ask("name", str, f"Who is {key}?")

        return build

    async with Crib([version("walls", "roof")], store=store) as crib:
        id = await submitted_build(crib)
        (question,) = await until(partial(questions, crib, "k"))
        await until(partial(is_in, crib, id, "waiting"))
    after = {"renamed": [version("walls", "top")], "reordered": [version("roof", "walls")], "gone": []}[change]
    async with Crib(after, store=store) as crib:
        await crib.answer(question, Input("bob"), by="ann")
        if change != "gone":
            result = await crib.tasks.wait(id, timeout_s=WAIT_S)
            assert result.error is not None
            assert (result.error.code, "The tool's code changed" in result.error.message) == ("conflict", True)
        else:
            late = text("UPDATE toolcrib_ledger SET run_at = run_at - 61000000")
            await store.transact(lambda c: c.execute(late).rowcount)
    assert store.file is not None
    command = [str(forked_toolcrib), "tasks", "list", "--store", str(store.file), "--json"]
    listed = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    (note,) = [task["note"] for task in json.loads(listed.stdout)]
    assert note == ("conflict" if change != "gone" else "no process runs it: start one that has tool 'build'")
    assert done == ["walls", "roof"]


async def submitted_build(crib: Crib) -> str:
    pending = (await crib.workbench(Caller("ann")).call("build", {"key": "k"})).pending
    assert pending is not None
    return pending.id
