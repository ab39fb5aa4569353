"""`spark.tools.tools`: tools of a bare spec, and what makes specs and the names of uses right.

Offered: `PythonAgentTool`, `ToolFunc`, `normalize_schema`, `normalize_tool_spec`, `validate_tool_use`,
`validate_tool_use_name` and `InvalidToolUseNameException`. The executor raises none of it: what is wrong with a use is
an error result there.
"""

import asyncio
import copy
import functools
import inspect
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from ....core import DefinitionError
from ....tools.function import require_name
from .decorator import require_no_loop, run_sync
from .types import BaseTool, ToolResult, ToolSpec, ToolUse, update_tool_runtime_metadata


class InvalidToolUseNameException(Exception):
    """The name in a ToolUse is missing, or cannot be the name of a tool."""


class ToolFunc(Protocol):
    """What a PythonAgentTool calls."""

    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> ToolResult | Awaitable[ToolResult]: ...


class PythonAgentTool(BaseTool):
    """A function under a spec that is written by hand. Arguments are held against the spec."""

    def __init__(
        self,
        tool_name: str,
        tool_spec: ToolSpec,
        tool_func: ToolFunc,
        *,
        long_running: bool = False,
        supports_async: bool | None = None,
    ) -> None:
        from ....schema import gives_awaitable

        super().__init__()
        self._tool_name = tool_name
        self._tool_spec = tool_spec
        self._tool_func = tool_func
        self._is_async = gives_awaitable(tool_func)
        if self._is_async if supports_async is None else supports_async:
            self.mark_supports_async()
        if long_running:
            self.mark_long_running()
        update_tool_runtime_metadata(
            tool_spec,
            supports_async=True if self.supports_async else None,
            long_running=True if self.is_long_running else None,
        )

    @property
    def tool_name(self) -> str:
        return self._tool_name

    @property
    def tool_spec(self) -> ToolSpec:
        return self._tool_spec

    @property
    def tool_type(self) -> str:
        return "python"

    @property
    def supports_hot_reload(self) -> bool:
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function. Raises RuntimeError for an async one where an event loop runs."""
        if self._is_async:
            require_no_loop()
        value = self._tool_func(*args, **kwargs)
        return run_sync(value) if inspect.isawaitable(value) else value

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function from async code: on the event loop if it is async, else in a thread."""
        work = functools.partial(self._tool_func, *args, **kwargs)
        value: Any = work() if self._is_async else await asyncio.to_thread(work)
        return await value if inspect.isawaitable(value) else value


def validate_tool_use(tool: ToolUse) -> None:
    """Raises InvalidToolUseNameException where the name of a use cannot be the name of a tool."""
    validate_tool_use_name(tool)


def validate_tool_use_name(tool: ToolUse) -> None:
    """Raises InvalidToolUseNameException for a name that is missing, longer than 64, or not of `a-z A-Z 0-9 _ -`."""
    if "name" not in tool:
        raise InvalidToolUseNameException("tool name missing")
    name: Any = tool["name"]
    try:
        require_name(name)
    except DefinitionError:
        problem = "length" if isinstance(name, str) and len(name) > 64 else "pattern"
        shown = str(name)[:64]
        raise InvalidToolUseNameException(
            f"tool_name=<{shown}> | invalid tool name {problem}: 1 to 64 letters, digits, '_' and '-'"
        ) from None


def normalize_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """*schema* with a type, properties and required, and each property with a type and a description.

    A copy: *schema* stays as it is. What says its type by other words ("$ref", "anyOf", "enum", ...) gets none.
    """
    made: dict[str, Any] = {"type": "object", "properties": {}, "required": [], **copy.deepcopy(dict(schema))}
    made["properties"] = {name: _normalized(name, of) for name, of in made["properties"].items()}
    return made


def normalize_tool_spec(tool_spec: ToolSpec) -> ToolSpec:
    """*tool_spec* with normalized parameters, under "json". A copy."""
    made = copy.deepcopy(tool_spec)
    parameters = made.get("parameters")
    if isinstance(parameters, dict):
        schema = parameters["json"] if isinstance(parameters.get("json"), dict) else parameters
        made["parameters"] = {"json": normalize_schema(schema)}
    return made


def normalize_property(name: str, of: Any) -> dict[str, Any]:
    """One property with a type and a description, as far as it does not say them otherwise."""
    if not isinstance(of, dict):
        return {"type": "string", "description": f"Property {name}"}
    if "$ref" in of:
        return of
    typed = {} if of.keys() & _TYPED else {"type": "string"}
    return {**of, **typed, "description": of.get("description", f"Property {name}")}


_TYPED = frozenset({"type", "anyOf", "oneOf", "allOf", "not", "enum", "const"})


def _normalized(name: str, of: Any) -> dict[str, Any]:
    if isinstance(of, dict) and of.get("type") == "object" and isinstance(of.get("properties"), dict):
        return normalize_schema(of)
    return normalize_property(name, of)
