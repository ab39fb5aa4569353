"""A fresh clone, on a machine without uv: its Makefile sets up what it needs, and the demo runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.full
def test_a_fresh_clone_sets_itself_up_without_uv_and_runs_its_demo(tmp_path: Path) -> None:
    clone = tmp_path / "toolcrib"
    subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(clone)], check=True)
    ours = ("PYTHON", "PYTEST", "VIRTUAL_ENV", "MAKE", "MFLAGS", "TOOLCRIB")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    folders = os.environ["PATH"].split(os.pathsep)
    environ["PATH"] = os.pathsep.join(folder for folder in folders if not (Path(folder) / "uv").exists())
    for target in (".venv/.ready", "demo"):
        done = subprocess.run(
            ["make", f"PYTHON={sys.executable}", target],
            cwd=clone,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout
    assert done.stdout.strip()
    status = subprocess.run(["git", "status", "--short"], cwd=clone, check=True, capture_output=True, text=True)
    assert status.stdout == ""
