"""`toolcrib auth`: granting tools access to an account, at a provider on loopback."""

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from .conftest import AtTerminal, LoggedIn, Run
from .provider import LoopbackProvider

Login = Callable[..., LoggedIn]


def test_a_login_in_a_browser_lets_the_tool_run(provider: LoopbackProvider, log_in: Login, toolcrib: Run) -> None:
    waiting = toolcrib("call", "me", "--json")
    assert (waiting.returncode, json.loads(waiting.stdout)["pending"]["kind"]) == (3, "authorization")
    login = log_in("test")
    assert (login.status, login.stderr.splitlines()[-1]) == (0, "Logged in to Test.")
    done = toolcrib("call", "me")
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"known": true}\n', "")
    listed = toolcrib("auth", "list")
    assert listed.stdout == "test\toauth2\tdefault\ta\t\n"
    (shown,) = json.loads(toolcrib("auth", "show", "test", "--json").stdout)
    assert (shown["provider"], shown["scopes"], shown["refreshed"]) == ("test", ["a"], True)
    for text in (login.stderr, listed.stdout, toolcrib("auth", "show", "test").stdout, json.dumps(shown)):
        assert "canary" not in text


def test_a_call_at_a_terminal_offers_to_log_in_and_goes_on(
    provider: LoopbackProvider, folder: Path, at_terminal: AtTerminal
) -> None:
    browser = folder / "browser"
    browser.write_text('#!/bin/sh\nprintf %s "$1" > opened\n')
    browser.chmod(0o755)
    with at_terminal("call", "me", BROWSER=f"{browser} %s") as session:
        session.read_to(b"Grant it now? [Y/n]")
        session.press(b"y\r")
        session.read_to(b"/authorize?")
        session.read_to(b"S256\r\n")  # the end of the address
        (address,) = re.findall(rb"http://\S+/authorize\?\S+", session.seen)
        urlopen(address.decode(), timeout=30).close()
        status, seen = session.read_to_end()
    assert (status, '"known": true' in seen, "canary" in seen) == (0, True, False)
    assert (folder / "opened").read_text() == address.decode()


def test_what_was_granted_is_shown_and_revoked_by_handler_and_profile(
    provider: LoopbackProvider, log_in: Login, toolcrib: Run
) -> None:
    assert log_in("test", "--scope", "a").status == 0
    keys = [("test", "default"), ("test", "work"), ("stripe", "default")]
    for name, profile in keys:
        key = ("--token", "-", "--profile", profile)
        assert toolcrib("auth", "login", name, *key, typed=b"canary-key").stderr.startswith("Logged in to ")
    assert toolcrib("secrets", "set", "NAME", typed=b"canary-secret").returncode == 0
    shown = toolcrib("auth", "show", "test").stdout.split("\n\n")
    oauth2 = shown[[one.split("\n")[1] for one in shown].index("handler: oauth2")].splitlines()
    assert len(shown) == 3 and [line.partition(": ")[0] for line in oauth2] == (
        ["provider", "handler", "profile", "scopes", "expires_at", "refreshed"]
    )
    assert (oauth2[3], oauth2[5:]) == ("scopes: a", ["refreshed: yes"])
    assert oauth2[4].startswith("expires_at: 20")

    def left() -> list[list[str]]:
        return [line.split("\t")[:3] for line in toolcrib("auth", "list").stdout.splitlines()]

    assert toolcrib("auth", "revoke", "test", "--handler", "token").returncode == 0
    assert sorted(left()) == [
        ["stripe", "token", "default"],
        ["test", "oauth2", "default"],
        ["test", "token", "work"],
    ]
    absent = toolcrib("auth", "revoke", "test", "--profile", "none")
    message = "Error: 'local' has granted nothing at 'test' (profile 'none').\n"
    assert (absent.returncode, absent.stderr) == (1, message)
    for stranger in (("--principal", "bob"), ("--profile", "work")):
        assert toolcrib("call", "me", *stranger).returncode == 3
    assert toolcrib("auth", "list", "--principal", "bob", "--json").stdout == "[]\n"
    revoked = toolcrib("auth", "revoke", "test")
    assert (revoked.returncode, revoked.stderr, provider.revoked) == (0, "Revoked: test.\n", ["canary-refresh-0"])
    assert toolcrib("call", "me").returncode == 3
    assert sorted(left()) == [["stripe", "token", "default"], ["test", "token", "work"]]
    nothing = toolcrib("auth", "show", "github")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert nothing.stderr == "Error: 'local' has granted nothing at 'github': toolcrib auth login github\n"
    rotated = toolcrib("auth", "rotate-key")
    assert (rotated.returncode, rotated.stdout, rotated.stderr) == (0, "", "Sealed again: 11 values.\n")
    assert toolcrib("secrets", "list").stdout == "NAME\tdefault\t\n"


def test_a_key_of_two_parts_needs_its_colon(provider: LoopbackProvider, toolcrib: Run, folder: Path) -> None:
    with (folder / "providers.toml").open("a") as file:
        file.write("\n[test.basic]\n")
    login = ("auth", "login", "test", "--handler", "basic", "--token", "-")
    refused = toolcrib(*login, typed=b"ada-without-a-colon")
    assert (refused.returncode, refused.stderr) == (
        1,
        "Error: 'test' takes user:password, with a colon between them.\n",
    )
    assert toolcrib(*login, typed=b"ada:hunter22").returncode == 0
    assert toolcrib("auth", "list").stdout == "test\tbasic\tdefault\t\t\n"


def test_a_refusal_at_the_provider_ends_the_login(provider: LoopbackProvider, log_in: Login) -> None:
    provider.denies = True
    login = log_in("test")
    assert (login.status, "\nError: 'Test' granted nothing." in login.stderr) == (1, True)


def test_a_code_is_entered_on_another_device(provider: LoopbackProvider, toolcrib: Run) -> None:
    provider.device_is_open = True
    done = toolcrib("auth", "login", "test", "--scope", "a", "--device")
    entered = f"Open {provider.url}/activate and enter the code ABCD\nLogged in to Test.\n"
    assert (done.returncode, done.stderr) == (0, entered)
    assert toolcrib("call", "me").returncode == 0


@pytest.mark.parametrize(
    ("typed", "status"),
    [(b"", 2), (b" \n", 2), (b"abc", 1), (b"\xff" * 20, 2), (b"key\x00\x1b[31m", 2)],
    ids=["nothing", "blanks", "short", "not UTF-8", "control characters"],
)
def test_what_cannot_be_a_key_is_refused(typed: bytes, status: int, provider: LoopbackProvider, toolcrib: Run) -> None:
    done = toolcrib("auth", "login", "test", "--token", "-", typed=typed)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert done.stderr.startswith("Error: ") and len(done.stderr) < 200
    assert toolcrib("auth", "list").stdout == ""


@pytest.mark.parametrize("command", ["login", "show", "revoke"])
def test_a_wrong_provider_is_named_with_the_nearest(command: str, toolcrib: Run) -> None:
    done = toolcrib("auth", command, "githup")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: There is no provider 'githup'. Did you mean 'github'?")


def test_a_login_without_a_client_says_what_to_register_and_to_write(toolcrib: Run) -> None:
    done = toolcrib("auth", "login", "github")
    assert (done.returncode, done.stdout) == (1, "")
    for part in (
        "http://127.0.0.1:PORT/auth/callback/github",
        "[auth.github]: client_id, client_secret.",
        "--port",
        "https:",
    ):
        assert part in done.stderr


def test_providers_are_listed_with_what_they_lack_and_their_date(provider: LoopbackProvider, toolcrib: Run) -> None:
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in toolcrib("auth", "providers").stdout.splitlines()}
    assert rows["test"] == ["Test", "oauth2 token", "ready", "2026-01-01"]
    assert rows["github"][-2:] == ["needs [auth.github] client_id client_secret", "2026-11-22"]
    assert rows["lever"] == ["Lever", "token", "ready", "not compared"]
    found = {one["name"]: one for one in json.loads(toolcrib("auth", "providers", "--json").stdout)}
    assert (found["test"]["missing"], found["github"]["missing"]) == ([], ["client_id", "client_secret"])
    assert (found["test"]["checked"], found["lever"]["checked"]) == ("2026-01-01", None)


def test_a_store_is_named_on_the_command_line_or_by_a_variable(
    provider: LoopbackProvider, toolcrib: Run, folder: Path
) -> None:
    assert toolcrib("auth", "login", "test", "--token", "-", "--store", "here.db", typed=b"a-key").returncode == 0
    assert (folder / "here.db").exists() and not (folder / "data").exists()
    assert toolcrib("auth", "list", TOOLCRIB_STORE_URL="here.db").stdout == "test\ttoken\tdefault\t\t\n"
    with sqlite3.connect(folder / "here.db") as database:
        assert b"a-key" not in "".join(database.iterdump()).encode()
    database.close()


def test_check_finds_what_is_wrong_with_clients(toolcrib: Run, folder: Path, environment: dict[str, str]) -> None:
    (folder / "tools.py").write_text("from toolcrib import tool\n@tool\ndef f() -> int:\n    return 1\n")
    (folder / "toolcrib.toml").write_text(
        '[[source]]\nfrom = "tools.py"\n[auth.githup]\nclient_id = "a"\n'
        '[auth.github]\nclient_idd = "a"\nclient_secret = "${env:TEST_SECRET}"\n'
    )
    environment["TEST_SECRET"] = "canary-client-secret"
    done = toolcrib("check", "--json")
    problems = [
        (one["line"], one["message"].partition(" It takes")[0])
        for one in json.loads(done.stdout)["findings"]
        if one["level"] == "problem"
    ]
    assert done.returncode == 1
    assert problems == [
        (3, "There is no provider 'githup'. Did you mean 'github'? `toolcrib auth providers` lists them."),
        (6, "There is no key 'client_idd' in [auth.github]. Did you mean 'client_id'?"),
        (5, "[auth.github] needs client_id."),
    ]
    assert "canary" not in done.stdout + done.stderr
    (folder / "toolcrib.toml").write_text(
        '[[source]]\nfrom = "tools.py"\n[server]\npublic_base_url = "https://tools.example/"\n'
        '[auth.github]\nclient_id = "a"\nclient_secret = "${env:TEST_SECRET}"\n'
        '[auth.slack]\nclient_id = "a"\nclient_secret = "${env:TEST_SECRET}"\n'
        'redirect_uri = "https://tools.example/auth/callback"\n'
        '[auth."mcp:https://a.example/mcp"]\nclient_id = "a"\n'
    )
    done = toolcrib("check", "--json")
    notes = [one["message"] for one in json.loads(done.stdout)["findings"] if one["level"] == "note"]
    assert (done.returncode, notes[0], notes[1]) == (
        0,
        "Register https://tools.example/auth/callback/github as the redirect address at 'github'.",
        "Register https://tools.example/auth/callback as the redirect address at 'slack'.",
    )
    assert notes[2].startswith("Register https://tools.example/auth/callback/server.")
    listed = {one["name"]: one["redirect_uri"] for one in json.loads(toolcrib("auth", "providers", "--json").stdout)}
    assert (listed["github"], listed["slack"], listed["brevo"]) == (
        "https://tools.example/auth/callback/github",
        "https://tools.example/auth/callback",
        None,
    )
