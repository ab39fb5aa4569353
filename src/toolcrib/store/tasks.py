"""Tasks in the ledger of a database: calls that are stored first, and run by whichever process takes them.

Between its runs a task holds nothing: it waits for a time, or for what makes it due: an answer, the end of another.
"""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, bindparam, case, exists, func, literal_column, or_, select, text, tuple_

from ..core import StoreError, ToolError
from ..machinery import LedgerEntry, share
from .database import Database, Now, Row, notify
from .ledger import END_OWN, IS_LATE, IS_LOST, SELECT, TASKS_CHANNEL, DatabaseLedger, End, clear_columns, follow_end
from .tables import (
    LEDGER,
    PENDINGS,
    STEPS,
    TASK_EVENTS,
    WAITS,
    decode_bytes,
    decode_name,
    decode_time,
    encode_name,
    encode_time,
    of_end,
    of_event,
    of_step,
)

MAX_EVENTS = 1_000
"""How many events of a task are kept, the newest."""
MAX_READ_EVENTS = 10
"""How many events are read at a time: a connection that is slow holds them in memory."""

MAX_OPEN = 10_000
"""How many tasks of a principal there are that have not ended."""
UNCLAIMED_S = 60.0
"""After how long it is said that no process takes up a task that is due."""
_PAUSE_US = 3600 * 1_000_000
"""The pause before a damaged task is looked at again."""

_NONE: Mapping[str, int] = {}
Tools = Mapping[str, str]
"""Names of tools, and the digests of their definitions; none fits a task of any."""
_t = LEDGER.c
# Not by `in_`, whose values are only put in when it is executed: see `Database.read`.
_IS_IDLE = or_(_t.state == "queued", _t.state == "waiting", _t.state == "released")
_IS_LEFT = (_t.state == "running") & (_t.idempotent == 1) & IS_LATE
_IS_DUE = (_t.run_at <= Now()) & or_(_IS_IDLE, _IS_LEFT)  # what runs was due
_IS_OPEN = text("toolcrib_ledger.is_task = 1 AND toolcrib_ledger.state <> 'ended'")
"""As the index `toolcrib_ledger_due` has it, which is used for no other spelling."""
_DUE = SELECT.where(_IS_OPEN, _IS_DUE).order_by(_t.run_at).limit(bindparam("count")).with_for_update(skip_locked=True)
# Of another definition a task is not taken, until for a minute no process has been seen that has it.
_RUNNING = LEDGER.alias("running").c
_IS_KNOWN = (
    exists()
    .where(_RUNNING.state == literal_column("'running'"), _RUNNING.lease_until > Now())
    .where(_RUNNING.tool == _t.tool, _RUNNING.definition == _t.definition)
)
_IS_FORSAKEN = (
    (_t.run_at <= Now() - int(UNCLAIMED_S * 1e6))
    & (_t.lease_until - bindparam("lease") <= Now() - int(UNCLAIMED_S * 1e6))
    & ~_IS_KNOWN
)
_TAKE = (
    LEDGER.update()
    .where(_t.id.in_(bindparam("ids", expanding=True)))
    .values(state="running", owner=bindparam("process"), fence=_t.fence + 1, lease_until=Now() + bindparam("lease"))
    .values(attempts=_t.attempts + case((_t.state == "running", 1), else_=0))
)
_RUNNING_OF = (
    select(_t.principal, func.count())
    .where(_t.state == literal_column("'running'"), _t.is_task == 1, ~IS_LATE)
    .group_by(_t.principal)
)
_IN_STATE = {
    "queued": or_(_t.state == "queued", _t.state == "released", _IS_LEFT),
    "running": (_t.state == "running") & ~IS_LATE,
    "waiting": _t.state == "waiting",
    "ended": _t.state == "ended",
    "lost": IS_LOST,
}
_COUNT = select(func.count()).select_from(LEDGER).where(_t.principal == bindparam("owner"), _IS_OPEN)
_OPEN_OF = {"sqlite": _COUNT, "postgresql": _COUNT.add_columns(func.pg_notify(TASKS_CHANNEL, ""))}
"""Count the tasks of a principal that have not ended, and `notify`, in one statement."""
_LISTED = SELECT.where(_t.is_task == 1).order_by(_t.started_at.desc(), _t.id.desc())
_NOW = select(Now().label("now"))
_STEPS = STEPS.select().where(STEPS.c.task == bindparam("task")).order_by(STEPS.c.position)
_EVENTS = (
    TASK_EVENTS.select()
    .where(TASK_EVENTS.c.task == bindparam("task"), TASK_EVENTS.c.number > bindparam("after"))
    .order_by(TASK_EVENTS.c.number)
    .limit(MAX_READ_EVENTS)
)
_NEWEST = (
    TASK_EVENTS.select()
    .where(TASK_EVENTS.c.task == bindparam("task"))
    .order_by(TASK_EVENTS.c.number.desc())
    .limit(MAX_READ_EVENTS)
)

_KIND = case((IS_LOST, "lost"), (_IN_STATE["queued"], "queued"), else_=_t.state)
_DUE_US = func.max(case((_t.state == "running", 0), else_=Now() - _t.run_at))
_COUNTS = select(_KIND, func.count(), _DUE_US).where(_IS_OPEN).group_by(literal_column("1"))
_PROCESSES = (
    select(_t.owner, func.count())
    .where(_IS_OPEN, _t.state == "running", _t.lease_until > Now(), _t.owner > bindparam("after"))
    .group_by(_t.owner)
    .order_by(_t.owner)
    .limit(bindparam("count"))
)
STATES = ("queued", "running", "waiting", "lost")


class DatabaseTasks(DatabaseLedger):
    """The ledger of a store, with its tasks."""

    def __init__(self, store: Database, **times: float) -> None:
        super().__init__(store, **times)
        self._due: dict[tuple[Any, ...], Any] = {}
        self._unsure: set[str] = set()
        """The ids of tasks that this process may have taken, in a transaction whose end it has not heard."""
        self.notify: Callable[[], object] = lambda: None
        """Called where a task of this process is due now."""

    async def now(self) -> datetime:
        """Return the time by which tasks are due: that of the database, which is one for all processes."""
        return decode_time((await self._store.read(_NOW))[0]["now"])

    async def submit(self, entry: LedgerEntry, subjects: Sequence[str] = (), /) -> LedgerEntry:
        """Store the task *entry*, to be run when it is due, or one of *subjects*, for which it waits, has come.

        Return it, or the call that has its key already. Raises ToolError `limited`, and StoreError.
        """

        def submit(connection: Connection) -> LedgerEntry:
            has_come = _has_come(connection, subjects)
            current = self._claim(connection, entry, "")
            query = _OPEN_OF[connection.dialect.name]
            count = connection.execute(query, {"owner": encode_name(entry.principal)}).scalar_one()
            if current.is_own and count > MAX_OPEN:
                raise ToolError(
                    f"Too many tasks of '{entry.principal}' wait or run: {MAX_OPEN:,}. Cancel some (toolcrib tasks "
                    "cancel), or submit this one when some have ended.",
                    "limited",
                )
            if subjects:
                self._wait(connection, entry, subjects)
            if has_come:
                connection.execute(LEDGER.update().where(_t.id == encode_name(entry.id)).values(run_at=Now()))
            return current

        current = await self._store.transact(submit)
        self.notify()
        return current

    async def take(
        self,
        levels: Sequence[Tools],
        places: int,
        running: Mapping[str, int] = _NONE,
        *,
        per_principal: int | None = None,
    ) -> Sequence[LedgerEntry]:
        """Claim tasks that are due, those of the first of *levels* first, the oldest first: they run here from now on.

        Of the *places*, principals occupy so many with what is *running*. None gets more than their `share`, nor runs
        more than *per_principal* in all processes.

        One whose process died runs again if it is idempotent, and that is counted.
        """
        heartbeat, occupied, entries = self._heartbeat(), Counter(running), list[LedgerEntry]()
        everywhere = Counter[str]()
        unsure = [*self._unsure]
        if self._store.file is not None and not unsure:  # without a turn to write
            due = [await self._store.read(*self._due_of(tools, 1, _full(occupied, places))) for tools in levels]
            if not any(due):
                return ()

        def is_full(principal: str) -> bool:
            has_all = per_principal is not None and everywhere[principal] >= per_principal
            return has_all or principal in _full(occupied, places)

        def take(connection: Connection) -> None:
            if unsure:  # by now it is known: the lock waits for the transaction whose end was not heard
                is_unsure = _t.id.in_([encode_name(id) for id in unsure])  # noqa: A001
                connection.execute(select(_t.id).where(is_unsure).order_by(_t.id).with_for_update())
                is_own = (_t.owner == heartbeat.owner) & (_t.state == "running")
                connection.execute(LEDGER.update().where(is_unsure, is_own).values(state="released"))
            if per_principal is not None:
                everywhere.update({decode_name(name): count for name, count in connection.execute(_RUNNING_OF)})
            for tools in levels:
                full, before = [*filter(is_full, {**everywhere, **occupied})], None
                while (free := places - occupied.total()) > 0 and full != before:
                    due, values = self._due_of(tools, free, full)
                    rows = connection.execute(due, values).mappings().fetchall()
                    for entry in self._sound(rows, partial(_put_off, connection)):
                        is_here = entry.state == "running" and not entry.is_abandoned  # late as its lease is
                        if not is_here and not is_full(entry.principal):  # else the next query is of the others
                            entries.append(entry)
                            occupied[entry.principal] += 1
                            everywhere[entry.principal] += 1
                    full, before = [*filter(is_full, {**everywhere, **occupied})], full
                    if len(rows) < free:
                        break
            if entries:
                own = {"ids": [encode_name(entry.id) for entry in entries], "process": heartbeat.owner}
                connection.execute(_TAKE, {**own, "lease": int(self._lease_s * 1e6)})
            for entry in entries:
                definition = next(tools[entry.tool] for tools in levels if entry.tool in tools)
                if entry.definition not in ("", definition):  # it goes on as that
                    update = LEDGER.update().where(_t.id == encode_name(entry.id))
                    connection.execute(update.values(definition=definition))

        def give_back(is_stored: bool) -> None:
            if not is_stored:
                self._unsure.update(entry.id for entry in entries)
                return
            for run in map(_begun, entries):
                heartbeat.begin(run)
                heartbeat.end(run, state="released")

        await self._begin(take, give_back, lock=b"" if per_principal is None else b"toolturn")
        self._unsure.difference_update(unsure)
        entries = [_begun(entry) for entry in entries]
        for entry in entries:
            heartbeat.begin(entry)
        return tuple(entries)

    def _due_of(self, tools: Tools, count: int, full: Sequence[str]) -> tuple[Any, dict[str, Any]]:
        """Return the query of *count* tasks that are due, and its values: those of the principals *full* are not."""
        key = (*tools.items(), len(full))
        if key not in self._due:  # each is made once: see `Database.read`
            is_ours = or_(*(_t.tool == encode_name(tool) for tool in tools))
            fits = or_(*(_t.definition == definition for definition in {"", *tools.values()}), _IS_FORSAKEN)
            are_others = (_t.principal != bindparam(f"full_{number}") for number in range(len(full)))
            self._due[key] = _DUE.where(is_ours, fits, *are_others)
        values = {f"full_{number}": encode_name(principal) for number, principal in enumerate(full)}
        return self._due[key], {"count": count, "lease": int(self._lease_s * 1e6), **values}

    async def finish_all(self, ends: Sequence[End]) -> Sequence[bool]:
        """Do as `finish` for each of *ends*, in one transaction."""
        heartbeat = self._heartbeat()
        are_stored = await self._end(END_OWN, ends, process=heartbeat.owner)
        for entry, _ in ends:
            heartbeat.end(entry)
        return are_stored

    async def settle(self, entry: LedgerEntry, result: Mapping[str, Any] | None, /, *, by: str | None = None) -> bool:
        is_settled = await super().settle(entry, result, by=by)
        self.notify()  # what is not done runs again
        return is_settled

    async def park(self, entry: LedgerEntry, run_at: datetime | None, subjects: Sequence[str] = ()) -> bool:
        """Let *entry* wait until *run_at*, or until one of *subjects* has come: what `wake` is given.

        Without a time it is due at once. False where another process runs it by now.
        """
        heartbeat = self._heartbeat()

        def park(connection: Connection) -> bool:
            own = (_t.id == encode_name(entry.id), _t.fence == entry.fence, _t.owner == heartbeat.owner)
            at: Any = Now() if run_at is None else encode_time(run_at)
            values: dict[str, Any] = {"state": "waiting", "expires_at": at + self._keep}
            later = Now() if _has_come(connection, subjects) else at
            values["run_at"] = case((_t.cancelled == 1, Now()), else_=later)
            if not connection.execute(LEDGER.update().where(*own, _t.state == "running").values(values)).rowcount:
                return False
            self._wait(connection, entry, subjects)
            notify(connection, TASKS_CHANNEL)
            return True

        is_parked = await self._store.transact(park)
        heartbeat.end(entry)
        return is_parked

    def _wait(self, connection: Connection, entry: LedgerEntry, subjects: Sequence[str]) -> None:
        """Let *entry* wait for *subjects*, and for nothing else."""
        row = _of(entry)
        connection.execute(WAITS.delete().where(WAITS.c.task == row["task"]))
        if subjects:
            connection.execute(WAITS.insert(), [{**row, "subject": encode_name(subject)} for subject in set(subjects)])

    async def change(self, entry: LedgerEntry, call: Mapping[str, Any]) -> bool:
        """Store *call* as what *entry*, which runs here, goes on with. False where another process runs it by now."""
        owner = self._heartbeat().owner
        own = (_t.id == encode_name(entry.id), _t.fence == entry.fence, _t.owner == owner, _t.state == "running")
        body = self._row(replace(entry, call=call), owner)["body"]
        return await self._store.execute(LEDGER.update().where(*own).values(body=body)) == 1

    async def cancel(self, entry: LedgerEntry, result: Mapping[str, Any]) -> bool:
        """End *entry* with *result* where it does not run. Else ask the process that runs it to stop: False."""
        row_id = encode_name(entry.id)
        envelope = self._store.keys.seal(json.dumps(result).encode(), *of_end(clear_columns(entry)))
        end: dict[str, Any] = {"state": "ended", "result": envelope, "expires_at": Now() + self._keep}
        end |= {"hook_at": self._hook(entry), "hook_tries": 0}

        def cancel(connection: Connection) -> bool:
            if connection.execute(LEDGER.update().where(_t.id == row_id, _IS_IDLE).values(end)).rowcount:
                follow_end(connection, [row_id])
                return True
            connection.execute(LEDGER.update().where(_t.id == row_id, _t.state == "running").values(cancelled=1))
            notify(connection, TASKS_CHANNEL)
            return False

        return await self._store.transact(cancel)

    def notices(self) -> AsyncGenerator[str]:
        """Yield where a task may be due, or is to stop, as `Database.notices`."""
        return self._store.notices(TASKS_CHANNEL)

    async def unclaimed(self) -> Sequence[str]:
        """Return the names of the tools with tasks that have been due for a minute, and that no process has taken."""
        is_due = (_IS_OPEN, _IS_IDLE, _t.run_at <= Now() - int(UNCLAIMED_S * 1e6))
        query = select(_t.tool).where(*is_due).distinct().order_by(_t.tool)
        return [decode_name(row["tool"]) for row in await self._store.fetch(query)]

    async def subjects(self, task: str) -> Sequence[str]:
        """Return the ids of what *task* waits for: questions, and other tasks."""
        query = select(WAITS.c.subject).where(WAITS.c.task == encode_name(task), WAITS.c.task == _t.id)
        query = query.where(_t.state == "waiting").order_by(WAITS.c.subject)
        return [decode_name(row["subject"]) for row in await self._store.fetch(query)]

    async def cancelled(self) -> Sequence[str]:
        """Return the ids of tasks that run here and are to stop."""
        owner = self._heartbeat().owner
        query = select(_t.id).where(_t.owner == owner, _t.state == "running", _t.cancelled == 1)
        return [decode_name(row["id"]) for row in await self._store.fetch(query)]

    async def listed(
        self, principal: str | None, state: str | None, after: LedgerEntry | None, count: int
    ) -> Sequence[LedgerEntry]:
        """Return tasks of *principal* or all, in *state* or any, the newest first, from the one next to *after*."""
        query = _LISTED if principal is None else _LISTED.where(_t.principal == encode_name(principal))
        query = query if state is None else query.where(_IN_STATE[state])
        if after is not None:
            place = tuple_(_t.started_at, _t.id)
            query = query.where(place < tuple_(encode_time(after.started_at), encode_name(after.id)))
        return list(self._sound(await self._store.fetch(query.limit(count))))

    async def counts(self) -> tuple[Mapping[str, int], float]:
        """Return how many tasks there are of each state, and for how many seconds the oldest has been due."""
        rows = await self._store.transact(lambda c: c.execute(_COUNTS).fetchall(), write=False)
        counts = {state: int(number) for state, number, _ in rows}
        oldest_us = max((int(due) for _, _, due in rows), default=0)
        return {state: counts.get(state, 0) for state in STATES}, max(oldest_us, 0) / 1e6

    async def processes(self, after: str = "", count: int = 50) -> Sequence[tuple[str, int]]:
        """Return at most *count* processes that run tasks now, *after* one by their ids, each with how many."""
        values = {"after": after, "count": count}
        rows = await self._store.transact(lambda c: c.execute(_PROCESSES, values).fetchall(), write=False)
        return [(owner, int(number)) for owner, number in rows]

    # Steps and events

    async def steps(self, task: str) -> dict[int, tuple[str, Any, bool]]:
        """Return the keys and values of the finished steps of *task*, by their place, as `add_step` got them."""
        steps: dict[int, tuple[str, Any, bool]] = {}
        for row in await self._store.read(_STEPS, {"task": encode_name(task)}):
            value = self._opened(row["value"], of_step(row))
            # A key beside its value is of a version before keys were sealed.
            steps[int(row["position"])] = (decode_name(row["key"]), value, False) if row["key"] else tuple(value)
        return steps

    async def add_step(
        self, entry: LedgerEntry, position: int, key: str, value: Any, is_parallel: bool = False, /
    ) -> bool:
        """Store a step of *entry*, which runs here. False where another process runs it by now.

        *is_parallel*: of this run, some steps were in work at the same time.
        """
        row: dict[str, Any] = _of(entry) | {"position": position, "key": ""}  # which may quote arguments
        row["value"] = self._store.keys.seal(json.dumps([key, value, is_parallel]).encode(), *of_step(row))
        is_there = select(STEPS.c.position).where(STEPS.c.task == row["task"], STEPS.c.position == position)

        def add(connection: Connection) -> bool:
            is_held = self._is_held(connection, entry)
            if is_held and connection.execute(is_there).first() is None:  # else this run has stored it unknowingly
                connection.execute(STEPS.insert(), row)
            return is_held

        return await self._store.transact(add)

    async def add_event(self, entry: LedgerEntry, event: Mapping[str, Any]) -> None:
        """Store one more *event* of *entry*, JSON data with secrets redacted, unless another process runs it by now."""
        row: dict[str, Any] = dict(_of(entry))
        row["event"] = self._store.keys.seal(json.dumps(event).encode(), *of_event(row))
        oldest = select(func.max(TASK_EVENTS.c.number) - MAX_EVENTS).where(TASK_EVENTS.c.task == row["task"])

        def add(connection: Connection) -> None:
            if self._is_held(connection, entry):
                connection.execute(TASK_EVENTS.insert(), row)
                is_old = TASK_EVENTS.c.number <= oldest.scalar_subquery()
                connection.execute(TASK_EVENTS.delete().where(TASK_EVENTS.c.task == row["task"], is_old))

        await self._store.transact(add)

    async def events(self, task: str, after: int) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the first events of *task* with numbers above *after*."""
        rows = await self._store.read(_EVENTS, {"task": encode_name(task), "after": after})
        return [(int(row["number"]), self._opened(row["event"], of_event(row))) for row in rows]

    async def newest_events(self, task: str) -> list[Mapping[str, Any]]:
        """Return the last events of *task*, the newest first."""
        rows = await self._store.read(_NEWEST, {"task": encode_name(task)})
        return [self._opened(row["event"], of_event(row)) for row in rows]

    def _is_held(self, connection: Connection, entry: LedgerEntry) -> bool:
        """Return whether *entry* runs here, and lock its row until *connection* has committed."""
        own = (_t.id == encode_name(entry.id), _t.fence == entry.fence, _t.owner == self._heartbeat().owner)
        hold = LEDGER.update().where(*own, _t.state == "running").values(state="running")
        return connection.execute(hold).rowcount == 1

    def _opened(self, envelope: object, binding: tuple[str, ...]) -> Any:
        try:
            return json.loads(self._store.keys.unseal(decode_bytes(envelope), *binding))
        except ValueError as error:
            raise StoreError(f"A task in the store {self._store.place} is damaged ({error}).") from None


def _has_come(connection: Connection, subjects: Sequence[str]) -> bool:
    """Return whether one of *subjects* has been answered, or has ended.

    Until the transaction ends, none does: what comes afterwards finds the task that waits for it.
    """
    if not subjects:
        return False
    ids = [encode_name(subject) for subject in subjects]
    questions = select(PENDINGS.c.state).where(PENDINGS.c.id.in_(ids)).with_for_update(read=True)
    tasks = select(_t.state).where(_t.id.in_(ids)).order_by(_t.id).with_for_update(read=True)
    states = [state for query in (questions, tasks) for state in connection.execute(query).scalars()]
    return not {"answered", "ended"}.isdisjoint(states)


def _begun(entry: LedgerEntry) -> LedgerEntry:
    """Return *entry* as it is once `_TAKE` is done."""
    attempts = entry.attempts + (entry.state == "running")
    return replace(entry, state="running", fence=entry.fence + 1, is_own=True, is_abandoned=False, attempts=attempts)


def _full(occupied: Mapping[str, int], places: int) -> Sequence[str]:
    """Return the principals who have their share of *places*."""
    total = sum(occupied.values())
    return [principal for principal, count in occupied.items() if count >= share(places, total - count)]


def _put_off(connection: Connection, row: Row) -> None:
    """Look at the task of *row*, which is damaged, in an hour again: its key may have been put back."""
    later = Now() + _PAUSE_US
    connection.execute(LEDGER.update().where(_t.id == row["id"]).values(run_at=later, lease_until=later))


def _of(entry: LedgerEntry) -> dict[str, Any]:
    return {"task": encode_name(entry.id), "principal": encode_name(entry.principal)}
