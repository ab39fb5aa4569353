"""What `toolcrib chat` asks the person at the terminal again, after a question that was left unanswered."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

TOOL = """
from toolcrib import tool

@tool(destructive=True)
def wipe() -> str:
    return "wiped"
"""


def test_a_question_that_was_left_unanswered_is_asked_again_in_the_next_turn(
    at_terminal: Callable[..., AbstractContextManager[Any]], tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "tools.py").write_text(TOOL)
    (tmp_path / "toolcrib.toml").write_text('[[rule]]\nhint = "destructive"\ndo = "ask"\n')
    (tmp_path / "script.json").write_text(json.dumps([{"calls": [["wipe", {}]]}] * 2 + ["Gone."]))
    plain = environment | {"TERM": "dumb"}
    with at_terminal(tmp_path, plain, "chat", "tools.py", "-m", "scripted:script.json") as session:
        session.read_to(b"> ")
        for key in (b"\x04", b"y\r"):
            session.press(b"Wipe it.\r")
            session.read_past(b"to deny it] ")
            session.press(key)
            session.read_past(b"\r\n> ")
        session.press(b"/quit\r")
        assert session.read_to_end()[0] == 0


NAP = """
import asyncio
from toolcrib import Context, tool

@tool(destructive=True)
async def nap(number: int, context: Context) -> str:
    if number == 1:
        context.progress(0, 1, "asleep")
        await asyncio.sleep(600)
    return f"slept {number}"
"""


def test_two_questions_come_one_after_the_other_and_ctrl_c_stops_what_was_approved(
    at_terminal: Callable[..., AbstractContextManager[Any]], tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "tools.py").write_text(NAP)
    (tmp_path / "toolcrib.toml").write_text('[[rule]]\nhint = "destructive"\ndo = "ask"\nmessage = "Really?"\n')
    both = {"calls": [["nap", {"number": 1}], ["nap", {"number": 2}]]}
    (tmp_path / "script.json").write_text(json.dumps([both, "Never said.", "Hi."]))
    plain = environment | {"TERM": "dumb"}
    with at_terminal(tmp_path, plain, "chat", "tools.py", "-m", "scripted:script.json") as session:
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
