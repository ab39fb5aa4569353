"""What a worker process imports its tools with. Runs in the worker, not in the host."""

import importlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core import Context, LoadError
from .function import Tool
from .loading import load
from .modules import source_hash


class WorkerTools:
    """Imports the tools of a worker process, each once, and what a host sends for them."""

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._versions: dict[str, Any] = {}

    def load(self, where: Mapping[str, Any], name: str) -> Callable[[str, Context], Awaitable[dict[str, Any]]]:
        """Return what runs the tool at *where*: arguments as JSON text and the Context → its value as JSON data.

        Raises LoadError where it is not what the host loaded, and what importing it raises.
        """
        module = where["module"]
        if self._versions.setdefault(module, where["version"]) != where["version"]:
            raise LoadError(f"A worker has imported an older version of {module}.")
        if where["by_file"] and source_hash(Path(where["file"])) != where["sha256"]:
            raise LoadError(f"Its file has changed since the host loaded it ({where['file']}). Load it again.")
        value = attrgetter(where["path"])(self._module(where))
        tool = Tool(
            value.fn if isinstance(value, Tool) else value,
            name=name,
            isolation="process",
            parameters=where["parameters"],
            examples=(),
        )
        codec = tool.codec
        assert codec is not None
        if codec.where["schema"] != where["schema"]:
            raise LoadError(f"Its file has changed since the host loaded it ({where['file']}). Load it again.")

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            return codec.write_value(await codec.work(codec.read_arguments(arguments), context))

        return run

    def _module(self, where: Mapping[str, Any]) -> ModuleType:
        name, file = where["module"], where["file"]
        if not where["by_file"]:
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                missing = error.name or ""
                if file is None or not (name == missing or name.startswith(f"{missing}.")):
                    raise
                # The host imported it in another way, as test runners do.
        if file not in self._modules:
            tool = load(f"{file}:{where['path']}").tools[0]
            self._modules[file] = sys.modules[tool.fn.__module__]
        return self._modules[file]
