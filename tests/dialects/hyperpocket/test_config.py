"""The settings: where they come from, and what reading them does not do."""

import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib.core import SetupError
from toolcrib.dialects.hyperpocket.config import config
from toolcrib.dialects.hyperpocket.config.auth import (
    AuthConfig,
    GoogleAuthConfig,
)
from toolcrib.dialects.hyperpocket.config.session import SessionConfig, SessionConfigRedis, SessionType

from .conftest import Settings

EVERYTHING = (
    "toolcrib.dialects.hyperpocket, toolcrib.dialects.hyperpocket.auth.slack.oauth2_handler, "
    "toolcrib.dialects.hyperpocket.config.auth, toolcrib.dialects.hyperpocket.session.in_memory, "
    "toolcrib.dialects.hyperpocket.session.redis, toolcrib.dialects.hyperpocket.pocket_auth"
)


def test_without_files_the_settings_are_those_of_hyperpocket(settings: Settings) -> None:
    found = config()
    assert (found.public_base_url, found.internal_base_url, found.callback_url_rewrite_prefix) == (
        "https://localhost:8001",
        "http://localhost:8000",
        "proxy",
    )
    assert (found.session.session_type, found.auth.use_prebuilt_auth) == (SessionType.IN_MEMORY, True)
    assert (found.auth.slack, found.tool_vars) == (None, {})


def test_secrets_go_over_settings_and_the_environment_over_both(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings('public_server_port = 1\n[auth.slack]\nclient_id = "1.10"\nclient_secret = "a"\n[tool_vars]\nURL = "u"\n')
    (tmp_path / ".secrets.toml").write_text('public_server_port = 2\n[auth.slack]\nclient_secret = "b"\n')
    for name, text in {
        "PUBLIC_SERVER_PORT": "443",
        "AUTH__SLACK__CLIENT_ID": "123.4560",
        "AUTH__SLACK__USE_RECOMMENDED_SCOPE": "false",
        "TOOL_VARS__Region": "eu",
        "NET__ALLOW": '["10.0.0.0/8"]',
        "SESSION__REDIS__PORT": "6380",
    }.items():
        monkeypatch.setenv(f"POCKET_{name}", text)
    monkeypatch.setenv("AUTH__SLACK__CLIENT_SECRET", "of somebody else")
    found = config()
    slack = found.auth.slack
    assert (slack.client_id, slack.client_secret, slack.use_recommended_scope) == ("123.4560", "b", False)
    assert type(slack).__name__ == "SlackAuthConfig"
    assert found.public_base_url == "https://localhost"
    assert found.tool_vars == {"URL": "u", "Region": "eu"}
    assert found.net.allow == ["10.0.0.0/8"]
    assert found.session.redis == SessionConfigRedis(port=6380)


def test_what_a_program_sets_holds(settings: Settings) -> None:
    config().auth.google = GoogleAuthConfig(client_id="id", client_secret="secret")
    assert config().auth.google == GoogleAuthConfig(client_id="id", client_secret="secret")
    assert AuthConfig(google=GoogleAuthConfig(client_id="a", client_secret="b")).google.client_id == "a"  # type: ignore[call-arg]
    config().session = SessionConfig(session_type=SessionType.REDIS)
    assert config().session.session_type is SessionType.REDIS


def test_settings_that_are_not_valid_are_named_without_their_values(settings: Settings) -> None:
    settings('public_server_port = "canary"\n[auth.slack]\nclient_secret = "canary"\n')
    with pytest.raises(SetupError) as caught:
        config()
    text = str(caught.value)
    assert "'public_server_port'" in text
    assert "canary" not in text
    settings('[auth.slack]\nclient_secret = "canary\n')
    with pytest.raises(SetupError, match=r"^settings.toml cannot be read: it is not valid TOML.$"):
        config()


def test_importing_and_reading_the_settings_writes_nothing(tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    code = f"import {EVERYTHING}; toolcrib.dialects.hyperpocket.config.config()"
    environ = {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "PATH": ""}
    subprocess.run([sys.executable, "-c", code], cwd=work, env=environ, check=True)
    assert [*work.rglob("*"), *home.rglob("*")] == []
