"""A store is copied while calls run, by the command of docs/serve.md, and put back in a fresh folder."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ..ports import free_port

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("sqlite3") is None, reason="sqlite3 is not installed"),
]

DOCS = Path(__file__).resolve().parents[2] / "docs" / "serve.md"
FILES = {
    "tools.py": '''
from toolcrib import Context, ToolAuth, tool


@tool(destructive=True)
def drop(n: int) -> str:
    """Drop."""
    return f"dropped {n}"


@tool
def note(n: int) -> int:
    """Note a number."""
    return n


@tool
def remember(text: str) -> str:
    """Say a text again."""
    return text


@tool(auth=ToolAuth("labels"))
def label(context: Context) -> str:
    """The length of the token."""
    return f"{len(context.credentials['labels'].secret)} characters"
''',
    "providers.toml": """
[labels]
title = "Labels"
hosts = ["labels.example.com"]
[labels.token]
""",
    "toolcrib.toml": """
providers = "providers.toml"
[[source]]
from = "tools.py"
[[rule]]
tools = "drop"
do = "ask"
[store]
url = "store.db"
[server]
keys = true
[calls]
enabled = true
content = true
""",
}


def command(folder: Path, *arguments: str, entered: str = "") -> str:
    """What `toolcrib` prints in *folder*."""
    done = subprocess.run(
        [sys.executable, "-m", "toolcrib", *arguments], cwd=folder, input=entered, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def serving(folder: Path, key: str) -> Iterator[httpx2.Client]:
    """A client, with *key*, of a server on the store in *folder*."""
    port = free_port()
    serve = [sys.executable, "-m", "toolcrib", "serve", "--port", str(port)]
    with subprocess.Popen(serve, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            assert "Serving MCP" in server.stderr.readline()
            headers = {"Authorization": f"Bearer {key}"}
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
                yield client
        finally:
            server.kill()


def call(client: httpx2.Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = client.post(f"/api/tools/{tool}/call", json=arguments).json()
    return result


def make(folder: Path) -> Path:
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def test_a_copy_made_while_calls_run_has_keys_grants_pendings_and_calls(tmp_path: Path) -> None:
    old, new = make(tmp_path / "old"), make(tmp_path / "new")
    key = command(old, "keys", "add", "alice")
    command(old, "auth", "login", "labels", "--token", "-", "--principal", "key:alice", entered="label-token-1\n")
    (backup,) = re.findall(r"`(sqlite3 store\.db .*?)`", DOCS.read_text())
    with serving(old, key) as client:
        pending = call(client, "drop", n=7)["pending"]["id"]
        assert call(client, "remember", text="before the copy")["status"] == "success"
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                call(client, "note", n=1)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            subprocess.run(["/bin/sh", "-c", backup], cwd=old, check=True, timeout=60)
        finally:
            stop.set()
            writer.join()
    shutil.move(old / "copy.db", new / "store.db")
    with sqlite3.connect(new / "store.db") as copy:
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    # Neither opens anything without the other.
    keyless = subprocess.run(
        [sys.executable, "-m", "toolcrib", "check", "--connect"], cwd=new, capture_output=True, text=True
    )
    assert keyless.returncode == 1
    assert "Without it, what is sealed in the store cannot be opened." in keyless.stdout
    shutil.copy(old / "store.key", new)
    shutil.rmtree(old)

    command(new, "pending", "approve", pending)
    (remembered,) = json.loads(command(new, "calls", "list", "--tool", "remember", "--json"))
    assert remembered["principal"] == "key:alice"
    assert "before the copy" in command(new, "calls", "show", remembered["id"])
    with serving(new, key) as client:
        assert call(client, "drop", n=7)["content"][0]["text"] == "dropped 7"
        assert call(client, "label")["content"][0]["text"] == f"{len('label-token-1')} characters"
