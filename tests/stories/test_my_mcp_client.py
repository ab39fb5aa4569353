"""Story 2, my MCP client: `toolcrib serve tools.py --stdio` under the official client."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .running import run

HERE = Path(__file__).parent

OUTPUT = """\
in_stock - How many of a part are in stock.
total - Add prices up.
read_result - Read a result that was too large to be shown whole, a part at a time.
success 40 {'result': 40}
success 3 {'result': 3}
error Tool 'in_stock' takes no argument 'prt'. Did you mean 'part'? It takes: part. None
error Tool 'in_stock' failed: KeyError (reference REFERENCE). The detail is in the log. None
"""


@pytest.mark.full
@pytest.mark.parametrize("revision", ["legacy", "auto", "2026-07-28"])
def test_the_official_client_lists_and_calls_what_the_command_serves(
    revision: str,
    tmp_path: Path,
    clean_env: Callable[..., Path],
    user_environ: Callable[[Path], dict[str, str]],
) -> None:
    programs = clean_env("--extra", "serve")
    shutil.copy(HERE / "my_mcp_client.py", tmp_path)
    shutil.copy(HERE / "stock_tools.py", tmp_path / "tools.py")
    done = run(tmp_path, user_environ(programs), "python", "my_mcp_client.py", revision)
    assert done.returncode == 0, done.stderr
    (reference,) = re.findall(r"\(reference (\w+)\)", done.stdout)
    assert done.stdout == OUTPUT.replace("REFERENCE", reference)
    # What the tools print goes to standard error, and what they opened is closed when the client leaves.
    assert "tools.py is imported\n" in done.stderr
    assert "looking for bolt\n" in done.stderr
    assert f"(reference {reference})" in done.stderr
    assert "KeyError: 'gear'" in done.stderr
    assert (tmp_path / "closed").exists()
