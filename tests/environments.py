"""Python environments of their own, for what cannot be installed beside Toolcrib. Each is made once, from PyPI."""

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[1]


def python_with(*requirements: str) -> str:
    """The Python of an environment in which *requirements* are installed."""
    name = hashlib.sha256(" ".join(requirements).encode()).hexdigest()[:12]
    home = ROOT / ".cache" / "environments" / name
    home.parent.mkdir(parents=True, exist_ok=True)
    python, done = home / "bin" / "python", home / ".done"
    with Path(f"{home}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes wait
        if not done.is_file():
            uv = find_uv_bin()
            _run(uv, "venv", "-q", "--clear", "--seed", "--python", sys.executable, str(home))
            _run(uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(python), *requirements)
            done.touch()
    return str(python)


def _run(*command: str) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
