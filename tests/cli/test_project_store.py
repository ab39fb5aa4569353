"""A project has a store of its own, beside its settings; the vault is the user's."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcrib import Caller, Workbench
from toolcrib.store import Store

from .conftest import Run

PROJECT = '[[source]]\nfrom = "mine.py"\n[[rule]]\ntools = "pay"\ndo = "ask"\n'
MINE = """
from toolcrib import Context, Secret, tool


@tool
def pay(to: str) -> str:
    return f"paid {to}"


@tool(auth=Secret("KEY"))
def spend(context: Context) -> str:
    return f"spent {sum(len(each.secret) for each in context.credentials.values())}"
"""


@pytest.fixture
def projects(toolcrib: Run, folder: Path) -> Callable[..., Run]:
    """The command in a project of this name."""

    def of(name: str, settings: str = PROJECT) -> Run:
        project = folder / name
        project.mkdir(exist_ok=True)
        (project / "toolcrib.toml").write_text(settings)
        (project / "mine.py").write_text(MINE)

        def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
            return toolcrib(*arguments, TOOLCRIB_CONFIG=str(project / "toolcrib.toml"), **variables)

        return run

    return of


@pytest.fixture
def user_store(environment: dict[str, str]) -> Path:
    return Path(environment["XDG_DATA_HOME"]) / "toolcrib" / "store.db"


def waiting(run: Run, *arguments: str) -> list[dict[str, str]]:
    done = run("pending", "list", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    data: list[dict[str, str]] = json.loads(done.stdout)
    return data


def test_what_a_project_waits_for_and_has_called_is_seen_by_no_other(
    projects: Callable[..., Run], folder: Path, user_store: Path
) -> None:
    one, other = projects("one"), projects("other")
    assert one("call", "pay", "to=ann").returncode == 3
    own = folder / "one" / ".toolcrib"
    assert {file.name for file in own.iterdir()} >= {"store.db", "store.key", ".gitignore"}
    assert (own.stat().st_mode & 0o777, (own / ".gitignore").read_text()) == (0o700, "*\n")
    assert not user_store.exists()
    (pending,) = waiting(one)
    assert other("pending", "approve", pending["id"]).returncode == 1
    assert one("pending", "approve", pending["id"]).returncode == 0
    assert (other("call", "pay", "to=ann").returncode, one("call", "pay", "to=ann").stdout) == (3, "paid ann\n")
    assert [json.loads(run("calls", "list", "--json", "--status", "success").stdout) != [] for run in (one, other)] == [
        True,
        False,
    ]


def test_a_secret_is_stored_once_for_all_projects_unless_the_store_is_named(
    projects: Callable[..., Run], toolcrib: Run, folder: Path, user_store: Path
) -> None:
    one, other = projects("one"), projects("other")
    named = projects("named", PROJECT + '[store]\nurl = "all.db"\n')
    assert one("secrets", "set", "KEY", typed=b"word-of-ann\n").returncode == 0
    assert user_store.exists()
    for run in (one, other):
        assert run("call", "spend").stdout == "spent 11\n"
    assert named("call", "spend").returncode == 3
    assert (folder / "named" / "all.db").exists()
    assert not (folder / "named" / ".toolcrib").exists()
    assert "word-of-ann" not in str([file.read_bytes() for file in folder.rglob("*store*")])
    assert [entry["name"] for entry in json.loads(toolcrib("secrets", "list", "--json").stdout)] == ["KEY"]


def test_all_that_there_is_of_a_caller_is_exported_and_forgotten_and_both_keys_rotate(
    projects: Callable[..., Run], user_store: Path
) -> None:
    one = projects("one")
    one("secrets", "set", "KEY", typed=b"word-of-ann\n")
    one("call", "pay", "to=ann")
    before = user_store.with_suffix(".key").read_text()
    assert one("auth", "rotate-key").returncode == 0
    assert user_store.with_suffix(".key").read_text().endswith(before)
    assert one("call", "spend").stdout == "spent 11\n"
    copied = one("store", "backup", "copy.db")
    assert f"toolcrib store backup FILE --store {user_store}" in " ".join(copied.stderr.split())
    checked = json.loads(one("check", "--connect", "--json").stdout)
    subjects = [finding.get("subject") for finding in checked["findings"]]
    assert {"store", "key of the store", "store of the vault", "key of the store of the vault"} <= set(subjects)
    tables = json.loads(one("store", "export", "local").stdout)
    assert (len(tables["grants"]), len(tables["pendings"])) == (1, 1)
    gone = json.loads(one("store", "forget", "local", "--yes", "--json").stdout)["deleted"]
    assert (gone["grants"], gone["pendings"]) == (1, 1)
    assert one("store", "forget", "local", "--yes").returncode == 1


def test_where_the_folder_cannot_be_made_the_error_names_the_setting(
    projects: Callable[..., Run], folder: Path
) -> None:
    one = projects("one")
    (folder / "one" / ".toolcrib").write_text("")
    done = one("calls", "list")
    assert (done.returncode, "url in [store]" in " ".join(done.stderr.split())) == (1, True), done.stderr
    assert "Traceback" not in done.stderr


async def test_a_program_finds_what_the_command_has_stored(
    projects: Callable[..., Run], folder: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", environment["XDG_DATA_HOME"])
    one = projects("one")
    one("secrets", "set", "KEY", typed=b"word-of-ann\n")
    one("call", "pay", "to=ann")
    store = Store(folder / "one" / ".toolcrib" / "store.db")
    async with Workbench.from_config(folder / "one" / "toolcrib.toml", store=store, caller=Caller("local")) as bench:
        (question,) = await bench.crib.pendings()
    store.close()
    assert question.tool == "pay"


def test_a_project_that_moves_takes_its_store_along(projects: Callable[..., Run], folder: Path) -> None:
    projects("one")("call", "pay", "to=ann")
    shutil.move(folder / "one", folder / "two")
    assert len(waiting(projects("two"))) == 1
