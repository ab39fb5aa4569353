"""Calls that run as tasks, over HTTP: those of the caller, to whom those of others are unknown."""

from collections.abc import Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ..workbench import Task, UnknownTaskError, Workbench
from .api_calls import Watched, bench_for, paused, send_events
from .callers import Callers
from .problems import Refused
from .wire import result_bytes, to_bytes

_MAX_COUNT = 200


def task_routes(callers: Callers) -> Sequence[BaseRoute]:
    """Return the routes under `/api/tasks`."""
    api = _TaskAPI(callers)
    return [
        Route("/api/tasks", api.list_tasks),
        Route("/api/tasks/{id}", api.show),
        Route("/api/tasks/{id}/events", _EventsEndpoint(callers), methods=["GET"]),
        Route("/api/tasks/{id}/cancel", api.cancel, methods=["POST"]),
    ]


class _TaskAPI:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def list_tasks(self, request: Request) -> Response:
        bench = await bench_for(self._callers, request.scope)
        after, limit = page_of(request)
        tasks: Sequence[Task] = ()
        try:
            if bench.crib.database is not None:
                own, thread = bench.caller.principal, bench.caller.thread
                tasks = await bench.crib.tasks.list(principal=own, thread=thread, after=after, limit=limit + 1)
        except UnknownTaskError:
            raise invalid("'after' is the id of one of your tasks: `next` of the page before.") from None
        following = tasks[limit - 1].id if len(tasks) > limit else None
        data = [task.to_dict(with_content=False) for task in tasks[:limit]]
        return Response(to_bytes({"tasks": data, "next": following}), media_type="application/json")

    async def show(self, request: Request) -> Response:
        bench = await bench_for(self._callers, request.scope)
        return _answer(await _task(bench, request.path_params["id"]))

    async def cancel(self, request: Request) -> Response:
        bench = await bench_for(self._callers, request.scope)
        task = await _task(bench, request.path_params["id"])
        await bench.crib.tasks.cancel(task.id, principal=task.principal)
        return _answer(await _task(bench, task.id))


class _EventsEndpoint:
    """An ASGI application that sends what a task reports. A client that leaves ends that, and not the task."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bench = await bench_for(self._callers, scope)
        task = await _task(bench, scope["path_params"]["id"])
        if scope["method"] == "HEAD":  # whose connection would be held until the task has ended
            await Response(media_type="text/event-stream")(scope, receive, send)
            return
        with Watched(receive):
            async with paused(
                bench.crib.tasks.follow(task.id, principal=task.principal, thread=bench.caller.thread)
            ) as events:
                await send_events(send, events, None)


async def _task(bench: Workbench, id: str) -> Task:  # noqa: A002
    """Return the task of the caller of *bench* with this id. Raises Refused."""
    try:
        if bench.crib.database is not None:
            return await bench.crib.tasks.get(id, principal=bench.caller.principal, thread=bench.caller.thread)
    except UnknownTaskError:
        pass
    raise Refused(404, "Unknown task", "There is no task with this id. Its result may have expired.")


def page_of(request: Request) -> tuple[str | None, int]:
    """Return after what the page of *request* begins, and how many it has. Raises Refused."""
    query = request.query_params
    if unknown := query.keys() - {"after", "limit"}:
        raise invalid(f"There is no parameter '{min(unknown)[:40]}': after, limit.")
    if query.get("after") == "":
        raise invalid("'after' is `next` of the page before, or left out for the first page.")
    text = query.get("limit", "50")
    if text.isascii() and text.isdecimal() and len(text) < 5 and 1 <= int(text) <= _MAX_COUNT:
        return query.get("after"), int(text)
    raise invalid(f"'limit' is a whole number from 1 to {_MAX_COUNT}.")


def invalid(detail: str) -> Refused:
    return Refused(422, "Invalid query", detail)


def _answer(task: Task) -> Response:
    """Return the answer with *task* and its whole result, whose numbers keep their digits."""
    data = replace(task, result=None).to_dict()
    del data["result"]
    result = b"null" if task.result is None else result_bytes(task.result)
    return Response(b'%b,"result":%b}' % (to_bytes(data)[:-1], result), media_type="application/json")
