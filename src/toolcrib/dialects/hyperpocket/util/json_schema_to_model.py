"""`hyperpocket.util.json_schema_to_model`: a pydantic model of a JSON Schema."""

import types
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from ....schema import inlined

_TYPES: Mapping[str, Any] = {
    "integer": int,
    "string": str,
    "boolean": bool,
    "number": float,
    "null": type(None),
    "none": type(None),
}


def json_schema_to_model(schema: dict[str, Any], model_name: str = "DynamicModel") -> type[BaseModel]:
    """Return a model of *schema*, an object: its properties as fields, those of objects in it as models.

    Other properties are refused, unless the schema admits them. What is not required may be left out, or None. A part
    that no type of Python expresses, such as one that contains itself, takes anything.
    """
    return _model(inlined(schema), model_name, model_name)


def _model(schema: Mapping[str, Any], name: str, title: str) -> type[BaseModel]:
    others = schema.get("additionalProperties", False)
    body: dict[str, Any] = {
        "model_config": ConfigDict(title=title, extra="forbid" if others is False else "allow", protected_namespaces=())
    }
    if isinstance(others, Mapping):
        body["__annotations__"] = {"__pydantic_extra__": dict[str, _type(others, f"{name}_other")]}  # type: ignore[misc]
    base = types.new_class(name, (BaseModel,), exec_body=lambda space: space.update(body, __module__=__name__))
    required = schema.get("required", ())
    fields: Any = {
        _field_name(each): _field(each, of, f"{name}_{each}", is_required=each in required)
        for each, of in schema.get("properties", {}).items()
    }
    made: type[BaseModel] = create_model(name, __base__=base, __module__=__name__, **fields)
    made.__doc__ = schema.get("description")
    return made


def _field(name: str, schema: Mapping[str, Any], model_name: str, *, is_required: bool) -> tuple[Any, Any]:
    # Title and description are those of the field, so that they stand beside the reference to its model.
    kind = _type({key: value for key, value in schema.items() if key not in ("title", "description")}, model_name)
    about: dict[str, Any] = {"description": schema.get("description"), "title": schema.get("title")}
    if name != _field_name(name):
        about["alias"] = name
    if is_required:
        return kind, Field(**about)
    return kind | None, Field(default=schema.get("default"), **about)


def _field_name(name: str) -> str:
    """The field for a property: another name where pydantic takes no such field, or has the name itself."""
    return f"field_{name}" if name.startswith("_") or hasattr(BaseModel, name) else name


def _type(schema: Any, name: str) -> Any:
    if not isinstance(schema, Mapping):
        return Any
    if "const" in schema or "enum" in schema:
        return _literal([schema["const"]] if "const" in schema else schema["enum"])
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return _union([_type(branch, f"{name}_{number}") for number, branch in enumerate(branches)])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union([_type({**schema, "type": each}, name) for each in kind])
    if kind == "object" or (kind is None and "properties" in schema):
        if "properties" in schema:
            return _model(schema, name, schema.get("title", name))
        others = schema.get("additionalProperties", True)
        return dict[str, _type(others, name)] if isinstance(others, Mapping) else dict[str, Any]  # type: ignore[misc]
    if kind == "array":
        return list[_type(schema.get("items"), f"{name}_item")]  # type: ignore[misc]
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any


def _literal(values: Sequence[Any]) -> Any:
    return Literal[tuple(values)] if all(isinstance(value, str | int | None) for value in values) else Any


def _union(kinds: Sequence[Any]) -> Any:
    return Any if Any in kinds or not kinds else reduce(or_, kinds)
