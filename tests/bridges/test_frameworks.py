"""Each bridge beside its framework's newest release, in an environment of their own, as a user would install them.

The tests of a bridge are in in_<name>.py, which pytest runs there, with the examples of the bridge's page.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcrib import bridges

HERE = Path(__file__).parent


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(bridges.FRAMEWORKS))
def test_the_bridge_does_what_its_page_says(
    name: str, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    extra = bridges.FRAMEWORKS[name]
    programs = clean_env(
        "--free", "--extra", extra, "--extra", "search", "--with", "pytest", "--with", "pytest-asyncio"
    )
    command = [programs / "python", "-m", "pytest", "-c", HERE / "frameworks.ini", "-p", "no:cacheprovider"]
    files = [HERE / f"in_{name}.py", HERE / "in_pages.py"]
    environ = {**user_environ(programs), "BRIDGE": name, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    done = subprocess.run([*command, *files], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
