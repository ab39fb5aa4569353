"""Story 7, a night's work: a task of three steps and a question, begun by a model, on two machines with one PostgreSQL.

On one machine the agent's program serves HTTP and runs tasks, on the other there is a `toolcrib worker`. One of them is
killed in the second step, everything is restarted, a person answers over HTTP, and the model's run goes on by itself.
Each step has had its effect once.
"""

import base64
import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ..waiting import until
from .test_my_own_loop import provider

HERE = Path(__file__).parent
WAIT_S = 120
SERVER, WORKER = "first-machine", "second-machine"

BOOKS = {"id": "c1", "type": "function", "function": {"name": "travel", "arguments": '{"city": "Oslo"}'}}
TURNS: list[dict[str, Any]] = [{"tool_calls": [BOOKS]}, {"content": "You fly to Oslo, on seat 12A."}]

Process = subprocess.Popen[str]


class Machines:
    """Two computers of a user: homes, programs, and the store and the agency that both reach."""

    def __init__(self, folder: Path, environ: dict[str, str], url: str) -> None:
        self.agency, self.url = folder / "agency", url
        self.agency.mkdir()
        self.environ = {**environ, "DATABASE": url, "AGENCY": str(self.agency)}
        self.homes = {name: folder / name for name in (SERVER, WORKER)}
        for home in self.homes.values():
            home.mkdir()
            shutil.copy(HERE / "nights_tools.py", home)
        shutil.copy(HERE / "nights_work.py", self.homes[SERVER])
        self.processes: list[Process] = []

    def serve(self, *prompt: str, tasks: int = 32) -> Process:
        return self._start(SERVER, "python", "-W", "error", "nights_work.py", *prompt, TASKS=str(tasks))

    def work(self) -> Process:
        # As the program imports it: of a file it would be other code, for which what was answered does not count.
        return self._start(WORKER, "toolcrib", "worker", "nights_tools:travel", "--store", self.url)

    def _start(self, name: str, *command: str, **environ: str) -> Process:
        home = self.homes[name]
        folders = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
        process = subprocess.Popen(
            command,
            cwd=home,
            env={**self.environ, **folders, "HOME": str(home), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def line(self, process: Process) -> str:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line, "it has ended: its standard error is above"
        return line

    def lines(self, name: str) -> list[str]:
        file = self.agency / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def machines(
    tmp_path: Path, url: str, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> Iterator[Machines]:
    programs = clean_env("--extra", "models", "--extra", "serve")
    key = base64.b64encode(b"k" * 32).decode()
    with provider(TURNS) as model:
        environ = {
            **user_environ(programs),
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "none",
            "TOOLCRIB_KEY": key,
        }
        machines = Machines(tmp_path, environ, url)
        yield machines
        for process in machines.processes:
            process.kill()
            process.communicate()
    assert [request.path for request in model.requests] == ["/v1/chat/completions"] * len(TURNS)
    told = model.requests[-1].body["messages"][-1]
    assert (told["role"], told["content"]) == ("tool", "flight to Oslo, hotel in Oslo, seat 12A")


@pytest.mark.full
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("killed", [SERVER, WORKER])
async def test_a_nights_work_on_two_machines_is_finished_once_and_the_model_goes_on_by_itself(
    machines: Machines, killed: str
) -> None:
    # In the evening, one machine takes up the task: the worker where the server takes none, else the server.
    (machines.agency / "slow").touch()
    server = machines.serve("Book me a journey to Oslo.", tasks=32 if killed == SERVER else 0)
    status, run = machines.line(server).split()
    assert status == "pending"
    if killed == SERVER:
        await until(lambda: machines.lines("begun.txt"))
    worker = machines.work()
    await until(lambda: machines.lines("begun.txt"))
    assert (machines.lines("begun.txt"), machines.lines("effects.txt")) == ([killed], ["flight to Oslo"])
    victim, other = (server, worker) if killed == SERVER else (worker, server)
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=WAIT_S)
    other.terminate()
    other.communicate(timeout=WAIT_S)
    (machines.agency / "slow").unlink()

    # In the morning.
    machines.work()
    with httpx2.Client(base_url=machines.line(machines.serve()), timeout=WAIT_S) as http:
        (pending,) = await until(lambda: http.get("/api/pending").json()["pending"])
        assert (pending["kind"], pending["tool"], pending["message"]) == ("input", "travel", "Which seat?")

        def states() -> list[tuple[str, str]]:
            return [(task["tool"], task["state"]) for task in http.get("/api/tasks").json()["tasks"]]

        await until(lambda: states() == [("agent/clerk", "waiting"), ("travel", "waiting")])
        answer = {"kind": "input", "value": "12A"}
        answered = http.post(f"/api/pending/{pending['id']}/answer", json=answer)
        assert answered.status_code == 200, answered.text
        task = await until(lambda: (task := http.get(f"/api/tasks/{run}").json())["state"] == "ended" and task)
        events = http.get(f"/api/tasks/{run}/events").text
    assert (task["state"], task["result"]["content"][0]["text"]) == ("ended", "You fly to Oslo, on seat 12A.")
    assert json.loads(task["arguments"]) == {"prompt": "Book me a journey to Oslo."}
    assert "You fly to Oslo, on seat 12A." in events
    assert machines.lines("effects.txt") == ["flight to Oslo", "hotel in Oslo", "seat 12A"]
    assert len(machines.lines("begun.txt")) == 2
    assert list(machines.agency.parent.rglob("*.key")) == []  # of no machine: both have it from their environment
