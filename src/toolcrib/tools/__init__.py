"""Kinds of tool, and how any source becomes tools."""

from .function import Definition, Tool, as_tool, reference, tool
from .load import Loaded, LoadProblem, load
from .options import Options

__all__ = ["Definition", "LoadProblem", "Loaded", "Options", "Tool", "as_tool", "load", "reference", "tool"]
