"""Systems that lack a limit: what needs it is refused there, with the reason, and nothing of it runs."""

import sys
from pathlib import Path

import pytest

from toolcrib.core import LoadError
from toolcrib.tools import Permissions, load

from .guests import ECHO, Module


@pytest.fixture(autouse=True)
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")


@pytest.mark.parametrize("permissions", [Permissions(), Permissions(trusted=True)])
def test_without_processes_that_can_be_ended_no_program_of_the_sandbox_is_loaded(
    module: Module, tmp_path: Path, permissions: Permissions
) -> None:
    python = tmp_path / "python"
    python.mkdir()
    (python / "main.py").write_text("print(1)")
    (python / "tool.toml").write_text('name = "guest"\ndescription = "Does something."\nruntime = "python"\n')
    component = module(ECHO, "component")
    component.write_bytes(b"\0asm\x0d\0\x01\0")
    for source in (module(ECHO), component, python):
        with pytest.raises(
            LoadError, match="is a WebAssembly tool, and these need POSIX: they run in worker processes"
        ):
            load(permissions.to(source))


def test_without_limits_for_git_no_address_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(
        LoadError, match="Git addresses need POSIX: without it, the memory and disk space of git cannot be limited"
    ):
        load(f"git+{tmp_path}")
