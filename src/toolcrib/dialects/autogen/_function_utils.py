"""A function's signature, and the pydantic model of its arguments, in AutoGen's shapes."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from ...schema import arguments_model, read_signature, unwrap_partials

_EMPTY: Any = inspect.Parameter.empty
_ANNOTATED: Any = Annotated  # as Any, because type checkers expect types in the brackets
_LIST: Any = list
_INJECTED = "cancellation_token"
"""The parameter that the caller of a tool provides, never the model."""


def get_typed_signature(call: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of *call*, with its annotations resolved where they are text, and with all of `Annotated`.

    Raises DefinitionError where a name in an annotation is not defined.
    """
    signature = inspect.signature(call)
    read = read_signature(unwrap_partials(call), label=f"Function '{name_of(call)}'")
    annotations = {parameter.name: parameter.annotation for parameter in read.parameters}
    return inspect.Signature(
        [p.replace(annotation=annotations.get(name, p.annotation)) for name, p in signature.parameters.items()],
        return_annotation=read.returns,
    )


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
    descriptions = (extra.description if isinstance(extra, FieldInfo) else extra for extra in extras)
    return next((text for text in descriptions if isinstance(text, str)), k)


_NO_DESCRIPTION = (int, float, bytes, tuple, list, dict, set, type(None))


def args_base_model_from_signature(name: str, sig: inspect.Signature) -> type[BaseModel]:
    """Return the pydantic model *name* of the arguments of a function with the signature *sig*, without the token.

    `*args` is a list under its own name, `**kwargs` are extra fields. `toolcrib.schema.read_arguments` returns the
    arguments in a value of the model. Raises ValueError for a parameter without an annotation.
    """

    def function() -> None: ...

    parameters = [_described(parameter) for parameter in sig.parameters.values() if parameter.name != _INJECTED]
    vars(function)["__signature__"] = sig.replace(parameters=parameters)
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
