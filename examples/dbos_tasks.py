"""Tasks that DBOS runs (https://docs.dbos.dev, `pip install dbos`), in place of the engine of Toolcrib.

    async with dbos_crib([travel], Store("tools.db"), "sqlite:///workflows.db") as crib:
        pending = (await crib.workbench().call("travel", {"city": "Oslo"})).pending
        result = await crib.tasks.wait(pending.id)

DBOS has the tasks, their steps and results in its own database, in clear; the store has what else calls need. What a
task reports, lists of tasks and runs of agents that go on by themselves are left out.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from secrets import token_hex
from typing import Any, cast

from dbos import DBOS, SetWorkflowID, error

from toolcrib import Call, Crib, Pending, Result, ToolError
from toolcrib.call import EventStream, TaskRun, caller_of, error_result, lost, restored, stored, streamed
from toolcrib.machinery import LedgerEntry, Steps, Suspended
from toolcrib.store import Store
from toolcrib.store.tasks import DatabaseTasks
from toolcrib.workbench import Task, Tasks, UnknownTaskError

_PROCESS = token_hex(8)
_cribs: list[Crib] = []
"""Where workflows run: DBOS has one application for each process."""


class DbosSteps(Steps):
    """The steps of a task as those of DBOS. The tool begins anew after each wait, so they are found by their place."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}
        self._next = 0

    def from_the_first(self) -> "DbosSteps":
        self._next = 0
        return self

    async def run(self, key: str, work: Callable[[], Awaitable[Any]], /) -> Any:
        place, self._next = self._next, self._next + 1

        async def attempt() -> tuple[Any, Pending | None]:
            try:
                return await work(), None
            except Suspended as waits:  # for a person: stored as well, so that a recovery goes the same way
                return None, waits.pending

        if place not in self._values:
            value, pending = await DBOS.run_step_async({"name": key}, attempt)
            if pending is not None:
                raise Suspended(pending)
            self._values[place] = value
        return self._values[place]

    async def sleep(self, seconds: float, /) -> None:
        place, self._next = self._next, self._next + 1
        if place not in self._values:
            self._values[place] = await DBOS.sleep_async(seconds)


@DBOS.workflow(name="toolcrib task")
async def run_task(entry: LedgerEntry) -> Mapping[str, Any]:
    """Run the task *entry*, again after each answer that it waits for.

    DBOS recovers all that a dead process has left; one that is not idempotent is lost.
    """

    async def process() -> str:
        return _PROCESS

    if not entry.is_idempotent and await DBOS.run_step_async({"name": "begin"}, process) != _PROCESS:
        return stored(error_result(Call(entry.tool, None, entry.id), lost(entry.tool, entry), entry.started_at))
    steps, crib = DbosSteps(), _cribs[-1]
    request: Mapping[str, Any] = entry.call or {}
    call = Call(entry.tool, request["arguments"], entry.id, idempotency_key=entry.key)
    while True:
        bench, events = crib.workbench(caller_of(entry)), EventStream()
        run = TaskRun(entry, cast(Any, steps.from_the_first()))
        async for item in streamed(events, lambda: bench.run_task(call, run, events)):  # noqa: B023 - it ends here
            if isinstance(item, Result):
                result = item
        if result.pending is None:
            return stored(result)
        await crib.wait_for(result.pending)


class DbosLedger(DatabaseTasks):
    """The ledger of calls with keys, in the store, and that of tasks, in DBOS."""

    async def submit(self, entry: LedgerEntry, subjects: Any = (), /) -> LedgerEntry:
        entry = replace(entry, id=_id_of(entry.principal, entry.key), is_own=True)
        with SetWorkflowID(entry.id):  # where it is there, nothing is started
            await DBOS.start_workflow_async(run_task, entry)
        current = await self.find(entry.principal, entry.key)
        return entry if current is None or current.digest == entry.digest else current

    async def find(self, principal: str, key: str, /) -> LedgerEntry | None:
        return await _entry(_id_of(principal, key)) or await super().find(principal, key)


class DbosTasks:
    """What callers see of the tasks."""

    unclaimed = ()

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def drain(self, timeout_s: float) -> None: ...

    async def get(self, id: str, *, principal: str | None = None) -> Task:  # noqa: A002
        entry = await _entry(id)
        if entry is None or principal not in (None, entry.principal):
            raise UnknownTaskError(f"There is no task '{id[:100]}'.")
        result = None if entry.result is None else restored(entry.result, Call(entry.tool, None, id))
        state: Any = "running" if result is None else "ended"
        return Task(id, entry.tool, entry.principal, entry.thread, state, entry.started_at, entry.run_at, result=result)

    async def wait(self, id: str, *, principal: str | None = None, timeout_s: float | None = None) -> Result[Any]:  # noqa: A002
        await self.get(id, principal=principal)
        handle: Any = await DBOS.retrieve_workflow_async(id)
        try:
            async with asyncio.timeout(timeout_s):
                await handle.get_result()
        except error.DBOSAwaitedWorkflowCancelledError:
            pass
        result = (await self.get(id)).result
        assert result is not None
        return result

    async def cancel(self, id: str, *, principal: str | None = None) -> bool:  # noqa: A002
        is_open = (await self.get(id, principal=principal)).result is None
        await DBOS.cancel_workflow_async(id)  # it stops at its next step
        return is_open


@asynccontextmanager
async def dbos_crib(tools: Iterable[Any], store: Store, url: str, **options: Any) -> AsyncGenerator[Crib]:
    """Start a crib whose tasks DBOS runs, in the database at *url*, also those that a dead process has left."""
    store.ledger = DbosLedger(store)
    crib = Crib(tools, store=store, **options)
    crib.tasks = cast(Tasks, DbosTasks())
    DBOS(config={"name": "toolcrib", "system_database_url": url})
    async with crib:
        _cribs.append(crib)
        try:
            DBOS.launch()
            yield crib
        finally:
            DBOS.destroy()
            _cribs.remove(crib)


def _id_of(principal: str, key: str) -> str:
    return f"task_{sha256(repr((principal, key)).encode()).hexdigest()}"


async def _entry(id: str) -> LedgerEntry | None:  # noqa: A002
    """Return the task with *id*, with its result once it has ended."""
    status = await DBOS.get_workflow_status_async(id)
    if status is None or status.input is None:
        return None
    entry: LedgerEntry = status.input["args"][0]
    if status.status == "SUCCESS":
        return replace(entry, state="ended", result=status.output)
    if status.status in ("PENDING", "ENQUEUED", "DELAYED"):
        return replace(entry, state="running")
    code: Any = "cancelled" if status.status == "CANCELLED" else "failed"
    problem = ToolError(f"The task '{id}' has ended as {status.status}.", code, retry="never")
    failure = error_result(Call(entry.tool, None, id), problem, entry.started_at)
    return replace(entry, state="ended", result=stored(failure))
