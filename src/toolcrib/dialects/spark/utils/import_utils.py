"""`spark.utils.import_utils`: text references (`module.path:name`) and what they lead to.

Offered: `import_from_ref`, `import_class_from_ref`, `safe_import_from_ref`, `validate_reference`,
`get_ref_for_callable`, `get_ref_for_class`, and `ImportError`, which is Python's own here: nothing is shadowed.
Importing runs a module's code; with *trusted* packages named, no other is imported.
"""

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from ....core import LoadError
from ....tools import imported, reference

ImportError = builtins.ImportError  # noqa: A001 - Spark's name for it


def import_from_ref(ref: str, *, trusted: Sequence[str] | None = None) -> Callable[..., Any]:
    """The callable at *ref*. Raises ImportError."""
    found = _import(ref, trusted)
    if not callable(found):
        raise ImportError(f"{ref!r} is not callable: it is a {type(found).__name__}.")
    made: Callable[..., Any] = found
    return made


def import_class_from_ref(ref: str, *, trusted: Sequence[str] | None = None) -> type[Any]:
    """The class at *ref*. Raises ImportError."""
    found = _import(ref, trusted)
    if not isinstance(found, type):
        raise ImportError(f"{ref!r} is not a class: it is a {type(found).__name__}.")
    return found


def safe_import_from_ref(ref: str, fallback: Any = None, *, trusted: Sequence[str] | None = None) -> Any:
    """The callable at *ref*, or *fallback* where it cannot be imported."""
    try:
        return import_from_ref(ref, trusted=trusted)
    except ImportError:
        return fallback


def validate_reference(ref: str, *, trusted: Sequence[str] | None = None) -> tuple[bool, str | None]:
    """Whether *ref* leads to a callable, and if not, why. It is imported to find out."""
    try:
        import_from_ref(ref, trusted=trusted)
    except ImportError as error:
        return False, str(error)
    return True, None


def get_ref_for_callable(func: Callable[..., Any]) -> str:
    """The reference by which *func* can be imported again.

    Raises ValueError for what cannot: a lambda, a local or bound function, one of `__main__`.
    """
    if not callable(func):
        raise ValueError(f"{func!r} is not callable.")
    return _require_reference(func)


def get_ref_for_class(cls: type[Any]) -> str:
    """The reference by which *cls* can be imported again. Raises ValueError for a local class, or one of `__main__`."""
    if not isinstance(cls, type):
        raise ValueError(f"{cls!r} is not a class.")
    return _require_reference(cls)


def _import(ref: str, trusted: Sequence[str] | None) -> Any:
    if not isinstance(ref, str):
        raise ImportError(f"A reference is text of the form 'module.path:name', not {type(ref).__name__}.")
    try:
        return imported(ref, trusted=trusted)
    except LoadError as error:
        raise ImportError(str(error)) from error


def _require_reference(value: Any) -> str:
    ref = reference(value)
    if ref is None:
        name = getattr(value, "__qualname__", None) or repr(value)
        raise ValueError(
            f"Cannot create reference for {name!r}: it is local, bound, a lambda or of '__main__'. "
            "Define it at the top of a module that can be imported."
        )
    return ref
