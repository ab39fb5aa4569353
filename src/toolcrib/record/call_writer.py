"""Writes calls to a store, in batches, on a thread of its own: as many as come while it is writing.

The queue is bounded. What comes while it is full, because the store cannot be written, is dropped and counted. The
thread ends when there is nothing to do, and begins again.
"""

import asyncio
import atexit
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any

from sqlalchemy import Connection

from ..core import CallRecord
from ..machinery import from_any_thread, log_failure
from ..store import Store
from ..store.tables import encode_time
from .call_rows import PUT, STILL_RUNS, TOO_MANY, TOO_OLD, to_row

_log = logging.getLogger("toolcrib")

BATCH_INTERVAL_S = 0.1
"""How long records are collected before they are written."""
BEAT_INTERVAL_S, LOST_TIMEOUT_S = 10.0, 30.0
"""How often it is noted that started calls still run, and after which time without that they are lost."""
_IDLE_S, _RETRY_S, _TIDY_S, _EXIT_S = 5.0, 1.0, 60.0, 3.0
_MAX_QUEUE_CHARS = 32 * 1024 * 1024
_MAX_DELETED = 5_000

Done = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long calls are kept: for *max_age_s*, and as long as all together take no more than *max_bytes*."""

    max_age_s: float
    max_bytes: int


@dataclass(slots=True)
class _Item:
    record: CallRecord | None
    is_start: bool
    done: Done | None

    @property
    def chars(self) -> int:
        record = self.record
        return 0 if record is None else len(record.arguments or "") + len(record.result or "")


class CallWriter:
    """The writer of one process. `failing` is whether the store could not be written the last time."""

    def __init__(self, store: Store, retention: Retention, size: int, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._retention = retention
        self._size = size
        self._clock = clock
        self._owner = token_hex(8)
        self._changed = threading.Condition()  # guards what is below, up to the empty line
        self._queue: list[_Item] = []
        self._chars = 0
        self._thread: threading.Thread | None = None
        self._is_urgent = self._is_closing = False

        # Of the thread alone, but for looking into it:
        self._open: set[str] = set()
        self._beat_at = self._tidy_at = 0.0
        self.failing = False
        self.dropped = 0

    def put(self, record: CallRecord | None, *, is_start: bool = False, done: Done | None = None) -> bool:
        """Have *record* written; *done* is called, from the thread, when it is, or cannot be. False where it is
        dropped.
        """
        item = _Item(record, is_start, done)
        with self._changed:
            is_full = len(self._queue) >= self._size or self._chars > _MAX_QUEUE_CHARS
            # Of a call whose start is in the store the end always has room: else it would be kept as running.
            if record is not None and is_full and (is_start or record.id not in self._open):
                self.dropped += not is_start  # a call has one end
                return False
            self._queue.append(item)
            self._chars += item.chars
            self._is_urgent = self._is_urgent or done is not None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="toolcrib-calls", daemon=True)
                self._thread.start()
            elif done is not None or len(self._queue) == 1:
                self._changed.notify()
        return True

    async def written(self, record: CallRecord | None, timeout_s: float) -> bool:
        """Have the start *record* written, and whatever came before. Return whether it is. Raises TimeoutError."""
        is_done = asyncio.Event()
        if not self.put(record, is_start=True, done=from_any_thread(is_done.set)):
            return False
        async with asyncio.timeout(timeout_s):
            await is_done.wait()
        return not self.failing

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
            while (items := self._next_batch()) is not None:
                is_written = self._write(items)
                for item in items:
                    if item.done is not None:
                        item.done()
                if not is_written:
                    self._keep(items)
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

    def _next_batch(self) -> list[_Item] | None:
        """Wait for records, and for more. Return them; none to write that calls still run. None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closing, BEAT_INTERVAL_S if self._open else _IDLE_S)
            if not self._queue and (self._is_closing or not self._open):
                self._thread = None
                return None
            if self._queue:
                self._changed.wait_for(lambda: self._is_urgent or self._is_closing, BATCH_INTERVAL_S)
            items, self._queue, self._chars, self._is_urgent = self._queue, [], 0, False
            return items

    def _keep(self, items: list[_Item]) -> None:
        """Keep *items*, which could not be written, for later, and wait a while."""
        items = [item for item in items if item.record is not None]
        with self._changed:
            if self._is_closing:
                self.dropped += sum(not item.is_start for item in items)
                return
            self._queue = [*items, *self._queue]
            self._chars = sum(item.chars for item in self._queue)
            self._changed.wait_for(lambda: self._is_urgent or self._is_closing, _RETRY_S)

    def _write(self, items: list[_Item]) -> bool:
        """Write *items* in one transaction, and that started calls still run. False where that failed."""
        now = self._clock()
        lost_after = encode_time(now + timedelta(seconds=LOST_TIMEOUT_S))
        rows = self._rows(items, lost_after)
        beat = {"owner": self._owner, "until": lost_after} if self._open else None
        try:
            if rows or (beat is not None and time.monotonic() - self._beat_at > BEAT_INTERVAL_S):
                self._store.write(lambda connection: _put(connection, rows, beat))
                self._beat_at = time.monotonic()
        except Exception as error:
            self.fail(str(error) if error.__class__.__module__.startswith("toolcrib.") else type(error).__name__)
            return False
        self._open = (self._open - rows.keys()) | {key for key, row in rows.items() if row["status"] == "started"}
        if self.failing:
            self.failing = False
            _log.warning("The call log is written again. Calls that are not in it: %d.", self.dropped)
        self._tidy(now)
        return True

    def _rows(self, items: list[_Item], lost_after: int) -> dict[str, dict[str, Any]]:
        """Return the rows of *items* by the ids of their calls: of a start and an end the end."""
        rows: dict[str, dict[str, Any]] = {}
        for item in items:
            if (record := item.record) is None:
                continue
            try:
                rows[record.id] = to_row(
                    record, self._store, is_start=item.is_start, owner=self._owner, lost_after=lost_after
                )
            except (TypeError, ValueError, AttributeError) as error:
                # What a policy or a middleware has put there: the others are not to wait for it.
                self.dropped += not item.is_start
                item.record = None
                log_failure("A call cannot be written to the call log", error, None)
        return rows

    def _tidy(self, now: datetime) -> None:
        """Delete what is too old, and the oldest where there is too much."""
        if time.monotonic() - self._tidy_at < _TIDY_S and self._tidy_at:
            return
        self._tidy_at = time.monotonic()
        values = {"now": encode_time(now), "most": _MAX_DELETED}
        oldest = encode_time(now - timedelta(seconds=self._retention.max_age_s))
        try:
            for statement, bounds in (
                (TOO_OLD, {"oldest": oldest}),
                (TOO_MANY, {"max_bytes": self._retention.max_bytes}),
            ):
                delete = statement.bindparams(**values, **bounds)
                while self._store.write(lambda connection, delete=delete: connection.execute(delete).rowcount):  # type: ignore[misc]
                    pass
        except Exception as error:
            self.fail(f"What is too old could not be deleted: {type(error).__name__}.")


def _put(connection: Connection, rows: dict[str, dict[str, Any]], beat: dict[str, Any] | None) -> None:
    """Write *rows*; with *beat*, also that the started calls of its owner still run."""
    if rows:
        connection.execute(PUT, list(rows.values()))
    if beat is not None:
        connection.execute(STILL_RUNS, beat)
