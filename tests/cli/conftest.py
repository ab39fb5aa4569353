"""The real command, as a process of its own."""

import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest

from ..forks import run as run_forked
from .provider import LoopbackProvider, loopback_provider

TOOLS = '''
import asyncio, os, time
from typing import Any, Literal

from pydantic import BaseModel, Field

from toolcrib import File, Image, Text, ToolAuth, tool

print("printed while loading")


class Options(BaseModel):
    depth: int = Field(1, ge=0, description="How deep.")
    label: str | None = None


@tool(title="Add [bold]two[/bold]", read_only=True, idempotent=True, examples=[{"a": 1, "b": 2}], version="1.2")
async def add(a: int, b: int = 0) -> int:
    """Add two numbers\\x1b[31m.

    More of it.

    Args:
        a: The first.
        b: The second.
    """
    print("printed by the tool", flush=True)
    os.system("echo printed by a program")
    return a + b


@tool
def echo(
    text: str,
    tags: list[str] = [],
    sizes: list[int] | None = None,
    number: int | None = None,
    ratio: float = 0.5,
    on: bool = False,
    mode: Literal["soft", 1] = "soft",
    options: Options | None = None,
    anything: Any = None,
) -> dict[str, Any]:
    """Give back what came."""
    return locals()


@tool(destructive=True, auth=ToolAuth("github", scopes=["repo"]))
def wipe(disk: str) -> str:
    return "wiped"


@tool
def fail() -> None:
    raise RuntimeError("the detail")


@tool
def picture() -> list[Text | Image | File]:
    return [Text("Two files:"), Image(b"PNG!"), File(b"RAW", "application/x-raw", "../../raw")]


@tool
def coloured() -> str:
    return "\\x1b[31mred\\x1b]0;title\\x07"


@tool
def much() -> str:
    return "line\\n" * 100_000


@tool
async def nap() -> None:
    print("begun", flush=True)
    await asyncio.sleep(600)


@tool
def doze() -> None:
    print("begun", flush=True)
    time.sleep(600)


@tool
async def block() -> None:
    print("begun", flush=True)
    time.sleep(600)


@tool
async def executor() -> None:
    print("begun", flush=True)
    await asyncio.to_thread(time.sleep, 600)


@tool
async def hush() -> None:
    import termios
    settings = termios.tcgetattr(0)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, settings)
    print("begun", flush=True)
    await asyncio.sleep(600)
'''

WAIT_S = 60
Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]
AtTerminal = Callable[..., AbstractContextManager["Session"]]


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the TOOLS of the test's file, or these, in tools.py, and its SETTINGS, if any, in toolcrib.toml."""
    (tmp_path / "tools.py").write_text(getattr(request.module, "TOOLS", TOOLS))
    if hasattr(request.module, "SETTINGS"):
        (tmp_path / "toolcrib.toml").write_text(request.module.SETTINGS)
    return tmp_path


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory, forked_toolcrib: Path) -> dict[str, str]:
    """The variables of the command; PROGRAM is it, starting in the time of a fork."""
    taken_out = ("PYTHON", "TOOLCRIB_", "FORCE_", "NO_COLOR", "TTY_", "COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(taken_out)}
    data = str(tmp_path_factory.mktemp("data"))
    return {
        **kept,
        "TERM": "xterm-256color",
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_DATA_HOME": data,
        "PROGRAM": str(forked_toolcrib),
    }


@pytest.fixture
def toolcrib(folder: Path, environment: dict[str, str], forks_at: str) -> Run:
    """Runs the command in the folder to its end, without a terminal."""

    def run(*arguments: str | bytes, typed: bytes = b"", **variables: str) -> subprocess.CompletedProcess[str]:
        if not any(name.startswith("PYTHON") for name in variables):  # these are for an interpreter that starts
            return run_forked(forks_at, arguments, folder, environment | variables, typed)
        done = subprocess.run(
            [sys.executable, "-m", "toolcrib", *arguments],
            input=typed,
            capture_output=True,
            cwd=folder,
            env=environment | variables,
            timeout=60,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def start(folder: Path, environment: dict[str, str]) -> Start:
    """Starts the command in the folder, with pipes: `with start("serve", "tools.py") as process: ...`."""

    @contextmanager
    def start(*arguments: str, **variables: str) -> Generator["subprocess.Popen[str]"]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [environment["PROGRAM"], *arguments]
        process = subprocess.Popen(command, **pipes, text=True, cwd=folder, env=environment | variables)
        with process:
            try:
                yield process
            finally:
                process.kill()

    return start


def read_to(process: "subprocess.Popen[str]", text: str) -> str:
    """Return what *process* writes to standard error, to the line that has *text*."""
    written = ""
    while text not in written:
        line = process.stderr.readline()
        assert line, written
        written += line
    return written


def run_pytest(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the tests in *folder* as a user would, but for plugins that take longer to load than the tests."""
    without = ["-p", "no:hypothesispytest", "-p", "no:schemathesis"]
    command = [sys.executable, "-m", "pytest", "-q", *without, "--basetemp", str(folder / "tmp")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


class Session:
    """The command at a pseudo-terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self.seen = b""
        self._terminal = terminal

    def read_to(self, text: bytes) -> None:
        while text not in self.seen:
            chunk = self._read()
            assert chunk, f"{text!r} never came: {self.seen!r}"
            self.seen += chunk

    def read_past(self, text: bytes) -> None:
        """`read_to`, and forget what came so far. What has come after *text* is kept: it may come with it."""
        self.read_to(text)
        self.seen = self.seen.partition(text)[2]

    def read_to_end(self) -> tuple[int, str]:
        while chunk := self._read():
            self.seen += chunk
        return self.process.wait(30), self.seen.decode()

    def press(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._terminal)

    def _read(self) -> bytes:
        assert select.select([self._terminal], [], [], 60)[0], f"Nothing came for a minute after {self.seen!r}"
        try:
            return os.read(self._terminal, 65536)
        except OSError:  # what Linux says once nobody has the other end open
            return b""


@pytest.fixture
def at_terminal(folder: Path, environment: dict[str, str]) -> AtTerminal:
    """Runs the command in the folder at a terminal: `with at_terminal("list", "tools.py") as session: ...`."""

    def run(*arguments: str, columns: int = 0, **variables: str) -> AbstractContextManager[Session]:
        return terminal_of([environment["PROGRAM"]], folder, environment | variables, *arguments, columns=columns)

    return run


@pytest.fixture
def alone_at_terminal(folder: Path, environment: dict[str, str]) -> AtTerminal:
    """`at_terminal` of a process that was started for it, with an interpreter that begins and ends."""

    def own_the_terminal() -> None:
        os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first that a new session opens is its own, with its Ctrl-C

    def run(*arguments: str, **variables: str) -> AbstractContextManager[Session]:
        program = [sys.executable, "-m", "toolcrib"]
        return terminal_of(program, folder, environment | variables, *arguments, begin=own_the_terminal)

    return run


@contextmanager
def terminal_of(
    program: list[str],
    folder: Path,
    environment: dict[str, str],
    *arguments: str,
    columns: int = 0,
    begin: Callable[[], None] | None = None,
) -> Generator[Session]:
    terminal, other = pty.openpty()
    termios.tcsetwinsize(other, (24 if columns else 0, columns))
    process = subprocess.Popen(
        [*program, *arguments],
        stdin=other,
        stdout=other,
        stderr=other,
        cwd=folder,
        env=environment,
        start_new_session=True,
        preexec_fn=begin,
    )
    os.close(other)
    try:
        yield Session(process, terminal)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


@pytest.fixture
def provider(folder: Path, environment: dict[str, str]) -> Generator[LoopbackProvider]:
    with loopback_provider() as running:
        running.write(folder)
        environment["TEST_SECRET"] = "canary-client-secret"
        yield running


class LoggedIn(NamedTuple):
    """How a login has ended, what it wrote, and the address that the browser was sent back to."""

    status: int
    stdout: str
    stderr: str
    back: str


@pytest.fixture
def log_in(start: Start) -> Callable[..., LoggedIn]:
    """Runs `toolcrib auth login`, and goes to the address that it shows."""

    def run(*arguments: str) -> LoggedIn:
        written = back = ""
        with start("auth", "login", *arguments) as process:
            for line in process.stderr:
                written += line
                if line.startswith("http"):
                    back = parse_qs(urlsplit(line.strip()).query)["redirect_uri"][0]
                    try:
                        urlopen(line.strip(), timeout=30).close()
                    except HTTPError as error:  # of a page that says no
                        if error.code >= 500:  # then nobody is told, and the command would wait for it
                            process.kill()
            return LoggedIn(process.wait(60), process.stdout.read(), written, back)

    return run
