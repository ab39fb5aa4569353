"""`toolcrib store`: copies of the store, and what it has of one caller, exported and forgotten."""

import json
from pathlib import Path

import pytest

from .conftest import AtTerminal, Run

TOOLS = """
from toolcrib import tool


@tool(destructive=True)
async def drop(table: str) -> str:
    return f"{table} is dropped"
"""

SETTINGS = """
[[source]]
from = "tools.py"

[[rule]]
hint = "destructive"
do = "ask"

[store]
url = "store.db"
"""


@pytest.fixture(autouse=True)
def _store(toolcrib: Run) -> None:
    """A store in which calls of alice and bob wait, and alice has a secret."""
    for name in ("alice", "bob"):
        assert toolcrib("call", "drop", "table=orders", "--principal", name).returncode == 3
    assert toolcrib("secrets", "set", "KEY", "--principal", "alice", typed=b"the-secret-value").returncode == 0


def waiting(toolcrib: Run, *arguments: str) -> list[str]:
    listed = json.loads(toolcrib("pending", "list", "--json", *arguments).stdout)
    return [item["principal"] for item in listed]


def test_a_backup_is_restored_where_a_store_was_lost(toolcrib: Run, folder: Path) -> None:
    copied = toolcrib("store", "backup", "copy.db", "--json")
    size = (folder / "copy.db").stat().st_size
    assert json.loads(copied.stdout) == {"file": "copy.db", "size_bytes": size, "keys": "copy.key"}
    again = toolcrib("store", "backup", "copy.db")
    assert (again.returncode, again.stdout) == (1, "")
    assert "copy.db is there already" in again.stderr
    refused = toolcrib("store", "restore", "copy.db")
    assert (refused.returncode, "--replace" in refused.stderr) == (1, True)
    for name in ("store.db", "store.key"):
        (folder / name).unlink()
    restored = toolcrib("store", "restore", "copy.db")
    assert restored.stderr == f"Restored: {folder / 'store.db'}.\n", restored.stderr
    assert waiting(toolcrib) == ["alice", "bob"]
    assert waiting(toolcrib, "--principal", "bob") == ["bob"]
    assert toolcrib("secrets", "list", "--principal", "alice").stdout.split()[0] == "KEY"
    (folder / "copy.key").unlink()
    replaced = toolcrib("store", "restore", "copy.db", "--replace")
    assert "No keys were beside copy.db" in replaced.stderr


def test_one_caller_is_exported_and_forgotten(toolcrib: Run) -> None:
    exported = toolcrib("store", "export", "alice")
    data = json.loads(exported.stdout)
    assert (data["principal"], {name: len(rows) for name, rows in data.items() if name != "principal"}) == (
        "alice",
        {
            "pendings": 1,
            "results": 0,
            "ledger": 0,
            "steps": 0,
            "task_events": 0,
            "waits": 0,
            "rates": 0,
            "approvals": 0,
            "events": 2,
            "grants": 1,
            "authorizations": 0,
            "calls": 1,
            "sessions": 0,
        },
    )
    assert data["pendings"][0]["body"]["arguments"] == '{"table": "orders"}'
    assert "the-secret-value" not in exported.stdout
    asked = toolcrib("store", "forget", "alice")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "This deletes 1 pendings, 2 events, 1 grants, 1 calls. Say so with --yes." in asked.stderr
    assert waiting(toolcrib) == ["alice", "bob"]
    done = toolcrib("store", "forget", "alice", "--yes", "--json")
    assert json.loads(done.stdout) == {
        "principal": "alice",
        "deleted": {"pendings": 1, "events": 2, "grants": 1, "calls": 1},
    }
    assert waiting(toolcrib) == ["bob"]
    nothing = toolcrib("store", "forget", "alice", "--yes")
    assert (nothing.returncode, nothing.stderr) == (1, "Error: The store has nothing of 'alice'.\n")


def test_a_person_is_asked_before_anything_is_deleted(at_terminal: AtTerminal, toolcrib: Run) -> None:
    for answer, status, left in (("n", 1, ["alice", "bob"]), ("y", 0, ["bob"])):
        with at_terminal("store", "forget", "alice") as session:
            session.read_to(b"Delete them for good? [y/N]")
            session.press(f"{answer}\r".encode())
            ended, seen = session.read_to_end()
        assert (ended, "Of 'alice': 1 pendings, 2 events, 1 grants, 1 calls." in seen) == (status, True)
        assert waiting(toolcrib) == left
