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
    for name, each in properties.items():
        if "$ref" in each and each.get("description") == name:
            del each["description"]  # it would replace the description of the type
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
            written = pydantic_core.to_json(value, by_alias=False, inf_nan_mode="null", fallback=str)
        except (ValueError, RecursionError):  # bytes that are not UTF-8, half a character, a value inside itself
            return str(value)
        return _spaced(written.decode())
    return str(value)


def _json_of_model(value: BaseModel) -> str:
    try:
        written = value.model_dump_json(fallback=str)
    except ValueError:
        return json.dumps(value.model_dump(), ensure_ascii=False, default=str)
    if written[0] in "{[":
        return _spaced(written)
    scalar = json.loads(written)
    return written if scalar is None else str(scalar)


def _spaced(written: str) -> str:
    """Return compact JSON with a space after each comma and colon, as `json.dumps` and AutoGen write it.

    `json.dumps` itself would take three times as long. JSON text has no control characters, so they can be markers.
    """
    if escaped := "\\" in written:
        written = written.replace("\\\\", "\1").replace('\\"', "\2")
    parts = written.split('"')  # every second part is inside a string
    parts[::2] = "\0".join(parts[::2]).replace(",", ", ").replace(":", ": ").split("\0")
    written = '"'.join(parts)
    return written.replace("\1", "\\\\").replace("\2", '\\"') if escaped else written


def error_as_text(error: BaseException) -> str:
    """Return the text of *error*, or of each error in a group; its type, if it has no text."""
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(map(error_as_text, error.exceptions))
    try:
        return str(error).strip() or type(error).__name__
    except Exception as failed:
        return f"{type(error).__name__} (its text cannot be read: {type(failed).__name__})"
