"""What is recorded of one call."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from secrets import token_hex

from .call import Caller
from .moments import keep_as_moments

# Random whatever a program has seeded: a store keeps one row for each.
_new_id = map("run_{}".format, iter(partial(token_hex, 8), None)).__next__


@dataclass(slots=True)
class CallRecord:
    """One call: who called what, when, and how it ended. Known secrets are redacted in it.

    `status` is `started` until it has ended, then that of its Result; `code` is the error's. `pending` is the kind of
    what the call waits for. `decision` is the policy's (`allow`, `deny`, `ask`), `rule` the rule it followed,
    `answered_by` the person who approved or denied. `arguments` and `result` are text, bounded, and None unless the
    recorder asks for them; their sizes are in bytes, as far as they are known: of the arguments as they were sent.

    `id` is that of one time that the call was made, which `call_id`, chosen by whoever makes the call, need not be.
    The record of the start and of the end of a call have the same. `traceparent` (W3C Trace Context) is whose part
    the call is.
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
    arguments_bytes: int | None = None
    result_bytes: int | None = None
    read_only: bool = False
    traceparent: str | None = None
    id: str = field(default_factory=_new_id)


keep_as_moments(CallRecord, "started_at")
