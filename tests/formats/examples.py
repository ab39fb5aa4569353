"""Tools and results that the tests of several formats send."""

import base64
from typing import Any

from toolcrib import Call, Result, Text, ToolError, ToolSpec

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
SPECS = [
    ToolSpec("double", "Doubles.", SCHEMA),
    ToolSpec("files/read all", "", SCHEMA),
    ToolSpec("exact", "Exact.", SCHEMA, strict=True),
]
SPEC = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})

# Of OpenAI's two formats
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ADD_AND_LIST = [
    ToolSpec("add", "Add two numbers.", ADD),
    ToolSpec("files.list", "", {"type": "object", "properties": {}, "additionalProperties": False}),
]
PIXEL = b"\x89PNG pixel"
PIXEL_IN_BASE64 = base64.b64encode(PIXEL).decode()


def ended(call_id: str, *content: Any, tool: str = "double", error: ToolError | None = None) -> Result[Any]:
    return Result(None, content, error, call_id=call_id, tool=tool)


def added(call_id: str, *content: Any, error: ToolError | None = None) -> Result[Any]:
    return ended(call_id, *content, tool="add", error=error)


def answered(*calls: Call) -> tuple[Result[Any], ...]:
    return tuple(ended(call.id, Text("3"), tool=call.tool) for call in calls)


def shown(call: Call) -> tuple[str, str, Any]:
    return call.id, call.tool, call.arguments
