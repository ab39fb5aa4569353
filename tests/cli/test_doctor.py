"""`toolcrib doctor`: what it finds where all is well, and what it names where something is not."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run


def checks(done: Any) -> dict[str, tuple[str, str]]:
    return {one["name"]: (one["status"], one["detail"]) for one in json.loads(done.stdout)["checks"]}


@pytest.mark.full
def test_where_all_is_well_each_thing_is_tried_and_the_status_is_0(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text('[store]\nurl = "store.db"\n')
    assert checks(toolcrib("doctor", "--json"))["store"] == (
        "missing",
        f"{folder / 'store.db'}: not made yet; it is when it is first used",
    )
    assert not (folder / "store.db").exists()
    assert toolcrib("keys", "add", "alice").returncode == 0
    done = toolcrib("doctor", "--json")
    found = checks(done)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True)
    assert found["worker processes"] == ("ok", "a tool ran in a process of its own")
    assert found["WebAssembly"] == ("ok", "a module ran in the sandbox")
    assert found["settings"] == ("ok", "toolcrib.toml")
    assert found["key of the store"] == ("ok", f"readable: {folder / 'store.key'}")
    # Only the keys were used: the tables of credentials come when they are.
    assert found["store"] == (
        "ok",
        f"{folder / 'store.db'}: reachable; tables that come with the next use: auth, record",
    )
    assert {"toolcrib", "extra serve", "extra sandbox", "Python in the sandbox", "Node"} <= found.keys()
    lines = toolcrib("doctor").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [status for status, _ in found.values()]


@pytest.mark.full
def test_what_does_not_work_is_named_and_the_status_is_1(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text('[store]\nurl = "store.db"\n')
    assert toolcrib("keys", "add", "alice").returncode == 0
    key = folder / "store.key"
    kept = key.read_bytes()

    def problem(name: str) -> str:
        done = toolcrib("doctor", "--json")
        status, detail = checks(done)[name]
        assert (done.returncode, status, json.loads(done.stdout)["ok"]) == (1, "problem", False)
        assert kept.decode().strip() not in done.stdout + done.stderr
        return detail

    key.chmod(0o644)
    assert "can be read by others (mode 0644)" in problem("key of the store")
    key.unlink()
    assert "is not there" in problem("key of the store")
    assert not key.exists()
    key.write_bytes(kept)
    key.chmod(0o600)
    with sqlite3.connect(folder / "store.db") as database:
        database.execute("UPDATE toolcrib_versions SET version = 99 WHERE room = 'keys'")
    database.close()
    assert "is of a newer Toolcrib" in problem("store")
    (folder / "store.db").write_bytes(b"not a database, but long enough to be looked at as one" * 100)
    problem("store")
    (folder / "toolcrib.toml").write_text("[server]\nkeys = 1\n")
    assert "The store was not looked at" in problem("settings")
    (folder / "toolcrib.toml").write_text(
        '[store]\nurl = "postgresql://me:hunter2@127.0.0.1:1/none"\nkey = "store.key"\n'
    )
    assert "hunter2" not in problem("store")
