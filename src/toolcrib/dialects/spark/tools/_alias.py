"""A tool under another name, which its spec says, too: a model calls what it is shown."""

import copy
from typing import Any

from ....tools import Tool
from .decorator import DecoratedFunctionTool
from .types import BaseTool, ToolSpec


def renamed(tool: BaseTool, name: str) -> BaseTool:
    """*tool* under the *name*. The tool itself stays as it is."""
    return tool.named(name) if isinstance(tool, DecoratedFunctionTool) else Alias(tool, name)


class Alias(BaseTool):
    """Another tool, under a name of its own."""

    def __init__(self, of: BaseTool, name: str) -> None:
        super().__init__()
        self._of = of
        self._name = name

    @property
    def tool_name(self) -> str:
        return self._name

    @property
    def tool_spec(self) -> ToolSpec:
        return {**copy.deepcopy(self._of.tool_spec), "name": self._name}

    @property
    def tool_type(self) -> str:
        return self._of.tool_type

    @property
    def is_dynamic(self) -> bool:
        return self._is_dynamic or self._of.is_dynamic

    @property
    def supports_async(self) -> bool:
        return self._supports_async or self._of.supports_async

    @property
    def is_long_running(self) -> bool:
        return self._is_long_running or self._of.is_long_running

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._of(*args, **kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        return await self._of.acall(*args, **kwargs)

    def _build(self) -> Tool[..., Any]:
        made = self._of.__toolcrib__().named(self._name)
        made.fn = self
        return made
