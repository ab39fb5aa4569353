"""`hyperpocket.tool.wasm.invoker`: what runs the program in a tool's folder."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from .....core import Context, LoadError, ToolError, ToolSpec, Work
from .....sandbox import folder_digest
from .....tools import from_work, program_work
from .....workbench import Workbench, sync
from .script import ScriptRuntime

_LIMITS = {"memory_bytes": 256 * 1024**2, "output_bytes": 8 * 1024**2}
MAX_PROGRAMS = 1000


@dataclass(frozen=True, slots=True)
class Running:
    """The call that a program runs for, and the *digest* of the folder *tool_path* as it was loaded."""

    context: Context
    tool_path: str
    digest: str


RUNNING: ContextVar[Running | None] = ContextVar("toolcrib_hyperpocket_running", default=None)


class WasmInvoker:
    """Runs programs in the sandbox: with no files but their own, no network, and within limits.

    With `trusted`, what cannot run there has a process and an environment of its own, and this process's permissions. A
    subclass may run programs elsewhere. A Pocket calls `ainvoke`.
    """

    trusted: bool = False

    def invoke(self, tool_path: str, runtime: ScriptRuntime, body: Any, envs: Mapping[str, str], **kwargs: Any) -> str:
        """`ainvoke`, for sync code; also inside a running loop."""
        return sync.run(self.ainvoke(tool_path, runtime, body, envs, **kwargs))

    async def ainvoke(
        self, tool_path: str, runtime: ScriptRuntime, body: Any, envs: Mapping[str, str], **kwargs: Any
    ) -> str:
        """Run the program in the folder *tool_path* with *body* as JSON and *envs* as its environment.

        Returns its output. Raises ToolError where it failed or was stopped, or cannot run.
        """
        running = RUNNING.get()
        name = Path(tool_path).name if running is None else running.context.call.tool
        try:
            digest = folder_digest(Path(tool_path))
            if running is not None and running.tool_path == tool_path:
                digest = running.digest
            work = _work(tool_path, digest, tuple(sorted(envs)), self.trusted)
        except LoadError as error:
            raise ToolError(f"Tool '{name}' cannot run: {error}", "unavailable") from None
        if running is not None:
            host: Any = _HostWith(running.context.host, envs)
            return str(await work(body, replace(running.context, host=host, credentials={})))
        tool = from_work(ToolSpec("program", "", {"type": "object"}), work, home=__name__)
        async with Workbench([tool], variables=envs) as bench:
            return str((await bench.call("program", body)).unwrap())


class _HostWith:
    """The *host* of a call, with other *variables*: all that the program is to have."""

    def __init__(self, host: Any, variables: Mapping[str, str]) -> None:
        self._host = host
        self.variables = variables

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


@lru_cache(MAX_PROGRAMS)
def _work(tool_path: str, digest: str, variables: tuple[str, ...], trusted: bool) -> Work:
    """Return the work of the program in the folder *tool_path*, as *digest* has it. Raises LoadError."""
    folder = Path(tool_path)
    mains = [folder / "main.py"] if (folder / "main.py").is_file() else sorted(folder.glob("*/__main__.py"))
    if len(mains) != 1:
        raise LoadError(f"it has no main.py, and {len(mains)} packages with a __main__.py. It needs one of these.")
    main = mains[0].relative_to(folder).as_posix()
    try:
        return program_work(folder, main, digest=digest, limits=_LIMITS, variables=variables, trusted=trusted)
    except LoadError as error:
        raise LoadError(f"{error} A WasmTool is trusted by tool.invoker.trusted = True.") from None
