"""Story 2, its second half: a tool added to the file and saved appears in the connected client."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent

OUTPUT = """\
['in_stock', 'total', 'read_result']
changed ['in_stock', 'total', 'order', 'read_result']
3 x bolt
['in_stock', 'total', 'order', 'read_result']
1 x nut
changed ['in_stock', 'total', 'read_result']
"""


@pytest.mark.full
@pytest.mark.parametrize("revision", ["legacy", "auto", "2026-07-28"])
def test_a_connected_client_follows_the_file_and_a_syntax_error_keeps_the_tools(
    revision: str,
    tmp_path: Path,
    clean_env: Callable[..., Path],
    user_environ: Callable[[Path], dict[str, str]],
) -> None:
    programs = clean_env("--extra", "serve")
    shutil.copy(HERE / "my_changing_tools.py", tmp_path)
    shutil.copy(HERE / "stock_tools.py", tmp_path / "tools.py")
    lines = (HERE / "stock_tools.py").read_text().count("\n")
    with (tmp_path / "log").open("w") as log:
        done = subprocess.run(
            ["python", "my_changing_tools.py", revision],
            cwd=tmp_path,
            env=user_environ(programs),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=60,
        )
    logged = (tmp_path / "log").read_text()
    assert (done.returncode, done.stdout) == (0, OUTPUT), logged
    (error,) = [line for line in logged.splitlines() if "SyntaxError" in line]
    assert error == (
        "WARNING toolcrib.watch: Not loaded, so its tools stay as they were: "
        f"{tmp_path.resolve()}/tools.py:{lines + 8}: SyntaxError: invalid syntax"
    )
    # The tools are imported once at the start and once for each change; what that prints is no part of the protocol.
    assert logged.count("tools.py is imported\n") == 3
