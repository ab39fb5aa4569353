"""AutoGen's tools and workbenches (`autogen_core.tools`). The core checks, runs, times out and cancels calls."""

from importlib.util import find_spec

from ._base import BaseStreamTool, BaseTool, BaseToolWithState
from ._core import ParametersSchema, StreamTool, Tool, ToolOverride, ToolSchema
from ._function_tool import FunctionTool, FunctionToolConfig
from ._workbench import (
    ImageResultContent,
    StaticStreamWorkbench,
    StaticWorkbench,
    StaticWorkbenchConfig,
    StreamWorkbench,
    TextResultContent,
    ToolResult,
    Workbench,
)

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

if find_spec("autogen_core") is not None:
    # Programs of PyPI's autogen-core accept the tools and workbenches of this dialect, by its `isinstance`.
    from autogen_core import tools as _theirs  # pyright: ignore[reportMissingImports]

    for _kind in (BaseTool, StaticStreamWorkbench, StaticWorkbench, Workbench):
        getattr(_theirs, _kind.__name__).register(_kind)
