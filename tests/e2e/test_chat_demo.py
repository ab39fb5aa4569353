"""The chat of `make demo` is a transcript, and a check of itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def demo(script: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_every_turn_of_the_chat_shows_what_it_says() -> None:
    ran = demo(ROOT / "examples/chat/demo.py")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert ran.stdout.endswith("\n2 of 2 turns ended as expected.\n")
    assert "> Who wrote it?\n[history " in ran.stdout


def test_the_chat_fails_when_a_turn_does_not_show_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "examples/chat/demo.py").read_text(encoding="utf-8")
    changed = text.replace("Ada Example, in two commits", "Bob Example, in two commits")
    changed = changed.replace("Path(__file__).resolve().parent", f"Path({str(ROOT / 'examples/chat')!r})")
    script = tmp_path / "demo.py"
    script.write_text(changed, encoding="utf-8")
    ran = demo(script)
    assert ran.returncode == 1
    assert "UNEXPECTED: 'Bob Example, in two commits.\\n' is not shown" in ran.stdout
