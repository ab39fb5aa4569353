"""Schemas made by chance, unlikely in the wild: what lowering and the check are held against.

Members have the names of keywords; references lead anywhere; values are empty, boolean, null or circular.
"""

import random
from collections.abc import Callable
from typing import Any

NAMES = ["a", "b", "k", "x1"]
KEYWORDS = [
    *("$ref", "$defs", "$id", "$anchor", "properties", "type", "required", "items", "anyOf", "oneOf", "allOf", "not"),
    *("default", "enum", "const", "examples", "additionalProperties", "patternProperties", "definitions", "if"),
    *("prefixItems", "dependencies", "description", "$top", "x/y", "x~y", "x%20y", "a b", "", "key", "value", "-", "é"),
]
DEFINITIONS = ["A", "B", "default", "x/y", "~1", "properties", "-", "$defs"]
SCALARS = [None, True, False, 0, 1, 1.0, 2.5, -1, "a", "", "x", {"a": 1}, {}, [], [1], {"$ref": "#/$defs/A"}]
TYPES = ["object", "object", "array", "string", "integer", "number", "boolean", "null"]
PATTERNS = ["^x", "a", "^[a-z]+$", r"\bk", "(?=a)", "^$", "."]


class Generator:
    """Makes schemas by chance: the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.names = NAMES if self.chance.random() < 0.5 else [*NAMES, *self.chance.sample(KEYWORDS, 6)]
        self.unknown = self.chance.random() < 0.15  # whether a keyword that nobody knows holds a schema
        self.definitions = self.chance.sample(DEFINITIONS, self.chance.randint(0, 3))
        self.words: dict[str, Callable[[int], Any]] = {
            "type": lambda _: self._type(),
            "enum": lambda _: self._some(SCALARS, 0, 3),
            "const": lambda _: self.chance.choice(SCALARS),
            "properties": self._named,
            "required": lambda _: self._some(self.names, 0, 2),
            "additionalProperties": self.schema,
            "patternProperties": lambda depth: {p: self.schema(depth) for p in self._some(PATTERNS, 1, 2)},
            "propertyNames": self.schema,
            "minProperties": lambda _: self.chance.randint(0, 2),
            "maxProperties": lambda _: self.chance.randint(0, 3),
            "dependentRequired": lambda _: {n: self._some(self.names, 0, 2) for n in self._some(self.names, 0, 2)},
            "dependentSchemas": self._named,
            "dependencies": lambda depth: {
                name: self.chance.choice([self._some(self.names, 0, 2), self.schema(depth)])
                for name in self._some(self.names, 0, 2)
            },
            "unevaluatedProperties": self.schema,
            "unevaluatedItems": self.schema,
            "items": self.schema,
            "prefixItems": self._listed,
            "contains": self.schema,
            "minContains": lambda _: self.chance.randint(0, 2),
            "maxContains": lambda _: self.chance.randint(0, 2),
            "minItems": lambda _: self.chance.randint(0, 2),
            "maxItems": lambda _: self.chance.randint(0, 3),
            "uniqueItems": lambda _: self.chance.random() < 0.7,
            "minimum": lambda _: self.chance.choice([0, 1, 2.5]),
            "maximum": lambda _: self.chance.choice([0, 5, 2.5]),
            "exclusiveMinimum": lambda _: self.chance.choice([0, 1, 2.5]),
            "exclusiveMaximum": lambda _: self.chance.choice([1, 5, 2.5]),
            "multipleOf": lambda _: self.chance.choice([1, 2, 0.5, 3]),
            "minLength": lambda _: self.chance.randint(0, 2),
            "maxLength": lambda _: self.chance.randint(0, 2),
            "pattern": lambda _: self.chance.choice(PATTERNS),
            "format": lambda _: self.chance.choice(["date", "uri", "int32"]),
            "anyOf": self._listed,
            "oneOf": self._listed,
            "allOf": self._listed,
            "not": self.schema,
            "if": self.schema,
            "then": self.schema,
            "else": self.schema,
            "$ref": lambda _: self.reference(),
            "$dynamicRef": lambda _: self.reference(),
            "description": lambda _: "d",
            "default": lambda _: self.chance.choice(SCALARS),
            "examples": lambda _: [self.chance.choice(SCALARS)],
            "nullable": lambda _: True,
        }
        objects = ["properties", "required", "additionalProperties", "patternProperties", "dependencies"]
        self.groups = [
            objects,
            ["properties", "required", "additionalProperties", "type"],
            [*objects, "propertyNames", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas"],
            [*objects, "unevaluatedProperties", "allOf", "anyOf", "$ref", "if", "then"],
            ["items", "prefixItems", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems"],
            ["items", "unevaluatedItems", "allOf", "anyOf", "prefixItems", "$ref"],
            ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "type"],
            ["minLength", "maxLength", "pattern", "format", "type"],
            ["anyOf", "oneOf", "allOf", "$ref", "type"],
            ["enum", "const", "type", "oneOf", "default"],
            sorted(self.words),
        ]

    def whole(self) -> dict[str, Any]:
        """A schema of arguments."""
        chance = self.chance
        schema = self._object(0) if chance.random() < 0.7 else self.schema(0)
        schema = schema if isinstance(schema, dict) else {}
        if "type" in schema or chance.random() < 0.8:
            schema["type"] = "object"
        definitions = {name: self.schema(1) for name in self.definitions}
        if chance.random() < 0.3:
            definitions["Anchored"] = {"$anchor": "here", **self._object(1)}
        if definitions:
            schema["$defs"] = definitions
        if self.unknown:
            schema["x-more"] = {"T": self.schema(1)}
        if chance.random() < 0.05:
            schema["$id"] = "https://example.org/root"
        if chance.random() < 0.05:
            wide = [self.schema(3) for _ in range(chance.choice([30, 70, 300]))]
            schema.setdefault("properties", {})["k"] = {chance.choice(["anyOf", "oneOf"]): wide}
        return schema

    def schema(self, depth: int) -> Any:
        """A schema below the root."""
        chance = self.chance
        if depth >= 4 or chance.random() < 0.12:
            return chance.choice([True, False, {}, {"type": self._type()}, {"type": self._type()}, self._reference()])
        if chance.random() < 0.35:
            return self._object(depth)
        return {word: self.words[word](depth + 1) for word in self._some(chance.choice(self.groups), 1, 3)}

    def reference(self) -> str:
        places = [f"#/$defs/{name.replace('~', '~0').replace('/', '~1')}" for name in self.definitions]
        places += ["#/x-more/T"] if self.unknown else []
        return self.chance.choice([*places, *places, *places, "#"])

    def _reference(self) -> dict[str, Any]:
        return {"$ref": self.reference()}

    def _object(self, depth: int) -> dict[str, Any]:
        """An object as most are: members, some of them required, often no others."""
        members = self._named(depth + 1, least=1)
        schema: dict[str, Any] = {"type": "object", "properties": members}
        if self.chance.random() < 0.7:
            schema["required"] = self._some(list(members), 0, len(members))
        if self.chance.random() < 0.6:
            schema["additionalProperties"] = False
        if self.chance.random() < 0.2:
            word = self.chance.choice(sorted(self.words))
            schema[word] = self.words[word](depth + 1)
        return schema

    def _type(self) -> Any:
        kinds = list(dict.fromkeys(self._some(TYPES, 1, 3)))
        return self.chance.choice(TYPES) if self.chance.random() < 0.8 else kinds

    def _named(self, depth: int, *, least: int = 0) -> dict[str, Any]:
        return {name: self.schema(depth) for name in self._some(self.names, least, 3)}

    def _listed(self, depth: int) -> list[Any]:
        return [self.schema(depth) for _ in range(self.chance.randint(1, 3))]

    def _some(self, of: list[Any], least: int, most: int) -> list[Any]:
        return self.chance.sample(of, min(len(of), self.chance.randint(least, most)))
