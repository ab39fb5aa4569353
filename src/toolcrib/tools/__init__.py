"""Kinds of tool, and how any source becomes tools."""

from .function import Definition, Options, Tool, as_tool, reference, tool
from .load import Loaded, LoadProblem, load

__all__ = ["Definition", "LoadProblem", "Loaded", "Options", "Tool", "as_tool", "load", "reference", "tool"]
