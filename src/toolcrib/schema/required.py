"""What a JSON Schema that somebody wrote must be, so that arguments can be checked against it."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pydantic_core

from ..core import DefinitionError
from .expansion import MOST, is_plainly_bounded, leads_to_itself, times_looked
from .json_schema_validator import validator
from .view import SchemaView


def require_schema(schema: Any, *, label: str) -> dict[str, Any]:
    """Return a copy of *schema*, if it is a JSON Schema 2020-12 of an object.

    Raises DefinitionError otherwise, with what is wrong with it.
    """
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"{label}: parameters= takes a JSON Schema as a mapping, not {type(schema).__name__}.")
    try:
        text = pydantic_core.to_json(schema)
        plain: dict[str, Any] = pydantic_core.from_json(text, allow_inf_nan=False)
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
    if (b'"$ref"' in text or b'"$dynamicRef"' in text) and not is_plainly_bounded(plain):
        _require_bounded(plain, label)
    return plain


def _require_bounded(schema: dict[str, Any], label: str) -> None:
    """Raise DefinitionError for references by which a short value takes for ever."""
    root = SchemaView(schema)
    if any(view.leads_out for view in [root, *root.reach()]) or not root.is_walkable:
        raise DefinitionError(
            f'{label}: parameters= refers by a name or an address of its own. Refer by place, like "#/$defs/name".'
        )
    try:
        place = leads_to_itself(schema)
        times = 0 if place is not None else times_looked(schema)
    except RecursionError:
        raise DefinitionError(f"{label}: in parameters=, too many references lead on from one to the next.") from None
    if place is not None:
        raise DefinitionError(
            f"{label}: in parameters=, '{place}' applies itself to the same value, so it expresses nothing. Let its "
            "references lead on to a member or an item."
        )
    if times > MOST:
        raise DefinitionError(
            f"{label}: in parameters=, the references double again and again, so that one value is looked at over "
            f"{MOST:,} times. Refer to each definition once for each value."
        )
