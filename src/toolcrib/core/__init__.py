"""The words everything else is said in: data, protocols and errors.

Floor 0: standard library only, no I/O, no other room. What a lower floor needs from a higher one is a protocol here.
"""

from .call import Call, Caller
from .content import Audio, Content, Data, File, Image, Text
from .context import Context, Depends, Scope
from .errors import (
    CODES,
    DefinitionError,
    LoadError,
    NameConflictError,
    Retry,
    SetupError,
    ToolcribError,
    ToolError,
    UnknownToolError,
)
from .protocols import (
    Availability,
    Check,
    Checked,
    Decision,
    Encode,
    Need,
    Needs,
    Policy,
    Recorder,
    Redaction,
    Runs,
    Tool,
)
from .result import Repair, Result, Status
from .spec import Auth, Hints, ToolAuth, ToolSpec

__all__ = [
    "CODES",
    "Audio",
    "Auth",
    "Availability",
    "Call",
    "Caller",
    "Check",
    "Checked",
    "Content",
    "Context",
    "Data",
    "Decision",
    "DefinitionError",
    "Depends",
    "Encode",
    "File",
    "Hints",
    "Image",
    "LoadError",
    "NameConflictError",
    "Need",
    "Needs",
    "Policy",
    "Recorder",
    "Redaction",
    "Repair",
    "Result",
    "Retry",
    "Runs",
    "Scope",
    "SetupError",
    "Status",
    "Text",
    "Tool",
    "ToolAuth",
    "ToolError",
    "ToolSpec",
    "ToolcribError",
    "UnknownToolError",
]
