"""`lock=`: a program's sources are what a lock file has of them."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from toolcrib import Crib, Workbench
from toolcrib.core import LoadError
from toolcrib.tools import Permissions
from toolcrib.workbench import prefixed

from ..tools.repositories import Repository
from ..tools.tool_folders import tool_files

Run = Callable[..., subprocess.CompletedProcess[str]]

HELLO = '''
from toolcrib import tool

@tool
def hello() -> str:
    """Say hello{}."""
    return "hello"
'''


@pytest.fixture
def repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.chdir(folder)
    return Repository(folder / "repository")


def offered(bench: Workbench) -> Mapping[str, str]:
    return {spec.name: spec.description for spec in bench.specs()}


async def test_an_address_is_what_it_was_when_it_was_locked(
    toolcrib: Run, repository: Repository, folder: Path
) -> None:
    repository.commit(tool_files("echo"))
    source = f"git+{repository.folder}@main#echo"
    assert toolcrib("lock", source).returncode == 0
    repository.commit(tool_files("echo", "Call this first."))
    assert offered(Workbench([source])) == {"echo": "Call this first."}
    for given in (source, Permissions(trusted=True).to(source)):
        async with Workbench([given], lock="toolcrib.lock") as bench:
            assert offered(bench) == {"echo": "Give it back."}
            assert (await bench.call("echo", {"city": "Oslo"})).value == {"city": "Oslo"}
    crib = Crib([prefixed(source, "their_")], lock=folder / "toolcrib.lock")
    assert [spec.name for spec in crib.registry.specs()] == ["their_echo"]


async def test_a_tool_that_was_not_accepted_is_left_out(toolcrib: Run, repository: Repository, folder: Path) -> None:
    source = f"git+{repository.folder}@main"
    repository.commit({**tool_files("echo"), **tool_files("other")})
    assert toolcrib("lock", source).returncode == 0
    repository.commit({**tool_files("echo", "Call this first."), **tool_files("third")})
    assert toolcrib("lock", "--update").returncode == 1
    bench = Workbench([source], lock="toolcrib.lock")
    assert offered(bench) == {"other": "Give it back."}
    problems = [problem.reason.partition(" since")[0] for problem in bench.problems]
    assert problems == ["Tool 'echo' has changed", "Tool 'third' is new"]


def test_an_address_that_is_not_locked_and_a_folder_that_has_changed_are_refused(
    toolcrib: Run, repository: Repository, folder: Path
) -> None:
    repository.commit(tool_files("echo"))
    (folder / "hello.py").write_text(HELLO.format(""))
    assert toolcrib("lock", "hello.py").returncode == 0
    assert offered(Workbench([folder / "hello.py"], lock="toolcrib.lock")) == {"hello": "Say hello."}
    with pytest.raises(LoadError, match=r"is not in toolcrib\.lock, and what comes from outside has to be"):
        Workbench([f"git+{repository.folder}@main"], lock="toolcrib.lock")
    (folder / "hello.py").write_text(HELLO.format(" twice"))
    with pytest.raises(LoadError, match=r"has changed since it was locked in toolcrib\.lock"):
        Workbench(["hello.py"], lock="toolcrib.lock")
