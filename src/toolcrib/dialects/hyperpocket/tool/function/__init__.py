"""`hyperpocket.tool.function`: tools of functions."""

from .annotation import function_tool
from .tool import FunctionTool

from_func = FunctionTool.from_func
from_dock = FunctionTool.from_dock

__all__ = ["FunctionTool", "from_dock", "from_func", "function_tool"]
