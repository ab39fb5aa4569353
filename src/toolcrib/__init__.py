"""The tool layer for AI agents: write a tool once, and any model, framework or MCP client can use it."""

from typing import TYPE_CHECKING

from .core import (
    AnswerError,
    Approve,
    Audio,
    Broker,
    Call,
    Caller,
    CallRecord,
    CancellationToken,
    Context,
    Credential,
    Data,
    DefinitionError,
    Deny,
    Depends,
    Emitted,
    File,
    Handle,
    Image,
    Input,
    LoadError,
    NameConflictError,
    Pending,
    Progress,
    Recorder,
    Repair,
    Result,
    Secret,
    SetupError,
    Source,
    Text,
    ToolAuth,
    ToolcribError,
    ToolError,
    ToolSpec,
    UnknownToolError,
    Variables,
)
from .core.lazy import lazy_names
from .record import CallLog
from .tools import StatefulTool, Tool, tool

if TYPE_CHECKING:
    from . import formats as formats
    from .tools import Permissions, openapi_source
    from .tools.remote import MCPSource
    from .workbench import Crib, Registry, Workbench

__version__ = "0.1.0"

__all__ = [
    "AnswerError",
    "Approve",
    "Audio",
    "Broker",
    "Call",
    "CallLog",
    "CallRecord",
    "Caller",
    "CancellationToken",
    "Context",
    "Credential",
    "Crib",
    "Data",
    "DefinitionError",
    "Deny",
    "Depends",
    "Emitted",
    "File",
    "Handle",
    "Image",
    "Input",
    "LoadError",
    "MCPSource",
    "NameConflictError",
    "Pending",
    "Permissions",
    "Progress",
    "Recorder",
    "Registry",
    "Repair",
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
    "UnknownToolError",
    "Variables",
    "Workbench",
    "__version__",
    "openapi_source",
    "tool",
]

# A module that only defines tools needs no workbench, so it comes when it is first asked for.
__getattr__ = lazy_names(
    __name__,
    {
        "Crib": ".workbench",
        "Registry": ".workbench",
        "Workbench": ".workbench",
        "Permissions": ".tools",
        "openapi_source": ".tools",
        "MCPSource": ".tools.remote",
        "formats": ".formats",
    },
    renamed={"MCPServer": "MCPSource"},
)
