"""The identity of what a tool does: its code, its validators', and where it comes from a file, that of the file.

An approval of one body does not count for another. What cannot be seen from here, such as the code of functions that
are called, is not part of it.
"""

import functools
import inspect
import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any

CONTENT = "__toolcrib_content__"
"""The name under which a module that was made for a file has a digest of the file."""


def body_digest(functions: Iterable[Any]) -> str:
    """Return a digest of the code of *functions*."""
    import hashlib  # OpenSSL: who only defines tools needs none

    visited: set[int] = set()
    return hashlib.sha256(repr([_described(function, visited) for function in functions]).encode()).hexdigest()


def _described(value: Any, seen: set[int]) -> Any:
    """Return *value* as data with the same repr in every process."""
    if isinstance(value, CodeType):
        names = value.co_names, value.co_varnames[: value.co_argcount + value.co_kwonlyargcount], value.co_freevars
        return value.co_name, value.co_code, names, [_described(const, seen) for const in value.co_consts]
    if value is None or value is ... or type(value) in (bool, int, float, complex, str, bytes):
        return value
    if type(value) is tuple:
        return [_described(item, seen) for item in value]
    if type(value) is frozenset:
        return sorted(repr(_described(item, seen)) for item in value)
    if id(value) in seen:
        return "seen"
    seen.add(id(value))
    if isinstance(value, functools.partial):
        return "partial", _described((value.func, value.args, *value.keywords.items()), seen)
    if inspect.ismethod(value):
        return _described(value.__func__, seen)
    if inspect.isfunction(value):
        # Of what it closes over only functions: values change from call to call.
        inner = [content for cell in value.__closure__ or () if inspect.isfunction(content := _content(cell))]
        defaults = value.__defaults__, *(value.__kwdefaults__ or {}).items()
        file = getattr(sys.modules.get(value.__module__), CONTENT, None)
        parts = _described((value.__code__, defaults, *inner, getattr(value, "__wrapped__", None)), seen)
        return value.__qualname__, file, parts
    call = next((vars(kind)["__call__"] for kind in type(value).__mro__ if "__call__" in vars(kind)), None)
    own = _described(call, seen) if inspect.isfunction(call) else None
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__, kind.__qualname__, getattr(value, "__name__", ""), own


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
