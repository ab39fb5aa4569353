"""The step of recording: what a recorder sees of a call, with secrets redacted and bounded in size."""

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from time import time
from typing import Any, cast

from ..core import (
    Call,
    CallRecord,
    Decision,
    Recorder,
    Result,
    ToolError,
    log_failure,
    redacted,
    redacted_json,
)
from .accepted import CheckedArguments
from .execute import Resumed
from .runtime import Runtime

CONTENT_CHARS = 10_000
"""How much of the arguments and of the result a record has."""
NAME_CHARS = 200
"""How much of a name that is not the name of a tool."""
RECORD_S = 5.0
"""How long a call waits for a recorder."""


async def record_started(
    call: Call, runtime: Runtime, started_at: datetime, decision: Decision | None, seen: Sequence[CheckedArguments]
) -> None:
    """Record that the work of *call* is about to begin."""
    assert runtime.recorder is not None
    try:
        record = CallRecord(call.id, call.tool, runtime.caller, started_at)
        if decision is not None:
            record.decision, record.rule, record.answered_by = decision.do, decision.rule, decision.by
        if runtime.records_content:
            record.arguments = _arguments(call, runtime, seen)
        await _bounded_in_time(runtime.recorder.started(record))
    except BaseException as error:
        _require_failure_of_recorder(error)
        log_failure(f"The start of a call of '{call.tool}' could not be recorded", error, runtime.redaction)


async def record_finished(
    recorder: Recorder,
    call: Call,
    runtime: Runtime,
    started_at: datetime,
    result: Result[Any],
    seen: Sequence[CheckedArguments],
) -> None:
    """Record how *call*, which began at the `moment` *started_at*, has ended."""
    try:
        error, pending = result.error, result.pending
        is_unknown = error is not None and error.code == "unknown_tool"
        record = CallRecord(
            call.id,
            _bounded(call.tool, runtime, NAME_CHARS) if is_unknown else call.tool,
            runtime.caller,
            started_at,
            "error" if error is not None else "success" if pending is None else "pending",
            time() - cast("float", started_at),
            None if error is None else error.code,
            len(result.repairs),
            None if pending is None else pending.kind,
        )
        decision = result.metadata.get("decision")
        if decision is not None:
            record.decision, record.rule, record.answered_by = decision["do"], decision.get("rule"), decision.get("by")
        if runtime.records_content:
            record.arguments = _arguments(call, runtime, seen)
            record.result = _bounded(result.text, runtime)
        await _bounded_in_time(recorder.finished(record))
    except BaseException as error:
        _require_failure_of_recorder(error)
        log_failure(
            f"A call of '{_bounded(call.tool, runtime, NAME_CHARS)}' could not be recorded", error, runtime.redaction
        )


async def _bounded_in_time(work: Awaitable[None]) -> None:
    if asyncio.iscoroutine(work):
        # Most recorders end without ever suspending: for them, a timer would take longer than the rest.
        try:
            waiting = work.send(None)
        except StopIteration:
            return
        work = Resumed(work, waiting)
    async with asyncio.timeout(RECORD_S):
        await work


def _require_failure_of_recorder(error: BaseException) -> None:
    """Raises *error* where it is the caller who gives up."""
    if isinstance(error, Exception):
        return
    task = asyncio.current_task()
    if not isinstance(error, asyncio.CancelledError) or (task is not None and task.cancelling()):
        raise error


def _arguments(call: Call, runtime: Runtime, seen: Sequence[CheckedArguments]) -> str:
    """What ran, with the defaults that apply; of a call that was refused, what was sent."""
    with suppress(ToolError):
        if seen:
            return _bounded(redacted_json(seen[-1].accepted.text, runtime.redaction), runtime)
    sent = call.arguments
    if isinstance(sent, bytes):
        sent = sent.decode(errors="replace")
    try:
        text = sent if isinstance(sent, str) else _written(sent or {})
    except (TypeError, ValueError, RecursionError):
        text = f"<{type(sent).__name__} that is not JSON>"
    return _bounded(redacted_json(text, runtime.redaction), runtime)


def _written(sent: Mapping[str, Any]) -> str:
    try:
        return json.dumps(sent, ensure_ascii=False)
    except TypeError:
        from ..schema import written

        return json.dumps(written(sent, mask="**********", strict=False), ensure_ascii=False)


def _bounded(text: str, runtime: Runtime, chars: int = CONTENT_CHARS) -> str:
    # Redacted before it is cut: half of a secret would not be recognized.
    text = redacted(text, runtime.redaction)
    text = text if len(text) <= chars else f"{text[:chars]}…"
    # Half of a surrogate pair is valid in JSON, and in no database.
    return text if text.isascii() else text.encode(errors="replace").decode()
