"""Some test fails for a broken public symbol of a dialect: scripts/break_dialects.py breaks them all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "break_dialects.py"
MINIMUM = 0.8


@pytest.mark.full
def test_tests_detect_eighty_percent_of_the_broken_symbols_of_each_dialect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--json"], stdout=subprocess.PIPE, text=True)
    assert done.stdout, "Standard error has the reason why the script did not start."
    report = json.loads(done.stdout)
    shares = {dialect: 1 - survived / total for dialect, (total, survived) in report["mutants"].items()}
    with capsys.disabled():
        for dialect, (total, survived) in report["mutants"].items():
            print(f"\n{dialect}: {total - survived} of {total} broken symbols detected ({shares[dialect]:.0%})")
    assert set(shares) == {"autogen", "spark", "swarm"}
    assert {dialect: share for dialect, share in shares.items() if share < MINIMUM} == {}, report["undetected"]
