"""Story 4, interrupted: between the question and the answer, and between the answer and a grant, everything is killed.

That a call which has run, repeated with its key, gives the first result, is in `test_dangerous.py`.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from toolcrib.auth import DatabaseVault
from toolcrib.store import Store

from ..auth.oidc.canaries import require_hidden
from ..auth.oidc.conftest import SECRET, Provider

HERE = Path(__file__).parent

SETTINGS = """
providers = "providers.toml"

[[source]]
from = "tools.py"

[[rule]]
hint = "destructive"
do = "ask"
others_only = true
message = "May this table be dropped for good?"

[auth.local]
client_id = "web"
client_secret = "${env:CLIENT_SECRET}"

[store]
url = "data/store.db"

[net]
allow = ["127.0.0.1"]
"""


class Alice:
    """The program of the story, in a folder and an environment of its own."""

    def __init__(self, folder: Path, environ: dict[str, str], port: int) -> None:
        self.folder, self.environ, self.port = folder, environ, port
        self.written: list[str] = []
        self.processes: list[subprocess.Popen[str]] = []

    def popen(self, *command: str) -> "subprocess.Popen[str]":
        self.processes.append(
            subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return self.processes[-1]

    def run(self, table: str) -> "subprocess.Popen[str]":
        return self.popen("python", "-W", "error", "interrupted.py", table)

    def line(self, process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None
        line = process.stdout.readline().rstrip("\n")
        if not line:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        self.written.append(line)
        return line

    def kill(self, process: "subprocess.Popen[str]") -> None:
        process.send_signal(signal.SIGKILL)
        self.written += process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL

    def command(self, *arguments: str) -> tuple[int, str]:
        """The status of `toolcrib`, and what it wrote to standard output."""
        process = self.popen("toolcrib", *arguments)
        written = process.communicate(timeout=60)
        self.written += written
        return process.returncode, written[0]

    def log_in(self, provider: Provider) -> None:
        """Alice logs in by the command, whose address she opens in a browser."""
        process = self.popen("toolcrib", "auth", "login", "local", "--principal", "alice", "--port", str(self.port))
        assert process.stderr is not None
        while not (line := process.stderr.readline()).startswith("http"):
            assert line
        assert httpx2.get(provider.grant(line.strip(), login="alice")).status_code == 200
        self.written += process.communicate(timeout=60)
        assert (process.returncode, self.written[-1]) == (0, "Logged in to Local.\n")

    def dropped(self) -> list[str]:
        file = self.folder / "dropped.txt"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def alice(
    tmp_path: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> Iterator[Alice]:
    programs = clean_env("--extra", "serve")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shutil.copy(HERE / "interrupted.py", tmp_path)
    shutil.copy(HERE / "interrupted_tools.py", tmp_path / "tools.py")
    (tmp_path / "toolcrib.toml").write_text(SETTINGS)
    alice = Alice(tmp_path, {**user_environ(programs), "CLIENT_SECRET": SECRET}, port)
    yield alice
    for process in alice.processes:
        process.kill()
        process.communicate()


@pytest.fixture
def provider(alice: Alice) -> Iterator[Provider]:
    provider = Provider(redirect=f"http://127.0.0.1:{alice.port}/auth/callback/local")
    (alice.folder / "providers.toml").write_text(provider.catalogue)
    yield provider
    provider.close()


@pytest.mark.full
async def test_a_call_goes_on_over_kills_and_one_approval_runs_it_once_over_all_processes(
    alice: Alice, provider: Provider
) -> None:
    first = alice.run("orders")
    asked = alice.line(first)
    assert asked.startswith("waits for approval pending_")
    question = asked.split()[-1]
    alice.kill(first)

    # The question is there without any process, and its caller may not answer it.
    (listed,) = json.loads(alice.command("pending", "list", "--json")[1])
    assert (listed["id"], listed["principal"], listed["arguments"]) == (question, "alice", '{"table": "orders"}')
    assert alice.command("pending", "approve", question, "--by", "alice") == (1, "")

    # Started again, she waits for the answer to the same question, and goes on with it: to what it needs next.
    second = alice.run("orders")
    assert alice.line(second) == asked
    assert alice.command("pending", "approve", question, "--by", "bob")[0] == 0
    grant = alice.line(second)
    assert grant.startswith("waits for authorization pending_")
    alice.kill(second)
    assert alice.dropped() == []

    # Killed again, she needs no other approval; and goes on when the grant comes, by another process.
    third = alice.run("orders")
    assert alice.line(third) == grant
    alice.log_in(provider)
    assert alice.line(third) == "success orders is dropped by alice"
    alice.written += third.communicate(timeout=60)
    assert (third.returncode, alice.written[-1], alice.dropped()) == (0, "", ["orders"])

    # The approval is used up: the same call asks anew, and so do other arguments.
    again, other = alice.run("orders"), alice.run("customers")
    questions = {alice.line(process).split()[-1] for process in (again, other)}
    assert len(questions | {question}) == 3
    for process in (again, other):
        alice.kill(process)
    assert alice.command("pending", "approve", question, "--by", "bob") == (1, "")
    assert alice.dropped() == ["orders"]

    # Four processes find one approval: it runs in one of them.
    waiting = json.loads(alice.command("pending", "list", "--json")[1])
    (customers,) = [one["id"] for one in waiting if "customers" in one["arguments"]]
    assert alice.command("pending", "approve", customers, "--by", "bob")[0] == 0
    calls = [alice.popen("toolcrib", "call", "drop", "table=customers", "--principal", "alice") for _ in range(4)]
    for call in calls:
        alice.written += call.communicate(timeout=120)
    assert sorted(call.returncode for call in calls) == [0, 3, 3, 3]
    assert alice.dropped() == ["orders", "customers"]

    store = Store(alice.folder / "data" / "store.db")
    ((_, granted),) = await DatabaseVault(store).owned_by("alice")
    assert granted is not None
    store.close()
    assert os.stat(alice.folder / "data" / "store.db").st_mode & 0o077 == 0
    require_hidden({SECRET, *granted.secrets}, *alice.written, folder=alice.folder)
