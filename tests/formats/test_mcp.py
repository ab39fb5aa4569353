"""MCP's tool shape: definitions, the call of a request, results. (Real clients are in tests/serve.)"""

from typing import Any

import jsonschema_rs
import mcp_types
import pytest

from toolcrib import Call, File, Image, Result, Text, ToolError, ToolSpec, Workbench, tool
from toolcrib.core import Audio, Data, Hints, Pending
from toolcrib.core.result import EPOCH
from toolcrib.formats import mcp
from toolcrib.tools import from_work

INPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
STORED = {
    "type": "object",
    "properties": {"handle": {"type": "string"}, "uri": {"type": "string"}, "size": {"type": "integer"}},
}


def test_definitions_say_all_that_a_spec_says_and_nothing_that_it_does_not() -> None:
    full = ToolSpec(
        "double",
        "Doubles.",
        INPUT,
        {"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}},
        "Double it",
        Hints(read_only=True, open_world=False),
    )
    output = mcp.tools([full, ToolSpec("bare", "", INPUT)])
    assert output == [
        {
            "name": "double",
            "title": "Double it",
            "description": "Doubles.",
            "inputSchema": INPUT,
            # The root is an object, and references still find what they point at.
            "outputSchema": {
                "type": "object",
                "properties": {"result": {"$ref": "#/$defs/N"}, "toolcrib": STORED},
                "anyOf": [{"required": ["result"]}, {"required": ["toolcrib"]}],
                "$defs": {"N": {"type": "integer"}},
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        },
        {"name": "bare", "inputSchema": INPUT},
    ]
    assert mcp.losses([full]) == {}
    for one in output:
        assert mcp_types.Tool.model_validate(one).model_dump(by_alias=True, exclude_none=True) == one


PARAMS = {"name": "double", "arguments": {"n": 1}}


@pytest.mark.parametrize(
    "request_",
    [
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": PARAMS},
        mcp_types.JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/call", params=PARAMS),
    ],
)
def test_a_request_is_a_call_under_its_id(request_: Any) -> None:
    assert mcp.calls(request_) == [Call("double", {"n": 1}, "7")]


def test_the_params_alone_are_a_call_too() -> None:
    (call,) = mcp.calls(mcp_types.CallToolRequestParams(name="double", arguments={"n": 1}))
    assert (call.tool, call.arguments) == ("double", {"n": 1})
    (bare,) = mcp.calls({"name": "double"})
    assert bare.arguments == {}
    assert call.id != bare.id


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"method": "tools/list"}, "its 'method' is 'tools/list'"),
        ({"method": "tools/call"}, "'params' must be an object, and it is missing"),
        ({"params": {"arguments": {}}}, "'name' must be text, and it is missing"),
        ({"name": "double", "arguments": "{}"}, "'arguments' must be an object, and it is text"),
    ],
)
def test_a_broken_request_is_reported_with_its_place(request_: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mcp.calls(request_)


def test_content_of_every_kind() -> None:
    parts = (Text("a\ud800"), Data('{"n":1}'), Image(b"\x01"), Audio(b"\x01"), File(b"\x01", "text/csv", "a b.csv"))
    (output,) = mcp.messages([Result(None, parts, call_id="c1", tool="double")])
    assert output == {
        "content": [
            {"type": "text", "text": "a?"},
            {"type": "text", "text": '{"n":1}'},
            {"type": "image", "data": "AQ==", "mimeType": "image/png"},
            {"type": "audio", "data": "AQ==", "mimeType": "audio/wav"},
            {
                "type": "resource",
                "resource": {"uri": "toolcrib:c1/4/a%20b.csv", "mimeType": "text/csv", "blob": "AQ=="},
            },
        ],
        "isError": False,
    }
    assert mcp_types.CallToolResult.model_validate(output).content[4].type == "resource"


@tool
def halve(n: int) -> float:
    """Halve it."""
    return n / 2


def test_a_result_is_structured_where_the_tool_promises_it() -> None:
    with Workbench([halve]) as bench:
        specs = bench.specs()
        good, bad = bench.call_sync("halve", {"n": "3"}), bench.call_sync("halve", {})
    output, failed = mcp.messages([good, bad], specs)
    assert output == {
        "content": [{"type": "text", "text": "1.5"}],
        "structuredContent": {"result": 1.5},
        "isError": False,
        "_meta": {"toolcrib/repairs": [{"path": "/n", "from": "string", "to": "integer"}]},
    }
    assert (failed["isError"], failed["_meta"]) == (
        True,
        {"toolcrib/error": {"code": "invalid_arguments", "retry": "changed"}},
    )
    assert "structuredContent" not in failed


async def test_an_image_beside_a_promised_value_leaves_it_structured() -> None:
    async def work(arguments: Any, context: Any) -> Any:
        return [arguments, "seen", Image(b"\x01")]

    spec = ToolSpec("look", "", INPUT, INPUT)
    result = await Workbench([from_work(spec, work, home=__name__)]).call("look", {"n": 1})
    assert result.content == (Data('{"n":1}'), Text("seen"), Image(b"\x01"))
    output = mcp.call_result(result, spec.output_schema)
    assert (output["structuredContent"], output["isError"], len(output["content"])) == ({"n": 1}, False, 3)


def test_a_result_that_breaks_its_promise_has_failed_and_shows_what_it_may() -> None:
    redacted = Result(None, (Data('"[secret]"'),), call_id="c", tool="halve")
    output = mcp.call_result(redacted, {"type": "number"})
    assert output["isError"]
    assert output["content"][1:] == [{"type": "text", "text": '"[secret]"'}]
    assert output["content"][0]["text"].startswith("The result of tool 'halve' does not match its output schema")
    assert output["_meta"]["toolcrib/error"]["code"] == "invalid_result"


def test_what_waits_has_not_succeeded_and_says_for_what() -> None:
    pending = Pending("p1", "approval", "Ask Alice.", "digest", "halve", "local", "default", EPOCH)
    output = mcp.call_result(Result(None, (Text("Ask Alice."),), call_id="c", pending=pending), {"type": "number"})
    assert output == {
        "content": [{"type": "text", "text": "Ask Alice."}],
        "isError": True,
        "_meta": {"toolcrib/pending": {"id": "p1", "kind": "approval"}},
    }


def test_an_error_says_its_code() -> None:
    error = ToolError("Busy.", "unavailable")
    output = mcp.call_result(Result(None, (Text("Busy."),), error, call_id="c"))
    assert output["_meta"] == {"toolcrib/error": {"code": "unavailable", "retry": "later"}}


NODE = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
PLACES = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}, "required": ["b"]}
EITHER = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "oneOf": [{"required": ["a"]}, {"$ref": "#/$defs/B"}],
    "$defs": {"B": {"required": ["b"]}},
}
MAPPING = {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2}
OWN = {"type": "object", "properties": {"toolcrib": {"type": "string"}}, "required": ["toolcrib"]}
PATTERNS = {"type": "object", "patternProperties": {"": {"type": "integer"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "value", "other"),
    [
        ({"type": "integer"}, {"result": 1}, {"result": "a"}),
        (INPUT | {"additionalProperties": False}, {"n": 1}, {"n": 1, "m": 1}),
        (NODE, {"next": {"toolcrib": {}}}, {"next": {"next": {}}}),
        (PLACES, {"b": "x"}, {"b": 1}),
        (EITHER, {"a": "x"}, {"a": "x", "b": 1}),
        (MAPPING, {"a": 1, "b": 2}, {"a": 1}),
        (PATTERNS, {"a": 1}, []),
        ({"type": "object"}, {}, []),
        (OWN, {"toolcrib": "mine"}, {"toolcrib": []}),
    ],
)
def test_an_output_schema_also_admits_a_large_result_and_its_references_lead_where_they_led(
    schema: dict[str, Any], value: Any, other: Any
) -> None:
    listed = mcp.tool_definition(ToolSpec("t", "", {"type": "object"}, schema))["outputSchema"]
    assert listed["type"] == "object"
    judge = jsonschema_rs.validator_for(listed)
    large = {"toolcrib": {"handle": "result_x", "uri": "toolcrib://results/result_x", "size": 30_000}}
    for valid in (value, large, {"toolcrib": {"size": 30_000}}):
        assert judge.is_valid(valid)
    for invalid in (other, {"toolcrib": 1}):
        assert not judge.is_valid(invalid)
    spec = ToolSpec("t", "", {"type": "object"}, listed)
    assert mcp.tool_definition(spec)["outputSchema"] == listed  # a gateway adds nothing more
    own = mcp.tool_definition(ToolSpec("t", "", {"type": "object"}, schema), stores_results=False)["outputSchema"]
    assert own == mcp.object_schema(schema)


async def test_a_large_result_has_succeeded() -> None:
    @tool
    def lines() -> list[str]:
        return ["line"] * 1000

    async with Workbench([lines], max_result_chars=1000) as bench:
        result = await bench.call("lines", {})
        specs = bench.specs()
    (output,) = mcp.messages([result], specs)
    handle = result.metadata["handle"]
    stored = {"handle": handle, "uri": f"toolcrib://results/{handle}", "size": 7001}
    assert (output["isError"], output["structuredContent"]) == (False, {"toolcrib": stored})
    assert output["_meta"] == {"toolcrib/handle": handle}
    result.metadata = {"size_chars": 7001}  # as where it could not be stored
    (output,) = mcp.messages([result], specs)
    assert (output["isError"], output["structuredContent"]) == (False, {"toolcrib": {"size": 7001}})


def test_a_call_that_a_person_has_settled_has_not_what_its_schema_promises() -> None:
    spec = ToolSpec("t", "", {"type": "object"}, {"type": "string"})
    result = Result(None, (Text("This call took effect."),), tool="t", call_id="c", metadata={"settled_by": "root"})
    (output,) = mcp.messages([result], [spec])
    assert (output["isError"], "structuredContent" in output) == (True, False)
    assert output["_meta"]["toolcrib/error"] == {"code": "lost", "retry": "never"}
    assert [block["text"] for block in output["content"]] == [
        "Tool 't' has run; do not call it again. What it returned is not known.",
        "This call took effect.",
    ]
