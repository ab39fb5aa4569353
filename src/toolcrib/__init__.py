"""The tool layer for AI agents: write a tool once, and any model, framework or MCP client can use it."""

from .core import (
    Audio,
    Call,
    Caller,
    Context,
    Data,
    DefinitionError,
    Depends,
    File,
    Image,
    LoadError,
    NameConflictError,
    Repair,
    Result,
    SetupError,
    Text,
    ToolAuth,
    ToolcribError,
    ToolError,
    ToolSpec,
    UnknownToolError,
)
from .record import CallLog
from .tools import Tool, tool
from .workbench import Registry, Workbench

__version__ = "0.1.0"

__all__ = [
    "Audio",
    "Call",
    "CallLog",
    "Caller",
    "Context",
    "Data",
    "DefinitionError",
    "Depends",
    "File",
    "Image",
    "LoadError",
    "NameConflictError",
    "Registry",
    "Repair",
    "Result",
    "SetupError",
    "Text",
    "Tool",
    "ToolAuth",
    "ToolError",
    "ToolSpec",
    "ToolcribError",
    "UnknownToolError",
    "Workbench",
    "__version__",
    "tool",
]
