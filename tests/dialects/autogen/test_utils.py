"""JSON Schemas as pydantic models."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from toolcrib import DefinitionError
from toolcrib.dialects.autogen import CancellationToken
from toolcrib.dialects.autogen.tools import BaseTool
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


def test_other_properties_are_treated_as_the_schema_does() -> None:
    closed, free = ({"type": "object", "properties": {}, "additionalProperties": more} for more in (False, True))
    with pytest.raises(ValidationError):
        schema_to_pydantic_model(closed).model_validate({"x": 1})
    assert schema_to_pydantic_model(free).model_validate({"x": 1}).model_extra == {"x": 1}


def test_a_tool_of_the_model_shows_the_schema() -> None:
    class Edits(BaseTool[BaseModel, Any]):
        def __init__(self) -> None:
            super().__init__(schema_to_pydantic_model(SCHEMA), object, "edit", "Edit.")

        async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> Any:
            return args.model_dump(exclude_unset=True)

    parameters: Any = Edits().schema["parameters"]  # type: ignore[typeddict-item]
    assert parameters["properties"]["count"] == SCHEMA["properties"]["count"]
    assert parameters["properties"]["edits"]["items"]["required"] == ["old"]
    assert (parameters["required"], parameters["additionalProperties"]) == (["path"], False)


def test_what_is_not_the_schema_of_an_object_is_refused() -> None:
    for wrong in ({"type": "array"}, {"type": "object", "properties": {"x": {"type": "nothing"}}}):
        with pytest.raises(DefinitionError, match="GeneratedModel"):
            schema_to_pydantic_model(wrong)
