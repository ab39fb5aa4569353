"""`toolcrib serve --workers`: real processes on one port and one store."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from ..waiting import until
from .conftest import WAIT_S

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")

COUNT = 3
TOOLS = '''
import asyncio
import os
from pathlib import Path

from toolcrib import tool

HERE = Path(__file__).parent


@tool
async def process() -> int:
    """Return which process answers."""
    return os.getpid()


@tool
async def hold() -> str:
    """Go on when a file is there."""
    (HERE / "begun").touch()
    while not (HERE / "go").exists():
        await asyncio.sleep(0.02)
    return "done"


@tool
async def much() -> list[str]:
    """Return a large result."""
    return ["gold"] * 1000


@tool(destructive=True)
async def drop() -> str:
    """Drop it."""
    return "dropped"
'''
SETTINGS = """
max_result_chars = 1000
[[rule]]
tools = "drop"
do = "ask"
[[source]]
from = "tools.py"
[store]
url = "store.db"
"""


class Server:
    """The processes, and the URL of their port."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log

    async def call(self, name: str) -> Any:
        """The result of a call, on a connection of its own."""
        async with httpx2.AsyncClient(timeout=WAIT_S) as http:
            return (await http.post(f"{self.url}/api/tools/{name}/call", json={})).json()

    async def pid(self) -> int:
        pid: int = (await self.call("process"))["content"][0]["data"]
        return pid

    def workers(self) -> set[int]:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {child for child in map(int, children) if lives(child)}

    @contextmanager
    def only(self, pid: int) -> Iterator[None]:
        """Let this process alone answer inside."""
        others = self.workers() - {pid}
        while True:
            for other in others:
                os.kill(other, signal.SIGSTOP)
            if not self._holds_store():
                break
            for other in others:  # one was stopped in the middle of a transaction, which keeps all from writing
                os.kill(other, signal.SIGCONT)
            time.sleep(0.01)
        try:
            yield
        finally:
            for other in others:
                os.kill(other, signal.SIGCONT)

    def _holds_store(self) -> bool:
        """Whether a process is writing to the store, if there is one."""
        if not (store := self.log.with_name("store.db")).exists():
            return False
        with closing(sqlite3.connect(store, timeout=1, isolation_level=None)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
        return False

    async def pids(self) -> set[int]:
        """The processes that serve, once all of them have answered."""

        async def are_all() -> bool:
            return len(self.workers()) == COUNT

        await until(are_all)
        for pid in self.workers():
            with self.only(pid):
                assert await self.pid() == pid
        return self.workers()

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, WAIT_S)


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Any]:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "toolcrib.toml").write_text(SETTINGS)

    @contextmanager
    def start() -> Iterator[Server]:
        command = [sys.executable, "-m", "toolcrib", "serve", "--workers", str(COUNT), "--port", "0"]
        log = tmp_path / "log"
        with log.open("w") as lines:
            process = subprocess.Popen(
                command, cwd=tmp_path, env=environment, stderr=lines, text=True, start_new_session=True
            )
        with process:
            try:
                while "--stdio\n" not in log.read_text():
                    assert process.poll() is None, log.read_text()
                    time.sleep(0.05)
                url = log.read_text().split("Serving MCP at ")[1].split("/mcp")[0]
                yield Server(process, url, log)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    return start


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def all_gone(pids: set[int]) -> None:
    async def are_gone() -> bool:
        return not any(map(lives, pids))

    await until(are_gone)


async def test_a_killed_worker_is_started_again_and_sigterm_lets_calls_end(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    with start() as server:
        assert server.log.read_text().count("Serving MCP at") == 1
        before = await server.pids()
        assert server.process.pid not in before
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        await all_gone({victim})
        after = await server.pids()
        assert (len(after - before), before - after) == (1, {victim})
        assert "has ended (SIGKILL), and is started again.\n" in server.log.read_text()
        call = asyncio.create_task(server.call("hold"))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: asyncio.to_thread(lambda: "stops." in server.log.read_text()))
        (tmp_path / "go").touch()
        assert (await call)["content"][0]["text"] == "done"
        assert await server.ended() == 128 + signal.SIGTERM
        assert not any(map(lives, after))


async def test_ctrl_c_stops_all_of_them(start: Callable[..., Any]) -> None:
    with start() as server:
        pids = await server.pids()
        os.killpg(server.process.pid, signal.SIGINT)
        assert await server.ended() == 128 + signal.SIGINT
        assert not any(map(lives, pids))
        assert "Cancelled.\n" in server.log.read_text()
        assert "Traceback" not in server.log.read_text()


@pytest.mark.full
async def test_none_is_left_where_the_first_process_is_killed(start: Callable[..., Any]) -> None:
    with start() as server:
        pids = await server.pids()
        server.process.kill()
        await all_gone(pids)


@pytest.mark.full
async def test_a_session_of_the_older_era_goes_on_at_any_of_them_and_waits_for_no_answer(
    start: Callable[..., Any],
) -> None:
    with start() as server:
        headers = {"Accept": "application/json, text/event-stream"}

        async def ask(method: str, **params: Any) -> Any:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            async with httpx2.AsyncClient(timeout=WAIT_S, headers=headers) as http:
                answer = await http.post(f"{server.url}/mcp", json=message)
            headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
            return json.loads(next(line for line in lines if line.startswith("{")))["result"]

        info = {"name": "t", "version": "1"}
        await ask("initialize", protocolVersion="2025-11-25", capabilities={"elicitation": {}}, clientInfo=info)
        handle = (await ask("tools/call", name="much", arguments={}))["_meta"]["toolcrib/handle"]
        for pid in await server.pids():
            with server.only(pid):
                assert (await ask("tools/call", name="process"))["structuredContent"]["result"] == pid
                part = await ask("tools/call", name="read_result", arguments={"handle": handle, "limit": 1})
                assert part["content"][1]["text"] == '["gold"]'
                waits = await ask("tools/call", name="drop", arguments={})
                assert "toolcrib pending" in waits["content"][0]["text"]


@pytest.mark.full
async def test_clients_of_the_newer_era_are_answered_by_any_of_them(start: Callable[..., Any]) -> None:
    with start() as server:
        async with Client(f"{server.url}/mcp", mode="2026-07-28") as first:
            answer = await first.call_tool("much")
            handle = answer.meta["toolcrib/handle"]
            waits = await first.call_tool("drop")
            assert "toolcrib pending" in waits.content[0].text
        for pid in await server.pids():
            with server.only(pid):
                async with Client(f"{server.url}/mcp", mode="2026-07-28") as client:
                    names = {each.name for each in (await client.list_tools()).tools}
                    assert names == {"process", "hold", "much", "drop", "read_result"}
                    assert (await client.call_tool("process")).structured_content["result"] == pid
                    part = await client.call_tool("read_result", {"handle": handle, "limit": 1})
                    assert part.content[1].text == '["gold"]'


@pytest.mark.full
async def test_where_none_can_start_all_end(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "broken.py").write_text("def (:\n")
    command = [sys.executable, "-m", "toolcrib", "serve", "broken.py", "--workers", "2", "--port", "0"]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WAIT_S
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "broken.py:1: SyntaxError" in done.stderr


def test_over_stdio_there_is_one_process(toolcrib: Callable[..., Any]) -> None:
    done = toolcrib("serve", "tools.py", "--stdio", "--workers", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: --workers 2: with --stdio, one process serves one client. Leave it out.\n"
