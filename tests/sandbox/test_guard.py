"""What is below a process, and that nothing of it is left."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib.sandbox.guard import descendants, kill_tree

from .family import family, lives

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Descendants are found on Linux.")

# A grandchild in a session of its own, and the names of all of them on standard output when they run.
NESTED = "setsid sleep 60 >&- & echo $!; (sleep 60 >&- & echo $!; wait) & sleep 60 >&- & echo $!; wait"


def nested() -> "tuple[subprocess.Popen[str], list[int]]":
    process = subprocess.Popen(["sh", "-c", NESTED], stdout=subprocess.PIPE, text=True, start_new_session=True)
    return process, [int(process.stdout.readline()) for _ in range(3)]


async def test_descendants_are_of_every_generation_and_in_every_session_the_nearest_first() -> None:
    process, pids = nested()
    found = family()
    assert found[0] == process.pid
    assert {*pids} < {*found}
    assert [*descendants(pids[0])] == []
    kill_tree(process.pid)
    process.communicate()
    for pid in pids:
        assert not await lives(pid)
    assert family() == []


def test_a_process_that_has_ended_and_was_not_waited_for_is_no_descendant() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert family() == []
    process.wait()


def test_a_process_may_have_any_name(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("sleep") or "", program)
    process = subprocess.Popen([program, "60"])
    try:
        assert family() == [process.pid]
    finally:
        process.kill()
        process.wait()
