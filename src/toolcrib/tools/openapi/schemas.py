"""Schemas of OpenAPI documents as JSON Schema 2020-12, each with what it refers to, bounded.

Every schema that is referred to is converted once for a document, for what is sent and for what comes back: fields that
are `readOnly` are not sent. A schema with too much behind it is cut: what is left out admits any value, so that a cut
schema is wider than the original, and never narrower.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pydantic_core

from .references import Documents, Unusable

Direction = Literal["sent", "received"]

MOST_CHARS = {"sent": 120_000, "received": 30_000}
"""How much JSON a schema may be with its definitions."""
_MOST_LEVELS = 60

_ONE = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "contentSchema"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DROPPED = frozenset(
    {"xml", "externalDocs", "discriminator", "example", "readOnly", "writeOnly", "nullable"}
    | {"$schema", "$id", "$anchor", "$dynamicAnchor", "$comment", "$vocabulary", "$ref", "$dynamicRef"}
)
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_OLD = frozenset({*_BOUNDS, "nullable"})
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")

Key = tuple[str, str]
"""The file of a schema, and its pointer there."""


@dataclass(frozen=True, slots=True)
class _Converted:
    """A schema in which each `$ref` leads to `#/$defs/NAME`, the *keys* of those, and its size as JSON."""

    schema: Any
    keys: tuple[Key, ...]
    chars: int


class Schemas:
    """The schemas of *documents*. *is_old* says that they are of OpenAPI 3.0, which has a dialect of its own."""

    def __init__(self, documents: Documents, *, is_old: bool) -> None:
        self._documents = documents
        self._is_old = is_old
        self._names: dict[Key, str] = {}
        self._taken: set[str] = set()
        self._converted: dict[tuple[Key, Direction], _Converted] = {}

    def closed(self, schemas: Mapping[str, tuple[Any, str]], direction: Direction) -> tuple[dict[str, Any], Any]:
        """Each of *schemas*, a schema and its file by name, converted; and the definitions that they refer to."""
        keys: dict[Key, None] = {}
        out: dict[str, Any] = {}
        chars = 0
        for name, (schema, file) in schemas.items():
            found: dict[Key, None] = {}
            out[name] = self._convert(schema, file, direction, found, 0)
            keys |= found
            chars += _chars(out[name])
        definitions: dict[str, Any] = {}
        waiting = list(keys)
        for key in waiting:  # which grows: what is nearest is first
            converted = self._definition(key, direction)
            chars += converted.chars
            if chars > MOST_CHARS[direction]:
                definitions[self._name(key)] = {}
                chars -= converted.chars
                continue
            definitions[self._name(key)] = converted.schema
            waiting += [each for each in converted.keys if each not in keys]
            keys |= dict.fromkeys(converted.keys)
        return out, definitions

    def _definition(self, key: Key, direction: Direction) -> _Converted:
        known = self._converted.get((key, direction))
        if known is None:
            file, pointer = key
            schema = self._documents.at(file, pointer)
            keys: dict[Key, None] = {}
            converted = self._convert(schema, file, direction, keys, 0)
            known = self._converted[key, direction] = _Converted(converted, tuple(keys), _chars(converted))
        return known

    def _name(self, key: Key) -> str:
        if key not in self._names:
            wanted = _NOT_A_NAME.sub("_", key[1].rpartition("/")[2])[:60].strip("_") or "schema"
            name, number = wanted, 2
            while name in self._taken:
                name, number = f"{wanted}_{number}", number + 1
            self._taken.add(name)
            self._names[key] = name
        return self._names[key]

    def _convert(self, schema: Any, file: str, direction: Direction, keys: dict[Key, None], level: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Unusable(f"a schema in it is not an object but {type(schema).__name__}")
        if level > _MOST_LEVELS:
            raise Unusable(f"a schema in it is nested more than {_MOST_LEVELS} levels deep")
        out: dict[str, Any] = {}
        ref = schema.get("$ref", schema.get("$dynamicRef"))
        if ref is not None:
            _, where, pointer = self._documents.find(ref, file)
            keys[where, pointer] = None
            out["$ref"] = f"#/$defs/{self._name((where, pointer))}"
            if self._is_old:  # what stands beside a reference does not count there
                return out
        for keyword, value in schema.items():
            if keyword in _DROPPED or keyword.startswith("x-"):
                continue
            if keyword in _ONE and isinstance(value, dict):
                out[keyword] = self._convert(value, file, direction, keys, level + 1)
            elif keyword in _LISTED and isinstance(value, list):
                out[keyword] = [self._convert(each, file, direction, keys, level + 1) for each in value]
            elif keyword in _NAMED and isinstance(value, dict):
                out[keyword] = {
                    name: self._convert(each, file, direction, keys, level + 1) for name, each in value.items()
                }
            else:
                out[keyword] = value
        if "example" in schema:
            out.setdefault("examples", [schema["example"]])
        if "properties" in schema or "required" in schema:
            self._without_one_way(out, schema, file, direction)
        if out.get("type") == "string" and out.get("format") in ("binary", "byte"):
            out = as_base64(out)
        return out if _OLD.isdisjoint(schema) else _modern(out, schema)

    def _without_one_way(self, out: dict[str, Any], schema: Mapping[str, Any], file: str, direction: Direction) -> None:
        """Take from *out* the fields that go the other way only."""
        properties = schema.get("properties")
        required = schema.get("required")
        if not isinstance(required, list):
            out.pop("required", None)
            required = []
        if not isinstance(properties, dict):
            return
        mark = "readOnly" if direction == "sent" else "writeOnly"
        names = {
            name
            for name, each in properties.items()
            if isinstance(each, dict) and (mark in each or "$ref" in each) and self._is_marked(each, file, mark)
        }
        if not names:
            return
        if direction == "sent":
            out["properties"] = {name: each for name, each in out["properties"].items() if name not in names}
        out["required"] = [name for name in required if isinstance(name, str) and name not in names]

    def _is_marked(self, schema: Any, file: str, mark: str) -> bool:
        if isinstance(schema, dict) and "$ref" in schema:
            try:
                schema, _, _ = self._documents.find(schema["$ref"], file)
            except Unusable:
                return False
        return isinstance(schema, dict) and schema.get(mark) is True


def as_base64(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of bytes, as the text that they are among arguments."""
    kept: dict[str, Any] = {
        key: value for key, value in schema.items() if key in ("title", "description", "default", "examples")
    }
    description = f"{kept.pop('description', '')}\n\nBytes, in base64.".strip()
    return kept | {"type": "string", "contentEncoding": "base64", "description": description}


def _modern(out: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """A converted schema with the keywords of OpenAPI 3.0, which later documents have too, as JSON Schema 2020-12."""
    for keyword, bound in _BOUNDS.items():
        if isinstance(is_exclusive := out.get(keyword), bool):
            del out[keyword]
            if is_exclusive and bound in out:
                out[keyword] = out.pop(bound)
    if schema.get("nullable") is not True:
        return out
    if isinstance(kind := out.get("type"), str):
        out["type"] = [kind, "null"]
        if isinstance(choices := out.get("enum"), list) and None not in choices:
            out["enum"] = [*choices, None]
        return out
    if not {"$ref", "allOf", "anyOf", "oneOf", "enum", "not"} & out.keys():
        return out
    notes: dict[str, Any] = {key: out.pop(key) for key in ("title", "description", "default") if key in out}
    return {"anyOf": [out, {"type": "null"}], **notes}


def _chars(value: Any) -> int:
    return len(pydantic_core.to_json(value))
