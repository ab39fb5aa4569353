"""Tasks over HTTP, at a real server: their caller lists, follows and cancels them, and nobody else does."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from toolcrib import Context, Crib, tool

from .serving import by_user, leave_lost_task, served
from .test_api import conforms

WAIT_S = 60


@dataclass
class Mine:
    """A task that reports how far it is, and then waits until it may go on."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    is_cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @tool(task=True)
    async def dig(self, depth: int, context: Context) -> dict[str, int]:
        """Dig."""
        context.progress(1, 2, "half")
        await context.emit("nearly")
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.is_cancelled.set()
            raise
        return {"depth": depth}


@asynccontextmanager
async def client(*tools: Any, **options: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    crib = Crib([*tools], **options)
    async with (
        served(crib, by_user, grace_s=0.1) as url,
        httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), headers={"user": "ann"}, timeout=WAIT_S) as api,
    ):
        yield api


async def submitted(api: httpx2.AsyncClient, depth: int = 3, **headers: str) -> str:
    answer = await api.post("/api/tools/dig/call", json={"depth": depth}, headers=headers)
    result = answer.json()
    assert (answer.status_code, result["status"], result["pending"]["kind"]) == (200, "pending", "task")
    return str(result["pending"]["id"])


async def ended(api: httpx2.AsyncClient, id: str) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S):
        while (task := (await api.get(f"/api/tasks/{id}")).json())["state"] != "ended":
            await asyncio.sleep(0.02)
    return dict(task)


async def next_event(lines: Any) -> tuple[str, Any]:
    """Return the kind and data of the next event that is no comment."""
    async with asyncio.timeout(WAIT_S):
        async for line in lines:
            if line.startswith("event: "):
                return line.removeprefix("event: "), json.loads((await anext(lines)).removeprefix("data: "))
    raise AssertionError("the stream has ended")


async def test_who_asks_for_the_head_of_events_is_answered_at_once(tmp_path: Path) -> None:
    async with client(Mine(), store=tmp_path / "store.db") as api, asyncio.timeout(WAIT_S / 4):
        id = await submitted(api)
        head = await api.head(f"/api/tasks/{id}/events")
        assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert (await api.get(f"/api/tasks/{id}")).json()["state"] in ("queued", "running")  # by the same connection


async def test_a_task_is_followed_again_and_again_to_its_result(tmp_path: Path) -> None:
    mine = Mine()
    async with client(mine, store=tmp_path / "store.db") as api:
        document = (await api.get("/api/openapi.json")).json()
        id = await submitted(api)
        for _ in range(2):  # a reader that leaves stops nothing, and one that comes back gets all of it
            async with api.stream("GET", f"/api/tasks/{id}/events") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                lines = stream.aiter_lines()
                events = [await next_event(lines) for _ in range(2)]
            assert sorted(kind for kind, _ in events) == ["output", "progress"]
            assert dict(events)["progress"] == {"done": 1, "total": 2, "message": "half"}
        running = await api.get(f"/api/tasks/{id}")
        assert (running.json()["state"], running.json()["result"]) == ("running", None)
        assert conforms(running, "Task", document)
        mine.go_on.set()
        text = (await api.get(f"/api/tasks/{id}/events")).text
        kind, data = text.strip().split("\n\n")[-1].split("\n")
        assert kind == "event: result"
        result = json.loads(data.removeprefix("data: "))
        assert (result["status"], result["call_id"], result["content"][0]["data"]) == ("success", id, {"depth": 3})
        task = await api.get(f"/api/tasks/{id}")
        assert (task.json()["state"], task.json()["result"]) == ("ended", result)
        assert conforms(task, "Task", document)
        assert not mine.is_cancelled.is_set()


async def test_tasks_are_listed_page_by_page_to_their_caller_alone(tmp_path: Path) -> None:
    mine = Mine()
    mine.go_on.set()
    async with client(mine, store=tmp_path / "store.db") as api:
        ids = [await submitted(api, user=user) for user in ("ann", "ann", "bob", "ann")]
        await ended(api, ids[0])
        first = (await api.get("/api/tasks", params={"limit": 2})).json()
        rest = (await api.get("/api/tasks", params={"limit": 2, "after": first["next"]})).json()
        assert [task["id"] for task in first["tasks"]] == [ids[3], ids[1]]
        assert ([task["id"] for task in rest["tasks"]], rest["next"]) == ([ids[0]], None)
        result = rest["tasks"][0]["result"]
        assert (result["status"], "content" in result) == ("success", False)
        exactly = (await api.get("/api/tasks", params={"limit": 3})).json()
        assert (len(exactly["tasks"]), exactly["next"]) == (3, None)
        document = (await api.get("/api/openapi.json")).json()
        for method, path in [("GET", ""), ("GET", "/events"), ("POST", "/cancel")]:
            for id in (ids[2], "nothing"):
                answer = await api.request(method, f"/api/tasks/{id}{path}")
                assert (answer.status_code, answer.json()["title"]) == (404, "Unknown task")
                assert conforms(answer, "Problem", document)
        for query in ("limit=0", "limit=201", "limit=x", "limit=", "limit=%C2%B2", "after=nothing", f"after={ids[2]}"):
            answer = await api.get(f"/api/tasks?{query}")
            assert (answer.status_code, answer.json()["title"]) == (422, "Invalid query"), query
        assert "after, limit" in (await api.get("/api/tasks?before=x")).json()["detail"]


async def test_a_task_is_cancelled_and_one_that_has_ended_stays_as_it_is(tmp_path: Path) -> None:
    mine = Mine()
    async with client(mine, store=tmp_path / "store.db") as api:
        id = await submitted(api)
        async with api.stream("GET", f"/api/tasks/{id}/events") as stream:
            lines = stream.aiter_lines()
            await next_event(lines)  # it runs
            answer = await api.post(f"/api/tasks/{id}/cancel")
            assert (answer.status_code, answer.json()["id"]) == (200, id)
            async with asyncio.timeout(WAIT_S):
                while (event := await next_event(lines))[0] != "result":
                    pass
        assert event[1]["error"]["code"] == "cancelled"
        assert mine.is_cancelled.is_set()
        task = await ended(api, id)
        assert (await api.post(f"/api/tasks/{id}/cancel")).json() == task


@pytest.mark.parametrize("has_store", [True, False])
async def test_without_a_store_or_a_task_there_is_an_empty_list(has_store: bool, tmp_path: Path) -> None:
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with client(add, store=tmp_path / "store.db" if has_store else None) as api:
        assert (await api.get("/api/tasks")).json() == {"tasks": [], "next": None}
        assert (await api.get("/api/tasks/x")).status_code == 404
        assert (await api.get("/api/tasks/x/events")).status_code == 404
        assert (await api.post("/api/tasks/x/cancel")).status_code == 404


async def test_a_server_that_stops_ends_what_follows_and_logs_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(task=True, idempotent=True)
    async def dig(depth: int, context: Context) -> None:
        context.progress(1)
        await asyncio.Event().wait()

    crib = Crib([dig], store=tmp_path / "store.db")
    async with asyncio.timeout(WAIT_S), httpx2.AsyncClient(headers={"user": "ann"}, timeout=WAIT_S) as api:
        async with served(crib, by_user, grace_s=0.1) as url:
            api.base_url = url.removesuffix("/mcp")
            id = await submitted(api)
            stream = await api.send(api.build_request("GET", f"/api/tasks/{id}/events"), stream=True)
            lines = stream.aiter_lines()
            await next_event(lines)
        with suppress(httpx2.RemoteProtocolError):
            assert "event: result" not in [line async for line in lines]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def test_who_follows_a_lost_task_learns_that_a_person_settles_it(tmp_path: Path) -> None:
    await leave_lost_task(tmp_path / "store.db", "pay", "ann")
    async with client(Mine(), store=tmp_path / "store.db") as api:
        assert (await api.get("/api/tasks/task_1")).json()["state"] == "lost"
        text = (await api.get("/api/tasks/task_1/events")).text
    kind, data = text.strip().split("\n\n")[-1].split("\n")
    result = json.loads(data.removeprefix("data: "))
    assert (kind, result["status"], result["error"]["code"]) == ("event: result", "error", "lost")
