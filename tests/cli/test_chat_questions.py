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
