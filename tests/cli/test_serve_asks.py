"""The terminal of `toolcrib serve`: it says that a call waits, and the person there answers it, or edits it."""

import json
import re
import urllib.request
from getpass import getuser
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from .conftest import AtTerminal, Session, Start, read_to

TOOLS = '''
from toolcrib import tool


@tool(destructive=True)
def wipe(disk: str, passes: int = 1) -> str:
    """Wipe a disk."""
    with open("log", "a") as log:
        print(disk, passes, file=log)
    return f"wiped {disk}"
'''
SETTINGS = """\
[[source]]
from = "tools.py"
[[rule]]
do = "ask"
message = "Really?"
others_only = true
"""


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"TERM": "dumb"}


def post(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except HTTPError as error:
        return json.load(error)


def api_of(session: Session) -> str:
    session.read_to(b"--stdio")
    (url,) = re.findall(rb"Serving MCP at (http://127\.0\.0\.1:\d+)/mcp", session.seen)
    return str(url.decode())


def wipe(api: str, disk: str = "a") -> Any:
    return post(f"{api}/api/tools/wipe/call", {"disk": disk})


def editor(folder: Path, *texts: str) -> str:
    """Return an editor that writes one of *texts* after the other."""
    for number, text in enumerate(texts):
        (folder / f"text{number}").write_text(text)
    script = folder / "editor"
    script.write_text('#!/bin/sh\nn=$(cat count 2>/dev/null || echo 0)\ncat "text$n" > "$1"\necho $((n + 1)) > count\n')
    script.chmod(0o755)
    return str(script)


def test_the_person_at_the_terminal_approves_and_edits(at_terminal: AtTerminal, folder: Path) -> None:
    edits = ("{", '{"disk": "a", "passes": "many"}', '{"disk": "b", "passes": 7}')
    with at_terminal("serve", "--port", "0", EDITOR=editor(folder, *edits), VISUAL="") as session:
        api = api_of(session)

        assert wipe(api)["status"] == "pending"
        session.read_past(b"'local' waits.")
        session.read_past(b"reason to deny it] ")
        session.press(b"y\r")
        session.read_past(b"calls 'wipe' again.")
        result = wipe(api)
        assert result["metadata"]["decision"]["by"] == getuser()
        assert (folder / "log").read_text() == "a 1\n"

        assert wipe(api)["status"] == "pending"
        session.read_past(b"reason to deny it] ")
        session.press(b"e\r")
        session.read_past(b"This is not JSON")
        session.read_past(b"reason to deny it] ")
        session.press(b"e\r")
        session.read_past(b"'passes'")
        session.read_past(b"reason to deny it] ")
        session.press(b"e\r")
        session.read_past(b"calls 'wipe' again.")
        result = wipe(api)
        assert "has changed the arguments" in result["content"][1]["text"]
        assert (folder / "log").read_text() == "a 1\nb 7\n"


def test_the_person_at_the_terminal_approves_the_next_calls_as_well(at_terminal: AtTerminal) -> None:
    with at_terminal("serve", "--port", "0") as session:
        api = api_of(session)
        assert wipe(api)["status"] == "pending"
        asks, sure = b"reason to deny it] ", b"Grant that? [y/N] "
        for prompt, typed, reply in (
            (asks, b"y until noon", b"That is not a time"),
            (asks, b"y until conversation", b"for this conversation, in the thread 'default'"),
            (sure, b"y", b"This caller has no conversation"),
            (asks, b"y until 23:59", b"23:59 "),
            (sure, b"n", b"\n"),
            (asks, b"y until 9999-12-30", b"9999-12-30 00:00 "),
            (sure, b"y", b"at most 30 days ahead"),
            (asks, b"y until 23:59", b"'local' may then call 'wipe' with any arguments until "),
            (sure, b"y", b"calls 'wipe' again."),
        ):
            session.read_past(prompt)
            session.press(typed + b"\r")
            session.read_past(reply)
        assert [wipe(api, disk)["status"] for disk in ("a", "b", "c")] == ["success"] * 3
        (grant,) = json.load(urllib.request.urlopen(f"{api}/api/grants", timeout=30))["grants"]
        assert (grant["given_by"], grant["tools"]) == (getuser(), ["wipe"])


def test_a_question_ends_when_it_is_answered_elsewhere(at_terminal: AtTerminal, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text(SETTINGS.replace("others_only = true", ""))
    with at_terminal("serve", "--port", "0") as session:
        api = api_of(session)
        pending = wipe(api)["pending"]
        session.read_past(b"reason to deny it] ")
        post(f"{api}/api/pending/{pending['id']}/answer", {"kind": "approve"})
        session.read_to(b"It was answered elsewhere")
        assert wipe(api)["status"] == "success"


def test_for_others_or_without_a_terminal_it_says_that_a_call_waits(
    at_terminal: AtTerminal, folder: Path, start: Start
) -> None:
    approvers = 'approvers = { groups = ["leads"], principals = ["alice\u202e"] }'
    (folder / "toolcrib.toml").write_text(SETTINGS.replace("others_only = true", approvers))
    with at_terminal("serve", "--port", "0") as session:
        wipe(api_of(session))
        session.read_to(b"or a member of 'leads', to call 'wipe': Really? To give it: toolcrib pending ")
        assert b"Run it?" not in session.seen
        assert "\u202e".encode() not in session.seen
    (folder / "toolcrib.toml").write_text(SETTINGS)
    with start("serve", "--port", "0") as process:
        (api,) = re.findall(r"Serving MCP at (http://127\.0\.0\.1:\d+)/mcp", read_to(process, "--stdio"))
        wipe(api, "c")
        assert process.stderr.readline().startswith("'local' waits for approval, to call 'wipe': Really? To give it: ")
