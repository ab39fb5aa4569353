"""CrewAI, whose MCP client is not ours, with our tools over MCP, as its page says."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "bridges" / "crewai.md"


@pytest.mark.nightly
def test_its_agents_use_a_crib_over_mcp(
    clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    ((program, expected),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.S)
    ours, theirs = clean_env("--extra", "serve"), clean_env("--alone", "--free", "--with", "crewai")
    (tmp_path / "agent.py").write_text(program)
    quiet = {"HOME": str(tmp_path), "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
    environ = user_environ(ours) | quiet
    done = subprocess.run([theirs / "python", "agent.py"], cwd=tmp_path, env=environ, capture_output=True, text=True)
    # Between what the example prints, CrewAI prints what it does.
    assert done.returncode == 0 and expected.strip() in done.stdout, done.stdout[-20_000:] + done.stderr[-5_000:]
