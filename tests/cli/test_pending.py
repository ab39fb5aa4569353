"""`toolcrib pending`: what waits in the store is answered by another process, and the same call runs once.

A dangerous call as far as one computer shows it: the process that asked is gone before anybody answers.
"""

import json
from pathlib import Path

import pytest

from .conftest import Run

TOOLS = """
from toolcrib import tool


@tool(destructive=True)
async def drop(table: str) -> str:
    with open("dropped.txt", "a") as file:
        print(table, file=file)
    return f"{table} is dropped"
"""

SETTINGS = """
[[source]]
from = "tools.py"

[[rule]]
hint = "destructive"
do = "ask"
others_only = true

[store]
url = "store.db"
"""


def asked(toolcrib: Run, *arguments: str) -> str:
    """The id of what the call waits for."""
    done = toolcrib("call", "drop", *arguments, "--principal", "alice", "--json")
    assert done.returncode == 3, done.stderr
    pending_id: str = json.loads(done.stdout)["pending"]["id"]
    return pending_id


def dropped(folder: Path) -> list[str]:
    file = folder / "dropped.txt"
    return file.read_text().split() if file.exists() else []


def test_an_approval_after_the_process_has_ended_runs_the_same_call_once(toolcrib: Run, folder: Path) -> None:
    waiting = asked(toolcrib, "table=orders")
    assert asked(toolcrib, "table=orders") == waiting
    printed = toolcrib("call", "drop", "table=orders", "--principal", "alice").stderr
    assert printed.endswith(f"To answer it elsewhere: toolcrib pending approve {waiting} (or deny).\n"), printed
    listed = toolcrib("pending", "list")
    question = "May 'drop' run with these arguments?"
    assert listed.stdout == f'{waiting}\tapproval\talice\tdrop\t{question}\t{{"table": "orders"}}\n'
    assert json.loads(toolcrib("pending", "show", waiting).stdout)["arguments"] == '{"table": "orders"}'
    own = toolcrib("pending", "approve", waiting, "--by", "alice")
    assert (own.returncode, own.stdout, dropped(folder)) == (1, "", [])
    approved = toolcrib("pending", "approve", waiting, "--by", "bob")
    assert (approved.returncode, approved.stderr) == (
        0,
        "Approved: it runs, once, when 'alice' calls 'drop' again.\n",
    )
    assert asked(toolcrib, "table=customers") != waiting
    done = toolcrib("call", "drop", "table=orders", "--principal", "alice")
    assert (done.returncode, done.stdout, dropped(folder)) == (0, "orders is dropped\n", ["orders"])
    assert asked(toolcrib, "table=orders") != waiting
    assert dropped(folder) == ["orders"]
    assert toolcrib("pending", "approve", waiting, "--by", "bob").returncode == 1


def test_a_denial_reaches_the_caller_with_its_reason(toolcrib: Run, folder: Path) -> None:
    waiting = asked(toolcrib, "table=orders")
    denied = toolcrib("pending", "deny", waiting, "--by", "bob", "--reason", "keep it")
    assert (denied.returncode, denied.stderr) == (0, "Denied: the model reads it when 'alice' calls 'drop' again.\n")
    done = toolcrib("call", "drop", "table=orders", "--principal", "alice")
    assert (done.returncode, "'bob' denied it: keep it" in done.stderr, dropped(folder)) == (1, True, [])


@pytest.mark.parametrize("odd", ["\x1b[31m", "x" * 100_000, b"\xff"])
def test_an_id_that_nothing_waits_under_is_refused(odd: str | bytes, toolcrib: Run) -> None:
    done = toolcrib("pending", "approve", odd)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: Nothing waits under '") and len(done.stderr) < 300
    assert "\x1b" not in done.stderr


def test_one_of_the_approvers_answers_without_the_extra_of_logins(
    toolcrib: Run, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (folder / "toolcrib.toml").write_text(
        SETTINGS.replace("others_only = true", 'approvers = { groups = ["leads"], principals = ["bob"] }')
    )
    absent = tmp_path_factory.mktemp("absent")
    (absent / "authlib.py").write_text("raise ModuleNotFoundError('there is none', name='authlib')")

    def pending(*arguments: str, **variables: str) -> tuple[int, str]:
        done = toolcrib("pending", *arguments, **variables)
        return done.returncode, done.stderr

    waiting = asked(toolcrib, "table=orders")
    status, text = pending("approve", waiting, "--by", "lin", "--group", "staff")
    assert (status, "Its rule has `approvers`: 'bob' or a member of 'leads'." in text) == (1, True), text
    for by, variables in ((["--by", "lin", "--group", "leads"], {}), (["--by", "bob"], {"PYTHONPATH": str(absent)})):
        waiting = asked(toolcrib, "table=orders")
        assert pending("approve", waiting, *by, **variables) == (
            0,
            "Approved: it runs, once, when 'alice' calls 'drop' again.\n",
        )
        assert toolcrib("call", "drop", "table=orders", "--principal", "alice").returncode == 0


def test_what_is_not_seen_of_arguments_is_shown_where_they_are_listed_and_that_they_are_cut(toolcrib: Run) -> None:
    asked(toolcrib, "table=\u202eorders\u200b")
    asked(toolcrib, f"table={'x' * 1000}")
    first, second = (line.rpartition("\t")[2] for line in toolcrib("pending", "list").stdout.splitlines())
    assert first == r'{"table": "\u202eorders\u200b"}'
    assert (len(second), second[-2:]) == (500, "x…")
