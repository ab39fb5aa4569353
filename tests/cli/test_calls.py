"""`toolcrib calls`: what was called is listed, shown and followed by another process."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run

TOOLS = """
from toolcrib import tool


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool(destructive=True)
async def drop(table: str) -> str:
    raise ValueError(table)
"""

SETTINGS = """
[[source]]
from = "tools.py"

[store]
url = "store.db"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "toolcrib.toml").write_text(SETTINGS)
    return tmp_path


def listed(toolcrib: Run, *options: str) -> list[dict[str, Any]]:
    done = toolcrib("calls", "list", "--json", *options)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_calls_of_other_processes_are_listed_filtered_and_shown(toolcrib: Run, folder: Path) -> None:
    toolcrib("call", "add", "a=1", "b=2", "--principal", "ann")
    toolcrib("call", "drop", "table=secret-table")
    toolcrib("call", "ad", "a=1")
    found = listed(toolcrib)
    assert [(one["tool"], one["status"], one["code"], one["principal"]) for one in found] == [
        ("ad", "error", "unknown_tool", "local"),
        ("drop", "error", "failed", "local"),
        ("add", "success", None, "ann"),
    ]
    assert [one["tool"] for one in listed(toolcrib, "--principal", "ann", "--since", "1h")] == ["add"]
    assert [one["tool"] for one in listed(toolcrib, "--tool", "drop", "--status", "error")] == ["drop"]
    assert listed(toolcrib, "--since", "2100-01-01") == listed(toolcrib, "--status", "lost") == []
    assert len(listed(toolcrib, "--limit", "2")) == 2
    add = found[-1]
    text = toolcrib("calls", "list").stdout.splitlines()[-1]
    assert text.split("\t")[1:5] == [add["id"], "ann", "add", "success"]
    shown = toolcrib("calls", "show", add["id"])
    assert f"id: {add['id']}\n" in shown.stdout
    assert "arguments:" not in shown.stdout
    assert json.loads(toolcrib("calls", "show", add["id"], "--json").stdout) == add | {
        "arguments": None,
        "result": None,
    }
    assert "secret-table" not in "".join(str(one) for one in found)


def test_content_is_shown_where_the_settings_ask_for_it(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text(f"{SETTINGS}\n[calls]\ncontent = true\n")
    toolcrib("call", "add", "a=1", "b=2")
    (one,) = listed(toolcrib)
    shown = json.loads(toolcrib("calls", "show", one["id"], "--json").stdout)
    assert (json.loads(shown["arguments"]), shown["result"]) == ({"a": 1, "b": 2}, "3")
    (folder / "toolcrib.toml").write_text(f"{SETTINGS}\n[calls]\nenabled = false\n")
    toolcrib("call", "add", "a=1", "b=2")
    assert len(listed(toolcrib)) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["show", "run_1"], 1, "There is no call 'run_1' in the log. See: toolcrib calls list"),
        (["list", "--status", "done"], 2, "a status is one of: started, success, error, pending, lost."),
        (
            ["list", "--since", "soon"],
            2,
            "--since takes a time, as in 2026-01-31T12:00, or an age, as in 30m, 12h or 7d.",
        ),
    ],
)
def test_what_cannot_be_answered_is_an_error_that_names_the_way_out(
    arguments: list[str], status: int, message: str, toolcrib: Run, folder: Path
) -> None:
    done = toolcrib("calls", *arguments)
    assert done.returncode == status
    assert message in " ".join(done.stderr.split())


def test_calls_are_followed_until_ctrl_c(toolcrib: Run, folder: Path, forked_toolcrib: Path) -> None:
    toolcrib("call", "add", "a=1", "b=2")
    command = [str(forked_toolcrib), "calls", "follow", "--json", "--tool", "add"]
    following = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert following.stdout is not None
    for _ in range(20):  # until it follows
        toolcrib("call", "add", "a=1", "b=3", "--principal", "ann")
        if following.poll() is not None:
            break
        os.set_blocking(following.stdout.fileno(), False)
        if line := following.stdout.readline():
            break
    else:
        pytest.fail("nothing was printed")
    assert json.loads(line)["principal"] == "ann"
    following.send_signal(signal.SIGINT)
    _, errors = following.communicate(timeout=60)
    assert following.returncode == 130
    assert errors == "Cancelled.\n"
