"""Story 6, moving in with hyperpocket: a call, the URL, a grant at npm's `oidc-provider`, and the tool runs."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from ..auth.oidc.conftest import SECRET, Provider
from ..dialects.hyperpocket.test_server import free_port

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

    assert "covered" in user("toolcrib", "dialects", "assistant.py")
    assert "not covered" not in user("toolcrib", "dialects", "assistant.py")
    user("sed", "-E", "-i", r"s/^( *)(from|import) hyperpocket\b/\1\2 toolcrib.dialects.hyperpocket/", "assistant.py")
    program = subprocess.Popen(
        ["python", "-W", "error", "assistant.py", provider.issuer],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None

    def call(thread: str) -> str:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(f"{thread}\n")
        program.stdin.flush()
        return program.stdout.readline().rstrip("\n")

    try:
        asked = call("alice")
        assert asked.startswith(BEGINNING)
        assert httpx2.get(provider.grant(asked.removeprefix(BEGINNING), login="alice")).status_code == 200
        answer = call("alice")
        assert answer.startswith("False Hello, {") and answer.endswith("}, in alice")
        assert json.loads(answer.removeprefix("False Hello, ").removesuffix(", in alice"))["sub"] == "alice"
        assert call("bob").startswith(BEGINNING)
    finally:
        program.stdin.close()
        assert program.wait(60) == 0
        program.stdout.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == [
        ".secrets.toml",
        "assistant.py",
        "providers.toml",
        "settings.toml",
    ]
