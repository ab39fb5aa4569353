"""Kinds of tool, and how any source becomes tools."""

from .depends import Dependencies, Replacements
from .from_schema import from_schema
from .function import Definition, Tool, as_tool, is_tool, tool
from .load import Loaded, imported, load, offered_by
from .modules import LoadProblem
from .options import ToolOptions
from .process_codec import reference
from .stateful import ClassSource, ObjectSource, StatefulTool
from .work import Runs

__all__ = [
    "ClassSource",
    "Definition",
    "Dependencies",
    "LoadProblem",
    "Loaded",
    "ObjectSource",
    "Replacements",
    "Runs",
    "StatefulTool",
    "Tool",
    "ToolOptions",
    "as_tool",
    "from_schema",
    "imported",
    "is_tool",
    "load",
    "offered_by",
    "reference",
    "tool",
]
