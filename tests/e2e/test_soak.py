"""Clients that come, go, cancel and break off: benchmarks/soak.py says what it saw, and fails by itself.

It looks at the second half, which is a minute here. In the first, what is kept for lost streams comes to its bounds.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="it looks at the server in /proc")
def test_a_minute_of_clients_costs_no_answer_and_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run([sys.executable, str(SOAK), "--seconds", "120"], capture_output=True, text=True, timeout=400)
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 answers lost or mixed" in done.stdout
