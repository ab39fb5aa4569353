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
    from .openapi import OpenAPISource, is_openapi, openapi_source
    from .permissions import Permissions

__all__ = [
    "ClassSource",
    "Definition",
    "Dependencies",
    "LoadProblem",
    "Loaded",
    "ObjectSource",
    "OpenAPISource",
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
    "is_openapi",
    "is_tool",
    "load",
    "offered_by",
    "openapi_source",
    "reference",
    "referent",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name == "Permissions":
        from .permissions import Permissions  # whoever only defines tools grants nothing

        return Permissions
    if name in ("OpenAPISource", "is_openapi", "openapi_source"):
        from . import openapi

        return getattr(openapi, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
