"""Commands of stories: run to their end in the user's folder, and the type checkers on the user's file."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path


def run(folder: Path, environ: Mapping[str, str], *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)


def type_checked(file: Path, programs: Path) -> Iterator["subprocess.CompletedProcess[str]"]:
    """Yield what mypy and pyright say of *file*, both strict, with what is installed beside *programs*."""
    (file.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    python = str(programs / "python")
    mypy = ["mypy", "--strict", "--python-executable", python, file.name]
    for checker in (mypy, ["pyright", "--pythonpath", python, "-p", str(file.parent)]):
        command = [sys.executable, "-m", *checker]
        yield subprocess.run(command, cwd=file.parent, capture_output=True, text=True)
