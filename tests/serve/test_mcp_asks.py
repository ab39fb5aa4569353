"""What MCP clients can be asked, by their capabilities, and what comes of answers that they fail to give."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as wire
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from toolcrib import Approve, Caller, Context, Crib, Pending, Secret, tool
from toolcrib.record import CallLog
from toolcrib.serve import Form, Roots, Sample, asgi_app, ask_client, client_can, close_stream, server
from toolcrib.serve.access.callers import Callers
from toolcrib.workbench import Rule, Rules

from .serving import message_of, request_of
from .test_mcp_pending import ERAS, MODERN, Granting, Person, User, accept, rounds, text

RULES = Rules([Rule(hint="destructive", do="ask")])


@tool(destructive=True)
async def drop() -> str:
    """Drop everything."""
    return "dropped"


@tool(auth=Secret("KEY"))
async def fetch() -> str:
    return "fetched"


async def call(app: Any, name: str, capabilities: Mapping[str, Any]) -> Any:
    """The result of a call by a client of the newer era that has *capabilities*."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as http:
        parts = request_of("tools/call", capabilities, name=name, arguments={})
        return message_of(await http.post("/mcp", **parts))["result"]


@pytest.mark.parametrize(
    ("capabilities", "has_forms", "has_urls"),
    [
        ({}, False, False),
        ({"sampling": {}}, False, False),
        ({"elicitation": {}}, True, False),  # before there were modes
        ({"elicitation": {"form": {}}}, True, False),
        ({"elicitation": {"url": {}}}, False, True),
        ({"elicitation": {"form": {}, "url": {}}}, True, True),
    ],
)
async def test_a_client_is_asked_in_the_ways_that_it_names(
    capabilities: Mapping[str, Any], has_forms: bool, has_urls: bool
) -> None:
    app = asgi_app(Crib([drop, fetch], policy=RULES, broker=Granting(), may_answer=lambda _, by: by == "local"))
    async with app.lifespan():
        for name, is_asked in [("drop", has_forms), ("fetch", has_urls)]:
            result = await call(app, name, capabilities)
            assert (result["resultType"] == "input_required") is is_asked
            if is_asked:
                [question] = result["inputRequests"].values()
                assert question["params"].get("mode", "form") == ("form" if name == "drop" else "url")
                assert "elicitationId" not in question["params"]
            else:
                assert "has not run: it waits for" in result["content"][0]["text"]


async def test_whoever_must_not_approve_still_opens_the_page_of_their_own_authorization() -> None:
    app = asgi_app(Crib([drop, fetch], policy=RULES, broker=Granting(), may_answer=lambda *_: False))
    async with app.lifespan():
        can = {"elicitation": {"form": {}, "url": {}}}
        for name, kind in (("drop", "complete"), ("fetch", "input_required")):
            assert (await call(app, name, can))["resultType"] == kind


async def test_what_a_model_reads_of_a_call_that_waits_is_for_its_person() -> None:
    async with Crib([drop, fetch], policy=RULES, broker=Granting()) as crib, Client(server(crib)) as client:
        waits = await client.call_tool("drop")
        [pending] = await crib.pendings()
        assert text(waits) == (
            f"Tool 'drop' has not run: it waits for approval. {pending.message} A person gives it through "
            f"the operator of this server, under the id {pending.id}. Tell the user that. "
            "Do not call it again before the user says so; until then, the answer is the same."
        )
        assert text(await client.call_tool("fetch")) == (
            "Tool 'fetch' has not run: it waits for the user's authorization. Grant access. Ask the user to open "
            "https://provider.example/grant?state=1 and to say when that is done. "
            "Do not call it again before the user says so; until then, the answer is the same."
        )


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_who_does_not_open_the_page_is_asked_once_and_sent_instructions(mode: str, action: Any) -> None:
    log, asked = CallLog(), list[Any]()

    async def person(_: object, params: Any) -> wire.ElicitResult:
        asked.append(params)
        return wire.ElicitResult(action=action)

    crib = Crib([fetch], broker=Granting(), recorder=log)
    async with asyncio.timeout(60), crib, Client(server(crib), mode=mode, elicitation_callback=person) as client:
        assert "Ask the user to open https://provider.example" in text(await client.call_tool("fetch"))
    assert [(one.url, one.elicitation_id) for one in asked] == [
        ("https://provider.example/grant?state=1", "p-local" if mode == "legacy" else None)
    ]
    assert len(list(log)) == (1 if mode == "legacy" else 2)  # the newer era makes the call again with the answer


async def test_who_dismisses_an_approval_has_made_one_call() -> None:
    log, person = CallLog(), Person(wire.ElicitResult(action="cancel"))
    crib = Crib([drop], policy=RULES, recorder=log)
    async with crib, Client(server(crib), mode="legacy", elicitation_callback=person) as client:
        assert "has not run" in text(await client.call_tool("drop"))
    assert len(list(log)) == 1
    assert "{}" not in person.asked[0].message  # a call without arguments has none to show


async def test_a_client_that_fails_to_ask_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    asked: list[str] = []

    async def person(_: object, params: Any) -> wire.ErrorData:
        asked.append(params.message)
        return wire.ErrorData(code=-32603, message="no window")

    @tool
    async def greet(context: Context) -> str:
        return f"Hello, {await context.ask('name', str, 'Who are you?')}"

    crib = Crib([drop, greet], policy=RULES)
    async with crib, Client(server(crib), mode="legacy", elicitation_callback=person) as client:
        for name in ("drop", "greet"):
            asked.clear()
            assert "has not run" in text(await client.call_tool(name))
            assert len(asked) == 1
    assert "A client could not be asked: MCPError" in caplog.text


async def test_an_answer_that_does_not_count_is_logged_and_one_that_came_before_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    @tool
    async def age(context: Context) -> int:
        return await context.ask("age", int, "How old?")

    async with Crib([age, drop], policy=RULES) as crib:  # noqa: SIM117
        async with Client(server(crib), mode=MODERN, elicitation_callback=Person()) as client:
            state = (await rounds(client, "drop", {})).request_state
            yes: Any = {"approval": accept(approve=True)}
            assert not (await rounds(client, "drop", {}, input_responses=yes, request_state=state)).is_error
            await rounds(client, "drop", {}, input_responses=yes, request_state=state)
            assert "does not count" not in caplog.text
            state = (await rounds(client, "age", {})).request_state
            old: Any = {"age": accept(value="old")}
            assert (await rounds(client, "age", {}, input_responses=old, request_state=state)).request_state
            assert "The answer of a client does not count: " in caplog.text


@pytest.mark.parametrize("mode", ERAS)
async def test_a_reason_that_is_not_text_is_none(mode: str) -> None:
    person = Person(accept(approve=False, reason=7))
    crib = Crib([drop], policy=RULES)
    async with crib, Client(server(crib), mode=mode, elicitation_callback=person) as client:
        denied = await client.call_tool("drop")
    assert (denied.meta or {})["toolcrib/error"] == {"code": "denied", "retry": "never"}
    assert "7" not in text(denied)


async def test_beside_mcp_the_host_is_asked_and_over_mcp_the_person_at_the_client() -> None:
    asked: list[str] = []

    async def ask(pending: Pending) -> Approve:
        asked.append(pending.tool)
        return Approve()

    async with Crib([drop], policy=RULES, ask=ask) as crib:
        bench = await Callers(crib, lambda _: Caller("ada")).workbench(None)
        assert (await bench.call("drop")).value == "dropped"
        assert asked == ["drop"]
        person = Person(accept(approve=True))
        async with Client(server(crib), mode="legacy", elicitation_callback=person) as client:
            assert text(await client.call_tool("drop")) == "dropped"
    assert (asked, len(person.asked)) == (["drop"], 1)


# What a tool asks by itself


class Team(BaseModel):
    people: list[User]


@asynccontextmanager
async def asking(question: Callable[[], Awaitable[Any]], mode: str, **callbacks: Any) -> AsyncIterator[Client]:
    @tool
    async def ask() -> str:
        return str(await question())

    async with Crib([ask]) as crib, Client(server(crib), mode=mode, **callbacks) as client:
        yield client


def error(result: wire.CallToolResult) -> tuple[str, str]:
    return (result.meta or {})["toolcrib/error"]["code"], text(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_form_that_no_client_has_is_the_mistake_of_the_tool(mode: str) -> None:
    person = Person()
    async with asking(lambda: ask_client(team=Form("Who?", Team)), mode, elicitation_callback=person) as client:
        code, words = error(await client.call_tool("ask"))
        assert (code, "flat values only" in words) == ("failed", True)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_answer_to_a_tool_is_what_its_schema_says(mode: str) -> None:
    person = Person(accept(name="Ada", age="old"), accept(value=7))
    async with asking(lambda: ask_client(who=Form("Who?", User)), mode, elicitation_callback=person) as client:
        code, words = error(await client.call_tool("ask"))
        assert (code, words.startswith("The answer to 'who' is not what was asked for. ")) == ("invalid_result", True)
    async with asking(lambda: ask_client(age=Form("Age?", int)), mode, elicitation_callback=person) as client:
        assert text(await client.call_tool("ask")) == "{'age': 7}"


async def test_an_answer_of_another_kind_is_none() -> None:
    async with asking(lambda: ask_client(who=Form("Who?", User)), MODERN, elicitation_callback=Person()) as client:
        state = (await rounds(client, "ask", {})).request_state
        other: Any = {"who": wire.ListRootsResult(roots=[])}
        result = await rounds(client, "ask", {}, input_responses=other, request_state=state)
        assert error(result) == ("invalid_result", "The client's answer to 'who' is not what it was asked for.")


async def test_a_client_that_fails_to_answer_is_unavailable() -> None:
    async def roots(_: object) -> wire.ErrorData:
        return wire.ErrorData(code=-32603, message="no disk")

    async with asking(lambda: ask_client(folders=Roots()), "legacy", list_roots_callback=roots) as client:
        assert error(await client.call_tool("ask")) == ("unavailable", "The client did not answer: no disk")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_model_is_asked_with_messages_and_may_answer_with_an_image(mode: str) -> None:
    asked: list[Any] = []

    async def sample(_: object, params: Any) -> wire.CreateMessageResult:
        asked.append((params.max_tokens, params.system_prompt, [one.content.text for one in params.messages]))
        image = wire.ImageContent(data="AAAA", mime_type="image/png")
        return wire.CreateMessageResult(role="assistant", content=image, model="m", stop_reason="endTurn")

    prompt = [{"role": "user", "content": {"type": "text", "text": word}} for word in ("one", "two")]

    async def twice() -> Any:
        first = await ask_client(picture=Sample(prompt))
        await ask_client(other=Sample("three", max_tokens=9, system="Be short."))
        return first["picture"]["type"], first["picture"]["data"]

    async with asking(twice, mode, sampling_callback=sample) as client:
        assert text(await client.call_tool("ask")) == "('image', 'AAAA')"
    assert asked == [(1000, None, ["one", "two"]), (9, "Be short.", ["three"])]


async def test_answers_that_are_too_large_for_another_round_are_refused() -> None:
    async def twice() -> Any:
        await ask_client(first=Form("Long?", str))
        return await ask_client(second=Form("And?", str))

    async with asking(twice, MODERN, elicitation_callback=Person()) as client:
        state = (await rounds(client, "ask", {})).request_state

        async def answer(size: int) -> Any:
            long: Any = {"first": accept(value="x" * size)}
            return await rounds(client, "ask", {}, input_responses=long, request_state=state)

        assert list((await answer(60_000)).input_requests) == ["second"]
        with pytest.raises(MCPError, match="too large to be carried"):
            await answer(70_000)


async def test_where_there_is_no_client_nothing_can_be_asked_of_it_nor_let_go() -> None:
    assert [client_can(Form), client_can(Roots), await close_stream()] == [False, False, False]
