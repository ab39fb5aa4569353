"""How the Python of the sandbox is made and kept, with a builder that makes a small component in its place."""

import os
from pathlib import Path

import pytest

from toolcrib.core import SetupError
from toolcrib.sandbox import python_build
from toolcrib.sandbox.python_build import build_python, is_built, python_file

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
