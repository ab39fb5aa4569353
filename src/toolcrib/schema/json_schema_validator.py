"""Validators of JSON Schema 2020-12, by jsonschema-rs, offline."""

import functools
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
from pydantic_core import from_json, to_json

Validator = jsonschema_rs.Draft202012Validator


def validator(schema: Mapping[str, Any], *, formats: bool) -> Validator:
    """Return a validator for *schema* (JSON Schema 2020-12). A remote `$ref` is never fetched.

    Its messages name no values. Raises jsonschema_rs.ValidationError, ReferencingError or ValueError for a schema that
    is not valid.
    """
    return Validator(dict(schema), validate_formats=formats, offline=True, mask="the value")


def is_valid(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether *value* is valid, formats aside. A schema that was used lately costs only its text."""
    return _validator_of(to_json(dict(schema))).is_valid(value)


@functools.lru_cache(maxsize=512)
def _validator_of(schema: bytes) -> Validator:
    return validator(from_json(schema), formats=False)
