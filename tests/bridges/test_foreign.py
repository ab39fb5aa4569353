"""What readers of foreign tools take over of their specs."""

from typing import Any

import mcp_types
import pytest

from toolcrib import ToolSpec, Workbench
from toolcrib.bridges.foreign import hints_of, promise, tool_of
from toolcrib.core import Hints


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (
            mcp_types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            Hints(read_only=True, open_world=False),
        ),
        ({"destructiveHint": True, "idempotentHint": None, "title": "Delete"}, Hints(destructive=True)),
        ({"readOnlyHint": "yes"}, Hints()),
        (None, Hints()),
        ("readOnlyHint", Hints()),
    ],
)
def test_hints_are_those_of_mcps_annotations(annotations: Any, expected: Hints) -> None:
    assert hints_of(annotations) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, {"type": "integer"}),
        ({}, None),
        (None, None),
        ({"type": "no type"}, None),
        ({"$ref": "#/$defs/Missing"}, None),
        ({"$ref": "https://example.com/schema"}, None),
        (True, None),
    ],
)
def test_only_a_schema_that_can_be_checked_is_a_promise(schema: Any, expected: Any) -> None:
    assert promise(schema) == expected


async def test_what_a_tool_promises_is_checked() -> None:
    async def work(arguments: dict[str, Any], context: Any) -> Any:
        return arguments["value"]

    spec = ToolSpec("echo", "", {"type": "object", "properties": {"value": {}}}, {"type": ["integer", "string"]})
    bench = Workbench([tool_of(spec, work)])
    assert [(await bench.call("echo", {"value": value})).text for value in (1, "one")] == ["1", "one"]
    broken = (await bench.call("echo", {"value": [1]})).shown()
    assert (broken.code, broken.text) == (
        "invalid_result",
        "The result of tool 'echo' does not match its output schema.",
    )
