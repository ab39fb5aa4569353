"""What a worker process runs components and folders of Python with. Runs in the worker, not in the host."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ..core import Context, LoadError, ToolError
from .components import Component, Components, Granted, Raised
from .folders import folder_digest, folder_stamp
from .guest import environment_of, text_of, tool_errors
from .guest_http import GuestHttp
from .modules import ProgramLimits
from .python_build import BUILD_COMMAND, python_state

Run = Callable[[str, Context], Awaitable[dict[str, Any]]]


class GuestComponents:
    """Loads the components of a worker process, each compiled once."""

    def __init__(self) -> None:
        self._components = Components()
        self._python: Component | None = None

    def load(self, where: Mapping[str, Any], name: str) -> Run:
        """Return what runs the component, or the folder of Python, at *where*: JSON on standard input → what it wrote.

        Raises LoadError for what cannot run here, and where it is not what the host has read.
        """
        if (folder := where.get("folder")) is not None:
            return self._load_folder(Path(folder), where, name)
        code = Path(where["file"]).read_bytes()
        if hashlib.sha256(code).hexdigest() != where["sha256"]:
            raise LoadError(f"Its file has changed since the host loaded it ({where['file']}). Load it again.")
        component = self._components.compile(code)

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            return await _run(component, where, name, arguments, context)

        return run

    def _load_folder(self, folder: Path, where: Mapping[str, Any], name: str) -> Run:
        stamp = folder_stamp(folder)
        if folder_digest(folder) != where["sha256"]:
            raise LoadError(f"Its folder has changed since the host loaded it ({folder}). Load it again.")
        self._load_python()
        mounted = {**where, "mounts": [*where["mounts"], ("/tool", str(folder), False)]}

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            python = self._load_python()
            if python is None:
                raise ToolError(
                    f"Tool '{name}' runs in the sandbox's Python, which is not there yet. The operator makes it "
                    f"once: {BUILD_COMMAND}",
                    "unavailable",
                )
            if folder_stamp(folder) != stamp and folder_digest(folder) != where["sha256"]:
                raise ToolError(f"The folder of tool '{name}' has changed since it was loaded.", "unavailable")
            return await _run(python, mounted, name, arguments, context)

        return run

    def _load_python(self) -> Component | None:
        if self._python is None and (state := python_state()).is_built:
            self._python = self._components.python(state.file)
        return self._python


async def _run(
    component: Component, where: Mapping[str, Any], name: str, arguments: str, context: Context
) -> dict[str, Any]:
    limits = ProgramLimits(**where["limits"])
    environment = environment_of(name, where["variables"], context)
    http = GuestHttp(where["hosts"], where["private_hosts"])
    granted = Granted(environment, http.fetch, where["mounts"], where.get("program"))
    try:
        with tool_errors(name, limits):
            ended = await component.run(arguments.encode(), granted, limits)
    except Raised as raised:
        # The traceback is for the developer, its last line for the model as well.
        context.log.error("%s", raised.error_output.decode(errors="replace").rstrip())
        if str(raised).startswith("MemoryError"):
            most = limits.memory_bytes // 1024**2
            reason = f"Tool '{name}' was stopped: it needed more than the {most} MiB of memory that it may have."
            raise ToolError(reason, "trapped") from None
        raise ToolError(f"Tool '{name}' failed: {raised}") from None
    finally:
        await http.aclose()
    return text_of(ended, name, context)
