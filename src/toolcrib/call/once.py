"""At most once: a call with an idempotency key is claimed in the ledger before its work, and answered from it later.

The key is looked up once the arguments are checked and no rule denies the call: so the first result is given to those
alone who may make the call now, and no person is asked about what has run. It is claimed just before the work. Where
the process of the first call died on the way, only an idempotent tool runs again; of another one it is unknown whether
it took effect, until its `verify` or a person has settled that.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_hex
from typing import Any

from ..core import (
    Call,
    Caller,
    CallRecord,
    Content,
    Data,
    Decision,
    Pending,
    Recorder,
    Result,
    Text,
    ToolError,
    content_from_dict,
    content_of,
    content_to_dict,
)
from ..machinery import (
    Ledger,
    LedgerEntry,
    call_digest,
    current_deadline,
    in_thread_if_long,
    key_digest,
    log_failure,
    redacted_json,
)
from .arguments import CheckedArguments
from .execute import keep, may_be_repeated
from .runtime import Runtime

MAX_KEY_CHARS = 255
MAX_RESULT_BYTES = 16 * 1024 * 1024
"""How large a result is stored. Of a larger one, the ledger has only that the call took effect."""
FINISH_TIMEOUT_S = 10.0
TASK_LIFE = timedelta(days=7)
"""How long a task may wait for an answer, and how long its result is kept."""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.01, 0.25
_SPARE_S = 0.5
"""How long before its deadline a call says that the first one still runs."""


class Recalled(Exception):
    """Ends a call with the *result* of the first one with its key. *is_own*: this is that one, a task stored now."""

    def __init__(self, result: Result[Any], *, is_own: bool = False) -> None:
        super().__init__()
        self.result, self.is_own = result, is_own


class Claim:
    """The claim of one call with an idempotency key. *document* is what it runs with.

    `approved` is the run that a person has approved already: its process died, and another run is the same call.
    """

    __slots__ = ("approved", "document", "entry", "ledger", "runtime")
    kind = "run"

    def __init__(self, document: CheckedArguments, runtime: Runtime, ledger: Ledger) -> None:
        call, caller = document.call, runtime.caller
        self.document, self.runtime, self.ledger = document, runtime, ledger
        self.approved: LedgerEntry | None = None
        own_id = f"{self.kind}_{token_hex(16)}"
        self.entry = LedgerEntry(
            id=own_id,
            principal=caller.principal,
            key=own_id if call.idempotency_key is None else require_key(call.idempotency_key),
            digest=key_digest(caller.profile, document.tool.spec.name, document.forms.identity),
            tool=document.tool.spec.name,
            thread=caller.thread,
            is_idempotent=may_be_repeated(document.tool.spec),
            started_at=datetime.now(UTC),
        )

    async def recall(self) -> None:
        """Look the key up, before a person is asked. Raises Recalled, and ToolError `conflict` or `lost`."""
        entry = await self._wait_for(await self._stored())
        if entry is not None and entry.is_abandoned:
            self.accept(entry)

    async def make(self, decision: Decision | None, verify: Callable[[], Awaitable[Any]]) -> None:
        """Claim the call, so that it runs here and now. Raises as `recall` does.

        *verify* asks the tool whether the key took effect, where that is not known.
        """
        await self._describe(decision)
        while not (entry := await self.ledger.claim(self.entry)).is_own:
            waiting = await self._wait_for(entry)
            if waiting is not None and waiting.is_lost:
                await self._settle(waiting, verify)
        self.entry = entry

    async def _describe(self, decision: Decision | None) -> None:
        document, redaction, raw = self.document, self.runtime.redaction, self.document.call.arguments
        arguments = await in_thread_if_long(lambda: redacted_json(document.forms.text, redaction), raw)
        self.entry = replace(self.entry, arguments=arguments)
        if decision is not None and decision.by is not None:
            self.entry = replace(
                self.entry,
                approved_by=decision.by,
                approval=self._approval(),
                approvers=decision.approvers,
                grant=decision.grant,
            )

    def accept(self, entry: LedgerEntry) -> None:
        """Let the approval of *entry*, an earlier run, hold for this one, if it is of the same."""
        if entry.approval is not None and entry.approval == self._approval():
            self.approved = entry

    def _approval(self) -> str | None:
        """Return what an approval is bound to; None where it does not hold for another run."""
        document = self.document
        if document.forms.has_made:  # a person has seen defaults that this run does not have
            return None
        return call_digest(self.runtime.caller, document.tool, document.forms.identity)

    async def finish(self, result: Result[Any]) -> Result[Any]:
        """Store how the call ended, before its caller learns it, also where they give up now. Return it for them.

        A call that waits, or may be made again, is released.
        """
        finishing = asyncio.ensure_future(self._finish(result))
        keep(finishing)
        return await asyncio.shield(finishing)

    def acknowledged(self, entry: LedgerEntry) -> Result[Any]:
        """Return the result of a call that runs as the task *entry*."""
        call, name = self.document.call, entry.tool
        message = f"'{name}' runs as a task. Its result comes when it has ended."
        pending = Pending(
            id=entry.id,
            kind="task",
            message=message,
            digest=entry.digest,
            tool=name,
            principal=entry.principal,
            thread=entry.thread,
            expires_at=entry.started_at + TASK_LIFE,
            arguments=entry.arguments,
        )
        now = datetime.now(UTC)
        return Result(None, (Text(f"{message} ({entry.id})"),), None, (), now, now, call.id, call.tool, pending)

    def give_up(self) -> None:
        """Leave it unknown how the call ends: the program is told to stop."""
        self.ledger.give_up(self.entry)

    async def _finish(self, result: Result[Any]) -> Result[Any]:
        call, data = self.document.call, None
        is_repeatable = result.error is not None and result.error.retry == "later"
        try:
            if result.pending is None and not is_repeatable:
                data = await in_thread_if_long(partial(stored, result), [*map(_payload, result.content)])
            async with asyncio.timeout(FINISH_TIMEOUT_S):
                if await self.ledger.finish(self.entry, data):
                    return result
                # Another process has begun it again while this one seemed to be dead.
                await self._wait_for(await self._stored())
            error = lost(call.tool, self.entry)
        except Recalled as recalled:
            return recalled.result
        except ToolError as raised:
            error = raised
        except BaseException as failure:
            self.give_up()
            if not isinstance(failure, Exception):
                raise
            log_failure(f"The end of a call of '{call.tool}' could not be stored", failure, self.runtime.redaction)
            error = lost(call.tool, self.entry, "Its end could not be stored.")
        return replace(result, value=None, content=(Text(error.message),), error=error, pending=None)

    async def _stored(self) -> LedgerEntry | None:
        return await self.ledger.find(self.entry.principal, self.entry.key)

    async def _wait_for(self, current: LedgerEntry | None) -> LedgerEntry | None:
        """Wait until *current*, the first call with the key, does not run. Return it where the call may go on.

        Raises Recalled with its result; ToolError `conflict` where it is another call, or does not end in time; `lost`
        where it is not known whether it took effect, and the tool has no `verify`.
        """
        call, pause_s = self.document.call, _FIRST_PAUSE_S
        while current is not None:
            if current.digest != self.entry.digest:
                raise conflict(call.tool, current)
            if current.result is not None:
                result = restored(current.result, call)
                result.metadata["repeated"] = True
                raise Recalled(result)
            if current.is_lost and self.document.tool.verify is None:
                raise lost(call.tool, current)
            if current.call is not None:
                raise Recalled(self.acknowledged(current))
            if current.state == "released" or current.is_abandoned:
                break
            await _pause(pause_s, call.tool)
            pause_s = min(pause_s * 1.5, _MAX_PAUSE_S)
            current = await self._stored()
        return current

    async def _settle(self, entry: LedgerEntry, verify: Callable[[], Awaitable[Any]]) -> None:
        """Settle a lost *entry* by what `verify` says: False and it may run, None and it stays unknown."""
        verdict, data = None, None
        try:
            verdict = await verify()
            if verdict is not None and verdict is not False:
                took = (Text(took_effect(entry)),)
                content = took if verdict is True else content_of(verdict, self.document.tool.encode)
                data = stored(Result(None, content, started_at=entry.started_at))
        except Exception as error:
            log_failure(f"Whether a call of '{entry.tool}' took effect was not verified", error, self.runtime.redaction)
            verdict = None
        if verdict is None:
            raise lost(entry.tool, entry)
        await self.ledger.settle(entry, data)


async def settle(
    ledger: Ledger, entry: LedgerEntry, *, is_done: bool, by: str, recorders: Iterable[Recorder] = ()
) -> bool:
    """Settle a lost *entry* in the name of *by*, who knows whether its call took effect. False where it is not lost.

    It is in the log of *recorders* as `calls/settle`, a call of the principal whose call it was.
    """
    now = datetime.now(UTC)
    content = (Text(took_effect(entry, by)),)
    result = Result(None, content, None, (), entry.started_at, now, metadata={"settled_by": by})
    if not entry.is_lost or not await ledger.settle(entry, stored(result) if is_done else None, by=by):
        return False
    record = CallRecord(entry.id, "calls/settle", Caller(entry.principal, thread=entry.thread), now, "success")
    record.decision, record.answered_by = "done" if is_done else "not done", by
    for recorder in recorders:
        try:
            await recorder.finished(record)
        except Exception as error:
            log_failure(f"That '{by}' has settled a call of '{entry.tool}' could not be recorded", error, None)
    return True


def require_key(key: Any) -> str:
    """Return *key*. Raises ToolError `invalid_arguments` where it is not 1 to 255 printable characters of ASCII."""
    if isinstance(key, str) and 0 < len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable():
        return key
    raise ToolError(
        f"An idempotency key is 1 to {MAX_KEY_CHARS} printable characters of ASCII, such as a UUID. "
        "Send the same one with each retry of a call, and another one with each new call.",
        "invalid_arguments",
    )


async def _pause(seconds: float, tool: str) -> None:
    """Wait for the first call. Raises ToolError `conflict` where the deadline of this one leaves no time for that."""
    deadline = current_deadline.get()
    if deadline is not None and deadline.left_s < seconds + _SPARE_S:
        raise ToolError(
            f"A call of '{tool}' with this idempotency key is still running. Call again with the same key "
            "and arguments for its result.",
            "conflict",
            retry="later",
            details={"retry_after_s": 1},
        )
    await asyncio.sleep(seconds)


def conflict(tool: str, entry: LedgerEntry) -> ToolError:
    of_tool = "" if entry.tool == tool else f", of '{entry.tool}',"
    return ToolError(
        f"This idempotency key was used for another call{of_tool} with other arguments. Use a key of its own for each "
        "call.",
        "conflict",
        retry="never",
    )


def lost(tool: str, entry: LedgerEntry, reason: str = "Its process ended before it did.") -> ToolError:
    return ToolError(
        f"{reason} Whether this call of '{tool}' took effect is unknown. Do not repeat it: let a person find out, and "
        f"settle it (toolcrib calls settle {entry.id} --done or --not-done).",
        "lost",
        retry="never",
        details={"id": entry.id},
    )


def took_effect(entry: LedgerEntry, by: str | None = None) -> str:
    """Return the text of the result of a call that has taken effect, and whose own result is not known."""
    settled_by = "" if by is None else f", as '{by}' has settled"
    return f"This call of '{entry.tool}' took effect{settled_by}. Its result is not known."


# Results as the ledger has them


def stored(result: Result[Any]) -> dict[str, Any]:
    """Return *result* as JSON data. Of one that is too large, only that the call took effect."""
    content, error = result.content, result.error
    if sum(map(len, map(_payload, content))) > MAX_RESULT_BYTES:
        message = f"This call of '{result.tool}' took effect. Its result is too large to be given twice."
        content, error = (Text(message),), ToolError(message, "too_large", retry="never")
    return {
        "content": [content_to_dict(part, exact=True) for part in content],
        "error": error and error.to_dict(),
        "metadata": json.loads(json.dumps(result.metadata, default=str)),
        "times": [result.started_at.isoformat(), result.finished_at.isoformat()],
    }


def _payload(part: Any) -> Any:
    return getattr(part, "data", None) or part.text


def restored(data: Mapping[str, Any], call: Call) -> Result[Any]:
    """Return the result of *call* that `stored` wrote. Its value is the JSON of its content."""
    content = tuple(content_from_dict(part) for part in data["content"])
    error, value = data["error"], None
    if error is not None:
        error = ToolError(error["message"], error["code"], retry=error["retry"], details=error.get("details"))
    else:
        parts = content[:-1] if "edited" in data["metadata"].get("decision", ()) else content  # without the note on it
        values = [part.value if isinstance(part, Data) else _text_or_part(part) for part in parts]
        value = values[0] if len(values) == 1 else values
    started_at, finished_at = map(datetime.fromisoformat, data["times"])
    return Result(value, content, error, (), started_at, finished_at, call.id, call.tool, None, dict(data["metadata"]))


def _text_or_part(part: Content) -> Any:
    return part.text if isinstance(part, Text) else part
