"""`toolcrib secrets`: named secrets are stored, used and removed, and never shown."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from toolcrib import Secret
from toolcrib.core import SetupError

from .conftest import Run

TOOLS = """
from toolcrib import Context, Secret, tool


@tool(auth=Secret("WEATHER_KEY"))
async def weather(ctx: Context) -> str:
    return "the key is " + ctx.credentials["WEATHER_KEY"].secret
"""


SETTINGS = '[[source]]\nfrom = "tools.py"\n[store]\nurl = "store.db"\n'


def test_a_secret_is_entered_used_and_removed_and_never_shown(toolcrib: Run, folder: Path) -> None:
    waiting = toolcrib("call", "weather")
    assert (waiting.returncode, "toolcrib secrets set WEATHER_KEY" in waiting.stderr) == (3, True)
    stored = toolcrib("secrets", "set", "WEATHER_KEY", typed=b"canary-of-alice\n")
    assert (stored.returncode, stored.stdout, stored.stderr) == (0, "", "Stored: WEATHER_KEY.\n")
    used = toolcrib("call", "weather")
    assert used.returncode == 0 and used.stdout.startswith("the key is ")
    assert toolcrib("secrets", "list").stdout == "WEATHER_KEY\tdefault\t\n"
    listed = json.loads(toolcrib("secrets", "list", "--json").stdout)
    assert listed == [{"name": "WEATHER_KEY", "profile": "default", "damaged": None}]
    assert toolcrib("call", "weather", "--principal", "bob").returncode == 3
    written = b"".join(file.read_bytes() for file in folder.glob("store*"))
    assert b"canary" not in written and "canary" not in used.stdout
    assert toolcrib("secrets", "remove", "WEATHER_KEY").returncode == 0
    again = toolcrib("secrets", "remove", "WEATHER_KEY")
    assert (again.returncode, again.stderr) == (1, "Error: There is no secret 'WEATHER_KEY'.\n")
    assert toolcrib("call", "weather").returncode == 3


def test_a_secret_for_all_serves_those_who_have_none(toolcrib: Run) -> None:
    assert toolcrib("secrets", "set", "WEATHER_KEY", "--for-all", typed=b"canary-for-all").returncode == 0
    assert toolcrib("call", "weather", "--principal", "bob").returncode == 0
    assert (toolcrib("secrets", "list").stdout, toolcrib("secrets", "list", "--for-all").stdout) == (
        "",
        "WEATHER_KEY\tdefault\t\n",
    )


def test_a_secret_may_have_lines_and_be_long(toolcrib: Run, folder: Path) -> None:
    (folder / "tools.py").write_text(TOOLS.replace('"the key is " + ', "str(len(").replace(".secret\n", ".secret))\n"))
    lines = b"-----BEGIN-----\nabcd\n-----END-----\n"
    for typed, length in ((b"x" * 65537, 65537), (lines, len(lines) - 1)):
        done = toolcrib("secrets", "set", "WEATHER_KEY", typed=typed)
        assert (done.returncode, toolcrib("call", "weather").stdout) == (0, f"{length}\n"), done.stderr
    assert [file.name for file in folder.glob("store.db*")] == ["store.db"]


def test_what_does_not_open_is_shown_as_damaged_and_can_be_removed(toolcrib: Run, folder: Path) -> None:
    assert toolcrib("secrets", "set", "WEATHER_KEY", typed=b"canary-of-alice\n").returncode == 0
    for name, profile in (("stripe", "default"), ("stripe", "at work"), ("tavily", "default")):
        key = ("--token", "-", "--profile", profile)
        assert toolcrib("auth", "login", name, *key, typed=b"canary-of-alice\n").returncode == 0
    with closing(sqlite3.connect(folder / "store.db")) as connection, connection:
        connection.execute("UPDATE toolcrib_grants SET envelope = x'00ff' WHERE provider <> 'tavily'")
    listed = toolcrib("auth", "list")
    assert listed.stdout.splitlines() == [
        "stripe\ttoken\tat work\t\ttoolcrib auth revoke stripe --profile 'at work'",
        "stripe\ttoken\tdefault\t\ttoolcrib auth revoke stripe",
        "tavily\ttoken\tdefault\t\t",
    ]
    assert "cannot be opened" in listed.stderr
    assert "Traceback" not in listed.stderr
    shown = json.loads(toolcrib("auth", "show", "stripe", "--json").stdout)
    assert [(one["profile"], one["damaged"], one["scopes"]) for one in shown] == [
        ("at work", "toolcrib auth revoke stripe --profile 'at work'", []),
        ("default", "toolcrib auth revoke stripe", []),
    ]
    assert toolcrib("secrets", "list").stdout == "WEATHER_KEY\tdefault\ttoolcrib secrets remove WEATHER_KEY\n"
    assert toolcrib("call", "weather").returncode == 1
    for profile in ("default", "at work"):
        assert toolcrib("auth", "revoke", "stripe", "--profile", profile).returncode == 0
    assert toolcrib("secrets", "remove", "WEATHER_KEY").returncode == 0
    assert [one["provider"] for one in json.loads(toolcrib("auth", "list", "--json").stdout)] == ["tavily"]
    assert toolcrib("secrets", "list").stdout == ""
    assert toolcrib("call", "weather").returncode == 3


def test_a_secret_without_a_name_is_refused(toolcrib: Run) -> None:
    refused = toolcrib("secrets", "set", " ", typed=b"canary-of-alice\n")
    assert (refused.returncode, "A secret needs a name" in refused.stderr) == (2, True)
    assert toolcrib("secrets", "list").stdout == ""
    with pytest.raises(SetupError, match="A secret has a name"):
        Secret("")
