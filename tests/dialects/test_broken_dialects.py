"""A broken public symbol of a dialect is noticed by some test: scripts/break_dialects.py breaks them all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "break_dialects.py"
WANTED = 0.8


@pytest.mark.full
def test_at_least_eighty_of_a_hundred_broken_symbols_are_noticed_in_each_dialect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--json"], stdout=subprocess.PIPE, text=True)
    assert done.stdout, "The script says on standard error why it could not begin."
    found = json.loads(done.stdout)
    shares = {dialect: 1 - lived / every for dialect, (every, lived) in found["mutants"].items()}
    with capsys.disabled():
        for dialect, (every, lived) in found["mutants"].items():
            print(f"\n{dialect}: {every - lived} of {every} broken symbols noticed ({shares[dialect]:.0%})")
    assert set(shares) == {"autogen", "spark", "swarm"}
    assert {dialect: share for dialect, share in shares.items() if share < WANTED} == {}, found["unnoticed"]
