"""Kinds of tool, and how any source becomes tools."""

from .function import Definition, Tool, as_tool, reference, tool
from .given import given
from .load import Loaded, LoadProblem, imported, load, tools_of_source
from .options import Options
from .stateful import Group, Kind, Member, StatefulTool

__all__ = [
    "Definition",
    "Group",
    "Kind",
    "LoadProblem",
    "Loaded",
    "Member",
    "Options",
    "StatefulTool",
    "Tool",
    "as_tool",
    "given",
    "imported",
    "load",
    "reference",
    "tool",
    "tools_of_source",
]
