"""The stateless era as this server answers it itself: as the SDK would, with streams, and for clients that leave."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any

import pytest
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import Field
from starlette.types import ASGIApp, Message

from toolcrib import Caller, Context, Crib, tool
from toolcrib.machinery import current_client
from toolcrib.serve import local_caller, server
from toolcrib.serve.protocol import http, reply

from .sdk_server import both
from .serving import Waits, add

VERSION = "2026-07-28"
ENVELOPE = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
BOTH = "application/json, text/event-stream"
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


@tool
async def greet(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Greet a region, which stands in a header, too."""
    return f"Hello, {region}"


def request(method: str, params: Any = None, **members: Any) -> Any:
    given = {} if params is None else params
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": ENVELOPE, **given}, **members}


@asynccontextmanager
async def answering(*tools: Any) -> AsyncGenerator[tuple[ASGIApp, ASGIApp]]:
    """The application that answers by itself, and the SDK's that answers the same server."""
    async with Crib([*tools]) as crib:
        own, theirs = both(crib)
        sdk = StreamableHTTPSessionManager(theirs)
        async with own.handlers.running(), sdk.run():
            yield own.stateless(own.sessions()), sdk.handle_request


async def never(_: Message) -> None: ...


async def ask(
    app: ASGIApp,
    message: Any,
    *,
    method: str = "POST",
    sent: Callable[[Message], Any] = never,
    leaves: asyncio.Event | None = None,
    **headers: str | None,
) -> list[Message]:
    """What *app* sends to the client of *message*, which leaves when *leaves* is set. A header that is None is left
    out.
    """
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    of: dict[str, Any] = message if isinstance(message, dict) else {}
    params: Any = of.get("params")
    name = params.get("name") or params.get("uri") if isinstance(params, dict) else None
    given = {
        "host": "127.0.0.1:1",
        "content-type": "application/json",
        "accept": BOTH,
        "mcp-protocol-version": VERSION,
        "mcp-method": of.get("method"),
        "mcp-name": name,
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    pairs = [(key.encode(), value.encode()) for key, value in given.items() if isinstance(value, str)]
    messages, bodies = list[Message](), [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if bodies:
            return bodies.pop()
        await (leaves or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(part: Message) -> None:
        messages.append(part)
        await sent(part)

    scope = {
        "type": "http",
        "method": method,
        "path": "/mcp",
        "query_string": b"",
        "headers": pairs,
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    return messages


def status(answer: list[Message]) -> int:
    return int(answer[0]["status"])


def body(answer: list[Message]) -> bytes:
    return b"".join(part.get("body", b"") for part in answer[1:])


ODD: dict[str, tuple[Any, dict[str, Any]]] = {
    "a call": (request("tools/call", ADD), {}),
    "a list": (request("tools/list"), {}),
    "a read": (request("resources/read", {"uri": "notes://a"}), {}),
    "what is served": (request("server/discover"), {}),
    "a tool that is not there": (request("tools/call", {"name": "sub"}), {}),
    "an argument of another type": (request("tools/call", {"name": "add", "arguments": {"a": "x", "b": 2}}), {}),
    "arguments that are no object": (request("tools/call", {"name": "add", "arguments": [1]}), {}),
    "no name": (request("tools/call", {"arguments": {}}), {}),
    "a method that is not there": (request("tools/drop"), {}),
    "a method of the older era": (request("ping"), {}),
    "a handshake": (request("initialize"), {}),
    "a notice": ({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}, {}),
    "a notice of another version": ({"jsonrpc": "2.0", "method": "x"}, {"mcp_protocol_version": "2031-01-01"}),
    "a response": ({"jsonrpc": "2.0", "id": 1, "result": {}}, {}),
    "a batch": ([request("tools/list")], {}),
    "a number": (7, {}),
    "half of a message": (b'{"jsonrpc": "2.0", ', {}),
    "nothing": (b"", {}),
    "no JSON-RPC": ({**request("tools/list"), "jsonrpc": "1.0"}, {}),
    "a method that is a number": ({**request("tools/list"), "method": 1}, {"mcp_method": "tools/list"}),
    "params that are a list": ({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}, {}),
    "no envelope": ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {}),
    "half of an envelope": (
        request("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": VERSION}}),
        {},
    ),
    "capabilities that are none": (
        request("tools/list", {"_meta": {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": 1}}),
        {},
    ),
    "another version": (
        request("tools/list", {"_meta": {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}}),
        {"mcp_protocol_version": "2031-01-01"},
    ),
    "a version that differs": (request("tools/list"), {"mcp_protocol_version": "2031-01-01"}),
    "a method that differs": (request("tools/list"), {"mcp_method": "tools/call"}),
    "no header for the method": (request("tools/list"), {"mcp_method": None}),
    "a name that differs": (request("tools/call", ADD), {"mcp_name": "sub"}),
    "a name in base64": (request("tools/call", ADD), {"mcp_name": "=?base64?YWRk?="}),
    "a name in other letters": (request("tools/call", ADD), {"mcp_name": "ADD"}),
    "a resource that differs": (request("resources/read", {"uri": "notes://a"}), {"mcp_name": "notes://b"}),
    "an argument in its header": (
        request("tools/call", {"name": "greet", "arguments": {"region": "Bern"}}),
        {"mcp_param_region": "Bern"},
    ),
    "an argument that differs": (
        request("tools/call", {"name": "greet", "arguments": {"region": "Bern"}}),
        {"mcp_param_region": "Basel"},
    ),
    "an argument without its header": (request("tools/call", {"name": "greet", "arguments": {"region": "Bern"}}), {}),
    "a state that is not ours": (request("tools/call", {**ADD, "requestState": "x"}), {}),
    "a state that is a number": (request("tools/call", {**ADD, "requestState": 1}), {}),
    "a state that is an object": (request("tools/call", {**ADD, "requestState": {"v": 1}}), {}),
    "no state": (request("tools/call", {**ADD, "requestState": None}), {}),
    "answers that are a list": (request("tools/call", {**ADD, "inputResponses": []}), {}),
    "an answer that is a number": (request("tools/call", {**ADD, "inputResponses": {"a": 7}}), {}),
    "an answer that is none": (request("tools/call", {**ADD, "inputResponses": {"a": {"action": "perhaps"}}}), {}),
    "another cursor": (request("tools/list", {"cursor": "x"}), {}),
    "a GET": (b"", {"method": "GET"}),
    "a form": (request("tools/list"), {"content_type": "text/plain"}),
    "who takes JSON alone": (request("tools/list"), {"accept": "application/json"}),
    "who takes all": (request("tools/list"), {"accept": "*/*"}),
    "who takes kinds": (request("tools/list"), {"accept": "application/*;q=1, text/*"}),
    "half of a character": (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', {"mcp_method": "x"}),
    "what is too large": (b" " * (4 * 1024**2 + 1), {}),
    "what says it is too large": (request("tools/list"), {"content_length": str(4 * 1024**2 + 1)}),
    "a session": (request("tools/call", ADD), {"mcp_session_id": "x"}),
}


async def test_whatever_comes_is_answered_as_the_sdk_answers_it() -> None:
    async with answering(add, greet) as (own, sdk):
        for what, (message, options) in ODD.items():
            answers = [await ask(app, message, **options) for app in (own, sdk)]
            assert status(answers[0]) == status(answers[1]), what
            texts = [body(answer) for answer in answers]
            if texts[0].startswith(b"{"):
                assert json.loads(texts[0]) == json.loads(texts[1]), what
            else:
                assert texts[0] == texts[1], what


async def test_white_space_around_the_value_of_a_header_is_none_of_it() -> None:
    async with answering(add) as (own, _):  # a parser may leave it: the SDK refuses it then
        assert status(await ask(own, request("tools/call", ADD), mcp_name=" add \t")) == 200


async def test_half_of_a_character_in_an_argument_is_refused_by_the_check() -> None:
    async with answering(add) as (own, _):
        answer = await ask(own, request("tools/call", {"name": "add", "arguments": {"a": "\ud800"}}))
    assert json.loads(body(answer))["result"]["isError"]


async def test_a_header_that_is_there_twice_is_refused() -> None:
    async with answering(add) as (own, _):

        async def twice(scope: Any, receive: Any, send: Any) -> None:
            await own({**scope, "headers": [*scope["headers"], (b"mcp-method", b"tools/list")]}, receive, send)

        answer = await ask(twice, request("tools/list"))
    assert (status(answer), json.loads(body(answer))["error"]["code"]) == (400, -32020)


async def test_what_is_sent_before_the_answer_makes_it_a_stream() -> None:
    @tool
    async def steps(context: Context) -> str:
        for step in (1, 2):
            await context.emit(f"Step {step}")
        return "done"

    message = request("tools/call", {"name": "steps", "_meta": {**ENVELOPE, "progressToken": "p"}})
    async with answering(steps) as applications:
        own, sdk = [await ask(app, message) for app in applications]
    assert dict(own[0]["headers"])[b"content-type"] == b"text/event-stream"
    events = [
        [json.loads(line.removeprefix("data: ")) for line in body(answer).decode().split("\r\n") if "data" in line]
        for answer in (own, sdk)
    ]
    assert events[0] == events[1]
    assert [event["params"]["message"] for event in events[0][:-1]] == ["Step 1", "Step 2"]


async def test_a_client_that_waits_long_is_sent_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "_PING_INTERVAL_S", 0.01)
    waits, pings = Waits(), 0

    async def note(part: Message) -> None:
        nonlocal pings
        pings += part.get("body") == b": ping\r\n\r\n"
        if pings == 3:
            waits.go_on.set()

    async with answering(waits.tool) as (own, _), asyncio.timeout(60):
        text = body(await ask(own, request("tools/call", {"name": "wait"}), sent=note)).decode()
    assert text.startswith(": ping\r\n\r\n" * 3)
    assert '"text":"done"' in text.rpartition("data: ")[2]


async def test_a_ping_that_does_not_arrive_cancels_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "_QUICK_S", 0.0)
    monkeypatch.setattr(reply, "_PING_INTERVAL_S", 0.01)
    waits = Waits()

    async def sent(part: Message) -> None:
        if part["type"] == "http.response.body":
            raise OSError("the client has left")

    async with answering(waits.tool) as (own, _), asyncio.timeout(60):
        await ask(own, request("tools/call", {"name": "wait"}), sent=sent)
        await waits.until("cancelled")


async def test_a_request_that_is_over_leaves_nothing_to_the_garbage_collector() -> None:
    requests: list[Any] = []

    @tool
    async def note() -> None:
        requests.append(weakref.ref(current_client.get()))

    async with answering(note) as (own, _):
        gc.disable()
        try:
            await ask(own, request("tools/call", {"name": "note"}))
            assert requests[0]() is None
        finally:
            gc.enable()


async def test_what_a_handler_fails_with_reaches_the_log_and_no_client(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(_: object) -> Any:
        raise OSError("s3cr3t place")

    async with answering(add) as (_, sdk):
        answer = await ask(http.Stateless(sdk, breaks, lambda _: None, None), request("tools/list"))
    error = json.loads(body(answer))["error"]
    assert (status(answer), error["code"], "s3cr3t" in str(error)) == (200, -32603, False)
    assert "A request of MCP, 'tools/list', has failed" in caplog.text


async def test_a_list_is_written_once_for_all_who_see_the_same_tools_and_anew_when_one_changes() -> None:
    async with Crib([add, greet]) as crib:
        handlers = server(crib, local_caller).handlers
        ada, bob = crib.workbench(Caller("ada")), crib.workbench(Caller("bob"))
        of_ada, of_bob = handlers.definitions(ada.specs()), handlers.definitions(bob.specs())
        assert of_ada is of_bob
        assert json.loads(of_ada.json) == [*of_ada]
        assert [*handlers.definitions(ada.specs()[:1])] == of_ada[:1]

        @tool(name="add")
        async def other(a: int) -> int:
            """Add one."""
            return a + 1

        crib.registry.remove("add")
        crib.registry.add(other)
        (changed,) = (of for of in handlers.definitions(ada.specs()) if of["name"] == "add")
        assert changed["description"] == "Add one."
        for _ in range(50):  # others come and go: no more is kept than there is room for
            handlers.definitions([replace(ada.specs()[0])])
        assert handlers.definitions(ada.specs()) == handlers.definitions(bob.specs())


async def test_a_list_that_is_written_once_is_the_same_in_each_answer() -> None:
    async with answering(add, greet) as (own, sdk):
        answers = [json.loads(body(await ask(app, request("tools/list", id=id)))) for app in (own, sdk) for id in "ab"]
    assert [answer["id"] for answer in answers] == ["a", "b", "a", "b"]
    first, *others = (answer["result"] for answer in answers)
    assert [tool["name"] for tool in first["tools"]] == ["add", "greet"]
    assert others == [first] * 3
