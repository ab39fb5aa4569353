"""Story 6, moving in with hyperpocket: a call, the URL, a grant at npm's `oidc-provider`, and the tool runs.

And a tool of a git repository: pinned, granted by a key, and run in the sandbox.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from ..auth.oidc.conftest import SECRET, Provider
from ..ports import free_port
from ..tools.repositories import Repository

HERE = Path(__file__).parent / "moving_in_pocket"
BEGINNING = "True User needs to authenticate using the following URL: "


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def provider(port: int) -> Iterator[Provider]:
    provider = Provider(redirect=f"http://127.0.0.1:{port}/proxy/auth/local/oauth2/callback")
    yield provider
    provider.close()


@pytest.mark.full
def test_a_call_is_granted_at_a_provider_and_runs_for_that_thread_alone(
    provider: Provider,
    port: int,
    clean_env: Callable[..., Path],
    tmp_path: Path,
    user_environ: Callable[[Path], dict[str, str]],
) -> None:
    environ = user_environ(clean_env("--extra", "auth"))
    shutil.copy(HERE / "assistant.py", tmp_path)
    (tmp_path / "providers.toml").write_text(provider.catalogue)
    (tmp_path / "settings.toml").write_text(
        f'providers = "providers.toml"\ninternal_server_port = {port}\npublic_server_port = {port}\n'
        'public_server_protocol = "http"\npublic_hostname = "127.0.0.1"\nenable_local_callback_proxy = false\n'
        '[net]\nallow = ["127.0.0.1"]\n[auth.local]\nclient_id = "web"\n'
    )
    (tmp_path / ".secrets.toml").write_text(f'[auth.local]\nclient_secret = "{SECRET}"\n')

    def user(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    user("sed", "-E", "-i", r"s/^( *)(from|import) hyperpocket\b/\1\2 toolcrib.dialects.hyperpocket/", "assistant.py")
    with conversation(["python", "-W", "error", "assistant.py", provider.issuer], tmp_path, environ) as call:
        asked = call("alice")
        assert asked.startswith(BEGINNING)
        assert httpx2.get(provider.grant(asked.removeprefix(BEGINNING), login="alice")).status_code == 200
        answer = call("alice")
        assert answer.startswith("False Hello, {") and answer.endswith("}, in alice")
        assert json.loads(answer.removeprefix("False Hello, ").removesuffix(", in alice"))["sub"] == "alice"
        assert call("bob").startswith(BEGINNING)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == [
        ".secrets.toml",
        "assistant.py",
        "providers.toml",
        "settings.toml",
    ]


CONFIG = """name = "greet"
description = "Greet somebody."
language = "python"

[auth]
auth_provider = "brevo"

[tool_vars]
GREETING = "Hello"
"""
SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
PROGRAM = """import json
import os
import sys


def main():
    name = json.load(sys.stdin)["name"]
    reached = []
    for path in ("/etc/passwd", "/tool/../etc/passwd"):
        try:
            reached.append(open(path).read())
        except OSError:
            pass
    print(f"{os.environ['GREETING']}, {name}! {len(os.environ['BREVO_TOKEN'])} {sorted(os.environ)} {reached}")


if __name__ == "__main__":
    main()
"""


@contextmanager
def conversation(command: list[str], folder: Path, environ: dict[str, str]) -> Iterator[Callable[[str], str]]:
    """Write a line to a program, and read one."""
    program = subprocess.Popen(
        command, cwd=folder, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdin is not None and program.stdout is not None
    given, written = program.stdin, program.stdout

    def ask(line: str) -> str:
        given.write(f"{line}\n")
        given.flush()
        return written.readline().rstrip("\n")

    try:
        yield ask
    finally:
        given.close()
        assert program.wait(60) == 0
        written.close()


@pytest.mark.full
def test_a_tool_of_a_repository_is_pinned_granted_and_run_in_the_sandbox(
    port: int, clean_env: Callable[..., Path], tmp_path: Path, user_environ: Callable[[Path], dict[str, str]]
) -> None:
    environ = user_environ(clean_env("--extra", "auth", "--extra", "sandbox"))
    environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    repository = Repository(tmp_path / "repository")
    files = {"config.toml": CONFIG, "schema.json": SCHEMA, "greet/__init__.py": "", "greet/__main__.py": PROGRAM}
    commit = repository.commit({f"tools/greet/{name}": content for name, content in files.items()})
    place = tmp_path / "place"
    place.mkdir()
    shutil.copy(HERE / "greetings.py", place)
    (place / "settings.toml").write_text(
        f'internal_server_port = {port}\npublic_server_port = {port}\npublic_server_protocol = "http"\n'
        'public_hostname = "127.0.0.1"\nenable_local_callback_proxy = false\n'
    )

    def user(*command: str) -> str:
        done = subprocess.run(command, cwd=place, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    user("sed", "-E", "-i", r"s/^( *)(from|import) hyperpocket\b/\1\2 toolcrib.dialects.hyperpocket/", "greetings.py")
    program = ["python", "-W", "error", "greetings.py", str(repository.folder)]
    with conversation(program, place, environ) as ask:
        asked = ask("alice")
        assert asked.startswith(BEGINNING)
        page = re.sub("token[?].*", "submit", asked.removeprefix(BEGINNING))
        state = asked.partition("state=")[2]
        assert httpx2.post(page, data={"state": state, "token": "a-key-of-alice"}).status_code == 200
        assert "toolcrib sandbox build-python" in ask("alice")
        user("toolcrib", "sandbox", "build-python")
        assert ask("alice") == "False WELCOME, ADA! 14 ['BREVO_TOKEN', 'GREETING'] []"
        assert ask("bob").startswith(BEGINNING)
    pinned = f"git\t{repository.folder}\tmain\t{commit}\n"
    assert (place / "pocket.lock").read_text() == pinned
    repository.commit({"tools/greet/config.toml": CONFIG.replace("greet", "exfiltrate")})
    with conversation(program, place, environ) as ask:
        assert ask("alice").startswith(BEGINNING)
    assert (place / "pocket.lock").read_text() == pinned
