"""Story 7, a night's work, in one process at a time: a task of three steps and a question, begun by a model.

The process is killed in the second step. Another one takes the task up, a person answers over HTTP, and the model's run
goes on by itself. Each step has had its effect once.
"""

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .test_my_own_loop import provider

HERE = Path(__file__).parent
WAIT_S = 60

BOOKS = {"id": "c1", "type": "function", "function": {"name": "travel", "arguments": '{"city": "Oslo"}'}}
TURNS: list[dict[str, Any]] = [{"tool_calls": [BOOKS]}, {"content": "You fly to Oslo, on seat 12A."}]


class Clerk:
    """The program of the story, in a folder of its own."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *prompt: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            ["python", "-W", "error", "nights_work.py", *prompt],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def line(self, process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        return line

    def effects(self) -> list[str]:
        return (self.folder / "effects.txt").read_text().splitlines()


@pytest.fixture
def clerk(
    tmp_path: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> Iterator[Clerk]:
    programs = clean_env("--extra", "openai", "--extra", "serve", "--extra", "store")
    shutil.copy(HERE / "nights_work.py", tmp_path)
    with provider(TURNS) as model:
        environ = {**user_environ(programs), "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        clerk = Clerk(tmp_path, environ)
        yield clerk
        for process in clerk.processes:
            process.kill()
            process.communicate()
    assert [request["path"] for request in model.requests] == ["/v1/chat/completions"] * len(TURNS)
    told = model.requests[-1]["messages"][-1]
    assert (told["role"], told["content"]) == ("tool", "flight to Oslo, hotel in Oslo, seat 12A")


async def until(work: Callable[[], Any]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (value := work()):
            await asyncio.sleep(0.02)
    return value


@pytest.mark.full
async def test_a_nights_work_is_finished_once_and_the_model_goes_on_by_itself(clerk: Clerk) -> None:
    (clerk.folder / "slow").touch()
    first = clerk.start("Book me a journey to Oslo.")
    status, run = clerk.line(first).split()
    assert status == "pending"
    await until((clerk.folder / "booking").exists)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=WAIT_S)
    assert clerk.effects() == ["flight to Oslo"]

    (clerk.folder / "slow").unlink()
    second = clerk.start()
    with httpx2.Client(base_url=clerk.line(second), timeout=WAIT_S) as http:
        (pending,) = await until(lambda: http.get("/api/pending").json()["pending"])
        assert (pending["kind"], pending["tool"], pending["message"]) == ("input", "travel", "Which seat?")

        def states() -> list[tuple[str, str]]:
            return [(task["tool"], task["state"]) for task in http.get("/api/tasks").json()["tasks"]]

        await until(lambda: states() == [("agent/clerk", "waiting"), ("travel", "waiting")])
        answer = {"kind": "input", "value": "12A"}
        answered = http.post(f"/api/pending/{pending['id']}/answer", json=answer)
        assert answered.status_code == 200, answered.text
        events = http.get(f"/api/tasks/{run}/events").text  # until it has ended
        task = http.get(f"/api/tasks/{run}").json()
    assert (task["state"], task["result"]["content"][0]["text"]) == ("ended", "You fly to Oslo, on seat 12A.")
    assert json.loads(task["arguments"]) == {"prompt": "Book me a journey to Oslo."}
    assert "You fly to Oslo, on seat 12A." in events
    assert clerk.effects() == ["flight to Oslo", "hotel in Oslo", "seat 12A"]
