"""MCP servers that answer otherwise than MCP says: each costs itself, and nobody waits for it."""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from mcp import Client

from toolcrib import Call, Caller, CancellationToken, Crib, Input, Pending, Workbench
from toolcrib.core import Answer, Progress
from toolcrib.serve import server
from toolcrib.tools.remote import MCPSource

from .raw_upstream import ANY, text, tool

SERVER = str(Path(__file__).with_name("scripted_server.py"))
ASKS = (
    '{"jsonrpc":"2.0","id":"q","method":"elicitation/create",'
    '"params":{"message":"Which one?","requestedSchema":{"type":"object","properties":%s}}}'
)


@pytest.fixture
def source(tmp_path: Path) -> Callable[[Mapping[str, Any]], Any]:
    """A server that says what it is given."""

    def made(says: Mapping[str, Any]) -> Any:
        script = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        script.write_text(json.dumps(says))
        return MCPSource(command=[sys.executable, "-S", SERVER, str(script)]).source("scripted")

    return made


def tools(**calls: Any) -> dict[str, Any]:
    """What a server says that has a tool for each of *calls*."""
    return {"tools/list": {"tools": [tool(name) for name in calls]}} | {
        f"tools/call {name}": reply for name, reply in calls.items()
    }


async def test_a_definition_that_is_none_costs_itself_alone(source: Any) -> None:
    says = tools(good=text("fine"))
    says["tools/list"]["tools"] += [
        {"name": "no_schema"},
        {"inputSchema": ANY},
        {"name": 5, "inputSchema": ANY},
        "text",
        None,
        tool("described", description=5),
        {"name": "of_text", "inputSchema": {"type": "string"}},
        tool("annotated", annotations={"readOnlyHint": "maybe"}),
        tool("last-one"),
        tool("last_one"),
    ]
    async with Workbench([source(says)]) as bench:
        assert [spec.name for spec in bench.specs()] == ["good", "last-one"]
        assert (await bench.call("good", {})).text == "fine"
        reasons = [problem.reason for problem in bench.problems]
        assert len(reasons) == 9
        assert "Tool 'no_schema' is not defined as MCP requires: inputSchema: Field required" in reasons


async def test_a_resource_or_prompt_that_is_none_costs_itself_alone(source: Any) -> None:
    good = {"uri": "a:1", "name": "one", "description": "d" * 100_000, "icons": [{"src": "data:" + "i" * 100_000}]}
    prompt = {"name": "p", "title": "t" * 1000, "arguments": [{"name": "a", "description": "d" * 100_000}]}
    says = {
        "resources/list": {"resources": [{"uri": 5}, good, {"uri": "a:\x1b", "name": "x"}, {"uri": "", "name": ""}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "t"}, {"name": "none"}]},
        "prompts/list": {"prompts": [{"name": []}, prompt, {"name": "p\n"}]},
        "resources/read a:1": {"contents": [{"uri": "a:1", "text": "read"}]},
    }
    async with Crib([source(says)]) as crib, crib.workbench() as bench:
        (resource,) = await bench.offers.resources()
        assert (resource.uri, resource.name, len(resource.description or ""), resource.meta) == (
            "a:1",
            "one",
            16385,
            {},
        )
        assert [each.uri_template for each in await bench.offers.resource_templates()][:-1] == ["a:{b}"]
        (found,) = await bench.offers.prompts()
        assert (found.name, len(found.title or ""), len(found.arguments[0].description or "")) == ("p", 201, 16385)
        assert [each.data for each in (await bench.offers.read("a:1")).unwrap()] == ["read"]


@pytest.mark.parametrize("cursor", ["", "again"])
async def test_a_cursor_that_leads_nowhere_ends_the_list(source: Any, cursor: str) -> None:
    says = {
        **tools(echo=text("fine")),
        "resources/list": {"resources": [{"uri": "a:1", "name": "a"}], "nextCursor": cursor},
    }
    says["tools/list"]["nextCursor"] = cursor
    async with Crib([source(says)]) as crib, crib.workbench() as bench:
        assert (await bench.call("echo", {})).text == "fine"
        assert [each.uri for each in await bench.offers.resources()] == ["a:1"]


async def test_of_a_list_without_end_only_so_much_is_read(source: Any) -> None:
    page = [tool(f"t{number}") for number in range(1500)]
    async with Workbench([source({"tools/list": {"tools": page, "nextCursor": "page ID"}})]) as bench:
        assert len(bench.specs()) == 1500  # each page is the same
        assert "more than 2000 tools" in bench.problems[0].reason
    large = {"tools": [tool("t", description="d" * 12_000_000)], "nextCursor": "page ID"}
    async with Workbench([source({"tools/list": large})]) as bench:
        assert not bench.specs()


async def test_an_answer_that_cannot_be_read_is_an_error_at_once(source: Any) -> None:
    start = '{"jsonrpc":"2.0","id":ID,'
    answers = {
        "nothing": start + '"result":null}',
        "a_list": start + '"result":[1]}',
        "odd_error": start + '"error":{"code":"x","message":5}}',
        "half_a_character": start + '"result":{"content":[{"type":"text","text":"\\ud800"}]}}',
    }
    async with Workbench([source(tools(**answers, noise=['{"id":ID,"level":"info"}', text("fine")]))]) as bench:
        for name in answers:
            result = await bench.call(Call(name, {}, timeout_s=60))
            assert result.error is not None, name
            assert (result.error.code, "not answer as MCP requires" in result.text) == ("invalid_result", True), name
        assert (await bench.call("noise", {})).text == "fine"  # a line of a log is no answer


async def test_an_error_by_the_code_of_a_session_that_ended_is_told_with_its_words(source: Any) -> None:
    refusal = '{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"The quota is used up."}}'
    async with Workbench([source(tools(spends=refusal))]) as bench:
        result = await bench.call("spends", {})
        assert (result.error.code, result.text) == ("failed", "'scripted' failed: The quota is used up")
    async with Workbench([source({"initialize": refusal})]) as bench:
        assert "The quota is used up" in str(bench.problems)


async def test_what_is_no_json_and_no_media_type_goes_no_further(source: Any) -> None:
    start = '{"jsonrpc":"2.0","id":ID,"result":{"content":%s}}'
    image = '[{"type":"image","data":"AAAA","mimeType":"text/html\\r\\nX: y"}]'
    progress = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":%s}}'
    says = tools(
        numbers=start % '[],"structuredContent":{"a":NaN,"b":1e999}',
        image=start % image,
        moves=[progress % "1e999", progress % "NaN", progress % "1", text("fine")],
    )
    async with Workbench([source(says)]) as bench:
        assert (await bench.call("numbers", {})).text == '{"a":null,"b":null}'
        assert (await bench.call("image", {})).error.code == "invalid_result"  # type: ignore[union-attr]
        events = [event async for event in bench.stream("moves", {})]
        assert [event.done for event in events if isinstance(event, Progress)] in ([], [1])


@pytest.mark.parametrize("properties", ["[]", '{"a":true}'])
async def test_a_question_that_no_form_can_ask_is_answered_with_an_error(source: Any, properties: str) -> None:
    async with Workbench([source(tools(asks=[ASKS % properties, "WAIT", text("went on")]))]) as bench:
        result = await bench.call(Call("asks", {}, timeout_s=60))
        assert result.text == "went on" or result.status == "error"
        assert result.pending is None


@pytest.mark.parametrize("answers", [False, True], ids=["unread", "read"])
async def test_a_call_that_was_given_up_keeps_questions_from_others_until_the_server_has_read_that(
    source: Any, answers: bool
) -> None:
    """For a minute, no question of a process reached others, also where the server had stopped long before."""
    asked: list[str] = []

    async def ask(pending: Pending) -> Answer:
        asked.append(pending.principal)
        return Input({"color": "red"})

    says = tools(slow=["WAIT"], asks=[ASKS % '{"color":{"type":"string"}}', "WAIT", text("went on")])
    async with (
        Crib([source({**says, "ping": {} if answers else None})], ask=ask) as crib,
        crib.workbench(Caller("ada")) as ada,
        crib.workbench(Caller("bob")) as bob,
    ):
        assert (await ada.call("asks", {})).text == "went on"
        assert (await bob.call("asks", {})).text == "went on"
        assert asked == ["ada", "bob"]
        assert (await ada.call(Call("slow", {}, timeout_s=0.2))).error is not None
        if answers:
            async with asyncio.timeout(30):
                while asked == ["ada", "bob"]:
                    assert (await bob.call("asks", {})).text == "went on"
        else:
            assert (await bob.call("asks", {})).text == "went on"
            assert asked == ["ada", "bob"]  # it may be Ada's call that it is asked for
        asked.clear()
        assert (await ada.call("asks", {})).text == "went on"
        assert asked == ["ada"]


@pytest.mark.parametrize("by", ["task", "token", "reader"])
async def test_who_gives_up_is_let_go_by_a_server_that_takes_nothing_more(source: Any, by: str) -> None:
    """One that cancels their task; the reader of a resource is the case that was found beside it."""
    says = tools(deaf=["STOP"]) | {"resources/list": {"resources": [{"uri": "a:1", "name": "a"}]}}
    async with Workbench([source(says)]) as bench:
        assert (await bench.offers.resources())[0].uri == "a:1"
        token = CancellationToken()
        filling = asyncio.create_task(bench.call("deaf", {}))
        # More than a pipe takes: what comes after it is not sent.
        work = bench.call(Call("deaf", {"text": "x" * 1_000_000}, cancellation=token))
        calls = [asyncio.create_task(work)]
        if by == "reader":
            calls.append(asyncio.create_task(bench.offers.read("a:1")))
        await asyncio.sleep(0.5)  # until it is sent as far as it can be
        start_s = monotonic()
        if by == "token":
            token.cancel()
        else:
            calls[-1].cancel()
        await asyncio.wait(calls[-1:])
        assert monotonic() - start_s < 4.5  # it was 5
        for task in (filling, *calls):
            task.cancel()


async def test_a_value_that_a_servers_library_has_wrapped_comes_as_it_is(source: Any) -> None:
    def listed(name: str, schema: Any, **more: Any) -> dict[str, Any]:
        return tool(name, outputSchema={**ANY, "properties": {"result": schema}, "required": ["result"], **more})

    point = {"$defs": {"P": {**ANY, "properties": {"x": {"type": "integer"}}}}}
    marked = {"x-fastmcp-wrap-result": True}
    result = {"content": [{"type": "text", "text": "as text"}], "structuredContent": {"result": [{"x": 1}]}}
    points = {"type": "array", "items": {"$ref": "#/$defs/P"}}
    says = {
        "tools/list": {
            "tools": [
                listed("marked", points, **marked, **point),
                listed("named", points, title="searchOutput", **point),
                listed("plain", points, **point),
                listed("wrong", {"type": "string"}, **marked),
                tool("says"),
                tool("silent"),
            ]
        },
        "tools/call": result,
        "tools/call says": {**result, "_meta": {"fastmcp": {"wrap_result": True}}},
    }
    async with Workbench([source(says)]) as bench:
        assert (await bench.call("marked", {})).value == [{"x": 1}]
        assert (await bench.call("named", {})).value == [{"x": 1}]
        assert (await bench.call("says", {})).value == [{"x": 1}]
        assert (await bench.call("plain", {})).value == {"result": [{"x": 1}]}
        assert (await bench.call("silent", {})).value == {"result": [{"x": 1}]}
        assert (await bench.call("wrong", {})).error.code == "invalid_result"  # type: ignore[union-attr]
        schemas = {spec.name: spec.output_schema for spec in bench.specs()}
        assert schemas["marked"] == {**points, **point}
        assert schemas["plain"] is not None
        assert "result" in schemas["plain"]["properties"]


async def test_templates_of_a_server_do_not_hold_up_the_others(source: Any) -> None:
    many = "".join(f"{{v{number}}}" for number in range(600))
    templates = [{"uriTemplate": many, "name": "long"} for _ in range(3000)]
    says = {
        "resources/templates/list": {"resourceTemplates": templates},
        "resources/read": {"contents": [{"uri": "b:1", "text": "read"}]},
    }
    async with Crib([source(says)]) as crib, crib.workbench() as bench:
        async with asyncio.timeout(60):
            assert [each.data for each in (await bench.offers.read("b:/" + "x" * 500)).unwrap()] == ["read"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_what_a_server_lists_reaches_no_client_with_its_key(source: Any, mode: Any) -> None:
    """Servers name the database or the account that they were given, with the key in its address."""
    key = "sk-0123456789abcdef"
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": key, "default": key}}}
    about = {"name": "one", "title": key, "description": f"Of {key}"}
    says = tools(plain=text("fine"))
    says["tools/list"]["tools"] += [
        {"name": "keyed", "title": key, "description": f"By {key}", "inputSchema": schema, "outputSchema": schema}
    ]
    says |= {
        "resources/list": {"resources": [{"uri": f"db://{key}@host/a", **about}, {"uri": "a:1", **about}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": f"db://{key}@host/{{b}}", **about}]},
        "prompts/list": {"prompts": [{**about, "arguments": [{"name": key, "description": key}]}]},
        "resources/read a:1": {"contents": [{"uri": f"a:{key}", "text": key}]},
    }
    upstream = source(says)
    upstream.target = replace(upstream.target, env={"DATABASE_KEY": key})
    async with Crib([upstream]) as crib, Client(server(crib), mode=mode) as client:
        listed = [
            await client.list_tools(),
            await client.list_resources(),
            await client.list_resource_templates(),
            await client.list_prompts(),
            await client.read_resource("a:1"),
        ]
        for answer in listed:
            shown = answer.model_dump_json()
            assert key not in shown
            assert "[secret]" in shown
        assert [each.name for each in listed[0].tools] == ["plain", "keyed"]  # type: ignore[union-attr]


@pytest.mark.parametrize("part", ["", "x"])
async def test_parts_without_end_of_a_large_result_are_read_so_far(source: Any, part: str) -> None:
    uri = "toolcrib://results/r"
    contents = [{"uri": uri, "text": part, "_meta": {"toolcrib/next": uri}}]
    says = tools(big={**text("preview"), "_meta": {"toolcrib/handle": "r"}}) | {
        "resources/read": {"contents": contents}
    }
    async with Workbench([source(says)]) as bench:
        assert (await bench.call("big", {})).text == "preview"
