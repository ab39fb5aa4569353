"""The pipeline of one call. Runs any `core.Tool`, and knows no kind of tool."""

from .arguments import CheckedArguments
from .events import EventQueue, EventStream, streamed
from .execute import may_be_repeated, within
from .once import require_key, settle
from .pending import PendingCalls
from .pipeline import check, error_result, needs_approval, resolved, run
from .runtime import Resources, Retry, Runtime

__all__ = [
    "CheckedArguments",
    "EventQueue",
    "EventStream",
    "PendingCalls",
    "Resources",
    "Retry",
    "Runtime",
    "check",
    "error_result",
    "may_be_repeated",
    "require_key",
    "resolved",
    "run",
    "settle",
    "streamed",
    "needs_approval",
    "within",
]
