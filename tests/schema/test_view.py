"""The one view of a JSON Schema that everything which reads schemas asks."""

from typing import Any

import pytest

from toolcrib.schema import SchemaView, inlined
from toolcrib.schema.view import SchemaNames

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
    assert names == SchemaNames(known, frozenset({"c", "d"}), is_open=True, is_composed=True)


def test_rebuilding_changes_schemas_and_no_data() -> None:
    schema = {"properties": {"default": {"type": "null"}}, "default": {"type": "null"}, "enum": [{"items": True}]}
    rebuilt = SchemaView(schema).rebuilt(lambda view: {"was": dict(view.schema)})
    assert rebuilt == {**schema, "properties": {"default": {"was": {"type": "null"}}}}


# Without references


def test_what_a_reference_leads_to_stands_in_its_place():
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A"}, "many": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
        "$defs": {"A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}}, "B": {"type": "integer"}},
    }
    a = {"type": "object", "properties": {"b": {"type": "integer"}}}
    assert inlined(schema) == {"properties": {"a": a, "many": {"type": "array", "items": a}}}


def test_what_stands_beside_a_reference_goes_before_what_it_leads_to():
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A", "description": "mine", "default": 3}},
        "$defs": {"A": {"type": "integer", "description": "its"}},
    }
    assert inlined(schema) == {"properties": {"a": {"type": "integer", "description": "mine", "default": 3}}}


def test_definitions_that_contain_themselves_stay_and_bring_what_they_need():
    node = {"properties": {"next": {"$ref": "#/$defs/Node"}, "leaf": {"$ref": "#/$defs/Leaf"}}}
    schema = {
        "properties": {"tree": {"$ref": "#/$defs/Node"}, "other": {"$ref": "#/$defs/Leaf"}},
        "$defs": {"Node": node, "Leaf": {"type": "integer"}, "Unused": {"type": "null"}},
    }
    assert inlined(schema) == {
        "properties": {"tree": {"$ref": "#/$defs/Node"}, "other": {"type": "integer"}},
        "$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}, "leaf": {"type": "integer"}}}},
    }


def test_definitions_that_contain_one_another_stay_both():
    schema = {
        "items": {"$ref": "#/$defs/A"},
        "$defs": {"A": {"items": {"$ref": "#/$defs/B"}}, "B": {"items": {"$ref": "#/$defs/A"}}},
    }
    assert inlined(schema) == schema


def test_data_that_looks_like_a_reference_is_left_alone():
    schema = {
        "properties": {
            "$ref": {"type": "string"},
            "default": {"$ref": "#/$defs/A"},
            "x": {"default": {"$ref": "#/$defs/A"}, "enum": [{"$ref": "#/$defs/A"}]},
        },
        "$defs": {"A": {"type": "integer"}},
    }
    assert inlined(schema) == {
        "properties": {
            "$ref": {"type": "string"},
            "default": {"type": "integer"},
            "x": {"default": {"$ref": "#/$defs/A"}, "enum": [{"$ref": "#/$defs/A"}]},
        }
    }


def test_a_reference_that_leads_elsewhere_stays():
    schema = {"items": {"$ref": "https://example.com/a.json"}, "not": {"$ref": "#/$defs/None"}}
    assert inlined(schema) == schema


def test_a_discriminator_does_not_lead_to_definitions_that_are_gone() -> None:
    mapping = {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}
    pet = {"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}
    schema = {
        "properties": {"pet": {**pet, "discriminator": {"mapping": mapping, "propertyName": "kind"}}},
        "$defs": {"Cat": {"type": "object"}, "Dog": {"type": "object"}},
    }
    assert inlined(schema) == {
        "properties": {
            "pet": {"oneOf": [{"type": "object"}, {"type": "object"}], "discriminator": {"propertyName": "kind"}}
        }
    }
