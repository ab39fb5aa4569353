"""Calls that run as tasks: stored and acknowledged first, then run, as often as they wait or are interrupted."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from ..core import Caller, Decision, Pending, Result, StoreError, ToolError
from ..machinery import LedgerEntry, Steps, Suspended, log_failure, promise_digest
from .arguments import CheckedArguments
from .once import Claim, Recalled
from .runtime import Runtime

T = TypeVar("T")

_RETRY_S = 0.5
"""The pause before a running task tries a store again that was away."""
MAX_STEPS = 1_000
MAX_STEP_CHARS = 1024 * 1024


class Tasks(Protocol):
    """What a ledger does for tasks."""

    async def submit(self, entry: LedgerEntry, /) -> LedgerEntry: ...
    async def now(self) -> datetime: ...
    async def add_step(self, entry: LedgerEntry, position: int, key: str, value: Any, is_parallel: bool, /) -> bool: ...


class Patient:
    """The *store* of running tasks: it repeats what failed until its database is back."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return partial(self._do, name, getattr(self._store, name))

    async def _do(self, name: str, method: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        is_logged = False
        while True:
            try:
                return await method(*args, **options)
            except StoreError as error:
                if not error.is_away:
                    raise
                if not is_logged:
                    log_failure(f"A task waits for its store ({name})", error, None)
                is_logged = True
            await asyncio.sleep(_RETRY_S)


class Submission(Claim):
    """The claim of a call that becomes a task: it is stored, and the caller gets the id of what is pending."""

    __slots__ = ()
    kind = "task"

    async def recall(self) -> None:
        if self.document.call.idempotency_key is not None:
            await super().recall()

    async def make(self, decision: Decision | None, verify: Callable[[], Awaitable[Any]]) -> None:
        await self._describe(decision)
        document, caller = self.document, self.runtime.caller
        call = {
            "arguments": document.forms.bytes,
            **caller_data(caller),
            "traceparent": document.call.traceparent or self._current_trace(),
            "edited": decision.edited if decision is not None else "",
        }
        tasks: Tasks = self.ledger  # type: ignore[assignment]
        queued = replace(self.entry, state="queued", call=call, run_at=datetime.now(UTC))
        entry = await tasks.submit(replace(queued, definition=promise_digest(document.tool.spec)))
        if not entry.is_own:
            await self._wait_for(entry)
        raise Recalled(self.acknowledged(entry), is_own=entry.is_own)

    def _current_trace(self) -> str | None:
        """Return the trace that the program is in, where a recorder knows it, for the spans of runs to link to."""
        traces = (getattr(recorder, "current_trace", None) for recorder in self.runtime.recorders)
        return next((trace() for trace in traces if trace is not None), None)


class TaskRun(Claim):
    """One run of a task that this process has taken."""

    __slots__ = ("steps",)

    def __init__(self, entry: LedgerEntry, steps: "StepLog") -> None:
        self.entry, self.steps = entry, steps
        self.approved = None

    @property
    def number(self) -> int:
        """The number of this run, counted from 1."""
        return self.entry.fence - 1

    def bind(self, document: CheckedArguments, runtime: Runtime) -> "TaskRun":
        """Return it, for the arguments of this run. What was approved is not asked again, if it is still the same."""
        self.document, self.runtime = document, runtime
        self.accept(self.entry)
        return self

    async def make(self, decision: Decision | None, verify: Callable[[], Awaitable[Any]]) -> None:
        return

    async def finish(self, result: Result[Any]) -> Result[Any]:
        return result  # stored by what runs the task

    def give_up(self) -> None:
        return


class StepLog(Steps):
    """The `Steps` of one run of the task *entry*: those of the runs before are *stored*, by their place.

    They come in the same order in each run; once some were in work at the same time, they are found by their keys.
    """

    def __init__(self, entry: LedgerEntry, tasks: Tasks, stored: Mapping[int, tuple[str, Any, bool]]) -> None:
        self._entry, self._tasks = entry, tasks
        self._stored = {position: (key, value) for position, (key, value, _) in stored.items()}
        self._is_parallel = any(is_parallel for *_, is_parallel in stored.values())
        self._begun: dict[int, str] = {}
        self._open: set[int] = set()

    async def sleep(self, seconds: float, /) -> None:
        (position, values), now = await self.begin("sleep"), await self._tasks.now()
        if values:
            due = datetime.fromtimestamp(values[0], UTC)
        else:
            due = now + timedelta(seconds=seconds)
            await self.store(position, json.dumps(due.timestamp()))
        if due > now:
            entry = self._entry
            raise Suspended(
                Pending(entry.id, "task", "It sleeps.", entry.digest, entry.tool, entry.principal, entry.thread, due)
            )

    async def begin(self, key: str, /) -> tuple[int, list[Any]]:
        position = len(self._begun)
        if self._is_parallel:
            same = (place for place, (name, _) in self._stored.items() if name == key and place not in self._begun)
            position = min(same, default=max([*self._stored, *self._begun], default=-1) + 1)
        before, *values = self._stored.get(position, (key,))
        if before != key:
            raise ToolError(
                f"The tool's code changed while the task waited: its part {position + 1} was '{before}', and is now "
                f"'{key}'. Let a person decide what to do; the task ends here.",
                "conflict",
                retry="never",
            )
        if position >= MAX_STEPS:
            raise ToolError(f"A task has at most {MAX_STEPS} steps. Let one step do more.", "too_large")
        self._begun[position] = key
        if not values:
            self._is_parallel = self._is_parallel or bool(self._open)
            self._open.add(position)
        return position, values

    async def store(self, position: int, text: str, /) -> None:
        key = self._begun[position]
        if len(text) > MAX_STEP_CHARS:
            message = f"The value of '{key}' has over {MAX_STEP_CHARS} characters. Store it elsewhere."
            raise ToolError(message, "too_large")
        if not await self._tasks.add_step(self._entry, position, key, json.loads(text), self._is_parallel):
            raise asyncio.CancelledError  # another process runs the task by now
        self._open.discard(position)


def caller_data(caller: Caller) -> dict[str, Any]:
    """Return what an entry does not have of *caller* in its columns, as `caller_of` reads it back."""
    return {"profile": caller.profile, "groups": sorted(caller.groups), "claims": sorted(caller.claims)}


def caller_of(entry: LedgerEntry) -> Caller:
    """Return the caller of the task *entry*."""
    call = entry.call or {}
    claims = frozenset((str(name), str(value)) for name, value in call["claims"])
    return Caller(entry.principal, call["profile"], entry.thread, frozenset(call["groups"]), claims)
