"""Whether no value fits two lowered schemas at once. Says no where it cannot tell."""

from collections.abc import Mapping
from typing import Any

from .combine import KINDS
from .document import kind

Definitions = Mapping[str, Mapping[str, Any]]


def apart(one: Mapping[str, Any], other: Mapping[str, Any], definitions: Definitions, *, depth: int = 0) -> bool:
    """Whether surely no value is valid under both *one* and *other*."""
    if depth > 12:
        return False
    one, other = _resolved(one, definitions), _resolved(other, definitions)
    for this, that in ((one, other), (other, one)):
        for word in ("anyOf", "oneOf"):
            if word in this and all(apart(branch, that, definitions, depth=depth + 1) for branch in this[word]):
                return True
        if "allOf" in this and any(apart(part, that, definitions, depth=depth + 1) for part in this["allOf"]):
            return True
    kinds, others = _kinds(one), _kinds(other)
    common = (kinds & others) | ({"integer"} if _numbers(kinds, others) else set())
    if not common:
        return True
    if ("enum" in one and "enum" in other) or "const" in one or "const" in other:
        values, of_other = _values(one), _values(other)
        if values is not None and of_other is not None:
            return not any(_same(a, b) for a in values for b in of_other)
    if common <= {"integer", "number"}:
        return _beyond(one, other) or _beyond(other, one)
    return common == {"object"} and _objects_apart(one, other, definitions, depth)


def _objects_apart(one: Mapping[str, Any], other: Mapping[str, Any], definitions: Definitions, depth: int) -> bool:
    for this, that in ((one, other), (other, one)):
        members, of_other = this.get("properties", {}), that.get("properties", {})
        for name in this.get("required", ()):
            if name in members and name in of_other:
                if apart(_schema(members[name]), _schema(of_other[name]), definitions, depth=depth + 1):
                    return True
            elif (
                that.get("additionalProperties") is False and name not in of_other and not that.get("patternProperties")
            ):
                return True
    return False


def _resolved(schema: Mapping[str, Any], definitions: Definitions) -> Mapping[str, Any]:
    for _ in range(8):
        ref = schema.get("$ref")
        if not isinstance(ref, str) or len(schema.keys() - {"title", "description"}) > 1:
            break
        schema = definitions.get(ref.rpartition("/")[2], {})
    return schema


def _schema(schema: Any) -> Mapping[str, Any]:
    if schema is False:
        return {"enum": []}
    return schema if isinstance(schema, Mapping) else {}


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    values = _values(schema)
    named = schema.get("type")
    kinds: set[str] = {named} if isinstance(named, str) else set(named or KINDS)
    if values is not None:
        of_values: set[str] = {kind(value) for value in values}
        kinds = {each for each in of_values if each in kinds or (each == "integer" and "number" in kinds)}
    return kinds


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema.get("enum")


def _same(one: Any, other: Any) -> bool:
    # True is no 1 in JSON, though it is in Python; 1.0 is.
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _numbers(kinds: set[str], others: set[str]) -> bool:
    # 1.0 is an integer, so two kinds of numbers always have some in common.
    return bool(kinds & {"integer", "number"}) and bool(others & {"integer", "number"})


def _beyond(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether all of *one* lies above all of *other*."""
    lowest, highest = one.get("minimum"), other.get("maximum")
    over, under = one.get("exclusiveMinimum"), other.get("exclusiveMaximum")
    if lowest is not None and ((highest is not None and lowest > highest) or (under is not None and lowest >= under)):
        return True
    return over is not None and ((highest is not None and over >= highest) or (under is not None and over >= under))
