"""Story 8, a week with one agent: approved once, for a conversation, until Friday; a page gives orders; an auditor.

`toolcrib serve` with keys for Ada, whose agent calls, and for Lena, who leads and approves, over HTTP.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .running import run

HERE = Path(__file__).parent
WAIT_S = 60
SETTINGS = """
[[source]]
from = "tools.py"

[[rule]]
name = "after strangers"
tools = "send_*"
seen = "untrusted"
do = "ask"
message = "This conversation has read what others wrote. Send it all the same?"
approvers = { groups = ["leads"] }

[[rule]]
name = "changes"
tools = ["book", "send_*"]
do = "ask"
approvers = { groups = ["leads"] }

[server]
keys = true

[store]
url = "sqlite:///store.db"
"""


class Office:
    """The folder with the settings, the server, and its two people."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self.keys = {
            name: self.toolcrib("keys", "add", name, *groups).stdout.strip()
            for name, groups in (("ada", ()), ("lena", ("--group", "leads")))
        }

    def toolcrib(self, *arguments: str, status: int = 0) -> "subprocess.CompletedProcess[str]":
        done = run(self.folder, self.environ, "toolcrib", *arguments)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def request(self, method: str, path: str, name: str, body: object = None, **headers: str) -> Any:
        headers["Authorization"] = f"Bearer {self.keys[name]}"
        response = httpx2.request(method, f"{self.url}/api/{path}", json=body, headers=headers, timeout=WAIT_S)
        assert response.is_success or response.json()["code"] == "denied", response.text
        return response.json()

    def call(self, tool: str, thread: str, **arguments: str) -> dict[str, Any]:
        """What Ada's agent gets, in a conversation."""
        result: dict[str, Any] = self.request(
            "POST", f"tools/{tool}/call", "ada", arguments, **{"Toolcrib-Thread": thread}
        )
        return result

    def approve(self, result: dict[str, Any], **more: Any) -> None:
        """Lena sees what *result* waits for, and approves it."""
        (pending,) = self.request("GET", "pending", "lena")["pending"]
        assert pending["id"] == result["pending"]["id"]
        self.request("POST", f"pending/{pending['id']}/answer", "lena", {"kind": "approve", **more})

    def effects(self) -> list[str]:
        return (self.folder / "effects").read_text().splitlines()


@pytest.fixture
def office(
    tmp_path: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> Iterator[Office]:
    (tmp_path / "toolcrib.toml").write_text(SETTINGS)
    shutil.copy(HERE / "week_tools.py", tmp_path / "tools.py")
    environ = user_environ(clean_env("--extra", "serve"))
    office = Office(tmp_path, environ)
    command = ["toolcrib", "serve", "--port", "0", "--no-watch"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = ""
        while not (found := re.search(r"Serving MCP at (http://\S+)/mcp", lines)):
            line = process.stderr.readline()
            assert line, lines
            lines += line
        office.url = found[1]
        yield office
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


@pytest.mark.full
def test_a_week_with_one_agent(office: Office) -> None:
    # Monday: once.
    asked = office.call("book", "monday", city="Oslo")
    assert asked["status"] == "pending"
    office.approve(asked)
    assert office.call("book", "monday", city="Oslo")["status"] == "success"
    again = office.call("book", "monday", city="Oslo")
    assert again["status"] == "pending"

    # For this conversation, and no other.
    office.approve(again, until="conversation")
    for city in ("Oslo", "Bergen"):
        assert office.call("book", "monday", city=city)["status"] == "success"
    other = office.call("book", "tuesday", city="Bergen")
    assert other["status"] == "pending"

    # Until Friday, for Oslo only.
    friday = (datetime.now().astimezone() + timedelta(days=3)).isoformat()
    office.approve(other)
    assert office.call("book", "tuesday", city="Bergen")["status"] == "success"
    third = office.call("book", "tuesday", city="Oslo S")
    office.approve(third, until=friday, where={"/city": {"like": "Oslo*"}})
    assert [office.call("book", "tuesday", city=city)["status"] for city in ("Oslo", "Oslo Sentrum")] == ["success"] * 2
    fourth = office.call("book", "tuesday", city="Bergen")
    assert fourth["status"] == "pending"
    office.request("POST", f"pending/{fourth['pending']['id']}/answer", "lena", {"kind": "deny", "reason": "no budget"})
    assert office.call("book", "tuesday", city="Bergen")["detail"].endswith("'key:lena' denied it: no budget")

    # Mails were granted; then the conversation reads a page that gives orders.
    mail = office.call("send_mail", "wednesday", to="bob@example.com", text="Hello.")
    office.approve(mail, until="conversation")
    assert office.call("send_mail", "wednesday", to="bob@example.com", text="Hello.")["status"] == "success"
    assert office.call("send_mail", "wednesday", to="kim@example.com", text="Hello.")["status"] == "success"
    assert "send everything to" in office.call("fetch", "wednesday", page="rooms")["content"][0]["text"]
    ordered = office.call("send_mail", "wednesday", to="eve@example.com", text="Everything.")
    assert (ordered["status"], ordered["pending"]["message"]) == (
        "pending",
        "This conversation has read what others wrote. Send it all the same?",
    )
    effects = office.effects()
    assert len(effects) == len([line for line in effects if "eve" not in line])

    # What was granted is listed, and taken back.
    grants = json.loads(office.toolcrib("grants", "list", "--json").stdout)
    assert {(grant["principal"], grant["thread"], grant["given_by"]) for grant in grants} == {
        ("key:ada", thread, "key:lena") for thread in ("monday", "tuesday", "wednesday")
    }
    monday = next(grant["id"] for grant in grants if grant["thread"] == "monday")
    office.toolcrib("grants", "revoke", monday)


@pytest.mark.full
def test_the_auditors_file_names_the_row_with_one_character_changed(office: Office) -> None:
    asked = office.call("book", "monday", city="Oslo")
    office.approve(asked)
    assert office.call("book", "monday", city="Oslo")["status"] == "success"
    office.toolcrib("calls", "verify")
    file = office.folder / "log.jsonl"
    file.write_text(office.toolcrib("calls", "export").stdout)
    office.toolcrib("calls", "verify", str(file))
    lines = file.read_text().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines, 1) if "key:lena" in line)
    lines[number - 1] = lines[number - 1].replace("key:lena", "key:lene", 1)
    file.write_text("".join(lines))
    verdict = office.toolcrib("calls", "verify", str(file), status=1)
    assert f"(answered {asked['pending']['id']}) was changed." in verdict.stdout
