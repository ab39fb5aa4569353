"""Both type checkers accept what is right, and refuse what is wrong, line by line."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
IGNORED = re.compile(r"  # type: ignore\[[a-z, -]+\]$", re.MULTILINE)


def lines_of_mypy(file: Path) -> set[int]:
    """The lines of *file* that mypy --strict refuses."""
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--cache-dir", str(file.parent / "cache")]
    ran = subprocess.run([*command, "--output=json", file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr + ran.stdout
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert {Path(error["file"]).name for error in found} <= {file.name}, ran.stdout
    return {error["line"] for error in found if error["severity"] == "error"}


def lines_of_pyright(file: Path) -> set[int]:
    """The lines of *file* that pyright refuses in strict mode."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(file)]
    ran = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr + ran.stdout
    return {error["range"]["start"]["line"] + 1 for error in json.loads(ran.stdout)["generalDiagnostics"]}


@pytest.mark.full
@pytest.mark.parametrize("refused", [lines_of_mypy, lines_of_pyright], ids=["mypy", "pyright"])
def test_a_type_checker_accepts_what_is_right_and_refuses_each_line_that_is_wrong(
    tmp_path: Path, refused: Callable[[Path], set[int]]
) -> None:
    for name in ("accepted.py", "refused.py"):
        text = (HERE / name).read_text()
        marked = {number for number, line in enumerate(text.splitlines(), 1) if IGNORED.search(line)}
        assert bool(marked) == (name == "refused.py")
        file = tmp_path / name
        file.write_text(text)
        assert refused(file) == set()
        file.write_text(IGNORED.sub("", text))
        assert refused(file) == marked


@pytest.mark.parametrize("name", ["accepted", "refused"])
def test_the_files_that_are_checked_can_be_imported(name: str) -> None:
    code = compile((HERE / f"{name}.py").read_text(), name, "exec")
    exec(code, {"__name__": name})
