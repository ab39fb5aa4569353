"""The calls that ended, the newest last, in memory and bounded."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..core import Call, Caller, Result


@dataclass(slots=True)
class CallRecord:
    """One call that ended: who called what, when, and how it ended. No arguments and no results.

    `code` is the error's, None for a success; `pending` is the kind of what the call waits for. `decision` is the
    policy's (`allow`, `deny`, `ask`), `rule` the rule it followed, `answered_by` the person who approved or denied.
    `started_s` is in seconds since the epoch.
    """

    call_id: str
    tool: str
    caller: Caller
    started_s: float
    duration_s: float
    code: str | None
    repairs: int
    pending: str | None = None
    decision: str | None = None
    rule: str | None = None
    answered_by: str | None = None

    @property
    def started_at(self) -> datetime:
        return datetime.fromtimestamp(self.started_s, UTC)


class CallLog:
    """Keeps the last *size* calls."""

    def __init__(self, size: int = 1000) -> None:
        self._records: deque[CallRecord] = deque(maxlen=size)

    def record(self, call: Call, caller: Caller, result: Result[Any], /) -> None:
        error, pending = result.error, result.pending
        started = result.started_s
        decision: dict[str, str] = result.metadata.get("decision") or {}
        self._records.append(
            CallRecord(
                call.id,
                call.tool,
                caller,
                started,
                result.finished_s - started,
                None if error is None else error.code,
                len(result.repairs),
                None if pending is None else pending.kind,
                decision.get("do"),
                decision.get("rule"),
                decision.get("by"),
            )
        )

    def __iter__(self) -> Iterator[CallRecord]:
        return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)
