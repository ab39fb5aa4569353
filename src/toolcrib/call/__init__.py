"""The pipeline of one call. Runs any `core.Tool`, and knows no kind of tool."""

from .arguments import CheckedArguments
from .events import EventQueue, EventStream, streamed
from .execute import keep, may_be_repeated, within
from .grants import Grants
from .labels import UNTRUSTED, marked
from .once import TASK_LIFE, lost, require_key, restored, settle, stored
from .pending import MASKS, PendingCalls, caller_names, is_approver
from .pipeline import check, dry_run, error_result, needs_approval, resolved, run
from .runtime import Resources, Retry, Runtime, current_trail
from .task import Patient, StepLog, TaskRun, caller_data, caller_of

__all__ = [
    "MASKS",
    "CheckedArguments",
    "EventQueue",
    "EventStream",
    "Grants",
    "PendingCalls",
    "is_approver",
    "caller_names",
    "Resources",
    "Retry",
    "Runtime",
    "UNTRUSTED",
    "Patient",
    "StepLog",
    "TASK_LIFE",
    "TaskRun",
    "caller_data",
    "caller_of",
    "restored",
    "stored",
    "check",
    "current_trail",
    "dry_run",
    "error_result",
    "keep",
    "lost",
    "marked",
    "may_be_repeated",
    "require_key",
    "resolved",
    "run",
    "settle",
    "streamed",
    "needs_approval",
    "within",
]
