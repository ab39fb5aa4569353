"""Bare JSON Schema: validators over it, with formats on, offline. Built on jsonschema-rs."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

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
    """*schema*, if it is a JSON Schema 2020-12 of an object.

    Raises DefinitionError otherwise, saying what is wrong with it.
    """
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"{label}: parameters= takes a JSON Schema as a mapping, not {type(schema).__name__}.")
    plain: dict[str, Any] = dict(schema)
    if plain.get("type", "object") != "object":
        raise DefinitionError(
            f"{label}: the root of parameters= has type {plain['type']!r}. Arguments are an object: "
            '{"type": "object", "properties": {...}}.'
        )
    plain = {"type": "object", **plain}
    try:
        jsonschema_rs.meta.validate(plain)
        validator(plain, formats=True)
    except jsonschema_rs.ValidationError as error:
        place = "/".join(str(part) for part in error.instance_path)
        raise DefinitionError(f"{label}: parameters= is no JSON Schema: {error.message} (at '/{place}').") from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise DefinitionError(f"{label}: parameters= is no JSON Schema: {error}.") from None
    return plain
