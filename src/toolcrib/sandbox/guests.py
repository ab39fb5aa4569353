"""What a worker process loads WebAssembly tools with: modules, components, and folders of Python.

A guest cannot follow a symbolic link out of its folders, but the host's programs could, that read what it has written
there. The system refuses to make them (Linux, seccomp), so there is no moment at which one is there.
"""

import ctypes
import hashlib
import platform
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core import Context, LoadError, ToolError
from ..machinery import raise_missing_extra
from .guest_http import GuestHttp
from .programs import ProgramFolder, ProgramLimits, RunProgram, environment_of, value_of
from .python_build import BUILD_COMMAND, is_built, python_file

try:
    from .wasm import Engine, Granted, Program
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "WebAssembly tools need", "sandbox")

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
# Of each machine: the numbers of seccomp, symlinkat and symlink, which new ones do not have.
_CALLS = {"x86_64": (317, 266, 88), "aarch64": (277, 36, 36)}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOT_PERMITTED = 0x7FFF0000, 0x00050001


class GuestPrograms:
    """Loads the WebAssembly programs of a worker process, each compiled once."""

    def __init__(self) -> None:
        self._engine = Engine()
        self._python: Program | None = None

    def load(self, where: Mapping[str, Any], name: str) -> RunProgram:
        """Return what runs the module, the component, or the folder of Python at *where*.

        Raises LoadError for what cannot run here, and where it is not what the host has read.
        """
        if any(is_writable for _, _, is_writable in where.get("mounts", ())):
            _refuse_links()
        if "folder" in where:
            return self._load_folder(where, name)
        code = Path(where["file"]).read_bytes()
        if hashlib.sha256(code).hexdigest() != where["sha256"]:
            raise LoadError(f"Its file has changed since the host loaded it ({where['file']}). Load it again.")
        program = self._engine.compile(code)

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            return await _run_guest(program, where, name, arguments, context)

        return run

    def _load_folder(self, where: Mapping[str, Any], name: str) -> RunProgram:
        folder = ProgramFolder(where)
        self._load_python()
        where = {**where, "mounts": [*where["mounts"], ("/tool", str(folder.path), False)]}

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            python = self._load_python()
            if python is None:
                raise ToolError(
                    f"Tool '{name}' runs in the sandbox's Python, which is not there yet. The operator makes it "
                    f"once: {BUILD_COMMAND}",
                    "unavailable",
                )
            folder.require_unchanged(name)
            return await _run_guest(python, where, name, arguments, context)

        return run

    def _load_python(self) -> Program | None:
        if self._python is None and is_built():
            self._python = self._engine.python(python_file())
        return self._python


async def _run_guest(
    program: Program, where: Mapping[str, Any], name: str, arguments: str, context: Context
) -> dict[str, Any]:
    limits = ProgramLimits(**where["limits"])
    environment = environment_of(name, where["variables"], context)
    http = GuestHttp(where.get("hosts", ()), where.get("private_hosts", ()), context.run_on_loop)
    grant = Granted(environment, http.fetch, where["mounts"], where.get("program"))
    try:
        end = await program.run(arguments.encode(), grant, limits)
    finally:
        await http.aclose()
    return value_of(end, name, limits, context)


class _Filter(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _refuse_links() -> None:
    """Let no thread of this process make a symbolic link from now on. Raises LoadError where that is not to be had."""
    calls = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if calls is None or not _install_filter(*calls):
        raise LoadError(
            "It writes in a folder of the host, and this system cannot keep it from leaving links there that lead out "
            "of it. Run it on Linux, where seccomp is allowed, or let it only read."
        )


def _install_filter(seccomp: int, *refused: int) -> bool:
    steps = [(_LOAD, 0, 0, 0)]
    steps += [(_JUMP_IF_EQUAL, len(refused) - number, 0, call) for number, call in enumerate(refused)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOT_PERMITTED)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    libc, program = ctypes.CDLL(None), _Filter(len(steps), ctypes.addressof(code))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    done: int = libc.syscall(seccomp, _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(program))
    return done == 0
