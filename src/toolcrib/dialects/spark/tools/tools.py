"""`spark.tools.tools`: tools with a hand-written spec, renamed tools, and the validation of specs and names."""

import copy
from collections.abc import Awaitable
from typing import Any, Protocol

from ....core import DefinitionError
from ....schema import returns_awaitable
from ....tools import require_name
from ._core_tool import normalize_schema, schema_in
from .decorator import DecoratedFunctionTool, FunctionTool
from .types import BaseTool, ToolResult, ToolSpec, ToolUse, write_hints

__all__ = [
    "InvalidToolUseNameException",
    "PythonAgentTool",
    "ToolFunc",
    "normalize_schema",
    "normalize_tool_spec",
    "renamed",
    "validate_tool_use",
    "validate_tool_use_name",
]


class InvalidToolUseNameException(Exception):
    """The name in a ToolUse is missing or is not a valid tool name."""


class ToolFunc(Protocol):
    """The function of a PythonAgentTool."""

    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> ToolResult | Awaitable[ToolResult]: ...


class PythonAgentTool(FunctionTool[..., Any]):
    """A function with a hand-written spec. Arguments are checked against the spec."""

    def __init__(
        self,
        tool_name: str,
        tool_spec: ToolSpec,
        tool_func: ToolFunc,
        *,
        long_running: bool = False,
        supports_async: bool | None = None,
    ) -> None:
        self._name = tool_name
        self._tool_spec = tool_spec
        self.tool_func = tool_func
        self._is_async = returns_awaitable(tool_func)
        self._supports_async = self._is_async if supports_async is None else supports_async
        self._is_long_running = long_running
        write_hints(self, tool_spec)

    @property
    def tool_spec(self) -> ToolSpec:
        return self._tool_spec

    @property
    def tool_type(self) -> str:
        return "python"


def renamed(tool: BaseTool, name: str) -> BaseTool:
    """Return *tool* under another *name*, in its spec too, since a model calls the name that it sees."""
    if isinstance(tool, DecoratedFunctionTool):
        return tool.named(name)
    members = {
        "__module__": type(tool).__module__,
        "tool_name": name,
        "tool_spec": property(lambda _: {**copy.deepcopy(tool.tool_spec), "name": name}),
    }
    twin = copy.copy(tool)
    vars(twin).pop("_built", None)
    twin.__class__ = type(type(tool).__name__, (type(tool),), members)
    return twin


def validate_tool_use(tool: ToolUse) -> None:
    """Raise InvalidToolUseNameException for a name that `validate_tool_use_name` refuses."""
    validate_tool_use_name(tool)


def validate_tool_use_name(tool: ToolUse) -> None:
    """Raise InvalidToolUseNameException for a name that is missing, longer than 64, or not of `a-z A-Z 0-9 _ -`."""
    if "name" not in tool:
        raise InvalidToolUseNameException("tool name missing")
    name: Any = tool["name"]
    try:
        require_name(name)
    except DefinitionError:
        problem = "length" if isinstance(name, str) and len(name) > 64 else "pattern"
        raise InvalidToolUseNameException(
            f"tool_name=<{str(name)[:64]}> | invalid tool name {problem}: 1 to 64 letters, digits, '_' and '-'"
        ) from None


def normalize_tool_spec(tool_spec: ToolSpec) -> ToolSpec:
    """Return a copy of *tool_spec* with normalized parameters, under the key "json"."""
    normalized = copy.deepcopy(tool_spec)
    if isinstance(normalized.get("parameters"), dict):
        normalized["parameters"] = {"json": normalize_schema(schema_in(normalized["parameters"]))}
    return normalized
