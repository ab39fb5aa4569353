"""Git addresses over SSH, from a real server on loopback: with the keys of the user's agent, and known hosts alone."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolcrib import Workbench
from toolcrib.core import LoadError
from toolcrib.tools.git import GitSource, fetch, parse_git_address

from .repositories import Repository
from .tool_folders import tool_files

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = [pytest.mark.full, pytest.mark.skipif(SSHD is None, reason="sshd is not installed")]

SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
# What a careless user might have: nothing of it may reach a stranger's server.
CLIENT = """
Host *
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking no
    ForwardAgent yes
    IdentityFile /dev/null
Host short
    HostName 127.0.0.1
    Port {port}
"""
# `ssh` finds the settings of a user by their entry in the list of users, so a test can give others only in this way.
SSH = '#!/bin/sh\nexec "{ssh}" -F "{folder}/config" "$@"\n'


@dataclass(frozen=True, slots=True)
class Server:
    """A server of `ssh` for this user, and the folder with what it and its client need."""

    folder: Path
    port: int

    def address(self, repository: Path) -> str:
        return f"git+ssh://{getpass.getuser()}@127.0.0.1:{self.port}{repository}"

    def know_host(self) -> None:
        key = (self.folder / "host_key.pub").read_text().split()[:2]
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {' '.join(key)}\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host_key", "user_key", "other_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        made = Server(folder, free.getsockname()[1])
    (folder / "sshd_config").write_text(SERVER.format(folder=folder, port=made.port))
    (folder / "config").write_text(CLIENT.format(folder=folder, port=made.port))
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(SSH.format(ssh=shutil.which("ssh"), folder=folder))
    (folder / "bin" / "ssh").chmod(0o755)
    command = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            _wait_for(made)
            yield made
        finally:
            process.terminate()


def _wait_for(server: Server) -> None:
    due = time.monotonic() + 60
    while time.monotonic() < due:
        with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=60):
            return
        time.sleep(0.05)
    raise AssertionError((server.folder / "log").read_text())


@contextmanager
def agent(key: Path) -> Generator[str]:
    """The socket of an agent that has *key*."""
    where = key.with_suffix(".agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(where)], stdout=subprocess.DEVNULL) as process:
        try:
            due = time.monotonic() + 60
            environ = {**os.environ, "SSH_AUTH_SOCK": str(where)}
            # Its socket is there a moment before it listens.
            while subprocess.run(["ssh-add", "-q", str(key)], env=environ, capture_output=True).returncode:
                assert time.monotonic() < due
                time.sleep(0.02)
            yield str(where)
        finally:
            process.terminate()
            where.unlink(missing_ok=True)


@pytest.fixture
def repository(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{server.folder / 'bin'}:{os.environ['PATH']}")
    made = Repository(tmp_path / "repository")
    made.commit(tool_files("echo"))
    server.know_host()
    with agent(server.folder / "user_key") as where:
        monkeypatch.setenv("SSH_AUTH_SOCK", where)
        yield made


def error_of(address: str) -> str:
    with pytest.raises(LoadError) as refused:
        fetch(GitSource(parse_git_address(address)))
    return str(refused.value)


async def test_a_tool_is_fetched_with_the_key_of_the_agent_and_called(server: Server, repository: Repository) -> None:
    async with Workbench([f"{server.address(repository.folder)}@main#echo"]) as bench:
        assert (await bench.call("echo", {"city": "Oslo"})).value == {"city": "Oslo"}


def test_the_short_form_names_a_host_of_the_user_s_settings(server: Server, repository: Repository) -> None:
    fetched = fetch(GitSource(parse_git_address(f"git+{getpass.getuser()}@short:{repository.folder}@main#echo")))
    assert sorted(file.name for file in fetched.path.iterdir()) == ["echo.wasm", "tool.toml"]
    assert fetched.commit == repository.git("rev-parse", "main")


def test_a_host_that_is_not_known_is_refused_whatever_the_settings_say(server: Server, repository: Repository) -> None:
    (server.folder / "known_hosts").unlink()
    assert "Host key verification failed" in error_of(server.address(repository.folder))
    assert not (server.folder / "known_hosts").exists()


def test_without_a_key_of_the_user_nothing_is_fetched_and_nobody_is_asked(
    server: Server, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(server.folder / "other_key") as where:
        monkeypatch.setenv("SSH_AUTH_SOCK", where)
        assert "Permission denied" in error_of(server.address(repository.folder))


def test_a_server_is_not_given_the_agent(
    server: Server, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server's own program for git says what it was given.
    seen = server.folder / "seen"
    (server.folder / "user_key.pub").write_text(
        f'command="env > {seen}; exec $SHELL -c \\"$SSH_ORIGINAL_COMMAND\\"" '
        + (server.folder / "user_key.pub").read_text()
    )
    fetch(GitSource(parse_git_address(server.address(repository.folder))))
    assert "SSH_ORIGINAL_COMMAND=" in seen.read_text()
    assert "SSH_AUTH_SOCK" not in seen.read_text()
