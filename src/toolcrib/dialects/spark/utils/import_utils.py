"""`spark.utils.import_utils`: references in text, `module.path:name`.

Importing a module runs its code; with *trusted* packages, nothing outside of them is imported. `ImportError` is
Python's own here.
"""

import builtins
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ....core import LoadError
from ....tools import imported, reference

ImportError = builtins.ImportError  # noqa: A001 - Spark's name for it


def import_from_ref(ref: str, *, trusted: Sequence[str] | None = None) -> Callable[..., Any]:
    """Return the callable at *ref*. Raises ImportError."""
    return _import(ref, trusted, callable, "callable")  # type: ignore[no-any-return]


def import_class_from_ref(ref: str, *, trusted: Sequence[str] | None = None) -> type[Any]:
    """Return the class at *ref*. Raises ImportError."""
    return _import(ref, trusted, lambda value: isinstance(value, type), "a class")  # type: ignore[no-any-return]


def safe_import_from_ref(ref: str, fallback: Any = None, *, trusted: Sequence[str] | None = None) -> Any:
    """Return the callable at *ref*, or *fallback* if it cannot be imported."""
    try:
        return import_from_ref(ref, trusted=trusted)
    except ImportError:
        return fallback


def validate_reference(ref: str, *, trusted: Sequence[str] | None = None) -> tuple[bool, str | None]:
    """Return whether there is a callable at *ref*, and the error if not. This imports it."""
    try:
        import_from_ref(ref, trusted=trusted)
    except ImportError as error:
        return False, str(error)
    return True, None


def get_ref_for_callable(func: Callable[..., Any]) -> str:
    """Return the reference by which *func* can be imported again.

    Raises ValueError if there is none: a lambda, a local or bound function, one of `__main__`.
    """
    ref = reference(func)
    if ref is None:
        name = getattr(func, "__qualname__", None) or repr(func)
        raise ValueError(
            f"Cannot create reference for {name!r}: it is local, bound, a lambda or of '__main__'. "
            "Define it at the top level of a module that can be imported."
        )
    return ref


def get_ref_for_class(cls: type[Any]) -> str:
    """Return the reference by which *cls* can be imported again. Raises ValueError for a local class, or no class."""
    if not isinstance(cls, type):
        raise ValueError(f"{cls!r} is not a class.")
    return get_ref_for_callable(cls)


def _import(ref: str, trusted: Sequence[str] | None, is_wanted: Callable[[Any], bool], kind: str) -> Any:
    """Return the value at *ref*. Raises ImportError, in Spark's words, which programs match."""
    module, _, path = str(ref).partition(":")
    if not isinstance(ref, str) or not all(part.isidentifier() for part in f"{module}.{path}".split(".")):
        raise ImportError(f"Invalid reference format: {str(ref)[:100]!r}. It is text of the form 'module.path:name'.")
    try:
        value = imported(ref, trusted=trusted)
    except LoadError as error:
        words = "" if sys.modules.get(module) else f"Cannot import module {module!r}: "
        raise ImportError(f"{words}{error}") from error
    if not is_wanted(value):
        raise ImportError(f"{ref!r} is not {kind}: it is a {type(value).__name__}.")
    return value
