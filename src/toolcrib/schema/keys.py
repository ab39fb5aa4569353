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

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

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


def most_keys(text: str) -> int:
    """The most keys that JSON *text* can have: the colon of each stands behind its quote, or behind white space.

    Fewer than its colons where there are times, links or sentences in it.
    """
    most = text.count('":') + text.count(" :")
    for space in "\n\r\t":
        if space in text:
            most += text.count(f"{space}:")
    return most


def _count(annotation: Any) -> Count | None:
    """What counts the keys in a value of this type, if the type is one whose keys can be counted at a glance."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _count(inner[0]) if all(map(_harmless, inner[1:])) else None
    if origin in (Union, types.UnionType):
        chosen = [branch for branch in inner if branch is not type(None)]
        return _count(chosen[0]) if len(chosen) == 1 else None
    if origin is list and (fields := _plain_fields(inner[0])) is not None:
        fixed = len(fields)
        if all(field["schema"]["type"] in _NO_DEFAULT for field in fields.values()):
            return lambda items: len(items) * fixed
        return lambda items: sum(map(len, map(_fields_set, items)))
    if origin is dict and inner[1] in _SCALARS:
        return len
    if _plain_fields(annotation) is not None:
        return lambda model: len(model.__pydantic_fields_set__)
    return None


def _plain_fields(kind: Any) -> dict[str, Any] | None:
    """The fields of a model that reads each from the key of its name, and runs nothing of its own; None for others.

    The `fields_set` of such a model are just keys that were read. It is pydantic's own plan of the model that is
    looked at, so nothing a class can do to it (validators, `model_post_init`, `__init__`, a root, aliases and their
    generators, hooks of its base classes) goes unseen.
    """
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return None
    plan = kind.__dict__.get("__pydantic_core_schema__")
    if not isinstance(plan, dict) or plan["type"] != "model" or plan["cls"] is not kind:
        return None
    inner = plan["schema"]
    hooked = plan.get("root_model") or plan.get("custom_init") or plan.get("post_init")
    # A class that writes its own plan may write another one next time.
    writes_own = any("__get_pydantic_core_schema__" in vars(base) for base in kind.__mro__ if base is not BaseModel)
    if hooked or writes_own or inner["type"] != "model-fields":
        return None
    fields: dict[str, Any] = inner["fields"]
    return None if any("validation_alias" in field for field in fields.values()) else fields


def _harmless(extra: Any) -> bool:
    """Whether an extra of `Annotated` only describes or restricts, and puts no other value in place."""
    if isinstance(extra, FieldInfo):
        return all(map(_harmless, extra.metadata))
    if hasattr(extra, "__get_pydantic_core_schema__") or isinstance(extra, annotated_types.Predicate):
        return False
    return isinstance(extra, str | annotated_types.BaseMetadata)


_SCALARS = (str, int, float, bool)
_NO_DEFAULT = frozenset({"str", "int", "float", "bool", "list", "dict", "literal", "enum", "datetime", "date", "uuid"})
"""Kinds of a field that is surely read: without it, there would be no model."""
