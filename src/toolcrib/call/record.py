"""The step of recording: what a recorder sees of a call, with secrets redacted and bounded in size."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from time import time
from types import CoroutineType
from typing import Any, Literal

from ..core import Call, CallRecord, Content, Data, Recorder, Result, Text, Tool, ToolError
from ..machinery import LONG_CHARS, Deadline, in_thread, in_thread_if_long, log_failure, raw_id, redacted, redacted_json
from .execute import ENDED, Bounded, awaiting
from .runtime import Runtime, Trail

MAX_CONTENT_CHARS = 10_000
"""How much of the arguments and of the result a record has."""
MAX_REPAIRED, MAX_REPAIRED_DEPTH = 20, 6
"""So many repaired arguments are in a record, and so many names of each."""
MAX_NAME_CHARS = 200
"""How much of a name that is not the name of a tool."""
MAX_OWN_ID_CHARS = 24
"""How long an id is that Call makes."""
RECORDER_TIMEOUT_S = 5.0
"""How long a call waits for its recorders, at its start and at its end."""

_START_FAILED = "The start of a call of '{}' could not be recorded"
_FAILED = "A call of '{}' could not be recorded"
_encode = json.JSONEncoder(ensure_ascii=False).encode
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]{0,63}")
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C Trace Context, 3.2


async def record_started(
    call: Call, tool: Tool, runtime: Runtime, started_at: datetime, trail: Trail, outer: Trail
) -> None:
    """Record that the work of *call* is about to begin, once for the *outer* run."""
    try:
        record = outer.record = outer.record or _new(call, call.tool, runtime, started_at, outer)
        record.read_only = tool.spec.hints.read_only is True
        if (decision := trail.decision) is not None:
            record.decision, record.rule, record.answered_by = decision.do, decision.rule, decision.by
            record.grant = decision.grant
        if trail.questions is not None:
            record.digest = trail.questions.digest
        if record.arguments_bytes is None or runtime.records_content or runtime.digest is not None:
            await in_thread_if_long(partial(_add_arguments, record, call, runtime, outer), call.arguments)
    except Exception as error:
        log_failure(_START_FAILED.format(call.tool), error, runtime.redaction)
        for recorder in runtime.start_recorders:
            _require_recorded(recorder, call.tool, is_read_only=tool.spec.hints.read_only is True)
        return
    await _recorded("started", runtime.start_recorders, record, runtime, _START_FAILED)


async def record_finished(
    call: Call, runtime: Runtime, started_at: datetime, result: Result[Any], trail: Trail
) -> None:
    """Record how *call*, which began at *started_at* (a `moment`), has ended."""
    error, pending = result.error, result.pending
    try:
        is_unknown = error is not None and (error.code == "unknown_tool" or "unknown_tool" in error.details)
        record = trail.record
        if record is None:
            name = call.tool
            if is_unknown:  # above a limit, it would be a name for each call
                is_limited = error is not None and error.code != "unknown_tool"
                name = "tools/call" if is_limited else _bounded(name, runtime, MAX_NAME_CHARS)
            record = _new(call, name, runtime, started_at, trail)
        record.status = "error" if error is not None else "success" if pending is None else "pending"
        duration_s = time() - started_at  # type: ignore[operator]  # as `moment` says
        record.duration_s = duration_s if duration_s > 0 else 0.0  # the clock may have been set back
        if result.repairs:
            record.repairs = len(result.repairs)
            kinds = {(_argument(repair.path), repair.from_kind, repair.to_kind): None for repair in result.repairs}
            record.repaired = (*kinds,)[:MAX_REPAIRED]
        if error is not None:
            record.code = error.code
        if pending is not None:
            record.pending = pending.kind
        decision = result.metadata.get("decision")
        if decision is not None:
            record.decision, record.rule, record.answered_by = decision["do"], decision.get("rule"), decision.get("by")
            record.grant = decision.get("grant")
        record.repeated = "repeated" in result.metadata
        content = result.content
        record.result_bytes = _size(content[0]) if len(content) == 1 else sum(map(_size, content))
        if trail.digest is not None:
            record.digest = trail.digest or None
        lacks_digest = runtime.digest is not None and record.arguments_digest is None
        if record.arguments_bytes is None or runtime.records_content or lacks_digest:
            await in_thread_if_long(partial(_add_arguments, record, call, runtime, trail), call.arguments)
        if runtime.records_content:
            record.result = await in_thread_if_long(partial(_bounded, result.text, runtime), result.text)
        if runtime.digest is not None:
            make = partial(_digest_of, content, runtime.digest)
            record.result_digest = await in_thread(make) if record.result_bytes > LONG_CHARS else make()
    except Exception as raised:
        log_failure(_FAILED.format(_bounded(call.tool, runtime, MAX_NAME_CHARS)), raised, runtime.redaction)
        return
    await _recorded("finished", runtime.recorders, record, runtime, _FAILED)


def _new(call: Call, tool: str, runtime: Runtime, started_at: datetime, trail: Trail) -> CallRecord:
    # The id may be a model's, and the trace whatever a client has sent.
    call_id = raw_id(call)
    if type(call_id) is str and not (len(call_id) <= MAX_OWN_ID_CHARS and call_id[5:].isdigit()):
        call_id = _bounded(call_id, runtime, MAX_NAME_CHARS)
    record = CallRecord(call_id, tool, runtime.caller, started_at)
    if isinstance(call.arguments, (str, bytes)):
        record.arguments_bytes = _utf8_bytes(call.arguments)
    if call.traceparent is not None and _TRACEPARENT.fullmatch(call.traceparent):
        record.traceparent = call.traceparent
    if trail.task is not None:
        record.run = trail.task.number
    return record


async def _recorded(
    what: Literal["started", "finished"],
    recorders: Iterable[Recorder],
    record: CallRecord,
    runtime: Runtime,
    failed: str,
) -> None:
    """Let *recorders* have *record*: without arguments and results, where only another recorder asks for them.

    They run in the context of the call: what one sets there, such as a span, is for the tool. Raises ToolError where
    one that is required has failed at the start.
    """
    deadline: Deadline | None = None
    for recorder in recorders:
        try:
            is_bare = runtime.records_content and not getattr(recorder, "with_content", False)
            work = getattr(recorder, what)(
                replace(record, arguments=None, sent=None, result=None) if is_bare else record
            )
            if getattr(recorder, "bounds_itself", False):
                await work
                continue
            work = work if type(work) is CoroutineType else awaiting(work)
            waiting = next(work.__await__(), ENDED)
            if waiting is ENDED:  # as most do, for which a deadline would take longer than the rest
                continue
            deadline = deadline or Deadline(RECORDER_TIMEOUT_S)
            await Bounded(work, "a recorder", deadline, None, Trail()).resumed(waiting)
        except BaseException as error:
            _require_failure_of_recorder(error)
            if deadline is not None and deadline.left_s <= 0:
                error = TimeoutError(f"recorders took over {RECORDER_TIMEOUT_S:g} s")
            log_failure(failed.format(record.tool), error, runtime.redaction)
            if what == "started":
                _require_recorded(recorder, record.tool, is_read_only=record.read_only)


def _require_recorded(recorder: Recorder, tool: str, *, is_read_only: bool) -> None:
    """Raise ToolError where *recorder* has not taken the start of a call, and requires that."""
    if getattr(recorder, "required", False) and not is_read_only:
        message = f"Tool '{tool}' was not executed: its call could not be recorded, which is required. Try again later."
        raise ToolError(message, "unavailable")


def _argument(path: str) -> str:
    """Return the argument at the JSON pointer *path*, with `*` for what does not look like a name of a schema."""
    return ".".join(name if _NAME.fullmatch(name) else "*" for name in path.split("/")[1:MAX_REPAIRED_DEPTH])


def _read(sent: str | bytes | Mapping[str, Any] | None) -> tuple[str, int | None]:
    """Return arguments as JSON text, and its size in bytes; None where they are not JSON."""
    try:
        text = sent.decode(errors="replace") if isinstance(sent, bytes) else sent
        text = text if isinstance(text, str) else _written(text or {})
    except (TypeError, ValueError, RecursionError):
        return f"<{type(sent).__name__} that is not JSON>", None
    return text, _utf8_bytes(text) if sent else 0


def _size(part: Content) -> int:
    if isinstance(part, Data):
        return _utf8_bytes(part.json)
    return _utf8_bytes(part.text if isinstance(part, Text) else part.data)


def _utf8_bytes(text: str | bytes) -> int:
    return len(text if isinstance(text, bytes) or text.isascii() else text.encode(errors="surrogatepass"))


def _require_failure_of_recorder(error: BaseException) -> None:
    """Raise *error* where it is the caller who gives up."""
    if isinstance(error, Exception | SystemExit):
        return
    task = asyncio.current_task()
    if not isinstance(error, asyncio.CancelledError) or (task is not None and task.cancelling()):
        raise error


def _add_arguments(record: CallRecord, call: Call, runtime: Runtime, trail: Trail) -> None:
    """Add to *record* the size of the arguments, and what ran, as it is asked for."""
    text: str | None = None
    if record.arguments_bytes is None:
        text, record.arguments_bytes = _read(call.arguments)
    if not runtime.records_content and runtime.digest is None:
        return
    if trail.arguments is not None:  # what ran, with the defaults that apply; of a call that was refused, what was sent
        with suppress(ToolError):
            text = trail.arguments.forms.text
    text = redacted_json(_read(call.arguments)[0] if text is None else text, runtime.redaction)
    if runtime.records_content:
        record.arguments = _bounded(text, runtime)
        record.sent = trail.sent and _bounded(trail.sent, runtime)
    if runtime.digest is not None:
        record.arguments_digest = runtime.digest(text.encode(errors="surrogatepass"))


def _digest_of(content: Iterable[Content], digest: Callable[[bytes], str]) -> str:
    parts = [getattr(part, "data", None) or part.text.encode(errors="surrogatepass") for part in content]
    return digest(b"".join(parts))


def _written(sent: Mapping[str, Any]) -> str:
    try:
        return _encode(sent)
    except TypeError:
        from ..schema import written

        return json.dumps(written(sent, mask="**********", strict=False), ensure_ascii=False)


def _bounded(text: str, runtime: Runtime, chars: int = MAX_CONTENT_CHARS) -> str:
    # Redacted before it is cut: half of a secret would not be recognized.
    text = redacted(text, runtime.redaction)
    text = text if len(text) <= chars else f"{text[:chars]}…"
    # Half of a surrogate pair is valid in JSON, and in no database.
    return text if text.isascii() else text.encode(errors="replace").decode()
