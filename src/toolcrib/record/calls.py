"""The call log: a recorder in the store, for any number of processes.

The start of a call that may change something is committed before its work. Everything else is written in batches,
and no call waits for it. Where the store cannot be written, calls go on, and what is not in the log is counted.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, select

from ..core import CallRecord, Recorder, SetupError, StoreError
from ..store import Store
from ..store.tables import encode_name, encode_time
from .call_rows import CALLS, RECORD, to_record
from .call_writer import CallWriter, Retention

_log = logging.getLogger("toolcrib")

STATUSES = ("started", "success", "error", "pending", "lost")
_START_TIMEOUT_S = 2.0
"""How long a call waits for its start to be written."""
_FLUSH_TIMEOUT_S = 5.0
_LOOK_INTERVAL_S = 0.25
_OVERLAP = 1_000
"""So many of the newest are looked at again: on PostgreSQL, rows can appear after some that have a higher number."""

_t = CALLS.c


def _now() -> datetime:
    return datetime.now(UTC)


class DatabaseCalls(Recorder):
    """The call log in *store*: each call, when it ends, and before its work where that may change something.

    *with_content* records arguments and results too, sealed. Calls are kept for *max_age_s* seconds, and as many as
    take *max_bytes*. *commit_start* False writes the start of every call off its way, too. Up to *size* records wait to
    be written; `dropped` counts the calls for whose end there was no room, and `unconfirmed` those whose start was not
    written when their work began.
    """

    def __init__(
        self,
        store: Store,
        *,
        with_content: bool = False,
        commit_start: bool = True,
        max_age_s: float = 30 * 24 * 3600.0,
        max_bytes: int = 256 * 1024 * 1024,
        size: int = 10_000,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        if max_bytes < 1 or size < 1 or not max_age_s > 0:
            raise SetupError("The bounds of DatabaseCalls, max_age_s, max_bytes and size, are above 0.")
        self.with_content = with_content
        self.unconfirmed = 0
        self._store = store
        self._commit_start = commit_start
        self._retention = Retention(max_age_s, max_bytes)
        self._size = size
        self._clock = clock
        self._writers: dict[int, CallWriter] = {}
        store.use(RECORD)

    @property
    def dropped(self) -> int:
        return self._writer().dropped

    async def started(self, record: CallRecord, /) -> None:
        writer = self._writer()
        if record.read_only or not self._commit_start:
            writer.put(record, is_start=True)
        elif writer.failing:
            self.unconfirmed += 1
            writer.put(record, is_start=True)
        else:
            is_written = False
            try:
                is_written = await writer.written(record, _START_TIMEOUT_S)
            except TimeoutError:
                writer.fail(f"Writing takes longer than {_START_TIMEOUT_S:g} s.")
            self.unconfirmed += not is_written

    async def finished(self, record: CallRecord, /) -> None:
        self._writer().put(record)

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
        since: datetime | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[CallRecord]:
        """Return the newest calls first, at most *limit*; *before* is the id of the last one that was seen.

        *tool* and *principal* are whole names; *since* is when the call began. Raises StoreError.
        """
        query = CALLS.select().where(*self._filters(tool, principal, status, since))
        if before is not None:
            # Of the same principal: that another's id is known here would be seen.
            last = select(_t.number).where(_t.id == encode_name(before), *self._filters(None, principal, None, None))
            query = query.where(_t.number < last.scalar_subquery())
        records = await self._select(query.order_by(_t.number.desc()).limit(limit))
        return [record for _, record in records]

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

    def _writer(self) -> CallWriter:
        # By process: a thread does not survive a fork, and what it was about to write is the parent's.
        pid = os.getpid()
        return self._writers.get(pid) or self._writers.setdefault(
            pid, CallWriter(self._store, self._retention, self._size, self._clock)
        )

    def _filters(
        self, tool: str | None, principal: str | None, status: str | None, since: datetime | None
    ) -> Sequence[ColumnElement[bool]]:
        filters: list[ColumnElement[bool]] = []
        if tool is not None:
            filters.append(_t.tool == encode_name(tool))
        if principal is not None:
            filters.append(_t.principal == encode_name(principal))
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
                records.append((int(row["number"]), to_record(row, self._store, now=now)))
            except StoreError as error:
                _log.warning("A call in the store %s is left out: %s", self._store.place, error)
        return records


def _matches(record: CallRecord, tool: str | None, principal: str | None, status: str | None) -> bool:
    return (
        tool in (None, record.tool) and principal in (None, record.caller.principal) and status in (None, record.status)
    )
