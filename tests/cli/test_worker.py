"""`toolcrib worker`, as real processes over one store: which come, go, and have tools of other versions."""

import asyncio
import json
import signal
import subprocess
import urllib.request
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest

from toolcrib import Caller, Context, Crib, tool
from toolcrib.cli import worker
from toolcrib.core import SetupError
from toolcrib.store import Store
from toolcrib.store.tables import LEDGER

from ..waiting import until
from .conftest import WAIT_S, Start, read_to

KEY = b"k" * 32
SETTINGS = "[calls]\nmetrics = true\n[server]\ngrace_s = 2\n"
TOOLS = """
import asyncio, os
from pathlib import Path
from toolcrib import Context, tool

HERE = Path(__file__).parent


def effect(text: str) -> None:
    with open(HERE / "effects", "a") as file:
        file.write(f"{text}\\n")


async def hold(name: str) -> None:
    worker = os.environ["WORKER"]
    effect(f"{name} begins at {worker}")
    while not (HERE / f"go-{name}-{worker}").exists():
        await asyncio.sleep(0.02)
    effect(f"{name} ends at {worker}")


@tool(task=True, idempotent=True)
async def work(name: str, context: Context) -> str:
    await context.step("one", effect, f"{name}, step one")
    await context.step("two", hold, name)
    return f"{name} by {os.environ['WORKER']}"
"""


@tool(task=True, idempotent=True)
async def work(name: str, context: Context) -> str:
    """Do in this process what the workers should do."""
    return "by the wrong process"


class Bench:
    """A crib that submits and runs nothing, and workers of its store."""

    def __init__(self, crib: Crib, folder: Path, start: Start, url: str) -> None:
        self.crib, self.folder, self.start, self.url = crib, folder, start, url
        self.ready_lines: list[str] = []

    async def submit(self, name: str) -> str:
        pending = (await self.crib.workbench(Caller("ann")).call("work", {"name": name})).pending
        assert pending is not None
        return pending.id

    @contextmanager
    def worker(self, name: str, *options: str, source: str = "tools.py") -> Generator["subprocess.Popen[str]"]:
        with self.start("worker", source, "--store", self.url, *options, WORKER=name) as process:
            self.ready_lines.append(read_to(process, "Ctrl-C stops it"))
            yield process

    def effects(self) -> list[str]:
        file = self.folder / "effects"
        return file.read_text().splitlines() if file.exists() else []

    def go(self, name: str, worker: str) -> None:
        (self.folder / f"go-{name}-{worker}").touch()

    async def sees(self, *effects: str) -> None:
        async def is_there() -> bool:
            return set(effects) <= set(self.effects())

        await until(is_there)

    async def result(self, id: str) -> str:
        return (await self.crib.tasks.wait(id, timeout_s=WAIT_S)).text


async def terminated(process: "subprocess.Popen[str]") -> int:
    process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(process.wait, WAIT_S)


@pytest.fixture
async def bench(folder: Path, environment: dict[str, str], start: Start, url: str) -> AsyncGenerator[Bench]:
    environment["TOOLCRIB_KEY"] = b64encode(KEY).decode()
    store = Store(url, key=lambda: [KEY])
    try:
        async with Crib([work], store=store, tasks=0) as crib:
            yield Bench(crib, folder, start, url)
    finally:
        store.close()


async def test_a_worker_that_is_told_to_stop_ends_what_it_can_and_gives_the_rest_back(bench: Bench) -> None:
    with bench.worker("A", "--port", "0") as process:
        short, long = [await bench.submit(name) for name in ("short", "long")]
        await bench.sees("short begins at A", "long begins at A")
        process.send_signal(signal.SIGTERM)
        late = await bench.submit("late")
        bench.go("short", "A")
        assert await bench.result(short) == "short by A"
        assert await asyncio.to_thread(process.wait, WAIT_S) == 128 + signal.SIGTERM
        given_back = await bench.crib.tasks.get(long)
        assert (given_back.state, given_back.attempts) == ("waiting", 0)
    with bench.worker("B", "--concurrency", "1"):
        for name in ("long", "late"):
            bench.go(name, "B")
        assert [await bench.result(id) for id in (long, late)] == ["long by B", "late by B"]
    assert (await bench.crib.tasks.get(long)).attempts == 0
    assert bench.effects().count("long, step one") == 1


def with_depth(parameter: str) -> str:
    """Return the tools with one more parameter."""
    return TOOLS.replace("name: str, context: Context) -> str:", f"name: str, context: Context, {parameter}) -> str:")


async def test_workers_of_two_versions_leave_the_tasks_of_one_another_alone(bench: Bench) -> None:
    (bench.folder / "new.py").write_text(with_depth("*, depth: int"))

    @tool(task=True, idempotent=True, name="work")
    async def new_work(name: str, depth: int) -> str:
        """Do in this process what the new workers should do."""
        return "by the wrong process"

    for name, version in (("a", "old"), ("b", "new"), ("c", "old"), ("d", "new")):
        bench.go(name, version)
    async with Crib([new_work], store=bench.crib.store, tasks=0) as new_crib:

        async def submit_new(name: str) -> str:
            pending = (await new_crib.workbench(Caller("ann")).call("work", {"name": name, "depth": 1})).pending
            assert pending is not None
            return pending.id

        with bench.worker("new", source="new.py") as new:
            first, second = await bench.submit("a"), await submit_new("b")
            assert await bench.result(second) == "b by new"
            task = await bench.crib.tasks.get(first)
            assert (task.state, task.attempts) == ("queued", 0)
            with bench.worker("old"):
                assert await bench.result(first) == "a by old"
                assert await terminated(new) == 128 + signal.SIGTERM
                first, second = await submit_new("d"), await bench.submit("c")
                assert await bench.result(second) == "c by old"
                task = await bench.crib.tasks.get(first)
                assert (task.state, task.attempts) == ("queued", 0)
        with bench.worker("new", source="new.py"):
            assert await bench.result(first) == "d by new"


@pytest.mark.parametrize("is_fit", [True, False])
async def test_a_task_whose_definition_is_gone_goes_to_another_after_a_minute(bench: Bench, is_fit: bool) -> None:
    (bench.folder / "new.py").write_text(with_depth("*, depth: int = 1" if is_fit else "*, depth: int"))
    with bench.worker("new", source="new.py"):
        id = await bench.submit("a")
        bench.go("a", "new")
        minute_ago = {name: LEDGER.c[name] - 60_000_000 for name in ("run_at", "lease_until")}
        await bench.crib.store.transact(lambda connection: connection.execute(LEDGER.update().values(minute_ago)))
        result = await bench.crib.tasks.wait(id, timeout_s=WAIT_S)
    if is_fit:
        assert result.text == "a by new"
    else:
        assert result.error is not None
        assert (result.error.code, result.error.retry) == ("conflict", "never")
        assert "'work' changed while this task waited" in result.error.message
        assert "depth" in result.error.message
        assert bench.effects() == []


async def test_a_worker_says_that_it_is_ready_and_counts_what_waits(bench: Bench) -> None:
    with bench.worker("A", "--port", "0") as process:
        await bench.submit("dig")
        await bench.sees("dig begins at A")
        url = bench.ready_lines[-1].split(", with ")[1].split("/readyz")[0]

        def answer(path: str, **headers: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(urllib.request.Request(url + path, headers=headers), timeout=30) as got:
                    return got.status, got.read().decode()
            except HTTPError as error:
                return error.code, ""

        status, text = await asyncio.to_thread(answer, "/readyz")
        assert (status, json.loads(text)["status"], json.loads(text)["tools"]) == (200, "ready", 1)
        status, text = await asyncio.to_thread(answer, "/metrics")
        assert (status, 'toolcrib_tasks{state="running"} 1.0' in text) == (200, True)
        assert (await asyncio.to_thread(answer, "/api/tools"))[0] == 404
        assert (await asyncio.to_thread(answer, "/readyz", Host="evil.example"))[0] == 421
        process.send_signal(signal.SIGTERM)
        assert (await until(lambda: asyncio.to_thread(stopping_status, answer))) == 503
        bench.go("dig", "A")


def stopping_status(answer: Callable[[str], tuple[int, str]]) -> int | None:
    status, _ = answer("/readyz")
    return None if status == 200 else status


def test_a_database_file_that_machines_share_is_refused(tmp_path: Path) -> None:
    mounts, store = tmp_path / "mounts", Store(tmp_path / "store.db")
    for kind in ("ext4", "nfs4"):
        mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/b {tmp_path} {kind} rw 0 0\n")
        if kind == "ext4":
            worker.require_local(store, mounts)
            continue
        with pytest.raises(SetupError, match=r"need PostgreSQL: --store postgresql://"):
            worker.require_local(store, mounts)
