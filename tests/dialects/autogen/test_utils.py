"""JSON Schemas as pydantic models."""

from typing import Any

import pytest
from pydantic import ValidationError

from toolcrib.dialects.autogen.utils import schema_to_pydantic_model

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "minimum": 1, "description": "How many."},
        "mode": {"enum": ["fast", "slow"], "default": "fast"},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
        "schema": {"type": ["string", "null"]},
        "a-b": {"type": "boolean"},
        "free": {},
        "by_name": {"type": "object", "additionalProperties": {"type": "number"}},
    },
    "required": ["path"],
    "$defs": {"Edit": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]}},
}


def test_values_are_read_as_attributes_of_pythons_types() -> None:
    model = schema_to_pydantic_model(SCHEMA)
    given = {"path": "a", "count": "3", "edits": [{"old": "x"}], "schema": "s", "a-b": True, "by_name": {"x": 1}}
    made: Any = model.model_validate({**given, "unknown": 1})
    assert (made.path, made.count, made.edits[0].old, made.mode, made.free) == ("a", 3, "x", "fast", None)
    assert made.model_dump(exclude_unset=True) == {**given, "count": 3}
    assert (model.__name__, schema_to_pydantic_model(SCHEMA, "Edit").__name__) == ("GeneratedModel", "Edit")


@pytest.mark.parametrize(
    "wrong",
    [{}, {"path": ""}, {"path": "a", "count": 0}, {"path": "a", "mode": "other"}, {"path": "a", "edits": [{}]}],
)
def test_what_the_schema_does_not_allow_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        schema_to_pydantic_model(SCHEMA).model_validate(wrong)
