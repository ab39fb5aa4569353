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
from .required import require_schema
from .validate import json_schema_check
from .view import KINDS, SchemaView

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

    return _model(SchemaView(checked_schema), name, Shown)


def _model(view: SchemaView, name: str, base: type[BaseModel]) -> type[BaseModel]:
    extra: Any = "ignore" if view.additional is None else "forbid" if view.additional.is_false else "allow"
    config = ConfigDict(extra=extra, protected_namespaces=(), serialize_by_alias=True)
    config_base = cast(type[BaseModel], type(base.__name__, (base,), {"model_config": config}))
    fields: dict[str, Any] = {}
    for number, (key, member) in enumerate(view.members.items()):
        is_free = key.isidentifier() and not key.startswith("_") and not hasattr(BaseModel, key)
        options: dict[str, Any] = {} if is_free else {"alias": key}
        kind = _type(member, f"{name}_{key}")
        if key not in view.required:
            default = member.schema.get("default")
            options["default_factory"] = lambda default=default: default
            kind = kind if default is not None or kind is Any else kind | None
        fields[key if is_free else f"field_{number}"] = (kind, Field(**options))
    return create_model(name, __base__=config_base, **fields)


def _type(view: SchemaView, name: str) -> Any:
    """Return the Python type of what is allowed at *view*; Any where it does not say as much, or contains itself."""
    forms = view.alternatives
    if forms != (view,):
        return _union(_type(form, f"{name}_{number}" if len(forms) > 1 else name) for number, form in enumerate(forms))
    if view.constants is not None:
        is_plain = all(choice is None or isinstance(choice, str | int | bool) for choice in view.constants)
        return _LITERAL[tuple(view.constants)] if is_plain else _ANY
    if view.is_recursive:
        return _ANY
    return _union(_of_kind(view, kind, name) for kind in KINDS if kind in view.kinds)


def _of_kind(view: SchemaView, kind: str, name: str) -> Any:
    if kind == "array":
        return _LIST[_type(view.at("items"), f"{name}_item")]
    if kind != "object":
        return _SCALARS[kind]
    if view.members:
        return _model(view, name, BaseModel)
    return _DICT[str, _ANY if view.additional is None else _type(view.additional, f"{name}_value")]


def _union(kinds: Any) -> Any:
    types = list(kinds) or [_ANY]
    return _ANY if _ANY in types else reduce(or_, types)
