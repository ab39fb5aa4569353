"""Lowering, case by case: what comes out for a provider, and which losses are reported."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import jsonschema_rs
import pytest

from toolcrib.formats.accepts import ANTHROPIC, BEDROCK, GEMINI, MCP, OPENAI
from toolcrib.schema.lower import Accepts, Loss, Lowered, lower

from ..held import seconds_of

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}},
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}


def of(**members: Any) -> dict[str, Any]:
    """Arguments of these members, all required, and no others."""
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def lost(low: Lowered) -> list[tuple[str, str]]:
    return [(loss.path, loss.keyword) for loss in low.losses]


def member(schema: Any, accepts: Accepts, *, strict: bool = False) -> tuple[Any, list[tuple[str, str]]]:
    """What becomes of one member, and what is lost."""
    low = lower(of(a=schema), accepts, strict=strict)
    return low.schema["properties"]["a"], lost(low)


@pytest.mark.parametrize("accepts", [OPENAI, ANTHROPIC, BEDROCK, MCP], ids=lambda accepts: accepts.name)
def test_a_dialect_with_all_keywords_gets_a_schema_as_it_is(accepts: Accepts) -> None:
    schema = of(
        n={"type": "integer", "minimum": 1, "not": {"const": 3}},
        m={"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "unevaluatedProperties": False},
        o={"oneOf": [{"type": "string"}, {"$ref": "#/$defs/T"}]},
    ) | {"$defs": {"T": {"type": "object", "properties": {"again": {"$ref": "#/$defs/T"}}}}}
    assert lower(schema, accepts) == Lowered(schema, optional=0)


def test_a_constraint_that_is_left_out_is_reported_in_a_sentence() -> None:
    low = lower(of(n={"type": "number", "multipleOf": 5}), GEMINI)
    assert low.schema == of(n={"type": "number", "description": "A multiple of 5."})
    meaning = "The schema for the provider omits 'multipleOf' (5) of 'n'; Toolcrib still checks it."
    assert low.losses == (Loss("/properties/n", "multipleOf", meaning),)
    assert low.losses[0].to_dict() == {
        "path": "/properties/n",
        "keyword": "multipleOf",
        "meaning": meaning,
        "weight": "medium",
    }


def test_losses_name_what_they_are_about() -> None:
    odd = {"type": "array", "items": {"type": "integer", "multipleOf": 3}}
    schema = of(properties=odd, items={"type": "object", "properties": {"allOf": {"type": "integer", "multipleOf": 2}}})
    assert [loss.meaning.partition(";")[0] for loss in lower({**schema, "minProperties": 3}, GEMINI).losses] == [
        "The schema for the provider omits 'minProperties' (3) of the arguments",
        "The schema for the provider omits 'multipleOf' (3) of the values inside 'properties'",
        "The schema for the provider omits 'multipleOf' (2) of 'allOf'",
    ]


@pytest.mark.parametrize(
    ("schema", "lowered"),
    [
        (
            {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 5.5},
            {"type": "integer", "minimum": 2, "maximum": 5},
        ),
        (
            {"enum": [1, "a", None]},
            {"anyOf": [{"type": "integer", "enum": [1]}, {"type": "string", "enum": ["a"]}, {"type": "null"}]},
        ),
        ({"enum": ["a", "bb"], "maxLength": 1}, {"type": "string", "enum": ["a"]}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"enum": [True, False]}, {"type": "boolean"}),
        ({"allOf": [{"type": "integer"}], "title": "N"}, {"type": "integer", "title": "N"}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
            {"type": "array", "prefixItems": [{"type": "string"}], "maxItems": 1},
        ),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"type": ["string", "integer"], "nullable": True}, {"type": ["string", "integer"]}),
        ({"anyOf": [False, {"type": "string"}]}, {"type": "string"}),
        ({}, {}),
    ],
)
def test_what_has_another_form_loses_nothing(schema: Any, lowered: Any) -> None:
    assert member(schema, GEMINI) == (lowered, [])


@pytest.mark.parametrize(
    ("schema", "lowered", "keywords"),
    [
        (
            {"oneOf": [{"type": "string"}, {"enum": ["a", "b"]}]},
            {"anyOf": [{"type": "string"}, {"type": "string", "enum": ["a", "b"]}]},
            ["oneOf"],
        ),
        (
            {"enum": [{"a": 1}, {"b": 1}]},
            {"type": "object", "description": 'One of {"a": 1}, {"b": 1}.'},
            ["enum"],
        ),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
            {"type": "object"},
            ["patternProperties"],
        ),
        (
            {"type": "object", "properties": {"a": {}}, "dependentRequired": {"a": ["b"]}},
            {"type": "object", "properties": {"a": {}}, "description": "If 'a' is given, 'b' must be too."},
            ["dependentRequired"],
        ),
        ({"$ref": "#/$defs/gone"}, {}, ["$ref"]),
        (
            {"allOf": [{"type": "integer", "minimum": 1}, {"minimum": 3, "maximum": 9}]},
            {"type": "integer", "minimum": 1},
            ["allOf"],
        ),
    ],
)
def test_what_has_no_form_is_left_out_and_reported(schema: Any, lowered: Any, keywords: list[str]) -> None:
    low = lower(of(a=schema), GEMINI)
    found, losses = low.schema["properties"]["a"], lost(low)
    assert low.schema.get("$defs", {}).get("a", found) == lowered
    assert {keyword for _, keyword in losses} == set(keywords)
    assert {path for path, _ in losses} == {"/properties/a"}


# -- references ----------------------------------------------------------------------------------------------------


def test_references_to_anywhere_become_definitions() -> None:
    three = {"type": "integer", "description": "A multiple of 3."}
    schema = {
        **of(a={"type": "integer", "multipleOf": 3}, b={"$ref": "#/properties/a"}, c={"$ref": "#/$defs/C"}),
        "$defs": {"C": {"type": "integer"}, "unused": {"type": "null"}},
    }
    low = lower(schema, GEMINI)
    assert low.schema == {
        **of(a=three, b={"$ref": "#/$defs/a"}, c={"$ref": "#/$defs/C"}),
        "$defs": {"C": {"type": "integer"}, "a": three},
    }
    assert lost(low) == [("/properties/a", "multipleOf")]


def test_a_description_beside_a_reference_stays() -> None:
    schema = {**of(a={"$ref": "#/$defs/T", "description": "First."}), "$defs": {"T": {"type": "string"}}}
    found = lower(schema, GEMINI).schema["properties"]["a"]
    assert found == {"description": "First.", "anyOf": [{"$ref": "#/$defs/T"}]}


def test_recursion_is_kept_where_it_may_be() -> None:
    assert lower(TREE, GEMINI) == Lowered(TREE, optional=1)
    strict = lower(TREE, OPENAI, strict=True)
    node = strict.schema["$defs"]["Node"]
    assert node["properties"]["next"] == {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}
    assert strict.losses == () and strict.strict
    assert strict.lift({"root": {"name": "a", "next": {"name": "b", "next": None}}}) == {
        "root": {"name": "a", "next": {"name": "b"}}
    }


def test_recursion_is_cut_where_it_may_not_be_and_that_is_reported() -> None:
    schema = json.loads(json.dumps(TREE))
    schema["$defs"]["Node"]["properties"]["next"] = {"type": "array", "items": {"$ref": "#/$defs/Node"}}
    schema["$defs"]["Node"]["required"] = ["name", "next"]
    low = lower(schema, GEMINI)
    assert low.schema["$defs"]["Node"]["properties"]["next"] == {"type": "array", "items": {}}
    what = "The schema for the provider omits what is deeper inside the values inside 'next'"
    meaning = f"{what}; Toolcrib still checks it."
    assert low.losses == (Loss("/$defs/Node/properties/next/items", "$ref", meaning, "high"),)
    strict = lower(TREE, ANTHROPIC, strict=True)
    assert not strict.strict and "more of its own kind" in strict.losses[0].meaning


def test_a_root_that_holds_itself_is_a_definition_too() -> None:
    schema = {"type": "object", "properties": {"sub": {"$ref": "#"}}, "additionalProperties": False}
    low = lower(schema, OPENAI, strict=True)
    assert low.schema["properties"] == {"sub": {"anyOf": [{"$ref": "#/$defs/root"}, {"type": "null"}]}}
    assert low.schema["$defs"]["root"]["properties"] == low.schema["properties"]
    assert low.lift({"sub": {"sub": None}}) == {"sub": {}}


@pytest.mark.parametrize("name", ["default", "enum"])
@pytest.mark.parametrize(("accepts", "strict"), [(OPENAI, True), (ANTHROPIC, True), (GEMINI, False)])
def test_a_member_with_the_name_of_a_keyword_keeps_its_definition(name: str, accepts: Accepts, strict: bool) -> None:
    text = of(t={"type": "string"})
    schema = {**of(**{name: {"$ref": "#/$defs/T"}}), "$defs": {"T": text}}
    low = lower(schema, accepts, strict=strict)
    assert low == Lowered(schema, strict=strict)


@pytest.mark.parametrize(
    "elsewhere", ["https://example.com/a.json", "other.json#/$defs/A", "#/$defs/gone", "file:///etc/passwd"]
)
@pytest.mark.parametrize("accepts", [OPENAI, ANTHROPIC, GEMINI, BEDROCK, MCP], ids=lambda accepts: accepts.name)
def test_a_reference_that_leads_elsewhere_is_not_sent(accepts: Accepts, elsewhere: str) -> None:
    low = lower(of(a={"$ref": elsewhere, "type": "string"}, b={"$dynamicRef": elsewhere, "type": "integer"}), accepts)
    assert low.schema == of(a={"type": "string"}, b={"type": "integer"})
    assert lost(low) == [("/properties/a", "$ref"), ("/properties/b", "$dynamicRef")]


@pytest.mark.parametrize("accepts", [OPENAI, ANTHROPIC, GEMINI, BEDROCK, MCP], ids=lambda accepts: accepts.name)
@pytest.mark.parametrize("name", ["$ref", "properties", "x/y", "x~1%25"])
def test_members_and_definitions_may_have_any_name(accepts: Accepts, name: str) -> None:
    pointer = name.replace("~", "~0").replace("/", "~1").replace("%", "%25")
    schema = {
        **of(**{name: {"$ref": f"#/$defs/{pointer}"}, "a": {"$ref": f"#/properties/{pointer}"}}),
        "required": [name, "unknown"],
        "additionalProperties": {"type": "string"},
        "$defs": {name: {"type": "integer"}},
    }
    low = lower(schema, accepts)
    assert {loss.weight for loss in low.losses} <= {"low"}
    own, judge = jsonschema_rs.Draft202012Validator(schema), jsonschema_rs.Draft202012Validator(low.schema)
    names = dict(zip(low.schema["properties"], schema["properties"], strict=True))
    for value, valid in ((1, True), ("1", False)):
        written = dict.fromkeys(names, value) | {"unknown": "x"}
        assert own.is_valid(low.lift(written)) == judge.is_valid(written) == valid
        assert low.lift(written) == {name: value, "a": value, "unknown": "x"}


# -- the root ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accepts", [OPENAI, ANTHROPIC, GEMINI, BEDROCK], ids=lambda accepts: accepts.name)
def test_unions_of_the_arguments_become_one_object(accepts: Accepts) -> None:
    by_name = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    by_id = {"properties": {"id": {"type": "integer"}}, "required": ["id"]}
    schema = {
        "type": "object",
        "properties": {"dry": {"type": "boolean"}},
        "required": ["dry"],
        "anyOf": [by_name, by_id],
    }
    low = lower(schema, accepts)
    assert low.schema["properties"] == {
        "dry": {"type": "boolean"},
        "name": {"type": "string"},
        "id": {"type": "integer"},
    }
    assert low.schema["required"] == ["dry"]
    assert low.schema["description"] == "Give 'dry' and 'name' or 'dry' and 'id'."
    assert lost(low) == [("", "anyOf")]


def test_a_root_that_is_a_reference_or_an_all_of_is_put_in_its_place() -> None:
    schema = {"$ref": "#/$defs/Args", "$defs": {"Args": of(a={"type": "string"})}}
    assert lower(schema, OPENAI) == Lowered(of(a={"type": "string"}))
    parts = {"type": "object", "allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a"]}]}
    low = lower(parts, ANTHROPIC)
    assert low.schema == {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert lost(low) == [("", "allOf")]


def test_names_of_arguments_that_anthropic_refuses_are_mapped_and_back() -> None:
    low = lower({**of(**{"filter[id]": {"type": "string"}, "filter_id_": {"type": "string"}})}, ANTHROPIC)
    names = list(low.schema["properties"])
    assert names[1] == "filter_id_" and names[0].startswith("filter_id__") and low.schema["required"] == names
    assert low.losses == ()
    assert low.lift({names[0]: "a", "filter_id_": "b"}) == {"filter[id]": "a", "filter_id_": "b"}


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_no_parameters_are_an_empty_object(schema: dict[str, Any]) -> None:
    for accepts in (OPENAI, ANTHROPIC, GEMINI, BEDROCK):
        assert lower(schema, accepts) == Lowered({"type": "object", "properties": {}})


# -- strict mode ---------------------------------------------------------------------------------------------------


def test_strict_mode_asks_for_every_member_with_null_for_absent() -> None:
    schema = of(a={"type": "integer"}, b={"type": "string", "default": "x"}, c={"type": "string", "enum": ["u", "v"]})
    schema["required"] = ["a"]
    low = lower(schema, OPENAI, strict=True)
    assert low == Lowered(
        of(
            a={"type": "integer"},
            b={"type": ["string", "null"], "description": 'Default: "x".'},
            c={"type": ["string", "null"], "enum": ["u", "v", None]},
        ),
        strict=True,
        lift=low.lift,
        lifts=True,
        unions=2,
    )
    assert low.lift({"a": 1, "b": None, "c": "u"}) == {"a": 1, "c": "u"}
    untouched = {"a": 1, "b": "y"}
    assert low.lift(untouched) is untouched


@pytest.mark.parametrize(
    ("schema", "path", "why"),
    [
        ({"type": "object"}, "/properties/a", "could have no members, and it takes any"),
        (
            {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": True},
            "/properties/a",
            "it takes others",
        ),
        ({}, "/properties/a", "needs one type"),
        ({"type": "array"}, "/properties/a", "the type of the items"),
        ({"enum": [{"x": 1}]}, "/properties/a", "lists no objects"),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
            "/properties/a",
            "a pattern describes",
        ),
    ],
)
def test_a_tool_that_strict_mode_would_change_is_sent_without_it(schema: Any, path: str, why: str) -> None:
    low = lower(of(a=schema), OPENAI, strict=True)
    assert not low.strict and not low.lifts
    assert low.schema == lower(of(a=schema), OPENAI).schema
    reasons = [loss.meaning for loss in low.losses if (loss.path, loss.keyword) == (path, "strict")]
    assert any(why in reason for reason in reasons)
    assert all(reason.endswith("So the tool is sent without strict mode.") for reason in reasons)


def test_null_that_means_something_cannot_stand_for_absent() -> None:
    nullable = {"type": ["string", "null"]}
    schema = {**of(a=nullable), "required": []}
    assert not lower(schema, OPENAI, strict=True).strict
    with_default = {**of(a={**nullable, "default": None}), "required": []}
    low = lower(with_default, OPENAI, strict=True)
    assert low.strict and low.losses == () and low.lift({"a": None}) == {"a": None}


def test_members_not_described_are_closed_off_in_strict_mode_and_that_is_reported() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    low = lower(schema, ANTHROPIC, strict=True)
    assert low.schema == of(a={"type": "string"}) and low.strict
    assert lost(low) == [("", "additionalProperties")]


def test_unions_are_restored_as_the_branch_that_was_written() -> None:
    dog = {**of(kind={"const": "dog"}, name={"type": "string"}), "required": ["kind"]}
    cat = {**of(kind={"const": "cat"}, lives={"type": "integer"}), "required": ["kind"]}
    low = lower(of(pet={"oneOf": [dog, cat]}), OPENAI, strict=True)
    assert low.strict and low.losses == ()
    assert low.lift({"pet": {"kind": "cat", "lives": None}}) == {"pet": {"kind": "cat"}}
    apart = [{"type": "object", "properties": {name: {}}, "additionalProperties": False} for name in "ab"]
    typed = [{**each, "properties": {name: {"type": "string"}}} for name, each in zip("ab", apart, strict=True)]
    low = lower(of(pet={"oneOf": typed}), OPENAI, strict=True)
    assert low.strict and low.lift({"pet": {"a": None}}) == {"pet": {}}  # which is valid under both
    assert lost(low) == [("/properties/pet", "oneOf")]
    alike = [
        {**dog, "properties": {"name": {"type": "string"}}},
        {**dog, "properties": {"name": {"type": ["string"]}, "x": {"type": "string"}}},
    ]
    assert lower(of(pet={"anyOf": alike}), OPENAI, strict=True).losses


def test_a_schema_larger_than_strict_mode_takes_is_sent_without_it() -> None:
    nested: dict[str, Any] = {"type": "string"}
    for _ in range(11):
        nested = of(a=nested)
    assert not lower(nested, OPENAI, strict=True).strict
    many = of(a={"type": "string", "enum": [str(i) for i in range(1001)]})
    reasons = [loss.meaning for loss in lower(many, OPENAI, strict=True).losses]
    assert reasons == [
        "The provider takes at most 1000 listed values in one schema, and this one has 1001. "
        "So the tool is sent without strict mode."
    ]


def test_what_a_strict_mode_does_not_check_is_described() -> None:
    schema = of(a={"type": "string", "format": "uri"}, b={"type": "integer", "minimum": 1, "description": "How many"})
    low = lower(schema, OPENAI, strict=True)
    assert low.schema["properties"]["a"] == {"type": "string", "description": "Format `uri`."}
    low = lower(
        {**schema, "properties": {**schema["properties"], "c": {"type": "string", "pattern": "^a."}}}, ANTHROPIC
    )
    assert low.losses == ()
    schema["properties"]["a"] = {"type": "string", "pattern": "^a+", "description": "A name."}
    low = lower(schema, ANTHROPIC, strict=True)
    assert [member["description"] for member in low.schema["properties"].values()] == [
        "A name. Text that matches `^a+`.",
        "How many. At least 1.",
    ]


def test_a_provider_without_strict_mode_is_reported() -> None:
    low = lower(of(a={"type": "string"}), GEMINI, strict=True)
    assert not low.strict and lost(low) == [("", "strict")]


# -- hostile ones --------------------------------------------------------------------------------------------------


def test_no_depth_of_nesting_is_too_much() -> None:
    for depth in (60, 100, 400, 5000):
        deep: dict[str, Any] = {"type": "string", "minLength": 1}
        for _ in range(depth):
            deep = {"type": "array", "items": deep}
        for accepts in (OPENAI, ANTHROPIC, GEMINI):
            low = lower(of(a={"type": "string"}, b=deep), accepts)
            if depth > 60:  # 5,000 are more than Python itself can read or write as JSON
                assert (low.schema, lost(low)) == ({"type": "object", "properties": {}}, [("", "$schema")])
            else:
                assert low.losses == ()


def test_what_is_not_valid_json_schema_becomes_any_object() -> None:
    for accepts in (OPENAI, GEMINI):
        low = lower({"type": "object", "properties": {"a": {"type": "nonsense"}}}, accepts)
        assert low.schema == {"type": "object", "properties": {}} and lost(low) == [("", "$schema")]


def test_references_that_go_in_circles_or_multiply_come_to_an_end() -> None:
    circle = {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    bomb = {"D0": {"type": "string"}}
    for i in range(1, 30):
        bomb[f"D{i}"] = of(x={"$ref": f"#/$defs/D{i - 1}"}, y={"$ref": f"#/$defs/D{i - 1}"})
    exploding = {**of(a={"$ref": "#/$defs/D29"}), "$defs": bomb}
    for schema in (circle, exploding):
        for accepts, strict in ((OPENAI, False), (OPENAI, True), (GEMINI, False), (ANTHROPIC, True)):
            assert len(json.dumps(lower(schema, accepts, strict=strict).schema)) < 2_000_000


@pytest.mark.parametrize(("accepts", "strict"), [(OPENAI, True), (ANTHROPIC, True), (GEMINI, False)])
@pytest.mark.parametrize(
    "of_branch", [lambda i: {"const": f"v{i}"}, lambda i: of(kind={"const": f"k{i}"}, v={"type": "string"})]
)
def test_a_union_may_have_hundreds_of_alternatives(accepts: Accepts, strict: bool, of_branch: Any) -> None:
    low = lower(of(a={"oneOf": [of_branch(i) for i in range(300)]}), accepts, strict=strict)
    assert len(low.schema["properties"]["a"][("oneOf" if strict and not low.strict else "anyOf")]) == 300
    assert [loss for loss in low.losses if loss.keyword != "strict"] == []


# -- speed ---------------------------------------------------------------------------------------------------------


def test_a_known_schema_is_lowered_once() -> None:
    first = lower(TREE, OPENAI, strict=True)
    assert lower(json.loads(json.dumps(TREE)), OPENAI, strict=True) is first
    assert lower({**TREE, "title": "Other"}, OPENAI, strict=True) is not first


@pytest.mark.parametrize(
    ("schema", "accepts"),
    [
        (lambda count: {"enum": [{"a": [number]} for number in range(count)]}, GEMINI),
        (lambda count: {"type": "object", "enum": [{"a": number} for number in range(count)]}, GEMINI),
        (lambda count: {"type": "object", "required": [f"m{number}" for number in range(count)]}, GEMINI),
        (lambda count: {"anyOf": [_closed(f"m{number}") for number in range(count // 4)]}, OPENAI),
    ],
    ids=["enum", "enum of a type", "required", "branches"],
)
def test_a_schema_is_lowered_in_proportion_to_its_size(schema: Callable[[int], Any], accepts: Accepts) -> None:
    """An author of an API's document or an MCP server's tool lists thousands of values, names or branches."""

    def time_of(count: int) -> float:
        # A known schema would be lowered once.
        schemas = [{"type": "object", "properties": {"x": schema(count + 2 * more)}} for more in range(2)]
        return min(seconds_of(partial(lower, whole, accepts, strict=accepts is OPENAI)) for whole in schemas)

    time_of(10)
    assert time_of(6_000) < 9 * time_of(1_500) + 0.1  # by pairs, 16 times


def _closed(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "additionalProperties": False}
