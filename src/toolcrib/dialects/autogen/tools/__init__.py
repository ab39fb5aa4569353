"""AutoGen's tools and workbenches (`autogen_core.tools`). The core checks, runs, times out and cancels calls."""

from ._base import BaseStreamTool, BaseTool, BaseToolWithState
from ._function_tool import FunctionTool, FunctionToolConfig
from ._interop import register as _register
from ._protocols import ParametersSchema, StreamTool, Tool, ToolOverride, ToolSchema
from ._static_workbench import StaticStreamWorkbench, StaticWorkbench, StaticWorkbenchConfig
from ._workbench import ImageResultContent, StreamWorkbench, TextResultContent, ToolResult, Workbench

__all__ = [
    "BaseStreamTool",
    "BaseTool",
    "BaseToolWithState",
    "FunctionTool",
    "FunctionToolConfig",
    "ImageResultContent",
    "ParametersSchema",
    "StaticStreamWorkbench",
    "StaticWorkbench",
    "StaticWorkbenchConfig",
    "StreamTool",
    "StreamWorkbench",
    "TextResultContent",
    "Tool",
    "ToolOverride",
    "ToolResult",
    "ToolSchema",
    "Workbench",
]

_register()
