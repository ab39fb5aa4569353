"""Schemas of OpenAPI documents as JSON Schema 2020-12, each with what it refers to, bounded.

Every schema that is referred to is converted once for a document, for what is sent and for what comes back: fields that
are `readOnly` are not sent. It is checked once, too, and not with each operation that refers to it. A schema with too
much behind it is cut: what is left out admits any value, so that a cut schema is wider than the original, and never
narrower.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jsonschema_rs
import pydantic_core

from ...schema import SchemaView
from ...schema.required import is_bounded, is_plainly_bounded
from ...schema.view import COMBINING, MAX_NESTING, UNIONS, validator
from .documents import ONE_WAY, Documents, Unusable
from .operations import spare_name

Direction = Literal["sent", "received"]

MAX_CHARS = {"sent": 120_000, "received": 30_000}
"""How much JSON a schema may be with its definitions."""
_CUT_CHARS = 6_000
"""To how much it is cut where it is more: Elasticsearch's queries refer to all of one another."""

_DROPPED = frozenset(
    {"xml", "externalDocs", "discriminator", "example", "readOnly", "writeOnly", "nullable"}
    | {"$schema", "$id", "$anchor", "$dynamicAnchor", "$comment", "$vocabulary", "$ref", "$dynamicRef"}
    | {"$recursiveAnchor", "$recursiveRef"}
)
_PLAIN = frozenset(
    {"type", "format", "title", "description", "default", "examples", "deprecated", "enum", "const", "pattern"}
    | {"minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems"}
)
"""The keywords of most schemas, which stay as they are."""
_REFUSING = frozenset({"not", "if", "then", "else", "maxContains", "unevaluatedItems", "unevaluatedProperties"})
_MAY_BE_ONE_WAY = ONE_WAY | {"$ref"}
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_OLD = frozenset({*_BOUNDS, "nullable", "x-nullable"})
_ANY_OF, _ONE_OF = UNIONS
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")

Key = tuple[str, str]
"""The file of a schema, and its pointer there."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Schemas by name, and the *definitions* that they refer to. *is_valid* where all are known to be valid."""

    schemas: dict[str, Any]
    definitions: dict[str, Any]
    is_valid: bool


@dataclass(frozen=True, slots=True)
class _Converted:
    """A schema in which each `$ref` leads to `#/$defs/NAME`, the *keys* of those, and its size as JSON."""

    schema: Any
    keys: tuple[Key, ...]
    chars: int
    is_valid: bool


@dataclass(slots=True)
class _Conversion:
    """What schemas are converted for, and what was found: the *keys* that they refer to, and fields of one way only."""

    direction: Direction
    keys: dict[Key, None] = field(default_factory=dict[Key, None])
    has_one_way: bool = False


class Schemas:
    """The schemas of *documents*. *is_old* says that they are of OpenAPI 3.0, which has a dialect of its own."""

    def __init__(self, documents: Documents, *, is_old: bool) -> None:
        self._documents = documents
        self._is_old = is_old
        self._names: dict[Key, str] = {}
        self._taken: set[str] = set()
        self._converted: dict[tuple[Key, Direction], _Converted] = {}
        self._valid: dict[bytes, bool] = {}
        self._sizes: dict[str, int | None] = {}

    def closed(
        self, schemas: Mapping[str, tuple[Any, str]], direction: Direction, max_chars: int | None = None
    ) -> Closed:
        """Return *schemas*, each a schema and its file by name, converted, and the definitions they refer to.

        What more than *max_chars* of JSON refers to is `{}`; by default, too much is cut to what is checked soon.
        """
        references = _Conversion(direction)
        out = {name: self._convert(schema, file, references, 0) for name, (schema, file) in schemas.items()}
        chars, is_valid = 0, True
        for part in out.values():
            size, is_valid_part = self._measured(part, references)
            chars += size
            is_valid &= is_valid_part
        definitions: dict[str, Any] = {}
        keys = references.keys
        waiting = list(keys)
        for key in waiting:  # which grows: what is nearest is first
            definition = self._definition(key, direction)
            chars += definition.chars
            if chars > (max_chars or MAX_CHARS[direction]):
                if max_chars is None:
                    return self._cut(schemas, direction)
                definitions[self._name(key)] = {}
                chars -= definition.chars
                is_valid = False
                continue
            definitions[self._name(key)] = definition.schema
            is_valid &= definition.is_valid
            waiting += [entry for entry in definition.keys if entry not in keys]
            keys |= dict.fromkeys(definition.keys)
        return Closed(out, definitions, is_valid)

    def _cut(self, schemas: Mapping[str, tuple[Any, str]], direction: Direction) -> Closed:
        """Return so much of *schemas*, with what is nearest first, that it surely looks at a value seldom enough."""
        max_chars = _CUT_CHARS
        while True:
            part = self.closed(schemas, direction, max_chars)
            whole = _wider({"properties": part.schemas, "$defs": part.definitions})
            if max_chars < 100 or is_bounded(whole):
                return Closed(whole["properties"], whole["$defs"], is_valid=False)
            max_chars //= 2

    def is_bounded(self, schema: Mapping[str, Any]) -> bool:
        """Return whether *schema*, with no definition cut, is known to look at a value seldom enough."""
        return is_plainly_bounded(schema, self._sizes)

    def _definition(self, key: Key, direction: Direction) -> _Converted:
        cached = self._converted.get((key, direction))
        if cached is None:
            file, pointer = key
            schema = self._documents.at(file, pointer)
            references = _Conversion(direction)
            schema_there = self._convert(schema, file, references, 0)
            cached = _Converted(schema_there, tuple(references.keys), *self._measured(schema_there, references))
            for way in (direction,) if references.has_one_way else ("sent", "received"):
                self._converted[key, way] = cached
        return cached

    def _measured(self, schema: Any, found: _Conversion) -> tuple[int, bool]:
        """Return how much JSON a converted *schema* is, and whether it is valid if all that it refers to is."""
        text = pydantic_core.to_json(schema)
        if text not in self._valid:  # the same parameters recur with operation after operation
            self._valid[text] = b"Infinity" not in text and self._is_valid(schema, found)
        return len(text), self._valid[text]

    def _is_valid(self, schema: Any, found: _Conversion) -> bool:
        whole = {"items": schema, "$defs": {self._name(key): True for key in found.keys}}
        try:
            jsonschema_rs.meta.validate(whole)
            validator(whole, formats=True)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
            return False
        return True

    def _name(self, key: Key) -> str:
        if key not in self._names:
            base = _NOT_A_NAME.sub("_", key[1].rpartition("/")[2])[:60].strip("_") or "schema"
            self._names[key] = spare_name(base, self._taken)
            self._taken.add(self._names[key])
        return self._names[key]

    def _convert(self, schema: Any, file: str, found: _Conversion, level: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Unusable(f"a schema in it is not an object but {type(schema).__name__}")
        if _PLAIN.issuperset(schema) and not _is_bytes(schema):
            return schema
        if level > MAX_NESTING:
            raise Unusable(f"a schema in it is nested more than {MAX_NESTING} levels deep")
        out: dict[str, Any] = {}
        if (ref := schema.get("$ref")) is not None:
            _, where, pointer = self._documents.find(ref, file)
            found.keys[where, pointer] = None
            out["$ref"] = f"#/$defs/{self._name((where, pointer))}"
            if self._is_old:  # what stands beside a reference does not count there
                return out

        out |= self._keywords(schema, file, found, level)
        self._drop_one_way(out, schema, file, found)
        if _is_bytes(out):
            out = as_base64(out)
        return out if _OLD.isdisjoint(schema) else _modern(out, schema)

    def _keywords(self, schema: Mapping[str, Any], file: str, found: _Conversion, level: int) -> dict[str, Any]:
        """Return the keywords of *schema* beside its reference, with the schemas in them converted."""
        keywords = {key: value for key, value in schema.items() if key not in _DROPPED and not key.startswith("x-")}
        if "example" in schema:
            keywords.setdefault("examples", [schema["example"]])
        try:
            return SchemaView(keywords).rebuilt(lambda view: self._convert(view.schema, file, found, level + 1))
        except (AttributeError, TypeError):
            raise Unusable("a schema in it does not follow JSON Schema") from None

    def _drop_one_way(self, out: dict[str, Any], schema: Mapping[str, Any], file: str, found: _Conversion) -> None:
        """Take from *out* the fields that go the other way only."""
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(required, list):
            out.pop("required", None)
            required = []
        names = self._other_way(properties, file, found) if isinstance(properties, dict) else ()
        if not names:
            return
        if found.direction == "sent":
            out["properties"] = {name: member for name, member in out["properties"].items() if name not in names}
        out["required"] = [name for name in required if isinstance(name, str) and name not in names]

    def _other_way(self, properties: Mapping[str, Any], file: str, found: _Conversion) -> Collection[str]:
        """Return the names of *properties* that go the other way only, and note whether any goes one way only."""
        marks = {
            name: self._documents.one_way(member, file)
            for name, member in properties.items()
            if isinstance(member, dict) and not _MAY_BE_ONE_WAY.isdisjoint(member)
        }
        found.has_one_way = found.has_one_way or any(marks.values())
        mark = "readOnly" if found.direction == "sent" else "writeOnly"
        return {name for name, kinds in marks.items() if mark in kinds}


def _is_bytes(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" and schema.get("format") in ("binary", "byte")


def _wider(schema: Any) -> Any:
    """Return *schema*, which refers to one that was cut, without keywords that refuse what another schema admits."""
    if not isinstance(schema, dict):
        return schema
    keywords = {key: value for key, value in schema.items() if key not in _REFUSING}
    out = SchemaView(keywords).rebuilt(lambda view: _wider(view.schema))
    if _ONE_OF in out:
        out.setdefault(_ANY_OF, out.pop(_ONE_OF))
    return out


def as_base64(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of bytes, as the text that they are among arguments."""
    notes: dict[str, Any] = {
        key: value for key, value in schema.items() if key in ("title", "description", "default", "examples")
    }
    description = f"{notes.pop('description', '')}\n\nBytes, in base64.".strip()
    return notes | {"type": "string", "contentEncoding": "base64", "description": description}


def _modern(out: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a converted schema with keywords of OpenAPI 3.0, which later ones may have too, as JSON Schema 2020-12."""
    for keyword, limit in _BOUNDS.items():
        if isinstance(is_exclusive := out.get(keyword), bool):
            del out[keyword]
            if is_exclusive and limit in out:
                out[keyword] = out.pop(limit)
    is_nullable = schema.get("nullable") is True or schema.get("x-nullable") is True  # the latter in Swagger 2.0
    return _or_null(out) if is_nullable else out


def _or_null(out: dict[str, Any]) -> dict[str, Any]:
    """Return a converted schema, which is taken over, as one that admits null, too."""
    if isinstance(kind := out.get("type"), str):
        out["type"] = [kind, "null"]
        if isinstance(choices := out.get("enum"), list) and None not in choices:
            out["enum"] = [*choices, None]
        return out
    if not {"$ref", "enum", "not", *COMBINING} & out.keys():
        return out
    notes: dict[str, Any] = {key: out.pop(key) for key in ("title", "description", "default") if key in out}
    return {_ANY_OF: [out, {"type": "null"}], **notes}
