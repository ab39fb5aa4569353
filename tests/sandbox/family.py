"""The processes that came of a test, without those that others have started before it, such as servers of a session."""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from toolcrib.sandbox import Processes, Worker
from toolcrib.sandbox.guard import descendants

earlier: set[int] = set()
"""The descendants of this process when the test began."""


def family() -> list[int]:
    """The living descendants of this process that came of the test, the nearest first."""
    # What forks for the commands of all tests may be a child of this process: its own come and go between two looks.
    before = {*descendants(os.getpid())}
    others = {below for pid in earlier for below in (pid, *descendants(pid))}
    return [pid for pid in descendants(os.getpid()) if pid in before and pid not in others]


async def lives(pid: int) -> bool:
    """Whether the process lives; waits until it does not, for a while."""
    for _ in range(6000):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    return False
        except OSError:
            return False
        await asyncio.sleep(0.01)
    return True


async def all_ended(folder: Path) -> None:
    """Wait until all have ended that `isolated_tools.hold` has given the lock of *folder* to."""
    with (folder / "alive").open() as file:
        async with asyncio.timeout(60):
            while True:
                try:
                    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.sleep(0.01)


@asynccontextmanager
async def leased(workers: Processes) -> AsyncGenerator[Worker]:
    """A worker for the block, used again afterwards only if the block ended without an exception."""
    turn = await workers.turns.acquire()
    try:
        worker, is_sound = workers.take(), False
        try:
            yield worker
            is_sound = True
        finally:
            workers.give_back(worker, sound=is_sound)
    finally:
        workers.turns.release(turn)
