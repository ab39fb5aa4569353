"""The tool layer for AI agents: write a tool once, and any model, framework or MCP client can use it."""

from typing import TYPE_CHECKING

from .core import (
    Approve,
    Call,
    Caller,
    CancellationToken,
    Context,
    Deny,
    Depends,
    File,
    Handle,
    Image,
    Input,
    Pending,
    Result,
    Secret,
    SetupError,
    Source,
    Text,
    ToolAuth,
    ToolcribError,
    ToolError,
    ToolSpec,
)
from .machinery import lazy_names
from .tools import StatefulTool, Tool, tool

if TYPE_CHECKING:
    from . import formats as formats
    from .tools import openapi_source
    from .tools.remote import MCPSource
    from .workbench import Crib, Registry, Workbench

__version__ = "0.1.0"

__all__ = [
    "Approve",
    "Call",
    "Caller",
    "CancellationToken",
    "Context",
    "Crib",
    "Deny",
    "Depends",
    "File",
    "Handle",
    "Image",
    "Input",
    "MCPSource",
    "Pending",
    "Registry",
    "Result",
    "Secret",
    "SetupError",
    "Source",
    "StatefulTool",
    "Text",
    "Tool",
    "ToolAuth",
    "ToolError",
    "ToolSpec",
    "ToolcribError",
    "Workbench",
    "__version__",
    "openapi_source",
    "tool",
]

# What sources, stores and hosts are written with. They stood here before 0.2.
_PLUGS = (
    *("AnswerError", "Audio", "Broker", "CallRecord", "Credential", "Data", "DefinitionError", "Emitted", "LoadError"),
    *("NameConflictError", "Progress", "Recorder", "Repair", "UnknownToolError", "Variables"),
)

# A module that only defines tools needs no workbench, so it comes when it is first asked for.
__getattr__ = lazy_names(
    __name__,
    {
        "Crib": ".workbench",
        "Registry": ".workbench",
        "Workbench": ".workbench",
        "openapi_source": ".tools",
        "MCPSource": ".tools.remote",
        "formats": ".formats",
    },
    renamed={
        "MCPServer": "MCPSource",
        "CallLog": "record.CallLog",
        "Permissions": "tools.Permissions",
        **{name: f"core.{name}" for name in _PLUGS},
    },
)
