"""A change of the code is noticed: scripts/mutants.py makes a sample, and runs the tests that reach each of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from . import fuzz

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "mutants.py"


@pytest.mark.nightly
def test_tests_notice_most_changes_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, str(SCRIPT), "--json", "--seed", str(fuzz.seed(1))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert done.stdout, "Standard error has the reason why the script did not start."
    report = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\nchanges of the code, seed {report['seed']}")
        for room, (noticed, total) in report["noticed"].items():
            print(f"{room}: {noticed} of {total} noticed")
    assert report["stale"] == [], "These are listed as equivalent in tests/mutants.toml, and are no longer there."
    assert report["too_low"] == {}, report["survivors"]
    assert done.returncode == 0
