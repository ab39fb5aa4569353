"""A function's signature, and the models and schemas made of it, in AutoGen's shapes.

The core reads the signature. What is here gives it the form that AutoGen's users know.
"""

import inspect
import logging
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo

from ...schema import innermost, read_signature

logger = logging.getLogger("autogen_core._function_utils")

_EMPTY: Any = inspect.Parameter.empty
_ANNOTATED: Any = Annotated  # as Any, for type checkers take what stands in the brackets for a type
_LIST: Any = list
_DICT: Any = dict
_HANDED_IN = "cancellation_token"
"""The parameter that the caller of a tool fills in, never the model."""


def get_typed_signature(call: Callable[..., Any]) -> inspect.Signature:
    """The signature of *call*, with annotations that were written as text resolved, and with their `Annotated` extras.

    What is not annotated stays empty. Raises DefinitionError where a name in an annotation is not defined.
    """
    written = inspect.signature(call)
    read = read_signature(innermost(call), label=f"Function '{name_of(call)}'")
    annotations = {parameter.name: parameter.annotation for parameter in read.parameters}
    return inspect.Signature(
        [each.replace(annotation=annotations.get(name, each.annotation)) for name, each in written.parameters.items()],
        return_annotation=read.returns,
    )


def get_typed_return_annotation(call: Callable[..., Any]) -> Any:
    """What *call* says it returns; None if it says nothing, NoneType if it says None."""
    annotation = get_typed_signature(call).return_annotation
    return None if annotation is _EMPTY else annotation


def get_param_annotations(typed_signature: inspect.Signature) -> dict[str, Any]:
    """The annotations of the parameters that have one."""
    return {name: each.annotation for name, each in typed_signature.parameters.items() if each.annotation is not _EMPTY}


def get_required_params(typed_signature: inspect.Signature) -> list[str]:
    """The parameters without a default."""
    return [name for name, each in typed_signature.parameters.items() if each.default is _EMPTY]


def get_default_values(typed_signature: inspect.Signature) -> dict[str, Any]:
    """The defaults of the parameters that have one."""
    return {name: each.default for name, each in typed_signature.parameters.items() if each.default is not _EMPTY}


def get_missing_annotations(typed_signature: inspect.Signature, required: list[str]) -> tuple[set[str], set[str]]:
    """The parameters without an annotation: those of them that are *required*, and the others."""
    missing = {name for name, each in typed_signature.parameters.items() if each.annotation is _EMPTY}
    return missing & set(required), missing - set(required)


def normalize_annotated_type(type_hint: Any) -> Any:
    """*type_hint* without `Annotated` around it."""
    return get_args(type_hint)[0] if get_origin(type_hint) is Annotated else type_hint


def type2description(k: str, v: Any) -> str:
    """What the annotation *v* says of the parameter *k*: a text in `Annotated`, a Field's description, else its name.

    Raises ValueError where a description should stand and something else does, such as a number.
    """
    extras = getattr(v, "__metadata__", ())
    if extras and isinstance(extras[0], _NO_DESCRIPTION):
        raise ValueError(f"Invalid description {extras[0]!s} for parameter {k}, should be a string.")
    said = (each.description if isinstance(each, FieldInfo) else each for each in extras)
    return next((each for each in said if isinstance(each, str)), k)


_NO_DESCRIPTION = (int, float, bytes, tuple, list, dict, set, type(None))


def args_base_model_from_signature(name: str, sig: inspect.Signature) -> type[BaseModel]:
    """The pydantic model *name* of the arguments that a model fills in for a function with the signature *sig*.

    `*args` is a list under its own name; `**kwargs` takes what has no name. `read_arguments` gives the arguments back.
    Raises ValueError for a parameter without an annotation.
    """
    fields: dict[str, Any] = {}
    base: type[BaseModel] = BaseModel
    for parameter in sig.parameters.values():
        if parameter.name == _HANDED_IN:
            continue
        if parameter.annotation is _EMPTY:
            raise ValueError(
                f"No annotation of the parameter '{parameter.name}'. "
                f"A tool's parameters all have one: write '{parameter.name}: str', or whatever it takes."
            )
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            base = _open_model(parameter.annotation)
        else:
            fields[_field_name(parameter.name)] = _field(parameter)
    return create_model(name, __base__=base, **fields)


def read_arguments(args: BaseModel, sig: inspect.Signature) -> dict[str, Any]:
    """The arguments in *args*, a value of the model of *sig*, by the names of the parameters, for `bind_arguments`."""
    found = {
        name: getattr(args, _field_name(name))
        for name, parameter in sig.parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD and _field_name(name) in type(args).model_fields
    }
    return found | (args.model_extra or {})


def bind_arguments(sig: inspect.Signature, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """*given*, arguments by name, as Python's call takes them: by position where it must be, else by keyword."""
    by_place: list[Any] = []
    by_name = dict(given)
    rest = next((each.name for each in sig.parameters.values() if each.kind is inspect.Parameter.VAR_POSITIONAL), None)
    for name, parameter in sig.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            by_place += by_name.pop(name, ())
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY or (
            # What stands before *args can only be given by position once *args has anything in it.
            parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and rest is not None and by_name.get(rest)
        ):
            by_place += [by_name.pop(name)] if name in by_name else []
    return by_place, by_name


def _field_name(name: str) -> str:
    """The field for the parameter *name*: another one where pydantic takes no such field, or has the name itself."""
    return f"argument_{name}" if name.startswith("_") or hasattr(BaseModel, name) else name


def _field(parameter: inspect.Parameter) -> tuple[Any, Any]:
    annotation, default = parameter.annotation, parameter.default
    said = [extra for extra in getattr(annotation, "__metadata__", ()) if not isinstance(extra, str)]
    description = type2description(parameter.name, annotation)
    if isinstance(default, FieldInfo):
        said.append(default)
        description, default = default.description or description, _EMPTY
    kind = normalize_annotated_type(annotation)
    kind = _ANNOTATED[(kind, *said)] if said else kind
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        kind, default = _LIST[kind], []
    options: dict[str, Any] = {"description": description}
    if default is not _EMPTY:
        options["default"] = default
    if _field_name(parameter.name) != parameter.name:
        options["alias"] = parameter.name
    return kind, Field(**options)


def _open_model(annotation: Any) -> type[BaseModel]:
    """A base for models that take more than their fields, each value of the type *annotation*."""
    made: type[BaseModel] = types.new_class(
        "Open",
        (BaseModel,),
        exec_body=lambda body: body.update(
            __module__=__name__,
            __annotations__={"__pydantic_extra__": _DICT[str, annotation]},
            model_config=ConfigDict(extra="allow"),
        ),
    )
    return made


def name_of(call: Any) -> str:
    """The name of the function, or of the class of the object, behind partials."""
    call = innermost(call)
    return getattr(call, "__name__", None) or type(call).__name__


# Functions as OpenAI's API describes them


class Parameters(BaseModel):
    """The parameters of a function."""

    type: Literal["object"] = "object"
    properties: dict[str, dict[str, Any]]
    required: list[str]


class Function(BaseModel):
    """A function."""

    description: Annotated[str, Field(description="Description of the function")]
    name: Annotated[str, Field(description="Name of the function")]
    parameters: Annotated[Parameters, Field(description="Parameters of the function")]


class ToolFunction(BaseModel):
    """A function as a tool."""

    type: Literal["function"] = "function"
    function: Annotated[Function, Field(description="Function under tool")]


def get_parameter_json_schema(k: str, v: Any, default_values: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of the parameter *k* with the annotation *v*."""
    schema = TypeAdapter(v).json_schema()
    if k in default_values:
        schema["default"] = default_values[k]
    schema["description"] = type2description(k, v)
    return schema


def get_parameters(
    required: list[str], param_annotations: dict[str, Any], default_values: dict[str, Any]
) -> Parameters:
    """The parameters of a function whose parts were read from its signature."""
    return Parameters(
        properties={
            name: get_parameter_json_schema(name, annotation, default_values)
            for name, annotation in param_annotations.items()
            if annotation is not _EMPTY
        },
        required=required,
    )


def get_function_schema(f: Callable[..., Any], *, name: str | None = None, description: str) -> dict[str, Any]:
    """The function *f* as OpenAI's API describes tools. Raises TypeError where a required parameter has no annotation.

    A missing annotation of what it returns, or of a parameter with a default, is logged as a warning.
    """
    typed = get_typed_signature(f)
    required = get_required_params(typed)
    missing, unannotated = get_missing_annotations(typed, required)
    said = name_of(f)
    if typed.return_annotation is _EMPTY:
        logger.warning(
            "The return type of the function '%s' is not annotated. Although annotating it is optional, the function "
            "should return either a string, a subclass of 'pydantic.BaseModel'.",
            said,
        )
    if unannotated:
        logger.warning(
            "The following parameters of the function '%s' with default values are not annotated: %s.",
            said,
            _quoted(unannotated),
        )
    if missing:
        raise TypeError(
            f"All parameters of the function '{said}' without default values must be annotated. "
            f"The annotations are missing for the following parameters: {_quoted(missing)}"
        )
    parameters = get_parameters(required, get_param_annotations(typed), get_default_values(typed))
    function = Function(description=description, name=name or said, parameters=parameters)
    return ToolFunction(function=function).model_dump()


def _quoted(names: set[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
