"""`toolcrib chat`: an agent at a terminal, and without one."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import AtTerminal, Run, Start

TOOLS = '''
import asyncio
from pathlib import Path

from toolcrib import Context, tool


@tool
def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


@tool
def chatter() -> None:
    """Print."""
    print("printed by the tool")


@tool
async def steps(context: Context):
    """Say what it does."""
    context.progress(1, 2, "at work")
    yield "one\\x1b[31m step"
    yield "and another"


@tool
async def nap(context: Context) -> str:
    """Sleep for long."""
    context.progress(0, 1, "asleep")
    try:
        await asyncio.sleep(600)
    finally:
        Path("log").write_text("woken")
    return "slept"


@tool(destructive=True)
def wipe(disk: str) -> str:
    """Wipe a disk."""
    return f"wiped {disk}\\nfor good"


@tool(timeout_s=30)
async def name(context: Context) -> str:
    """Ask for a name."""
    return f"It is {await context.ask('name', str, 'Who are you?')}."
'''

SETTINGS = """\
[[source]]
from = "tools.py"
[[rule]]
hint = "destructive"
do = "ask"
message = "Really?"
[[limit]]
tools = "name"
concurrency = 1
[variables]
key = "${env:TEST_KEY}"
"""


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"TERM": "dumb", "TEST_KEY": "hush-hush-1234"}


@pytest.fixture
def scripted(folder: Path) -> Callable[..., str]:
    """`scripted(turn, ...)`: a model that says these turns."""

    def write(*turns: Any) -> str:
        (folder / "script.json").write_text(json.dumps(turns))
        return "scripted:script.json"

    return write


def calls(*asked: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"calls": asked, **more}


def timeless(text: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d", "CLOCK", re.sub(r"\d+\.\d\d s\b", "TIME", re.sub(r"\r+\n", "\n", text)))


def test_lines_of_standard_input_are_turns_of_one_conversation(toolcrib: Run, scripted: Callable[..., str]) -> None:
    model = scripted(
        calls(("add", {"a": "1", "b": 2}), text="I add.\r\n", usage={"input": 70, "output": 20}),
        calls(("chatter", {})),
        {"text": "It is 3.", "usage": {"input": 100, "output": 5, "cached": 64}},
        calls(("wipe", {"disk": "a" * 60})),
        "It waits.",
        {"error": "limited", "message": "Slowly."},
        "Never said.",
    )
    done = toolcrib("chat", "--model", model, typed=b"What is 1 + 2?\n\n/tols x\n /tools\nWipe it.\nMore\nAgain")
    assert (done.returncode, done.stdout) == (3, "I add.\r\nIt is 3.\nIt waits.\n")
    assert timeless(done.stderr) == (
        '[add {"a": "1", "b": 2}] 3 (TIME, 1 repaired)\n'
        "printed by the tool\n"
        "[chatter] null (TIME)\n"
        "Tokens: 170 in (64 cached), 25 out; in total 170 in (64 cached), 25 out.\n"
        "There is no command '/tols'. Did you mean '/tools'? /help lists them.\n"
        "add(a, [b])  Add two numbers.\n"
        "chatter()  Print.\n"
        "steps()  Say what it does.\n"
        "nap()  Sleep for long.\n"
        "wipe(disk)  Wipe a disk.\n"
        "name()  Ask for a name.\n"
        "read_result(handle, [offset], [limit], [pointer], [search])  Read a large result: Read a result that was too "
        "large to be shown whole, a part at a time.\n"
        f'[wipe {{"disk": "{"a" * 49}…] waits: Really? (TIME)\n'
        "'wipe' waits: Really? No one can be asked here: chat at a terminal.\n"
        "Tokens: 0 in, 0 out; in total 170 in (64 cached), 25 out.\n"
        "Tokens: 0 in, 0 out; in total 170 in (64 cached), 25 out.\n"
        "Error (limited): Slowly.\n"
        "Tokens: 0 in, 0 out; in total 170 in (64 cached), 25 out.\n"
    )


def test_one_prompt_in_json_is_one_line_for_each_event_and_shows_no_secret(
    toolcrib: Run, scripted: Callable[..., str]
) -> None:
    model = scripted(
        calls(("steps", {}), text="The key is hush-hu"),
        calls(("add", {"a": "hush-hush-1234"}), text="I see hush-hush-1234."),
        "hush-hush-1234",
    )
    done = toolcrib("chat", "tools.py", "-m", model, "--prompt", "/tools", "--instructions", "Be short.", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = [{name: of for name, of in one.items() if not name.endswith("_at") and name != "error"} for one in lines]
    words = "".join(one["text"] for one in events if one["event"] == "words")
    assert (done.returncode, words) == (0, "The key is hush-huI see [secret].[secret]")
    assert "hush-hush-1234" not in done.stdout + done.stderr
    emitted = [part for one in events if one["event"] == "emitted" for part in one["content"]]
    assert "".join(part["text"] for part in emitted) == "one\x1b[31m step"
    assert [one for one in events if one["event"] not in ("words", "emitted")][:4] == [
        {"event": "call", "call_id": "call_1", "tool": "steps", "arguments": "{}"},
        {"event": "progress", "call_id": "call_1", "tool": "steps", "done": 1, "total": 2, "message": "at work"},
        {
            "event": "result",
            "call_id": "call_1",
            "tool": "steps",
            "status": "success",
            "content": [{"type": "text", "text": "and another"}],
            "metadata": {"decision": {"do": "allow", "rule": "default"}},
        },
        {"event": "call", "call_id": "call_2", "tool": "add", "arguments": '{"a": "[secret]"}'},
    ]
    assert events[-1] == {
        "event": "turn",
        "status": "done",
        "text": "[secret]",
        "usage": {"input": 0, "output": 0, "cached": 0, "cache_writes": 0, "reasoning": 0},
        "total": {"input": 0, "output": 0, "cached": 0, "cache_writes": 0, "reasoning": 0},
    }


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        ([], 2, "No model is named. Name one: --model openai:MODEL, "),
        (["-m", "opnai:gpt"], 2, "--model: There is no model provider 'opnai'. Did you mean 'openai'? "),
        pytest.param(
            ["-m", "scripted:none.json"],
            1,
            "none.json: the script cannot be read: No such file or directory.",
            marks=pytest.mark.full,
        ),
        (
            ["-m", "openai:m", "-p", "Hi"],
            1,
            # And nothing that only a program can do, as to pass a key.
            "Model 'openai:m' was not asked, as no key was found. Set OPENAI_API_KEY.\n",
        ),
    ],
)
def test_the_error_for_what_cannot_be_chatted_with_names_the_way_out(
    toolcrib: Run, scripted: Callable[..., str], arguments: list[str], status: int, error: str
) -> None:
    scripted("Hi.")
    done = toolcrib("chat", *arguments, OPENAI_API_KEY="")
    assert (done.returncode, done.stdout) == (status, "")
    assert re.sub(r"^Error( \(unauthorized\))?: ", "", done.stderr).startswith(error), done.stderr


def test_an_evening_at_the_terminal(at_terminal: AtTerminal, folder: Path, scripted: Callable[..., str]) -> None:
    model = scripted(
        calls(("add", {"a": 1, "b": 2}), text="I \x1b[31madd. ", usage={"input": 7, "output": 2}),
        "It is 3.",
        calls(("wipe", {"disk": "a"})),
        calls(("name", {}), text="Gone.\n"),
        "Hello, Ada.",
        {"error": "unavailable", "message": "The line broke."},
        calls(("nap", {}), text="I sleep."),
        "Good morning.",
    )
    seen = b""
    with at_terminal("chat", "--model", model) as session:

        def see(text: bytes) -> None:
            nonlocal seen
            session.read_to(text)
            seen, session.seen = seen + session.seen, b""

        see(b"\r\n> ")
        session.press(b"What is 1 + 2?\r")
        see(b"\r\n> ")
        session.press(b"Wipe it.\r")
        see(b"to deny it] ")
        session.press(b"y\r")
        see(b"Answer (string): ")
        session.press(b"Ada\r")
        see(b"\r\n> ")
        session.press(b"Go on.\r")
        see(b"\r\n> ")
        session.press(b"Sleep.\r")
        see(b"asleep")
        session.press(b"\x03")
        see(b"\r\n> ")
        assert (folder / "log").read_text() == "woken"
        session.press(b"Wake up.\r")
        see(b"\r\n> ")
        session.press(b"\x04")
        status, last = session.read_to_end()
    # Without the line that comes and goes.
    lines = (line.rpartition("\r")[2] for line in timeless(seen.decode() + last).split("\n"))
    shown = "\n".join(line if line.strip() else "" for line in lines)
    assert (status, shown) == (
        0,
        f"""\
{model}, 7 tools. /help lists the commands.
> What is 1 + 2?
I \\x1b[31madd.{" "}
[add {{"a": 1, "b": 2}}] 3 (TIME)
It is 3.
Tokens: 7 in, 2 out; in total 7 in, 2 out.
> Wipe it.

Tool 'wipe' needs your approval, and waits until CLOCK.
Really?
  {{
    "disk": "a"
  }}
To approve its next calls as well: y until 18:00, or: y until conversation
Run it? [y/N, e to edit, or a reason to deny it] y
[wipe {{"disk": "a"}}] wiped a … (TIME)
Gone.
[name] waits: Who are you? (TIME)

Tool 'name' needs an answer from you, and waits until CLOCK.
Who are you?
  {{}}
Answer (string): Ada
[name] It is Ada. (TIME)
Hello, Ada.
Tokens: 0 in, 0 out; in total 7 in, 2 out.
> Go on.
Error (unavailable): The line broke.
Tokens: 0 in, 0 out; in total 7 in, 2 out.
> Sleep.
I sleep.
[nap] error (cancelled): Tool 'nap' was cancelled. (TIME)

Stopped.
Tokens: 0 in, 0 out; in total 7 in, 2 out.
> Wake up.
Good morning.
Tokens: 0 in, 0 out; in total 7 in, 2 out.
>{" "}
""",
    )


def test_a_question_that_was_left_unanswered_is_asked_again_in_the_next_turn(
    at_terminal: AtTerminal, scripted: Callable[..., str]
) -> None:
    model = scripted(*[calls(("wipe", {"disk": "a"}))] * 2, "Gone.")
    with at_terminal("chat", "-m", model) as session:
        session.read_to(b"> ")
        for key in (b"\x04", b"y\r"):
            session.press(b"Wipe it.\r")
            session.read_past(b"to deny it] ")
            session.press(key)
            session.read_past(b"\r\n> ")
        session.press(b"/quit\r")
        assert session.read_to_end()[0] == 0


FAILS = """
import asyncio
from pathlib import Path
from toolcrib import tool

@tool
async def fail() -> None:
    while not Path("asked").exists():
        await asyncio.sleep(0.01)
    Path("failed").touch()
    raise RuntimeError("the detail")
"""


def test_the_question_stays_the_last_line_and_a_failure_beside_it_is_shown_with_its_detail(
    at_terminal: AtTerminal, folder: Path, scripted: Callable[..., str]
) -> None:
    (folder / "fails.py").write_text(FAILS)
    model = scripted(calls(("wipe", {"disk": "a"}), ("fail", {})), "It failed.")
    with at_terminal("chat", "tools.py", "fails.py", "-m", model) as session:
        session.read_to(b"> ")
        session.press(b"/tmp/a/b: wipe it.\r")
        session.read_past(b"to deny it] ")
        (folder / "asked").touch()
        while not (folder / "failed").exists():
            time.sleep(0.01)
        session.press(b"y\r")
        session.read_to(b"It failed.\r\n")
        session.press(b"/quit\r")
        status, shown = session.read_to_end()
    assert (status, shown[0]) == (0, "y")
    assert "RuntimeError: the detail\r\n" in shown
    assert "[fail] error (failed): Tool 'fail' failed: RuntimeError (reference " in shown


DOZE = """
import asyncio
from toolcrib import Context, tool

@tool(destructive=True)
async def doze(number: int, context: Context) -> str:
    if number == 1:
        context.progress(0, 1, "asleep")
        await asyncio.sleep(600)
    return f"slept {number}"
"""


def test_two_questions_come_one_after_the_other_and_ctrl_c_stops_what_was_approved(
    at_terminal: AtTerminal, folder: Path, scripted: Callable[..., str]
) -> None:
    (folder / "doze.py").write_text(DOZE)
    model = scripted(calls(("doze", {"number": 1}), ("doze", {"number": 2})), "Never said.", "Hi.")
    with at_terminal("chat", "doze.py", "-m", model) as session:
        session.read_to(b"> ")
        session.press(b"Sleep.\r")
        for _ in range(2):
            session.seen = b""
            session.read_to(b"to deny it] ")
            session.press(b"n\r" if b'    "number": 2\r\n' in session.seen else b"y\r")
        session.read_to(b"asleep")
        session.press(b"\x03")
        session.read_past(b"Stopped.\r\n")
        session.read_past(b"> ")
        session.press(b"/quit\r")
        assert session.read_to_end()[0] == 0


def test_the_words_of_a_model_are_wrapped_at_a_terminal(at_terminal: AtTerminal, scripted: Callable[..., str]) -> None:
    words = "The quick brown fox jumps over the lazy dog.\n\n- An item\x1b[31m of a list that is long as well.\n"
    with at_terminal("chat", "-m", scripted(words), "-p", "Go.", columns=24) as session:
        status, seen = session.read_to_end()
    lines = [line.rstrip() for line in seen.splitlines()]
    assert (status, lines) == (
        0,
        [
            "The quick brown fox",
            "jumps over the lazy dog.",
            "",
            "- An item\\x1b[31m of a",
            "list that is long as",
            "well.",
        ],
    )


def test_ctrl_c_twice_leaves(at_terminal: AtTerminal, scripted: Callable[..., str]) -> None:
    with at_terminal("chat", "-m", scripted("Hi."), "--json") as session:
        before = session.settings()
        session.read_to(b"> ")
        session.press(b"half a li\x03")
        session.read_to(b"To exit: Ctrl-C again, Ctrl-D or /quit.\r\n> ")
        session.press(b"Hello.\r")
        session.read_to(b'"event": "turn"')
        session.press(b"\x03")
        session.seen = b""
        session.read_to(b"or /quit.\r\n> ")
        session.press(b"\x03")
        status, seen = session.read_to_end()
        assert session.settings() == before
    assert (status, seen.endswith("\r\nCancelled.\r\n"), seen.count("To exit")) == (130, True, 1)


@pytest.mark.parametrize("how", ["Ctrl-C", "/quit"])
def test_a_chat_that_reads_lines_ends_before_they_do(start: Start, scripted: Callable[..., str], how: str) -> None:
    with start("chat", "-m", scripted("Hi.")) as process:
        process.stdin.write("Hello.\n")
        process.stdin.flush()
        assert process.stdout.readline() == "Hi.\n"
        if how == "/quit":
            process.stdin.write("/quit\n")
            process.stdin.flush()
        else:
            process.send_signal(signal.SIGINT)
        # Standard input stays open: the command does not wait for its end.
        ended = process.wait(30), process.stdout.read(), process.stderr.read()
        assert ended == ((0, "", "") if how == "/quit" else (130, "", "Cancelled.\n"))
