"""The extension of MCP for tasks, over HTTP at a real server: its clients, those without it, and hostile ones."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as wire
import pytest
from mcp import Client
from pydantic import BaseModel

from toolcrib import Caller, Context, Crib, Input, ToolError, tool
from toolcrib.serve import server
from toolcrib.serve.mcp import tasks
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

from ..waiting import until
from .serving import by_user, leave_lost_task, message_of, request_of, served

WAIT_S = 60
EXTENSION = "io.modelcontextprotocol/tasks"
REQUIRED = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
FULL: Mapping[str, Any] = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
FORMS: Mapping[str, Any] = {"elicitation": {"form": {}}}


class Name(BaseModel):
    name: str


class Door:
    """A client of the server at *url*, which says who it is."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.http = httpx2.AsyncClient(timeout=WAIT_S)

    def message(
        self, method: str, *, capabilities: Mapping[str, Any] = FULL, user: str = "ada", **params: Any
    ) -> dict[str, Any]:
        """Return the parts of the POST of a request."""
        own = params.pop("headers", {})
        parts = request_of(method, capabilities, **params)
        headers = {**parts["headers"], "user": user, **own}
        return {"url": self._url, **parts, "headers": {name: of for name, of in headers.items() if of is not None}}

    async def answer(self, method: str, **parts: Any) -> dict[str, Any]:
        message: dict[str, Any] = message_of(await self.http.post(**self.message(method, **parts)))
        return message

    async def result(self, method: str, **parts: Any) -> dict[str, Any]:
        message = await self.answer(method, **parts)
        assert "result" in message, message
        result: dict[str, Any] = message["result"]
        result.pop("_meta", None)
        return result

    async def error(self, method: str, **parts: Any) -> tuple[int, Any]:
        message = await self.answer(method, **parts)
        assert "error" in message, message
        return message["error"]["code"], message["error"].get("data")

    async def call(self, name: str, **parts: Any) -> dict[str, Any]:
        return await self.result("tools/call", name=name, **{"arguments": {}, **parts})

    async def task(self, name: str, **parts: Any) -> str:
        created = await self.call(name, **parts)
        assert created["resultType"] == "task", created
        assert not created.keys() & {"result", "error", "inputRequests", "requestState", "content"}
        return str(created["taskId"])

    async def get(self, task: str, **parts: Any) -> dict[str, Any]:
        return await self.result("tasks/get", taskId=task, **parts)

    async def until(self, task: str, *statuses: str) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            while (data := await self.get(task))["status"] not in statuses:
                await asyncio.sleep(0.02)
        return data

    async def says(self, task: str) -> dict[str, Any]:
        """Return *task* once it has a message."""
        async with asyncio.timeout(WAIT_S):
            while "statusMessage" not in (data := await self.get(task)):
                await asyncio.sleep(0.02)
        return data

    async def ended(self, task: str) -> dict[str, Any]:
        return await self.until(task, "completed", "failed", "cancelled")


class Tools:
    """Tools that run as tasks; `digs` counts how often `dig` has ended."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.digs = 0

    @tool(task=True)
    async def dig(self, context: Context) -> dict[str, int]:
        """Dig until it may go on."""
        context.progress(1, 2, "half")
        await self.go_on.wait()
        self.digs += 1
        return {"depth": 3}

    @tool(task=True)
    async def fail(self) -> None:
        """Fail."""
        raise ToolError("It cannot be done.")

    @tool(task=True)
    async def gone(self) -> None:
        """Call what is not there."""
        raise ToolError("There is no tool 'x'.", "unknown_tool")

    @tool(task="required")
    async def night(self) -> str:
        """Take all night."""
        return "morning"

    @tool(task=True)
    async def hello(self, context: Context) -> str:
        """Ask who is there, twice."""
        first = await context.ask("first", Name, "What is your first name?")
        last = await context.ask("last", Name, "And the last?")
        self.digs += 1
        return f"Hello, {first.name} {last.name}!"

    @tool(task=True)
    async def both(self, context: Context) -> str:
        """Ask two things at once."""
        names = await asyncio.gather(*(context.ask(key, Name, f"Your {key} name?") for key in ("first", "last")))
        return " ".join(answer.name for answer in names)

    @tool(task=True, destructive=True)
    async def drop(self) -> str:
        """Drop."""
        self.digs += 1
        return "dropped"

    @tool(task=True, destructive=True)
    async def wipe(self, path: str) -> str:
        """Wipe."""
        return path

    @tool(task=True)
    async def flood(self, context: Context) -> None:
        """Say too much."""
        context.progress(1, 3, "z" * 100_000)
        await self.go_on.wait()
        await context.ask("more", Name, "y" * 100_000)

    @tool(task=True)
    async def sign(self, context: Context) -> str:
        """Have somebody else sign."""
        return (await context.ask("name", Name, "Who signs it?")).name


@asynccontextmanager
async def door_to(*tools: Any, **options: Any) -> AsyncGenerator[tuple[Door, Crib]]:
    crib = Crib([*tools], **options)
    async with served(crib, by_user, grace_s=0.1) as url:
        door = Door(url)
        async with door.http:
            yield door, crib


def accepted(task: Mapping[str, Any], **content: Any) -> dict[str, Any]:
    """Return the responses to all that *task* asks."""
    return {key: {"action": "accept", "content": content} for key in task["inputRequests"]}


async def test_a_call_becomes_a_task_that_is_asked_for_until_it_has_ended(tmp_path: Path) -> None:
    tools = Tools()
    async with door_to(tools, store=tmp_path / "store.db") as (door, _):
        discovered = await door.result("server/discover")
        assert discovered["capabilities"]["extensions"] == {EXTENSION: {}}
        created = await door.call("dig")
        assert created["resultType"] == "task"
        task = created["taskId"]
        working = await door.says(task)
        assert (working["resultType"], working["status"], working["statusMessage"]) == ("complete", "working", "half")
        assert working["createdAt"] == created["createdAt"] <= working["lastUpdatedAt"]
        week_ms = 7 * 24 * 3600 * 1000
        assert (working["pollIntervalMs"], working["ttlMs"] >= week_ms, type(working["ttlMs"])) == (1000, True, int)
        tools.go_on.set()
        completed = await door.ended(task)
        plain = await door.call("dig", capabilities={})
        assert (completed["status"], completed["result"]["structuredContent"]) == ("completed", {"depth": 3})
        assert {**completed["result"], "resultType": "complete"} == plain
        assert (await door.call("fail", capabilities={}))["isError"]


async def test_a_task_is_promised_for_no_longer_than_its_result_is_kept(tmp_path: Path) -> None:
    tools = Tools()
    tools.go_on.set()
    async with door_to(tools, store=Store(tmp_path / "store.db", keep_keys_s=90)) as (door, _):
        created = await door.call("dig")
        ended = await door.ended(created["taskId"])
        assert (created["ttlMs"], 90_000 <= ended["ttlMs"] < 90_000 + WAIT_S * 1000) == (90_000, True)


async def test_a_tool_hands_on_a_task_of_its_caller_and_none_of_anybody_else(tmp_path: Path) -> None:
    cribs: list[Crib] = []

    @tool
    async def dig_for(who: str) -> Any:
        """Have somebody dig."""
        return await cribs[0].workbench(Caller(who)).call("dig")

    tools = Tools()
    tools.go_on.set()
    async with door_to(tools, dig_for, store=tmp_path / "store.db") as (door, crib):
        cribs.append(crib)
        task = await door.task("dig_for", arguments={"who": "ada"})
        assert (await door.ended(task))["result"]["structuredContent"] == {"depth": 3}
        of_bob = await door.call("dig_for", arguments={"who": "bob"})
        assert (of_bob["resultType"], of_bob["isError"]) == ("complete", True)


async def test_errors_of_tools_complete_a_task_and_those_of_the_protocol_fail_it(tmp_path: Path) -> None:
    async with door_to(Tools(), store=tmp_path / "store.db") as (door, _):
        failed = await door.ended(await door.task("fail"))
        assert (failed["status"], failed["result"]["isError"]) == ("completed", True)
        gone = await door.ended(await door.task("gone"))
        assert (gone["status"], gone["error"]["code"], "result" in gone) == ("failed", -32602, False)
        code, data = await door.error("tools/call", name="gone", arguments={}, capabilities={})
        assert (code, data) == (gone["error"]["code"], gone["error"]["data"])


async def test_a_task_whose_process_died_without_a_trace_has_failed_until_a_person_settles_it(tmp_path: Path) -> None:
    await leave_lost_task(tmp_path / "store.db", "dig", "ada")
    async with door_to(Tools(), store=tmp_path / "store.db") as (door, _):
        lost = await door.get("task_1")
        assert (lost["status"], lost["error"]["code"], "result" in lost) == ("failed", -32603, False)
        assert lost["error"]["data"]["toolcrib/error"]["code"] == "lost"
        assert await door.result("tasks/cancel", taskId="task_1") == {"resultType": "complete"}


async def test_what_a_task_asks_is_answered_once_under_keys_of_its_own(tmp_path: Path) -> None:
    tools = Tools()
    async with door_to(tools, store=tmp_path / "store.db") as (door, _):
        task = await door.task("hello")
        first = await door.until(task, "input_required")
        ((key, question),) = first["inputRequests"].items()
        assert (question["method"], question["params"]["message"]) == ("elicitation/create", "What is your first name?")
        assert list(question["params"]["requestedSchema"]["properties"]) == ["name"]
        wrong: list[Any] = [5, {"action": "accept", "content": {"name": {}}}, {"action": "maybe"}]
        wrong.append({"action": "accept", "content": {"nom": "Ada"}})
        for response in wrong:
            code, _data = await door.error("tasks/update", taskId=task, inputResponses={key: response})
            assert code == -32602, response
        for other in ({"no-such-key": 5}, {}, {key: {"action": "cancel"}}):
            assert await door.result("tasks/update", taskId=task, inputResponses=other) == {"resultType": "complete"}
        assert (await door.get(task))["inputRequests"] == first["inputRequests"]
        answers = [accepted(first, name=name) for name in ("Ada", "Eve")]
        updates = await asyncio.gather(
            *(door.result("tasks/update", taskId=task, inputResponses=answer) for answer in answers)
        )
        assert updates == [{"resultType": "complete"}] * 2
        async with asyncio.timeout(WAIT_S):
            while (second := await door.until(task, "input_required"))["inputRequests"].keys() & {key}:
                await asyncio.sleep(0.02)
        responses = {**accepted(first, name="Mallory"), **accepted(second, name="L")}
        await door.result("tasks/update", taskId=task, inputResponses=responses)
        text = (await door.ended(task))["result"]["content"][0]["text"]
        assert text in ("Hello, Ada L!", "Hello, Eve L!")
        assert await door.result("tasks/update", taskId=task, inputResponses=accepted(second, name="x")) is not None
    assert tools.digs == 1


async def test_what_a_task_says_and_asks_is_bounded_and_an_answer_that_is_no_text_is_refused(tmp_path: Path) -> None:
    tools = Tools()
    async with door_to(tools, store=tmp_path / "store.db") as (door, _):
        task = await door.task("flood")
        assert (await door.says(task))["statusMessage"] == "z" * 2000
        tools.go_on.set()
        asked = await door.until(task, "input_required")
        (question,) = asked["inputRequests"].values()
        assert question["params"]["message"] == f"{'y' * 10_000} …"
        code, _ = await door.error("tasks/update", taskId=task, inputResponses=accepted(asked, name="\ud800"))
        assert code == -32602
        await door.result("tasks/update", taskId=task, inputResponses=accepted(asked, name="Ada"))
        assert (await door.ended(task))["status"] == "completed"


async def test_questions_at_once_are_answered_one_by_one(tmp_path: Path) -> None:
    async with door_to(Tools(), store=tmp_path / "store.db") as (door, _):
        for order in (1, -1):
            task = await door.task("both")
            async with asyncio.timeout(WAIT_S):
                while len((asked := await door.until(task, "input_required"))["inputRequests"]) < 2:
                    await asyncio.sleep(0.02)
            keys = list(asked["inputRequests"])[::order]
            for number, key in enumerate(keys):
                response = {"action": "accept", "content": {"name": asked["inputRequests"][key]["params"]["message"]}}
                await door.result("tasks/update", taskId=task, inputResponses={key: response})
                if number == 0:
                    left = await door.get(task)
                    assert (left["status"], list(left["inputRequests"])) == ("input_required", keys[1:])
            assert (await door.ended(task))["result"]["content"][0]["text"] == "Your first name? Your last name?"


async def test_the_policy_asks_before_there_is_a_task_and_others_are_asked_elsewhere(tmp_path: Path) -> None:
    tools = Tools()
    rules = Rules([Rule(hint="destructive", do="ask")], default="allow")
    options = {"policy": rules, "may_answer": lambda pending, by: pending.tool in ("drop", "wipe") or by == "carol"}
    async with door_to(tools, store=tmp_path / "store.db", **options) as (door, crib):
        asked = await door.call("drop")
        assert (asked["resultType"], "taskId" in asked, await crib.tasks.list()) == ("input_required", False, [])
        responses = {key: {"action": "accept", "content": {"approve": True}} for key in asked["inputRequests"]}
        task = await door.task("drop", inputResponses=responses, requestState=asked["requestState"])
        assert ((await door.ended(task))["status"], tools.digs) == ("completed", 1)
        asked = await door.call("wipe", arguments={"path": "/a"})
        responses = {
            key: {"action": "accept", "content": {"approve": True, "path": "/b"}} for key in asked["inputRequests"]
        }
        state = {"inputResponses": responses, "requestState": asked["requestState"]}
        wiped = await door.ended(await door.task("wipe", arguments={"path": "/a"}, **state))
        texts = [block["text"] for block in wiped["result"]["content"]]
        assert texts == ["/b", '\'ada\' has changed the arguments of this call to: {"path": "/b"}']
        assert wiped["result"]["structuredContent"] == {"result": "/b"}
        signed = await door.task("sign")
        waiting = await until(crib.pendings)
        shown = await door.says(signed)
        assert (shown["status"], waiting[0].id in shown["statusMessage"]) == ("working", True)
        forged = {waiting[0].id: {"action": "accept", "content": {"name": "ada"}}}
        await door.result("tasks/update", taskId=signed, inputResponses=forged)
        assert len(await crib.pendings()) == 1
        await crib.answer(waiting[0].id, Input({"name": "carol"}), by="carol")
        assert (await door.ended(signed))["result"]["content"][0]["text"] == "carol"


async def test_a_task_is_cancelled_again_and_again(tmp_path: Path) -> None:
    async with door_to(Tools(), store=tmp_path / "store.db") as (door, crib):
        for name in ("dig", "hello"):
            task = await door.task(name)
            await door.until(task, "working" if name == "dig" else "input_required")
            for _ in range(2):
                assert await door.result("tasks/cancel", taskId=task) == {"resultType": "complete"}
            cancelled = await door.ended(task)
            assert cancelled["status"] == "cancelled"
            assert not cancelled.keys() & {"result", "error", "inputRequests"}
            assert await door.result("tasks/cancel", taskId=task) == {"resultType": "complete"}
        assert await crib.pendings() == []


async def test_a_client_without_the_extension_waits_for_its_call_and_is_asked_in_it(tmp_path: Path) -> None:
    tools = Tools()
    async with door_to(tools, store=tmp_path / "store.db", timeout_s=30) as (door, crib):
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            for capabilities in ({}, {"extensions": {"x/y": {}}}, {"extensions": None}):
                parts = {"taskId": "task_1", "inputResponses": {}, "capabilities": capabilities}
                assert await door.error(method, **parts) == (-32021, REQUIRED)
        assert await door.error("tools/call", name="night", arguments={}, capabilities={}) == (-32021, REQUIRED)
        assert await crib.tasks.list() == []
        asked = await door.call("hello", capabilities=FORMS)
        for name in ("Ada", "L"):
            responses = {key: {"action": "accept", "content": {"name": name}} for key in asked["inputRequests"]}
            state = {"inputResponses": responses, "requestState": asked["requestState"]}
            asked = await door.call("hello", capabilities=FORMS, **state)
        assert asked["content"][0]["text"] == "Hello, Ada L!"
        silent = await door.call("hello", capabilities={})
        assert (silent["isError"], "and waits for an answer" in silent["content"][0]["text"]) == (True, True)
        waiting, _ = await crib.tasks.list(principal="ada")
        assert (
            f"begin another task. The user sees the result of this one with `toolcrib tasks show {waiting.id}`."
            in (silent["content"][0]["text"])
        )
        # One that declares the extension in the next round only goes on with its task.
        asked = await door.call("hello", capabilities=FORMS)
        responses = {key: {"action": "accept", "content": {"name": "Ada"}} for key in asked["inputRequests"]}
        asked = await door.call("hello", inputResponses=responses, requestState=asked["requestState"])
        assert (asked["resultType"], len(await crib.tasks.list(principal="ada"))) == ("input_required", 3)
    assert tools.digs == 1


async def test_at_the_deadline_a_client_without_the_extension_learns_that_the_task_runs_on(tmp_path: Path) -> None:
    tools = Tools()
    async with door_to(tools, store=tmp_path / "store.db", timeout_s=0.4) as (door, crib):
        late = await door.call("dig", capabilities={})
        assert (late["isError"], "still running" in late["content"][0]["text"]) == (True, True)
        (task,) = await crib.tasks.list()
        assert task.state in ("queued", "running", "ended")


async def test_clients_of_the_older_era_have_no_methods_for_tasks_and_are_asked_at_once(tmp_path: Path) -> None:
    async def person(context: object, params: Any) -> wire.ElicitResult:
        return wire.ElicitResult(action="accept", content={"name": params.message[:4]})

    crib = Crib([Tools()], store=tmp_path / "store.db")
    async with crib, Client(server(crib), mode="legacy", elicitation_callback=person) as client:
        result = await client.call_tool("hello", {})
        assert result.content[0].text == "Hello, What And !"  # type: ignore[union-attr]
        assert client.server_capabilities.extensions is None
        with pytest.raises(Exception, match="Method not found"):
            await client.session.send_request(
                wire.GetTaskRequest(params=wire.GetTaskRequestParams(task_id="x")), wire.GetTaskResult
            )


async def test_the_tasks_of_others_are_as_unknown_as_those_that_never_were(tmp_path: Path) -> None:
    tools = Tools()
    async with door_to(tools, store=tmp_path / "store.db") as (door, _):
        task = await door.task("hello")
        asked = await door.until(task, "input_required")
        answers = accepted(asked, name="Bob")
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            errors = [
                (await door.answer(method, taskId=id, inputResponses=answers, user="bob"))["error"]
                for id in (task, task[:-1] + "_", "task_%", "", "x" * 7_000, next(iter(answers)))
            ]
            assert errors == [errors[0]] * len(errors)
            assert errors[0]["code"] == -32602
        assert await door.get(task) == asked


async def test_headers_and_params_have_to_say_the_same(tmp_path: Path) -> None:
    async with door_to(Tools(), store=tmp_path / "store.db") as (door, _):
        task = await door.task("dig")
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            for header in (None, "task_other", task + "x"):
                parts = {"taskId": task, "inputResponses": {}, "headers": {"mcp-name": header}}
                assert (await door.error(method, **parts))[0] == -32020
        for method, parts in {
            "tasks/get": [{}, {"taskId": None}, {"taskId": 5}, {"taskId": [task]}],
            "tasks/cancel": [{}, {"taskId": {}}],
            "tasks/update": [{"taskId": task}, {"taskId": task, "inputResponses": []}, {"inputResponses": {}}],
        }.items():
            for part in parts:
                assert (await door.error(method, **part))[0] in (-32602, -32020), part
        for method in ("tasks/list", "tasks/result", "tasks/"):
            assert (await door.error(method, taskId=task))[0] == -32601
        large = {f"key {number}": {"action": "accept"} for number in range(20_000)}
        assert await door.result("tasks/update", taskId=task, inputResponses=large) == {"resultType": "complete"}


async def test_without_a_store_there_is_no_extension() -> None:
    async with door_to(greet) as (door, _):
        assert "extensions" not in (await door.result("server/discover"))["capabilities"]
        assert (await door.error("tasks/get", taskId="task_1"))[0] == -32601
        assert (await door.call("greet"))["content"][0]["text"] == "hello"


@tool
async def greet() -> str:
    """Greet."""
    return "hello"


async def test_another_process_answers_for_the_task_and_so_does_the_next_one(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with door_to(Tools(), store=store) as (door, _), door_to(Tools(), store=store, tasks=0) as (other, _):
        task = await door.task("hello")
        for name in ("Ada", "L"):
            asked = await other.until(task, "input_required")
            await other.result("tasks/update", taskId=task, inputResponses=accepted(asked, name=name))
            async with asyncio.timeout(WAIT_S):
                while (await other.get(task)).get("inputRequests", {}).keys() & asked["inputRequests"].keys():
                    await asyncio.sleep(0.02)
        ended = await other.ended(task)
        assert ended["result"]["content"][0]["text"] == "Hello, Ada L!"
    async with door_to(Tools(), store=store) as (door, _):
        assert await door.get(task) == ended


class Stream:
    """The notices of `subscriptions/listen`."""

    def __init__(self, answer: Any) -> None:
        self._lines = answer.aiter_lines()

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            async for line in self._lines:
                if line.startswith(("data: {", "{")):
                    message: dict[str, Any] = json.loads(line.removeprefix("data: "))
                    return message
        raise AssertionError("the stream has ended")


async def test_a_client_that_listens_is_notified_of_its_own_tasks_alone(tmp_path: Path) -> None:
    tools = Tools()
    async with door_to(tools, store=tmp_path / "store.db") as (door, _):
        task, of_bob = await door.task("dig"), await door.task("dig", user="bob")
        wanted = {"taskIds": [task, of_bob, "task_%", task], "toolsListChanged": True}
        async with door.http.stream("POST", **door.message("subscriptions/listen", notifications=wanted)) as answer:
            stream = Stream(answer)
            acknowledged = await stream.next()
            assert acknowledged["params"]["notifications"] == {"taskIds": [task], "toolsListChanged": True}
            notice = await stream.next()
            assert (notice["method"], notice["params"]["taskId"]) == ("notifications/tasks", task)
            assert notice["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 1}
            tools.go_on.set()
            while (notice := await stream.next())["params"]["status"] == "working":
                pass
            shown = await door.get(task)
            del shown["resultType"], notice["params"]["_meta"]
            assert notice["params"] == shown
        for wrong in (["x"] * 101, "x", [5], {}):
            parts = {"notifications": {"taskIds": wrong}}
            assert (await door.error("subscriptions/listen", **parts))[0] in (-32600, -32602)
        parts = {"notifications": {"taskIds": [task]}, "capabilities": {}}
        assert await door.error("subscriptions/listen", **parts) == (-32021, REQUIRED)


async def test_the_streams_of_a_caller_listen_to_so_many_tasks_and_to_more_once_one_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MAX_WATCHED", 2)
    async with door_to(Tools(), store=tmp_path / "store.db") as (door, _):
        ids = [await door.task("dig") for _ in range(2)]
        listen = door.message("subscriptions/listen", notifications={"taskIds": ids})
        async with door.http.stream("POST", **listen) as answer:
            await Stream(answer).next()
            parts = {"notifications": {"taskIds": ids[:1]}}
            assert (await door.error("subscriptions/listen", **parts))[0] == -32600
            of_bob = await door.task("dig", user="bob")
            own = door.message("subscriptions/listen", notifications={"taskIds": [of_bob]}, user="bob")
            async with door.http.stream("POST", **own) as other:
                assert (await Stream(other).next())["params"]["notifications"] == {"taskIds": [of_bob]}
        async with asyncio.timeout(WAIT_S):
            is_open = False
            while not is_open:
                async with door.http.stream("POST", **listen) as answer:
                    is_open = (await Stream(answer).next()).get("method") == "notifications/subscriptions/acknowledged"
