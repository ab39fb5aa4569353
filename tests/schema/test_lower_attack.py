"""Schemas that are unlikely in the wild, lowered for every provider, with jsonschema-rs as the judge.

`random_schemas.py` makes them.
"""

from typing import Any

import pytest

from .. import fuzz
from . import test_lower_laws as laws


@pytest.mark.full
def test_schemas_made_to_break_lowering_are_neither_narrower_nor_wider_in_silence() -> None:
    first = fuzz.seed(148358111)
    for seed in range(first, first + fuzz.cases(1200)):
        assert laws.problems_of_chance(seed, each=50) == [], f"seed {seed}"
    print(laws.report())


def members(**of: Any) -> dict[str, Any]:
    return {"type": "object", "properties": of}


TEXTS = {"additionalProperties": {"type": "string"}}
LONG = {"additionalProperties": {"minLength": 2}}
OPEN_LIST = {
    "type": "array",
    "allOf": [{"type": "array"}],
    "unevaluatedItems": {"type": "string"},
}  # OpenAI cannot take it as it is
BY_PATTERN = {"patternProperties": {".": {}}}
SEVERAL: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "other members": (
        members(l=OPEN_LIST, m={"allOf": [{**members(x={}), **TEXTS}, {**members(x={}), **LONG}, BY_PATTERN]}),
        [{"m": {"y": 1}}, {"m": {"y": "a"}}],
    ),
    "members of a part, where no others may be": (
        members(m={**members(x={}), "additionalProperties": False, "oneOf": [members(y={}), {"required": ["x"]}]}),
        [{"m": {"y": 1}}],
    ),
    "members of a part, where others are texts": (
        members(m={**members(x={}), **TEXTS, "anyOf": [members(y={}), {}]}),
        [{"m": {"y": 1}}],
    ),
    "a member that a part describes too": (
        members(m={**members(x={"type": "string"}), "anyOf": [members(x={"type": "integer"}), {}]}),
        [{"m": {"x": 1}}],
    ),
    "two bounds": (
        members(m={"type": "integer", "exclusiveMaximum": 5, "maximum": 5, "exclusiveMinimum": 0, "minimum": 0}),
        [{"m": 5}, {"m": 0}],
    ),
    "members that are not evaluated": (
        members(l=OPEN_LIST, m={**members(x={}), **BY_PATTERN, "$ref": "#/$defs/A"})
        | {"$defs": {"A": {"unevaluatedProperties": {"type": "string"}}}},
        [{"m": {"y": 1}}],
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_what_several_parts_demand_is_reported_at_each_of_them(name: str) -> None:
    schema, instances = SEVERAL[name]
    assert list(laws.problems(schema, instances, each=50)) == []
