"""Runs that go on by themselves, in a process that is killed often: none is lost, and nothing is paid twice."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import select

from toolcrib import Approve, Crib
from toolcrib.core import AnswerError, StoreError
from toolcrib.store import Store
from toolcrib.store.ledger import IS_LOST
from toolcrib.store.tables import LEDGER

from .test_once_storm import MAX_DUE_S, beside

WORKER = Path(__file__).with_name("runs_worker.py")
SEED, RUNS_EACH = 20261128, 3
WAIT_S = 120
_OWNERS_OF_LOST = select(LEDGER.c.owner).where(IS_LOST)


@pytest.mark.parametrize(
    "kills", [pytest.param(8, marks=pytest.mark.full), pytest.param(200, marks=pytest.mark.nightly)]
)
async def test_runs_survive_a_process_that_is_killed_again_and_again(kills: int, tmp_path: Path, url: str) -> None:
    chance, key, effects = random.Random(SEED), tmp_path / "store.key", tmp_path / "effects"
    print(f"seed {SEED}")
    store = Store(url, key=key)
    runs: dict[str, int] = {}
    owners: list[str] = []
    longest_due_s: list[float] = []
    async with Crib([], store=store) as crib:

        async def approve() -> None:
            while True:
                for pending in await crib.pendings():
                    try:
                        await crib.answer(pending.id, Approve(), by="ada")
                    except AnswerError as error:
                        assert error.reason in ("used", "expired", "unknown"), error
                await asyncio.sleep(0.05)

        async def read(worker: asyncio.subprocess.Process) -> None:
            assert worker.stdout is not None
            async for line in worker.stdout:
                number, _, run = line.decode().strip().partition(" ")
                if run:
                    runs[run] = int(number)

        async def start(count: int, first: int) -> asyncio.subprocess.Process:
            command = [str(WORKER), url, str(key), str(effects), str(first), str(count)]
            worker = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=subprocess.PIPE)
            assert worker.stdout is not None
            owners.append((await worker.stdout.readline()).decode().strip())
            assert owners[-1]
            return worker

        async def watch() -> None:
            while True:
                with suppress(StoreError):
                    _, due_s = await store.ledger.counts()
                    longest_due_s.append(due_s)
                    assert due_s <= MAX_DUE_S, f"a task has been due for {due_s:.0f} s"
                await asyncio.sleep(0.5)

        async with beside(approve(), watch()):
            for round_ in range(kills):
                worker = await start(RUNS_EACH, round_ * RUNS_EACH)
                reading, before = asyncio.create_task(read(worker)), len(runs)
                while round_ % 2 and len(runs) == before:  # the others may die before their first run
                    await asyncio.sleep(0.01)
                await asyncio.sleep(chance.uniform(0.05, 1.0))
                worker.kill()
                await worker.wait()
                await reading
            worker = await start(0, 0)
            try:
                results = {run: await crib.tasks.wait(run, timeout_s=WAIT_S) for run in runs}
                lost = await store.transact(lambda c: c.execute(_OWNERS_OF_LOST).scalars().all())
                assert set(lost) <= set(owners[:-1]), (lost, owners)  # whose processes were killed
            finally:
                worker.kill()
                await worker.wait()
    store.close()
    ends = Counter("done" if result.error is None else result.error.code for result in results.values())
    print(f"{len(runs)} runs, {kills} kills, due for {max(longest_due_s):.1f} s: {dict(ends)}")
    assert len(runs) >= kills / 2
    paid = Counter(line for line in effects.read_text().splitlines() if line.startswith("pay"))
    assert [line for line, count in paid.items() if count > 1] == []
    for run, number in runs.items():
        result = results[run]
        if result.error is None:
            assert result.text == f"done {number}"
        else:  # its process died three times while it went on
            assert "its process died each time" in result.text, result
    assert sum(result.error is None for result in results.values()) >= len(runs) / 2
