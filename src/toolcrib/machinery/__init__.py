"""What the rooms are built with: threads, loops, semaphores, redaction, and the shapes that they expect of one another.

Standard library only. A program needs none of these names; a new kind of tool, a store or a room of ours does.
"""

from ..core.cancel import (
    Deadline,
    create_lasting_task,
    current_caller,
    current_client,
    current_deadline,
    from_any_thread,
)
from ..core.context import HOST_VARIABLES, ApprovalPort, Host, Need, Needs, Overrides, Port, Scope
from ..core.display import escaped, one_line
from ..core.pending import StillPending, StoredPending, Suspended
from ..core.protocols import (
    Asker,
    AtDeadline,
    Availability,
    Check,
    Checked,
    Do,
    Encode,
    ErrorMessage,
    MayAnswer,
    Next,
    PendingStore,
    Work,
)
from .digest import call_digest, canonical
from .failure import leaves, log_failure, to_tool_error
from .globs import Globs, compile_globs, translate_glob
from .handle import (
    HANDLE_PREFIX,
    MIN_RESULT_CHARS,
    RESULT_CHARS,
    ResultHandles,
    ResultStore,
    StoredResult,
    is_handle,
    new_handle,
)
from .lazy import lazy_names, raise_missing_extra
from .loops import Escaped, Handed, LoopEnded, NeverBegun, PerLoop, in_thread, run_here, run_on
from .redaction import redacted, redacted_content, redacted_data, redacted_json
from .semaphore import Deadlock, Permit, Semaphore, SemaphoreFull, held_permits, release_permits, share_permits
from .shares import Shares, room_for, share

__all__ = [
    "ApprovalPort",
    "Asker",
    "AtDeadline",
    "Availability",
    "Check",
    "Checked",
    "Deadline",
    "Deadlock",
    "Do",
    "Encode",
    "ErrorMessage",
    "Escaped",
    "Globs",
    "HANDLE_PREFIX",
    "HOST_VARIABLES",
    "Handed",
    "Host",
    "LoopEnded",
    "MIN_RESULT_CHARS",
    "MayAnswer",
    "Need",
    "Needs",
    "NeverBegun",
    "Next",
    "Overrides",
    "PendingStore",
    "PerLoop",
    "Permit",
    "Port",
    "RESULT_CHARS",
    "ResultHandles",
    "ResultStore",
    "Scope",
    "Semaphore",
    "SemaphoreFull",
    "Shares",
    "StillPending",
    "StoredPending",
    "StoredResult",
    "Suspended",
    "Work",
    "call_digest",
    "canonical",
    "compile_globs",
    "create_lasting_task",
    "current_caller",
    "current_client",
    "current_deadline",
    "from_any_thread",
    "held_permits",
    "escaped",
    "in_thread",
    "is_handle",
    "lazy_names",
    "leaves",
    "log_failure",
    "new_handle",
    "one_line",
    "raise_missing_extra",
    "redacted",
    "redacted_content",
    "redacted_data",
    "redacted_json",
    "release_permits",
    "room_for",
    "run_here",
    "run_on",
    "share",
    "share_permits",
    "to_tool_error",
    "translate_glob",
]
