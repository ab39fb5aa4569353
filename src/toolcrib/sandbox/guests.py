"""What a worker process loads WebAssembly tools with: modules, components, and folders of Python."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core import Context, LoadError, ToolError
from ..machinery import raise_missing_extra
from .guest_http import GuestHttp
from .links import refuse_links
from .programs import ProgramFolder, ProgramLimits, RunProgram, environment_of, value_of
from .python_build import BUILD_COMMAND, is_built, python_file

try:
    from .wasm import Engine, Granted, Program
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "WebAssembly tools need", "sandbox")


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
            refuse_links()
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
