"""Both eras over a pipe, as this server answers them: as the SDK would, but for what it drops without a word."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as wire
import pytest
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from toolcrib import Context, Crib, tool
from toolcrib.serve import Form, ask_client, local_caller, server
from toolcrib.serve.mcp.server import McpServer

from .sdk_server import both
from .serving import Waits, add
from .test_protocol_session import ENVELOPE, HELLO, sent


class Line:
    """A client at the other end of a pipe: it sends messages, and reads what comes."""

    def __init__(self, own: McpServer) -> None:
        self._sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._written: asyncio.Queue[bytes] = asyncio.Queue()
        self.serving = asyncio.create_task(own.pipe(self._written.put).serve(self._messages()))

    async def _messages(self) -> AsyncGenerator[bytes]:
        while (message := await self._sent.get()) is not None:
            yield message

    async def send(self, message: bytes) -> None:
        await self._sent.put(message)

    async def read(self) -> Any:
        return json.loads(await self._written.get())

    def rest(self) -> list[Any]:
        return [json.loads(self._written.get_nowait()) for _ in range(self._written.qsize())]

    async def end(self) -> None:
        await self._sent.put(None)
        await self.serving


@asynccontextmanager
async def line(*tools: Any) -> AsyncGenerator[Line]:
    async with asyncio.timeout(60), Crib([*tools]) as crib:
        own = server(crib, local_caller)
        async with own.handlers.running():
            connected = Line(own)
            yield connected
            await connected.end()


async def shake_hands(connected: Line, **capabilities: Any) -> None:
    await connected.send(sent("initialize", 0, **HELLO | {"capabilities": capabilities}))
    assert (await connected.read())["result"]["protocolVersion"] == HELLO["protocolVersion"]
    await connected.send(sent("notifications/initialized"))


OLDER = [
    sent("ping", "before"),
    sent("tools/list", "before"),
    sent("tools/drop", "before"),
    sent("initialize", "before", protocolVersion=7),
    sent("tools/list", "before"),
    sent("initialize", 0, **HELLO),
    sent("notifications/initialized"),
    sent("notifications/initialized"),
    sent("notifications/roots/list_changed"),
    sent("notifications/cancelled", requestId="nothing"),
    sent("ping", 1),
    sent("tools/list", 2),
    sent("tools/list", 3, cursor="x"),
    sent("tools/list", "text", _meta={"progressToken": 7}),
    sent("tools/call", 4, name="add", arguments={"a": 1, "b": 2}),
    sent("tools/call", 5, name="add", arguments={"a": "x", "b": 2}),
    sent("tools/call", 6, name="add", arguments=[1]),
    sent("tools/call", 7, name="sub"),
    sent("tools/call", 8),
    sent("tools/drop", 9),
    sent("server/discover", 10),
    sent("subscriptions/listen", 11, notifications={}),
    sent("resources/list", 12),
    sent("resources/templates/list", 13),
    sent("resources/read", 14, uri="notes://a"),
    sent("resources/subscribe", 15, uri="notes://a"),
    sent("resources/unsubscribe", 16, uri="notes://a"),
    sent("prompts/list", 17),
    sent("prompts/get", 18, name="x"),
    sent("completion/complete", 19, ref={"type": "ref/prompt", "name": "x"}, argument={"name": "a", "value": ""}),
    sent("logging/setLevel", 20, level="debug"),
    sent("logging/setLevel", 21, level="loud"),
    b'{"jsonrpc":"2.0","id":22,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":99,"result":{}}',
    sent("initialize", 23, **HELLO | {"protocolVersion": "2024-11-05"}),
    sent("tools/list", 24),
    sent("tools/call", 25, name="add", arguments={"a": 1, "b": 2}),
    sent("initialize", 26, **HELLO | {"protocolVersion": "2025-11-25"}),
    sent("tools/list", 27),
    sent("tools/call", 28, name="add", arguments={"a": 1, "b": 2}),
    sent("tasks/get", 29, taskId="x"),
    sent("initialize", 30, **HELLO | {"protocolVersion": "1999-01-01"}),
]
STATELESS = [
    sent("notifications/cancelled", requestId="nothing"),
    sent("tools/list", 1, _meta=ENVELOPE),
    sent("tools/call", 2, name="add", arguments={"a": 1, "b": 2}, _meta=ENVELOPE),
    sent("server/discover", 3, _meta=ENVELOPE),
    sent("tools/list", 4),
    sent("tools/drop", 5, _meta=ENVELOPE),
    sent("ping", 6, _meta=ENVELOPE),
    sent("tools/call", 7, _meta=ENVELOPE),
    sent("tools/list", 8, _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}),
    sent("tools/list", 9, _meta=ENVELOPE | {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}),
    sent("resources/read", 10, uri="notes://a", _meta=ENVELOPE),
    sent("notifications/initialized"),
]


@pytest.mark.parametrize("messages", [OLDER, STATELESS], ids=["older", "stateless"])
async def test_whatever_comes_is_answered_as_the_sdk_answers_it(messages: list[bytes]) -> None:
    async with Crib([add]) as crib, asyncio.timeout(60):
        own_server, sdk = both(crib)
        async with (
            create_client_server_memory_streams() as ((read, write), (incoming, outgoing)),
            anyio.create_task_group() as group,
        ):
            group.start_soon(sdk.run, incoming, outgoing, sdk.create_initialization_options())
            async with own_server.handlers.running():
                connected = Line(own_server)
                for message in messages:
                    await connected.send(message)
                    await write.send(SessionMessage(wire.jsonrpc_message_adapter.validate_json(message)))
                    if b'"id"' in message and b'"method"' in message:
                        own, theirs = await connected.read(), await read.receive()
                        expected = theirs.message.model_dump_json(by_alias=True, exclude_unset=True)
                        assert own == json.loads(expected), message
                await connected.end()
                assert connected.rest() == []
            group.cancel_scope.cancel()


async def test_a_request_that_is_cancelled_ends_and_has_no_answer() -> None:
    waits = Waits()
    messages: list[Callable[..., bytes]] = [sent, lambda *a, **p: sent(*a, _meta=ENVELOPE, **p)]
    for number, message in enumerate(messages):
        async with line(waits.tool) as connected:
            if not number:
                await shake_hands(connected)
            await connected.send(message("tools/call", 1, name="wait"))
            await waits.began.wait()
            await connected.send(message("tools/list", 2))
            assert (await connected.read())["id"] == 2  # others go on
            await connected.send(sent("notifications/cancelled", requestId=1))
            await waits.until("cancelled")
            await connected.send(message("tools/list", 1))
            assert "tools" in (await connected.read())["result"]
        assert connected.rest() == []
        waits.began.clear()
        waits.ended.clear()


async def test_the_end_cancels_what_is_not_answered_and_says_so() -> None:
    waits = Waits()
    async with line(waits.tool) as connected:
        await shake_hands(connected)
        await connected.send(sent("tools/call", 1, name="wait"))
        await waits.began.wait()
        await connected.end()
        assert waits.ended == ["cancelled"]
        assert [(answer["id"], answer["error"]["code"]) for answer in connected.rest()] == [(1, wire.CONNECTION_CLOSED)]


@tool
async def ask(context: Context) -> str:
    """Ask for a name."""
    await context.emit("asking")
    return str((await ask_client(name=Form("Who?", str)))["name"])


async def test_a_client_is_asked_in_the_middle_of_a_call() -> None:
    async with line(ask) as connected:
        await shake_hands(connected, elicitation={})
        call = sent("tools/call", 1, name="ask", _meta={"progressToken": "p"})
        for answer, text in [
            ({"result": {"action": "accept", "content": {"value": "Ada"}}}, "Ada"),
            ({"error": {"code": -1, "message": "no"}}, "The client did not answer: no"),
            ({"result": {"action": 7}}, "The client's answer is not what it was asked for."),
        ]:
            await connected.send(call)
            progress, question = await connected.read(), await connected.read()
            assert (progress["method"], question["method"]) == ("notifications/progress", "elicitation/create")
            await connected.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], **answer}).encode())
            assert text in (await connected.read())["result"]["content"][0]["text"]


async def test_a_question_is_taken_back_when_its_call_is_cancelled() -> None:
    async with line(ask) as connected:
        await shake_hands(connected, elicitation={})
        await connected.send(sent("tools/call", 1, name="ask"))
        question = await connected.read()
        await connected.send(sent("notifications/cancelled", requestId=1))
        notice = await connected.read()
        assert (notice["method"], notice["params"]["requestId"]) == ("notifications/cancelled", question["id"])
        await connected.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": {}}).encode())
    assert connected.rest() == []
