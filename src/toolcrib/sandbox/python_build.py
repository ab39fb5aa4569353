"""What runs folders of Python, made once on this machine and kept in the user's cache.

    the Python of the sandbox    a component for WebAssembly
    an environment               outside of the sandbox, for folders that the host trusts: one for each set of
                                 requirements, which uv or pip installs

Each has a digest of whatever it is made of in its name, so that another version of Toolcrib or of its tools makes its
own. Only making them needs a network.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..core import LoadError, SetupError
from ..schema.toml import parse_toml
from .cache import cache_folder, hold, private_folder, trim

INSTALL_TIMEOUT_S = 600.0
_LOCK_INTERVAL_S = 0.1
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
    from importlib.metadata import PackageNotFoundError, version  # which takes long, and environments need none

    try:
        made_of = f"{_BUILDER} {version(_BUILDER)}".encode()
    except PackageNotFoundError:
        raise SetupError(
            f"Python in the sandbox needs the package '{_BUILDER}', which is missing: pip install 'toolcrib[sandbox]'"
        ) from None
    for file in sorted(_PARTS.glob("*.[pw]*")):
        made_of += b"\0" + file.read_bytes()
    return hashlib.sha256(made_of).hexdigest()[:32]


# Environments outside of the sandbox


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment for *requirements*, lines as in `requirements.txt`; its `python` is there once it is `ready`."""

    requirements: tuple[str, ...]

    @property
    def folder(self) -> Path:
        made_of = "\n".join((sys.version, sys.executable, *self.requirements))
        return cache_folder("environments") / hashlib.sha256(made_of.encode()).hexdigest()[:32]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    async def ready(self, report: Callable[[str], None]) -> None:
        """Make it and install its requirements, unless that was done; it stays while we live. Raises SetupError."""
        if hold(self.folder) and self._marker.exists():
            return
        if private_folder("environments") is None:
            raise SetupError(f"{self.folder.parent} must be a folder of this user, with access for no other.")
        async with _locked(self.folder.with_suffix(".lock")):
            if hold(self.folder) and self._marker.exists():  # another process has made it meanwhile
                return
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            hold(self.folder)
            report("Making a virtual environment")
            uv = shutil.which("uv")
            make = [uv, "venv", "-q", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
            await _run([*make, str(self.folder)])
            if self.requirements:
                report(f"Installing {len(self.requirements)} requirements")
                file = self.folder / "requirements.txt"
                file.write_text("\n".join(self.requirements) + "\n")
                python = str(self.python)
                install = [uv, "pip", "install", "-q", "--python", python] if uv else [python, "-m", "pip", "install"]
                await _run([*install, "-r", str(file)])
            self._marker.touch()
            trim("environments")

    @property
    def _marker(self) -> Path:
        return self.folder / ".ready"


def environment_for(folder: Path) -> Environment:
    """Return the environment that the `requirements.txt` in *folder* needs, or its `pyproject.toml`.

    Raises LoadError.
    """
    try:
        lines = _lines_in(folder)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise LoadError(f"The requirements of {folder} cannot be read: {error}") from None
    requirements = tuple(line for line in lines if line and not line.startswith("#"))
    if options := [line for line in requirements if line.startswith("-")]:
        raise LoadError(f"{folder} has '{options[0][:60]}' among its requirements. They are packages, without options.")
    return Environment(requirements)


def _lines_in(folder: Path) -> list[str]:
    file, project = folder / "requirements.txt", folder / "pyproject.toml"
    if file.is_file():
        return [line.strip() for line in file.read_text("utf-8").splitlines()]
    if project.is_file():
        return list(parse_toml(project.read_text("utf-8")).get("project", {}).get("dependencies", ()))
    return []


async def _run(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(INSTALL_TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        raise SetupError(f"It took longer than {INSTALL_TIMEOUT_S:g} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SetupError(output.decode(errors="replace").strip()[-1000:])


@contextlib.asynccontextmanager
async def _locked(file: Path) -> AsyncGenerator[None]:
    """Hold *file* in the block, one process at a time."""
    import fcntl  # not on every system

    with file.open("wb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_INTERVAL_S)
        yield
