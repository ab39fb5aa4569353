"""Repairs, made only where a schema leaves one reading of what a model sent.

The rules, and there are no others: JSON in a string where no string is admitted; a number or boolean where text is;
null for a name that may be left out; one item for a list; a name that differs in case or in `-` and `_`. Every rule
proposes readings; where more than one reading is valid, none is taken. Valid data is never touched.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..core import Repair
from .bare import Validator, validator
from .text import BadText, read

Reading = tuple[Any, tuple[Repair, ...]]

_STEPS = 5_000
"""How many places are looked at before a value is called hopeless. Ordinary calls take tens."""

_PARSED = frozenset({"object", "array", "number", "integer", "boolean"})


class _Ambiguous(Exception):
    """More than one reading is valid, or it would take too long to tell."""


def kind(value: Any) -> str:
    """The JSON type of a decoded value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


class Repairer:
    """Finds the one reading of a value under one schema. Made once for a tool."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = schema
        self._validators: dict[int, Validator] = {}

    def arguments(self, value: Any, lossy: frozenset[float]) -> Reading:
        """*value* with each argument repaired for which there is one reading; the others stay as they are.

        *lossy* are numbers that would not be spelled the same again, and so are never turned into text.
        """
        search = _Search(self, lossy)
        if isinstance(value, str):
            parsed = _parsed(value)
            if not isinstance(parsed, dict):
                return value, ()
            inner, repairs = self.arguments(parsed, lossy)
            return inner, (Repair("", "string", "object"), *repairs)
        if not isinstance(value, dict):
            return value, ()
        return search.keys_then_values(value, self._root, "", partial=True)

    def valid(self, value: Any, schema: Any) -> bool:
        if isinstance(schema, bool):
            return schema
        found = self._validators.get(id(schema))
        if found is None:
            whole = schema if schema is self._root else {"$defs": self._root.get("$defs", {}), **schema}
            found = self._validators[id(schema)] = validator(whole, formats=False)
        return found.is_valid(value)

    def resolved(self, schema: Any) -> Any:
        """*schema*, its `$ref` into this document followed."""
        for _ in range(32):
            if not isinstance(schema, dict) or not isinstance(ref := schema.get("$ref"), str):
                return schema
            if not ref.startswith("#"):
                return {}
            target: Any = self._root
            for part in ref[1:].split("/")[1:]:
                target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
            if target is None:
                return {}
            schema = target
        return {}


class _Search:
    """One value being read. Counts its steps, so that no schema and no data make it long."""

    def __init__(self, repairer: Repairer, lossy: frozenset[float]) -> None:
        self._repairer = repairer
        self._lossy = lossy
        self._steps = 0

    def readings(self, value: Any, schema: Any, path: str, *, depth: int = 0) -> list[Reading]:
        """The valid readings of *value*: one is certain, none is hopeless. Raises _Ambiguous for more."""
        self._steps += 1
        if self._steps > _STEPS or depth > 24:
            raise _Ambiguous
        schema = self._repairer.resolved(schema)
        if self._repairer.valid(value, schema):
            return [(value, ())]
        if not isinstance(schema, dict):
            return []
        found: list[Reading] = []
        for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *_single(schema.get("allOf"))):
            found += self.readings(value, branch, path, depth=depth + 1)
        found += self._by_kind(value, schema, path, depth)
        return self._one_or_none(found, schema)

    def _by_kind(self, value: Any, schema: dict[str, Any], path: str, depth: int) -> Iterable[Reading]:
        admitted = _kinds(schema)
        if isinstance(value, dict) and "object" in admitted:
            yield self.keys_then_values(value, schema, path, partial=False, depth=depth)
        if isinstance(value, list) and "array" in admitted:
            yield from self._items(value, schema, path, depth)
        if isinstance(value, str) and admitted & _PARSED:
            parsed = _parsed(value)
            if parsed is not None and not isinstance(parsed, str):
                for reading, repairs in self.readings(parsed, schema, path, depth=depth + 1):
                    yield reading, (Repair(path, "string", kind(parsed)), *repairs)
        if isinstance(value, bool | int | float) and "string" in admitted and value not in self._lossy:
            yield json.dumps(value), (Repair(path, kind(value), "string"),)
        if "array" in admitted and not isinstance(value, list) and value is not None:
            for reading, repairs in self.readings([value], schema, path, depth=depth + 1):
                if isinstance(reading, list):
                    inner = tuple(Repair(path, r.from_kind, r.to_kind) if r.path == f"{path}/0" else r for r in repairs)
                    yield reading, (Repair(path, kind(value), "array"), *inner)

    def _items(self, value: list[Any], schema: dict[str, Any], path: str, depth: int) -> Iterable[Reading]:
        firsts: list[Any] = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        items: list[Any] = []
        repairs: list[Repair] = []
        for index, item in enumerate(value):
            of = firsts[index] if index < len(firsts) else rest
            readings = self.readings(item, of, f"{path}/{index}", depth=depth + 1)
            if not readings:
                return
            items.append(readings[0][0])
            repairs += readings[0][1]
        yield items, tuple(repairs)

    def keys_then_values(
        self, value: dict[str, Any], schema: Mapping[str, Any], path: str, *, partial: bool, depth: int = 0
    ) -> Reading:
        """*value* with its keys and then its members repaired; with *partial*, hopeless members stay as they are.

        Without *partial* an object with a hopeless member comes back invalid, and the caller drops it.
        """
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = frozenset(schema.get("required", ()))
        open_to = schema.get("additionalProperties", True)
        renamed = _renamed(value, properties, required, open_to is not False or "patternProperties" in schema)
        result: dict[str, Any] = {}
        repairs: list[Repair] = []
        for key, member in value.items():
            name = renamed.get(key, key)
            place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if name != key:
                repairs.append(Repair(place, "key", "key"))
            of = properties.get(name, open_to if "patternProperties" not in schema else True)
            may_be_left_out = name in properties and name not in required
            if member is None and may_be_left_out and not self._repairer.valid(None, self._repairer.resolved(of)):
                repairs.append(Repair(place, "null", "default"))
                continue
            try:
                readings = self.readings(member, of, place, depth=depth + 1) if name in properties or open_to else []
            except _Ambiguous:
                if not partial:
                    raise
                readings = []
            if readings:
                result[name] = readings[0][0]
                repairs += readings[0][1]
            else:
                result[name] = member
        return result, tuple(repairs)

    def _one_or_none(self, found: list[Reading], schema: dict[str, Any]) -> list[Reading]:
        distinct: dict[str, Reading] = {}
        for value, repairs in found:
            if self._repairer.valid(value, schema):
                distinct.setdefault(json.dumps(value, sort_keys=True), (value, repairs))
        if len(distinct) > 1:
            raise _Ambiguous
        return list(distinct.values())


def _renamed(
    value: Mapping[str, Any], properties: Mapping[str, Any], required: frozenset[str], open_to_others: bool
) -> dict[str, str]:
    """Keys that are a property but for case, `-` and `_`: each to the one property it can mean."""
    by_fold: dict[str, list[str]] = {}
    for name in properties:
        by_fold.setdefault(_fold(name), []).append(name)
    claims: dict[str, list[str]] = {}
    for key in value:
        if key not in properties:
            meant = by_fold.get(_fold(key), [])
            if len(meant) == 1 and meant[0] not in value and (meant[0] in required or not open_to_others):
                claims.setdefault(meant[0], []).append(key)
    return {keys[0]: name for name, keys in claims.items() if len(keys) == 1}


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")


def _single(schemas: Any) -> list[Any]:
    return schemas if isinstance(schemas, list) and len(schemas) == 1 else []


def _parsed(text: str) -> Any:
    try:
        return read(text)
    except BadText:
        return None


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a schema names, by itself or by what it lists; none where it names none."""
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(named)
    if "enum" in schema:
        return frozenset(kind(choice) for choice in schema["enum"])
    if "const" in schema:
        return frozenset({kind(schema["const"])})
    return frozenset()
