"""Calls in memory, as lines for people, and as JSON data; and any log record as a line of JSON."""

import json
import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Any, TypeVar

from ..core import CallRecord, Recorder
from ..machinery import one_line

_log = logging.getLogger("toolcrib.calls")
K = TypeVar("K")

NEVER_RAN = ("unknown_tool", "invalid_arguments", "denied", "unauthorized", "limited")
"""Codes of calls that never ran, or of which nothing came."""
ASKED_FIRST = ("approval", "authorization")
"""What calls wait for that have not begun."""


def had_effect(record: CallRecord) -> bool:
    """Return whether a call may have changed something."""
    return not (record.read_only or record.code in NEVER_RAN or record.pending in ASKED_FIRST)


def in_order_to_drop(entries: Iterable[tuple[K, CallRecord, int]]) -> Iterator[K]:
    """Yield the keys of *entries* (key, record, size; the oldest first) in the order in which they make room.

    Calls that changed nothing come first; of equal ones, the oldest of the principal whose entries are the largest.
    """
    lasting, rest = (defaultdict[str, deque[tuple[int, K, int]]](deque) for _ in range(2))
    for position, (key, record, size) in enumerate(entries):
        (lasting if had_effect(record) else rest)[record.caller.principal].append((position, key, size))
    for part in (rest, lasting):
        # Positions tell equal ones apart.
        largest = [(-sum(size for *_, size in queue), queue) for queue in part.values()]
        heapify(largest)
        while largest:
            total, queue = largest[0]
            _, key, size = queue.popleft()
            heapreplace(largest, (total + size, queue)) if queue else heappop(largest)
            yield key


class CallLog(Recorder):
    """Keeps the records of the last *size* calls that ended. With *with_content*, with arguments and results.

    Calls that never ran, or only read, make room for those that may have changed something; of equal ones, the oldest
    of the principal who has the most.
    """

    def __init__(self, size: int = 1000, *, with_content: bool = False) -> None:
        self.with_content = with_content
        self._size = size
        self._records: list[CallRecord] = []

    async def finished(self, record: CallRecord, /) -> None:
        self._records.append(record)
        if len(self._records) > 2 * self._size:  # else the choice of what to drop would take longer than the call
            self._make_room()

    def _make_room(self) -> None:
        order = in_order_to_drop((position, record, 1) for position, record in enumerate(self._records))
        excess = set(islice(order, max(0, len(self._records) - self._size)))
        self._records = [record for position, record in enumerate(self._records) if position not in excess]

    def __iter__(self) -> Iterator[CallRecord]:
        self._make_room()
        return iter(tuple(self._records))

    def __len__(self) -> int:
        return min(len(self._records), self._size)


class CallLines(Recorder):
    """Logs each call that has ended, as one line, at the level INFO, in the log `toolcrib.calls`.

    The log record's `call` has the record as data. Neither has arguments or results.
    """

    async def finished(self, record: CallRecord, /) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        _log.info("%s", line_of(record), extra={"call": call_data(record)})


def line_of(record: CallRecord) -> str:
    """Return *record* for people, on one line."""
    parts = (record.id, record.tool, status_of(record), duration_of(record), f"by {name_of(record)}", notes_on(record))
    return "  ".join(map(one_line, filter(None, parts)))


def name_of(record: CallRecord) -> str:
    """Return who called."""
    caller = record.caller
    return caller.principal if caller.profile == "default" else f"{caller.principal}/{caller.profile}"


def status_of(record: CallRecord) -> str:
    """Return how a call ended, with the code of its error or what it waits for."""
    how = record.code or record.pending
    return f"{record.status} ({how})" if how else record.status


def notes_on(record: CallRecord) -> str:
    """Return what was repaired and decided."""
    notes = ["repeated"] if record.repeated else []
    if record.repairs:
        notes.append(f"{record.repairs} repaired")
    if record.decision is not None:
        notes.append(f"{record.decision} by '{record.rule}'" if record.rule else record.decision)
    if record.answered_by is not None:
        notes.append(f"{'answered' if record.grant is None else f'granted ({record.grant})'} by {record.answered_by}")
    return ", ".join(notes)


def duration_of(record: CallRecord) -> str:
    """Return how long a call took, for people; empty where it has not ended."""
    if record.status in ("started", "lost"):
        return ""
    seconds = record.duration_s
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


REPAIRED = ("argument", "from", "to")
"""What is known of a repaired argument: its name, and from which kind to which."""

_AT_END = (
    *("status", "code", "repairs", "pending", "decision", "rule", "answered_by", "read_only", "repeated"),
    *("arguments_bytes", "result_bytes", "traceparent"),
)


def _members(holder: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(holder, name) for name in names}


def call_data(record: CallRecord, *, with_content: bool = False) -> dict[str, Any]:
    """Return *record* as JSON data: what is not known is null, and times are in ISO 8601."""
    caller, has_ended = record.caller, record.status not in ("started", "lost")
    data: dict[str, Any] = {
        **_members(record, ("id", "call_id", "tool")),
        **_members(caller, ("principal", "profile", "thread")),
        "started_at": record.started_at.isoformat(),
        "duration_s": round(record.duration_s, 6) if has_ended else None,
        **_members(record, _AT_END),
    }
    if record.grant is not None:
        data["grant"] = record.grant
    if record.repaired:
        data["repaired"] = [dict(zip(REPAIRED, repair, strict=True)) for repair in record.repaired]
    names = ("arguments", "result", "sent") if record.sent is not None else ("arguments", "result")
    return data | (_members(record, names) if with_content else {})


class JsonFormatter(logging.Formatter):
    """Log records as one line of JSON each: `at`, `level`, `logger`, `message`, and where there are, `reference`,
    `call` and `exception`.

    `reference` is the one in the message that a model got; `call` is the record of a call.
    """

    def format(self, record: logging.LogRecord) -> str:
        data: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("reference", "call"):
            if (value := getattr(record, name, None)) is not None:
                data[name] = value
        if record.exc_text:  # with secrets redacted
            data["exception"] = record.exc_text
        elif record.exc_info:
            data["exception"] = self.formatException(record.exc_info)
        return json.dumps(data, ensure_ascii=True, default=str)
