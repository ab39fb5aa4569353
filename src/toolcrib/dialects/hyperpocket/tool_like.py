"""`hyperpocket.tool_like`: what a Pocket makes a tool of."""

from collections.abc import Callable
from typing import Any

from .tool import Tool, ToolRequest

ToolLike = Tool | str | tuple[Any, dict[str, str]] | Callable[..., Any] | ToolRequest
"""A tool or a function; what a loader of the Pocket takes, such as an address; or one of these with its tool variables.
"""
