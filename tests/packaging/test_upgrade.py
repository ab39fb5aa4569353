"""What earlier releases have written is opened by this one: `releases/VERSION` is a project and a home of each.

Its stores are dumps, with the keys beside them. In them are a secret, a key of the server, a call that waits, one that
was approved, and the log. Each release adds one such folder, and changes none.
"""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

RELEASES = Path(__file__).with_name("releases")
OWNER = "key:alice"

Type = Callable[..., str]


@pytest.fixture(params=sorted(folder.name for folder in RELEASES.iterdir()))
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The project of a release, with its store and that of the user."""
    project = Path(shutil.copytree(RELEASES / request.param, tmp_path / "project"))
    for name, folder in (("project", project / ".toolcrib"), ("user", tmp_path / "data/toolcrib")):
        folder.mkdir(parents=True, mode=0o700)
        shutil.copy(project / f"{name}.key", folder / "store.key")
        (folder / "store.key").chmod(0o600)
        with sqlite3.connect(folder / "store.db") as database:
            database.executescript((project / f"{name}.sql").read_text())
        database.close()
    return project


@pytest.fixture
def type_(project: Path, forked_toolcrib: Path) -> Type:
    """Types a command of this version. Returns what it prints."""

    def type_(*command: str, status: int = 0) -> str:
        done = subprocess.run(
            [forked_toolcrib, *command],
            cwd=project,
            env=os.environ | {"XDG_DATA_HOME": str(project.parent / "data")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    return type_


def test_settings_and_stores_of_earlier_releases_are_opened_with_all_that_is_in_them(type_: Type) -> None:
    assert type_("check").endswith("1 source, 2 tools, 1 rule, 1 limit: no problems.\n")
    assert [line.split("\t")[0] for line in type_("secrets", "list").splitlines()] == ["WEATHER_KEY"]
    assert [line.split("\t")[1] for line in type_("keys", "list").splitlines()] == [OWNER]
    calls = [line.split("\t")[2:5] for line in type_("calls", "list").splitlines()]
    assert calls[:2] == [[OWNER, "delete", "pending (approval)"]] * 2
    assert ["local", "weather", "success"] in calls
    assert "verified" in type_("calls", "verify")
    waiting = [line.split("\t") for line in type_("pending", "list").splitlines()]
    (approval,) = [cells for cells in waiting if cells[1] == "approval"]
    assert approval[2:] == [OWNER, "delete", "Delete this file?", '{"path": "b.txt"}']

    # The secret is opened, what was approved runs, once, and what waits is answered.
    assert type_("call", "weather", "city=Oslo") == "rain in Oslo\n"
    delete = ("call", "delete", "--principal", OWNER)
    assert type_(*delete, "path=a.txt") == "deleted a.txt\n"
    assert type_(*delete, "path=a.txt", status=3) == ""
    type_("pending", "approve", approval[0], "--by", "bob")
    assert type_(*delete, "path=b.txt") == "deleted b.txt\n"
    assert "verified" in type_("calls", "verify")
