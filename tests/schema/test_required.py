"""References that double, or lead to themselves, are refused where a schema is given, and not when a call hangs."""

from time import thread_time
from typing import Any

import pytest

from toolcrib import Tool
from toolcrib.core import DefinitionError
from toolcrib.schema.required import times_looked

NODE = {"$ref": "#/$defs/node"}


def define(x: Any, **definitions: Any) -> Tool[..., Any]:
    parameters = {"type": "object", "properties": {"x": x}, "$defs": definitions}
    return Tool(lambda **_: 1, name="take", parameters=parameters)


def levels(count: int, level: Any) -> dict[str, Any]:
    """Definitions, each of which has two references to the one before, put in place by *level*."""
    made: dict[str, Any] = {"0": {"type": "string"}}
    for number in range(count):
        made[str(number + 1)] = level({"$ref": f"#/$defs/{number}"})
    return made


def same(ref: Any) -> Any:
    return {"allOf": [ref, {"anyOf": [ref]}]}


def inside(ref: Any) -> Any:
    return {"anyOf": [{"properties": {"a/b": ref}}, {"properties": {"a/b": ref}, "required": ["a/b"]}]}


def others(ref: Any) -> Any:
    return {"allOf": [{"properties": {"a": ref}}, {"additionalProperties": ref}]}


def items(ref: Any) -> Any:
    return {"oneOf": [{"items": ref}, {"type": "array", "items": ref}]}


@pytest.mark.parametrize("level", [same, inside, others, items])
def test_references_that_double_without_end_are_refused(level: Any) -> None:
    define({"$ref": "#/$defs/8"}, **levels(8, level))
    with pytest.raises(DefinitionError) as refused:
        define({"$ref": "#/$defs/40"}, **levels(40, level))
    assert "in parameters=, the references double again and again" in str(refused.value)


@pytest.mark.parametrize(
    "node",
    [
        {"anyOf": [NODE]},
        {"not": NODE},
        {"$ref": "#/$defs/node"},
        {"oneOf": [{"if": {"allOf": [NODE]}}, {"type": "null"}]},
    ],
)
def test_a_place_that_applies_itself_to_the_same_value_is_refused(node: Any) -> None:
    with pytest.raises(DefinitionError) as refused:
        define(NODE, node=node)
    assert "applies itself to the same value, so it expresses nothing" in str(refused.value)


def test_references_that_go_on_too_long_are_refused() -> None:
    with pytest.raises(DefinitionError) as refused:
        define({"$ref": "#/$defs/999"}, **levels(999, lambda ref: {"allOf": [ref]}))
    assert "too many references lead on from one to the next" in str(refused.value)


@pytest.mark.parametrize(
    "node",
    [
        {"type": ["array", "string"], "items": NODE},
        {"anyOf": [{"type": "string"}, {"properties": {"a": NODE, "b": NODE}, "additionalProperties": NODE}]},
        {"oneOf": [{"properties": {"a": NODE}}, {"properties": {"a": NODE}, "required": ["b"]}]},
    ],
)
def test_recursion_into_the_value_is_as_good_as_ever(node: Any) -> None:
    assert define(NODE, node=node).spec.name == "take"


def test_a_definition_may_be_anything_or_nothing() -> None:
    assert define({"$ref": "#/$defs/any"}, any=True, none=False).check('{"x": [1]}', False)[0] == {"x": [1]}


def test_references_from_different_members_do_not_double() -> None:
    define({"$ref": "#/$defs/60"}, **levels(60, lambda ref: {"anyOf": [{"properties": {"a": ref}}, {"items": ref}]}))
    define({"$ref": "#/$defs/60"}, **levels(60, lambda ref: {"properties": {"a": ref, "b": ref, "c": ref}}))


def test_references_of_all_definitions_to_all_are_counted_in_proportion_to_them() -> None:
    """An API's document, or a server's tool, of 60 kinds that all have one another for members."""

    def time_of(count: int) -> float:
        names = [f"k{number}" for number in range(count)]
        kind = {"properties": {name: {"$ref": f"#/$defs/{name}", "description": name} for name in names}}
        times: list[float] = []
        for _ in range(3):
            started_at = thread_time()
            assert times_looked({**kind, "$defs": dict.fromkeys(names, kind)}) == 2
            times.append(thread_time() - started_at)
        return min(times)

    assert time_of(40) < 40 * time_of(10)  # of 16 times as many references; by pairs of kinds, over 200
