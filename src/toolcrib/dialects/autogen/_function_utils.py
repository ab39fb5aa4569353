"""A function's signature, and the pydantic models and JSON Schemas of it, in AutoGen's shapes."""

import inspect
import logging
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.fields import FieldInfo

from ...schema import arguments_model, read_signature, unwrap_partials

logger = logging.getLogger("autogen_core._function_utils")

_EMPTY: Any = inspect.Parameter.empty
_ANNOTATED: Any = Annotated  # as Any, because type checkers expect types in the brackets
_LIST: Any = list
_INJECTED = "cancellation_token"
"""The parameter that the caller of a tool provides, never the model."""


def get_typed_signature(call: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of *call*, with its annotations resolved where they are text, and with all of `Annotated`.

    Raises DefinitionError where a name in an annotation is not defined.
    """
    written = inspect.signature(call)
    read = read_signature(unwrap_partials(call), label=f"Function '{name_of(call)}'")
    annotations = {parameter.name: parameter.annotation for parameter in read.parameters}
    return inspect.Signature(
        [each.replace(annotation=annotations.get(name, each.annotation)) for name, each in written.parameters.items()],
        return_annotation=read.returns,
    )


def get_typed_return_annotation(call: Callable[..., Any]) -> Any:
    """Return the annotation of what *call* returns; None if there is none, NoneType if it is None."""
    annotation = get_typed_signature(call).return_annotation
    return None if annotation is _EMPTY else annotation


def get_param_annotations(typed_signature: inspect.Signature) -> dict[str, Any]:
    """Return the annotations of the parameters that have one."""
    return {name: each.annotation for name, each in typed_signature.parameters.items() if each.annotation is not _EMPTY}


def get_required_params(typed_signature: inspect.Signature) -> list[str]:
    """Return the parameters without a default."""
    return [name for name, each in typed_signature.parameters.items() if each.default is _EMPTY]


def get_default_values(typed_signature: inspect.Signature) -> dict[str, Any]:
    """Return the defaults of the parameters that have one."""
    return {name: each.default for name, each in typed_signature.parameters.items() if each.default is not _EMPTY}


def get_missing_annotations(typed_signature: inspect.Signature, required: list[str]) -> tuple[set[str], set[str]]:
    """Return the parameters without an annotation: those that are *required*, and the others."""
    missing = {name for name, each in typed_signature.parameters.items() if each.annotation is _EMPTY}
    return missing & set(required), missing - set(required)


def normalize_annotated_type(type_hint: Any) -> Any:
    """Return *type_hint* without `Annotated` around it."""
    return get_args(type_hint)[0] if get_origin(type_hint) is Annotated else type_hint


def type2description(k: str, v: Any) -> str:
    """Return the description of the parameter *k*: a text or Field in its annotation *v*, or else its name.

    Raises ValueError where the first extra of `Annotated` is a value of another kind, such as a number.
    """
    extras = getattr(v, "__metadata__", ())
    if extras and isinstance(extras[0], _NO_DESCRIPTION):
        raise ValueError(f"Invalid description {extras[0]!s} for parameter {k}, should be a string.")
    descriptions = (each.description if isinstance(each, FieldInfo) else each for each in extras)
    return next((each for each in descriptions if isinstance(each, str)), k)


_NO_DESCRIPTION = (int, float, bytes, tuple, list, dict, set, type(None))


def args_base_model_from_signature(name: str, sig: inspect.Signature) -> type[BaseModel]:
    """Return the pydantic model *name* of the arguments of a function with the signature *sig*, without the token.

    `*args` is a list under its own name, `**kwargs` are extra fields. `toolcrib.schema.read_arguments` returns the
    arguments in a value of the model. Raises ValueError for a parameter without an annotation.
    """

    def function() -> None: ...

    described = [_described(parameter) for parameter in sig.parameters.values() if parameter.name != _INJECTED]
    vars(function)["__signature__"] = sig.replace(parameters=described)
    # Like AutoGen's, the model ignores unknown arguments. What reads the arguments of a call refuses them.
    return arguments_model(function, name=name, config=ConfigDict(extra="ignore", allow_inf_nan=True))


def _described(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return *parameter* with a description, as AutoGen has it, and with its default shown in any case."""
    annotation, default = parameter.annotation, parameter.default
    if annotation is _EMPTY:
        raise ValueError(
            f"The parameter '{parameter.name}' has no annotation. "
            f"Every parameter of a tool needs one, such as '{parameter.name}: str'."
        )
    description = type2description(parameter.name, annotation)
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return parameter
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        parameter = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        annotation, default = _LIST[annotation], []
    if isinstance(default, FieldInfo):
        annotation, description, default = _ANNOTATED[annotation, default], default.description or description, _EMPTY
    field = Field(description=description) if default is _EMPTY else Field(default=default, description=description)
    return parameter.replace(annotation=annotation, default=field)


def name_of(call: Any) -> str:
    """Return the name of the function, or of the class of the object, behind partials."""
    call = unwrap_partials(call)
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
    """Return the JSON Schema of the parameter *k* with the annotation *v*."""
    schema = TypeAdapter(v).json_schema()
    if k in default_values:
        schema["default"] = default_values[k]
    schema["description"] = type2description(k, v)
    return schema


def get_parameters(
    required: list[str], param_annotations: dict[str, Any], default_values: dict[str, Any]
) -> Parameters:
    """Return the parameters of a function from the parts of its signature."""
    return Parameters(
        properties={
            name: get_parameter_json_schema(name, annotation, default_values)
            for name, annotation in param_annotations.items()
            if annotation is not _EMPTY
        },
        required=required,
    )


def get_function_schema(f: Callable[..., Any], *, name: str | None = None, description: str) -> dict[str, Any]:
    """Return *f* as OpenAI's API describes tools. Raises TypeError where a required parameter has no annotation.

    A missing annotation of the return value, or of a parameter with a default, is logged as a warning.
    """
    typed = get_typed_signature(f)
    required = get_required_params(typed)
    missing, unannotated = get_missing_annotations(typed, required)
    function_name = name_of(f)
    if typed.return_annotation is _EMPTY:
        logger.warning(
            "The return type of the function '%s' is not annotated. Although annotating it is optional, the function "
            "should return either a string, a subclass of 'pydantic.BaseModel'.",
            function_name,
        )
    if unannotated:
        logger.warning(
            "The following parameters of the function '%s' with default values are not annotated: %s.",
            function_name,
            _quoted(unannotated),
        )
    if missing:
        raise TypeError(
            f"All parameters of the function '{function_name}' without default values must be annotated. "
            f"The annotations are missing for the following parameters: {_quoted(missing)}"
        )
    parameters = get_parameters(required, get_param_annotations(typed), get_default_values(typed))
    function = Function(description=description, name=name or function_name, parameters=parameters)
    return ToolFunction(function=function).model_dump()


def _quoted(names: set[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
