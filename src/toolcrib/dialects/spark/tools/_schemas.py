"""Normalization of the JSON Schemas in Spark's specs. Pure functions."""

import copy
from collections.abc import Mapping
from typing import Any

_TYPED = frozenset({"type", "anyOf", "oneOf", "allOf", "not", "enum", "const"})


def schema_in(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the JSON Schema in a spec's *parameters*, which may be bare or under the key "json"."""
    schema = parameters.get("json")
    return schema if isinstance(schema, Mapping) else parameters


def normalize_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of *schema* that is complete: each property has a type and a description.

    A property that declares its type in another way ("$ref", "anyOf", "enum", ...) gets no "type".
    """
    normalized: dict[str, Any] = {"type": "object", "properties": {}, "required": [], **copy.deepcopy(dict(schema))}
    if isinstance(normalized["properties"], dict):
        normalized["properties"] = {name: _property(name, of) for name, of in normalized["properties"].items()}
    return normalized


def without_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return *schema* with anything for the properties that have a "$ref", which may lead out of it."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return dict(schema)
    return {**schema, "properties": {name: {} if "$ref" in of else of for name, of in properties.items()}}


def _property(name: str, schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {"type": "string", "description": f"Property {name}"}
    if "$ref" in schema:
        return schema
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        return normalize_schema(schema)
    kind = {} if schema.keys() & _TYPED else {"type": "string"}
    return {**schema, **kind, "description": schema.get("description", f"Property {name}")}
