"""Where what a source has is defined: file and line."""

import functools
import inspect
from contextlib import suppress
from types import CodeType
from typing import Any

from ..core import DefinitionError
from .function import Tool, is_tool
from .stateful import marked_methods


def place_of(value: Any) -> str | None:
    """Return the file and line of a tool, a function, a class or an object's class; None where unknown."""
    value = getattr(value, "fn", value) if is_tool(value) else value
    while isinstance(value, functools.partial):
        value = value.func
    try:
        code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
        if isinstance(code, CodeType):
            return f"{code.co_filename}:{code.co_firstlineno}"
        kind = value if isinstance(value, type) else type(value)
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except Exception:  # nothing that was written in a file, or a stand-in
        return None


def identity(tool: Tool[..., Any]) -> Any:
    """Return what two Tools have in common where one file only imports the tool of another."""
    code = getattr(inspect.unwrap(getattr(tool, "fn", None)), "__code__", None)  # type: ignore[arg-type]
    return id(tool) if code is None else (code.co_filename, code.co_firstlineno, tool.spec.name)


def place_of_error(value: Any) -> str | None:
    """Return where *value* is defined, or the first of its methods that cannot be a tool."""
    with suppress(DefinitionError):
        for definition in marked_methods(value if isinstance(value, type) else type(value)).values():
            try:
                definition()
            except DefinitionError:
                return place_of(definition.fn)
    return place_of(value)
