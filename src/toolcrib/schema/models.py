"""Pydantic models made of the arguments of a function, or of a JSON Schema."""

import inspect
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, NotRequired, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic.fields import FieldInfo

from ..core import ToolError
from .from_python import Arguments, stripped
from .required import require_schema
from .signature import Parameter, read_docstring, read_signature, unwrap_partials
from .validate import json_schema_check
from .view import KINDS, SchemaView


def arguments_model(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    without: Collection[str] = (),
    docs: Mapping[str, str] | None = None,
    config: ConfigDict | None = None,
) -> type[BaseModel]:
    """Return a pydantic model of the arguments that a model fills in for *fn*: the parameters but those *without*.

    Its fields, aliases, defaults and descriptions are those of the tool's input schema: `*args` is a list under its own
    name, `**kwargs` admits other names, what the host provides is left out. *docs* are descriptions by name, in place
    of those in the docstring. A parameter whose name a model cannot have for a field (`schema`, `_x`) is the alias of
    one. *config* is of the model, beside `extra="allow"` for `**kwargs`; by default it refuses other names, and NaN.
    `read_arguments` returns the arguments in a value of the model.

    Raises DefinitionError where *fn* cannot be a tool.
    """
    own_name = getattr(unwrap_partials(fn), "__name__", type(fn).__name__)
    label = f"Function '{own_name}'"
    signature = read_signature(fn, label=label)
    docs = read_docstring(signature.doc).parameters if docs is None else docs
    parameters = [parameter for parameter in signature.parameters if parameter.name not in without]
    inputs = Arguments(parameters, docs, label=label, names=signature.names)
    body = _class_body(inputs, parameters) | {"__module__": getattr(unwrap_partials(fn), "__module__", __name__)}
    config = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=()) | (config or ConfigDict())
    if inputs.extra is not None:
        body["__annotations__"]["__pydantic_extra__"] = dict[str, inputs.extra]  # type: ignore[name-defined]
        config["extra"] = "allow"
    model: type[BaseModel] = types.new_class(
        name or f"{own_name}_arguments", (BaseModel,), exec_body=lambda space: space.update(body, model_config=config)
    )
    if not model.__pydantic_complete__:
        model.model_rebuild(raise_errors=False, _types_namespace=dict(signature.names))
    return model


def _class_body(inputs: Arguments, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the annotations and the defaults of the fields for *inputs*, which are of *parameters*."""
    by_name = {parameter.name: parameter for parameter in parameters}
    body: dict[str, Any] = {"__annotations__": {}}
    for key, annotation in inputs.fields.items():
        kind, *extras = get_args(bare) if get_origin(bare := stripped(annotation)) is Annotated else (bare,)
        field = _field_name(key)
        body["__annotations__"][field] = bare if field == key else Annotated[(kind, Field(alias=key), *extras)]
        filled_in = any(isinstance(extra, FieldInfo) and not extra.is_required() for extra in extras)
        if get_origin(annotation) is NotRequired and not filled_in:
            is_shown = "default" in inputs.schema["properties"][inputs.aliases.get(key, key)]
            body[field] = by_name[key].default if is_shown else Field(default_factory=_factory(by_name.get(key)))
    return body


def read_arguments(arguments: BaseModel) -> dict[str, Any]:
    """Return the *arguments* in a value of an `arguments_model`, by the names of the parameters."""
    values = {}
    for field, info in type(arguments).model_fields.items():
        if info.default_factory is not _absent or field in arguments.model_fields_set:
            values[field.removeprefix(_PREFIX)] = getattr(arguments, field)
    return values | (arguments.model_extra or {})


_PREFIX = "argument_"


def _field_name(parameter: str) -> str:
    """Return the field for a parameter: another name where pydantic takes no such field, or has the name itself."""
    is_reserved = parameter.startswith(("_", _PREFIX)) or hasattr(BaseModel, parameter)
    return _PREFIX + parameter if is_reserved else parameter


def _factory(parameter: Parameter | None) -> Callable[[], Any]:
    """Return what makes a default that the schema does not show; None is an optional key of an unpacked TypedDict."""
    if parameter is None:
        return _absent
    return list if parameter.kind is inspect.Parameter.VAR_POSITIONAL else lambda: parameter.default


def _absent() -> None:
    """Marks an argument that has no default, and is not passed on when it was not sent."""


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
    options: dict[str, Any]
    for number, (key, member) in enumerate(view.members.items()):
        is_free = key.isidentifier() and not key.startswith("_") and not hasattr(BaseModel, key)
        field, options = (key, {}) if is_free else (f"field_{number}", {"alias": key})
        kind = _type(member, f"{name}_{key}")
        if key not in view.required:
            default = member.schema.get("default")
            options["default_factory"] = lambda default=default: default
            kind = kind if default is not None or kind is Any else kind | None
        fields[field] = (kind, Field(**options))
    return create_model(name, __base__=config_base, **fields)


def _type(view: SchemaView, name: str) -> Any:
    """Return the Python type of what is allowed at *view*; Any where it does not say as much, or contains itself."""
    forms = view.alternatives
    if forms != (view,):
        return _union(_type(form, f"{name}_{number}" if len(forms) > 1 else name) for number, form in enumerate(forms))
    if view.constants is not None:
        is_plain = all(isinstance(choice, str | int | None) for choice in view.constants)
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
