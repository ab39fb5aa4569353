"""The Dockerfile and the compose file: no container is built here, but their lines are read, and what they run runs."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
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


def test_the_compose_file_gives_the_server_its_database_and_no_secret_in_its_environment(tmp_path: Path) -> None:
    services = compose()["services"]
    server, database = services["toolcrib"], services["database"]
    assert server["ports"] == ["127.0.0.1:8642:8642"]
    assert server["cap_drop"] == ["ALL"]
    # The server is not the first process: that one reaps what tools leave behind. And a stop waits for its calls.
    assert server["init"] is True
    assert float(server["stop_grace_period"].removesuffix("s")) > GRACE_S + 2
    (tmp_path / "password").write_text("hunter2hunter2\n")
    environ = {name: value.replace("$$", "$") for name, value in server["environment"].items()}
    environ["TOOLCRIB_STORE_URL"] = environ["TOOLCRIB_STORE_URL"].replace(
        "/run/secrets/database", f"{tmp_path}/password"
    )
    settings = read_settings(None, environ)
    user = database["environment"]["POSTGRES_USER"]
    assert settings.values.store.url == f"postgresql://{user}:hunter2hunter2@database/{user}"
    assert settings.secrets == ("hunter2hunter2",)
    assert server["secrets"] == database["secrets"] == [*compose()["secrets"]]
    named = {each.split(":")[0] for one in (server, database) for each in one["volumes"] if each[0] != "."}
    assert named == {*compose()["volumes"]}


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
