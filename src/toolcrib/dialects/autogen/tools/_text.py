"""What models read of a tool, in AutoGen's shapes: its parameters, its values, its errors."""

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
    """The JSON Schema of arguments that are one *model*, `$ref`s put in place, and closed to other names.

    Raises ValueError for a model that is no object.
    """
    schema = model.model_json_schema()
    if "$ref" in schema:  # a model that contains itself is only named here
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    properties = schema.get("properties", {})
    if schema.get("type", "object") != "object":
        raise ValueError(
            f"{model.__name__} is JSON of type '{schema['type']}'. The arguments of a tool are an object: give the "
            "model fields."
        )
    plain = inlined({**schema, "properties": {name: _own(name, shown) for name, shown in properties.items()}})
    parameters = {
        "type": "object",
        "properties": plain["properties"],
        "required": plain.get("required", []),
        "additionalProperties": plain.get("additionalProperties", False),
    }
    return {**parameters, "$defs": plain["$defs"]} if "$defs" in plain else parameters


def _own(name: str, shown: Any) -> Any:
    """Beside a `$ref`, a description that only repeats the name would hide that of the type."""
    if isinstance(shown, dict) and "$ref" in shown and shown.get("description") == name:
        return {key: value for key, value in shown.items() if key != "description"}
    return shown


def value_as_text(value: Any) -> str:
    """Text as it is, structured values as JSON, the rest as `str` has it."""
    if type(value) in _SCALARS or isinstance(value, str):
        return str(value)
    if isinstance(value, BaseModel):
        return _json_of_model(value)
    if isinstance(value, _JSON) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        try:
            written = pydantic_core.to_json(value, by_alias=False, inf_nan_mode="null", fallback=str)
        except (ValueError, RecursionError):  # bytes that are no UTF-8, half a character, something in itself
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
    plain = json.loads(written)  # a model that is written as a single value
    return written if plain is None else str(plain)


def _spaced(written: str) -> str:
    """Compact JSON as `json.dumps` writes it, with a space after each comma and colon: AutoGen's results have them.

    To let Python write it anew would take three times as long. No control character stands in JSON text.
    """
    if escaped := "\\" in written:
        written = written.replace("\\\\", "\1").replace('\\"', "\2")
    parts = written.split('"')  # every second one is inside a string
    parts[::2] = "\0".join(parts[::2]).replace(",", ", ").replace(":", ": ").split("\0")
    written = '"'.join(parts)
    return written.replace("\1", "\\\\").replace("\2", '\\"') if escaped else written


def error_as_text(error: BaseException) -> str:
    """The text of *error*, of each error in a group; its type, where it has none."""
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(map(error_as_text, error.exceptions))
    try:
        said = str(error).strip()
    except Exception as failed:
        return f"{type(error).__name__} (its text cannot be read: {type(failed).__name__})"
    return said or type(error).__name__
