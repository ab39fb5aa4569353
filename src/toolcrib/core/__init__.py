"""The words of the library, which programs, sources and plugs use: data, protocols, errors.

Floor 0: standard library only, no I/O, no other room. What a lower floor needs from a higher one is a protocol here.
"""

from typing import Any

from .call import Call, Caller
from .cancel import CancellationToken
from .content import (
    Audio,
    Content,
    Data,
    Emitted,
    Event,
    File,
    Image,
    Progress,
    Text,
    content_from_dict,
    content_to_dict,
)
from .context import Context, Depends, Handle, Redaction, Variables
from .errors import (
    CODES,
    AnswerError,
    DefinitionError,
    LoadError,
    NameConflictError,
    RetryAdvice,
    SetupError,
    StoreError,
    ToolcribError,
    ToolError,
    UnknownToolError,
)
from .pending import Answer, Approve, Approvers, Deny, Grant, Input, Pending, PendingKind
from .protocols import Ask, Broker, Decision, Middleware, Policy, Recorder, Tool
from .result import CallRecord, Repair, Result, Status, content_of, has_parts, moment
from .source import Source
from .spec import Auth, Credential, Hints, Requirement, Secret, ToolAuth, ToolSpec

__all__ = [
    "Answer",
    "AnswerError",
    "Approve",
    "Approvers",
    "Ask",
    "Audio",
    "Auth",
    "Broker",
    "CODES",
    "Call",
    "CallRecord",
    "Caller",
    "CancellationToken",
    "Content",
    "Context",
    "Credential",
    "Data",
    "Decision",
    "DefinitionError",
    "Deny",
    "Depends",
    "Emitted",
    "Event",
    "File",
    "Grant",
    "Handle",
    "Hints",
    "Image",
    "Input",
    "LoadError",
    "Middleware",
    "NameConflictError",
    "Pending",
    "PendingKind",
    "Policy",
    "Progress",
    "Recorder",
    "Redaction",
    "Repair",
    "Requirement",
    "Result",
    "RetryAdvice",
    "Secret",
    "SetupError",
    "Source",
    "Status",
    "StoreError",
    "Text",
    "Tool",
    "ToolAuth",
    "ToolError",
    "ToolSpec",
    "ToolcribError",
    "UnknownToolError",
    "Variables",
    "content_from_dict",
    "content_of",
    "content_to_dict",
    "has_parts",
    "moment",
]


def __getattr__(name: str) -> Any:
    if name == "Retry":  # not AttributeError: `from toolcrib.core import Retry` would hide its message
        raise ImportError("'Retry' is now 'RetryAdvice': from toolcrib.core import RetryAdvice")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
