"""The call log in a store, for any number of processes: a recorder, its table, and the thread that writes.

The start of a call that may change something is committed before its work. Everything else is written in batches, and
no call waits for it. Where the store cannot be written, calls go on, and what is not in the log is counted.
"""

import asyncio
import atexit
import json
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_hex
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Executable, Select, select, text

from ..core import Caller, CallRecord, Recorder, SetupError, StoreError
from ..machinery import from_any_thread
from ..store import Store
from ..store.database import refusal
from ..store.events import CHECKPOINT_INTERVAL_S, EVENTS, Event, execute_many, fields_json
from ..store.tables import Schema, Sealed, decode_bytes, decode_name, decode_time, encode_name, encode_time, table
from .calls import ASKED_FIRST, NEVER_RAN, had_effect, in_order_to_drop
from .statistics import statistics

_log = logging.getLogger("toolcrib")

STATUSES = ("started", "success", "error", "pending", "lost")
_START_TIMEOUT_S = 2.0
"""How long a call waits for its start to be written."""
_FLUSH_TIMEOUT_S = 5.0
_NOT_WRITTEN = "The call log cannot be written now"
_LOOK_INTERVAL_S = 0.25
_EVENTS_LOOKED_AT = 20_000
_OVERLAP = 1_000
"""So many of the newest are looked at again: on PostgreSQL, rows can appear after some that have a higher number."""
BATCH_INTERVAL_S = 0.1
"""How long records are collected before they are written."""
BEAT_INTERVAL_S, LOST_TIMEOUT_S = 10.0, 30.0
"""How often it is noted that started calls still run, and after which time without that they are lost."""
_IDLE_S, _RETRY_S, _TIDY_S, _EXIT_S = 5.0, 1.0, 60.0, 3.0
_MAX_QUEUE_CHARS = 32 * 1024 * 1024
_DELETED_AT_ONCE, _DELETION_PAUSE_S = 200, 0.02
"""How many rows a transaction deletes, and how long other processes may write before the next one."""

# The table, and records as its rows. In clear is what rows are found by and counted: who called what, when, and how it
# ended. Sealed are arguments and results, where they are recorded at all, bound to the call that they are of.

_ROW_BYTES = 300
"""About how much room a row takes without its content."""
_NAMES = ("id", "call_id", "tool", "principal", "profile", "thread")
_TEXTS = ("status", "code", "pending", "decision", "rule", "answered_by", "traceparent")
_NUMBERS = ("repairs", "arguments_bytes", "result_bytes")
_CONSTANT = (*_NAMES, "read_only", "started_at", "owner", "lost_after")
_STATE = (*_TEXTS, *_NUMBERS, "repeated", "repaired", "duration_us")
"""What the end of a call changes."""
_COLUMNS = (*_CONSTANT, *_STATE, "size_bytes", "content")
_STATUS = len(_CONSTANT)
_STATE_PART = slice(_STATUS, _STATUS + len(_STATE))

CALLS = table("toolcrib_calls", "number", *_COLUMNS, key=("number",))
_t = CALLS.c
Row = tuple[Any, ...]
"""The values of `_COLUMNS`."""


# Not by IN, for which SQLite builds a table with each row that is written.
_CONDITIONS = (*(f"code = '{code}'" for code in NEVER_RAN), *(f"pending = '{kind}'" for kind in ASKED_FIRST))
_SPARE = f"(read_only = 1 OR {' OR '.join(_CONDITIONS)})"
"""Where a row is of a call that changed nothing, as `had_effect` has it. A migration has it too."""


def _of_content(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("call", *(str(row[name]) for name in (*_NAMES, "started_at")))


RECORD = Schema(
    "record",
    [
        (
            """CREATE TABLE toolcrib_calls (
                number {number}, id TEXT NOT NULL UNIQUE, call_id TEXT NOT NULL, tool TEXT NOT NULL,
                principal TEXT NOT NULL, profile TEXT NOT NULL, thread TEXT NOT NULL, status TEXT NOT NULL, code TEXT,
                pending TEXT, decision TEXT, rule TEXT, answered_by TEXT, traceparent TEXT, repairs BIGINT NOT NULL,
                arguments_bytes BIGINT, result_bytes BIGINT, read_only BIGINT NOT NULL, started_at BIGINT NOT NULL,
                duration_us BIGINT, owner TEXT NOT NULL, lost_after BIGINT NOT NULL, size_bytes BIGINT NOT NULL,
                content {bytes})""",
            "CREATE INDEX toolcrib_calls_principal ON toolcrib_calls (principal, number)",
            "CREATE INDEX toolcrib_calls_time ON toolcrib_calls (started_at)",
            "CREATE INDEX toolcrib_calls_started ON toolcrib_calls (owner) WHERE status = 'started'",
        ),
        (
            "DROP INDEX toolcrib_calls_principal",
            # With the sizes: they are summed without a look at the rows.
            "CREATE INDEX toolcrib_calls_principal ON toolcrib_calls (principal, number, size_bytes)",
        ),
        (),  # made an index, which the last migration replaces
        ("ALTER TABLE toolcrib_calls ADD COLUMN repeated BIGINT NOT NULL DEFAULT 0",),
        ("ALTER TABLE toolcrib_calls ADD COLUMN repaired TEXT",),  # as JSON: it is counted as it is
        (
            "DROP INDEX IF EXISTS toolcrib_calls_spare",
            f"CREATE INDEX toolcrib_calls_spare ON toolcrib_calls (principal, number, size_bytes) WHERE {_SPARE}",
        ),
    ],
    sealed=(Sealed(CALLS, "content", _of_content),),
    principals={CALLS: "principal"},
)

_CHANGING = [name for name in _COLUMNS if name not in _NAMES]
_MARKS = (("sqlite", "?"), ("postgresql", "%s"))
# What is there already is the start of a call, or a commit whose answer was lost.
_PUT = {
    dialect: f"INSERT INTO toolcrib_calls ({', '.join(_COLUMNS)}) VALUES ({', '.join([mark] * len(_COLUMNS))}) "  # noqa: S608
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _CHANGING)}"
    for dialect, mark in _MARKS
}
_END = {
    dialect: f"UPDATE toolcrib_calls SET {', '.join(f'{name} = {mark}' for name in _STATE)} WHERE id = {mark}"  # noqa: S608
    for dialect, mark in _MARKS
}
_STILL_RUNS = text("UPDATE toolcrib_calls SET lost_after = :until WHERE owner = :owner AND status = 'started'")

_LOST = text(
    "UPDATE toolcrib_calls SET lost_after = 0 WHERE number IN (SELECT number FROM toolcrib_calls "
    "WHERE status = 'started' AND lost_after > 0 AND lost_after <= :now LIMIT :most) "
    "RETURNING id, call_id, tool, principal, profile, thread"
)
"""Takes the calls that have been lost since this was done the last time. They stay lost: 0 is long ago."""

_EVENT_BYTES = 400
"""About how much room an event takes."""
_ENDED = "NOT (status = 'started' AND lost_after > :now)"
_DELETE = "DELETE FROM toolcrib_calls WHERE number IN (SELECT number FROM toolcrib_calls WHERE {} LIMIT :most)"
_DELETE_OLD = text(_DELETE.format(f"started_at < :oldest AND {_ENDED}"))
# Of one principal, first what never ran, or only read.
_DELETE_SPARE = text(_DELETE.format(f"number <= :last AND principal = :principal AND {_SPARE} AND {_ENDED}"))
_DELETE_FIRST = text(_DELETE.format(f"number <= :last AND principal = :principal AND {_ENDED}"))
_ADDED = text("SELECT SUM(size_bytes) FROM toolcrib_calls WHERE number > :last")
_SIZE = text("SELECT SUM(size_bytes) FROM toolcrib_calls")
# Who has the most, and how much, and the next one.
_HEAVIEST = (
    "SELECT principal, SUM(size_bytes) AS held FROM toolcrib_calls WHERE {} GROUP BY principal ORDER BY 2 DESC LIMIT 2"
)
# The last of the first calls of a principal that are too much, of some thousands: others need not be read. In one
# statement, for other processes delete the same meanwhile.
_LAST_EXCESS = (
    "SELECT MAX(number) FROM (SELECT number, SUM(size_bytes) OVER (ORDER BY number ROWS UNBOUNDED PRECEDING) "
    "- size_bytes AS total FROM (SELECT number, size_bytes FROM toolcrib_calls WHERE principal = :principal AND {} "
    "ORDER BY number LIMIT 10000) AS firsts) AS summed "
    "WHERE total < :part AND total < (SELECT SUM(size_bytes) FROM toolcrib_calls) - :max_bytes"
)
_EXCESSES = [
    (text(_HEAVIEST.format(which)), text(_LAST_EXCESS.format(which)), delete)
    for which, delete in ((_SPARE, _DELETE_SPARE), ("1 = 1", _DELETE_FIRST))
]
_NEWEST = text("SELECT MAX(number) FROM toolcrib_calls")
_LOOK_SHARE = 32
"""All sizes are summed again once this part of what the log may take was added."""


def _to_row(record: CallRecord, store: Store, *, is_start: bool, owner: str, lost_after: int) -> Row:
    """Return *record* as a row; where it *is_start*, as it is before the work, whatever became of it meanwhile."""
    caller = record.caller
    names = (record.id, record.call_id, record.tool, caller.principal, caller.profile, caller.thread)
    end = ("started", None, None) if is_start else (record.status, record.code, record.pending)
    texts = (*end, record.decision, record.rule, record.answered_by, record.traceparent)
    row = (
        *[encode_name(name) for name in names],
        int(record.read_only),
        encode_time(record.started_at),
        owner,
        lost_after,
        *[text and encode_name(text) for text in texts],
        record.repairs,
        record.arguments_bytes,
        None if is_start else record.result_bytes,
        int(record.repeated),
        encode_name(json.dumps(record.repaired)) if record.repaired else None,
        None if is_start else round(record.duration_s * 1e6),
    )
    content = {"arguments": record.arguments, "result": None if is_start else record.result}
    if record.sent is not None:
        content["sent"] = record.sent
    if record.grant is not None:
        content["grant"] = record.grant
    if all(value is None for value in content.values()):
        return (*row, _ROW_BYTES, None)
    binding = _of_content(dict(zip(_COLUMNS, row, strict=False)))  # those of the content come last
    sealed = store.keys.seal(json.dumps(content).encode(), *binding)
    return (*row, _ROW_BYTES + len(sealed), sealed)


def _event(row: Row, record: CallRecord, store: Store) -> Event:
    """Return the event of what *row* says of *record*."""
    caller, digest = record.caller, record.digest
    status, code, pending, decision, rule, by, *_, duration_us = row[_STATE_PART]
    is_start = status == "started"
    fields: dict[str, Any] = {
        "id": record.id,
        "call_id": record.call_id,
        "profile": caller.profile,
        "thread": caller.thread,
        "tool": record.tool,
        "decision": decision,
        "rule": rule,
        "by": by,
        "grant": record.grant,
        "digest": digest and store.keys.digest(digest.encode()),
        "arguments": record.arguments_digest or None,
        "status": None if is_start else status,
        "code": code,
        "pending": pending,
        "started_at": None if is_start else row[_CONSTANT.index("started_at")],
        "duration_us": duration_us,
        "repeated": record.repeated or None,
        "result": None if is_start else record.result_digest or None,
    }
    return row[_CONSTANT.index("principal")], fields_json("started" if is_start else "ended", fields)


def _to_record(row: Mapping[Any, Any], store: Store, *, now: int) -> CallRecord:
    """Return the record in *row*; `lost` is the status of a call that no process runs any more. Raises StoreError."""
    try:
        id, call_id, tool, principal, profile, thread = (decode_name(row[name]) for name in _NAMES)  # noqa: A001
        record = CallRecord(call_id, tool, Caller(principal, profile, thread), decode_time(row["started_at"]), id=id)
        for names, decode in ((_TEXTS, decode_name), (_NUMBERS, int)):
            for name in names:
                setattr(record, name, None if row[name] is None else decode(row[name]))
        record.read_only, record.repeated = bool(row["read_only"]), bool(row["repeated"])
        record.duration_s = int(row["duration_us"] or 0) / 1e6
        record.repaired = tuple((str(a), str(b), str(c)) for a, b, c in json.loads(row["repaired"] or "[]"))
        if record.status == "started" and int(row["lost_after"]) <= now:
            record.status = "lost"
        if row["content"] is not None:
            content = json.loads(store.keys.unseal(decode_bytes(row["content"]), *_of_content(row)))
            record.arguments, record.result = content["arguments"], content["result"]
            record.sent, record.grant = content.get("sent"), content.get("grant")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StoreError(f"A call in the store {store.place} is damaged.") from None
    return record


Waiter = asyncio.Future[None]


def _release(waiters: Iterable[Waiter | None]) -> None:
    """Let *waiters* go on, from any thread: waking a loop costs more than what it does then, so each is woken once."""
    by_loop: defaultdict[Any, list[Waiter]] = defaultdict(list)
    for waiter in waiters:
        if waiter is not None:
            by_loop[waiter.get_loop()].append(waiter)
    for loop, its in by_loop.items():
        from_any_thread(_settle, loop)(its)


def _settle(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _expire(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


@dataclass(slots=True)
class _Item:
    record: CallRecord | None
    is_start: bool
    waiter: Waiter | None
    is_needed: bool = False
    """Whether the start of the call may be in the log: without its end, it would be kept as running."""
    is_left_out: bool = False
    """Whether it is not written, since the database refuses it or there was no room."""
    chars: int = field(init=False)

    def __post_init__(self) -> None:
        record = self.record
        self.chars = 0 if record is None else len(record.arguments or "") + len(record.result or "")


class _Writer:
    """Writes the calls of one process in batches, on a thread of its own: as many as come while it is writing.

    The queue is bounded. What is too much for it, because the store cannot be written, is dropped and counted. The
    thread ends when there is nothing to do, and begins again. `failing` is whether the store could not be written the
    last time.
    """

    def __init__(
        self, store: Store, write: Any, *, max_age_s: float, max_bytes: int, size: int, clock: Callable[[], datetime]
    ) -> None:
        self._store, self._transact = store, write
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._size = size
        self._clock = clock
        self._owner = token_hex(8)
        self._lock = threading.Lock()  # guards what is below, up to the empty line
        self._changed = threading.Condition(self._lock)
        self._queue: dict[str, _Item] = {}  # of each call the last, by the id of its record
        self._flushes: list[Waiter] = []
        self._begun: set[str] = set()
        """The calls whose start was taken, and whose end was not yet."""
        self._chars = 0
        self._thread: threading.Thread | None = None
        self._is_urgent = self._is_closing = self._is_resting = False

        # Of the thread alone, but for looking into it:
        self._open: set[str] = set()
        self._beat_at = self._tidy_at = 0.0
        self._deletions: list[tuple[Executable, dict[str, Any]]] = []
        self._last = 0  # the number of the last call that is in the sum of all sizes
        self.failing = False
        self.dropped = 0

    def put(self, record: CallRecord | None, *, is_start: bool = False, waiter: Waiter | None = None) -> _Item:
        """Have *record* written; *waiter* is released when it is, or cannot be."""
        item = _Item(record, is_start, waiter)
        with self._lock:
            if record is not None:
                key = record.id
                before = self._queue.get(key)
                item.is_needed = key in self._begun if before is None else before.is_needed
                (self._begun.add if is_start else self._begun.discard)(key)
                self._queue[key] = item
                self._chars += item.chars - (0 if before is None else before.chars)
                if len(self._queue) > self._size or self._chars > _MAX_QUEUE_CHARS:
                    self._make_room()
            elif waiter is not None:
                self._flushes.append(waiter)
            self._is_urgent = self._is_urgent or waiter is not None
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="toolcrib-calls", daemon=True)
                thread.start()  # where that fails, the next record tries again
                self._thread = thread
            elif waiter is None and self._is_resting:
                self._changed.notify()
        return item

    def _make_room(self) -> None:
        """Drop some of what waits: of calls that changed nothing, then of others, the oldest of who has the most."""
        entries = [
            (key, item.record, _ROW_BYTES + item.chars)
            for key, item in self._queue.items()
            if item.record is not None and not item.is_needed
        ]
        for key in in_order_to_drop(entries):
            # An eighth at once, for this looks at all that waits.
            if len(self._queue) <= self._size - self._size // 8 and self._chars * 8 <= _MAX_QUEUE_CHARS * 7:
                return
            item = self._queue.pop(key)
            self._begun.discard(key)
            self._chars -= item.chars
            self.dropped += not item.is_start  # a call has one end
            item.is_left_out = True
            _release([item.waiter])

    async def written(self, record: CallRecord | None, timeout_s: float, *, is_start: bool = True) -> bool:
        """Have *record* written, and whatever came before. Return whether it is. Raises TimeoutError."""
        waiter: Waiter = asyncio.Future()
        item = self.put(record, is_start=is_start, waiter=waiter)
        loop = waiter.get_loop()
        timer = loop.call_later(timeout_s, _expire, waiter)  # `asyncio.timeout` takes five times as long
        # When this task has taken its step: until then the thread could only wait for the interpreter.
        loop.call_soon(self._wake)
        try:
            await waiter
        finally:
            timer.cancel()
        return not (self.failing or item.is_left_out)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def fail(self, reason: str) -> None:
        """Let no call wait from now on, until something is written again. Log that once."""
        if not self.failing:
            self.failing = True
            _log.error("The call log cannot be written; calls go on without it. %s", reason)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to write."""
        return self._thread is None

    def _run(self) -> None:
        atexit.register(self._at_exit)
        try:
            while (batch := self._next_batch()) is not None:
                items, flushes = batch
                was_failing = self.failing
                is_written = self._write(items)
                _release(item.waiter for item in items)
                if flushes or not items:
                    self._sign()
                if is_written:
                    self._tidy(len(items), is_brief=bool(flushes))  # no start waits for that
                _release(flushes)
                if not is_written:
                    self._keep(items, may_be_written=not was_failing)
            self._sign()
        except BaseException:
            self._thread = None  # the next record begins another
            raise
        finally:
            atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """Write what is left when the interpreter ends, if that does not take long."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if (thread := self._thread) is not None:
            thread.join(_EXIT_S)

    def _next_batch(self) -> tuple[list[_Item], list[Waiter]] | None:
        """Wait for records, and for more. Return them; none to write that calls still run. None at the end."""
        with self._changed:
            are_signed = self._store.events.are_signed
            idle_s = BEAT_INTERVAL_S if self._open else _IDLE_S
            # Ends of calls wake the thread only from its rest: each wake costs a good part of what it writes.
            self._changed.wait_for(self._is_due, BATCH_INTERVAL_S if self._queue else min(BATCH_INTERVAL_S, idle_s))
            if not self._has_work():
                self._is_resting = True
                self._changed.wait_for(self._has_work, idle_s if are_signed else CHECKPOINT_INTERVAL_S)
                self._is_resting = False
                if self._queue:
                    self._changed.wait_for(self._is_due, BATCH_INTERVAL_S)
            has_more = bool(self._open) or not are_signed
            if not self._queue and not self._flushes and (self._is_closing or not has_more):
                self._thread = None
                return None
            items, flushes = [*self._queue.values()], self._flushes
            self._queue, self._flushes, self._chars, self._is_urgent = {}, [], 0, False
            return items, flushes

    def _is_due(self) -> bool:
        return self._is_urgent or self._is_closing

    def _has_work(self) -> bool:
        return bool(self._queue or self._flushes or self._is_closing)

    def _keep(self, items: list[_Item], *, may_be_written: bool) -> None:
        """Keep *items*, which could not be written, for later, and wait a while.

        They *may be written* where the store could be written before: it may be its answer that is lost.
        """
        with self._changed:
            if self._is_closing:
                self.dropped += sum(not item.is_start for item in items if item.record is not None)
                return
            newer, self._queue = self._queue, {}
            for item in items:
                item.is_needed = item.is_needed or (may_be_written and item.is_start)
            for item in (*items, *newer.values()):
                if item.record is not None:
                    before = self._queue.get(item.record.id)
                    item.is_needed = item.is_needed if before is None else before.is_needed
                    self._queue[item.record.id] = item
            self._chars = sum(item.chars for item in self._queue.values())
            if len(self._queue) > self._size:
                self._make_room()
            self._changed.wait_for(self._is_due, _RETRY_S)

    def _sign(self) -> None:
        """Sign what is not signed yet. Where that fails, it is tried again with what is written next."""
        with suppress(StoreError, SetupError):
            self._store.sign_events()

    def _write(self, items: list[_Item]) -> bool:
        """Write *items*, their events, and that started calls still run, at once. False where that failed."""
        lost_after = encode_time(self._clock() + timedelta(seconds=LOST_TIMEOUT_S))
        rows, events = self._rows(items, lost_after)
        is_beat = bool(self._open) and time.monotonic() - self._beat_at > BEAT_INTERVAL_S
        beat = {"owner": self._owner, "until": lost_after} if is_beat else None

        def put(connection: Connection, *, one_by_one: bool = False) -> dict[str, str]:
            refusals = (_put_each if one_by_one else _put_all)(connection, [*rows.items()], beat, self._open)
            self._store.events.add_batch(connection, [events[key] for key in rows if key not in refusals])
            return refusals

        try:
            if rows or is_beat:
                try:
                    refusals = self._transact(put)  # in the hope that the database refuses none
                except Exception as error:
                    if not rows or (error.is_away if isinstance(error, StoreError) else refusal(error) is None):
                        raise
                    refusals = self._transact(partial(put, one_by_one=True))
                for key, reason in refusals.items():
                    del rows[key]
                    self._leave_out([item for item in items if item.record and item.record.id == key], reason)
                self._beat_at = time.monotonic() if is_beat or not self._open else self._beat_at
        except Exception as error:
            self.fail(str(error) if error.__class__.__module__.startswith("toolcrib.") else type(error).__name__)
            return False
        for key, row in rows.items():
            (self._open.add if row[_STATUS] == "started" else self._open.discard)(key)
        if self.failing:
            self.failing = False
            _log.warning("The call log is written again. Calls that are not in it: %d.", self.dropped)
        return True

    def _rows(self, items: list[_Item], lost_after: int) -> tuple[dict[str, Row], dict[str, Event]]:
        """Return the rows of *items*, and the events, by the ids of their calls: of a start and an end the end."""
        rows: dict[str, Row] = {}
        events: dict[str, Event] = {}
        for item in items:
            if (record := item.record) is None:
                continue
            try:
                row = _to_row(record, self._store, is_start=item.is_start, owner=self._owner, lost_after=lost_after)
                events[record.id] = _event(row, record, self._store)
                rows[record.id] = row
            except (TypeError, ValueError, AttributeError, ArithmeticError) as error:  # what a policy has put there
                self._leave_out([item], type(error).__name__)
        return rows, events

    def _leave_out(self, items: list[_Item], reason: str) -> None:
        """Leave *items*, of one call, out of the log, so that the others do not wait for it. Say which, and count."""
        for item in items:
            self.dropped += not item.is_start
            item.is_left_out = True
            record, item.record = item.record, None
            if record is not None:
                names = (record.id, str(record.tool)[:100], str(getattr(record.caller, "principal", ""))[:100])
                _log.error("The call %r of the tool %r by %r is left out of the call log: %s.", *names, reason)

    def _tidy(self, added: int, *, is_brief: bool) -> None:
        """Delete some of what is too old or too much, after *added* were written, and more until there are others."""
        if self._tidy_at and time.monotonic() - self._tidy_at < _TIDY_S:
            return
        # More than were added: else a busy process would never get to the end.
        most, is_over = max(_DELETED_AT_ONCE, 2 * added), False
        try:
            while self._tidy_events(most) and not is_brief and not self._queue:
                pass
            while not is_over:
                self._deletions = self._deletions or self._store.write(self._overdue, lock=False)
                statement, bounds = self._deletions[0]
                delete = statement, {**bounds, "now": encode_time(self._clock()), "most": most}
                count = self._store.write(lambda connection, delete=delete: connection.execute(*delete).rowcount)  # type: ignore[misc]
                if count < most:
                    del self._deletions[0]
                has_more = bool(self._deletions)
                if count and statement is not _DELETE_OLD:  # it had the first thousands of what is too much
                    has_more, self._last = True, 0
                self._tidy_at = 0.0 if has_more else time.monotonic()
                if is_brief or not has_more:
                    is_over = count == most or not self._deletions
                    continue
                with self._changed:
                    self._changed.wait_for(lambda: self._queue or self._is_closing, _DELETION_PAUSE_S)
                    is_over = bool(self._queue) or self._is_closing
        except Exception as error:  # what is written does not depend on it
            self._tidy_at, self._deletions = time.monotonic(), []
            _log.warning("What is too old in the call log could not be deleted: %s", str(error) or type(error).__name__)

    def _tidy_events(self, most: int) -> bool:
        """Append that calls were lost, and let stubs be all that is left of events that are too old or too many.

        Return whether there are more.
        """
        now = self._clock()
        bounds = {
            "oldest": encode_time(now - timedelta(seconds=self._max_age_s)),
            "max_count": self._max_bytes // _EVENT_BYTES,
            "most": most,
        }

        def tidy(connection: Connection) -> bool:
            rows = connection.execute(_LOST, {"now": encode_time(now), "most": most}).mappings().fetchall()
            for row in rows:
                self._store.events.add(connection, "lost", **{name: decode_name(row[name]) for name in _NAMES})
            return self._store.events.trim(connection, **bounds)

        return self._store.write(tidy)

    def _overdue(self, connection: Connection) -> list[tuple[Executable, dict[str, Any]]]:
        """Return the statements that delete what is too old, and the first calls where all take too much."""
        oldest = encode_time(self._clock() - timedelta(seconds=self._max_age_s))
        deletions: list[tuple[Executable, dict[str, Any]]] = [(_DELETE_OLD, {"oldest": oldest})]
        if self._last:
            added = connection.execute(_ADDED, {"last": self._last}).scalar() or 0
            if added * _LOOK_SHARE < self._max_bytes:
                return deletions
        self._last = int(connection.execute(_NEWEST).scalar() or 0)
        excess = int(connection.execute(_SIZE).scalar() or 0) - self._max_bytes
        for heaviest, last_excess, delete in _EXCESSES if excess > 0 else ():
            holders = [(principal, int(held)) for principal, held in connection.execute(heaviest)]
            if holders:
                (principal, held), (_, next_held) = holders[0], holders[-1]
                # As far as the next one who has the most, but not by single rows where many have the same.
                part = held - next_held if len(holders) == 2 else held
                bounds = {"principal": principal, "part": max(part, excess // 8, 1), "max_bytes": self._max_bytes}
                last = connection.execute(last_excess, bounds).scalar()
                if last is not None:
                    deletions.append((delete, {"last": int(last), "principal": principal}))
                break
        return deletions


def _put_all(
    connection: Connection, rows: Sequence[tuple[str, Row]], beat: dict[str, Any] | None, begun: Container[str]
) -> dict[str, str]:
    """Write *rows*, all or none; with *beat*, also that the started calls of its owner still run.

    The rows of calls that have *begun* are there: of those without content, only the state is written.
    """
    ends = {key: row for key, row in rows if key in begun and row[_STATUS] != "started" and row[-1] is None}
    states = [(*row[_STATE_PART], row[0]) for row in ends.values()]
    if execute_many(connection, _END, states) < len(states):
        ends = {}  # some were deleted meanwhile
    execute_many(connection, _PUT, [row for key, row in rows if key not in ends])
    if beat is not None:
        connection.execute(_STILL_RUNS, beat)
    return {}


def _put_each(
    connection: Connection, rows: Sequence[tuple[str, Row]], beat: dict[str, Any] | None, begun: Container[str]
) -> dict[str, str]:
    """Write *rows* one by one, and *beat*. Return the keys of those that the database refuses, with the reasons."""
    refusals: dict[str, str] = {}
    for key, row in rows:
        try:
            with connection.begin_nested():
                _put_all(connection, [(key, row)], None, begun)
        except Exception as error:
            if (reason := refusal(error)) is None:
                raise
            refusals[key] = reason
    return _put_all(connection, (), beat, ()) | refusals


class DatabaseCalls(Recorder):
    """The call log in *store*: each call, when it ends, and before its work where that may change something.

    *with_content* records arguments and results too, sealed. Calls are kept for *max_age_s* seconds, and as many as
    take *max_bytes*. *commit_start* False writes the start of every call off its way, too. *required* refuses calls
    that may change something where their start cannot be written, and has their end written before the caller gets the
    result. *durable* "full": what is committed survives a loss of power; "normal": it survives the process, which is
    faster. Up to *size* records wait to be written; `dropped` counts the calls for whose end there was no room, and
    `unconfirmed` those whose start was not written when their work began.
    """

    def __init__(
        self,
        store: Store,
        *,
        with_content: bool = False,
        commit_start: bool = True,
        required: bool = False,
        durable: Literal["full", "normal"] = "full",
        max_age_s: float = 30 * 24 * 3600.0,
        max_bytes: int = 256 * 1024 * 1024,
        size: int = 10_000,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if durable not in ("full", "normal"):
            raise SetupError(f"DatabaseCalls(durable=...) is 'full' or 'normal', not {durable!r}.")
        if max_bytes < 1 or size < 1 or not max_age_s > 0:
            raise SetupError("The bounds of DatabaseCalls, max_age_s, max_bytes and size, are above 0.")
        self.bounds_itself = type(self) is DatabaseCalls
        """No call waits for it over `_START_TIMEOUT_S`; what a subclass does may take longer."""
        self.with_content = with_content
        self.digest = self._digest
        self.unconfirmed = 0
        self._store = store
        self.required = required
        self._commit_start = commit_start or required
        self._clock = clock
        write = partial(store.write, is_durable=durable == "full")
        self._new_writer = partial(
            _Writer, store, write, max_age_s=max_age_s, max_bytes=max_bytes, size=size, clock=clock
        )
        self._writers: dict[int, _Writer] = {}
        store.use(RECORD)

    @property
    def dropped(self) -> int:
        return self._writer().dropped

    def _digest(self, data: bytes) -> str:
        """Return a digest of *data* by the key of the store; empty where that is gone, so that calls go on."""
        try:
            return self._store.keys.digest(data)
        except (SetupError, StoreError):
            return ""

    async def started(self, record: CallRecord, /) -> None:
        if record.read_only or not self._commit_start:
            self._writer().put(record, is_start=True)
        elif not await self._written(record, is_start=True):
            self.unconfirmed += 1
            if self.required:
                raise StoreError(_NOT_WRITTEN)

    async def finished(self, record: CallRecord, /) -> None:
        if self.required and had_effect(record):
            await self._written(record, is_start=False)
        else:
            self._writer().put(record)

    async def _written(self, record: CallRecord, *, is_start: bool) -> bool:
        """Have *record* written. Return whether it is, within a while; False at once where nothing can be written."""
        writer = self._writer()
        if writer.failing:
            writer.put(record, is_start=is_start)
            return False
        try:
            return await writer.written(record, _START_TIMEOUT_S, is_start=is_start)
        except TimeoutError:
            writer.fail(f"Writing takes longer than {_START_TIMEOUT_S:g} s.")
            return False

    async def flush(self) -> None:
        """Write what waits, within a few seconds."""
        writer = self._writer()
        try:
            if not writer.is_idle:
                await writer.written(None, _FLUSH_TIMEOUT_S)
        except TimeoutError:
            _log.warning("The call log could not be written in time; the last calls may not be in it.")

    async def find(self, id: str, /) -> CallRecord | None:  # noqa: A002
        """Return the call with the `id` of its record. Raises StoreError."""
        records = await self._select(CALLS.select().where(_t.id == encode_name(id)))
        return next((record for _, record in records), None)

    async def newest(
        self,
        *,
        tool: str | None = None,
        principal: str | None = None,
        status: str | None = None,
        rule: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[CallRecord]:
        """Return the newest calls first, at most *limit*; *before* is the id of the last one that was seen.

        *tool*, *principal* and *rule* are whole names. Calls began from *since* on, and before *until*. Raises
        StoreError.
        """
        query = CALLS.select().where(*self._filters(status, since, tool=tool, principal=principal, rule=rule))
        if until is not None:
            query = query.where(_t.started_at < encode_time(until))
        if before is not None:
            # Of the same principal: that another's id is known here would be seen.
            last = select(_t.number).where(_t.id == encode_name(before), *self._filters(principal=principal))
            query = query.where(_t.number < last.scalar_subquery())
        records = await self._select(query.order_by(_t.number.desc()).limit(limit))
        return [record for _, record in records]

    async def statistics(
        self, *, since: datetime, until: datetime, count: int, principal: str | None = None
    ) -> dict[str, Any]:
        """Return what `toolcrib.record.statistics` says of the calls in *count* parts of a time. Raises StoreError."""
        work = partial(statistics, calls=CALLS, since=since, until=until, count=count, principal=principal)
        return await self._store.transact(work, write=False)

    async def events(self, record: CallRecord) -> Sequence[Mapping[str, Any]]:
        """Return the events of *record* among the newest of the store, the oldest first. Raises StoreError.

        Each has the names of its chain, its position there and its hash, and what it says.
        """
        newest = EVENTS.select().order_by(EVENTS.c.number.desc()).limit(_EVENTS_LOOKED_AT).subquery()
        mark = json.dumps({"id": record.id})[1:-1].replace(": ", ":", 1)
        its = select(newest).where(
            newest.c.principal == encode_name(record.caller.principal), newest.c.fields.contains(mark, autoescape=True)
        )
        rows = await self._store.read(its.order_by(newest.c.number))
        return [
            {name: row[name] for name in ("chain", "position", "hash")}
            | {"at": decode_time(row["at"]).isoformat(), **json.loads(row["fields"])}
            for row in rows
        ]

    async def follow(
        self, *, tool: str | None = None, principal: str | None = None, status: str | None = None
    ) -> AsyncIterator[CallRecord]:
        """Follow the calls of all processes from now on: each when it starts, if seen, and when it ends or is lost."""
        newest = await self._select(CALLS.select().order_by(_t.number.desc()).limit(1))
        first = last = newest[0][0] if newest else 0
        statuses: dict[int, str] = {}
        while True:
            running = [number for number, state in statuses.items() if state == "started"]
            floor = max(first, last - _OVERLAP)
            query = CALLS.select().where((_t.number > floor) | _t.number.in_(running)).order_by(_t.number)
            for number, record in await self._select(query):
                if statuses.get(number) != record.status:
                    statuses[number] = record.status
                    last = max(last, number)
                    if _matches(record, tool, principal, status):
                        yield record
            statuses = {
                number: state for number, state in statuses.items() if state == "started" or number > last - _OVERLAP
            }
            await asyncio.sleep(_LOOK_INTERVAL_S)

    def __repr__(self) -> str:
        return f"<DatabaseCalls in {self._store.place}>"

    def _writer(self) -> _Writer:
        # By process: a thread does not survive a fork, and what it was about to write is the parent's.
        pid = os.getpid()
        return self._writers.get(pid) or self._writers.setdefault(pid, self._new_writer())

    def _filters(
        self, status: str | None = None, since: datetime | None = None, **names: str | None
    ) -> Sequence[ColumnElement[bool]]:
        filters = [_t[column] == encode_name(name) for column, name in names.items() if name is not None]
        if since is not None:
            filters.append(_t.started_at >= encode_time(since))
        if status in ("started", "lost"):
            now = encode_time(self._clock())
            filters.append(_t.status == "started")
            filters.append(_t.lost_after <= now if status == "lost" else _t.lost_after > now)
        elif status is not None:
            filters.append(_t.status == status)
        return filters

    async def _select(self, query: Select[Any]) -> list[tuple[int, CallRecord]]:
        rows = await self._store.transact(lambda c: c.execute(query).mappings().fetchall(), write=False)
        now, records = encode_time(self._clock()), []
        for row in rows:
            try:
                records.append((int(row["number"]), _to_record(row, self._store, now=now)))
            except StoreError as error:
                _log.warning("A call in the store %s is left out: %s", self._store.place, error)
        return records


def _matches(record: CallRecord, tool: str | None, principal: str | None, status: str | None) -> bool:
    return (
        tool in (None, record.tool) and principal in (None, record.caller.principal) and status in (None, record.status)
    )
