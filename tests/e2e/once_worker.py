"""Processes that make calls with keys and run tasks, and die or freeze.

`once_worker.py URL KEY FOLDER LEASE_S` takes a command each line. `work SEED FREEZE_AT DIE_AT` forks a process that
makes calls until it is killed, or kills itself; `retry SEED` one that makes every call again that was ever made;
`tasks SEED FREEZE_AT DIE_AT` one that makes tasks, cancels some and runs all; `finish SEED` one that only runs them.
`serve SEED URL` forks a server that makes tasks and runs none, `run SEED URL` a worker: each reaches the store at URL.
What they do is in the file `log`, one line of JSON for each event.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sqlalchemy import select

from toolcrib import Call, Context, Crib, ToolError, Workbench, tool
from toolcrib.core import StoreError
from toolcrib.store import Store
from toolcrib.store.tables import LEDGER
from toolcrib.store.tasks import DatabaseTasks

AT_ONCE = 6
TASKS_AT_ONCE = 3
POINTS = (
    "after the effect",
    "after the row",
    "before the end",
    "in the transaction of the row",
    "before the row",
    "before the effect",
    "in the transaction of the end",
    "after the end",
)
TAKING = "in the transaction that takes"
TASK_POINTS = (
    *POINTS,
    TAKING,
    "after the taking",
    "before the step",
    "in the transaction of the step",
    "after the step",
    "before the waiting",
    "after the waiting",
)


class Log:
    """Lines that every process appends, each in one write."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, key: str = "", **more: Any) -> None:
        event = {"what": what, "key": key, "pid": os.getpid(), **more}
        os.write(self._file, json.dumps(event).encode() + b"\n")
        if what == "effect":
            os.fsync(self._file)

    def events(self, key: str = "") -> list[dict[str, Any]]:
        lines = os.pread(self._file, os.fstat(self._file).st_size, 0).splitlines()
        return [json.loads(line) for line in lines if f'"key": "{key}{key and chr(34)}'.encode() in line]


class Fate:
    """When a process freezes, and when it dies: the third time, or so, that it comes to a point."""

    def __init__(self, log: Log, dice: random.Random, freeze_at: str, die_at: str) -> None:
        self._log = log
        fates = ((freeze_at, signal.SIGSTOP), (die_at, signal.SIGKILL))
        self._plan = [(point, number, dice.randrange(4)) for point, number in fates if point in TASK_POINTS]

    def at(self, point: str) -> None:
        if not self._plan or self._plan[0][0] != point:
            return
        _, number, times = self._plan.pop(0)
        if times:
            self._plan.insert(0, (point, number, times - 1))
        else:
            self._log.write("freezes" if number == signal.SIGSTOP else "dies", at=point)
            os.kill(os.getpid(), number)


_point: ContextVar[str] = ContextVar("point", default="")
"""What point a transaction comes to just before its commit."""


@contextmanager
def transaction(point: str) -> Generator[None]:
    token = _point.set(point)
    try:
        yield
    finally:
        _point.reset(token)


class FatedStore(Store):
    """A store whose process dies in a transaction."""

    fate: Fate
    ledger: "FatedLedger"

    async def transact(self, work: Any, **how: Any) -> Any:
        point = _point.get()

        def work_and_die(connection: Any) -> Any:
            began = time.monotonic()
            value = work(connection)
            if point != TAKING or self.ledger.note_taken(connection, began):
                self.fate.at(point)
            return value

        return await super().transact(work_and_die, **how)


class FatedLedger(DatabaseTasks):
    """A ledger whose process dies around what it writes."""

    fate: Fate
    log: Log

    def __init__(self, store: Store, **times: float) -> None:
        super().__init__(store, **times)
        self.fences: dict[str, int] = {}
        """Which run of a task is the one that runs here, by its key."""

    async def claim(self, entry: Any, /) -> Any:
        self.fate.at("before the row")
        claimed = await super().claim(entry)
        if claimed.is_own:
            self.fate.at("after the row")
        return claimed

    async def submit(self, entry: Any, subjects: Any = (), /) -> Any:
        self.fate.at("before the row")
        submitted = await super().submit(entry, subjects)
        self.fate.at("after the row")
        return submitted

    async def take(self, *values: Any, **names: Any) -> Any:
        with transaction(TAKING):
            entries = await super().take(*values, **names)
        if entries:
            self.fate.at("after the taking")
        return entries

    def note_taken(self, connection: Any, began: float) -> bool:
        """Write down what is taken in the transaction of *connection*. Return whether there is anything."""
        own = select(LEDGER.c["key", "fence", "attempts"]).where(
            LEDGER.c.is_task == 1, LEDGER.c.state == "running", LEDGER.c.owner == self._heartbeat().owner
        )
        rows = [row for row in connection.execute(own) if self.fences.get(row.key) != row.fence]
        was_frozen = time.monotonic() - began > 1.0  # on its way here, by another thread
        for row in rows:
            self.log.write("takes", row.key, fence=row.fence, attempts=row.attempts, was_frozen=was_frozen)
            self.fences[row.key] = row.fence
        return bool(rows)

    async def park(self, entry: Any, run_at: Any, subjects: Any = ()) -> bool:
        self.fate.at("before the waiting")
        self.log.write("waits", entry.key, fence=entry.fence)
        is_parked = await super().park(entry, run_at, subjects)
        self.fate.at("after the waiting")
        return is_parked

    async def add_step(self, entry: Any, position: int, key: str, value: Any, is_parallel: bool = False, /) -> bool:
        self.fate.at("before the step")
        with transaction("in the transaction of the step"):
            is_stored = await super().add_step(entry, position, key, value, is_parallel)
        if is_stored and key.startswith("step"):
            self.log.write("step", entry.key, fence=entry.fence, step=key.split()[1], run=value)
        self.fate.at("after the step")
        return is_stored

    def _claim(self, connection: Any, entry: Any, owner: str) -> Any:
        claimed = super()._claim(connection, entry, owner)
        self.fate.at("in the transaction of the row")
        return claimed

    async def _end(self, *values: Any, **names: Any) -> Any:
        self.fate.at("before the end")
        with transaction("in the transaction of the end"):
            stored = await super()._end(*values, **names)
        self.fate.at("after the end")
        return stored


def tools(log: Log, fate: Fate, dice: random.Random, longest_s: float) -> list[Any]:
    async def effect(key: str) -> dict[str, str]:
        slow_s = longest_s if dice.random() < 0.02 else 0.02
        await asyncio.sleep(dice.uniform(0, slow_s))
        fate.at("before the effect")
        run = f"{dice.getrandbits(64):x}"
        log.write("effect", key, run=run)
        fate.at("after the effect")
        await asyncio.sleep(dice.uniform(0, slow_s))
        return {"run": run}

    @tool
    async def pay(key: str) -> dict[str, str]:
        """Pay, at most once."""
        return await effect(key)

    @tool(idempotent=True)
    async def put(key: str) -> dict[str, str]:
        """Put, any number of times, and sometimes not now."""
        if dice.random() < 0.2:
            raise ToolError("Come back.", "unavailable", retry="later")
        return await effect(key)

    @tool
    async def fail(key: str) -> None:
        """Fail, after the effect."""
        raise ToolError(f"It failed: {(await effect(key))['run']}")

    async def has_paid(key: str) -> Any:
        """Return the payment; None while a process that could still make it is alive, and may be frozen."""
        events = log.events(key)
        for event in events:
            if event["what"] == "effect":
                return {"run": event["run"]}
        ended = {event["id"] for event in events if event["what"] in ("told", "gave up")}
        unsure = [event["pid"] for event in events if event["what"] == "call" and event["id"] not in ended]
        return None if sum(is_alive(pid) for pid in unsure) > 1 else False

    @tool(verify=has_paid)
    async def transfer(key: str) -> dict[str, str]:
        """Transfer, at most once; the bank knows whether it was done."""
        return await effect(key)

    return [pay, put, fail, transfer]


def task_tools(log: Log, ledger: FatedLedger, dice: random.Random, longest_s: float) -> list[Any]:
    async def effect(key: str, step: str) -> str:
        fence, slow_s = ledger.fences[key], longest_s if dice.random() < 0.02 else 0.05
        await asyncio.sleep(dice.uniform(0, slow_s))
        ledger.fate.at("before the effect")
        run = f"{dice.getrandbits(64):x}"
        log.write("effect", key, run=run, step=step, fence=fence)
        ledger.fate.at("after the effect")
        await asyncio.sleep(dice.uniform(0, slow_s))
        return run

    async def journey(key: str, context: Context) -> dict[str, str]:
        first = await context.step("first", effect, key, "first")
        number = int(key.rpartition("-")[2])
        if number % 2 == 0:
            await context.sleep(0.1)
        name = await context.ask("name", str, f"Who is {key}?") if number % 3 else ""
        second = await context.step("second", effect, key, "second")
        return {"first": first, "run": second, "name": name}

    @tool(task=True)
    async def book(key: str, context: Context) -> dict[str, str]:
        """Book, at most once."""
        return await journey(key, context)

    @tool(task=True, idempotent=True)
    async def plan(key: str, context: Context) -> dict[str, str]:
        """Plan, any number of times."""
        return await journey(key, context)

    return [book, plan]


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def call(
    bench: Workbench, log: Log, key: str, dice: random.Random, *, is_final: bool = False, may_break_off: bool = False
) -> str:
    """Make the call of *key*, and write down what was told: the tool is in the key, as in `pay-7`."""
    id, kind = f"{dice.getrandbits(64):x}", "" if is_final else dice.choice(["", "", "", "", "cancel", "timeout"])
    kind = dice.choice(["", "", "", "cancel"]) if may_break_off else kind
    timeout_s = dice.uniform(0.005, 0.1) if kind == "timeout" else 60 if is_final else dice.uniform(0.3, 8)
    log.write("call", key, id=id)
    request = Call(key.split("-")[0], {"key": key}, timeout_s=timeout_s, idempotency_key=key)
    calling = asyncio.ensure_future(bench.call(request))
    if kind == "cancel":
        await asyncio.wait([calling], timeout=dice.uniform(0, 0.06))
        calling.cancel()
    try:
        result = await calling
    except asyncio.CancelledError:
        log.write("gave up", key, id=id)
        return "gave up"
    return tell(log, key, id, result)


def tell(log: Log, key: str, id: str, result: Any) -> str:
    """Write down what was told. Return it; where it is the id of a task, that."""
    if result.pending is not None:
        log.write("acknowledged", key, task=result.pending.id)
        return str(result.pending.id)
    error = None if result.error is None else [result.error.code, result.error.retry, result.error.message]
    log.write("told", key, id=id, value=result.value, error=error)
    return "success" if error is None else f"{error[0]}, {error[1]}"


async def work(bench: Workbench, log: Log, dice: random.Random, begun_at: float) -> None:
    """Make calls with keys that other processes use at the same time: new ones all the time."""

    async def calls() -> None:
        while True:
            number = int((time.time() - begun_at) * 30) + dice.randrange(12)
            name = ("pay", "put", "fail", "transfer", "pay", "put")[number % 6]
            await call(bench, log, f"{name}-{number}", dice)

    await asyncio.gather(*(calls() for _ in range(AT_ONCE)))


async def make_tasks(crib: Crib, log: Log, dice: random.Random, begun_at: float) -> None:
    """Make tasks that other processes make at the same time, cancel some, and wait for them."""
    bench = crib.workbench()

    async def tasks() -> None:
        while True:
            number = int((time.time() - begun_at) * 6) + dice.randrange(3)
            key = f"{'book' if number % 4 < 2 else 'plan'}-{number}"
            id = await call(bench, log, key, dice, is_final=True, may_break_off=True)
            if not id.startswith("task_"):
                await asyncio.sleep(0.05)  # the store may be away
                continue
            with suppress(TimeoutError, StoreError):
                if dice.random() < 0.2:
                    await asyncio.sleep(dice.uniform(0, 0.5))
                    log.write("cancel", key)
                    await crib.tasks.cancel(id)
                tell(log, key, id, await crib.tasks.wait(id, timeout_s=dice.uniform(0.5, 3)))

    await asyncio.gather(*(tasks() for _ in range(TASKS_AT_ONCE)))


async def retry(bench: Workbench, log: Log, dice: random.Random) -> None:
    keys = sorted({event["key"] for event in log.events() if event["what"] == "call"})
    share = asyncio.Semaphore(8)

    async def until_final(key: str) -> None:
        async with share:
            for _ in range(100):
                if not (await call(bench, log, key, dice, is_final=True)).endswith(", later"):
                    return

    await asyncio.gather(*map(until_final, keys))


async def run(url: str, key: str, folder: Path, lease_s: float, command: list[str], begun_at: float) -> None:
    log, dice = Log(folder), random.Random(int(command[1]))
    is_of_machine = command[0] in ("serve", "run")
    url, fates = (command[2], []) if is_of_machine else (url, command[2:])
    fate, is_wild = Fate(log, dice, *[*fates, "", ""][:2]), bool(fates)
    store = FatedStore(url, key=key)
    store.ledger = ledger = FatedLedger(store, lease_s=lease_s)
    store.fate, ledger.fate, ledger.log = fate, fate, log
    longest_s = lease_s * 1.5 if is_wild else 0
    if command[0] in ("tasks", "finish", "serve", "run"):
        places = 0 if command[0] == "serve" else 32
        async with Crib(task_tools(log, ledger, dice, longest_s), store=store, tasks=places) as crib:
            is_maker = is_wild or command[0] == "serve"
            await (make_tasks(crib, log, dice, begun_at) if is_maker else asyncio.Event().wait())
    else:
        async with Workbench(tools(log, fate, dice, longest_s), store=store) as bench:
            await (work(bench, log, dice, begun_at) if is_wild else retry(bench, log, dice))
    store.close()


def main() -> None:
    """Fork a process for each command: that takes milliseconds, and a new interpreter a second."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies, which would seem to be alive
    begun_at = time.time()
    url, key, folder, lease_s = sys.argv[1:]
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(run(url, key, Path(folder), float(lease_s), line.rstrip("\n").split("\t"), begun_at))
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
