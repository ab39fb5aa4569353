"""Typed values as JSON values, with nothing left out.

pydantic's own dumps mask secrets, skip excluded fields and give sets in any order. But a policy must decide on all that
will run, and two calls that differ must not have one digest. These values are never displayed to anybody.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Set
from enum import Enum
from typing import Any

import pydantic_core
from pydantic import BaseModel, RootModel, SecretBytes, SecretStr

Other = Callable[[Any], Any]


def to_json_values(value: Any, other: Other) -> Any:
    """Return *value* as JSON values, names as in its JSON Schema; *other* converts a value that JSON cannot carry."""

    def walk(value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Enum):
            return walk(value.value)
        if isinstance(value, SecretStr | SecretBytes):
            return walk(value.get_secret_value())
        if isinstance(value, RootModel):
            return walk(value.root)
        if isinstance(value, BaseModel):
            return {name: walk(inner) for name, inner in _fields(value)}
        if isinstance(value, Mapping):
            return {_key(walk(key)): walk(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [walk(inner) for inner in value]
        if isinstance(value, Set):
            return sorted((walk(inner) for inner in value), key=lambda inner: json.dumps(inner, sort_keys=True))
        if isinstance(value, bytes | bytearray):
            return bytes(value).hex()
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: walk(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
        if isinstance(value, int | float | str):
            return walk(next(kind(value) for kind in (int, float, str) if isinstance(value, kind)))
        if isinstance(value, Iterator):
            return other(value)  # looking would use it up
        try:
            return pydantic_core.to_jsonable_python(value)
        except (ValueError, RecursionError):
            return other(value)

    return walk(value)


def _fields(model: BaseModel) -> Iterator[tuple[str, Any]]:
    fields = type(model).model_fields
    for name, value in vars(model).items():
        if name in fields:
            alias = fields[name].validation_alias
            yield (alias if isinstance(alias, str) else name), value
    yield from (model.model_extra or {}).items()


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, sort_keys=True)


def display_arguments(arguments: Mapping[str, Any]) -> str:
    """Return checked *arguments* as JSON text for a person, values of secret types masked. Exhausts iterators."""
    values = pydantic_core.to_jsonable_python(
        arguments, by_alias=True, serialize_unknown=True, bytes_mode="base64", inf_nan_mode="strings"
    )
    return json.dumps(values, ensure_ascii=False)
