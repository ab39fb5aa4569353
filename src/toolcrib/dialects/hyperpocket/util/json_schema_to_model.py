"""`hyperpocket.util.json_schema_to_model`: a pydantic model of a JSON Schema."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ....schema import inlined, model_from_schema

_ABOUT = ("title", "description", "default")


def json_schema_to_model(schema: dict[str, Any], model_name: str = "DynamicModel") -> type[BaseModel]:
    """Return a model of *schema*, an object: its properties as fields, those of objects in it as models.

    Other properties are refused, unless the schema admits them. What is not required may be left out, or None. A part
    that no type of Python expresses, such as one that contains itself, takes what the schema allows.
    """
    return model_from_schema(_closed(inlined({"type": "object", **schema})), model_name)


def _closed(schema: Any) -> Any:
    """*schema* without other properties, where it does not say that it has them, and with null for what is left out."""
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _closed(value) if key in ("items", "additionalProperties") else value for key, value in schema.items()}
    for key in ("anyOf", "oneOf"):
        if isinstance(made.get(key), list):
            made[key] = [_closed(branch) for branch in made[key]]
    if isinstance(properties := made.get("properties"), Mapping):
        required = made.get("required", ())
        closed = {key: _closed(value) for key, value in properties.items()}
        made["properties"] = {key: value if key in required else _or_null(value) for key, value in closed.items()}
        made = {"type": "object", "additionalProperties": False, **made}
    return made


def _or_null(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    about = {key: schema[key] for key in _ABOUT if key in schema}
    rest = {key: value for key, value in schema.items() if key not in _ABOUT}
    return {"anyOf": [rest, {"type": "null"}], **about} if rest else about
