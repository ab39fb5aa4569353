"""The Python of the sandbox: a component that is made once on this machine, and kept in the user's cache folder.

Its name has a digest of whatever it is made of, so that another version of Toolcrib or of its tools makes its own.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..core import SetupError
from .cache import cache_folder, private_folder, trim
from .environments import INSTALL_TIMEOUT_S

BUILD_COMMAND = "toolcrib sandbox build-python"
_PARTS = Path(__file__).parent / "python"
_BUILDER = "componentize-py"
# In a process of its own, without the environment of this one: what is imported there is kept for good.
_SCRIPT = "from componentize_py import script; script()"


def is_built() -> bool:
    """Return whether the component is there. Raises SetupError where the extra `sandbox` is not installed."""
    return python_file().is_file() and private_folder("python") is not None


def python_file() -> Path:
    """Return where the component is, once it was built."""
    name = f"{_digest()}.wasm"  # it raises where the extra is missing
    return cache_folder("python") / name


def build_python(report: Callable[[str], None] = lambda _: None, *, force: bool = False) -> None:
    """Make the component and compile it, unless that was done; it takes up to a minute. *report* gets each step.

    Raises SetupError where it cannot be made.
    """
    python = python_file()
    is_new = force or not is_built()
    if is_new:
        report("Making a component of Python and its standard library")
        folder = private_folder("python")
        if folder is None:
            raise SetupError(f"{python.parent} must be a folder of yours, with access for no other. Remove it.")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            file = Path(scratch) / "python.wasm"
            _componentize(file)
            file.replace(python)
        trim("python")
    from .wasm import Engine  # it brings wasmtime

    report("Compiling it")
    Engine().python(python, again=is_new)


def _componentize(file: Path) -> None:
    command = [sys.executable, "-I", "-c", _SCRIPT, "-q", "-d", str(_PARTS / "guest.wit"), "-w", "python"]
    command += ["componentize", "-p", str(_PARTS), "toolcrib_program", "-o", str(file)]
    try:
        done = subprocess.run(  # noqa: S603 - ourselves
            command,
            env={"PATH": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"Python for the sandbox was not made within {INSTALL_TIMEOUT_S:g} s.") from None
    if done.returncode or not file.is_file():
        last = (done.stderr or done.stdout).strip()[-1000:]
        raise SetupError(f"Python for the sandbox cannot be made: {_BUILDER} ended with {done.returncode}. {last}")


@cache
def _digest() -> str:
    try:
        made_of = f"{_BUILDER} {version(_BUILDER)}".encode()
    except PackageNotFoundError:
        raise SetupError(
            f"Python in the sandbox needs the package '{_BUILDER}', which is missing: pip install 'toolcrib[sandbox]'"
        ) from None
    for file in sorted(_PARTS.glob("*.[pw]*")):
        made_of += b"\0" + file.read_bytes()
    return hashlib.sha256(made_of).hexdigest()[:32]
