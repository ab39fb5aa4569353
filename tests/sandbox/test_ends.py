"""However a host ends, its workers end with it, and whatever dies at whatever moment, each call ends exactly once."""

import asyncio
import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from toolcrib import Call, Result, Workbench
from toolcrib.sandbox import Processes, WorkerGone

from .. import fuzz
from ..doubled import doubled
from ..waiting import until
from .family import all_ended, family, leased, lives

HOST = """
import asyncio, os, sys
from toolcrib import Workbench
from toolcrib.sandbox.guard import descendants

bench = Workbench([sys.argv[1]])
async def main():
    await bench.call("pid")
    busy = asyncio.create_task(bench.call("start_others", {"folder": sys.argv[2], "wait_s": 60}))
    while not os.path.exists(sys.argv[2] + "/begun"):
        await asyncio.sleep(0.01)
    print(*descendants(os.getpid()), flush=True)
    if sys.argv[3] == "waits":
        await busy
"""

ENDS = {
    "asyncio.run": HOST + "asyncio.run(main())",
    "a running door": """
import os, sys
from toolcrib import Workbench
from toolcrib.sandbox.guard import descendants
bench = Workbench([sys.argv[1]])
print(bench.call_sync("pid").value, *descendants(os.getpid()), flush=True)
""",
    "an exception": HOST + "async def broken():\n    await main()\n    raise SystemExit(0)\nasyncio.run(broken())",
    "os._exit": HOST + "async def gone():\n    await main()\n    os._exit(0)\nasyncio.run(gone())",
}


@pytest.mark.parametrize(
    "way",
    [
        "asyncio.run",
        *(pytest.param(way, marks=pytest.mark.full) for way in ENDS if way != "asyncio.run"),
    ],
)
async def test_a_host_that_ends_without_stop_leaves_nothing_and_says_nothing(
    tools: str, tmp_path: Path, way: str
) -> None:
    command = [sys.executable, "-W", "error", "-c", ENDS[way], tools, str(tmp_path), "ends"]
    host = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert (host.returncode, host.stderr) == (0, "")
    pids = [int(pid) for pid in host.stdout.split()]
    assert len(pids) >= 2
    for pid in pids:
        assert not await lives(pid)


async def test_a_host_that_is_killed_takes_all_with_it(tools: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOST + "asyncio.run(main())", tools, str(tmp_path), "waits"]
    host = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    pids = [int(pid) for pid in (await host.stdout.readline()).split()]
    assert len(pids) > 6, "two guards, two workers, and what the tool has started"
    host.kill()
    await host.wait()
    for pid in pids:
        assert not await lives(pid)
    await all_ended(tmp_path)


async def test_a_bench_that_is_forgotten_takes_its_workers_with_it(tools: str) -> None:
    async def use() -> int:
        return (await Workbench([tools]).call("pid")).unwrap()

    pid = await use()
    gc.collect()
    assert not await lives(pid)


def test_a_bench_may_be_used_on_one_loop_after_another(tools: str) -> None:
    bench = Workbench([tools])
    for _ in range(2):
        assert asyncio.run(bench.call("pid")).status == "success"
    assert len(family()) == 3, "of the loop that has ended, no worker is left beside it"
    with bench:
        pass


async def test_stop_ends_workers_that_serve(tools: str) -> None:
    bench = Workbench([tools])
    pid = (await bench.call("pid")).unwrap()
    busy = asyncio.create_task(bench.call("nap", {"seconds": 60}))
    await asyncio.sleep(0.1)
    await bench.stop()
    assert not await lives(pid)
    result = await busy
    assert (result.error.code, "was stopped" in result.text) == ("lost", True)


async def test_a_worker_that_is_killed_leaves_nothing(tools: str, tmp_path: Path) -> None:
    async with Workbench([tools]) as bench:
        busy = asyncio.create_task(bench.call("start_others", {"folder": str(tmp_path), "wait_s": 60}))
        await until((tmp_path / "begun").exists)
        _, worker, *others = family()
        os.kill(worker, signal.SIGKILL)
        result = await busy
        assert (result.error.code, "was ended by SIGKILL" in result.text) == ("lost", True)
        for pid in (worker, *others):
            assert not await lives(pid)
        await all_ended(tmp_path)


@pytest.mark.parametrize(
    "at",
    [
        "its parent",
        *(
            pytest.param(at, marks=pytest.mark.full)
            for at in ("its group", "the group of its parent", "the outer guard", "a guard, by a stop")
        ),
    ],
)
async def test_a_tool_that_turns_on_its_guards_leaves_nothing(tools: str, tmp_path: Path, at: str) -> None:
    async with Workbench([tools]) as bench:
        await bench.call("pid")
        result = await bench.call(Call("kill_guards", {"folder": str(tmp_path), "at": at}, timeout_s=2))
        assert result.error.code == ("timeout" if "stop" in at else "lost")
        await all_ended(tmp_path)
        assert (await bench.call("add", {"a": 1, "b": 2})).value == 3


async def test_a_worker_that_ends_before_what_it_has_started_takes_that_with_it(tools: str, tmp_path: Path) -> None:
    async with Workbench([tools]) as bench:
        result = await bench.call(Call("die_before_others", {"folder": str(tmp_path)}, timeout_s=30))
        assert "exited with status 3" in result.text
        assert not await lives(int((tmp_path / "pid").read_text()))


async def chaos(bench: Workbench, calls: int, *, every_s: float) -> Counter[str]:
    """Make *calls* calls while workers and guards are killed; how they ended."""
    done, moments = asyncio.Event(), random.Random(fuzz.seed(5))
    kills = 0

    async def kill() -> None:
        nonlocal kills
        while not done.is_set():
            await asyncio.sleep(moments.uniform(0, every_s))
            if victims := family():
                kills += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(moments.choice(victims), signal.SIGKILL)

    killer = asyncio.create_task(kill())
    results = await bench.call_many([("add", {"a": n, "b": n}) for n in range(calls)], limit=50)
    done.set()
    await killer
    assert kills > 0
    for n, result in enumerate(results):
        assert isinstance(result, Result)
        assert result.value == (2 * n if result.error is None else None)
    ended = Counter("success" if result.error is None else result.error.code for result in results)
    assert ended["lost"] <= kills, "each takes one call with it, and no other"
    return ended


@pytest.mark.parametrize("calls", [50, pytest.param(1000, marks=pytest.mark.nightly)])
async def test_workers_killed_at_random_under_many_calls(tools: str, calls: int) -> None:
    async with Processes(size=4) as processes, doubled([tools], processes=processes) as bench:
        ended = await chaos(bench, calls, every_s=0.8)
    assert set(ended) <= {"success", "lost"}
    assert ended.total() == calls
    assert family() == []


@pytest.mark.parametrize("sent", [b"\0\0\0\2[]", b"\0\0\0\1{", b"\0\0\0\2\xff\xff", b"\0\1\0\0" + b"[" * 2**16])
async def test_a_worker_that_sends_no_message_is_gone(tmp_path: Path, sent: bytes) -> None:
    (tmp_path / "babbling.py").write_text(
        "async def serve(channel):\n"
        "    async for message in channel.messages():\n"
        "        channel._sock.sendall(bytes.fromhex(message['hex']))\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        pool = Processes(target="babbling:serve", size=1)
        with pytest.raises(WorkerGone, match="sent what is not a message"):
            async with leased(pool) as worker:
                await worker.send({"hex": sent.hex()})
                await worker.receive()
        await pool.close()
