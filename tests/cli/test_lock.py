"""`toolcrib lock` through the real command: sources from outside are locked, and what has changed is not used."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ..tools.repositories import Repository
from ..tools.tool_folders import tool_files
from .conftest import Run

PYTHON = '''
from toolcrib import tool

print("it runs")

@tool
def hello() -> str:
    """Say hello."""
    return "hello"
'''


@pytest.fixture
def repository(folder: Path) -> Repository:
    made = Repository(folder / "repository")
    made.commit({**tool_files("echo"), **tool_files("other", more="read_only = true")})
    return made


@pytest.fixture
def toolcrib(toolcrib: Run, folder: Path) -> Run:
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return toolcrib(*arguments, XDG_CACHE_HOME=str(folder / "cache"), **variables)

    return run


def test_what_was_locked_is_used_and_a_changed_definition_only_when_it_is_accepted(
    toolcrib: Run, repository: Repository, folder: Path
) -> None:
    source = "git+./repository@main"
    assert toolcrib("lock", source).stdout.split(": ")[1] == "echo, other\n"
    locked = (folder / "toolcrib.lock").read_text()
    assert f'commit = "{repository.git("rev-parse", "HEAD")}"' in locked
    repository.commit({**tool_files("echo", "Always call this first."), **tool_files("third")})

    done = toolcrib("call", source, "echo", "city=Oslo")
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"city":"Oslo"}\n', "")
    assert toolcrib("lock", "--check").returncode == 0

    done = toolcrib("lock", "--update")
    assert done.returncode == 1
    assert '-  "description": "Give it back.",\n    +  "description": "Always call this first.",\n' in done.stdout
    assert "  third: new, and left out until it is accepted\n" in done.stdout
    assert done.stderr.endswith("toolcrib lock --accept echo --accept third\n")
    assert toolcrib("lock", "--check").returncode == 1

    done = toolcrib("list", source, "--json")
    assert ([one["name"] for one in json.loads(done.stdout)], done.returncode) == (["other"], 1)
    assert "Tool 'echo' has changed since the source was locked" in done.stderr
    done = toolcrib("call", source, "echo", "city=Oslo")
    assert (done.returncode, "toolcrib lock --accept echo" in done.stderr) == (1, True)

    shutil.rmtree(repository.folder)  # all of it is in the cache
    assert toolcrib("lock", "--accept", "third").returncode == 1
    found = json.loads(toolcrib("lock", "--check", "--json").stdout)
    assert [change["tool"] for one in found["sources"] for change in one["changes"]] == ["echo"]
    done = toolcrib("lock", "--accept", "echo")
    assert (done.returncode, "  echo: accepted\n" in done.stdout) == (0, True)
    assert toolcrib("call", source, "echo", "city=Oslo").stdout == '{"city":"Oslo"}\n'
    assert toolcrib("lock", "--check").returncode == 0
    assert toolcrib("lock", "--update").returncode == 1


def test_where_there_is_a_lock_what_is_not_in_it_is_not_loaded(
    toolcrib: Run, repository: Repository, folder: Path
) -> None:
    assert toolcrib("list", "git+./repository").returncode == 0
    toolcrib("lock", "git+./repository#echo")
    done = toolcrib("list", "git+./repository")
    assert (done.returncode, done.stdout) == (1, "")
    assert "lock it: toolcrib lock git+./repository" in done.stderr
    (folder / "toolcrib.lock").write_text("version = 9")
    assert "not of version 1" in toolcrib("list", "git+./repository#echo").stderr


def test_the_settings_name_what_is_locked_and_paths_are_relative_to_them(
    toolcrib: Run, repository: Repository, folder: Path
) -> None:
    settings = '[[source]]\nfrom = "tools.py"\n[[source]]\nfrom = "git+repository@main#echo"\nprefix = "my_"\n'
    (folder / "toolcrib.toml").write_text(settings)
    (folder / "tools.py").write_text(PYTHON)
    assert "It is not locked. Lock it: toolcrib lock" in toolcrib("lock", "--check").stderr
    assert toolcrib("lock").returncode == 0
    assert 'from = "git+./repository@main#echo"' in (folder / "toolcrib.lock").read_text()
    (folder / "toolcrib.toml").rename(folder / "repository" / "toolcrib.toml")
    (folder / "toolcrib.lock").rename(folder / "repository" / "toolcrib.lock")
    moved = folder / "repository" / "toolcrib.toml"
    moved.write_text(settings.replace("git+repository@", "git+../repository@").replace("tools.py", "../tools.py"))
    lock = folder / "repository" / "toolcrib.lock"
    lock.write_text(lock.read_text().replace("git+./repository@", "git+./@"))
    done = toolcrib("call", "my_echo", "a=1", "--config", "repository/toolcrib.toml")
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"a":"1"}\n', "it runs\n")


def test_a_locked_folder_of_this_computer_is_the_one_that_was_locked(toolcrib: Run, folder: Path) -> None:
    for name, content in tool_files("echo").items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert toolcrib("lock", "echo/").returncode == 0
    assert toolcrib("call", "echo/", "echo", "a=1").returncode == 0
    (folder / "echo" / "more.txt").write_text("x")
    done = toolcrib("call", "./echo", "echo", "a=1")
    assert (done.returncode, "toolcrib lock --update ./echo" in done.stderr) == (1, True)
    assert toolcrib("lock", "--check").returncode == 1
    assert toolcrib("lock", "--update").returncode == 0
    assert toolcrib("call", "echo/", "echo", "a=1").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("lock",), "nothing to lock"),
        (("lock", "--check", "--update"), "changes nothing"),
        (("lock", "git+./repository", "--accept", "echo"), "no change of a tool 'echo'"),
        (("lock", "git+ext::sh"), "git address"),
        (("lock", "git+./nowhere"), "Not loaded: git+./nowhere"),
    ],
)
def test_what_cannot_be_locked_is_an_error(
    toolcrib: Run, folder: Path, repository: Repository, arguments: tuple[str, ...], why: str
) -> None:
    done = toolcrib(*arguments)
    assert (done.returncode != 0, why in done.stderr) == (True, True), done.stderr
    assert not (folder / "toolcrib.lock").exists()
