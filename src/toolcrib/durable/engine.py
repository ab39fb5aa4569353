"""The embedded engine: takes tasks that are due from the store, runs each in its process, and stores how it ends.

The store is the truth, here is only what runs now. A process that dies leaves its tasks to the next one that looks,
after their leases; an idempotent one begins again, any other is lost until that is settled.
"""

import asyncio
import functools
import json
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast, get_args

from ..call import (
    EventQueue,
    EventStream,
    Patient,
    StepLog,
    TaskRun,
    caller_data,
    caller_of,
    error_result,
    lost,
    marked,
    restored,
    stored,
    streamed,
)
from ..core import (
    Call,
    CancellationToken,
    Emitted,
    Pending,
    Progress,
    Result,
    StoreError,
    ToolcribError,
    ToolError,
    content_from_dict,
    content_to_dict,
)
from ..machinery import (
    LedgerEntry,
    create_lasting_task,
    from_any_thread,
    log_failure,
    promise_digest,
    raise_missing_extra,
)
from ..workbench import Crib, GoOn, LogLine, StoredRun, Task, TaskEvent, TaskLimits, UnknownTaskError
from ..workbench.sync import value_at_home
from ..workbench.tasks import TaskState

if TYPE_CHECKING:
    from ..store import DatabasePendings, Store
    from ..store.tasks import DatabaseTasks
    from .webhooks import WebhookSender

P = ParamSpec("P")
T = TypeVar("T")

MAX_ATTEMPTS = 3
"""How often a task is begun whose process died."""
_POLL_S = 0.5
"""How often the store is asked for what other processes have left or cancelled."""
_LISTEN_AGAIN_S = 5.0
"""The pause before a process listens again whose connection broke off."""
_SWEEP_S = 20.0
"""How often the engine looks for tasks that no process takes up."""
MAX_FAILURES = 10
"""How many times a run of an agent is tried that ends with an exception, as where its model is not reached."""
_FIRST_PAUSE_S = 15.0
"""The pause before the second try. Each further one is twice as long: two hours in all."""
_AUTHORIZATION_S = 5.0
"""How often a task that waits for an authorization looks whether it is there."""
MAX_LINE_CHARS = 4_000
"""How long a line of a tool's log is that is stored with its task."""

MAX_LISTED = 10_001
"""How many tasks are listed at a time: those of the largest page of the command, and whether there are more."""

_log = logging.getLogger("toolcrib")
_lines: ContextVar[Callable[[LogLine], object] | None] = ContextVar("lines", default=None)
"""Stores what the task that runs logs."""


class _ToTask(logging.Handler):
    """Stores what a tool logs with the task that it runs for."""

    def emit(self, record: logging.LogRecord) -> None:
        # What a worker process prints is not known to be of the call that runs now.
        if (store := _lines.get()) is not None and record.module != "printed":
            try:
                store(LogLine(record.levelname.lower(), record.getMessage()[:MAX_LINE_CHARS]))
            except Exception:
                self.handleError(record)


_to_task = _ToTask()


def _at_home(
    method: Callable[Concatenate["EmbeddedTasks", P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["EmbeddedTasks", P], Coroutine[Any, Any, T]]:
    """Run an async method on the loop that the crib lives on."""

    @functools.wraps(method)
    async def moved(self: "EmbeddedTasks", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await value_at_home(self.crib, partial(method, self, *args, **kwargs))

    return moved


class EmbeddedTasks:
    """Runs the tasks of *crib* in its process, on the loop that the crib lives on."""

    def __init__(self, crib: Crib) -> None:
        assert crib.database is not None
        self.crib = crib
        self._rows: DatabaseTasks = crib.database.ledger
        self._rows_of_runs = cast("DatabaseTasks", Patient(self._rows))
        self._ends = _Ends(self._rows)
        self._worker: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._running: dict[str, tuple[asyncio.Task[None], CancellationToken, str]] = {}
        self._is_draining = False
        self._wake = asyncio.Event()
        self._levels: Sequence[Mapping[str, str]] | None = None
        self._agents: dict[str, GoOn] = {}
        self.unclaimed: Sequence[str] = ()
        self._webhooks = self._sender(crib.database)
        self._end_following = crib.registry.on_change(self._forget_levels)

    @_at_home
    async def start(self) -> None:
        if self._worker is None or self._worker.done():
            self._running.clear()  # what ran on a loop that has ended
            self._is_draining = False
            self._ends = _Ends(self._rows)
            self._wake = asyncio.Event()
            logging.getLogger("toolcrib.tool").addHandler(_to_task)  # once
            self._rows.notify = from_any_thread(self._wake.set)
            self._worker = create_lasting_task(self._work())
            self._listener = create_lasting_task(self._listen())

    @_at_home
    async def drain(self, timeout_s: float) -> None:
        self._is_draining = True
        if self._running:
            await asyncio.wait({task for task, *_ in self._running.values()}, timeout=timeout_s)

    async def stop(self) -> None:
        self._end_following()
        self._rows.notify = lambda: None
        own = [task for task in (self._worker, self._listener) if task is not None]
        self._worker = self._listener = None
        tasks = [task for task, *_ in self._running.values()] + own
        tasks += [] if self._webhooks is None else self._webhooks.sending
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @_at_home
    async def get(self, id: str, *, principal: str | None = None, thread: str | None = None) -> Task:  # noqa: A002
        task = self._shown(await self._entry(id, principal))
        await self._remember(task, thread)
        return task

    @_at_home
    async def list(
        self,
        *,
        principal: str | None = None,
        thread: str | None = None,
        state: TaskState | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Sequence[Task]:
        if state not in (None, *get_args(TaskState)) or not 0 < limit <= MAX_LISTED:
            states = ", ".join(get_args(TaskState))
            raise ToolcribError(f"tasks.list takes a state ({states}) and a limit from 1 to {MAX_LISTED:,}.")
        last = None if after is None else await self._entry(after, principal)
        tasks = [self._shown(entry) for entry in await self._rows.listed(principal, state, last, limit)]
        for task in tasks:
            await self._remember(task, thread)
        return tasks

    @_at_home
    async def wait(
        self,
        id: str,  # noqa: A002
        *,
        principal: str | None = None,
        thread: str | None = None,
        timeout_s: float | None = None,
    ) -> Result[Any]:
        async with asyncio.timeout(timeout_s):
            while (result := await self._outcome(await self._entry(id, principal), thread)) is None:
                await self._changed(id)
        return result

    def follow(
        self,
        id: str,  # noqa: A002
        *,
        principal: str | None = None,
        thread: str | None = None,
    ) -> AsyncGenerator[TaskEvent | Result[Any]]:
        return self.crib.home.items(self.crib, self._follow(id, principal, thread))

    @_at_home
    async def progress(self, id: str, *, principal: str | None = None) -> Progress | None:  # noqa: A002
        events = map(_event_from, await self._rows.newest_events((await self._entry(id, principal)).id))
        return next((event for event in events if isinstance(event, Progress)), None)

    @_at_home
    async def questions(self, id: str, *, principal: str | None = None) -> Sequence[Pending]:  # noqa: A002
        entry, pending = await self._entry(id, principal), self.crib.pending
        if entry.state == "ended":
            return ()
        asked = await cast("DatabasePendings", pending.store).asked_by(id, now=pending.clock())
        # An authorization is of more calls than this one: what runs has had it.
        return [question for question in asked if question.kind != "authorization" or entry.state == "waiting"]

    @_at_home
    async def cancel(self, id: str, *, principal: str | None = None) -> bool:  # noqa: A002
        entry = await self._entry(id, principal)
        if entry.state == "ended" or entry.is_lost:
            return False
        result = _ended_with(entry, ToolError(f"Task '{entry.id}' of '{entry.tool}' was cancelled.", "cancelled"))
        if not await self._rows.cancel(entry, stored(result)) and (running := self._running.get(id)) is not None:
            running[1].cancel()
        return True

    @_at_home
    async def submit(self, run: StoredRun) -> str:
        caller, own_id = run.caller, f"run_{token_hex(16)}"
        until, subjects = _until_any_of(run.pendings, own_id, await self._rows.now())
        entry = LedgerEntry(
            id=own_id,
            principal=caller.principal,
            key=own_id,
            digest="",
            tool=_task_name(run.name),
            thread=caller.thread,
            is_idempotent=True,  # its calls have keys
            started_at=datetime.now(UTC),
            arguments=json.dumps({"prompt": run.prompt}),
            state="waiting",
            call={"agent": run.name, **caller_data(caller), "state": run.state, "failures": 0},
            run_at=until,
        )
        await self._rows.submit(entry, subjects)
        return own_id

    def go_on_with(self, name: str, work: GoOn) -> None:
        self._agents[name] = work
        self._forget_levels()

    @_at_home
    async def state_of(self, id: str, *, principal: str | None = None) -> Mapping[str, Any]:  # noqa: A002
        entry = await self._entry(id, principal)
        if entry.call is None or "agent" not in entry.call:
            raise UnknownTaskError(f"The task '{id[:100]}' is not a run of an agent.")
        state: Mapping[str, Any] = entry.call["state"]
        return state

    def _sender(self, store: "Store") -> "WebhookSender | None":
        if not store.webhooks:
            return None
        try:
            import httpx2 as httpx2
        except ModuleNotFoundError as missing:
            raise_missing_extra(missing, "Webhooks need", "durable")
        from .webhooks import WebhookSender

        return WebhookSender(store, self._shown, self.crib.redaction)

    # What callers see

    async def _entry(self, id: str, principal: str | None) -> LedgerEntry:  # noqa: A002
        entry = await self._rows.find_id(id)
        if entry is None or entry.run_at is None or (principal is not None and entry.principal != principal):
            raise UnknownTaskError(
                f"There is no task '{id[:100]}'. Its result may have expired; `tasks.list()` has all."
            )
        return entry

    def _shown(self, entry: LedgerEntry) -> Task:
        result = None if entry.result is None else restored(entry.result, Call(entry.tool, None, entry.id))
        if result is not None and self.crib.marks:
            result = marked(result)
        state = "queued" if entry.state == "released" or entry.is_abandoned else entry.state
        return Task(
            id=entry.id,
            tool=entry.tool,
            principal=entry.principal,
            thread=entry.thread,
            state="lost" if entry.is_lost else state,
            started_at=entry.started_at,
            run_at=entry.run_at,
            attempts=entry.attempts,
            arguments=entry.arguments,
            result=result,
        )

    async def _remember(self, task: Task, thread: str | None) -> None:
        """Have the thread of *task* remember what it gets to see, and the *thread* that asks for it."""
        if task.result is not None and task.result.labels:
            facts = {f"seen {label}" for label in task.result.labels}
            for of in {task.thread, thread or task.thread}:
                await self.crib.store.threads.remember(task.principal, of, facts)

    async def _outcome(self, entry: LedgerEntry, thread: str | None) -> Result[Any] | None:
        """Return the result of *entry*; of a lost one, which only a person ends, the error that says so."""
        if entry.is_lost:
            return _ended_with(entry, lost(entry.tool, entry))
        task = self._shown(entry)
        await self._remember(task, thread)
        return task.result

    async def _follow(
        self,
        id: str,  # noqa: A002
        principal: str | None,
        thread: str | None,
    ) -> AsyncGenerator[TaskEvent | Result[Any]]:
        last = 0
        while True:
            result = await self._outcome(await self._entry(id, principal), thread)
            while events := await self._rows.events(id, last):
                for _, event in events:
                    yield _event_from(event)
                last = events[-1][0]
            if result is not None:
                yield result
                return
            await self._changed(id)

    async def _changed(self, id: str) -> None:  # noqa: A002
        """Wait until the task with *id* may have changed."""
        running = self._running.get(id)
        if running is not None:
            await asyncio.wait({running[0]}, timeout=_POLL_S / 5)
        else:
            await asyncio.sleep(_POLL_S / 5)

    # Runs

    async def _listen(self) -> None:
        """Look at once where the store says that a task is due; else it is seen a little later, as on SQLite."""
        is_listening = True
        while self.crib.database is not None and self.crib.database.file is None:
            try:
                async for _ in self._rows.notices():
                    is_listening = True
                    self._wake.set()
            except StoreError as error:
                if is_listening:  # once for each time that the connection breaks off
                    log_failure("Tasks start up to half a second late: the store cannot be listened to", error, None)
                is_listening = False
            await asyncio.sleep(_LISTEN_AGAIN_S)

    async def _work(self) -> None:
        """Run what is due, as long as the crib is started."""
        next_sweep = next_look = 0.0
        while True:
            self._wake.clear()
            try:
                await self._take()
                if self._webhooks is not None:
                    await self._webhooks.send_due()
                if self._running and monotonic() >= next_look:  # not after each that ends
                    next_look = monotonic() + _POLL_S
                    for id in await self._rows.cancelled():  # noqa: A001
                        if id in self._running:
                            self._running[id][1].cancel()
                if (now := monotonic()) >= next_sweep:
                    next_sweep = now + _SWEEP_S
                    self._note_unclaimed(await self._rows.unclaimed())
            except Exception as error:  # one that ended this loop would leave all tasks waiting without a word
                log_failure("Tasks wait, because they could not be taken from the store", error, self.crib.redaction)
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._wake.wait()

    def _note_unclaimed(self, tools: Sequence[str]) -> None:
        for tool in set(tools) - set(self.unclaimed):
            kind, _, name = tool.rpartition("/")
            _log.warning(
                "No process takes up a task that has been due for over a minute: start one that has %s '%s', such as "
                "`toolcrib worker`, or more of them",
                *(kind or "the tool", name),
            )
        self.unclaimed = tools

    async def _take(self) -> None:
        if self._levels is None:
            self._levels = self._levels_now()
        limits: TaskLimits = self.crib.options["tasks"]
        places = limits.concurrency  # a principal has at most half of what the others leave
        if not self._levels or self._is_draining or len(self._running) >= places:
            return
        running = Counter(principal for *_, principal in self._running.values())
        for entry in await self._rows.take(self._levels, places, running, per_principal=limits.per_principal):
            token = CancellationToken()
            if entry.is_cancelled:
                token.cancel()
            task = create_lasting_task(self._run(entry, token))
            self._running[entry.id] = (task, token, entry.principal)
            task.add_done_callback(partial(self._ended, entry.id))

    def _ended(self, id: str, task: asyncio.Task[None]) -> None:  # noqa: A002
        if id in self._running and self._running[id][0] is task:  # and not a later run of it
            del self._running[id]
        self._wake.set()

    def _levels_now(self) -> Sequence[Mapping[str, str]]:
        """Return the tools whose tasks run here and the digests of their definitions, the highest priority first."""
        levels: dict[int, dict[str, str]] = defaultdict(dict)
        for tool in self.crib.registry:
            if tool.is_task:
                levels[tool.priority][tool.spec.name] = promise_digest(tool.spec)
        if self._agents:
            levels[0] |= dict.fromkeys(map(_task_name, self._agents), "")
        return [levels[priority] for priority in sorted(levels, reverse=True)]

    def _forget_levels(self) -> None:
        self._levels = None

    async def _run(self, entry: LedgerEntry, token: CancellationToken) -> None:
        """Run *entry* once, and store how it ends or waits. One taken while `drain` is called is left to others."""
        try:
            try:
                await (self._rows.park(entry, None) if self._is_draining else self._run_once(entry, token))
            except asyncio.CancelledError:
                await self._interrupted(entry)
        except Exception as error:
            log_failure(f"The end of task '{entry.id}' could not be stored", error, self.crib.redaction)
            self._rows.give_up(entry)

    async def _run_once(self, entry: LedgerEntry, token: CancellationToken) -> None:
        if entry.attempts >= MAX_ATTEMPTS:
            message = f"Task '{entry.id}' was begun {entry.attempts} times, and its process died each time."
            await self._finish(entry, _ended_with(entry, ToolError(message, "failed", retry="never")))
        elif entry.call is not None and "agent" in entry.call:
            await self._go_on(entry, entry.call, token)
        elif (result := await self._result_of(entry, token)).pending is None:
            await self._finish(entry, result)
        else:
            await self._park(entry, [result.pending])

    async def _go_on(self, entry: LedgerEntry, call: Mapping[str, Any], token: CancellationToken) -> None:
        """Go on with the run of an agent once. What it has done is stored after each turn."""

        async def save(state: Mapping[str, Any], failures: int = 0) -> None:
            nonlocal call
            call = {**call, "state": state, "failures": failures}
            if not await self._rows_of_runs.change(entry, call):
                raise asyncio.CancelledError  # another process runs it by now

        name = call["agent"]
        try:
            run = await self._agents[name](StoredRun(name, caller_of(entry), call["state"]), save, token)
        except Exception as error:
            failures, problem = call["failures"] + 1, self.crib.describe(error)
            log_failure(f"A run of the agent '{name}' ({entry.id}) could not go on", error, self.crib.redaction)
            if failures >= MAX_FAILURES:
                failure = ToolError(f"It could not go on, {failures} times in a row. {problem}", "failed")
                await self._finish(entry, _ended_with(entry, failure))
                return
            await save(call["state"], failures)
            pause = timedelta(seconds=_FIRST_PAUSE_S * 2 ** (failures - 1))
            await self._rows_of_runs.park(entry, await self._rows_of_runs.now() + pause)
            return
        await save(run.state)
        if run.result is not None:
            await self._finish(entry, run.result)
        else:
            await self._park(entry, run.pendings)

    async def _finish(self, entry: LedgerEntry, result: Result[Any]) -> None:
        ends = cast(_Ends, Patient(self._ends))
        await ends.finish(entry, stored(result))

    async def _park(self, entry: LedgerEntry, pendings: Sequence[Pending]) -> None:
        rows = self._rows_of_runs
        await rows.park(entry, *_until_any_of(pendings, entry.id, await rows.now()))

    async def _interrupted(self, entry: LedgerEntry) -> None:
        """Leave an idempotent task to the next process. Another one has been stopped for good."""
        if entry.is_idempotent:
            await self._rows.park(entry, None)
        else:
            error = ToolError(f"The program stopped while it ran '{entry.tool}'.", "cancelled", retry="never")
            await self._ends.finish(entry, stored(_ended_with(entry, error)))  # after what is on its way

    async def _result_of(self, entry: LedgerEntry, token: CancellationToken) -> Result[Any]:
        request: Mapping[str, Any] = entry.call or {}
        call = Call(
            entry.tool,
            request["arguments"],
            entry.id,
            cancellation=token,
            traceparent=request["traceparent"],
            idempotency_key=None if entry.key == entry.id else entry.key,
        )
        rows = self._rows_of_runs
        is_first = entry.fence == 2  # `take` counts from 1; nothing is stored of it yet
        steps = {} if is_first else await rows.steps(entry.id)
        run, events = TaskRun(entry, StepLog(entry, rows, steps)), EventStream()
        bench = self.crib.workbench(caller_of(entry))
        _lines.set(from_any_thread(cast(EventQueue[TaskEvent], events).add))
        try:
            async for item in streamed(events, lambda: bench.run_task(call, run, events)):
                if isinstance(item, Result):
                    return self._explained(entry, item)
                await rows.add_event(entry, _event_data(item))
        finally:
            await bench.stop()
        raise AssertionError("a call ends with a result")

    def _explained(self, entry: LedgerEntry, result: Result[Any]) -> Result[Any]:
        """Return *result*; where arguments of before do not fit the tool as it is now, the error that says so."""
        error, tool = result.error, self.crib.registry.get(entry.tool)
        if error is None or error.code != "invalid_arguments" or entry.definition in ("", promise_digest(tool.spec)):
            return result
        message = (
            f"'{entry.tool}' changed while this task waited, and no process has it as it was any more. Its arguments "
            f"do not fit now; call it again. {error.message}"
        )
        return _ended_with(entry, ToolError(message, "conflict", retry="never"))


class _Ends:
    """Stores how tasks end: those that end while a transaction of ends is under way share the next one."""

    def __init__(self, rows: "DatabaseTasks") -> None:
        self._rows = rows
        self._waiting: list[tuple[LedgerEntry, Mapping[str, Any], asyncio.Future[bool]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def finish(self, entry: LedgerEntry, result: Mapping[str, Any]) -> bool:
        """Store that *entry* ended with *result*. False where another process runs it by now. Raises StoreError."""
        is_stored: asyncio.Future[bool] = asyncio.Future()
        self._waiting.append((entry, result, is_stored))
        if self._writer is None:
            self._writer = create_lasting_task(self._write())
        return await is_stored

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                batch.sort(key=lambda end: end[0].id)  # as all lock rows
                if not await self._write_batch(batch):
                    for end in batch:  # one of them may be what the database refuses
                        await self._write_batch([end])
        finally:
            self._writer = None

    async def _write_batch(
        self, batch: "Sequence[tuple[LedgerEntry, Mapping[str, Any], asyncio.Future[bool]]]"
    ) -> bool:
        """Store the ends of *batch*, and tell those who wait. False where each is to be stored alone."""
        try:
            outcomes = await self._rows.finish_all([(entry, result) for entry, result, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not getattr(error, "is_away", False):
                return False
            for _, _, is_stored in batch:
                if not is_stored.done():
                    is_stored.set_exception(error)
            return True
        for (_, _, is_stored), outcome in zip(batch, outcomes, strict=True):
            if not is_stored.done():
                is_stored.set_result(outcome)
        return True


def _task_name(agent: str) -> str:
    """Return the name of the tasks that are runs of *agent*: with a character that no name of a tool has."""
    return f"agent/{agent}"


def _until_any_of(pendings: Sequence[Pending], own_id: str, now: datetime) -> tuple[datetime, list[str]]:
    """Return until when a task waits for *pendings*, and for what that may come before. *now* is by the database."""
    soon = now + timedelta(seconds=_AUTHORIZATION_S)

    def until(pending: Pending) -> datetime:
        if pending.id == own_id:  # it sleeps
            return pending.expires_at
        # A question expires by the clock of a process: by that of the database it may be over, and run again at once.
        return soon if pending.kind == "authorization" else max(soon, pending.expires_at)

    return min(map(until, pendings)), [pending.id for pending in pendings if pending.id != own_id]


def _ended_with(entry: LedgerEntry, error: ToolError) -> Result[Any]:
    return error_result(Call(entry.tool, None, entry.id), error, entry.started_at)


def _event_data(event: TaskEvent) -> dict[str, Any]:
    if isinstance(event, LogLine):
        return {"log": [event.level, event.message]}
    if isinstance(event, Progress):
        return {"progress": [event.done, event.total, event.message]}
    return {"emitted": [content_to_dict(part, exact=True) for part in event.content]}


def _event_from(data: Mapping[str, Any]) -> TaskEvent:
    if "log" in data:
        return LogLine(*data["log"])
    if "progress" in data:
        return Progress(*data["progress"])
    return Emitted(tuple(content_from_dict(part) for part in data["emitted"]))
