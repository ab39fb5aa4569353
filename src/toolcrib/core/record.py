"""What is recorded of one call."""

from dataclasses import dataclass
from datetime import datetime

from .call import Caller
from .moments import keep_as_moments


@dataclass(slots=True)
class CallRecord:
    """One call: who called what, when, and how it ended. Known secrets are redacted in it.

    `status` is `started` until it has ended, then that of its Result; `code` is the error's. `pending` is the kind of
    what the call waits for. `decision` is the policy's (`allow`, `deny`, `ask`), `rule` the rule it followed,
    `answered_by` the person who approved or denied. `arguments` and `result` are text, bounded, and None unless the
    recorder asks for them.
    """

    call_id: str
    tool: str
    caller: Caller
    started_at: datetime
    status: str = "started"
    duration_s: float = 0.0
    code: str | None = None
    repairs: int = 0
    pending: str | None = None
    decision: str | None = None
    rule: str | None = None
    answered_by: str | None = None
    arguments: str | None = None
    result: str | None = None


keep_as_moments(CallRecord, "started_at")
