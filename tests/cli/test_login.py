"""`toolcrib auth login` where the address matters, and stores that a command cannot use, at a provider on loopback."""

import asyncio
import json
import re
import signal
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import httpx2
import pytest

from toolcrib import Caller, Crib, ToolAuth, ToolcribError
from toolcrib.auth import Client, CredentialBroker
from toolcrib.cli.login import log_in as log_in_at

from ..ports import free_port
from .conftest import LoggedIn, Run, Start, read_to
from .provider import PROVIDERS, LoopbackProvider

Login = Callable[..., LoggedIn]


def settings(folder: Path, *, before: str = "", after: str = "") -> None:
    file = folder / "toolcrib.toml"
    file.write_text(before + file.read_text() + after)


def test_a_login_comes_back_to_the_port_that_is_named(
    provider: LoopbackProvider, log_in: Login, folder: Path, toolcrib: Run
) -> None:
    port = free_port()
    login = log_in("test", "--port", str(port), "--json")
    assert (login.status, login.back) == (0, f"http://127.0.0.1:{port}/auth/callback/test")
    granted = json.loads(login.stdout)
    expires_at = granted.pop("expires_at")
    assert expires_at.endswith("+00:00")
    whose = {"provider": "test", "handler": "oauth2", "profile": "default"}
    assert granted == {**whose, "scopes": [], "refreshed": True, "damaged": None}
    # It goes before the address of the settings, which nobody serves here.
    settings(folder, after='\n[server]\npublic_base_url = "https://tools.example"\n')
    assert log_in("test", "--port", "0").status == 0


def test_a_port_that_cannot_be_used_is_named(provider: LoopbackProvider, toolcrib: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = toolcrib("auth", "login", "test", "--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: Port {port} cannot be listened on: Address already in use. Take another: --port\n"
    for wrong in ("70000", "-1", "http"):
        done = toolcrib("auth", "login", "test", "--port", wrong)
        assert (done.returncode, "--port" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


async def test_a_login_that_nobody_grants_ends_when_its_address_does(
    provider: LoopbackProvider, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)
    for base_url in (None, "https://tools.example/auth/callback"):
        # The ten minutes of the address have half a second left.
        broker = CredentialBroker(
            clients={"test": Client("id", "client-secret")},
            catalogue=folder / "providers.toml",
            redirect_uri=base_url,
            clock=lambda: now - timedelta(seconds=599.5),
        )
        async with Crib([], broker=broker) as crib, asyncio.timeout(60):
            with pytest.raises(ToolcribError, match=r"^Nothing was granted at Test.* in time\. .* log in again"):
                await log_in_at(crib, ToolAuth("test"), Caller())
    (port,) = re.findall(r"redirect_uri=http%3A%2F%2F127.0.0.1%3A(\d+)", capsys.readouterr().err)
    assert int(port) > 1023  # any that is free


def test_ctrl_c_ends_a_login_at_once_and_leaves_the_port_free(provider: LoopbackProvider, start: Start) -> None:
    port = free_port()
    with start("auth", "login", "test", "--port", str(port)) as process:
        read_to(process, "http")
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stderr.read()) == (130, "Cancelled.\n")
    socket.create_server(("127.0.0.1", port)).close()


def test_under_a_public_address_the_server_there_completes_a_login(
    provider: LoopbackProvider, log_in: Login, folder: Path, start: Start, toolcrib: Run
) -> None:
    port = free_port()
    settings(folder, after=f'\n[server]\nport = {port}\npublic_base_url = "http://127.0.0.1:{port}/"\n')
    with start("serve") as server:
        read_to(server, "Serving MCP at")
        login = log_in("test", "--scope", "a", "--principal", "alice")
        assert (login.status, login.back) == (0, f"http://127.0.0.1:{port}/auth/callback/test")
        assert toolcrib("call", "me", "--principal", "alice").stdout == '{"known": true}\n'
        assert toolcrib("call", "me", "--principal", "bob").returncode == 3
        # A refusal ends the login, too.
        provider.denies = True
        assert log_in("test", "--principal", "bob").status == 1


async def test_with_keys_a_login_shows_the_code_that_the_server_asks_for(
    provider: LoopbackProvider, folder: Path, start: Start, toolcrib: Run
) -> None:
    port = free_port()
    settings(folder, after=f'\n[server]\nport = {port}\nkeys = true\npublic_base_url = "http://127.0.0.1:{port}/"\n')
    with start("serve") as server, httpx2.Client(trust_env=False, follow_redirects=True) as browser:
        read_to(server, "Serving MCP at")
        with start("auth", "login", "test", "--scope", "a", "--principal", "key:alice") as process:
            text, _, link = (process.stderr.readline() for _ in range(3))
            code = text.removeprefix("Grant access to your account at Test. The page asks for the code ").strip(".\n")
            (token,) = re.findall(r'name="token" value="([^"]+)"', browser.get(link.strip()).text)
            page = browser.post(link.strip(), data={"token": token, "code": code})
            (address,) = re.findall(r'<a href="([^"]+)"', page.text)
            assert "Granted" in browser.get(unescape(address)).text
            assert process.wait(60) == 0
        assert toolcrib("call", "me", "--principal", "key:alice").stdout == '{"known": true}\n'
    # The second case is an address of the provider's own beside none of the server.
    text = (folder / "toolcrib.toml").read_text().replace("public_base_url", "# public_base_url")
    (folder / "toolcrib.toml").write_text(
        text.replace("[auth.test]\n", f'[auth.test]\nredirect_uri = "http://127.0.0.1:{port}/auth/callback"\n')
    )
    done = toolcrib("auth", "login", "test", "--principal", "key:bob")
    assert (done.returncode, "set that, or try --port" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("login", "test", "--handler", "nonsense"), "'test' has no handler 'nonsense'. It has: oauth2, token."),
        (("login", "test", "--scope", "a", "--token", "-"), "'test' has no scopes with its handler 'token'."),
        (("login", "slack"), "[auth.slack]: client_id, client_secret."),
        (("login", "salesforce"), "[auth.salesforce]: client_id, client_secret, domain_url."),
        (("login", "both", "--handler", "oauth2"), "[auth.both] in the settings needs client_id and client_secret."),
        (("login", "both", "--handler", "oauth2", "--device"), "[auth.both] in the settings needs client_id"),
    ],
    ids=lambda value: value[1:] if isinstance(value, tuple) else "",
)
def test_what_a_login_lacks_is_named_without_a_traceback(
    arguments: tuple[str, ...], part: str, provider: LoopbackProvider, folder: Path, toolcrib: Run
) -> None:
    table = PROVIDERS.replace("URL", provider.url).replace("HOST", "h.example").replace("[test", "[both")
    with (folder / "providers.toml").open("a") as file:
        file.write(table.replace('title = "Test"', 'title = "Both"\ndefault = "token"'))
    done = toolcrib("auth", *arguments, typed=b"canary-key")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith("Error: ") and part in done.stderr


# Stores that cannot be used

COMMANDS = [("auth", "rotate-key"), ("secrets", "set", "NAME"), ("pending", "list")]


def test_a_store_of_a_newer_version_is_named_and_left_as_it_is(
    provider: LoopbackProvider, toolcrib: Run, folder: Path
) -> None:
    assert toolcrib("auth", "login", "test", "--token", "-", typed=b"canary-key").returncode == 0
    file = folder / "data" / "store.db"
    for room in ("auth", "store"):
        with closing(sqlite3.connect(file)) as database, database:
            (version,) = database.execute("SELECT version FROM toolcrib_versions WHERE room = ?", (room,)).fetchone()
            database.execute("UPDATE toolcrib_versions SET version = 99 WHERE room = ?", (room,))
        before = file.read_bytes()
        # What waits is in the tables of the store alone.
        for command in [command for command in COMMANDS if room == "store" or command[0] != "pending"]:
            done = toolcrib(*command, typed=b"canary-other-key")
            assert (done.returncode, done.stdout) == (1, ""), (command, done.stderr)
            assert f"is of a newer Toolcrib: its '{room}' tables are at version 99" in done.stderr, command
            assert "Update Toolcrib, or use another store." in done.stderr
            assert "Traceback" not in done.stderr and "canary" not in done.stderr
        called = toolcrib("call", "me", "--json")
        assert (called.returncode, json.loads(called.stdout)["error"]["code"]) == (1, "unavailable")
        assert file.read_bytes() == before
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("UPDATE toolcrib_versions SET version = ? WHERE room = ?", (version, room))
    assert toolcrib("auth", "list").stdout == "test\ttoken\tdefault\t\t\n"
