"""`make demo` is a transcript, and a check of itself."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full  # `make demo` runs them, and fails where one does not end as it says
@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("client", r"\n  repaired limit from string to integer\n(.*\n)*(\d+) of \2 calls ended as expected\.\n"),
        ("chat", r"> Who wrote it\?\n\[history (.*\n)*2 of 2 turns ended as expected\.\n"),
    ],
)
def test_every_call_of_a_demo_ends_as_it_says(script: str, shown: str) -> None:
    if script == "chat" and shutil.which("git") is None:
        pytest.skip("git is not installed")
    command = [sys.executable, f"examples/{script}/demo.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert re.search(shown, done.stdout)
