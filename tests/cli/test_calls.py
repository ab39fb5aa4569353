"""`toolcrib calls`: what was called is listed, shown and followed by another process."""

import json
import os
import signal
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from toolcrib.cli.calls import _time

from .conftest import Run, Start

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


def listed(toolcrib: Run, *options: str) -> list[dict[str, Any]]:
    done = toolcrib("calls", "list", "--json", *options)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_calls_of_other_processes_are_listed_filtered_and_shown(toolcrib: Run) -> None:
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
    assert "arguments:" not in shown.stdout and "None" not in shown.stdout
    assert shown.stdout.splitlines()[0].startswith("id: ") or "\ntool: add\n" in shown.stdout
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
        (["list", "--status", "done"], 2, "is not one of 'started', 'success', 'error', 'pending', 'lost'"),
        (
            ["list", "--since", "soon"],
            2,
            "--since takes a time, as in 2026-01-31T12:00, or an age, as in 30m, 12h or 7d.",
        ),
    ],
)
def test_what_cannot_be_answered_is_an_error_that_names_the_way_out(
    arguments: list[str], status: int, message: str, toolcrib: Run
) -> None:
    done = toolcrib("calls", *arguments)
    assert done.returncode == status
    assert message in " ".join(done.stderr.split())


def test_calls_are_followed_until_ctrl_c(toolcrib: Run, folder: Path, start: Start) -> None:
    toolcrib("call", "add", "a=1", "b=2")
    follow = ("calls", "follow", "--tool", "add")
    with start(*follow, "--json") as as_json, start(*follow) as as_text:
        lines = ["", ""]
        end_s = monotonic() + 60
        while not all(lines):  # until both follow
            assert monotonic() < end_s, "nothing was printed"
            toolcrib("call", "add", "a=1", "b=3", "--principal", "ann")
            for number, process in enumerate((as_json, as_text)):
                assert process.poll() is None
                os.set_blocking(process.stdout.fileno(), False)
                lines[number] = lines[number] or process.stdout.readline()
        assert json.loads(lines[0])["principal"] == "ann"
        fields = lines[1].split("\t")
        assert (fields[2:4], fields[4] in ("started", "success")) == (["ann", "add"], True)
        for process in (as_json, as_text):
            process.send_signal(signal.SIGINT)
            assert (process.wait(60), process.stderr.read()) == (130, "Cancelled.\n")
    assert [file.name for file in folder.glob("store.db*")] == ["store.db"]  # it was closed, also by these


@pytest.mark.parametrize("unit", ["seconds", "minutes", "hours", "days"])
def test_an_age_is_in_the_unit_of_its_letter(unit: str) -> None:
    age, earliest = timedelta(**{unit: 7}), datetime.now(UTC)
    assert earliest <= _time(f"7{unit[0]}") + age <= datetime.now(UTC)


def test_the_log_and_a_file_of_it_are_verified(toolcrib: Run, folder: Path, tmp_path: Path) -> None:
    toolcrib("call", "add", "a=1", "b=2", "--principal", "ann")
    toolcrib("call", "add", "a=1", "b=3")
    done = toolcrib("calls", "verify")
    key = json.loads(toolcrib("store", "key", "--json").stdout)["key"]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"4 events in 2 chains verified. Signed by: {key}.\n"
    (folder / "log.jsonl").write_text(toolcrib("calls", "export", "--since", "1h").stdout)
    for name in ("store.db", "store.key", "toolcrib.toml", "tools.py"):
        (folder / name).rename(folder / f"no-{name}")  # the auditor has the file alone
    done = toolcrib("calls", "verify", "log.jsonl", "--json")
    assert json.loads(done.stdout) == {
        "keys": [key],
        "events": 4,
        "left_out": 0,
        "unsigned": 0,
        "chains": 2,
        "checkpoints": json.loads(done.stdout)["checkpoints"],
        "problem_count": 0,
        "problems": [],
    }
    assert "compare it with `toolcrib store key`" in toolcrib("calls", "verify", "log.jsonl").stdout
    assert "compare it" not in toolcrib("calls", "verify", "log.jsonl", "--key", key).stdout
    assert not (folder / "store.db").exists()
    other = toolcrib("calls", "verify", "log.jsonl", "--key", "0" * 32)
    assert (other.returncode, "not signed by the key 0000" in other.stderr) == (1, True)
    lines = (folder / "log.jsonl").read_text()
    (folder / "log.jsonl").write_text(lines.replace('"ann"', '"eve"'))
    forged = toolcrib("calls", "verify", "log.jsonl")
    assert forged.returncode == 1
    assert "(started run_" in forged.stdout and "was changed." in forged.stdout
    assert "Error: The log was changed: 3 problems." in forged.stderr
    empty = toolcrib("calls", "verify", "--store", "other.db")
    assert (empty.returncode, empty.stderr.startswith("Error: There is no event: ")) == (1, True)
    missing = toolcrib("calls", "verify", "none.jsonl")
    assert (missing.returncode, missing.stderr) == (1, "Error: none.jsonl cannot be read: No such file or directory.\n")


def test_a_row_that_is_changed_with_sql_is_named(toolcrib: Run, folder: Path) -> None:
    toolcrib("call", "add", "a=1", "b=2", "--principal", "ann")
    with sqlite3.connect(folder / "store.db") as connection:
        connection.execute("UPDATE toolcrib_events SET principal = 'eve' WHERE fields LIKE '%ended%'")
    done = toolcrib("calls", "verify", "--json")
    assert done.returncode == 1
    problem, of_call = json.loads(done.stdout)["problems"]
    assert of_call == f"The call {listed(toolcrib)[0]['id']} is listed with other values than its event has."
    assert problem.startswith("Event 2 of the chain ") and problem.endswith(
        f"(ended {listed(toolcrib)[0]['id']}) was changed."
    )
