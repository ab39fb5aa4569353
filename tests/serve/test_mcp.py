"""What a client sees of a workbench's tools and calls, over the real wire."""

import asyncio
import base64
import json
import uuid
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from toolcrib import Crib, tool
from toolcrib.serve import server

from .serving import served

SECRET = "1234567890123"
STORED = {
    "type": "object",
    "properties": {"handle": {"type": "string"}, "uri": {"type": "string"}, "size": {"type": "integer"}},
}


async def call(client: Client, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """The result as it is on the wire, without what says nothing and without the server's own stamp."""
    result = await client.call_tool(name, arguments)
    written = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    (written.get("_meta") or {}).pop("io.modelcontextprotocol/serverInfo", None)
    del written["resultType"]
    if not written.get("_meta"):
        written.pop("_meta", None)
    # `exclude_none` stops at JSON data, so nulls in it would show: they are a tool's own.
    return written


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


async def test_a_tool_is_listed_with_all_its_spec_says(connect) -> None:
    async with connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["add"].model_dump(mode="json", by_alias=True, exclude_none=True) == {
        "name": "add",
        "title": "Addition",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first."},
                "b": {"type": "integer", "description": "The second."},
            },
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "outputSchema": {
            "type": "object",
            "properties": {"result": {"type": "integer"}, "toolcrib": STORED},
            "anyOf": [{"required": ["result"]}, {"required": ["toolcrib"]}],
        },
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
        "icons": [{"src": "https://crib.example/add.png"}],
    }
    assert tools["nothing"].model_dump(mode="json", by_alias=True, exclude_none=True) == {
        "name": "nothing",
        "description": "Return nothing.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


async def test_a_tool_the_caller_may_not_use_is_neither_listed_nor_called(connect_http) -> None:
    async with connect_http() as client:
        assert "hidden" not in [tool.name for tool in (await client.list_tools()).tools]
        assert await call(client, "hidden") == {
            "content": [{"type": "text", "text": "Tool 'hidden' is not available to you now."}],
            "isError": True,
            "_meta": {"toolcrib/error": {"code": "unavailable", "retry": "later"}},
        }


async def test_calls_right_repaired_refused_and_failing(connect) -> None:
    async with connect() as client:
        three = {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}, "isError": False}
        assert await call(client, "add", {"a": 1, "b": 2}) == three
        assert await call(client, "add", {"a": "1", "B": 2}) == {
            **three,
            "_meta": {
                "toolcrib/repairs": [
                    {"path": "/a", "from": "string", "to": "integer"},
                    {"path": "/B", "from": "key", "to": "key"},
                ]
            },
        }
        refused = await call(client, "greet", {"nmae": "Ada"})
        assert "Did you mean 'name'?" in texts(refused)[0]
        assert refused["isError"]
        assert refused["_meta"] == {"toolcrib/error": {"code": "invalid_arguments", "retry": "changed"}}
        assert await call(client, "missing") == {
            "content": [{"type": "text", "text": "There is no such order."}],
            "isError": True,
            "_meta": {"toolcrib/error": {"code": "failed", "retry": "never"}},
        }


async def test_an_unknown_tool_is_a_protocol_error_that_names_the_nearest(connect_http) -> None:
    async with connect_http() as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("ad", {})
        assert caught.value.code == -32602
        assert caught.value.message.startswith("There is no tool 'ad'. Did you mean 'add'?")
        assert caught.value.data == {"toolcrib/error": {"code": "unknown_tool", "retry": "changed"}}
        assert texts(await call(client, "add", {"a": 1, "b": 2})) == ["3"]


async def test_what_a_tool_does_wrong_ends_its_call_and_not_the_server(connect_http) -> None:
    async with connect_http() as client:
        for name, kind in [("crash", "RuntimeError"), ("leave", "SystemExit"), ("leave_inline", "SystemExit")]:
            failed = await call(client, name)
            assert texts(failed)[0].startswith(f"Tool '{name}' failed: {kind} (reference ")
            assert failed["_meta"] == {"toolcrib/error": {"code": "failed", "retry": "never"}}
            assert SECRET not in json.dumps(failed)
        assert texts(await call(client, "greet", {"name": "Ada"})) == ["Hello, Ada"]


async def test_structured_content_is_an_object_and_keeps_its_nulls(connect_http) -> None:
    async with connect_http() as client:
        # The client checks each against the output schema that was listed.
        point = {"x": 1, "label": None}
        assert (await call(client, "point", {"x": 1}))["structuredContent"] == point
        assert (await call(client, "points", {"count": 2}))["structuredContent"] == {
            "result": [{"x": 0, "label": None}, point]
        }
        assert (await call(client, "greet", {"name": "Ö"}))["structuredContent"] == {"result": "Hello, Ö"}
        assert (await call(client, "tree"))["structuredContent"] == {
            "result": {"name": "root", "parts": [{"name": "leaf", "parts": []}]}
        }
        assert await call(client, "nothing") == {"content": [{"type": "text", "text": "null"}], "isError": False}


async def test_images_sound_and_files_come_as_what_they_are(connect_http) -> None:
    async with connect_http() as client:
        result = await call(client, "everything")
    assert "structuredContent" not in result
    file = result["content"].pop()
    assert result["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"},
    ]
    assert file["resource"].pop("uri").endswith("/3/a%20b.csv")
    assert file == {
        "type": "resource",
        "resource": {"mimeType": "text/csv", "blob": base64.b64encode(b"a,b\n").decode()},
    }


async def test_a_secret_reaches_no_client_in_text_or_structured_content(connect_http) -> None:
    async with connect_http() as client:
        await client.list_tools()
        answer = await call(client, "tell_secret", {"how": "x"})
        assert (texts(answer), answer["structuredContent"]) == (["x: [secret]"], {"result": "x: [secret]"})
        assert (await call(client, "key_secret"))["structuredContent"] == {"[secret]": 1}
        broken = await call(client, "count_secret")
    # A number that has it becomes a string, which the output schema does not take.
    assert texts(broken)[1:] == ['{"pin":"[secret]"}']
    assert "does not match its output schema" in texts(broken)[0]
    assert broken["isError"]
    assert broken["_meta"] == {"toolcrib/error": {"code": "invalid_result", "retry": "never"}}
    assert "structuredContent" not in broken


async def test_text_that_is_no_unicode_is_sent_as_far_as_it_can_be(connect) -> None:
    async with connect() as client:
        answer = await call(client, "halves", {"how": "text"})
        assert (texts(answer), answer["isError"]) == (["?"], False)
        assert texts(await call(client, "halves", {"how": "error"})) == ["?"]
        file = (await call(client, "halves", {"how": "file"}))["content"][0]["resource"]
        assert (file["mimeType"], file["uri"][-4:]) == ("text/?", "/%3F")
        assert (await call(client, "half"))["_meta"] == {"toolcrib/error": {"code": "invalid_result", "retry": "never"}}
        assert texts(await call(client, "add", {"a": 1, "b": 2})) == ["3"]


async def test_fifty_calls_at_once_each_get_their_own_answer(connect) -> None:
    async with connect() as client:
        results = await asyncio.gather(*(call(client, "add", {"a": i, "b": i * 1000}) for i in range(50)))
    assert [result["structuredContent"]["result"] for result in results] == [i * 1001 for i in range(50)]


async def test_calls_of_one_client_run_side_by_side(connect_http) -> None:
    one, other = uuid.uuid4().hex, uuid.uuid4().hex
    async with asyncio.timeout(60), connect_http() as client:
        results = await asyncio.gather(
            call(client, "meet", {"me": one, "other": other}), call(client, "meet", {"me": other, "other": one})
        )
    assert [texts(result) for result in results] == [[f"{one} met {other}"], [f"{other} met {one}"]]


async def test_a_call_that_its_client_gives_up_is_cancelled(connect) -> None:
    me = uuid.uuid4().hex
    async with asyncio.timeout(60), connect() as client:

        async def until(event: str) -> None:
            while f"{me} {event}" not in (await call(client, "seen"))["structuredContent"]["result"]:
                pass

        hanging = asyncio.create_task(client.call_tool("hang", {"me": me}))
        await until("began")
        hanging.cancel()
        await until("was cancelled")
        # In a session such a call has an answer, and the SDK's client breaks where one comes while it leaves.
        while any(task.get_name().endswith("._run_request_post") for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["at once", "in the next round of the loop"])
async def test_a_tool_that_cancels_the_task_it_runs_in_keeps_no_answer_back(how: str) -> None:
    @tool
    async def cancel_itself() -> str:
        task = asyncio.current_task()
        if how == "at once":
            task.cancel()
        else:
            asyncio.get_running_loop().call_soon(task.cancel)
        return "done"

    async with asyncio.timeout(60), Crib([cancel_itself]) as crib, served(crib) as url:
        for door in (server(crib), url):
            async with Client(door) as client:
                assert (await client.call_tool("cancel_itself")).content


async def test_a_large_argument_arrives_whole(connect_http) -> None:
    async with connect_http() as client:
        result = await call(client, "length", {"text": "x" * 3_000_000})
    assert result["structuredContent"] == {"result": 3_000_000}


async def test_a_large_result_is_a_preview_also_in_structured_content_and_can_be_read_on() -> None:
    @tool
    async def numbers(n: int) -> list[int]:
        return list(range(n))

    async with Crib([numbers]) as crib, Client(server(crib)) as client:
        answer = await client.call_tool("numbers", {"n": 20_000})
        assert not answer.is_error
        preview, link = answer.content
        assert preview.text.startswith("[This result is too large to be shown whole: ")
        assert len(preview.text) <= 20_000
        handle = (answer.meta or {})["toolcrib/handle"]
        assert answer.structured_content == {"toolcrib": {"handle": handle, "uri": link.uri, "size": 108891}}
        assert (await client.read_resource(link.uri)).contents[0].text.startswith("[0,1,2,")
        small = await client.call_tool("numbers", {"n": 2_000})
        assert (small.is_error, small.structured_content) == (False, {"result": list(range(2_000))})
        assert [listed.name for listed in (await client.list_tools()).tools] == ["numbers", "read_result"]
        read = await client.call_tool("read_result", {"handle": handle, "pointer": "/12345"})
        assert "12345" in [block.text for block in read.content]
        wrong = await client.call_tool("read_result", {"handle": "result_nobody", "pointer": ""})
        assert wrong.is_error
