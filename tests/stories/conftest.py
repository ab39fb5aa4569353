"""Clean environments with the wheel in them, made once for all tests: see scripts/clean_env.py."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CLEAN_ENV = Path(__file__).parents[2] / "scripts" / "clean_env.py"

CleanEnv = Callable[..., Path]


@pytest.fixture(scope="session")
def clean_env(tmp_path_factory: pytest.TempPathFactory) -> CleanEnv:
    """Gives the folder of an environment's programs: `clean_env("--extra", "serve")`."""
    folder = tmp_path_factory.getbasetemp() / "clean"

    def make(*options: str) -> Path:
        env = folder / "".join(c if c.isalnum() else "_" for c in " ".join(options) or "base")
        if not (env / "env").exists():
            command = [sys.executable, str(CLEAN_ENV), str(env), "--dist", str(folder / "dist"), *options]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                shutil.rmtree(env, ignore_errors=True)  # half an environment is none for the next who asks
                pytest.fail(done.stdout)
        return env / "env" / "bin"

    return make


@pytest.fixture
def user_environ() -> Callable[[Path], dict[str, str]]:
    """The environment variables of a user whose programs are first in a folder: nothing of this checkout."""

    def environ(programs: Path) -> dict[str, str]:
        ours = ("PYTHON", "PYTEST", "VIRTUAL_ENV", "COV", "TOOLCRIB", "OPENAI")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**kept, "PATH": f"{programs}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"}

    return environ
