"""Ctrl-C at moments nobody has chosen: the command ends at once, leaves no process, and the terminal as it was."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from .. import fuzz
from .conftest import AtTerminal

TOOLS = """
import asyncio, subprocess, termios, time

from pydantic import SecretStr

from toolcrib import Context, tool

print("loading", flush=True)
time.sleep(0.3)


def hide_the_keyboard() -> None:
    settings = termios.tcgetattr(0)
    settings[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(0, termios.TCSANOW, settings)


@tool
async def on_the_loop(ctx: Context) -> None:
    hide_the_keyboard()
    child = await asyncio.create_subprocess_exec("sleep", "0.4")
    try:
        for step in range(6000):
            ctx.progress(step, 6000)
            await asyncio.sleep(0.01)
    finally:
        await child.wait()


@tool
def in_a_thread(ctx: Context) -> None:
    hide_the_keyboard()
    for step in range(6000):
        ctx.progress(step, 6000)
        time.sleep(0.01)


@tool(isolation="process")
def in_a_process() -> None:
    subprocess.Popen(["sh", "-c", "sleep 600 & setsid sleep 600"])
    time.sleep(600)


@tool(isolation="process")
async def in_a_process_that_streams(ctx: Context) -> None:
    while True:
        await ctx.emit("more")
        ctx.progress(1)


@tool
async def at_a_question(ctx: Context) -> str:
    return (await ctx.ask("password", SecretStr, "Who are you?")).get_secret_value()
"""


@pytest.fixture
def mark() -> str:
    """Stands in the environment of all processes of a test."""
    return f"TOOLCRIB_TEST_MARK={uuid4().hex}"


def marked(mark: str) -> Iterator[str]:
    """The processes with *mark* in their environment, by their command lines."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                yield (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has just ended, or is not ours


def left_over(mark: str, *, at_most_s: float) -> list[str]:
    """The processes with *mark* that do not end in the given time."""
    due = time.monotonic() + at_most_s
    while (left := [*marked(mark)]) and time.monotonic() < due:
        time.sleep(0.02)
    return left


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc, which is not here")
@pytest.mark.parametrize(
    "tool", ["on_the_loop", "in_a_thread", "in_a_process", "in_a_process_that_streams", "at_a_question"]
)
def test_ctrl_c_at_any_moment_ends_the_command_and_all_it_has_started(
    alone_at_terminal: AtTerminal, tool: str, mark: str
) -> None:
    name, _, value = mark.partition("=")
    moments = random.Random(f"moments of {tool} {fuzz.seed(0)}")
    # The first while the source is imported, the others at any time from then on.
    for delay_s in [moments.uniform(0, 0.25), *(moments.uniform(0, 2) for _ in range(5))]:
        with alone_at_terminal("call", "-s", "tools.py", tool, **{name: value}) as session:
            before = session.settings()
            session.read_to(b"loading\r\n")
            assert [*marked(mark)], "a process is found by its mark"
            time.sleep(delay_s)
            session.press(b"\x03")
            # Not read meanwhile, but to the end: whoever writes to a terminal may wait for it to be read.
            status, seen = session.read_to_end()
            after = session.settings()
        report = f"{tool} after {delay_s:.3f} s: {seen!r}"
        assert status == 130, report
        assert seen.count("\r\nCancelled.\r\n") == 1, report
        assert "Traceback" not in seen, report
        assert after == before, report
        assert left_over(mark, at_most_s=5) == [], report


CASES = """
import asyncio, os, signal, sys, threading
from toolcrib.cli.interrupts import Interrupted, Interrupts

INT, TERM = signal.SIGINT, signal.SIGTERM
raised = signal.raise_signal


def outside(interrupts):
    async def work():
        with interrupts.first_sigint_to(lambda: True):
            raised(INT)
            raised(INT)
            print("goes on", interrupts.came)
        raised(INT)
        await asyncio.sleep(600)

    interrupts.run(work())


def not_answered(interrupts):
    async def work():
        with interrupts.first_sigint_to(lambda: False):
            raised(INT)
            await asyncio.sleep(600)

    interrupts.run(work())


def ignores_it(interrupts):
    async def work():
        try:
            raised(INT)
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            print("cancelled")

    interrupts.run(work())


def second_signal(interrupts):
    try:
        raised(INT)
    finally:
        print("on the way out", interrupts.came, flush=True)
        raised(TERM)


def grace_is_over(interrupts):
    interrupts.grace_s = 0.1
    try:
        raised(TERM)
    finally:
        threading.Event().wait(600)


class Callback:
    def __del__(self):
        raised(INT)


def in_a_callback(interrupts):
    Callback()
    threading.Event().wait(600)


def run(case):
    try:
        interrupts = Interrupts()
        with interrupts.handled():
            interrupts.grace_s = 600
            case(interrupts)
    except Interrupted as interrupted:
        print("interrupted", interrupted.status, interrupts.came)


for case in (outside, not_answered, ignores_it, second_signal, grace_is_over, in_a_callback):
    print(case.__name__, flush=True)
    child = os.fork()
    if child == 0:
        os.dup2(1, 2)
        run(case)
        sys.stdout.flush()
        os._exit(7)
    print("  ends with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

ENDS = """\
outside
Cancelled.
goes on False
interrupted 130 True
  ends with 7
not_answered
Cancelled.
interrupted 130 True
  ends with 7
ignores_it
Cancelled.
cancelled
interrupted 130 True
  ends with 7
second_signal
Cancelled.
on the way out True
  ends with 143
grace_is_over
Terminated.
  ends with 143
in_a_callback
Cancelled.
  ends with 130
"""


def test_each_signal_is_answered_as_the_moment_wants_it(environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", CASES], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.stdout, done.stderr) == (ENDS, "")


@pytest.mark.full
def test_a_tool_that_changes_the_terminal_after_ctrl_c_leaves_it_as_it_was(
    alone_at_terminal: AtTerminal, folder: Path
) -> None:
    late = "\n\n@tool\nasync def late() -> None:\n    print('runs', flush=True)\n    try:\n        "
    late += "await asyncio.sleep(600)\n    finally:\n        hide_the_keyboard()\n"
    (folder / "tools.py").write_text(TOOLS + late)
    with alone_at_terminal("call", "tools.py", "late") as session:
        before = session.settings()
        session.read_to(b"runs\r\n")
        session.press(b"\x03")
        status, _ = session.read_to_end()
        assert (status, session.settings()) == (130, before)
