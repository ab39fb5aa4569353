"""The pool of worker processes: which one serves, what becomes of those that are ended, and what each may do."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolcrib.sandbox import Limits, Processes, TooLarge, WorkerGone
from toolcrib.sandbox.processes import Worker

from ..doubled import doubled
from ..waiting import until
from .family import family, leased, lives

Pool = Callable[..., Any]

SERVED = """
import os, subprocess, sys, time

async def echo(channel):
    async for message in channel.messages():
        channel.send({"pid": os.getpid(), **message})

async def deaf(channel):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    channel.send({"pid": os.getpid(), "child": child.pid})
    time.sleep(600)

async def talk(channel):
    async for message in channel.messages():
        print("printed", flush=True)
        if "begun" in message:
            open(message["begun"], "w").close()
        channel._sock.sendall(bytes.fromhex(message.get("hex", "")) or b"\\0\\0\\0\\2{}")
"""

OPEN_FILES = """
import asyncio, os, sys, time
from contextlib import suppress
from toolcrib.sandbox import Processes

def open_files():
    files = set()
    with os.scandir("/proc/self/fd") as entries:  # among them the listing itself, which goes for both
        for entry in entries:
            with suppress(FileNotFoundError):  # closed meanwhile
                files.add((entry.name, os.readlink(entry.path)))
    return files

async def use(*, sound):
    workers = Processes(target="served:echo")
    worker = workers.take()
    await worker.send({})
    await worker.receive()
    workers.give_back(worker, sound=sound)
    await workers.close()

async def main():
    before = open_files()
    await use(sound=True)
    await use(sound=False)
    until = time.monotonic() + 60
    while open_files() != before:  # a thread closes them
        assert time.monotonic() < until, open_files() ^ before
        await asyncio.sleep(0.01)
    sys.executable = "/no/such/python"
    try:
        Processes(target="served:echo").take()
    except FileNotFoundError:
        assert open_files() == before
    else:
        raise AssertionError("there is no such python")

asyncio.run(main())
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Workers that run one of the functions of SERVED: `async with pool("echo") as workers`."""
    (tmp_path / "served.py").write_text(SERVED)
    monkeypatch.syspath_prepend(tmp_path)

    @asynccontextmanager
    async def pool(name: str = "echo", **options: Any) -> AsyncIterator[Processes]:
        workers = Processes(target=f"served:{name}", **options)
        try:
            yield workers
        finally:
            await workers.close()

    yield pool


async def pid_of(workers: Processes) -> int:
    async with leased(workers) as worker:
        await worker.send({})
        return int((await worker.receive())["pid"])


async def test_the_worker_that_knows_a_tool_serves_it_and_else_the_one_used_last(pool: Pool) -> None:
    async with pool(size=3) as workers:
        taken = [workers.take() for _ in range(3)]
        taken[0].known.add("tool")
        for worker in taken:
            workers.give_back(worker, sound=True)
        assert workers.take("tool") is taken[0]
        assert workers.take("tool") is taken[2]
        assert workers.take() is taken[1]
        for worker in taken:
            workers.give_back(worker, sound=True)


async def test_a_worker_serves_one_owner_unless_it_is_shared_and_the_oldest_idle_ones_end(pool: Pool) -> None:
    async with pool(size=2) as workers:
        taken = {owner: workers.take(owner=owner) for owner in ("a", "b", "c")}
        for worker in taken.values():
            workers.give_back(worker, sound=True)
        await asyncio.wait_for(taken["a"].ended(), 60)
        assert workers.take(owner="a") not in taken.values()
        assert workers.take(owner="c") is taken["c"]
    async with pool(shared=True) as workers:
        first = workers.take(owner="a")
        workers.give_back(first, sound=True)
        assert workers.take(owner="b") is first


async def test_a_worker_that_is_forgotten_while_it_serves_does_not_serve_again(pool: Pool) -> None:
    async with pool() as workers:
        async with leased(workers) as worker:
            await worker.send({})
            first = (await worker.receive())["pid"]
            workers.forget()
            await worker.send({})
            assert (await worker.receive())["pid"] == first
        assert await pid_of(workers) != first


async def test_a_worker_that_is_forgotten_while_it_is_taken_does_not_serve_again(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pool() as workers:
        first = await pid_of(workers)
        forgetting = threading.Thread(target=workers.forget)

        def alive(_: Any) -> bool:  # asked on the way from idle to busy
            forgetting.start()
            forgetting.join(0.2)
            return True

        with monkeypatch.context() as patch:
            patch.setattr(Worker, "alive", property(alive))
            worker = workers.take()
        forgetting.join()
        workers.give_back(worker, sound=True)
        assert await pid_of(workers) != first


def test_workers_leave_no_open_file_behind(tmp_path: Path) -> None:
    program = tmp_path / "program.py"  # a process of its own: what other tests have left opens and closes files too
    program.write_text(OPEN_FILES)
    (tmp_path / "served.py").write_text(SERVED)
    subprocess.run([sys.executable, program], check=True, timeout=120)


async def test_a_worker_that_dies_before_it_has_read_is_gone_and_not_taken_again(pool: Pool) -> None:
    async with pool("deaf") as workers:
        worker = workers.take()
        pid = (await worker.receive())["pid"]
        await worker.send({"never": "read"})
        workers.give_back(worker, sound=True)
        os.kill(pid, signal.SIGKILL)
        assert not await lives(worker.pid)
        with pytest.raises(WorkerGone, match="was ended by SIGKILL"):
            await worker.receive()
        assert workers.take() is not worker
        await until(lambda: not worker.abandon.alive)  # its files are closed, though somebody holds it


async def test_more_than_the_limit_is_neither_sent_nor_received(pool: Pool) -> None:
    async with pool("talk", limits=Limits(output_bytes=100)) as workers:
        with pytest.raises(WorkerGone, match="sent 101 bytes at once; the limit is 100"):
            async with leased(workers) as worker:
                await worker.send({"hex": "00000065"})
                await worker.receive()
        async with leased(workers) as worker:
            await worker.send({"hex": (b"\0\0\0\x64" + b'{"n":"%s"}' % (b"x" * 92)).hex()})
            assert await worker.receive() == {"n": "x" * 92}
            with pytest.raises(TooLarge, match="67108872 bytes are over the limit of 67108864 bytes"):
                await worker.send({"n": "x" * (64 * 2**20)})


async def test_a_worker_is_out_of_reach_of_the_terminals_signals(pool: Pool) -> None:
    async with pool() as workers, leased(workers) as worker:
        assert os.getsid(worker.pid) == worker.pid != os.getsid(0)


async def test_a_guard_whose_host_has_ended_starts_nothing(pool: Pool, tmp_path: Path) -> None:
    from json import dumps

    from toolcrib.sandbox import guard

    settings = {"host": os.getppid(), "channel": 0, "path": sys.path, "target": "served:echo"}
    process = await asyncio.create_subprocess_exec(sys.executable, guard.__file__, dumps(settings))
    assert await process.wait() == 0


async def test_workers_that_nobody_holds_end_also_where_their_guards_are_stopped(pool: Pool) -> None:
    async with pool("deaf") as workers:
        worker = workers.take()
        await worker.receive()
        pids = family()
        for guard in pids[:2]:
            os.kill(guard, signal.SIGSTOP)
        worker.abandon()
        assert not Path(f"/proc/{worker.pid}").exists(), "it is waited for"
        for pid in pids:
            assert not await lives(pid)
        workers.give_back(worker, sound=True)


@pytest.mark.parametrize("victim", ["the outer guard", "the inner guard while the outer one is stopped"])
async def test_a_worker_and_what_it_has_started_end_with_a_guard(pool: Pool, victim: str) -> None:
    async with pool("deaf") as workers:
        worker = workers.take()
        pid = (await worker.receive())["pid"]
        outer, inner, *_ = pids = family()
        assert (outer, pids.index(pid)) == (worker.pid, 2)
        if "stopped" in victim:
            os.kill(outer, signal.SIGSTOP)
            os.kill(inner, signal.SIGKILL)
            assert not await lives(pid)
            os.kill(outer, signal.SIGCONT)
        else:
            os.kill(outer, signal.SIGKILL)
        for each in pids:
            assert not await lives(each)
        workers.give_back(worker, sound=True)


async def test_a_guard_sees_that_its_host_hangs_up(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pool("deaf") as workers:
        worker = workers.take()
        await worker.receive()
        # Else it would be the host that kills them, after a while.
        monkeypatch.setattr("toolcrib.sandbox.processes._END_TIMEOUT_S", 1000.0)
        await asyncio.wait_for(asyncio.to_thread(worker.abandon), 30)
        assert worker.gone
        workers.give_back(worker, sound=True)


def test_a_worker_that_serves_on_a_loop_that_has_ended_ends_when_its_processes_are_closed(tools: str) -> None:
    processes = Processes()
    bench = doubled([tools], processes=processes)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(bench.call("pid"))
    serving = loop.create_task(bench.call("nap", {"seconds": 60}))  # held, and never cancelled
    loop.run_until_complete(asyncio.sleep(0.1))
    loop.close()
    assert len(family()) == 3
    asyncio.run(processes.close())
    assert family() == []
    serving._log_destroy_pending = False  # type: ignore[attr-defined]
