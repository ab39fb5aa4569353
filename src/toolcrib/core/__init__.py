"""The words of the library: data, protocols, errors, deadlines and cancellation.

Floor 0: standard library only, no I/O, no other room. What a lower floor needs from a higher one is a protocol here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .call import Call, Caller
from .cancel import CancellationToken
from .content import Audio, Content, Data, File, Image, Text, content_from_dict, content_to_dict
from .context import (
    HOST_VARIABLES,
    ApprovalPort,
    Context,
    Depends,
    Host,
    Need,
    Needs,
    Overrides,
    Port,
    Scope,
    Variables,
)
from .credentials import Credential
from .deadline import Deadline, create_lasting_task, current_client, current_deadline
from .decision import Ask, Decision, Do, PolicyAnswer
from .digest import call_digest, canonical, definition_digest
from .errors import (
    CODES,
    AnswerError,
    AnswerProblem,
    DefinitionError,
    LoadError,
    NameConflictError,
    Retry,
    SetupError,
    StoreError,
    ToolcribError,
    ToolError,
    UnknownToolError,
    raise_missing_extra,
)
from .events import Emitted, Event, Progress
from .failure import is_thrown, leaves, log_failure, readable, to_tool_error
from .globs import Globs, compile_globs, translate_glob
from .handle import HANDLE_PREFIX, RESULT_CHARS, Handle, ResultHandles, ResultStore, StoredResult, is_handle, new_handle
from .loops import LoopEnded, NotBegun, await_on, blocking, is_blocked, run_on
from .moments import EPOCH, moment
from .pending import (
    Answer,
    Approve,
    Deny,
    Input,
    Pending,
    PendingKind,
    StillPending,
    StoredPending,
    Suspended,
    answer_from,
)
from .protocols import (
    Asker,
    AtDeadline,
    Availability,
    Broker,
    Check,
    Checked,
    Encode,
    ErrorMessage,
    MayAnswer,
    Middleware,
    Next,
    PendingStore,
    Policy,
    Recorder,
    Tool,
    Work,
)
from .record import CallRecord
from .redaction import Redaction, redacted, redacted_content, redacted_data, redacted_json
from .result import Repair, Result, Shown, Status, content_of, has_parts
from .semaphore import (
    Deadlock,
    Permit,
    Semaphore,
    SemaphoreFull,
    held_permits,
    release_permits,
    share_permits,
    standing_still,
)
from .source import Listeners, Source, is_source
from .spec import Auth, Hints, Requirement, Secret, ToolAuth, ToolSpec
from .threads import Escaped, Postponed, finish_in_thread, finished, in_thread, postpone

if TYPE_CHECKING:
    from .offers import (
        OffersChange,
        OffersPrompts,
        OffersResources,
        Prompt,
        PromptArgument,
        PromptMessage,
        Resource,
        ResourceContent,
        ResourceTemplate,
    )

__all__ = [
    "raise_missing_extra",
    "ApprovalPort",
    "ResourceTemplate",
    "ResourceContent",
    "Resource",
    "PromptMessage",
    "PromptArgument",
    "Prompt",
    "OffersChange",
    "OffersResources",
    "OffersPrompts",
    "HOST_VARIABLES",
    "Variables",
    "Deadlock",
    "standing_still",
    "run_on",
    "is_blocked",
    "blocking",
    "await_on",
    "NotBegun",
    "LoopEnded",
    "CODES",
    "EPOCH",
    "HANDLE_PREFIX",
    "RESULT_CHARS",
    "Answer",
    "AnswerError",
    "AnswerProblem",
    "Approve",
    "Ask",
    "Asker",
    "AtDeadline",
    "Audio",
    "Auth",
    "Availability",
    "Broker",
    "Call",
    "CallRecord",
    "Caller",
    "CancellationToken",
    "Check",
    "Checked",
    "Content",
    "Context",
    "Credential",
    "Data",
    "Deadline",
    "Decision",
    "DefinitionError",
    "Deny",
    "Depends",
    "Do",
    "Emitted",
    "Encode",
    "ErrorMessage",
    "Escaped",
    "Event",
    "File",
    "Globs",
    "Handle",
    "Hints",
    "Host",
    "Image",
    "Input",
    "Listeners",
    "LoadError",
    "MayAnswer",
    "Middleware",
    "NameConflictError",
    "Need",
    "Needs",
    "Next",
    "Overrides",
    "Pending",
    "PendingKind",
    "PendingStore",
    "Permit",
    "Policy",
    "Postponed",
    "PolicyAnswer",
    "Port",
    "Progress",
    "Recorder",
    "Redaction",
    "Repair",
    "Result",
    "ResultHandles",
    "ResultStore",
    "Retry",
    "Scope",
    "Semaphore",
    "SemaphoreFull",
    "SetupError",
    "Source",
    "Shown",
    "Status",
    "StillPending",
    "StoreError",
    "StoredPending",
    "StoredResult",
    "Suspended",
    "Text",
    "Tool",
    "ToolAuth",
    "ToolError",
    "ToolSpec",
    "ToolcribError",
    "UnknownToolError",
    "Work",
    "answer_from",
    "call_digest",
    "canonical",
    "compile_globs",
    "content_from_dict",
    "content_of",
    "content_to_dict",
    "create_lasting_task",
    "current_client",
    "current_deadline",
    "definition_digest",
    "held_permits",
    "finish_in_thread",
    "finished",
    "has_parts",
    "in_thread",
    "is_handle",
    "is_source",
    "is_thrown",
    "leaves",
    "log_failure",
    "moment",
    "postpone",
    "readable",
    "new_handle",
    "redacted",
    "redacted_content",
    "redacted_data",
    "redacted_json",
    "release_permits",
    "share_permits",
    "to_tool_error",
    "translate_glob",
    "Requirement",
    "Secret",
]

# Most programs offer tools only: the rest comes when it is first asked for.
_OFFERS = {
    "OffersChange",
    "OffersPrompts",
    "OffersResources",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "Resource",
    "ResourceContent",
    "ResourceTemplate",
}


def __getattr__(name: str) -> Any:
    if name not in _OFFERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(".offers", __name__), name)
    return value
