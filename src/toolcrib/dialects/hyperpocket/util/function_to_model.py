"""`hyperpocket.util.function_to_model`: a pydantic model of a function's arguments."""

import inspect
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from ....core import DefinitionError
from ....schema import EMPTY, arguments_model, read_signature
from .extract_func_param_desc_from_docstring import extract_param_docstring_mapping

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def function_to_model(func: Callable[..., Any]) -> type[BaseModel]:
    """Return a model of the arguments of *func*, with its docstring and what that says of each.

    `*args` and `**kwargs` are not in it: what is in these comes from the host. Raises DefinitionError for a parameter
    without an annotation.
    """
    name = getattr(func, "__name__", None) or type(func).__name__
    label = f"Function '{name}'"
    written = read_signature(func, label=label).parameters
    left_out = {each.name for each in written if each.kind in _VARIADIC}
    left_out |= {each.name for each in written[:1] if each.name in ("self", "cls")}
    for each in written:
        if each.annotation is EMPTY and each.name not in left_out:
            raise DefinitionError(
                f"{label}: parameter '{each.name}' has no annotation, so no model could know what to send. Annotate it."
            )
    model = arguments_model(
        func, name=f"{name.capitalize()}Model", without=left_out, docs=extract_param_docstring_mapping(func)
    )
    model.__doc__ = inspect.getdoc(func) or name
    return model
