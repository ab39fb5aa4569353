"""`hyperpocket.tool`: tools, what they need to be authorized, and tools of functions."""

from .function import from_dock, from_func, function_tool
from .tool import Tool, ToolAuth, ToolRequest
from .wasm import from_git, from_local

__all__ = ["Tool", "ToolAuth", "ToolRequest", "from_dock", "from_func", "from_git", "from_local", "function_tool"]
