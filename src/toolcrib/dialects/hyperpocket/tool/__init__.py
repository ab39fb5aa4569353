"""`hyperpocket.tool`: tools, what they need to be authorized, and tools of functions."""

from .function import from_dock, from_func, function_tool
from .tool import Tool, ToolAuth, ToolRequest

__all__ = ["Tool", "ToolAuth", "ToolRequest", "from_dock", "from_func", "function_tool"]
