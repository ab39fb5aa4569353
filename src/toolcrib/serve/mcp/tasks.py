"""Tasks for MCP clients: the extension `io.modelcontextprotocol/tasks` of 2026-07-28 (SEP-2663).

A task is what `crib.tasks` has in the store, so any process answers for it: nothing of one is kept here. What it asks
of its caller is named by the id of what is pending, which no other question has. A client without the extension waits
for its call as for any other, until the deadline of that.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Literal, cast

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from ...call import TASK_LIFE
from ...core import AnswerError, Pending, Result, Tool
from ...formats import mcp as form
from ...machinery import log_failure
from ...workbench import Crib, Task, UnknownTaskError, Workbench
from ..protocol.core import Exchange, unknown_method
from . import resources as offered
from .pending import State, answer_of, instructions, may_answer, question_of
from .request import MAX_NOTICE_CHARS, ClientRequest

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_INTERVAL_S = 1.0
"""How often clients are advised to ask for a task, and the tasks of a stream are looked at."""
MAX_WATCHED = 100
"""How many tasks a principal listens to at a time."""
_REQUIRED: Mapping[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
_TERMINAL = ("completed", "failed", "cancelled")


class TaskParams(wire.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class TaskNotification(BaseModel):
    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


class TaskMethods:
    """What answers requests about tasks. *answer* returns a result as `tools/call` does, or raises its MCPError."""

    def __init__(self, crib: Crib, answer: Callable[[Result[Any], Tool | None], dict[str, Any]]) -> None:
        self._crib = crib
        self._answer = answer
        self._watched: Counter[str] = Counter()

    async def get(self, context: Exchange, bench: Workbench, params: TaskParams) -> dict[str, Any]:
        self._require_extension(context)
        return await self._detailed(ClientRequest(context, bench), params.task_id)

    async def update(self, context: Exchange, bench: Workbench, params: UpdateParams) -> dict[str, Any]:
        """Take answers to what a task asks. Those to anything else are ignored: the first answer counts."""
        self._require_extension(context)
        questions = await self._crib.tasks.questions(params.task_id, principal=bench.caller.principal)
        responses = params.input_responses
        answers = [
            (pending, answer_of(pending, wire.ElicitResult.model_validate(responses[pending.id], by_name=False)))
            for pending in questions
            if pending.id in responses
        ]
        for pending, answer in answers:
            if answer is not None and pending.kind != "authorization":  # that is seen where it was granted
                try:
                    await self._crib.answer(pending.id, answer, by=bench.caller)
                except AnswerError as error:
                    if error.reason == "invalid":
                        raise MCPError(wire.INVALID_PARAMS, form.encodable(str(error))) from None
        return {}

    async def cancel(self, context: Exchange, bench: Workbench, params: TaskParams) -> dict[str, Any]:
        self._require_extension(context)
        await self._crib.tasks.cancel(params.task_id, principal=bench.caller.principal)
        return {}

    # Calls

    @staticmethod
    def are_for(context: Exchange) -> bool:
        """Return whether the client of a request has declared the extension with it."""
        capabilities = context.session.client_capabilities
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return is_modern and capabilities is not None and EXTENSION in (capabilities.extensions or {})

    def _answers_with_task(self, context: Exchange, tool: Tool) -> bool:
        """Return whether a call of *tool*, which runs as a task, is answered with that: where the client knows tasks.

        Raises MCPError where it has to.
        """
        if not (is_known := self.are_for(context)) and tool.is_task == "required":
            message = f"'{tool.spec.name}' runs as a task, and is for clients that declare the extension for tasks."
            raise MCPError(wire.MISSING_REQUIRED_CLIENT_CAPABILITY, form.encodable(message), _REQUIRED)
        return is_known

    async def created(self, context: Exchange, bench: Workbench, pending: Pending) -> dict[str, Any] | None:
        """Return the result of a call that has become the task *pending*.

        None where it has become none, the client does not know tasks, or it is of another principal.
        """
        if pending.kind != "task" or not self.are_for(context):
            return None
        try:
            task = await self._crib.tasks.get(pending.id, principal=bench.caller.principal)
        except UnknownTaskError:
            return None
        return {**self._facts(task), "status": "working", "resultType": "task"}

    def awaited(
        self,
        call: Callable[[], Awaitable[Result[Any]]],
        context: Exchange,
        bench: Workbench,
        state: State,
        tool: Tool,
    ) -> Callable[[], Awaitable[Result[Any]]]:
        """Return what makes *call* of *tool* once and waits for its task, whose id is noted in *state*.

        It returns the result, or what the task asks; at the deadline, that it runs on. For a client that knows tasks,
        it is *call*. Raises MCPError where it has to know them, and does not.
        """
        if not state.task and self._answers_with_task(context, tool):
            return call
        limits = [limit for limit in (tool.spec.timeout_s, self._crib.options["timeout_s"]) if limit is not None]
        end = monotonic() + min(limits, default=float("inf"))

        async def wait() -> Result[Any]:
            if not state.task:
                result = await call()
                if result.pending is None or result.pending.kind != "task":
                    return result
                state.task = result.pending.id
            tasks, principal = self._crib.tasks, bench.caller.principal
            while True:
                left_s = end - monotonic()
                with suppress(TimeoutError):
                    step_s = max(0.0, min(POLL_INTERVAL_S / 2, left_s))
                    return await tasks.wait(
                        state.task, thread=bench.caller.thread, timeout_s=step_s, principal=principal
                    )
                questions = await tasks.questions(state.task, principal=principal)
                if questions or left_s <= 0:
                    task = await tasks.get(state.task, principal=principal)
                    return _waiting(task, questions[0] if questions else None)

        return wait

    # Notices

    @asynccontextmanager
    async def watched(
        self, context: Exchange, params: wire.SubscriptionsListenRequestParams, bench: Workbench
    ) -> AsyncGenerator[Exchange]:
        """Notify of the tasks that a stream asks for, while the block answers that. Raises MCPError."""
        ids: Any = (params.notifications.model_extra or {}).get("taskIds")
        if ids is None:
            yield context
            return
        self._require_extension(context)
        if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):  # noqa: A001
            raise MCPError(wire.INVALID_PARAMS, "'taskIds' is a list of ids.")
        principal, own_ids = bench.caller.principal, list[str]()
        for id in dict.fromkeys(ids[: MAX_WATCHED + 1]):  # noqa: A001
            with suppress(UnknownTaskError):
                own_ids.append((await self._crib.tasks.get(id, principal=principal)).id)
        if self._watched[principal] + len(own_ids) > MAX_WATCHED or len(ids) > MAX_WATCHED:
            raise MCPError(wire.INVALID_REQUEST, f"All your streams listen to at most {MAX_WATCHED} tasks.")
        self._watched[principal] += len(own_ids)
        session = _Acknowledging(context.session, own_ids)
        task = asyncio.create_task(self._notify(ClientRequest(context, bench), session, context.request_id))
        try:
            yield replace(context, session=cast(Any, session))
        finally:
            task.cancel()
            self._watched[principal] -= len(own_ids)
            if not self._watched[principal]:
                del self._watched[principal]

    async def _notify(self, request: ClientRequest, session: "_Acknowledging", stream: wire.RequestId) -> None:
        """Send each of the tasks of *session* as it is, and as it changes, until it has ended."""
        await session.is_acknowledged.wait()
        states: dict[str, dict[str, Any]] = {id: {} for id in session.ids}  # noqa: A001
        while states:
            for id, before in [*states.items()]:  # noqa: A001
                try:
                    data = await self._detailed(request, id)
                    if data != before:
                        meta = {SUBSCRIPTION_ID_META_KEY: stream}
                        await session.send_notification(TaskNotification(params={**data, "_meta": meta}))
                except UnknownTaskError:  # it has expired
                    del states[id]
                except Exception as error:  # as where the store is away
                    log_failure("A client could not be notified of a task", error, self._crib.redaction)
                else:
                    states[id] = data
                    if data["status"] in _TERMINAL:
                        del states[id]
            await asyncio.sleep(POLL_INTERVAL_S)

    # Inside

    def _require_extension(self, context: Exchange) -> None:
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS or self._crib.database is None:
            raise unknown_method(context.method)
        if not self.are_for(context):
            message = "Tasks are for clients that declare the extension with each request."
            raise MCPError(wire.MISSING_REQUIRED_CLIENT_CAPABILITY, message, _REQUIRED)

    async def _detailed(self, request: ClientRequest, id: str) -> dict[str, Any]:  # noqa: A002
        """Return a task as its caller sees it. Raises UnknownTaskError."""
        caller, tasks = request.bench.caller, self._crib.tasks
        task = await tasks.get(id, principal=caller.principal, thread=caller.thread)
        if task.result is not None:
            return self._facts(task) | self._ended(task.result)
        if task.state == "lost":  # it is not known how it ended, until that is settled
            error = (await tasks.wait(id, principal=caller.principal)).error
            return self._facts(task) | ({} if error is None else _failed(offered.error_of(error, {})))
        return self._facts(task) | await self._open(request, id)

    async def _open(self, request: ClientRequest, id: str) -> dict[str, Any]:  # noqa: A002
        """Return what a task that has not ended asks its caller, or how far it is."""
        principal, tasks = request.bench.caller.principal, self._crib.tasks
        questions, requests = await tasks.questions(id, principal=principal), dict[str, Any]()
        for pending in questions:
            question = question_of(pending, request)
            if question is not None and await may_answer(request, self._crib, pending):
                requests[pending.id] = question.model_dump(by_alias=True, mode="json", exclude_none=True)
        if requests:
            return {"status": "input_required", "inputRequests": requests}
        if questions:
            return {"statusMessage": form.encodable(instructions(questions[0], self._crib, id))}
        if (progress := await tasks.progress(id, principal=principal)) is None:
            return {}
        total = "" if progress.total is None else f" of {progress.total:g}"
        return {"statusMessage": form.encodable((progress.message or f"{progress.done:g}{total}")[:MAX_NOTICE_CHARS])}

    def _facts(self, task: Task) -> dict[str, Any]:
        """Return what every shape of *task* has. It is there for at least as long as a result is kept."""
        now, result, database = datetime.now(UTC), task.result, self._crib.database
        assert database is not None
        due_at = task.run_at if task.run_at is not None and task.run_at <= now else task.started_at
        updated_at = max(due_at, task.started_at) if result is None else result.finished_at
        ttl_s = database.ledger.keep_s + (0 if result is None else (updated_at - task.started_at).total_seconds())
        return {
            "taskId": task.id,
            "status": "working",
            "createdAt": task.started_at.isoformat(),
            "lastUpdatedAt": updated_at.isoformat(),
            "ttlMs": max(1, int(ttl_s * 1000)),
            "pollIntervalMs": int(POLL_INTERVAL_S * 1000),
        }

    def _ended(self, result: Result[Any]) -> dict[str, Any]:
        if result.error is not None and result.error.code == "cancelled":
            return {"status": "cancelled", "statusMessage": form.encodable(result.error.message)}
        try:
            return {"status": "completed", "result": self._answer(result, self._crib.registry.find(result.tool))}
        except MCPError as error:
            return _failed(error)


class _Acknowledging:
    """The session of a stream, which acknowledges the tasks with *ids*, too."""

    def __init__(self, session: Any, ids: list[str]) -> None:
        self._session, self.ids = session, ids
        self.is_acknowledged = asyncio.Event()

    async def send_notification(self, notice: Any, related_request_id: object = None) -> None:
        if isinstance(notice, wire.SubscriptionsAcknowledgedNotification):
            honored = notice.params.notifications.model_copy(update={"taskIds": self.ids})
            notice = notice.model_copy(update={"params": notice.params.model_copy(update={"notifications": honored})})
        await self._session.send_notification(notice, related_request_id)
        self.is_acknowledged.set()


def _failed(error: MCPError) -> dict[str, Any]:
    data = error.error.model_dump(mode="json", exclude_none=True)
    return {"status": "failed", "statusMessage": error.error.message, "error": data}


def _waiting(task: Task, question: Pending | None) -> Result[Any]:
    """Return the result of a call whose *task* waits for *question*, or just runs on."""
    message = f"'{task.tool}' runs as a task. Its result comes when it has ended."
    runs = Pending(task.id, "task", message, "", task.tool, task.principal, task.thread, task.started_at + TASK_LIFE)
    return Result(None, (), started_at=task.started_at, call_id=task.id, tool=task.tool, pending=question or runs)
