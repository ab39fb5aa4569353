"""`hyperpocket.util.function_to_model`: a pydantic model of a function's arguments."""

import inspect
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from ....core import DefinitionError
from ....schema import EMPTY, arguments_model, read_signature
from .extract_func_param_desc_from_docstring import extract_param_docstring_mapping

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def function_to_model(func: Callable[..., Any]) -> type[BaseModel]:
    """Return a model of the arguments of *func*, with its docstring and what that says of each.

    `*args` and `**kwargs` are not in it: they are the host's. Raises DefinitionError for a parameter without an
    annotation.
    """
    name = getattr(func, "__name__", None) or type(func).__name__
    label = f"Function '{name}'"
    hidden = set()
    for number, parameter in enumerate(read_signature(func, label=label).parameters):
        if parameter.kind in VARIADIC or (number == 0 and parameter.name in ("self", "cls")):
            hidden.add(parameter.name)
        elif parameter.annotation is EMPTY:
            raise DefinitionError(f"{label}: parameter '{parameter.name}' has no annotation. Annotate it.")
    model = arguments_model(
        func, name=f"{name.capitalize()}Model", without=hidden, docs=extract_param_docstring_mapping(func)
    )
    model.__doc__ = inspect.getdoc(func) or name
    return model
