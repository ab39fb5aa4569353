"""Calls with keys, and tasks, while processes are killed and frozen in every state: at most one effect, one result, no
false loss.

The processes are those of `once_worker.py`; a checker reads their log and the ledger when all is over.
"""

import asyncio
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from toolcrib import Input, Workbench
from toolcrib.core import AnswerError, StoreError
from toolcrib.machinery import LedgerEntry
from toolcrib.store import Store

from .. import fuzz
from .once_worker import POINTS, TASK_POINTS, Log, is_alive

LEASE_S = 3.0
"""Short, and longer than a busy machine keeps a thread from running."""
AT_ONCE = 4
MAX_DUE_S = 60.0
"""For how long a task may be due before a process takes it up."""


class Storm:
    """Worker processes, and who kills and wakes them."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.open_store = partial(Store, url, key=folder / "store.key")
        self.log, self.store = Log(folder), self.open_store()
        self.is_sqlite = self.store.file is not None
        self.dice = random.Random(seed)
        self.kills = self.freezes = 0
        self.longest_due_s = 0.0
        worker = str(Path(__file__).with_name("once_worker.py"))
        command = [sys.executable, worker, url, str(folder / "store.key"), str(folder), str(LEASE_S)]
        self._parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._alive: set[int] = set()

    def close(self) -> None:
        for pid in self._alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._parent.kill()
        self._parent.communicate()
        self.store.close()

    def _fork(self, *command: Any) -> int:
        stdin, stdout = self._parent.stdin, self._parent.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\t".join(map(str, command)) + "\n")
        stdin.flush()
        pid = int(stdout.readline())
        self._alive.add(pid)
        return pid

    async def _until_gone(self, pid: int) -> None:
        while is_alive(pid):
            await asyncio.sleep(0.01)
        self._alive.discard(pid)

    async def work_and_die(self, command: str, freeze_at: str, die_at: str) -> None:
        """Have a process work, freeze it on its way, and let it die: at a point, or where a random moment finds it."""
        pid = self._fork(command, self.dice.getrandbits(32), freeze_at, die_at)
        frozen_s, until_s = LEASE_S * self.dice.uniform(1.2, 1.6), self.dice.uniform(0.1, 1.0)
        try:
            async with asyncio.timeout(
                None if die_at in TASK_POINTS else until_s + frozen_s * bool(freeze_at)
            ) as limit:
                if die_at in TASK_POINTS:
                    limit.reschedule(asyncio.get_running_loop().time() + 20)
                while is_alive(pid):
                    with suppress(FileNotFoundError, ProcessLookupError):
                        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                            self.freezes += 1
                            await asyncio.sleep(frozen_s)
                            os.kill(pid, signal.SIGCONT)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            await self._until_gone(pid)
            self.log.write("dies", at="a random moment", pid=pid)  # after the last that it has written
        await self._until_gone(pid)
        self.kills += 1

    async def rage(self, kills: int, *, freezes: bool, command: str = "work") -> None:
        own_points = TASK_POINTS if command == "tasks" else POINTS
        points = [*own_points, "a random moment"]
        dies_at = [points[number % len(points)] for number in range(kills)]
        may_freeze = [point for point in own_points if "transaction" not in point]
        freezes_at = [
            may_freeze[number % len(may_freeze)] if freezes and number % 4 == 0 else "" for number in range(kills)
        ]
        self.dice.shuffle(dies_at)
        fates = iter(list(zip(freezes_at, dies_at, strict=True)))

        async def replace() -> None:
            for fate in fates:
                await self.work_and_die(command, *fate)

        await asyncio.gather(*(replace() for _ in range(min(AT_ONCE, kills))))

    async def retry(self) -> None:
        """Make every call again. Whoever ran one is dead by now, so the clock may be set forward past their leases."""
        late = text("UPDATE toolcrib_ledger SET lease_until = 1 WHERE state = 'running'")
        await self.store.transact(lambda connection: connection.execute(late).rowcount)
        async with asyncio.timeout(120):
            await self._until_gone(self._fork("retry", self.dice.getrandbits(32)))

    async def answer(self) -> None:
        """Answer what tasks ask, at once and sometimes by two people, until this is cancelled."""
        bench = Workbench([], store=self.store)
        while True:
            with suppress(StoreError):  # a process may be frozen that holds the file
                for pending in await bench.pendings():
                    people = ["ann", "bob"][: self.dice.randrange(1, 3)]
                    answers = (bench.answer(pending.id, Input(name), by=name) for name in people)
                    answers = await asyncio.gather(*answers, return_exceptions=True)
                    self._note_answers(pending.message, dict(zip(people, answers, strict=True)))
            await asyncio.sleep(0.1)

    async def watch(self) -> None:
        """Note for how long a task is due, by the clock of the database, until this is cancelled."""
        while True:
            with suppress(StoreError):
                _, due_s = await self.store.ledger.counts()
                self.longest_due_s = max(self.longest_due_s, due_s)
                assert due_s <= MAX_DUE_S, f"a task has been due for {due_s:.0f} s"
            await asyncio.sleep(0.5)

    def _note_answers(self, message: str, answers: dict[str, Any]) -> None:
        key = message.removeprefix("Who is ").removesuffix("?")
        for name, answer in answers.items():
            if not isinstance(answer, Exception):
                self.log.write("answer", key, by=name)
            elif not isinstance(answer, StoreError):
                assert isinstance(answer, AnswerError), answer
                self.log.write("refused", key, by=name, reason=answer.reason)
        assert sum(not isinstance(answer, Exception) for answer in answers.values()) <= 1, (message, answers)

    async def finish(self) -> None:
        """Let a process live until no task is left that could run. It is killed then."""
        pid = self._fork("finish", self.dice.getrandbits(32))
        left = text(
            "SELECT count(*) FROM toolcrib_ledger WHERE state IN ('queued', 'waiting', 'released') "
            "OR (state = 'running' AND (idempotent = 1 OR lease_until > :now))"
        )
        async with asyncio.timeout(180):
            while await self.store.transact(lambda c: c.execute(left, {"now": int(time.time() * 1e6)}).scalar()):
                await asyncio.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        await self._until_gone(pid)


@asynccontextmanager
async def beside(*works: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Do *works*, which have no end, in the block; require that none has failed."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks), [task.exception() for task in tasks if not task.cancelled()]


@pytest.fixture
def storm(url: str, tmp_path: Path) -> Iterator[Storm]:
    storm = Storm(url, tmp_path, fuzz.seed(7))
    yield storm
    storm.close()


def final(event: dict[str, Any]) -> str | None:
    """Return what was told for good; None for what may still change."""
    error = event["error"]
    if error is None:
        return f"success {event['value']['run']}"
    return None if error[1] == "later" or error[0] == "lost" else f"{error[0]} {error[2]}"


def faults_of(
    key: str, events: list[dict[str, Any]], deaths: dict[int, list[int]], entry: LedgerEntry | None
) -> Iterator[str]:
    """Yield what is wrong with the calls of *key*. *deaths* are when processes died or froze: lines of the log.

    Under -1 are those of any process, where one that is frozen keeps others from renewing their leases.
    """
    name = key.split("-")[0]
    runs = [event["run"] for event in events if event["what"] == "effect"]
    told = [event for event in events if event["what"] == "told"]
    finals = {text for event in told if (text := final(event))}
    if len(finals) > 1:
        yield f"was told {finals}"
    if name != "put" and len(runs) > 1:
        yield f"took effect {len(runs)} times"
    if entry is None:
        yield "has no row"
        return
    value = None
    if entry.result is not None and entry.result["error"] is None:
        value = entry.result["content"][0]
    for outcome in finals:
        kind, _, rest = outcome.partition(" ")
        if kind == "success" and (rest not in runs or value is None or rest not in str(value)):
            yield f"was told {rest}, has the effects {runs} and the row {entry.result}"
        if kind != "success" and kind not in str(entry.result):
            yield f"was told {outcome}, and has the row {entry.result}"
    if name in ("put", "transfer") and not any(
        outcome.startswith(("success", "timeout", "cancelled")) for outcome in finals
    ):
        yield f"may run, and has not ended: {told[-1]}"
    if name == "put" and value is None:
        yield f"is idempotent, and has ended with {entry.result}"
    if entry.state != "ended" and not (entry.is_lost and name in ("pay", "fail")):
        yield f"is left {entry.state}"
    if entry.is_lost and not died_before({"line": math.inf}, events, deaths):
        yield "is lost, and nobody had died"
    for event in told:
        if event["error"] and event["error"][0] == "lost" and not died_before(event, events, deaths):
            yield f"was told to be lost, and nobody had died: {event}"


def faults_of_task(
    key: str, events: list[dict[str, Any]], deaths: dict[int, list[int]], entry: LedgerEntry | None
) -> Iterator[str]:
    """Yield what is wrong with the task of *key*, as `faults_of` does."""
    by: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        by[event["what"]].append(event)
    if entry is None:
        if by["acknowledged"]:
            yield "was acknowledged, and has no row"
        return
    if len(ids := {event["task"] for event in by["acknowledged"]} | {entry.id}) > 1:
        yield f"is {len(ids)} tasks"
    finals = {text for event in by["told"] if (text := final(event))}
    if len(finals) > 1:
        yield f"was told {finals}"
    steps = {event["step"]: event for event in by["step"]}
    if len(steps) < len(by["step"]):
        yield f"has finished a step twice: {by['step']}"
    effects = Counter((event["step"], event["fence"]) for event in by["effect"])
    for step, fence in effects:
        if step in steps and fence > steps[step]["fence"]:
            yield f"has run '{step}' again, which was finished"
    per_step = Counter(event["step"] for event in by["effect"])
    if max(effects.values(), default=0) > 1 or (not entry.is_idempotent and max(per_step.values(), default=0) > 1):
        yield f"took effect again: {by['effect']}"
    runs = {event["fence"]: event for event in by["takes"]}  # the last of each: before it, the transaction failed
    waits = {event["fence"]: event["line"] for event in by["waits"]}
    ordered = sorted(runs.values(), key=lambda event: event["fence"])
    for run, following in pairwise(ordered):
        if run["was_frozen"]:  # so its lease may have run out before it is in the log
            continue
        is_same = all(run[name] == following[name] for name in ("pid", "attempts"))
        if is_same and not any(event["fence"] == run["fence"] for event in by["effect"]):
            continue  # given back: the process did not hear that it had taken it
        if not run["line"] < waits.get(run["fence"], 0) < following["line"] and not died_in(run, following, deaths):
            yield f"was taken from a process that was well: {run}, {following}"
    last = ordered[-1] if ordered else None
    if entry.is_lost:
        if entry.is_idempotent or last is None or not died_in(last, None, deaths):
            yield f"is lost, and nobody had died: {last}"
    elif entry.state != "ended" or entry.result is None:
        yield f"is left {entry.state}"
    elif entry.result["error"] is None:
        content = str(entry.result["content"][0])
        values = {step: event["run"] for step, event in steps.items()}
        answers = {event["by"] for event in by["answer"]}
        known = {
            step: {event["run"] for event in by["effect"] if event["step"] == step} for step in ("first", "second")
        }
        if not all(any(run in content for run in known[step]) for step in known):
            yield f"has ended with {content}, and the effects {known}"
        if not all(value in content for value in values.values()):
            yield f"has ended with {content}, and the steps {values}"
        if int(key.rpartition("-")[2]) % 3 and not any(name in content for name in answers):
            yield f"has ended with {content}, and the answers {answers}"
    else:
        code, message = entry.result["error"]["code"], entry.result["error"]["message"]
        is_worn = code == "failed" and "died each time" in message and entry.is_idempotent and entry.attempts >= 3
        if not (code == "cancelled" and by["cancel"]) and not is_worn:
            yield f"has failed: {code} {message}"
        if is_worn and sum(died_in(*pair, deaths) for pair in pairwise(ordered)) < 3:
            yield f"has failed, and its processes lived: {ordered}"
    for outcome in finals:
        kind, _, rest = outcome.partition(" ")
        if (rest if kind == "success" else kind) not in str(entry.result):
            yield f"was told {outcome}, and has the row {entry.result}"


def died_in(run: dict[str, Any], until: dict[str, Any] | None, deaths: dict[int, list[int]]) -> bool:
    """Return whether the process of *run* of a task died or froze after it began, and before *until*."""
    return any(
        run["line"] < death and (until is None or death < until["line"]) for death in (*deaths[run["pid"]], *deaths[-1])
    )


def died_before(told: dict[str, Any], events: list[dict[str, Any]], deaths: dict[int, list[int]]) -> bool:
    """Return whether, before *told*, a process died or froze that had begun the call, and had not told its end."""
    ends = {event["id"]: event["line"] for event in events if event["what"] == "told" and final(event)}
    return any(
        event["line"] < death < min(told["line"], ends.get(event["id"], death + 1))
        for event in events
        if event["what"] == "call"
        for death in (*deaths[event["pid"]], *deaths[-1])
    )


async def check(storm: Storm) -> Counter[str]:
    """Require that nothing is wrong. Return how often each thing happened."""
    by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
    deaths: dict[int, list[int]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for line, event in enumerate(storm.log.events()):
        counts[event["what"] + event.get("at", "")] += 1
        event["line"] = line
        if event["what"] in ("dies", "freezes"):
            deaths[event["pid"]].append(line)
            if event["what"] == "freezes" and storm.is_sqlite:  # it may hold the file: see docs/limits.md
                deaths[-1].append(line)
        else:
            by_key[event["key"]].append(event)
            if event["what"] == "told":
                counts[event["error"][0] if event["error"] else "success"] += 1
    faults, store = [], storm.open_store()  # one that was away takes nothing for lost, for a while
    for key, events in by_key.items():
        entry = await store.ledger.find("local", key)
        find = faults_of_task if key.startswith(("book", "plan")) else faults_of
        faults += [f"{key} {fault}" for fault in find(key, events, deaths, entry)]
        if find is faults_of_task and entry is not None:
            error = entry.result and entry.result["error"]
            counts[f"row {'lost' if entry.is_lost else error['code'] if error else entry.state}"] += 1
    store.close()
    assert not faults, "\n".join(faults)
    return counts


storms = pytest.mark.parametrize(
    ("kills", "freezes"),
    [
        pytest.param(4, False, id="4"),
        pytest.param(16, True, id="16", marks=pytest.mark.full),
        pytest.param(500, True, id="500", marks=pytest.mark.nightly),
    ],
)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows in a file which process is frozen")
@storms
async def test_processes_that_die_and_freeze_in_every_state_have_effects_once(
    storm: Storm, kills: int, freezes: bool
) -> None:
    await storm.rage(kills, freezes=freezes)
    await storm.retry()
    if freezes:
        await storm.retry()  # tells the same
    counts = await check(storm)
    print(f"{storm.kills} kills, {storm.freezes} freezes: {dict(counts)}")
    assert storm.kills == kills
    assert storm.freezes >= (kills // 8 if freezes else 0)
    assert counts["success"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows in a file which process is frozen")
@storms
async def test_tasks_whose_processes_die_and_freeze_in_every_state_end_and_do_no_step_again(
    storm: Storm, kills: int, freezes: bool
) -> None:
    async with beside(storm.answer(), storm.watch()):
        await storm.rage(kills, freezes=freezes, command="tasks")
        await storm.finish()
    counts = await check(storm)
    print(f"{storm.kills} kills, {storm.freezes} freezes, due for {storm.longest_due_s:.1f} s: {dict(counts)}")
    assert storm.kills == kills
    assert storm.freezes >= (kills // 8 if freezes else 0)
    assert counts["row ended"] > 0
