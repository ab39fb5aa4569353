"""A pydantic model of a JSON Schema, for programs that want attributes.

Its fields have Python's types as far as those say what the schema does; the schema itself is what is shown, and what
the fields, once read, have to fit.
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from ..core import ToolError
from .dereference import inlined
from .required import require_schema
from .validate import json_schema_check

_ANY: Any = Any
_LITERAL: Any = Literal
_DICT: Any = dict
_LIST: Any = list
_SCALARS: Mapping[Any, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}


def model_from_schema(schema: Mapping[str, Any], name: str) -> type[BaseModel]:
    """Return a pydantic model *name* of the objects that *schema* allows.

    Values are read as pydantic reads them: text is taken for a number. A property that is not required and has no
    default is None where it is missing, and is not in `model_dump(exclude_unset=True)`. A name that a model cannot have
    for a field is the alias of one. Raises DefinitionError for what is not a JSON Schema of an object.
    """
    checked_schema = require_schema(schema, label=f"Model '{name}'")
    check = json_schema_check(name, checked_schema)

    class Shown(BaseModel):
        @model_validator(mode="after")
        def fits_the_schema(self) -> "Shown":
            try:
                check(self.model_dump(mode="json", by_alias=True, exclude_unset=True), False)
            except ToolError as error:
                raise ValueError(error.message.removeprefix(f"Tool '{name}': ")) from None
            return self

        @classmethod
        def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return {"title": name, **checked_schema}

    return _model(inlined(checked_schema), name, Shown)


def _model(schema: Mapping[str, Any], name: str, base: type[BaseModel]) -> type[BaseModel]:
    more = schema.get("additionalProperties")
    extra: Any = "forbid" if more is False else "ignore" if more is None else "allow"
    config = ConfigDict(extra=extra, protected_namespaces=(), serialize_by_alias=True)
    config_base = cast(type[BaseModel], type(base.__name__, (base,), {"model_config": config}))
    required = schema.get("required", ())
    fields: dict[str, Any] = {}
    for number, (key, of) in enumerate(schema.get("properties", {}).items()):
        is_free = key.isidentifier() and not key.startswith("_") and not hasattr(BaseModel, key)
        options: dict[str, Any] = {} if is_free else {"alias": key}
        kind = _type(of, f"{name}_{key}")
        if key not in required:
            default = of.get("default") if isinstance(of, Mapping) else None
            options["default_factory"] = lambda default=default: default
            kind = kind if default is not None or kind is Any else kind | None
        fields[key if is_free else f"field_{number}"] = (kind, Field(**options))
    return create_model(name, __base__=config_base, **fields)


def _type(schema: Any, name: str) -> Any:
    """Return the Python type of what *schema* allows; Any where none says as much."""
    if not isinstance(schema, Mapping):
        return _ANY
    if choices := [schema["const"]] if "const" in schema else schema.get("enum"):
        is_plain = all(choice is None or isinstance(choice, str | int | bool) for choice in choices)
        return _LITERAL[tuple(choices)] if is_plain else _ANY
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return _union(_type(branch, f"{name}_{number}") for number, branch in enumerate(branches))
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return _union(_type({**schema, "type": kind}, name) for kind in kinds)
    if kinds == "array":
        return _LIST[_type(schema.get("items"), f"{name}_item")]
    if kinds != "object":
        return _SCALARS.get(kinds, _ANY)
    if schema.get("properties"):
        return _model(schema, name, BaseModel)
    return _DICT[str, _type(schema.get("additionalProperties"), f"{name}_value")]


def _union(kinds: Any) -> Any:
    types = list(kinds)
    return _ANY if _ANY in types else reduce(or_, types)
