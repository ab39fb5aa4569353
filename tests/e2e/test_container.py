"""The Dockerfile and the compose file: no container is built here, but their lines are read, and what they run runs."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from toolcrib.serve.app import GRACE_S
from toolcrib.workbench.settings import read_settings

from ..ports import free_port

ROOT = Path(__file__).resolve().parents[2]


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each with its arguments."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def environment() -> dict[str, str]:
    found: dict[str, str] = {}
    for word, rest in instructions():
        if word == "ENV":
            found |= dict(each.split("=", 1) for each in shlex.split(rest))
    return {name: value for name, value in found.items() if name.startswith("TOOLCRIB_")}


def arguments(name: str) -> list[str]:
    (found,) = [rest for word, rest in instructions() if word == name]
    listed: list[str] = json.loads(found)
    return listed


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return found


def test_the_image_is_of_what_is_here_and_runs_as_a_user_without_rights() -> None:
    found = instructions()
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in found} == known
    assert [rest for word, rest in found if word == "USER"] == ["toolcrib"]
    words = [word for word, _ in found]
    assert words.index("USER") > max(at for at, word in enumerate(words) if word in ("RUN", "COPY", "WORKDIR"))
    ignored = (ROOT / ".dockerignore").read_text().split()
    for word, rest in found:
        if word == "COPY" and not rest.startswith("--from"):
            *names, _ = rest.split()
            assert [name for name in names if not (ROOT / name).exists() or f"!{name}" not in ignored] == []
    extras = re.search(r"\.\[([a-z,]+)\]", dict(found[:6])["RUN"])
    assert extras is not None
    project = (ROOT / "pyproject.toml").read_text()
    assert [each for each in extras[1].split(",") if f"\n{each} = [" not in project] == []
    for word, rest in found:
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
    # In its environment, keys are needed: others reach it.
    server = read_settings(None, environment()).values.server
    assert (server.host, server.keys) == ("0.0.0.0", True)


def test_the_compose_file_gives_each_process_its_database_and_no_secret_in_its_environment(tmp_path: Path) -> None:
    services = compose()["services"]
    processes = {name: service for name, service in services.items() if "build" in service}
    balancer, database = services["balancer"], services["database"]
    assert Counter(process["command"][0] for process in processes.values()) == {"serve": 2, "worker": 3}
    assert {*services} == {*processes, "balancer", "database"}
    assert balancer["ports"] == ["127.0.0.1:8642:8642"]
    assert [name for name, service in services.items() if "ports" in service] == ["balancer"]
    (tmp_path / "password").write_text("hunter2hunter2\n")
    for process in processes.values():
        assert process["cap_drop"] == ["ALL"]
        # It is not the first process: that one reaps what tools leave behind. And a stop waits for its calls.
        assert process["init"] is True
        assert float(process["stop_grace_period"].removesuffix("s")) > GRACE_S + 2
        environ = own_environment(process)
        environ["TOOLCRIB_STORE_URL"] = environ["TOOLCRIB_STORE_URL"].replace(
            "/run/secrets/database", f"{tmp_path}/password"
        )
        settings = read_settings(None, environ)
        user = database["environment"]["POSTGRES_USER"]
        assert settings.values.store.url == f"postgresql://{user}:hunter2hunter2@database/{user}"
        assert settings.secrets == ("hunter2hunter2",)
        assert (settings.values.tasks.concurrency == 0) == (process["command"][0] == "serve")
        assert process["secrets"] == database["secrets"] == [*compose()["secrets"]]
    named = {each.split(":")[0] for one in (*processes.values(), database) for each in one["volumes"] if each[0] != "."}
    assert named == {*compose()["volumes"]}
    assert [each["source"] for each in balancer["configs"]] == [*compose()["configs"]]


def own_environment(service: dict[str, Any]) -> dict[str, str]:
    return {name: value.replace("$$", "$") for name, value in service["environment"].items()}


@pytest.mark.full
async def test_what_the_container_runs_lets_in_who_has_a_key_that_is_in_postgresql(tmp_path: Path, url: str) -> None:
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOOLCRIB")}
    environ = {
        **kept,
        **environment(),
        "TOOLCRIB_STORE_URL": url,
        "TOOLCRIB_STORE_KEY": str(tmp_path / "store.key"),
        "XDG_DATA_HOME": str(tmp_path),
    }
    toolcrib = [sys.executable, "-m", *arguments("ENTRYPOINT")]
    where: dict[str, Any] = {"env": environ, "cwd": tmp_path}
    key = subprocess.run(
        [*toolcrib, "keys", "add", "alice"], capture_output=True, text=True, check=True, **where
    ).stdout
    with subprocess.Popen(
        [*toolcrib, *arguments("CMD"), "--port", str(port)], stderr=subprocess.PIPE, **where
    ) as server:
        assert server.stderr is not None
        assert b"Serving MCP" in await asyncio.to_thread(server.stderr.readline)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            assert (await http.post("/mcp", json={})).status_code == 401
            right = {"Authorization": f"Bearer {key.strip()}"}
            assert (await http.post("/mcp", json={}, headers=right)).status_code != 401
            subprocess.run([*toolcrib, "keys", "revoke", key.split("_")[1]], check=True, **where)
            assert (await http.post("/mcp", json={}, headers=right)).status_code == 401
        server.terminate()
        assert await asyncio.to_thread(server.wait, 30) == 143


TOOLS = '''
import os

from toolcrib import tool


@tool
def server() -> str:
    """Which process answers."""
    return str(os.getpid())


@tool(task=True)
def worker(number: int) -> str:
    """Which process works."""
    return str(os.getpid())
'''


class Deployment:
    """What compose.yaml starts, without containers: each command with its environment, and ports of loopback."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        self.folder, self.stack, self.services = folder, stack, compose()["services"]
        (folder / "tools.py").write_text(TOOLS)
        self.ports = {name: free_port() for name in (*self.services, "balancer")}
        own = {name: value for name, value in os.environ.items() if not name.startswith("TOOLCRIB")}
        self.base = {**own, **environment(), "XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        self.places = {"TOOLCRIB_STORE_URL": url, "TOOLCRIB_STORE_KEY": str(folder / "store.key")}
        self.toolcrib = [sys.executable, "-m", *arguments("ENTRYPOINT")]
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        command = [str(word).replace("toolcrib.demo", "tools.py") for word in self.services[name]["command"]]
        environ = {**self.base, **own_environment(self.services[name]), **self.places}
        port = ["--port", str(self.ports[name])]  # the last one counts
        process = self.popen([*self.toolcrib, *command, *port], environ)
        self.processes[name] = process
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith(("Serving MCP", "Running the tasks of worker,")), line + process.stderr.read()

    def balance(self, program: str) -> None:
        text = compose()["configs"]["balancer"]["content"].replace("http://:8642", f"http://:{self.ports['balancer']}")
        text = re.sub(r"(server-\d):8642", lambda found: f"127.0.0.1:{self.ports[found[1]]}", text)
        (self.folder / "Caddyfile").write_text(text)
        command = [program, "run", "--adapter", "caddyfile", "--config", str(self.folder / "Caddyfile")]
        self.processes["balancer"] = self.popen(command, {"HOME": str(self.folder)}, stderr=subprocess.DEVNULL)

    def popen(self, command: list[str], environ: dict[str, str], **pipes: Any) -> "subprocess.Popen[str]":
        options: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "cwd": self.folder, **pipes}
        process = self.stack.enter_context(subprocess.Popen(command, env=environ, **options))
        self.stack.callback(process.kill)
        return process


@pytest.mark.full
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_what_compose_starts_answers_through_its_balancer_also_without_a_server_and_a_worker(
    tmp_path: Path, url: str
) -> None:
    program = shutil.which("caddy", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("caddy is not installed")
    with ExitStack() as stack:
        deployment = Deployment(tmp_path, url, stack)
        environ = {**deployment.base, **deployment.places}
        add = [*deployment.toolcrib, "keys", "add", "alice"]
        key = subprocess.run(add, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
        names = [name for name, service in deployment.services.items() if "build" in service]
        await asyncio.gather(*(asyncio.to_thread(deployment.start, name) for name in names))
        deployment.balance(program)
        headers, address = {"Authorization": f"Bearer {key}"}, f"http://127.0.0.1:{deployment.ports['balancer']}"
        async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=60) as http:

            async def called(name: str, **body: int) -> Any:
                # A server has died while a connection to it was open, or is too busy to say that it is well.
                while (answer := await http.post(f"/api/tools/{name}/call", json=body)).status_code in (502, 503):
                    await asyncio.sleep(0.1)
                assert answer.status_code in (200, 202), answer.text
                return answer.json()

            async def served() -> int:
                return int((await called("server"))["content"][0]["text"])

            async def worked(number: int) -> int:
                id = (await called("worker", number=number))["pending"]["id"]
                while True:
                    answer = await http.get(f"/api/tasks/{id}")
                    if answer.status_code == 200 and (task := answer.json())["state"] == "ended":
                        return int(task["result"]["content"][0]["text"])
                    await asyncio.sleep(0.1)

            async with asyncio.timeout(60):
                while True:  # until the balancer listens, and has seen that the servers are well
                    try:
                        if (await http.get("/readyz")).status_code == 200:
                            break
                    except httpx2.TransportError:
                        pass
                    await asyncio.sleep(0.1)
            servers = {deployment.processes[name].pid: name for name in names if name.startswith("server")}
            workers = {deployment.processes[name].pid: name for name in names if name.startswith("worker")}
            own = {await served() for _ in range(6)}
            assert len(own) == 1  # one caller has one server
            assert own <= {*servers}
            async with asyncio.timeout(60):
                assert {*await asyncio.gather(*map(worked, range(20)))} <= {*workers}
            dead = [servers[own.pop()], "worker-1"]
            for name in dead:
                deployment.processes[name].kill()
                deployment.processes[name].wait()
            (left,) = {*servers.values()} - {*dead}
            async with asyncio.timeout(60):
                assert await served() == deployment.processes[left].pid
            async with asyncio.timeout(60):
                workers_left = {pid for pid, name in workers.items() if name not in dead}
                assert {*await asyncio.gather(*map(worked, range(20, 40)))} <= workers_left
        for name in {*names} - {*dead}:
            deployment.processes[name].terminate()
            assert await asyncio.to_thread(deployment.processes[name].wait, 30) == 143, name
