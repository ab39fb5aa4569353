"""Two servers and three workers on one PostgreSQL, while processes are killed and frozen, connections are cut and stand
still, processes of the database hang, and the clock of one machine is wrong: nothing is lost, nothing that may not be
repeated is, and all is taken up.

The processes are those of `once_worker.py`; the checker of `test_once_storm.py` reads their log and the ledger.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from toolcrib.core import StoreError

from .. import fuzz
from .once_worker import is_alive
from .test_once_storm import LEASE_S, Storm, beside, check
from .wires import Wire, wire

AHEAD_S = 300.0
"""How wrong the clock of the second machine is."""
LONG_S, SHORT_S = (LEASE_S * 1.2, LEASE_S * 1.6), (0.05, LEASE_S * 0.2)
PLACES = (("serve", 0), ("run", 0), ("run", 0), ("serve", 1), ("run", 1))
"""What runs, and on which machine."""
FAULTS = ("kill", "kill", "freeze", "cut", "cut all", "hang", "hang long", "part", "hang backend", "hang backend long")
MAX_LATE_S = 20.0
"""For how long a lease is over before another process takes up what it was of: a second where the machine is free."""

_LATE = text(
    "SELECT max(extract(epoch FROM clock_timestamp()) - lease_until / 1e6) FROM toolcrib_ledger "
    "WHERE is_task = 1 AND state = 'running' AND idempotent = 1"
)
_ENDED = text("SELECT count(*) FROM toolcrib_ledger WHERE is_task = 1 AND state = 'ended'")
_BACKEND = text("SELECT pid FROM pg_stat_activity WHERE application_name = :name ORDER BY random() LIMIT 1")


class Machines(Storm):
    """Processes on two machines, and what befalls them."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        super().__init__(url, folder, seed)
        self.url, self.stack = url, AsyncExitStack()
        clock, worker = (str(Path(__file__).with_name(name)) for name in ("moved_clock.py", "once_worker.py"))
        command = [sys.executable, clock, str(AHEAD_S), worker, url, str(folder / "store.key"), str(folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._second = subprocess.Popen([*command, str(LEASE_S)], **pipes)
        self.faults: Counter[str] = Counter()
        self.longest_late_s = 0.0
        self._wires = 0

    def close(self) -> None:
        super().close()
        self._second.kill()
        self._second.communicate()

    async def start(self, command: str, machine: int) -> tuple[int, str, Wire]:
        """Start a process. Return its number, the name of its connections, and what it reaches the database by."""
        self._wires += 1
        name = f"wire {self._wires}"
        own = await self.stack.enter_async_context(wire(self.url, name))
        parents = self._parent, self._second
        self._parent = parents[machine]
        try:
            return self._fork(command, self.dice.getrandbits(32), own.url), name, own
        finally:
            self._parent = parents[0]

    async def live(self, command: str, machine: int, faults: list[str]) -> None:
        """Let a process live, replaced where it is killed, until *faults* are over, which all processes share, and
        tasks have ended.
        """
        pid, name, own = await self.start(command, machine)
        enough = len(faults) // len(FAULTS)
        while faults or await self.ended() <= enough:
            if not faults or not own.connections:
                await asyncio.sleep(0.1)
                continue
            fault = faults.pop()
            self.faults[fault] += 1
            await asyncio.sleep(self.dice.uniform(0.5, 2.0))
            await self.befall(fault, pid, name, own)
            if not is_alive(pid):
                self._alive.discard(pid)
                pid, name, own = await self.start(command, machine)
        await self.befall("kill", pid, name, own)

    async def ended(self) -> int:
        """Return how many tasks have ended."""
        return int(await self.store.transact(lambda c: c.execute(_ENDED).scalar_one(), write=False))

    async def befall(self, fault: str, pid: int, name: str, own: Wire) -> None:
        long_s, short_s = self.dice.uniform(*LONG_S), self.dice.uniform(*SHORT_S)
        if fault == "kill":
            os.kill(pid, signal.SIGKILL)
            await self._until_gone(pid)
            self.log.write("dies", at="a random moment", pid=pid)
        elif fault == "freeze":
            os.kill(pid, signal.SIGSTOP)
            await self._excused(pid, long_s)
            os.kill(pid, signal.SIGCONT)
        elif fault == "part":  # from all others, for a while
            own.is_down = True
            own.cut()
            await self._excused(pid, long_s)
            own.is_down = False
        elif fault == "cut all":
            own.cut()
        elif fault.startswith("hang backend"):
            with suppress(StoreError):
                backend = await self.store.transact(lambda c: c.execute(_BACKEND, {"name": name}).scalar(), write=False)
                if backend is not None:
                    with suppress(ProcessLookupError):
                        os.kill(backend, signal.SIGSTOP)
                        try:
                            await (self._excused(pid, long_s) if fault.endswith("long") else asyncio.sleep(short_s))
                        finally:
                            os.kill(backend, signal.SIGCONT)
        elif own.connections:
            connection = self.dice.choice(sorted(own.connections, key=id))
            if fault == "cut":
                connection.cut()
            else:
                connection.may_pass.clear()
                await (self._excused(pid, long_s) if fault.endswith("long") else asyncio.sleep(short_s))
                connection.may_pass.set()

    async def _excused(self, pid: int, for_s: float) -> None:
        """Wait, and note again and again that this process may lose its leases."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            self.log.write("freezes", at="from outside", pid=pid)
            await asyncio.sleep(0.2)

    async def watch_leases(self) -> None:
        """Note how late tasks are taken over, by the clock of the database, until this is cancelled."""
        while True:
            with suppress(StoreError):
                late_s = await self.store.transact(lambda c: c.execute(_LATE).scalar(), write=False)
                self.longest_late_s = max(self.longest_late_s, float(late_s or 0))
            await asyncio.sleep(0.1)


@pytest.fixture
async def machines(url: str, tmp_path: Path) -> AsyncIterator[Machines]:
    machines = Machines(url, tmp_path, fuzz.seed(11))
    yield machines
    machines.close()
    await machines.stack.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows in a file which process is frozen")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    "rounds", [pytest.param(3, id="3", marks=pytest.mark.full), pytest.param(40, id="40", marks=pytest.mark.nightly)]
)
async def test_two_servers_and_three_workers_lose_and_repeat_nothing_whatever_befalls_them(
    machines: Machines, rounds: int
) -> None:
    await machines.store.ledger.counts()  # the tables are there before the storm
    faults = [*FAULTS] * rounds
    machines.dice.shuffle(faults)
    async with beside(machines.answer(), machines.watch(), machines.watch_leases()):
        await asyncio.gather(*(machines.live(*place, faults) for place in PLACES))
        await machines.finish()
    counts = await check(machines)
    print(f"{dict(machines.faults)}, due for {machines.longest_due_s:.1f} s: {dict(counts)}")
    print(f"taken over {machines.longest_late_s:.1f} s late")
    assert machines.faults == Counter([*FAULTS] * rounds)
    assert machines.longest_late_s < MAX_LATE_S
    assert counts["row ended"] > rounds
