"""Story 4, dangerous: a destructive tool asks, another person approves, it runs once.

In one process; `test_interrupted.py` kills it. Left out until calls outlive the process: that the same call
repeated gives the first result.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent

WAITS = (
    "pending: Tool 'drop' has not run: it waits for approval: May this table be dropped for good? "
    "Call it again with the same arguments when that is done."
)

OUTPUT = f"""\
alice: success: 40
alice: {WAITS}
shown: drop {{"table": "orders", "keep_backup": true}} for alice
the same question: True 1
refused: foreign
alice: {WAITS}
bob: {WAITS}
alice: {WAITS}
another question: True
-- orders is dropped
alice: {WAITS}
alice: success: 40 rows dropped, with a backup
refused: replayed
alice: error: Tool 'drop' was not executed: 'bob' denied it: keep the backup
left: customers
record: alice drop success rule 1 ask bob
record: alice drop denied rule 1 ask bob
"""


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """The story's file, alone in a folder."""
    return Path(shutil.copy(HERE / "dangerous.py", tmp_path))


@pytest.mark.full
def test_a_destructive_tool_runs_once_after_another_person_has_approved(
    story: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> None:
    done = subprocess.run(
        ["python", "-X", "dev", "-W", "error", story.name],
        cwd=story.parent,
        env=user_environ(clean_env()),
        capture_output=True,
        text=True,
        timeout=60,
    )
    # In this mode asyncio also reports callbacks that took 0.1 s, which a busy machine makes of any.
    errors = [
        line for line in done.stderr.splitlines() if not re.fullmatch(r"Executing <.*> took [\d.]+ seconds", line)
    ]
    assert (done.returncode, errors, done.stdout) == (0, [], OUTPUT)


@pytest.mark.full
def test_mypy_and_pyright_accept_the_file_strictly(story: Path, clean_env: Callable[..., Path]) -> None:
    python = clean_env() / "python"
    (story.parent / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), story.name]
    pyright = [sys.executable, "-m", "pyright", "--pythonpath", str(python), "-p", str(story.parent)]
    for command in (mypy, pyright):
        done = subprocess.run(command, cwd=story.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
