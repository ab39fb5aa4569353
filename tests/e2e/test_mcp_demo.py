"""`make demo` is a transcript, and a check of itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def demo(script: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_every_call_of_the_demo_ends_as_it_says() -> None:
    ran = demo(ROOT / "examples/client/demo.py")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert re.search(r"^(\d+) of \1 calls ended as expected\.$", ran.stdout, re.M)
    assert "  repaired limit from string to integer\n" in ran.stdout


@pytest.mark.full
def test_the_demo_fails_when_a_call_does_not_end_as_it_says(tmp_path: Path) -> None:
    text = (ROOT / "examples/client/demo.py").read_text(encoding="utf-8")
    changed = text.replace("2025-06-01T16:30:00+09:00", "2025-06-01T17:30:00+09:00")
    changed = changed.replace("Path(__file__).resolve().parents[2]", f"Path({str(ROOT)!r})")
    script = tmp_path / "demo.py"
    script.write_text(changed, encoding="utf-8")
    ran = demo(script)
    assert ran.returncode == 1
    assert "UNEXPECTED: the text does not contain '2025-06-01T17:30:00+09:00'" in ran.stdout
