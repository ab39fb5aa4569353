"""Modules that run in this process: what holds in a worker holds here, and nobody else's call is touched."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Call, Permissions, Workbench
from toolcrib.core import CancellationToken
from toolcrib.tools import load

from .guests import (
    ECHO,
    FAILS,
    FLOODS,
    GIVES_UP,
    GROWS,
    LOOPS,
    NESTS,
    OPENS,
    SAYS,
    SLEEPS,
    Module,
    folder,
    outcome,
)

HERE = Permissions(trusted=True, in_process=True)
DIVIDES = '(func (export "_start") (drop (i32.div_u (i32.const 1) (i32.const 0))))'
# Its status is what the function says of numbers that point outside its memory, or are too many.
WILD = """
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const {at})) (i32.store (i32.const 4) (i32.const {size}))
    (call $exit (call ${function} (i32.const {first}) (i32.const {pieces}) (i32.const {count}) (i32.const {result}))))
"""
# Writes all over its memory, also where that has grown; its status is 1 where anything was written there before.
SCRIBBLES = """
  (func (export "_start") (local $at i32)
    (drop (memory.grow (i32.const 60)))
    (loop $next
      (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then (call $exit (i32.const 1))))
      (i64.store (local.get $at) (i64.const -1))
      (local.set $at (i32.add (local.get $at) (i32.const 1024)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 4194304)))))
"""
NAPS = """
  (func (export "_start")
    (i32.store (i32.const 80) (i32.const 1)) (i64.store (i32.const 88) (i64.const 1000000))
    (i64.store (i32.const 64) (i64.const 77))
    (if (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512)) (then unreachable))
    (if (i32.ne (i32.load (i32.const 512)) (i32.const 1)) (then unreachable))
    (if (i64.ne (i64.load (i32.const 256)) (i64.const 77)) (then unreachable)))
"""


async def outcomes(module: Module, codes: dict[str, str], **options: Any) -> dict[str, tuple[str, str]]:
    """Code and text of one call of each of *codes*, all at once."""
    sources = [HERE.to(module(code, name)) for name, code in codes.items()]
    async with Workbench(sources, **options) as bench:
        results = await asyncio.gather(*map(bench.call, codes))
    return {
        name: (result.error.code if result.error else result.status, result.text)
        for name, result in zip(codes, results, strict=True)
    }


def test_a_trusted_module_runs_here_only_where_the_operator_says_so(module: Module) -> None:
    file = module(ECHO)
    assert type(load(HERE.to(file)).tools[0].work).__name__ == "GuestWork"
    assert type(load(Permissions(trusted=True).to(file)).tools[0].work).__name__ == "ProcessWork"


async def test_what_goes_wrong_in_one_guest_is_reported_for_that_one(module: Module) -> None:
    codes = {
        "echoes": ECHO,
        "fails": FAILS,
        "gives_up": GIVES_UP,
        "nests": NESTS,
        "divides": DIVIDES,
        "reaches_out": '(func (export "_start") (drop (i32.load (i32.const -8))))',
        "floods": FLOODS.format(1),
        "garbles": SAYS.format("\\ff\\fe", 2),
        "naps": NAPS,
        "opens": OPENS.format(path="/etc/passwd", size=11),
    }
    expected = {
        "echoes": ("success", "{}"),
        "fails": ("failed", "Tool 'fails' ended with status 3. It wrote: no such city"),
        "gives_up": (
            "trapped",
            "Tool 'gives_up' was stopped: it aborted (its instruction 'unreachable').",
        ),
        "nests": ("trapped", "Tool 'nests' was stopped: its calls were nested too deeply."),
        "divides": ("trapped", "Tool 'divides' was stopped: it divided by zero."),
        "reaches_out": ("trapped", "Tool 'reaches_out' was stopped: it reached outside its memory."),
        "floods": ("too_large", "Tool 'floods' wrote more than 8388608 bytes. Ask for less."),
        "garbles": ("invalid_result", "Tool 'garbles' wrote what is not UTF-8 text."),
        "naps": ("success", ""),
        "opens": ("success", ""),
    }
    for _ in range(5):
        assert await outcomes(module, codes) == expected


async def test_memory_has_its_limit(module: Module) -> None:
    assert await outcome(HERE.to(folder(module, GROWS.format(12), "memory_mb = 1"))) == ("success", "")
    assert (await outcome(HERE.to(folder(module, GROWS.format(13), "memory_mb = 1"))))[0] == "failed"
    begins = HERE.to(module('(memory 1025) (func (export "_start"))', "large", wasi=""))
    async with Workbench([begins]) as bench:
        assert "it cannot begin with the 64 MiB" in (await bench.call("large")).text


async def test_a_memory_that_was_used_before_is_empty(module: Module) -> None:
    async with Workbench([HERE.to(module(SCRIBBLES, "one")), HERE.to(module(SCRIBBLES, "two"))]) as bench:
        results = await asyncio.gather(*(bench.call(name) for _ in range(40) for name in ("one", "two")))
    assert {(result.status, result.text) for result in results} == {("success", "")}


_WITH_LITTLE_ROOM = """
import resource, sys
from toolcrib import Permissions, Workbench

resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, 16 * 2**30))
bench = Workbench([Permissions(trusted=True, in_process=True).to(sys.argv[1])])
for _ in range(2):
    print(bench.call_sync("echo", {"a": 1}).text)
"""


_AT_ONCE_WITH_ROOM_FOR_ONE_ENGINE = """
import asyncio, resource, sys
from toolcrib import Permissions, Workbench

resource.setrlimit(resource.RLIMIT_AS, (3 * 2**40, 3 * 2**40))

async def main():
    here = Permissions(trusted=True, in_process=True)
    async with Workbench([here.to(file) for file in sys.argv[1:]]) as bench:
        results = await asyncio.gather(*(bench.call(name, {"a": 1}) for name in ("one", "two", "three")))
        print(*(result.text for result in results))

asyncio.run(main())
"""


def test_modules_that_are_first_called_at_once_share_one_engine(module: Module) -> None:
    files = [str(module(ECHO, name)) for name in ("one", "two", "three")]
    command = [sys.executable, "-c", _AT_ONCE_WITH_ROOM_FOR_ONE_ENGINE, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"a":1} {"a":1} {"a":1}\n', "")


async def test_loops_and_sleeps_end_at_the_deadline_and_leave_no_thread_behind(module: Module) -> None:
    loops, sleeps = HERE.to(module(LOOPS, "loops")), HERE.to(module(SLEEPS, "sleeps"))
    # More than the threads that may be left behind: were these, the last calls would be refused.
    async with Workbench([loops, sleeps, HERE.to(module(ECHO, "echo"))]) as bench:
        await bench.call("echo")  # compiled, the others begin at once
        for tool, count in (("loops", 8), ("sleeps", 30), ("sleeps", 30), ("sleeps", 30)):
            results = await asyncio.gather(*(bench.call(Call(tool, timeout_s=0.2)) for _ in range(count)))
            assert {result.error and result.error.code for result in results} == {"timeout"}
        assert (await bench.call("echo", {"a": 1})).value == {"a": 1}


@pytest.mark.parametrize("code", [LOOPS, SLEEPS, FLOODS.format(2)], ids=["loop", "sleep", "flood of standard error"])
async def test_a_cancelled_call_ends_its_guest(module: Module, code: str) -> None:
    async with Workbench([HERE.to(module(code))]) as bench:
        token = CancellationToken()
        asyncio.get_running_loop().call_later(0.2, token.cancel)
        result = await bench.call("guest", {}, cancellation=token)
    assert result.error is not None
    assert result.error.code == "cancelled"


@pytest.mark.parametrize(
    ("function", "first", "pieces", "count", "at", "size", "result", "status"),
    [
        ("fd_write", 1, -8, 1, 0, 0, 8, 21),
        ("fd_write", 1, 262140, -1, 0, 0, 8, 21),
        ("fd_write", 1, 0, 1, -4, 8, 8, 21),
        ("fd_write", 1, 0, 1, 64, -1, 8, 21),
        ("fd_write", 1, 0, 1, 64, 8, -2, 21),
        ("fd_write", 7, 0, 1, 64, 8, 8, 8),
        ("fd_write", 0, 0, 1, 64, 8, 8, 8),
        ("fd_read", 0, 0, 1, -4, 8, 8, 21),
        ("fd_read", -1, 0, 1, 64, 8, 8, 8),
        ("poll", 0, 64, -1, 0, 0, 8, 28),
        ("poll", 0, 64, 0, 0, 0, 8, 28),
        ("poll", 0, -40, 1, 0, 0, 8, 21),
        ("poll", 1024, -8, 1, 0, 0, 8, 21),
    ],
)
async def test_numbers_that_lead_outside_the_memory_are_answered_with_an_error(
    module: Module, function: str, first: int, pieces: int, count: int, at: int, size: int, result: int, status: int
) -> None:
    code = WILD.format(function=function, first=first, pieces=pieces, count=count, at=at, size=size, result=result)
    assert await outcome(HERE.to(module(code))) == ("failed", f"Tool 'guest' ended with status {status}.")


@pytest.mark.full
@pytest.mark.parametrize("code", [ECHO, LOOPS, SLEEPS], ids=["echo", "loop", "sleep"])
def test_a_program_ends_cleanly_while_a_guest_runs_or_right_after(module: Module, tmp_path: Path, code: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import threading, time\n"
        "from toolcrib import Permissions, Workbench\n"
        f"source = Permissions(trusted=True, in_process=True).to({str(module(code))!r})\n"
        "bench = Workbench([source])\n"
        "calling = threading.Thread(target=lambda: bench.call_sync('guest'), daemon=True)\n"
        "calling.start()\n"
        "calling.join(0.7)\n"
    )
    for _ in range(20):
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


_AMONG_OTHER_HANDLERS = """
import asyncio, faulthandler, signal, sys
from toolcrib import Permissions, Workbench
from pathlib import Path

async def main():
    echo, *files = sys.argv[1:]
    here = Permissions(trusted=True, in_process=True)
    async with Workbench([here.to(file) for file in (echo, *files)]) as bench:
        await bench.call("echo")
        faulthandler.enable()
        faulthandler.disable()
        for number in (signal.SIGILL, signal.SIGSEGV, signal.SIGFPE, signal.SIGBUS):
            signal.signal(number, signal.SIG_DFL)
        for file in files:
            print((await bench.call(Path(file).stem)).text)

asyncio.run(main())
"""
