"""Python values as the JSON values that a call would carry: every field, also those that a dump leaves out.

pydantic's own dumps skip excluded fields, mask secrets, run serializers and give sets in any order.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Set
from math import isfinite
from pathlib import PurePath
from typing import Any

import pydantic_core
from pydantic import AliasChoices, BaseModel, EncodedBytes, EncodedStr, RootModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic.types import Json, Secret

_PLAIN = frozenset({str, int, float, bool, type(None)})


class NotWritten(ValueError):
    """A value that no JSON document has the whole of. Its message gives the reason, and quotes no value."""


def is_plain(value: Any) -> bool:
    """Return whether *value* consists of JSON values only. Raises RecursionError."""
    kind = type(value)
    if kind is dict:
        return _PLAIN.issuperset(map(type, value.values())) or all(map(is_plain, value.values()))
    if kind is list:
        return _PLAIN.issuperset(map(type, value)) or all(map(is_plain, value))
    return kind in _PLAIN


def type_in_brackets(value: Any) -> str:
    """Return what stands for a value without a JSON form."""
    return f"<{type(value).__name__}>"


def written(
    value: Any, *, mask: str | None = None, strict: bool = True, other: Callable[[Any], Any] = type_in_brackets
) -> Any:
    """Return *value* as JSON values, by the names under which a model reads them; secrets as *mask*, if it is given.

    *other* converts what has no JSON form, and an iterator, which a look would use up. *strict*: it will be read again.
    Then scalars stay as they are, for pydantic to write; raises NotWritten for what cannot be.
    """

    def write(value: Any) -> Any:
        if type(value) in _PLAIN:
            return value if strict or not isinstance(value, float) or isfinite(value) else str(value)
        if isinstance(value, SecretStr | SecretBytes | Secret):
            inner = value.get_secret_value()
            return write(inner) if mask is None else mask if inner else ""
        if isinstance(value, RootModel):
            return write(value.root)
        if isinstance(value, BaseModel):
            return _model(value, write, strict)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _dataclass(value, write, strict)
        if isinstance(value, Mapping):
            pairs = [(name_in_json(key) if strict else _some_name(key), write(inner)) for key, inner in value.items()]
            members = dict(pairs)
            if strict and len(members) < len(value):
                raise NotWritten("two keys of a mapping are one name in JSON")
            return members if len(members) == len(value) else list(map(list, pairs))
        if isinstance(value, list | tuple):
            return [write(inner) for inner in value]
        if isinstance(value, Set):
            return sorted(map(write, value), key=lambda inner: json.dumps(inner, sort_keys=True, default=repr))
        if isinstance(value, PurePath):  # pydantic dumps only those of this system
            return str(value)
        if strict:
            return value
        try:
            if not isinstance(value, Iterator):
                return pydantic_core.to_jsonable_python(value, inf_nan_mode="strings")
        except (ValueError, RecursionError):
            pass
        return other(value)

    return write(value)


def _model(model: BaseModel, write: Any, strict: bool) -> dict[str, Any]:
    kind = type(model)
    members = {
        _sent_as(kind, name, info, strict): _encoded(model.__dict__[name], info, write)
        for name, info in kind.model_fields.items()
        if name in model.__dict__
    }
    return members | {name: write(inner) for name, inner in (model.__pydantic_extra__ or {}).items()}


def _sent_as(kind: type, name: str, info: FieldInfo, strict: bool) -> str:
    """Return the name by which *kind* reads a field; its own name, where it reads it from inside another one."""
    alias = info.validation_alias
    config: Mapping[str, Any] = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    if alias is None or config.get("validate_by_alias") is False:
        return name
    if isinstance(alias, AliasChoices):
        alias = next((choice for choice in alias.choices if isinstance(choice, str)), None)
    if isinstance(alias, str):
        return alias
    if config.get("validate_by_name") or config.get("populate_by_name") or not strict:
        return name
    raise NotWritten(f"the field '{name}' of {kind.__name__} is read from inside another one")


def _encoded(value: Any, info: FieldInfo, write: Any) -> Any:
    """Return the value of a field whose type says how it is written."""
    for extra in info.metadata:
        if isinstance(extra, EncodedBytes | EncodedStr) and isinstance(value, bytes | str):
            text = extra.encode(value) if isinstance(extra, EncodedBytes) else extra.encode_str(value)  # type: ignore[arg-type]
            return write(text)
        if extra is Json or type(extra).__name__ == "Json":
            return json.dumps(write(value))
    return write(value)


def _dataclass(value: Any, write: Any, strict: bool) -> dict[str, Any]:
    kind = type(value)
    init_only = [name for name, field in kind.__dataclass_fields__.items() if _is_init_only(field)]
    if init_only and strict:
        raise NotWritten(f"{kind.__name__} does not keep '{init_only[0]}', which only its constructor gets")
    infos: Mapping[str, FieldInfo] = getattr(kind, "__pydantic_fields__", {})
    members = {}
    for field in dataclasses.fields(value):
        if hasattr(value, field.name) and (field.init or not strict):
            info = infos.get(field.name)
            name = field.name if info is None else _sent_as(kind, field.name, info, strict)
            inner = getattr(value, field.name)
            members[name] = write(inner) if info is None else _encoded(inner, info, write)
    return members


def _is_init_only(field: Any) -> bool:
    return getattr(field, "_field_type", None) is getattr(dataclasses, "_FIELD_INITVAR", ())


def _some_name(key: Any) -> str:
    """Return the name of a key of a mapping for a look at it: also where JSON has none."""
    try:
        return name_in_json(key)
    except ValueError:
        return type_in_brackets(key)


def name_in_json(key: Any) -> str:
    """Return the name that a key of a mapping has in JSON."""
    if type(key) is str:
        return key
    (name,) = pydantic_core.to_jsonable_python({key: None})
    return str(name)
