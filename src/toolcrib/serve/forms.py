"""The forms of MCP's elicitation: JSON Schemas of one flat object, and how what is asked for becomes one."""

from collections.abc import Mapping
from typing import Any

from ..schema import inlined

_SIMPLE = ("string", "number", "integer", "boolean")


def form_schema(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool] | None:
    """Return the form for *schema*, and whether the answer is under its key `value`.

    None where no form can ask for it.
    """
    whole = inlined(schema)
    if "$defs" in whole:
        return None
    if whole.get("type") != "object":
        field = _field(whole)
        return (
            None if field is None else ({"type": "object", "properties": {"value": field}, "required": ["value"]}, True)
        )
    fields = {name: _field(inner) for name, inner in whole.get("properties", {}).items()}
    if not fields or None in fields.values():
        return None
    return {"type": "object", "properties": fields, "required": list(whole.get("required", ()))}, False


def _field(schema: Any) -> dict[str, Any] | None:
    """Return *schema* as that of one field; None where a form has none such."""
    if not isinstance(schema, Mapping):
        return None
    branches = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
    if len(branches) == 1 and "type" not in schema:  # a field that may be left out is not required; there is no null
        return _field({**{key: schema[key] for key in schema if key not in ("anyOf", "default")}, **branches[0]})
    if schema.get("type") == "array":
        items = schema.get("items")
        is_choice = isinstance(items, Mapping) and ("enum" in items or "anyOf" in items or "oneOf" in items)
        return dict(schema) if is_choice else None
    return dict(schema) if schema.get("type") in _SIMPLE else None
