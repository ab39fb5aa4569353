"""A Ledger in a database: of the calls with one key, one has its effect, over all processes and restarts.

A row is inserted before the work and ended after it, each in a transaction of its own. In between its process holds a
lease, which a thread renews: of a process that died or hangs the lease runs out. The *fence* counts the runs, so that
what an overtaken process writes is refused.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import getpid
from secrets import token_hex
from typing import Any, TypeVar

from sqlalchemy import Connection, Update, bindparam, case, select

from ..core import SetupError, StoreError
from ..machinery import LedgerEntry, log_failure
from .database import Database, Now, Row, by_dialect, notify
from .tables import (
    LEDGER,
    PENDINGS,
    PRUNE_INTERVAL,
    STEPS,
    TASK_EVENTS,
    WAITS,
    decode_bytes,
    decode_name,
    decode_time,
    encode_name,
    encode_time,
    of_end,
    of_entry,
)

T = TypeVar("T")
End = tuple[LedgerEntry, Mapping[str, Any] | None]
"""A call that ends, and its result; None where it is released."""

_log = logging.getLogger("toolcrib")
DEFAULT_KEEP_S = 7 * 24 * 3600.0
DEFAULT_LEASE_S = 15.0
MAX_PRUNED = 4 * PRUNE_INTERVAL
"""The size of a batch of expired rows to delete: larger than what expires between two batches."""

TASKS_CHANNEL = "toolcrib_tasks"
"""What is notified where a task is due now, or is to stop."""

_IN_BODY = ("arguments", "approved_by", "approval", "approvers", "grant", "call")

_t = LEDGER.c
_COLUMNS = [column.name for column in LEDGER.columns]
IS_LATE = _t.lease_until <= Now()
IS_LOST = (_t.state == "running") & (_t.idempotent == 0) & IS_LATE
SELECT = select(*LEDGER.columns, IS_LATE.label("is_late"))
_FIND = SELECT.where(
    _t.principal == bindparam("principal"), _t.key == bindparam("key"), _t.expires_at > Now()
).with_for_update()
_BY_ID = SELECT.where(_t.id == bindparam("id"))
_END = (
    LEDGER.update()
    .where(_t.id == bindparam("entry"), _t.state == "running", _t.fence == bindparam("run"))
    .values(state=bindparam("end"), result=bindparam("sealed"), expires_at=Now() + bindparam("keep"))
    .values(hook_at=bindparam("hook"), hook_tries=0)
)
END_OWN = _END.where(_t.owner == bindparam("process"))
_END_LATE = _END.where(IS_LATE)
_LOST = SELECT.where(IS_LOST).order_by(_t.started_at)

_WAITING = select(WAITS.c.task).where(WAITS.c.subject.in_(bindparam("subjects", expanding=True)))
# In one order everywhere, as `_has_come` locks, too: no two transactions wait for one another.
_WOKEN = select(_t.id).where(_t.id.in_(_WAITING), _t.state == "waiting").order_by(_t.id).with_for_update()
_WAKE = LEDGER.update().where(_t.id.in_(_WOKEN)).values(run_at=Now())
_QUESTIONS = select(WAITS.c.subject).where(WAITS.c.task.in_(bindparam("ended", expanding=True)))
_DIGESTS = select(PENDINGS.c.digest).where(PENDINGS.c.id.in_(_QUESTIONS))  # that all questions of a task have
_CLOSE_QUESTIONS = (
    PENDINGS.update()
    .where(PENDINGS.c.digest.in_(_DIGESTS), PENDINGS.c.kind == "input", PENDINGS.c.state == "open")
    .values(state="expired")
)


def _insertion() -> str:
    names = [name for name in _COLUMNS if name not in ("result", "hook_at", "hook_tries")]
    run_at = "CASE WHEN :state = 'queued' THEN {now} ELSE :run_at END"
    values = {"lease_until": "{now} + :lease", "expires_at": "{now} + :keep", "run_at": run_at}
    return (
        f"INSERT INTO toolcrib_ledger ({', '.join(names)}) "  # noqa: S608 - names of this file
        f"VALUES ({', '.join(values.get(name, f':{name}') for name in names)}) ON CONFLICT (principal, key) DO NOTHING"
    )


_INSERT = by_dialect(_insertion())


class DatabaseLedger:
    """A Ledger in *store*. A key is known for *keep_s* seconds after its call has ended.

    *lease_s* is after how many seconds a process that does not renew its leases is taken for dead.
    """

    def __init__(self, store: Database, *, keep_s: float = DEFAULT_KEEP_S, lease_s: float = DEFAULT_LEASE_S) -> None:
        if not keep_s > 0 or not lease_s > 0:
            raise SetupError("The times of DatabaseLedger, keep_s and lease_s, are above 0.")
        self._store = store
        self.keep_s = keep_s
        self._keep = int(keep_s * 1e6)
        self._lease_s = lease_s
        self._heartbeats: dict[int, _Heartbeat] = {}
        self._claims = 0
        store.on_close(self._stop)

    async def find(self, principal: str, key: str, /) -> LedgerEntry | None:
        rows = await self._store.read(_FIND, {"principal": encode_name(principal), "key": key})
        return self._decode(rows[0], is_brief=True) if rows else None

    async def find_id(self, id: str, /) -> LedgerEntry | None:  # noqa: A002
        """Return the entry with *id*."""
        rows = await self._store.read(_BY_ID, {"id": encode_name(id)})
        return self._decode(rows[0]) if rows else None

    async def lost(self) -> Sequence[LedgerEntry]:
        """Return the calls of which it is not known whether they took effect, the oldest first."""
        rows = await self._store.transact(lambda c: c.execute(_LOST).mappings().fetchall(), write=False)
        return list(self._sound(rows))

    async def claim(self, entry: LedgerEntry, /) -> LedgerEntry:
        heartbeat = self._heartbeat()
        heartbeat.begin(entry)
        current = await self._begin(
            lambda connection: self._claim(connection, entry, heartbeat.owner),
            lambda _: heartbeat.end(entry, state="released"),
        )
        if not current.is_own:
            heartbeat.end(entry)
        return current

    async def finish(self, entry: LedgerEntry, result: Mapping[str, Any] | None, /) -> bool:
        heartbeat = self._heartbeat()
        (is_stored,) = await self._end(END_OWN, [(entry, result)], process=heartbeat.owner)
        heartbeat.end(entry)
        return is_stored

    def give_up(self, entry: LedgerEntry, /) -> None:
        # Of this run: a later one may be here, where the end of this one was stored, and its answer was lost.
        self._heartbeat().end(entry, lease_until=case((_t.fence == entry.fence, 0), else_=_t.lease_until))

    async def settle(self, entry: LedgerEntry, result: Mapping[str, Any] | None, /, *, by: str | None = None) -> bool:
        names = {"id": entry.id, "tool": entry.tool, "thread": entry.thread}
        event = {**names, "decision": "not done" if result is None else "done", "by": by, "digest": entry.approval}
        (is_settled,) = await self._end(_END_LATE, [(entry, result)], event)
        return is_settled

    def __repr__(self) -> str:
        return f"<DatabaseLedger in {self._store.place}>"

    def _heartbeat(self) -> "_Heartbeat":
        pid = getpid()  # a thread does not survive a fork
        return self._heartbeats.get(pid) or self._heartbeats.setdefault(pid, _Heartbeat(self._store, self._lease_s))

    def _stop(self) -> None:
        """Renew no lease of this process any more: the store is closed."""
        heartbeat = self._heartbeats.pop(getpid(), None)
        if heartbeat is not None:
            heartbeat.stop()

    async def _begin(
        self, work: Callable[[Connection], T], give_back: Callable[[bool], object], *, lock: bytes = b""
    ) -> T:
        """Return the value of *work*, in a transaction after which something runs here.

        Where this is cancelled, or the connection breaks off, it does not run: `give_back` notes what ends that, and
        gets whether it is stored; where not, it may be all the same.
        """
        is_given_up = threading.Event()

        def begin(connection: Connection) -> T:
            value = work(connection)
            if is_given_up.is_set():
                connection.rollback()
            return value

        def release(beginning: asyncio.Future[T]) -> None:
            give_back(not beginning.cancelled() and beginning.exception() is None)

        beginning = asyncio.ensure_future(self._store.transact(begin, lock=lock))
        try:
            return await asyncio.shield(beginning)
        except BaseException:
            is_given_up.set()
            if beginning.done():
                release(beginning)  # at once: a callback would come after what the caller begins next
            else:
                beginning.add_done_callback(release)
            raise

    def _claim(self, connection: Connection, entry: LedgerEntry, owner: str) -> LedgerEntry:
        row = self._row(entry, owner)
        self._claims += 1
        if self._claims % PRUNE_INTERVAL == 1:
            self._prune(connection)
        current = self._insert(connection, row)
        if current is None:
            return replace(entry, is_own=True)
        stored = self._decode(current)
        may_run = stored.state == "released" or (stored.is_abandoned and stored.is_idempotent)
        if stored.digest != entry.digest or not may_run or stored.call is not None:  # a task runs by itself
            return stored
        entry = replace(entry, fence=stored.fence + 1, is_own=True)
        values = {name: value for name, value in self._row(entry, owner).items() if name in _COLUMNS}
        lease = Now() + int(self._lease_s * 1e6)
        connection.execute(LEDGER.update().where(_t.id == current["id"]).values(values | {"lease_until": lease}))
        return entry

    def _insert(self, connection: Connection, row: Mapping[str, Any]) -> Row | None:
        """Insert *row*; where another one has its key, return that instead."""
        for _ in range(2):
            if connection.execute(_INSERT[connection.dialect.name], row).rowcount:
                return None
            current = connection.execute(_FIND, {name: row[name] for name in ("principal", "key")}).mappings().first()
            if current is not None:
                return current
            has_key = (_t.principal == row["principal"], _t.key == row["key"])
            connection.execute(LEDGER.delete().where(*has_key, _t.expires_at <= Now()))
        raise StoreError(f"A key in the store {self._store.place} changes all the time. Try again later.")

    def _prune(self, connection: Connection) -> None:
        """Delete what has expired: no call that runs, and no task that is to run."""
        is_due = _t.state.in_(("queued", "waiting")) | ((_t.state == "running") & (_t.idempotent == 1))
        is_open = ((_t.state == "running") & ~IS_LATE) | ((_t.is_task == 1) & is_due)
        expired = select(_t.id).where(_t.expires_at <= Now(), ~is_open).limit(MAX_PRUNED)
        ids = connection.execute(expired).scalars().all()
        for column in (STEPS.c.task, TASK_EVENTS.c.task, WAITS.c.task, _t.id):
            connection.execute(column.table.delete().where(column.in_(ids)))

    async def _end(
        self, update: Update, ends: Sequence[End], settled: Mapping[str, Any] | None = None, **names: str
    ) -> Sequence[bool]:
        """End each of *ends* by *update*, in one transaction. Return which have been ended by that.

        *settled* is the event of a person who has settled the first.
        """
        rows = [self._end_values(*end, names) for end in ends]

        def end(connection: Connection) -> Sequence[bool]:
            are_ended = [connection.execute(update, row).rowcount == 1 for row in rows]
            tasks = [
                row for row, (entry, _), is_ended in zip(rows, ends, are_ended, strict=True) if is_ended and entry.call
            ]
            if over := [row["entry"] for row in tasks if row["end"] == "ended"]:
                follow_end(connection, over)
            if len(over) < len(tasks):  # what is released runs again
                notify(connection, TASKS_CHANNEL)
            if settled is not None and are_ended[0]:
                self._store.events.add(connection, "settled", principal=ends[0][0].principal, **settled)
            return are_ended

        return await self._store.transact(end)

    def _end_values(
        self, entry: LedgerEntry, result: Mapping[str, Any] | None, names: Mapping[str, str]
    ) -> dict[str, Any]:
        row = clear_columns(entry)
        return {
            "entry": row["id"],
            "run": entry.fence,
            "end": "released" if result is None else "ended",
            "sealed": None if result is None else self._store.keys.seal(json.dumps(result).encode(), *of_end(row)),
            "keep": self._keep,
            "hook": None if result is None else self._hook(entry),
            **names,
        }

    def _hook(self, entry: LedgerEntry) -> int | None:
        """Return when the end of *entry* is to be announced: at once; None where it is not."""
        return 0 if entry.call is not None and "tasks" in self._store.webhooks else None

    def _row(self, entry: LedgerEntry, owner: str) -> dict[str, Any]:
        row = clear_columns(entry)
        body = json.dumps({name: value for name in _IN_BODY if (value := getattr(entry, name)) is not None})
        return row | {
            "state": entry.state,
            "owner": owner,
            "fence": entry.fence,
            "is_task": int(entry.call is not None),
            "run_at": 0 if entry.run_at is None else encode_time(entry.run_at),
            "attempts": entry.attempts,
            "definition": entry.definition,
            "cancelled": 0,
            "lease": int(self._lease_s * 1e6),
            "keep": self._keep,
            "body": self._store.keys.seal(body.encode(), *of_entry(row)),
        }

    def _decode(self, row: Row, *, is_brief: bool = False) -> LedgerEntry:
        """Return what *row* has; of one that has ended, with *is_brief*, no more than its result.

        Raises StoreError where it is not as this class wrote it.
        """
        try:
            state, body, result = row["state"], {}, None
            if state not in ("queued", "running", "waiting", "ended", "released"):
                raise ValueError("an unknown state")
            if state == "ended":
                result = json.loads(self._store.keys.unseal(decode_bytes(row["result"]), *of_end(row)))
            if state != "ended" or not is_brief:
                body = json.loads(self._store.keys.unseal(decode_bytes(row["body"]), *of_entry(row)))
            return LedgerEntry(
                id=decode_name(row["id"]),
                principal=decode_name(row["principal"]),
                key=row["key"],
                digest=row["digest"],
                tool=decode_name(row["tool"]),
                thread=decode_name(row["thread"]),
                is_idempotent=bool(row["idempotent"]),
                started_at=decode_time(row["started_at"]),
                **body,
                attempts=int(row["attempts"]),
                definition=str(row["definition"]),
                run_at=decode_time(row["run_at"]) if row["is_task"] else None,
                is_cancelled=bool(row["cancelled"]),
                state=state,
                fence=int(row["fence"]),
                is_abandoned=state == "running" and bool(row["is_late"]) and self._is_dead(row),
                result=result,
            )
        except (ValueError, TypeError, KeyError, RecursionError, StoreError) as error:
            raise StoreError(f"A call with a key in the store {self._store.place} is damaged ({error}).") from None

    def _sound(self, rows: Iterable[Row], put_off: Callable[[Row], object] = lambda _: None) -> Iterator[LedgerEntry]:
        """Yield what *rows* have. Of one that is damaged, the log has a line, and `put_off` gets it."""
        for row in rows:
            try:
                yield self._decode(row)
            except StoreError as error:
                _log.warning("Row %s is ignored: %s", row["id"], error)
                put_off(row)

    def _is_dead(self, row: Row) -> bool:
        """Return whether *row*, whose lease is late, runs nowhere. While the store was away, none was renewed."""
        return not self._heartbeat().runs(row) and not self._store.was_away(self._lease_s)


def wake(connection: Connection, subjects: Sequence[str]) -> None:
    """Make due the tasks that wait for one of *subjects*: a question that was answered, a task that has ended."""
    if connection.execute(_WAKE, {"subjects": subjects}).rowcount:
        notify(connection, TASKS_CHANNEL)


def follow_end(connection: Connection, tasks: Sequence[str]) -> None:
    """Make due what waits for *tasks*, which have ended, and close the questions that they do not ask any more."""
    wake(connection, tasks)
    connection.execute(_CLOSE_QUESTIONS, {"ended": tasks})


def clear_columns(entry: LedgerEntry) -> dict[str, Any]:
    """Return the columns of *entry* that its envelopes are bound to."""
    return {
        "id": encode_name(entry.id),
        "principal": encode_name(entry.principal),
        "key": entry.key,
        "digest": entry.digest,
        "tool": encode_name(entry.tool),
        "thread": encode_name(entry.thread),
        "idempotent": int(entry.is_idempotent),
        "started_at": encode_time(entry.started_at),
    }


class _Heartbeat:
    """Renews the leases of the calls that this process runs, on a thread of its own, while there are any."""

    def __init__(self, store: Database, lease_s: float) -> None:
        self.owner = token_hex(8)
        self._running: dict[str, int] = {}  # the fence of each
        self._store = store
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._endings: dict[str, dict[str, Any]] = {}
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def begin(self, entry: LedgerEntry) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._beat, name="toolcrib-leases", daemon=True)
                thread.start()
                self._thread = thread
            self._running[encode_name(entry.id)] = entry.fence
            self._endings.pop(encode_name(entry.id), None)

    def end(self, entry: LedgerEntry, **values: Any) -> None:
        """Renew the lease of *entry* no more, and store *values* where its end is not stored."""
        with self._lock:
            if self._running.get(encode_name(entry.id), 0) > entry.fence:
                return  # a later run is here
            self._running.pop(encode_name(entry.id), None)
            if values:
                self._endings[encode_name(entry.id)] = values
                self._wake.set()

    def runs(self, row: Row) -> bool:
        """Return whether the call of *row* runs here, however late its lease is: the machine may have slept."""
        return row["owner"] == self.owner and row["id"] in self._running

    def stop(self) -> None:
        """End the thread, once it has written what it writes."""
        self._is_stopped, thread = True, self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _beat(self) -> None:
        is_idle = False
        while True:
            self._wake.wait(self._lease_s / 3)
            with self._lock:
                self._wake.clear()
                running, endings = list(self._running), dict(self._endings)
                if self._is_stopped or (is_idle and not running and not endings):
                    self._thread = None  # the next call starts another
                    return
                is_idle = not running
            if not running and not endings:
                continue
            try:
                self._store.write(partial(self._renew, running, endings))
            except Exception as error:
                log_failure("The leases of running calls could not be renewed", error, None)
                continue  # the next beat tries again
            with self._lock:
                for entry in endings:
                    self._endings.pop(entry, None)

    def _renew(self, running: Sequence[str], endings: Mapping[str, Mapping[str, Any]], connection: Connection) -> None:
        own = LEDGER.update().where(_t.owner == self.owner, _t.state == "running", _t.id == bindparam("entry"))
        if running:
            lease = own.values(lease_until=Now() + int(self._lease_s * 1e6))
            connection.execute(lease, [{"entry": entry} for entry in running])
        for entry, values in endings.items():
            connection.execute(own.values(values), {"entry": entry})
