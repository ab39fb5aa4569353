"""How a call ends that did not succeed."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

from ..core import (
    Call,
    Pending,
    Redaction,
    Repair,
    Result,
    Text,
    ToolError,
    log_failure,
    moment,
    redacted,
    to_tool_error,
)
from .pending import Questions, pending_message, pending_of
from .record import Seen, record_finished
from .runtime import Runtime


async def failed(
    raised: BaseException,
    sent: Call | None,
    call: Call,
    runtime: Runtime,
    repairs: tuple[Repair, ...],
    started_at: datetime,
    asked: list[Questions],
    seen: Seen,
) -> Result[Any]:
    """Return the result of a call that ended with *raised*. Raises it where it is the caller who gave up.

    *sent* is the call to be recorded then, *seen* what it ran with.
    """
    pending = pending_of(raised)
    if pending is not None:
        pending = _redacted_pending(pending, runtime.redaction)
        runtime.pending.remember_call(call.id, runtime.caller, pending.id)
        message = redacted(await _suspend(call.tool, pending, asked, runtime.redaction), runtime.redaction)
        return Result(None, (Text(message),), None, repairs, started_at, moment(), call.id, call.tool, pending)
    try:
        error = to_tool_error(raised, call.tool, show=runtime.show_errors, redaction=runtime.redaction)
    except asyncio.CancelledError:
        if sent is not None and runtime.recorders:
            error = ToolError(f"The caller of '{call.tool}' has given up.", "cancelled")
            result = error_result(sent, error, started_at, repairs)
            await record_finished(sent, runtime, started_at, result, seen)
        raise
    if runtime.error_message is not None:
        error = _reworded(error, raised, call, runtime)
    if runtime.handles is not None:
        error = runtime.handles.shorten(error)
    if error.code == "unknown_tool":  # a name that the model made up
        call = replace(call, tool=redacted(call.tool, runtime.redaction))
    return error_result(call, error, started_at, repairs)


def error_result(call: Call, error: ToolError, started_at: datetime, repairs: tuple[Repair, ...] = ()) -> Result[Any]:
    return Result(None, (Text(error.message),), error, repairs, started_at, moment(), call.id, call.tool)


def _redacted_pending(pending: Pending, redaction: Redaction | None) -> Pending:
    """Return *pending* as a broker or a question of the call has made it, secrets redacted."""
    if redaction is None:
        return pending
    url = pending.url and redaction.redact(pending.url)
    return replace(pending, message=redaction.redact(pending.message), url=url)


async def _suspend(tool: str, pending: Pending, asked: list[Questions], redaction: Redaction | None) -> str:
    """Return the message of a call that waits. Its approval is stored for when it is made again."""
    for questions in asked:
        try:
            await questions.give_back()
        except Exception as error:
            what = f"The approval of a call of '{tool}' could not be stored; it will be asked for again"
            log_failure(what, error, redaction)
    return pending_message(tool, pending)


def _reworded(error: ToolError, raised: BaseException, call: Call, runtime: Runtime) -> ToolError:
    assert runtime.error_message is not None
    try:
        message = runtime.error_message(error, raised, call)
        if not isinstance(message, str):
            raise TypeError(f"error_message returned {type(message).__name__}, not text")
    except Exception as failure:
        what = f"error_message failed for a call of '{call.tool}'; the message stays as it is"
        log_failure(what, failure, runtime.redaction)
        return error
    return ToolError(redacted(message, runtime.redaction), error.code, retry=error.retry, details=error.details)
