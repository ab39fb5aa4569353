"""How what runs folders of Python is made once, and kept.

The Python of the sandbox has a builder that makes a small component in its place, and virtual environments a `uv` that
notes what it is asked; tests/tools/test_python_folder.py has real ones, in the full suite.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from toolcrib.core import LoadError, SetupError
from toolcrib.sandbox import python_build
from toolcrib.sandbox.python_build import Environment, build_python, environment_for, is_built, python_file

COMPONENT = """(component
  (core module $m (func (export "run") (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $exported (export "run" (func $run)))
  (export "toolcrib:guest/program@1.0.0" (instance $exported)))"""
BUILDER = f"""
import os, sys
from pathlib import Path
assert "XDG_CACHE_HOME" not in os.environ
assert sys.argv[-6] == "componentize" and sys.argv[-3:-1] == ["toolcrib_program", "-o"], sys.argv
import wasmtime
Path(sys.argv[-1]).write_bytes(wasmtime.wat2wasm({COMPONENT!r}))
"""


@pytest.fixture(autouse=True)
def kept_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(python_build, "_SCRIPT", BUILDER)
    return tmp_path / "toolcrib"


def test_python_is_made_and_compiled_once_and_again_when_that_is_asked_for(kept_at: Path) -> None:
    file = python_file()
    assert (file.parent, len(file.stem), file.suffix) == (kept_at / "python", 32, ".wasm")
    assert not is_built()
    steps: list[str] = []
    build_python(steps.append)
    assert is_built()
    (compiled,) = (kept_at / "wasm").iterdir()
    (kept_at / "python" / "old").touch()
    os.utime(kept_at / "python" / "old", (0, 0))

    def made() -> tuple[int, int]:
        return file.stat().st_ino, compiled.stat().st_ino

    first = made()
    build_python(steps.append)
    assert made() == first
    build_python(force=True)
    assert all(new != old for new, old in zip(made(), first, strict=True))
    assert [each.name for each in file.parent.iterdir()] == [file.name], "what is old goes when another is made"
    assert steps == ["Making a component of Python and its standard library", "Compiling it", "Compiling it"]


def test_a_folder_that_others_can_write_to_has_no_python(kept_at: Path) -> None:
    build_python()
    (kept_at / "python").chmod(0o777)
    assert not is_built()
    with pytest.raises(SetupError, match="must be a folder of yours, with access for no other"):
        build_python()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import sys; sys.exit('no space')", "componentize-py ended with 1. no space"),
        ("print('x' * 2000)", "componentize-py ended with 0. " + "x" * 1000 + "$"),
        ("import time; time.sleep(60)", "was not made within 0.1 s"),
    ],
)
def test_why_python_cannot_be_made_is_reported(monkeypatch: pytest.MonkeyPatch, script: str, reason: str) -> None:
    monkeypatch.setattr(python_build, "_SCRIPT", script)
    if "sleep" in script:
        monkeypatch.setattr(python_build, "INSTALL_TIMEOUT_S", 0.1)
    with pytest.raises(SetupError, match=reason):
        build_python()
    assert not is_built()


def test_without_the_builder_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_build, "_BUILDER", "no-such-package")
    python_build._digest.cache_clear()
    try:
        with pytest.raises(SetupError, match="needs the package 'no-such-package', which is missing"):
            python_file()
    finally:
        python_build._digest.cache_clear()


# Environments

UV = """#!/bin/sh
echo "$@" >> "$ASKED"
test -z "$PYTHONPATH$VIRTUAL_ENV" || exit 9
echo "$FAILS"
test -z "$FAILS" || exit 1
test "$HANGS" != "$1" || exec sleep 60
test "$1" != venv || mkdir -p "$5/bin"
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What the `uv` was asked, a line for each time; the cache is empty."""
    program = tmp_path / "bin" / "uv"
    program.parent.mkdir()
    program.write_text(UV)
    program.chmod(0o755)
    given = {"PATH": f"{program.parent}:{os.environ['PATH']}", "ASKED": tmp_path / "asked", "FAILS": "", "HANGS": ""}
    for name, value in {**given, "PYTHONPATH": "x", "VIRTUAL_ENV": "x", "XDG_CACHE_HOME": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path / "asked"


@pytest.mark.parametrize(
    ("files", "requirements"),
    [
        ({}, ()),
        (
            {"requirements.txt": "# why\n\n a==1 \nb\n", "pyproject.toml": "[project]\ndependencies = ['c']"},
            ("a==1", "b"),
        ),
        ({"pyproject.toml": "[project]\ndependencies = ['c', '']"}, ("c",)),
        ({"pyproject.toml": "[tool]"}, ()),
    ],
)
def test_requirements_are_those_of_the_one_file_or_the_other(
    tmp_path: Path, files: dict[str, str], requirements: tuple[str, ...]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert environment_for(tmp_path) == Environment(requirements)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("requirements.txt", "a\n--index-url=x\n", "has '--index-url=x' among its requirements"),
        ("pyproject.toml", "[project", "cannot be read"),
        ("pyproject.toml", "project = 3", "cannot be read"),
        ("pyproject.toml", "[project]\ndependencies = 3", "cannot be read"),
    ],
)
def test_requirements_that_cannot_be_installed_are_refused(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(LoadError, match=reason):
        environment_for(tmp_path)


async def test_an_environment_is_made_once_for_each_set_of_requirements(asked: Path) -> None:
    environment = Environment(("a==1", "b"))
    folder, steps = environment.folder, list[str]()
    assert (folder.parent, len(folder.name)) == (asked.parent / "toolcrib" / "environments", 32)
    assert environment.python == folder / "bin" / "python"
    old = folder.with_name("old")
    old.mkdir(parents=True, mode=0o700)
    old.parent.chmod(0o700)
    os.utime(old, (0, 0))
    await asyncio.gather(environment.ready(steps.append), environment.ready(steps.append))
    await environment.ready(steps.append)
    assert asked.read_text().splitlines() == [
        f"venv -q --python {sys.executable} {folder}",
        f"pip install -q --python {environment.python} -r {folder}/requirements.txt",
    ]
    assert (folder / "requirements.txt").read_text() == "a==1\nb\n"
    assert steps == ["Making a virtual environment", "Installing 2 requirements"]
    assert not old.exists(), "what was not used for long is removed"
    await Environment(()).ready(steps.append)
    assert asked.read_text().splitlines()[2:] == [f"venv -q --python {sys.executable} {Environment(()).folder}"]


async def test_one_that_could_not_be_made_is_made_again(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment(("a",))
    monkeypatch.setenv("FAILS", "x" * 2000 + "no such package")
    with pytest.raises(SetupError) as failed:
        await environment.ready(print)
    assert str(failed.value) == "x" * 985 + "no such package"
    (environment.folder / "half").touch()
    monkeypatch.setenv("FAILS", "")
    monkeypatch.setenv("HANGS", "pip")
    monkeypatch.setattr(python_build, "INSTALL_TIMEOUT_S", 0.5)
    with pytest.raises(SetupError, match=r"It took longer than 0\.5 s\."):
        await environment.ready(print)
    assert not (environment.folder / "half").exists()
    monkeypatch.setenv("HANGS", "")
    monkeypatch.setattr(python_build, "INSTALL_TIMEOUT_S", 600.0)
    await environment.ready(print)


async def test_in_a_folder_that_others_can_write_to_none_is_made(asked: Path) -> None:
    environment = Environment(())
    environment.folder.parent.mkdir(parents=True)
    environment.folder.parent.chmod(0o777)
    with pytest.raises(SetupError, match="must be a folder of this user, with access for no other"):
        await environment.ready(print)
    assert not asked.exists()
