"""What models read of a tool, in AutoGen's shapes: its parameters, values and errors."""

import dataclasses
import json
from collections.abc import Mapping, Set
from typing import Any

import pydantic_core
from pydantic import BaseModel

from ....schema import inlined

_SCALARS = frozenset({str, int, float, bool})
_JSON = (dict, list, tuple, type(None), Mapping, Set)


def parameters_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of arguments that are one *model*, with `$ref`s inlined, and without other properties.

    Raises ValueError for a model that is not an object.
    """
    schema = model.model_json_schema()
    if "$ref" in schema:  # of a model that contains itself
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    properties = schema.get("properties", {})
    if schema.get("type", "object") != "object":
        raise ValueError(
            f"{model.__name__} is JSON of type '{schema['type']}'. The arguments of a tool are an object: use a model "
            "with fields."
        )
    for name, member in properties.items():
        if "$ref" in member and member.get("description") == name:
            del member["description"]  # it would replace the description of the type
    schema = inlined({**schema, "properties": properties})
    parameters = {
        "type": "object",
        "properties": schema["properties"],
        "required": schema.get("required", []),
        "additionalProperties": schema.get("additionalProperties", False),
    }
    return {**parameters, "$defs": schema["$defs"]} if "$defs" in schema else parameters


def value_as_text(value: Any) -> str:
    """Return text as it is, structured values as JSON, and the `str` of other values."""
    if type(value) in _SCALARS or isinstance(value, str):
        return str(value)
    if isinstance(value, BaseModel):
        return _json_of_model(value)
    if isinstance(value, _JSON) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        try:
            data = pydantic_core.to_json(value, by_alias=False, inf_nan_mode="null", fallback=str)
        except (ValueError, RecursionError):  # bytes that are not UTF-8, half a character, a value inside itself
            return str(value)
        return json.dumps(json.loads(data), ensure_ascii=False)
    return str(value)


def _json_of_model(value: BaseModel) -> str:
    """Return *value* as `json.dumps` writes its dump; a custom serializer may make text of it."""
    try:
        data = json.loads(value.model_dump_json(fallback=str))
    except ValueError:
        data = value.model_dump()
    is_scalar = isinstance(data, str | int | float)
    return str(data) if is_scalar else json.dumps(data, ensure_ascii=False, default=str)


def error_as_text(error: BaseException) -> str:
    """Return the text of *error*, or of each error in a group; its type, if it has no text."""
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(map(error_as_text, error.exceptions))
    try:
        return str(error).strip() or type(error).__name__
    except Exception as failed:
        return f"{type(error).__name__} (its text cannot be read: {type(failed).__name__})"
