"""Validators of JSON Schema 2020-12, by jsonschema-rs, offline."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pydantic_core

from ..core import DefinitionError

Validator = jsonschema_rs.Draft202012Validator


def validator(schema: Mapping[str, Any], *, formats: bool) -> Validator:
    """Return a validator for *schema* (JSON Schema 2020-12). A remote `$ref` is never fetched.

    Its messages name no values. Raises jsonschema_rs.ValidationError, ReferencingError or ValueError for a schema that
    is not valid.
    """
    return Validator(dict(schema), validate_formats=formats, offline=True, mask="the value")


def is_valid(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether *value* is valid, formats aside."""
    return validator(schema, formats=False).is_valid(value)


def require_schema(schema: Any, *, label: str) -> dict[str, Any]:
    """Return a copy of *schema*, if it is a JSON Schema 2020-12 of an object.

    Raises DefinitionError otherwise, with what is wrong with it.
    """
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"{label}: parameters= takes a JSON Schema as a mapping, not {type(schema).__name__}.")
    try:
        plain: dict[str, Any] = pydantic_core.from_json(pydantic_core.to_json(schema), allow_inf_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise DefinitionError(f"{label}: parameters= is not JSON: {str(error).partition(chr(10))[0]}.") from None
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
        message = getattr(error, "message", str(error))
        place = "/".join(map(str, getattr(error, "instance_path", ())))
        at = f" (at '/{place}')" if place else ""
        if not isinstance(error, jsonschema_rs.ValidationError) or error.kind.name in ("$ref", "$dynamicRef"):
            at += '. A $ref may only lead to a place in the schema itself, like "#/$defs/name"'
        raise DefinitionError(f"{label}: parameters= is not a JSON Schema 2020-12: {message}{at}.") from None
    return plain
