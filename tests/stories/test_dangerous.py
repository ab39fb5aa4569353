"""Story 4, dangerous: a destructive tool asks, another person approves, it runs once.

In one process, and over HTTP with an idempotency key while the server is killed; `test_interrupted.py` has the grant.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from .running import run, type_checked

HERE = Path(__file__).parent

WAITS = (
    "pending: Tool 'drop' has not run: it waits for approval: May this table be dropped for good? "
    "Call it again with the same arguments when that is done."
)

OUTPUT = f"""\
alice: success: 40
alice: {WAITS}
shown: drop {{"table": "orders", "keep_backup": true}} for alice
the same question: True 1
refused: foreign
alice: {WAITS}
bob: {WAITS}
alice: {WAITS}
another question: True
-- orders is dropped
alice: {WAITS}
alice: success: 40 rows dropped, with a backup
refused: replayed
alice: error: Tool 'drop' was not executed: 'bob' denied it: keep the backup
left: customers
record: alice drop success rule 1 ask bob
record: alice drop denied rule 1 ask bob
"""


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """The story's file, alone in a folder."""
    return Path(shutil.copy(HERE / "dangerous.py", tmp_path))


@pytest.mark.full
def test_a_destructive_tool_runs_once_after_another_person_has_approved(
    story: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> None:
    done = run(story.parent, user_environ(clean_env()), "python", "-X", "dev", "-W", "error", story.name)
    # In this mode asyncio also reports callbacks that took 0.1 s, which a busy machine makes of any.
    errors = [
        line for line in done.stderr.splitlines() if not re.fullmatch(r"Executing <.*> took [\d.]+ seconds", line)
    ]
    assert (done.returncode, errors, done.stdout) == (0, [], OUTPUT)


@pytest.mark.full
def test_mypy_and_pyright_accept_the_file_strictly(story: Path, clean_env: Callable[..., Path]) -> None:
    for done in type_checked(story, clean_env()):
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def served(folder: Path, environ: dict[str, str]) -> Generator[str]:
    """Start the server, and kill it at the end, as `kill -9` does."""
    command = ["python", "-W", "error", "dangerous_server.py"]
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=file, text=True)
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url, log.read_text()
            yield url.removesuffix("/mcp")
        finally:
            process.kill()
            process.communicate()


@pytest.mark.full
def test_over_kills_a_call_with_a_key_runs_once_after_another_person_has_approved(
    tmp_path: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> None:
    environ = user_environ(clean_env("--extra", "serve"))
    shutil.copy(HERE / "dangerous_server.py", tmp_path)

    def key(name: str) -> str:
        return run(tmp_path, environ, "toolcrib", "keys", "add", name, "--store", "store.db").stdout.strip()

    keys = {name: key(name) for name in ("alice", "bob")}

    def post(path: str, body: object, name: str, **headers: str) -> httpx2.Response:
        return httpx2.post(
            f"{url}/api/{path}", json=body, headers={"Authorization": f"Bearer {keys[name]}", **headers}, timeout=60
        )

    def drop(table: str, idempotency_key: str | None = "order-7") -> httpx2.Response:
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return post("tools/drop/call", {"table": table}, "alice", **headers)

    def dropped() -> list[str]:
        file = tmp_path / "dropped.txt"
        return file.read_text().split() if file.exists() else []

    with served(tmp_path, environ) as url:
        asked = drop("orders").json()["pending"]
        assert (asked["kind"], asked["principal"], dropped()) == ("approval", "key:alice", [])

    with served(tmp_path, environ) as url:
        assert drop("orders").json()["pending"]["id"] == asked["id"]
        answer = f"pending/{asked['id']}/answer"
        assert post(answer, {"kind": "approve"}, "alice").status_code == 403
        assert (drop("orders").json()["status"], dropped()) == ("pending", [])
        assert post(answer, {"kind": "approve"}, "bob").status_code == 200

    with served(tmp_path, environ) as url:
        first = drop("orders").json()
        assert (first["status"], first["content"][0]["text"], dropped()) == ("success", "orders is dropped", ["orders"])
        assert "repeated" not in (first.get("metadata") or {})

    with served(tmp_path, environ) as url:
        again = drop("orders").json()
        assert (again["status"], again["content"], again["metadata"]["repeated"]) == ("success", first["content"], True)
        conflict = drop("customers")
        assert (conflict.status_code, conflict.json()["code"], conflict.json()["retry"]) == (409, "conflict", "never")
        anew = [drop(table, None).json()["pending"]["id"] for table in ("orders", "customers")]
        assert len({asked["id"], *anew}) == 3
        assert post(answer, {"kind": "approve"}, "bob").status_code == 409
    assert dropped() == ["orders"]
