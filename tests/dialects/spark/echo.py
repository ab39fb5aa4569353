"""A tool of a class, as programs write one."""

from typing import Any

from toolcrib.dialects.spark.tools.types import BaseTool, ToolSpec


class Echo(BaseTool):
    def __init__(self, name: str = "echo", spec: dict[str, Any] | None = None) -> None:
        self._name = name  # the base's __init__ is not called
        self._spec = spec or {"name": name, "description": "Echo", "parameters": {"properties": {"x": {}}}}

    @property
    def tool_name(self) -> str:
        return self._name

    @property
    def tool_spec(self) -> ToolSpec:
        return self._spec  # type: ignore[return-value]

    @property
    def tool_type(self) -> str:
        return "echo"

    def __call__(self, x: Any = None) -> Any:
        return x
