"""Calls that run as tasks, over HTTP: those of the caller, to whom those of others are unknown."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ...workbench import Task, UnknownTaskError, Workbench
from ...workbench.tasks import TaskState
from ..access.callers import Callers
from ..problems import Refused
from ..protocol.reply import Reply, until_gone
from ..wire import result_bytes, to_bytes
from .calls import RUNNING, bench_for, json_answer, send_events

_MAX_COUNT = 200
_STATES: Sequence[TaskState] = get_args(TaskState)


def task_routes(callers: Callers) -> Sequence[BaseRoute]:
    """Return the routes under `/api/tasks`."""
    api = _TaskAPI(callers)
    return [
        Route("/api/tasks", api.list_tasks),
        Route("/api/tasks/{id}", api.show),
        Route("/api/tasks/{id}/events", api.events),
        Route("/api/tasks/{id}/cancel", api.cancel, methods=["POST"]),
    ]


class _TaskAPI:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def list_tasks(self, request: Request) -> Response:
        bench = await bench_for(self._callers, request.scope)
        after, limit = page_of(request, "of", "state")
        of = request.query_params.get("of", "thread")
        if of not in ("thread", "me", "all") or (of == "all" and not self._sees_all(bench)):
            raise invalid("'of' is 'thread', 'me', or for the members of a role that may see 'tasks', 'all'.")
        state = _state(request)
        tasks: Sequence[Task] = ()
        try:
            if bench.crib.database is not None:
                whose = {
                    "principal": None if of == "all" else bench.caller.principal,
                    "thread": bench.caller.thread if of == "thread" else None,
                }
                tasks = await bench.crib.tasks.list(**whose, state=state, after=after, limit=limit + 1)
        except UnknownTaskError:
            raise invalid("'after' is the id of one of your tasks: `next` of the page before.") from None
        following = tasks[limit - 1].id if len(tasks) > limit else None
        data = [task.to_dict(with_content=False) for task in tasks[:limit]]
        return json_answer({"tasks": data, "next": following})

    async def show(self, request: Request) -> Response:
        bench = await bench_for(self._callers, request.scope)
        return await _answer(bench, await self._task(bench, request))

    async def events(self, request: Request) -> ASGIApp:
        """Return what sends the events of a task. A client that leaves ends that, and not the task."""
        bench = await bench_for(self._callers, request.scope)
        task = await self._task(bench, request)
        if request.method == "HEAD":  # whose connection would be held until the task has ended
            return Response(media_type="text/event-stream")

        async def answer(_: Scope, receive: Receive, send: Send) -> None:
            events = bench.crib.tasks.follow(task.id, principal=task.principal, thread=bench.caller.thread)
            reply = Reply(send)
            await reply.write(RUNNING)
            await until_gone(send_events(events, reply), receive, partial(reply.write, RUNNING))

        return answer

    async def cancel(self, request: Request) -> Response:
        bench = await bench_for(self._callers, request.scope)
        task = await self._task(bench, request)
        await bench.crib.tasks.cancel(task.id, principal=task.principal)
        return await _answer(bench, await self._task(bench, request))

    async def _task(self, bench: Workbench, request: Request) -> Task:
        """Return the task of a request, which is of its caller, or for a role any. Raises Refused."""
        principal = None if self._sees_all(bench) else bench.caller.principal
        try:
            if bench.crib.database is not None:
                task_id = request.path_params["id"]
                return await bench.crib.tasks.get(task_id, principal=principal, thread=bench.caller.thread)
        except UnknownTaskError:
            pass
        raise Refused(404, "Unknown task", "There is no task with this id. Its result may have expired.")

    def _sees_all(self, bench: Workbench) -> bool:
        return self._callers.may(bench.caller, "tasks")


def _state(request: Request) -> TaskState | None:
    text = request.query_params.get("state")
    state: TaskState | None = next((state for state in _STATES if state == text), None)
    if text != state:
        raise invalid(f"'state' is one of: {', '.join(_STATES)}.")
    return state


def page_of(request: Request, *others: str) -> tuple[str | None, int]:
    """Return after what the page of *request* begins, and how many it has; *others* are more parameters.

    Raises Refused.
    """
    query = request.query_params
    if unknown := query.keys() - {"after", "limit", *others}:
        raise invalid(f"There is no parameter '{min(unknown)[:40]}': {', '.join(('after', 'limit', *others))}.")
    if query.get("after") == "":
        raise invalid("'after' is `next` of the page before, or left out for the first page.")
    text = query.get("limit", "50")
    if text.isascii() and text.isdecimal() and len(text) < 5 and 1 <= int(text) <= _MAX_COUNT:
        return query.get("after"), int(text)
    raise invalid(f"'limit' is a whole number from 1 to {_MAX_COUNT}.")


def invalid(detail: str) -> Refused:
    return Refused(422, "Invalid query", detail)


async def _answer(bench: Workbench, task: Task) -> Response:
    """Return the answer with *task*, the names of its steps, and its whole result, whose numbers keep their digits."""
    database = bench.crib.database
    steps = {} if database is None else await database.ledger.steps(task.id)
    names = [key.removeprefix("step ") for _, (key, *_) in sorted(steps.items())]
    data = replace(task, result=None).to_dict() | {"steps": names}
    del data["result"]
    result = b"null" if task.result is None else result_bytes(task.result)
    return Response(b'%b,"result":%b}' % (to_bytes(data)[:-1], result), media_type="application/json")
