"""The examples of README, CONTRIBUTING and docs/ run, and do what they show. CONTRIBUTING has the rules."""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import pty
import queue
import re
import runpy
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import types
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import toolcrib
from toolcrib.dialects.hyperpocket import server as hyperpocket_server
from toolcrib.dialects.hyperpocket.config import config as hyperpocket_config
from toolcrib.dialects.hyperpocket.futures import FutureStore

from ..ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(p for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CONTINUED = 'python title="continued"'
TAGS = {"python", CONTINUED, "text", "console", "sh", "json", "toml", "yaml"}
PATIENCE_S = 120

_FENCE = re.compile(r"^(?P<indent> *)```(?P<tag>.*)$")
_FILE = re.compile(r"^# (?P<name>[\w./-]+\.(py|toml|json|yaml))$")
_SHOWN = re.compile(r"#\s*->\s*(?P<value>.+)$")
_PORT = re.compile(r"(127\.0\.0\.1:|localhost:|--port |_server_port = |http\.server )8642\b")
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language tag, its text, and the line its text begins on."""

    page: Path
    tag: str
    text: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name under which the block is saved, where its first line gives one."""
        named = _FILE.match(self.text.partition("\n")[0])
        return named["name"] if named else None


def blocks(page: Path, *, port: int = 8642) -> list[Block]:
    """The blocks of *page*. Port 8642 in an example stands for any free one: *port*."""
    found: list[Block] = []
    opened: tuple[str, int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(_PORT.sub(rf"\g<1>{port}", page.read_text()).splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, lines = (fence["tag"].strip(), number + 1, fence["indent"]), []
        elif opened is not None and fence and not fence["tag"]:
            found.append(Block(page, opened[0], "\n".join(lines), opened[1]))
            opened = None
        elif opened is not None:
            lines.append(line.removeprefix(opened[2]))
    assert opened is None, f"{page}: the block that begins on line {opened and opened[1]} is never closed"
    return found


def fits(shown: str, came: str) -> bool:
    """Whether *came* is what is shown, where `...` stands for anything on the way.

    A slow machine also says what it waits for.
    """
    parts = [re.escape(part) for part in _trimmed(shown).split("...")]
    came = re.sub(r"^Waiting for .* to start, for at most \d+ seconds \.\.\.\n", "", came, flags=re.M)
    return re.fullmatch(".*?".join(parts), _trimmed(came), re.S) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


class Session:
    """One page: its blocks run from top to bottom, in one folder and on one event loop.

    Each Python block runs as if it were pasted alone; one that is marked as continued has the names of those before it.
    """

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env
        self.names: dict[str, Any] = {}
        self.runner = asyncio.Runner()
        self.servers: list[subprocess.Popen[str]] = []
        hyperpocket_config.cache_clear()  # read once in a process, from the folder: each page has one of its own

    def run(self, every: list[Block]) -> None:
        for index, block in enumerate(every):
            follows = every[index + 1] if index + 1 < len(every) else None
            shown = follows.text if follows is not None and follows.tag == "text" else None
            if block.file is not None:
                self.save(block)
            elif block.tag in ("python", CONTINUED):
                before = self.names if block.tag == CONTINUED else {}
                self.names |= self.python(block, shown, before)
            elif block.tag == "console":
                self.console(block)

    def save(self, block: Block) -> None:
        assert block.file is not None
        target = self.folder / block.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text + "\n")
        if block.tag == "python":
            # Not as __main__: what stands under `if __name__ == "__main__"` is for a console block to run.
            runpy.run_path(str(target), run_name=target.stem)

    def python(self, block: Block, shown: str | None, before: dict[str, Any]) -> dict[str, Any]:
        """Run *block* with the names of those *before* it, and return all names that there are then."""
        sys.modules["page"] = module = types.ModuleType("page")
        module.__dict__.update(before, __name__="page", _same=_same)
        tree = ast.parse("\n" * (block.line - 1) + block.text, str(block.page))
        lines = block.text.splitlines()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and node.end_lineno is not None:
                expected = _SHOWN.search(lines[node.end_lineno - block.line])
                if expected:
                    where = ast.Constant(f"{block.page.name}:{node.end_lineno}")
                    node.value = ast.Call(
                        ast.Name("_same", ast.Load()), [node.value, ast.Constant(expected["value"]), where], []
                    )
        code = compile(ast.fix_missing_locations(tree), str(block.page), "exec", flags=_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                made = eval(code, module.__dict__)
                if inspect.iscoroutine(made):
                    self.runner.run(_bounded(made))
            except Exception as error:
                if shown is None or isinstance(error, AssertionError):
                    raise
                print(f"{type(error).__name__}: {error}")
        came = printed.getvalue()
        if shown is None:
            assert not came, f"{block.place} prints, and no text block shows what:\n{came}"
        else:
            assert fits(shown, came), f"{block.place} shows:\n{shown}\nand it printed:\n{came}"
        return module.__dict__

    def console(self, block: Block) -> None:
        assert block.text.startswith("$ "), f"{block.place}: a console block begins with '$ '"
        status = 0
        for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            command, _, shown = part.partition("\n")
            while command.endswith("\\"):
                more, _, shown = shown.partition("\n")
                command = f"{command[:-1]} {more.strip()}"
            if command.endswith(" &"):
                self.serve(block, command.removesuffix(" &"), shown)
                continue
            if command == "echo $?":
                came, status = f"{status}\n", 0
            else:
                assert status == 0, f"{block.place}: a command failed with {status}; show it with `$ echo $?`"
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=self.folder,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=PATIENCE_S,
                )
                came, status = done.stdout, done.returncode
            assert fits(shown, came), f"{block.place} shows for `{command}`:\n{shown}\nand it printed:\n{came}"
        assert status == 0, f"{block.place}: its last command failed with {status}; show it with `$ echo $?`"

    def serve(self, block: Block, command: str, shown: str) -> None:
        """Start a server that lives as long as the page, and wait until it has printed what is shown."""
        server = subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.servers.append(server)
        lines: queue.Queue[str] = queue.Queue()

        def read() -> None:
            assert server.stdout is not None
            for line in server.stdout:
                lines.put(line)

        threading.Thread(target=read, daemon=True).start()
        came = ""
        for _ in _trimmed(shown).splitlines():
            try:
                came += lines.get(timeout=PATIENCE_S)
            except queue.Empty:
                break
        assert fits(shown, came), f"{block.place} shows for `{command}`:\n{shown}\nand it printed:\n{came}"

    def close(self) -> None:
        self.runner.close()
        for user in [*hyperpocket_server._users, FutureStore]:  # a page does not end its program
            hyperpocket_server.stop_callback_server(user)
        for server in self.servers:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            if server.stdout is not None:
                server.stdout.close()


async def _bounded(work: Coroutine[Any, Any, object]) -> None:
    """Await the code of a block: one that waits for ever fails, and names its page."""
    async with asyncio.timeout(PATIENCE_S):
        await work


def _same(value: Any, shown: str, place: str) -> None:
    assert fits(shown, repr(value)), f"{place} shows {shown}, and it is {value!r}"


@pytest.fixture
def session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_toolcrib: Path, forked_python: str
) -> Iterator[Session]:
    programs = [forked_toolcrib.parent, Path(forked_python).parent, Path(sys.executable).parent]
    path = os.pathsep.join([*map(str, programs), os.environ.get("PATH", "")])
    if os.environ.get("PYTHONPATH"):
        # The code under test is not the one that is installed, and the folder is another one here.
        monkeypatch.setenv("PYTHONPATH", str(Path(toolcrib.__file__).resolve().parents[1]))
    for name, value in {"PATH": path, "NO_COLOR": "1", "COLUMNS": "120", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name == "FORCE_COLOR" or name.startswith("TOOLCRIB_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    made = Session(tmp_path, dict(os.environ))
    try:
        yield made
    finally:
        made.close()
        for name in [name for name, module in list(sys.modules.items()) if name not in before]:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if name == "page" or file.startswith(str(tmp_path)):
                del sys.modules[name]


def _names(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Those of the bridges run beside their frameworks: see tests/bridges/.
HERE = [
    # One runs tests, the others start several servers: ten seconds each.
    pytest.param(page, marks=pytest.mark.full if page.name in ("testing.md", "web.md", "dev.md") else ())
    for page in PAGES
    if blocks(page) and page.parent.name != "bridges"
]


@pytest.mark.parametrize("page", HERE, ids=_names)
def test_the_examples_of_a_page_do_what_they_show(page: Path, session: Session) -> None:
    with provider(session, TURNS[page]) if page in TURNS else contextlib.nullcontext():
        session.run(blocks(page, port=free_port()))


TOUR = ROOT / "docs" / "tour.md"

Turn = str | list[tuple[str, dict[str, Any]]]
LOOP_TURNS: list[Turn] = [
    [("find_orders", {"city": "Oslo", "at_least": "10"}), ("find_order", {"city": "Oslo"})],
    "One order, of 12.50.",
]
TURNS: dict[Path, list[Turn]] = {
    TOUR: LOOP_TURNS,
    ROOT / "README.md": [[("slug", {"title": "Hello World", "limit": "5"})], "hello"],
}
CHAT_TURNS: list[Turn] = [
    [("find_orders", {"city": "Oslo"})],
    [("delete_order", {"order_id": 1})],
    "I did not delete order 1: it has to wait until Friday.",
]


@contextlib.contextmanager
def provider(session: Session, turns: list[Turn]) -> Iterator[None]:
    """A server for the OpenAI SDK in the processes of *session*: its model replies with *turns*, texts or calls."""
    replies = iter(turns)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request, turn = json.loads(self.rfile.read(int(self.headers["Content-Length"]))), next(replies)
            message: dict[str, Any] = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
            if not isinstance(turn, str):
                message["tool_calls"] = [
                    {
                        "index": index,
                        "id": f"call_{index}",
                        "type": "function",
                        "function": {"name": name, "arguments": json.dumps(arguments)},
                    }
                    for index, (name, arguments) in enumerate(turn)
                ]
            streamed = bool(request.get("stream"))
            choice = {"index": 0, "finish_reason": "stop" if isinstance(turn, str) else "tool_calls"}
            choice["delta" if streamed else "message"] = message
            kind = "chat.completion.chunk" if streamed else "chat.completion"
            body = json.dumps({"id": "1", "object": kind, "created": 0, "model": "test", "choices": [choice]})
            body = f"data: {body}\n\ndata: [DONE]\n\n" if streamed else body
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        variables = {"OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1", "OPENAI_API_KEY": "test"}
        session.env |= variables
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in variables.items():
                    patch.setenv(name, value)
                yield
        finally:
            server.shutdown()
            thread.join()


def test_the_chat_of_the_tour_is_what_a_terminal_shows(session: Session) -> None:
    (chat,) = [block for block in blocks(TOUR) if block.tag == "text" and block.text.startswith("$ toolcrib chat")]
    command, _, shown = chat.text.removeprefix("$ ").partition("\n")
    for block in blocks(TOUR):
        if block.file in ("orders.py", "toolcrib.toml"):
            session.save(block)
    adds = ["toolcrib", "call", "add_order", "city=Oslo", "total=12.5"]
    subprocess.run(adds, cwd=session.folder, env=session.env, check=True, capture_output=True, timeout=PATIENCE_S)
    # What is typed is what stands behind a prompt.
    typed = [found["typed"] for found in re.finditer(r"^(> |Run it\?.*\] )(?P<typed>.+)$", shown, re.M)]
    assert len(typed) == 2
    with provider(session, CHAT_TURNS):
        came = _at_a_terminal(shlex.split(command), session, [*typed, "/quit"])
    came = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in came.split("\n"))
    _, _, came = came.partition("lists the commands.\n")
    assert fits(f"{shown}\n> /quit", came), came


def _at_a_terminal(command: list[str], session: Session, typed: list[str]) -> str:
    """What *command* shows, where a line is typed each time that it prompts for one."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        command, cwd=session.folder, env=session.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    came, lines, until = "", list(typed), time.monotonic() + PATIENCE_S
    while time.monotonic() < until and running.poll() is None:
        if select.select([ours], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):  # it has ended
                came += os.read(ours, 4096).decode()
        elif lines and re.search(r"(^|\n)(> |Run it\?.*\] )$", came):
            os.write(ours, f"{lines.pop(0)}\r".encode())
    try:
        running.wait(5)
    finally:
        running.kill()
        os.close(ours)
    return came.replace("\r\n", "\n")


def test_every_block_has_a_known_tag() -> None:
    for block in (block for page in PAGES for block in blocks(page)):
        assert block.tag in TAGS, f"{block.place}: '{block.tag}' is not one of {', '.join(sorted(TAGS))}"
        match block.tag:
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case "sh":
                assert "$ " not in block.text, f"{block.place}: a block with prompts is a console block"


def commands(page: Path) -> list[str]:
    """The lines of a page's sh blocks, without their comments."""
    lines = [line for block in blocks(page) if block.tag == "sh" for line in block.text.splitlines()]
    return [line.partition(" #")[0].strip() for line in lines]


COMMANDS = sorted({command for page in PAGES for command in commands(page)})


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository as a checkout has it, with one small test in the place of all of them."""
    folder = tmp_path_factory.mktemp("checkout") / "toolcrib"
    ignored = shutil.ignore_patterns(".venv", ".git", ".node", ".*_cache", "__pycache__", "dist", "build", "tests")
    shutil.copytree(ROOT, folder, ignore=ignored)
    (folder / "tests").mkdir()
    for shared in ("conftest.py", "forks.py", "fuzz.py"):
        shutil.copy(ROOT / "tests" / shared, folder / "tests")
    (folder / "tests" / "test_it.py").write_text("from toolcrib import Workbench\n\ndef test_it(): Workbench([len])\n")
    return folder


@pytest.mark.full
@pytest.mark.xdist_group("checkout")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_sh_blocks_run(command: str, copy: Path, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    env["PIP_NO_COMPILE"] = "1"  # of what is installed, one call loads a few modules
    if command.startswith("pip install"):
        subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], check=True)
        env["PATH"] = f"{tmp_path / 'clean' / 'bin'}{os.pathsep}{env['PATH']}"
        # By its name it is what was released; what is tried is this checkout.
        command = re.sub(r"toolcrib\b", ".", command)
        subprocess.run(["bash", "-c", command], cwd=copy, env=env, check=True)
        listed = ["toolcrib", "call", "toolcrib.demo", "now"]
        subprocess.run(listed, cwd=tmp_path, env=env, check=True, timeout=PATIENCE_S)
        return
    # Only `make run` runs until it is stopped, and prints when it is ready.
    running = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=copy,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    printed = ""
    assert running.stdout is not None
    with running.stdout:
        for line in running.stdout:
            printed += line
            if "Serving MCP at http://127.0.0.1:" in line:
                os.killpg(running.pid, signal.SIGINT)
                running.wait(PATIENCE_S)
                return
    assert running.wait(PATIENCE_S) == 0, printed
    assert command != "make run", printed
