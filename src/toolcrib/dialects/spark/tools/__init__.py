"""`spark.tools`: the decorator, the types, the registry and the executor."""

from ..._modules import left_out
from .decorator import DecoratedFunctionTool, ToolContext, tool
from .executor import ToolCallExecutor, ToolExecutionConfig
from .registry import ToolRegistry
from .types import (
    BaseTool,
    ToolChoice,
    ToolResult,
    ToolRuntimeMetadata,
    ToolSpec,
    ToolUse,
    update_tool_runtime_metadata,
)

__all__ = [
    "BaseTool",
    "DecoratedFunctionTool",
    "ToolCallExecutor",
    "ToolChoice",
    "ToolContext",
    "ToolExecutionConfig",
    "ToolRegistry",
    "ToolResult",
    "ToolRuntimeMetadata",
    "ToolSpec",
    "ToolUse",
    "tool",
    "update_tool_runtime_metadata",
]

__getattr__ = left_out(__name__, "The depot and the simulations are left out: write a function.")
