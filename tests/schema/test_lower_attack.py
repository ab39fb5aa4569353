"""Schemas that are unlikely in the wild, lowered for every provider, with jsonschema-rs as the judge.

`random_schemas.py` makes them.
"""

import json
from typing import Any

import jsonschema_rs
import pytest

from .. import fuzz
from . import test_lower_laws as laws
from .random_schemas import Generator


def attack(seed: int, number: int) -> list[str]:
    """The problems, if more than a few the first ones, of *number* schemas from *seed* on."""
    found: list[str] = []
    for each in range(seed, seed + number):
        schema = Generator(each).whole()
        try:
            laws.judge({"type": "object", **schema})
        except (ValueError, jsonschema_rs.ReferencingError):
            continue
        try:
            problems = list(laws.problems(json.loads(json.dumps(schema)), [], seed=each, each=50))
        except Exception as error:
            problems = [f"{error!r} for {json.dumps(schema)}"]
        found += [f"seed {each}: {problem}" for problem in problems]
        if len(found) >= 20:
            break
    return found


@pytest.mark.full
def test_schemas_made_to_break_lowering_are_neither_narrower_nor_wider_in_silence() -> None:
    assert attack(fuzz.seed(148358111), fuzz.cases(1200)) == []
    print(laws.report())


def members(**of: Any) -> dict[str, Any]:
    return {"type": "object", "properties": of}


def nested(depth: int, inner: Any) -> Any:
    return inner if depth == 0 else {"b": nested(depth - 1, inner)}


TEXTS = {"additionalProperties": {"type": "string"}}
LONG = {"additionalProperties": {"minLength": 2}}
ENDS = {"prefixItems": [{}], "items": False}
OPEN_LIST = {
    "type": "array",
    "allOf": [{"type": "array"}],
    "unevaluatedItems": {"type": "string"},
}  # OpenAI cannot take it as it is
BY_PATTERN = {"patternProperties": {".": {}}}
SEVERAL: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "what a place of several parts holds, where it is cut off": (
        {"properties": {"b": {"allOf": [{"properties": {"b": {}}}, {"$ref": "#"}], "$ref": "#/$defs/A"}}}
        | {"required": ["b"], "additionalProperties": False, "$defs": {"A": {"properties": {"b": True}}}},
        [nested(depth, inner) for depth in range(9) for inner in (1, {"x": 1})],
    ),
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
    "the type around a branch of several parts": (
        members(k={"type": "array", "anyOf": [{"allOf": [{"required": ["x"]}, {"properties": {"k": True}}]}]}),
        [{"k": None}],
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
    "the end of a list": (
        members(m={"type": "array", "prefixItems": [{"type": "string"}], "allOf": [ENDS, ENDS]}),
        [{"m": ["a", "b"]}],
    ),
    "more patterns than alternatives": (
        members(
            m={"allOf": [TEXTS, {"patternProperties": {f"^a{each}": {"minLength": each} for each in range(1001)}}]}
        ),
        [{"m": {"b": 1}}],
    ),
    "what leads to itself": (
        members(k={"$ref": "#/$defs/A"})
        | {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A", "allOf": [{**members(), **TEXTS}]}]}}},
        [{"k": {"x": 1}}, {"k": 1}],
    ),
    "what leads to itself by another": (
        members(x={"$ref": "#/$defs/A"}, y={"type": "string"})
        | {"required": ["x"], "additionalProperties": False}
        | {"$defs": {each: {"$ref": f"#/$defs/{other}"} for each, other in ("AB", "BA")}},
        [{"x": {}}],
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_what_several_parts_demand_is_reported_at_each_of_them(name: str) -> None:
    schema, instances = SEVERAL[name]
    assert list(laws.problems(schema, instances, each=50)) == []
