"""The command at a terminal: colour, strangers' control characters, Ctrl-C and SIGTERM."""

import signal
import termios
from pathlib import Path
from time import monotonic

import pytest

from .conftest import AtTerminal, Start, read_to


def test_a_terminal_gets_a_table_in_colour(at_terminal: AtTerminal) -> None:
    with at_terminal("list", "tools.py") as session:
        status, seen = session.read_to_end()
    assert status == 0
    assert "\x1b[1;36madd" in seen
    assert "[bold]two[/bold]" in seen
    assert "\x1b[31m" not in seen


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_declined(at_terminal: AtTerminal, name: str, value: str) -> None:
    with at_terminal("list", "tools.py", **{name: value}) as session:
        status, seen = session.read_to_end()
    assert (status, "add" in seen, "\x1b[3" in seen, "\x1b[1;3" in seen) == (0, True, False, False)


def test_no_control_character_of_a_result_reaches_a_terminal(at_terminal: AtTerminal) -> None:
    with at_terminal("call", "-s", "tools.py", "coloured") as session:
        status, seen = session.read_to_end()
    assert (status, seen) == (0, "printed while loading\r\n\\x1b[31mred\\x1b]0;title\\x07\r\n")


def test_json_is_laid_out_for_reading_at_a_terminal(at_terminal: AtTerminal) -> None:
    with at_terminal("call", "-s", "tools.py", "echo", "text=\u202eé", TERM="dumb") as session:
        status, seen = session.read_to_end()
    assert status == 0
    assert '{\r\n  "text": "\\u202eé",\r\n  "tags": [],\r\n' in seen


FAILING = """
from toolcrib import tool

class Oops(Exception): ...

def inner() -> None:
    raise Oops("the detail")

@tool{options}
{kind} outer() -> None:
    inner()
"""


@pytest.mark.parametrize(("kind", "options"), [("async def", ""), ("def", '(isolation="process")')])
def test_a_failure_at_a_terminal_is_shown_with_the_frames_of_the_tool_alone(
    at_terminal: AtTerminal, folder: Path, kind: str, options: str
) -> None:
    file = folder / "failing.py"
    file.write_text(FAILING.format(kind=kind, options=options))
    with at_terminal("call", "failing.py", "outer", columns=200) as session:
        status, seen = session.read_to_end()
    lines = [line.strip() for line in seen.splitlines()]
    frames = [line for line in lines if line.startswith("File ")]
    # The module of a file has a name of its own, which is no news to anybody.
    assert (status, frames, "toolcrib_failing" in seen) == (
        1,
        [f'File "{file}", line 11, in outer', f'File "{file}", line 7, in inner'],
        False,
    ), seen
    assert "failing.Oops: the detail" in lines
    assert lines[-1].startswith("Error (failed): Tool 'outer' failed: Oops (reference ")


@pytest.mark.parametrize("tool", ["nap", "doze", "block"])
def test_ctrl_c_cancels_whatever_runs(at_terminal: AtTerminal, tool: str) -> None:
    with at_terminal("call", "-s", "tools.py", tool) as session:
        session.read_to(b"begun\r\n")
        began = monotonic()
        session.press(b"\x03")
        status, seen = session.read_to_end()
        took_s = monotonic() - began
    assert (status, seen) == (130, "printed while loading\r\nbegun\r\n^C\r\nCancelled.\r\n")
    assert took_s < 25


def test_ctrl_c_leaves_the_terminal_as_it_was(at_terminal: AtTerminal) -> None:
    with at_terminal("call", "-s", "tools.py", "hush") as session:
        before = session.settings()
        session.read_to(b"begun\r\n")
        during = session.settings()
        session.press(b"\x03")
        status = session.process.wait(30)
        after = session.settings()
    assert (status, during[3] & termios.ECHO, after) == (130, 0, before)


def test_ctrl_c_while_a_source_loads_is_quiet(at_terminal: AtTerminal, folder: Path) -> None:
    (folder / "slow.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    with at_terminal("list", "slow.py") as session:
        session.read_to(b"begun\r\n")
        session.press(b"\x03")
        status, seen = session.read_to_end()
    assert (status, seen) == (130, "begun\r\n^C\r\nCancelled.\r\n")


def test_sigterm_cancels_too(start: Start) -> None:
    with start("call", "-s", "tools.py", "doze") as process:
        assert read_to(process, "begun\n") == "printed while loading\nbegun\n"
        process.send_signal(signal.SIGTERM)
        assert (*process.communicate(timeout=30), process.returncode) == ("", "Terminated.\n", 143)
