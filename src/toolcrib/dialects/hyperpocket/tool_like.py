"""`hyperpocket.tool_like`: what a Pocket makes a tool of."""

from collections.abc import Callable
from typing import Any

from .tool import Tool, ToolRequest

ToolLike = Tool | str | tuple[Any, dict[str, str]] | Callable[..., Any] | ToolRequest
"""A tool or a function; a request for a tool in a folder or a repository, or where that is; what a loader of the Pocket
takes; or one of these with its tool variables."""
