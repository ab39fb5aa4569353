"""Kinds of tool, and how any source becomes tools."""

from typing import TYPE_CHECKING

from ..machinery import lazy_names
from .definition import ToolOptions, require_name
from .function import Definition, Tool, as_tool, from_schema, from_work, is_tool, tool
from .process_codec import reference, referent
from .stateful import ClassSource, ObjectSource, StatefulTool
from .work import Dependencies, Replacements, Runs, by_name, work_of

if TYPE_CHECKING:
    from .git import GitSource, commit_of, fetch, is_git_address, parse_git_address
    from .loading import Loaded, imported, load, offered_by
    from .modules import LoadProblem
    from .openapi import OpenAPISource, is_openapi, openapi_source
    from .permissions import Permissions
    from .sandboxed import program_work

__all__ = [
    "ClassSource",
    "Definition",
    "Dependencies",
    "GitSource",
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
    "by_name",
    "commit_of",
    "fetch",
    "from_schema",
    "from_work",
    "imported",
    "is_git_address",
    "is_openapi",
    "is_tool",
    "load",
    "offered_by",
    "openapi_source",
    "parse_git_address",
    "program_work",
    "reference",
    "referent",
    "require_name",
    "tool",
    "work_of",
]

# A module that only defines tools loads no others and grants nothing, so these come when they are first asked for.
__getattr__ = lazy_names(
    __name__,
    {
        "GitSource": ".git",
        "LoadProblem": ".modules",
        "Loaded": ".loading",
        "OpenAPISource": ".openapi",
        "Permissions": ".permissions",
        "commit_of": ".git",
        "fetch": ".git",
        "imported": ".loading",
        "is_git_address": ".git",
        "is_openapi": ".openapi",
        "load": ".loading",
        "offered_by": ".loading",
        "openapi_source": ".openapi",
        "parse_git_address": ".git",
        "program_work": ".sandboxed",
    },
)
