"""Kinds of tool, and how any source becomes tools."""

from typing import TYPE_CHECKING, Any

from .depends import Dependencies, Replacements
from .from_schema import from_schema, from_work
from .function import Definition, Tool, as_tool, is_tool, tool
from .load import Loaded, imported, load, offered_by
from .modules import LoadProblem
from .options import ToolOptions
from .process_codec import reference, referent
from .stateful import ClassSource, ObjectSource, StatefulTool
from .work import Runs

if TYPE_CHECKING:
    from .permissions import Permissions

__all__ = [
    "ClassSource",
    "Definition",
    "Dependencies",
    "LoadProblem",
    "Loaded",
    "ObjectSource",
    "Replacements",
    "Permissions",
    "Runs",
    "StatefulTool",
    "Tool",
    "ToolOptions",
    "as_tool",
    "from_schema",
    "from_work",
    "imported",
    "is_tool",
    "load",
    "offered_by",
    "reference",
    "referent",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name != "Permissions":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .permissions import Permissions  # whoever only defines tools grants nothing

    return Permissions
