"""The one view of a JSON Schema that everything which reads schemas asks."""

from typing import Any

import pytest

from toolcrib.schema import SchemaNames, SchemaView

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "root": {"$ref": "#/$defs/Node"},
        "size": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Unit"}, {"type": "null"}]},
        "a/b": {"type": ["string", "null"]},
    },
    "required": ["root"],
    "additionalProperties": {"type": "boolean"},
    "$defs": {
        "Node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}},
        "Unit": {"oneOf": [{"const": "m"}, {"enum": ["km", 1]}]},
    },
}


def test_references_and_unions_are_followed_to_what_a_value_may_be() -> None:
    view = SchemaView(TREE)
    assert [sorted(each.kinds) for each in view.members["size"].alternatives] == [
        ["integer"],
        ["string"],
        ["integer", "string"],
        ["null"],
    ]
    assert view.members["size"].choices == ["m", "km", 1]
    assert view.members["root"].resolved is view.at("$defs", "Node")
    assert [each.kinds for each in view.members["a/b"].alternatives] == [{"string", "null"}]


def test_members_are_found_by_name_pattern_and_default() -> None:
    view = SchemaView(TREE)
    assert list(view.members) == ["root", "size", "a/b"]
    assert view.required == ("root",)
    assert [each.pointer for each in view.member("a/b")] == ["/properties/a~1b"]
    assert view.member("other") == [view.additional]
    patterns = SchemaView({"patternProperties": {"^x-": {"type": "integer"}}})
    assert [each.kinds for each in patterns.member("x-1")] == [{"integer"}]
    assert patterns.member("y") == []
    assert patterns.additional is None


def test_items_are_found_by_their_place() -> None:
    view = SchemaView({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}})
    assert [sorted(view.item(index).kinds) for index in range(3)] == [["string"], ["integer"], ["integer"]]


def test_references_in_a_circle_end() -> None:
    schema = {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}}}
    view = SchemaView(schema).at("$defs", "A")
    assert [each.kinds for each in view.alternatives] == [{"null"}]
    assert view.is_recursive
    assert SchemaView(TREE).at("$defs", "Node").is_recursive
    assert not SchemaView(TREE).is_recursive
    itself = SchemaView({"$ref": "#"})
    assert itself.alternatives == (itself,)


@pytest.mark.parametrize("reference", ["#/nowhere", "#name", "https://example.com/a.json#/b", 3])
def test_a_reference_that_leads_elsewhere_is_not_followed(reference: Any) -> None:
    view = SchemaView({"properties": {"a": {"$ref": reference}}}).members["a"]
    assert view.target is None
    assert view.leads_out
    assert view.resolved is view


def test_validity_is_asked_place_by_place() -> None:
    view = SchemaView(TREE)
    assert view.is_valid({"root": {"next": {"next": None}}})
    assert not view.members["root"].is_valid({"next": {"next": 3}})
    assert not view.members["size"].is_valid(1.5)
    assert view.satisfies(["root"], "type") is False
    assert sorted(view.additional.wrong_items([True, 1, False, None])) == [1, 3]  # type: ignore[union-attr]


def test_names_are_those_of_all_parts() -> None:
    schema = {
        "properties": {"a": {}},
        "anyOf": [{"required": ["b", "c"], "properties": {"b": {}, "c": {}}}, {"required": ["c"]}],
        "allOf": [{"$ref": "#/$defs/more"}],
        "$defs": {"more": {"properties": {"d": {}}, "required": ["d"], "additionalProperties": True}},
    }
    names = SchemaView(schema).names
    known = "a", "d", "b", "c"
    assert names == SchemaNames(known, frozenset({"c", "d"}), others=True, is_composed=True)


def test_rebuilding_changes_schemas_and_no_data() -> None:
    schema = {"properties": {"default": {"type": "null"}}, "default": {"type": "null"}, "enum": [{"items": True}]}
    rebuilt = SchemaView(schema).rebuilt(lambda view: {"was": dict(view.schema)})
    assert rebuilt == {**schema, "properties": {"default": {"was": {"type": "null"}}}}
