"""`hyperpocket.util.flatten_json_schema`: JSON Schema without references."""

from typing import Any

from ....schema import inlined


def flatten_json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* with what its references lead to in their place. What contains itself stays a reference."""
    return inlined(schema)
