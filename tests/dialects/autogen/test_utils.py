"""JSON Schemas as pydantic models."""

from typing import Any

import pytest
from pydantic import ValidationError

from toolcrib.dialects.autogen.utils import schema_to_pydantic_model

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["fast", "slow"], "default": "fast"},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
    },
    "required": ["path"],
    "$defs": {"Edit": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]}},
}


@pytest.mark.parametrize(
    "wrong",
    [{}, {"path": ""}, {"path": "a", "count": 0}, {"path": "a", "mode": "other"}, {"path": "a", "edits": [{}]}],
)
def test_what_the_schema_does_not_allow_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        schema_to_pydantic_model(SCHEMA).model_validate(wrong)
