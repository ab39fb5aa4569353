"""Schemas without references."""

from toolcrib.schema import inlined


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
