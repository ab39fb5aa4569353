"""What a call waits for, at a terminal and without one; and what it says while it runs."""

import json
import re
import subprocess
import termios
from pathlib import Path

import pytest

from .conftest import AtTerminal, Run

TOOLS = '''
import asyncio
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, SecretStr

from toolcrib import Context, tool


class Login(BaseModel):
    user: str = Field(description="Your name there.")
    password: SecretStr
    level: Literal["low", "high"] = "low"
    tries: int | None = None
    remember: bool = False


@tool(destructive=True)
async def wipe(disk: str, passes: int = 1) -> str:
    """Wipe a disk."""
    with Path("log").open("a") as log:
        log.write(f"{disk} {passes}\\n")
    return f"wiped {disk}"


@tool
async def login(context: Context) -> str:
    """Log in."""
    it = await context.ask("login", Login, "Who are you?")
    return f"{it.user} {len(it.password.get_secret_value())} {it.level} {it.tries} {it.remember}"


@tool(timeout_s=30)
async def sizes(context: Context) -> list[int]:
    """Ask for numbers."""
    return await context.ask("sizes", list[int], "Which sizes?")


@tool
async def steps(context: Context):
    """Say what it does."""
    for number in range(2):
        context.progress(number, 2, "at work")
        await asyncio.sleep(0.2)
        yield f"step {number}"
    yield {"done": True}
'''

SETTINGS = """\
[[source]]
from = "tools.py"
[[rule]]
hint = "destructive"
do = "ask"
message = "Really?"
"""


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"TERM": "dumb"}


def ran(folder: Path) -> str:
    """What `wipe` has done."""
    return (folder / "log").read_text() if (folder / "log").exists() else ""


QUESTION = """
Tool 'wipe' needs your approval, and waits until ..:..:...
Really?
  {
    "disk": "a",
    "passes": 2
  }
To approve its next calls as well: y until 18:00, or: y until conversation
Run it? [y/N, e to edit, or a reason to deny it] """


@pytest.mark.parametrize(
    ("typed", "status", "answer", "done"),
    [
        (b"y\r", 0, "wiped a\n", "a 2\n"),
        (b"\r", 1, "Error (denied): Tool 'wipe' was not executed: 'local' denied it.\n", ""),
        (b"not today\r", 1, "Error (denied): Tool 'wipe' was not executed: 'local' denied it: not today\n", ""),
    ],
)
def test_an_approval_is_asked_for_and_the_call_goes_on(
    at_terminal: AtTerminal, folder: Path, typed: bytes, status: int, answer: str, done: str
) -> None:
    with at_terminal("call", "wipe", "disk=a", "passes=2") as session:
        session.read_to(b"to deny it] ")
        assert ran(folder) == ""
        session.press(typed)
        ended, seen = session.read_to_end()
    shown = f"{QUESTION}{typed.decode().strip()}\n{answer}".replace("..:..:..", "CLOCK")
    assert (ended, re.sub(r"\d\d:\d\d:\d\d", "CLOCK", seen.replace("\r", ""))) == (status, shown)
    assert ran(folder) == done


def test_a_yes_with_more_words_is_asked_again(at_terminal: AtTerminal, folder: Path) -> None:
    with at_terminal("call", "wipe", "disk=a") as session:
        session.read_to(b"to deny it] ")
        session.press(b"yes please\r")
        session.read_to(b"approves the call. 'n' or Enter denies it; other text denies it with a reason.")
        session.read_to(b"reason.\r\nRun it? [y/N, e to edit, or a reason to deny it] ")
        assert ran(folder) == ""
        session.press(b"yesterday's backup is missing\r")
        status, seen = session.read_to_end()
    assert (status, ran(folder)) == (1, "")
    assert seen.endswith("denied it: yesterday's backup is missing\r\n")


def test_an_approval_does_not_count_against_the_deadline(at_terminal: AtTerminal, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text(f"timeout_s = 1\n{SETTINGS}\n[[limit]]\nconcurrency = 1\n")
    with at_terminal("call", "wipe", "disk=a") as session:
        session.read_to(b"to deny it] ")
        with pytest.raises(subprocess.TimeoutExpired):
            session.process.wait(1.5)
        session.press(b"y\r")
        status, seen = session.read_to_end()
    assert (status, seen[-9:], ran(folder)) == (0, "wiped a\r\n", "a 1\n")


def test_what_was_typed_before_the_question_is_no_answer(at_terminal: AtTerminal, folder: Path) -> None:
    (folder / "tools.py").write_text(f"import time\nprint('loading', flush=True)\ntime.sleep(0.5)\n{TOOLS}")
    with at_terminal("call", "wipe", "disk=a") as session:
        session.read_to(b"loading")
        session.press(b"y\r")
        session.read_to(b"to deny it] ")
        assert ran(folder) == ""
        session.press(b"n\r")
        status, _ = session.read_to_end()
    assert (status, ran(folder)) == (1, "")


def test_fields_are_asked_for_one_by_one_and_a_password_is_not_shown(at_terminal: AtTerminal) -> None:
    with at_terminal("call", "login") as session:
        before = session.settings()
        for prompt, typed in (
            (b"user (string): ", b"ada\r"),
            (b"password (string (password)): ", b"hunter22\r"),
            (b'level (one of "low", "high"; Enter leaves it out): ', b"middle\r"),
            (b'Expected one of "low", "high".\r\nlevel (', b"high\r"),
            (b"tries (integer or null; Enter leaves it out): ", b"\r"),
            (b"remember (boolean; Enter leaves it out): ", b"y\r"),
        ):
            session.read_to(prompt)
            session.press(typed)
        status, seen = session.read_to_end()
        after = session.settings()
    assert (status, after) == (0, before)
    assert seen.endswith("\r\nada 8 high None True\r\n")
    assert "Who are you?" in seen
    assert "  Your name there.\r\n" in seen
    assert "hunter22" not in seen


def test_what_has_no_fields_is_asked_for_as_json_also_where_there_is_a_deadline(at_terminal: AtTerminal) -> None:
    with at_terminal("call", "sizes") as session:
        session.read_to(b"Answer (array of integer): ")
        session.press(b'["a"]\r')
        session.read_to(b"Expected array of integer.\r\nAnswer (array of integer): ")
        session.press(b"[1, 2]\r")
        status, seen = session.read_to_end()
    assert (status, seen[-18:].split()) == (0, ["[", "1,", "2", "]"])


@pytest.mark.parametrize("tool", ["wipe", "login", "sizes"])
def test_a_question_can_be_left_open(at_terminal: AtTerminal, folder: Path, tool: str) -> None:
    with at_terminal("call", tool, *(["disk=a"] if tool == "wipe" else [])) as session:
        session.read_to(b"waits until")
        session.read_to({"wipe": b"to deny it] ", "login": b"user (string): ", "sizes": b"integer): "}[tool])
        session.press(b"\x04")
        status, seen = session.read_to_end()
    assert (status, seen.count("waits until"), ran(folder)) == (3, 1, "")
    assert "\nIt was left unanswered." in seen


@pytest.mark.parametrize("tool", ["wipe", "login"])
def test_ctrl_c_at_a_question_lets_nothing_run_and_leaves_the_terminal_as_it_was(
    at_terminal: AtTerminal, folder: Path, tool: str
) -> None:
    with at_terminal("call", tool, *(["disk=a"] if tool == "wipe" else [])) as session:
        before = session.settings()
        if tool == "wipe":
            session.read_to(b"to deny it] ")
        else:
            session.read_to(b"user (string): ")
            session.press(b"ada\r")
            session.read_to(b"(password)): ")
            assert session.settings()[3] & termios.ECHO == 0
        session.press(b"\x03")
        status, seen = session.read_to_end()
        after = session.settings()
    assert (status, after, ran(folder)) == (130, before, "")
    assert seen.count("Cancelled.") == 1
    assert "Traceback" not in seen


def test_without_a_terminal_what_it_waits_for_is_printed_and_the_status_is_3(toolcrib: Run, folder: Path) -> None:
    done = toolcrib("call", "wipe", "disk=a", typed=b"y\n")
    assert (done.returncode, done.stdout, ran(folder)) == (3, "", "")
    printed, _, command = done.stderr.rpartition(" To answer it elsewhere: ")
    assert printed == (
        "Pending (approval): Tool 'wipe' was not executed. Really?\n"
        '  {\n    "disk": "a",\n    "passes": 1\n  }\n'
        "No one can be asked here. Run this command at a terminal."
    )
    assert re.fullmatch(r"toolcrib pending approve pending_[\w-]+ \(or deny\)\.\n", command)
    done = toolcrib("call", "wipe", "disk=a", "--json")
    assert (done.returncode, done.stderr) == (3, "")
    result = json.loads(done.stdout)
    pending = result["pending"]
    assert (result["status"], pending["kind"], pending["tool"], json.loads(pending["arguments"])) == (
        "pending",
        "approval",
        "wipe",
        {"disk": "a", "passes": 1},
    )


def test_who_may_not_answer_is_not_asked(at_terminal: AtTerminal, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text(f"{SETTINGS}others_only = true\n")
    with at_terminal("call", "wipe", "disk=a") as session:
        status, seen = session.read_to_end()
    assert (status, ran(folder)) == (3, "")
    assert "\nSomeone other than the caller must answer it. To answer it elsewhere: toolcrib pending approve" in seen


def test_emitted_content_comes_before_the_result(toolcrib: Run) -> None:
    done = toolcrib("call", "steps")
    assert (done.returncode, done.stdout, done.stderr) == (0, 'step 0\nstep 1\n{"done":true}\n', "")
    as_json = toolcrib("call", "steps", "--json")
    assert (as_json.returncode, as_json.stderr) == (0, "step 0\nstep 1\n")
    assert json.loads(as_json.stdout)["content"] == [{"type": "data", "data": {"done": True}}]


def test_progress_is_shown_at_a_terminal_and_taken_away_again(at_terminal: AtTerminal) -> None:
    with at_terminal("call", "steps") as session:
        status, seen = session.read_to_end()
    gone = f"\r{' ' * len('0/2 at work')}\r"
    assert (status, seen) == (
        0,
        # What a generator yields is known not to be its result when it yields again.
        f'\r0/2 at work\r1/2 at work{gone}step 0\r\nstep 1\r\n{{\r\n  "done": true\r\n}}\r\n',
    )
