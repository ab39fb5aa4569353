"""Finds JSON keys that stand twice in an object, mostly by counting.

pydantic reads `{"a": 1, "a": 2}` as `{"a": 2}`. Another reader may see 1, so such text is refused. Parsing it a second
time to look would double the cost of a large call. But every key has its own colon: where a text has no more colons
than the keys that were surely read from it, no key stood twice. Only where the count leaves room is the text parsed
again. So a count may be too low, which costs time, and must never be too high, which would hide a duplicate.
"""

import types
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

Count = Callable[[Any], int]

_fields_set = attrgetter("__pydantic_fields_set__")


def counter(annotations: Mapping[str, Any]) -> Count | None:
    """What counts the keys inside validated arguments, below their names. None where there are none to count."""
    counts = [(name, count) for name, annotation in annotations.items() if (count := _count(annotation))]
    if not counts:
        return None

    def inside(arguments: dict[str, Any]) -> int:
        return sum(count(arguments[name]) for name, count in counts if arguments.get(name) is not None)

    return inside


def _count(annotation: Any) -> Count | None:
    """What counts the keys in a value of this type, if the type is one whose keys can be counted at a glance."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _count(inner[0]) if not any(map(_validates, inner[1:])) else None
    if origin in (Union, types.UnionType):
        chosen = [branch for branch in inner if branch is not type(None)]
        return _count(chosen[0]) if len(chosen) == 1 else None
    if origin is list and _plain_model(inner[0]):
        fixed = len(inner[0].model_fields)
        if all(field.is_required() for field in inner[0].model_fields.values()):
            return lambda items: len(items) * fixed
        return lambda items: sum(map(len, map(_fields_set, items)))
    if origin is dict and not _nested(inner[1]):
        return len
    if _plain_model(annotation):
        return lambda model: len(model.__pydantic_fields_set__)
    return None


def _plain_model(kind: Any) -> bool:
    """A model whose `fields_set` is just what was read: nothing of its own runs before or after validation."""
    return (
        isinstance(kind, type)
        and issubclass(kind, BaseModel)
        and not kind.__pydantic_decorators__.model_validators
        and kind.model_post_init is BaseModel.model_post_init
        and not kind.__pydantic_root_model__
        and kind.__init__ is BaseModel.__init__
        and all(field.validation_alias is None for field in kind.model_fields.values())
        and not any("__get_pydantic_core_schema__" in vars(base) for base in kind.__mro__ if base is not BaseModel)
    )


def _nested(annotation: Any) -> bool:
    return annotation not in (str, int, float, bool)


def _validates(extra: Any) -> bool:
    return type(extra).__name__.endswith("Validator")
