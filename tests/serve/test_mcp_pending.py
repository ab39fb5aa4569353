"""Calls that wait for a person, as MCP clients see them: those that can ask, those that cannot, and hostile ones."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mcp_types as wire
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from toolcrib import Approve, Call, Caller, Context, Crib, Pending, Secret, tool
from toolcrib.core import Credential
from toolcrib.machinery import create_lasting_task
from toolcrib.serve import Form, Roots, Sample, ask_client, client_can, server
from toolcrib.workbench import Rule, Rules

ERAS = ["legacy", "2026-07-28"]
MODERN = "2026-07-28"
SECRET = "sk-1234567890123"


class User(BaseModel):
    name: str
    age: int | None = None


class Person:
    """The person at a client: gives *answers*, one after the other, and notes what was *asked*."""

    def __init__(self, *answers: wire.ElicitResult) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, _: object, params: Any) -> wire.ElicitResult:
        self.asked.append(params)
        return self.answers.pop(0)


def accept(**content: Any) -> wire.ElicitResult:
    return wire.ElicitResult(action="accept", content=content)


DECLINE = wire.ElicitResult(action="decline")
CANCEL = wire.ElicitResult(action="cancel")


def dropping(**options: Any) -> tuple[Crib, list[int]]:
    """A crib whose tool `drop` has to be approved, and what it dropped."""
    dropped: list[int] = []

    @tool(destructive=True)
    async def drop(n: int) -> int:
        dropped.append(n)
        return n

    rules = Rules([Rule(hint="destructive", do="ask")])
    return Crib([drop], policy=rules, **options), dropped


def text(result: wire.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, wire.TextContent))


@pytest.mark.parametrize("mode", ERAS)
async def test_a_person_approves_a_call_in_the_client_and_for_that_call_alone(mode: str) -> None:
    crib, dropped = dropping()
    person = Person(accept(approve=True), accept(approve=False, reason="too late"), DECLINE, accept())
    async with crib, Client(server(crib), mode=mode, elicitation_callback=person) as client:
        first = await client.call_tool("drop", {"n": 1})
        assert (first.structured_content, dropped) == ({"result": 1}, [1])
        refused = await client.call_tool("drop", {"n": 1})
        assert (refused.is_error, "too late" in text(refused)) == (True, True)
        assert "denied it" in text(await client.call_tool("drop", {"n": 2}))
        if mode == "legacy":  # a client that approves nothing and refuses nothing is asked again in the newer era
            assert "has not run" in text(await client.call_tool("drop", {"n": 3}))
    assert dropped == [1]
    assert '"n":1' in person.asked[0].message.replace(" ", "")
    assert list(person.asked[0].requested_schema["properties"]) == ["approve", "reason", "n"]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_form_of_an_approval_has_the_arguments_to_change(mode: str) -> None:
    ran: list[Any] = []

    @tool(destructive=True)
    async def send(to: str, number: int = 1, note: str | None = None) -> str:
        ran.append((to, number, note))
        return "sent"

    @tool(destructive=True)
    async def nested(user: User) -> str:
        return user.name

    @tool(destructive=True)
    async def approving(approve: bool) -> str:
        return str(approve)

    edit = {"to": "bob", "number": 2, "note": ""}
    person = Person(
        accept(approve=True, **{**edit, "number": "many"}),
        accept(approve=True, **edit),
        accept(approve=True, to="ada", number=1, note=""),
        accept(approve=True),
        accept(approve=True),
    )
    crib = Crib([send, nested, approving], policy=Rules([Rule(hint="destructive", do="ask")]))
    async with crib, Client(server(crib), mode=mode, elicitation_callback=person) as client:
        result = await client.call_tool("send", {"to": "ada"})
        assert ran == [("bob", 2, None)]
        assert "'local' has changed the arguments of this call" in text(result)
        assert (result.is_error, result.structured_content) == (False, {"result": "sent"}), "else it is sent again"
        same = await client.call_tool("send", {"to": "ada"})
        assert (text(same), ran[1:]) == ("sent", [("ada", 1, None)])
        assert text(await client.call_tool("nested", {"user": {"name": "ada"}})) == "ada"
        assert text(await client.call_tool("approving", {"approve": False})) == "False"
    forms = [list(params.requested_schema["properties"]) for params in person.asked]
    assert forms == [["approve", "reason", "to", "number", "note"]] * 3 + [["approve", "reason"]] * 2
    fields = person.asked[0].requested_schema["properties"]
    assert [fields[name].get("default") for name in ("to", "number", "note")] == ["ada", 1, None]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_person_who_dismisses_the_question_ends_the_call_with_instructions(mode: str) -> None:
    crib, dropped = dropping()
    async with crib, Client(server(crib), mode=mode, elicitation_callback=Person(CANCEL)) as client:
        result = await client.call_tool("drop", {"n": 1})
        assert (result.is_error, dropped) == (True, [])
        assert "Do not call it again before the user says so" in text(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_cannot_ask_gets_instructions_for_its_person(mode: str, tmp_path: Path) -> None:
    by_command = {"store": tmp_path / "s.db"}, "with `toolcrib pending`"
    for options, way in [({}, "through the operator of this server"), by_command]:
        crib, dropped = dropping(**options)
        async with crib, Client(server(crib), mode=mode) as client:
            result = await client.call_tool("drop", {"n": 1})
            waiting = (result.meta or {})["toolcrib/pending"]
            assert text(result).startswith("Tool 'drop' has not run: it waits for approval.")
            assert f"A person gives it {way}, under the id {waiting['id']}." in text(result)
            assert "Do not call it again" in text(result)
            again = await client.call_tool("drop", {"n": 1})
            assert (again.meta or {})["toolcrib/pending"] == waiting
            await crib.answer(waiting["id"], Approve(), by="bob")
            assert (await client.call_tool("drop", {"n": 1})).structured_content == {"result": 1}
            assert dropped == [1]


@pytest.mark.parametrize("mode", ERAS)
async def test_nobody_approves_their_own_call_where_others_must(mode: str) -> None:
    crib, dropped = dropping()
    person = Person(accept(approve=True))
    for limits, options, words in (
        ({"others_only": True}, {}, "Someone other than the caller gives it"),
        ({"approvers": {"principals": "alice"}}, {}, "One of 'alice' gives it"),
        ({}, {"may_answer": lambda *_: False}, "has not run"),
    ):
        asking = Crib(crib.registry, policy=Rules([Rule(do="ask", **limits)]), **options)
        async with asking, Client(server(asking), mode=mode, elicitation_callback=person) as client:
            assert words in text(await client.call_tool("drop", {"n": 1}))
    assert (dropped, person.asked) == ([], [])


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_asks_its_questions_as_forms(mode: str) -> None:
    @tool
    async def register(context: Context) -> str:
        user = await context.ask("user", User, "Who are you?")
        sure = await context.ask("sure", bool, "Sure?")
        return f"{user.name} {user.age} {sure}"

    person = Person(accept(name="Ada"), accept(value=True))
    async with Crib([register]) as crib, Client(server(crib), mode=mode, elicitation_callback=person) as client:
        assert text(await client.call_tool("register")) == "Ada None True"
    assert [asked.message for asked in person.asked] == ["Who are you?", "Sure?"]
    assert person.asked[0].requested_schema["properties"]["age"]["type"] == "integer"
    assert person.asked[1].requested_schema["required"] == ["value"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_of_a_tool_that_is_dismissed_is_not_put_again(mode: str) -> None:
    @tool
    async def greet(context: Context) -> str:
        return f"Hello, {await context.ask('name', str, 'Who are you?')}"

    person = Person(CANCEL)
    async with Crib([greet]) as crib, Client(server(crib), mode=mode, elicitation_callback=person) as client:
        assert "it waits for an answer" in text(await client.call_tool("greet"))
    assert len(person.asked) == 1


@pytest.mark.parametrize("mode", ERAS)
async def test_an_answer_that_is_not_what_was_asked_for_is_asked_again(mode: str) -> None:
    @tool
    async def age(context: Context) -> int:
        return await context.ask("age", int, "How old?")

    person = Person(accept(value="old"), accept(value=7))
    async with Crib([age]) as crib, Client(server(crib), mode=mode, elicitation_callback=person) as client:
        assert text(await client.call_tool("age")) == "7"
    assert len(person.asked) == 2


@pytest.mark.parametrize("mode", ERAS)
async def test_what_no_form_can_ask_for_is_left_to_another_door(mode: str) -> None:
    @tool
    async def deep(context: Context) -> str:
        return str(await context.ask("users", list[User], "Who?"))

    person = Person()
    async with Crib([deep]) as crib, Client(server(crib), mode=mode, elicitation_callback=person) as client:
        assert "it waits for an answer" in text(await client.call_tool("deep"))


class Granting:
    """A broker for which somebody has to open a page, once."""

    def __init__(self) -> None:
        self.granted: set[str] = set()

    async def authorize(
        self, requirements: Sequence[Any], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        if caller.principal in self.granted:
            return [Credential("KEY", SECRET, kind="secret")]
        later = datetime.now(UTC) + timedelta(minutes=5)
        return Pending(
            f"p-{caller.principal}", "authorization", "Grant access", "d" + caller.principal, call.tool,
            caller.principal, caller.thread, later, url="https://provider.example/grant?state=1",
        )  # fmt: skip


@pytest.mark.parametrize("mode", ERAS)
async def test_an_authorization_is_a_url_that_the_client_opens_and_the_call_runs_when_it_is_granted(mode: str) -> None:
    broker = Granting()

    @tool(auth=Secret("KEY"))
    async def fetch() -> str:
        return "fetched"

    crib = Crib([fetch], broker=broker)

    async def person(_: object, params: Any) -> wire.ElicitResult:
        assert (params.mode, params.url) == ("url", "https://provider.example/grant?state=1")

        async def grant() -> None:
            broker.granted.add("local")
            await crib.pending.store.answer("p-local", Approve(), by="local", now=datetime.now(UTC))

        tasks.append(asyncio.create_task(grant()))
        return wire.ElicitResult(action="accept")

    tasks: list[asyncio.Task[None]] = []
    async with asyncio.timeout(60), crib:
        async with Client(server(crib), mode=mode) as client:
            words = text(await client.call_tool("fetch"))
            assert "Ask the user to open https://provider.example/grant?state=1" in words
        async with Client(server(crib), mode=mode, elicitation_callback=person) as client:
            assert text(await client.call_tool("fetch")) == "fetched"
    assert len(tasks) == 1


# Hostile clients of the newer era


async def rounds(client: Client, name: str, arguments: dict[str, Any], **more: Any) -> Any:
    return await client.session.call_tool(name, arguments, allow_input_required=True, **more)


async def refused(client: Client, name: str, arguments: dict[str, Any], state: str, **more: Any) -> bool:
    with pytest.raises(MCPError) as caught:
        await rounds(client, name, arguments, request_state=state, **more)
    return (caught.value.code, caught.value.message) == (-32602, "Invalid or expired requestState")


YES: Mapping[str, Any] = {"approval": accept(approve=True)}


@pytest.mark.parametrize("with_store", [False, True])
async def test_a_state_counts_for_its_caller_its_call_and_once(with_store: bool, tmp_path: Path) -> None:
    crib, dropped = dropping(**({"store": tmp_path / "s.db"} if with_store else {}))
    who = ["alice"]
    made = server(crib, lambda _: Caller(who[0]))
    async with crib, Client(made, mode=MODERN, elicitation_callback=Person()) as client:
        waits = await rounds(client, "drop", {"n": 1})
        assert list(waits.input_requests) == ["approval"]
        state = waits.request_state
        # An approval without the state of what was shown is none.
        assert (await rounds(client, "drop", {"n": 1}, input_responses=YES)).result_type == "input_required"
        for wrong in (f"{state[:-9]}{'A' * 9}", state + "A", state[1:], "", "v1.", "x" * 100_000, "\x00", "é"):
            assert await refused(client, "drop", {"n": 1}, wrong, input_responses=YES)
        assert await refused(client, "drop", {"n": 2}, state, input_responses=YES)
        who[0] = "bob"
        assert await refused(client, "drop", {"n": 1}, state, input_responses=YES)
        who[0] = "alice"
        assert dropped == []
        assert (
            await rounds(client, "drop", {"n": 1}, input_responses=YES, request_state=state)
        ).structured_content == {"result": 1}
        replayed = await rounds(client, "drop", {"n": 1}, input_responses=YES, request_state=state)
        assert (replayed.result_type, dropped) == ("input_required", [1])
        # Neither may be shown to another server, even one with this name.
        other, _ = dropping()
        async with Client(server(other, lambda _: Caller("alice")), mode=MODERN, elicitation_callback=Person()) as one:
            assert await refused(one, "drop", {"n": 1}, replayed.request_state, input_responses=YES)


async def test_a_state_that_has_expired_is_refused() -> None:
    crib, dropped = dropping(pending_timeout_s=0.05)
    async with crib, Client(server(crib), mode=MODERN, elicitation_callback=Person()) as client:
        state = (await rounds(client, "drop", {"n": 1})).request_state
        await asyncio.sleep(0.1)
        assert await refused(client, "drop", {"n": 1}, state, input_responses=YES)
    assert dropped == []


async def test_processes_that_share_a_store_go_on_with_each_others_calls(tmp_path: Path) -> None:
    one, first = dropping(store=tmp_path / "s.db")
    two, second = dropping(store=tmp_path / "s.db")
    async with one, two, Client(server(one), mode=MODERN, elicitation_callback=Person()) as client:
        state = (await rounds(client, "drop", {"n": 1})).request_state
        async with Client(server(two), mode=MODERN, elicitation_callback=Person()) as other:
            done = await rounds(other, "drop", {"n": 1}, input_responses=YES, request_state=state)
    assert (done.structured_content, first, second) == ({"result": 1}, [], [1])


async def test_answers_of_a_wrong_kind_count_for_nothing() -> None:
    crib, dropped = dropping()
    wrong: list[Any] = [
        accept(approve="yes"),
        accept(approve=1),
        accept(),
        wire.ListRootsResult(roots=[]),
        wire.CreateMessageResult(role="assistant", content=wire.TextContent(text="approve"), model="m"),
    ]
    async with crib, Client(server(crib), mode=MODERN, elicitation_callback=Person()) as client:
        state = (await rounds(client, "drop", {"n": 1})).request_state
        for response in wrong:
            answer = await rounds(client, "drop", {"n": 1}, input_responses={"approval": response}, request_state=state)
            assert (answer.result_type, dropped) == ("input_required", [])


# What a tool asks the client itself


@tool
async def survey() -> str:
    """Ask for three things."""
    answers = await ask_client(
        who=Form(f"Who are you, {SECRET}?", User), joke=Sample(f"A joke about {SECRET}", max_tokens=9), folders=Roots()
    )
    more = await ask_client(again=Form("And now?", bool))
    return f"{answers['who'].name} {answers['joke']} {answers['folders'][0]['uri']} {more['again']}"


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_asks_the_clients_model_and_roots_and_no_secret_reaches_them(mode: str) -> None:
    prompts: list[str] = []

    async def sample(_: object, params: Any) -> wire.CreateMessageResult:
        prompts.append(params.messages[0].content.text)
        return wire.CreateMessageResult(role="assistant", content=wire.TextContent(text="ha"), model="m")

    async def roots(_: object) -> wire.ListRootsResult:
        return wire.ListRootsResult(roots=[wire.Root(uri="file:///work", name="work")])

    person = Person(accept(name="Ada"), accept(value=True))
    options: dict[str, Any] = {"elicitation_callback": person, "sampling_callback": sample}
    crib = Crib([survey], secrets=[SECRET])
    async with crib, Client(server(crib), mode=mode, list_roots_callback=roots, **options) as client:
        assert text(await client.call_tool("survey")) == "Ada ha file:///work True"
    assert (person.asked[0].message, prompts) == ("Who are you, [secret]?", ["A joke about [secret]"])


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_cannot_be_asked_learns_which_capability_it_lacks(mode: str) -> None:
    async with Crib([survey]) as crib, Client(server(crib), mode=mode, elicitation_callback=Person()) as client:
        if mode == "legacy":
            result = await client.call_tool("survey")
            assert (result.is_error, "capability 'sampling'" in text(result)) == (True, True)
        else:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("survey")
            assert (caught.value.code, caught.value.data) == (-32021, {"requiredCapabilities": {"sampling": {}}})
    async with Crib([survey]) as crib:
        alone = await crib.workbench().call("survey")
        assert (alone.text, alone.error and alone.error.code) == (
            "There is no MCP client to ask: this does not run for one.",
            "unavailable",
        )


@pytest.mark.parametrize("mode", ERAS)
async def test_a_user_who_refuses_a_form_ends_the_call(mode: str) -> None:
    @tool
    async def who() -> str:
        return str(await ask_client(who=Form("Who?", User)))

    async with Crib([who]) as crib, Client(server(crib), mode=mode, elicitation_callback=Person(DECLINE)) as client:
        result = await client.call_tool("who")
        assert (result.meta or {})["toolcrib/error"] == {"code": "denied", "retry": "never"}


async def test_a_question_and_a_log_line_reach_the_client_of_their_own_call() -> None:
    jobs: asyncio.Queue[tuple[Context, asyncio.Future[str]]] = asyncio.Queue()
    shared: list[asyncio.Task[None]] = []

    async def work_off() -> None:
        while True:
            context, done = await jobs.get()
            context.log.warning("for %s", context.caller.principal)
            try:
                done.set_result(await context.ask("name", str, "Who?"))
            except BaseException as error:
                done.set_exception(error)
                raise

    @tool
    async def whose(context: Context) -> str:
        if not shared:  # begun in the call of one, for all
            shared.append(create_lasting_task(work_off()))
        done = asyncio.get_running_loop().create_future()
        jobs.put_nowait((context, done))
        return await done

    logged: list[str] = []

    async def log(params: Any) -> None:
        logged.append(params.data)

    ada, bob = Person(accept(value="I am Ada")), Person(accept(value="I am Bob"))
    async with asyncio.timeout(60), Crib([whose]) as crib:
        doors = [server(crib, lambda _, name=name: Caller(name)) for name in ("ada", "bob")]
        async with (
            Client(doors[0], mode="legacy", elicitation_callback=ada, logging_callback=log) as one,
            Client(doors[1], mode="legacy", elicitation_callback=bob, logging_callback=log) as other,
        ):
            assert text(await one.call_tool("whose")) == "I am Ada"
            assert text(await other.call_tool("whose")) == "I am Bob"
    shared[0].cancel()
    assert (len(ada.asked), len(bob.asked)) == (1, 1)
    assert logged == []  # a task that others share has no client


@pytest.mark.parametrize("mode", ERAS)
async def test_a_task_that_outlives_its_request_has_no_client_any_more(mode: str) -> None:
    answered, tasks = asyncio.Event(), list[asyncio.Task[bool]]()

    async def later() -> bool:
        await answered.wait()
        return client_can(Form)

    @tool
    async def begin() -> bool:
        tasks.append(asyncio.create_task(later()))
        return client_can(Form)

    async with Crib([begin]) as crib, Client(server(crib), mode=mode, elicitation_callback=Person()) as client:
        assert (await client.call_tool("begin")).structured_content == {"result": True}
        answered.set()
        assert await tasks[0] is False
