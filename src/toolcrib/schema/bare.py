"""Bare JSON Schema: validators over it, with formats on, offline. Built on jsonschema-rs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import pydantic_core

from ..core import DefinitionError

Validator = jsonschema_rs.Draft202012Validator


def validator(schema: Mapping[str, Any], *, formats: bool) -> Validator:
    """A validator for *schema* (JSON Schema 2020-12). A remote `$ref` is never fetched.

    Its messages name no values. Raises jsonschema_rs.ValidationError, ReferencingError or ValueError for a schema
    that is none.
    """
    return Validator(dict(schema), validate_formats=formats, offline=True, mask="the value")


def admits(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether *value* is valid, formats aside."""
    return validator(schema, formats=False).is_valid(value)


def require_schema(schema: Any, *, label: str) -> dict[str, Any]:
    """A copy of *schema*, if it is a JSON Schema 2020-12 of an object.

    Raises DefinitionError otherwise, saying what is wrong with it.
    """
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"{label}: parameters= takes a JSON Schema as a mapping, not {type(schema).__name__}.")
    try:
        plain: dict[str, Any] = pydantic_core.from_json(pydantic_core.to_json(schema), allow_inf_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise DefinitionError(f"{label}: parameters= is no JSON: {str(error).partition(chr(10))[0]}.") from None
    if plain.get("type", "object") != "object":
        raise DefinitionError(
            f"{label}: the root of parameters= has type {plain['type']!r}. Arguments are an object: "
            '{"type": "object", "properties": {...}}.'
        )
    # Whatever version it names, it is read as 2020-12; the meta-schema says if that does not fit.
    plain = {"type": "object", **{key: value for key, value in plain.items() if key != "$schema"}}
    try:
        jsonschema_rs.meta.validate(plain)
        validator(plain, formats=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        said = getattr(error, "message", str(error))
        place = "/".join(map(str, getattr(error, "instance_path", ())))
        at = f" (at '/{place}')" if place else ""
        if not isinstance(error, jsonschema_rs.ValidationError) or error.kind.name in ("$ref", "$dynamicRef"):
            at += '. A $ref may only lead to a place in the schema itself, like "#/$defs/name"'
        raise DefinitionError(f"{label}: parameters= is no JSON Schema 2020-12: {said}{at}.") from None
    return plain


@dataclass(frozen=True, slots=True)
class Described:
    """The names that a schema of an object speaks of.

    Those it knows, those it requires in any case, whether it lets *others* in, and whether it is *composed* of parts
    that `additionalProperties` does not see.
    """

    known: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    others: bool = False
    composed: bool = False


def described(schema: Mapping[str, Any]) -> Described:
    """What *schema* says of names, by itself and by the parts it is composed of (`$ref`, `allOf`, `anyOf`, ...)."""
    return _described(schema, schema, frozenset())


_BRANCHES = ("anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else")


def _described(schema: Any, root: Mapping[str, Any], within: frozenset[int]) -> Described:
    if not isinstance(schema, dict) or id(schema) in within:
        return Described()
    within |= {id(schema)}
    known, required = set(schema.get("properties", ())), set(schema.get("required", ()))
    others = any(schema.get(f"{which}Properties", False) is not False for which in ("additional", "unevaluated"))
    others |= bool(schema.get("patternProperties"))
    certain = [*schema.get("allOf", ()), *([_at(root, schema["$ref"])] if "$ref" in schema else ())]
    possible = [schema[which] for which in _CONDITIONS if which in schema]
    possible += schema.get("dependentSchemas", {}).values()
    parts = [_described(part, root, within) for part in certain]
    for part in parts:
        required |= part.required
    for which in _BRANCHES:
        branches = [_described(branch, root, within) for branch in schema.get(which, ())]
        required |= frozenset.intersection(*(branch.required for branch in branches)) if branches else frozenset()
        parts += branches
    parts += [_described(part, root, within) for part in possible]
    return Described(
        frozenset(known.union(*(part.known for part in parts))),
        frozenset(required),
        others or any(part.others for part in parts),
        bool(parts),
    )


def _at(root: Any, ref: str) -> Any:
    """Where a `$ref` into the same document leads; nothing for any other."""
    for part in ref.removeprefix("#").split("/")[1:] if ref.startswith("#") else ():
        name = part.replace("~1", "/").replace("~0", "~")
        root = root.get(name) if isinstance(root, dict) else None
    return root if ref.startswith("#/") else None
