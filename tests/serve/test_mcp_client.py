"""What the forms of MCP can ask for, which is flat, and what they cannot."""

from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib.serve.mcp.client import form_schema

TEXT = {"type": "string"}
CHOICES = [{"enum": ["a", "b"]}, {"anyOf": [{"const": "a"}]}, {"oneOf": [{"const": "a"}]}]


def of(field: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"it": field}, **more}


@pytest.mark.parametrize("kind", ["string", "number", "integer", "boolean"])
def test_a_value_is_asked_for_as_a_field_and_an_object_as_it_is(kind: str) -> None:
    field = {"type": kind, "title": "It"}
    asked = {"type": "object", "properties": {"value": field}, "required": ["value"]}
    assert form_schema(field) == (asked, True)
    assert form_schema(of(field)) == (of(field, required=[]), False)
    assert form_schema(of(field, required=["it"])) == (of(field, required=["it"]), False)


@pytest.mark.parametrize("items", CHOICES)
def test_a_list_is_asked_for_where_it_is_of_choices(items: Mapping[str, Any]) -> None:
    choices = {"type": "array", "items": items}
    assert form_schema(of(choices)) == (of(choices, required=[]), False)


def test_a_field_that_may_be_null_is_one_that_may_be_left_out() -> None:
    field = {"anyOf": [{"type": "null"}, TEXT], "default": None, "title": "It"}
    assert form_schema(of(field)) == (of({"title": "It", **TEXT}, required=[]), False)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        of(of(TEXT)),
        {"type": "object", "properties": {"it": TEXT, "other": {}}},
        of(True),
        of({"anyOf": [TEXT, {"type": "integer"}]}),
        {"type": "array", "items": TEXT},
        {"type": "array"},
        {"type": "null"},
        {"$ref": "#/$defs/Tree", "$defs": {"Tree": of({"$ref": "#/$defs/Tree"})}},
    ],
)
def test_what_is_not_flat_is_not_asked_for(schema: Mapping[str, Any]) -> None:
    assert form_schema(schema) is None
