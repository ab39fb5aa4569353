"""Finds JSON keys that stand twice in an object, mostly by counting.

pydantic reads `{"a": 1, "a": 2}` as `{"a": 2}`. Another reader may see 1, so such text is refused. Parsing it a second
time to look would double the cost of a large call. But every key has its own colon: where a text has no more of them
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

Counter = Callable[[Any], int]

_fields_set = attrgetter("__pydantic_fields_set__")


def unique_keys_test(annotations: Mapping[str, Any]) -> Callable[[str, dict[str, Any]], bool]:
    """Return a test of JSON text and the arguments read from it: true where surely no key stands twice in it."""
    counters = [(name, count) for name, annotation in annotations.items() if (count := _counter(annotation))]
    if not counters:
        return lambda text, arguments: len(arguments) == text.count(":") or len(arguments) == most_keys(text)

    def test(text: str, arguments: dict[str, Any]) -> bool:
        keys = len(arguments)
        for name, count in counters:
            if (value := arguments.get(name)) is not None:
                keys += count(value)
        return keys == text.count(":") or keys == most_keys(text)

    return test


def most_keys(text: str) -> int:
    """Return the most keys that JSON *text* can have: before the colon of each is its quote, or white space."""
    most = text.count('":') + text.count(" :")
    for space in "\n\r\t":
        if space in text:
            most += text.count(f"{space}:")
    return most


def _counter(annotation: Any) -> Counter | None:
    """Return what counts the keys surely read into a value of this type, where that is quick; None for no count."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _counter(inner[0]) if all(map(_is_harmless, inner[1:])) else None
    if origin in (Union, types.UnionType):
        branches = [branch for branch in inner if branch is not type(None)]
        return _counter(branches[0]) if len(branches) == 1 else None
    if origin is dict and inner[1] in (str, int, float, bool):
        return len
    if origin is list and (fields := _plain_fields(inner[0])) is not None:
        if all(field["schema"]["type"] in _NO_DEFAULT for field in fields.values()):
            return lambda items: len(items) * len(fields)
        return lambda items: sum(map(len, map(_fields_set, items)))
    return (lambda model: len(_fields_set(model))) if _plain_fields(annotation) is not None else None


def _plain_fields(kind: Any) -> dict[str, Any] | None:
    """Return the fields of a model that reads each from the key of its name and runs nothing of its own, or None.

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


def is_link(plan: Mapping[str, Any]) -> bool:
    """Return whether a plan is one of pydantic's classes for links (`AnyUrl`), which wrap pydantic-core's validator."""
    if plan["type"] != "function-wrap" or plan["schema"]["type"] not in ("url", "multi-host-url"):
        return False
    return getattr(plan["function"]["function"], "__module__", None) == "pydantic.networks"


def _is_harmless(extra: Any) -> bool:
    """Return whether an extra of `Annotated` only describes or restricts, and puts no other value in place."""
    if isinstance(extra, FieldInfo):
        return all(map(_is_harmless, extra.metadata))
    if hasattr(extra, "__get_pydantic_core_schema__") or isinstance(extra, annotated_types.Predicate):
        return False
    return isinstance(extra, str | annotated_types.BaseMetadata)


_NO_DEFAULT = frozenset(
    {"str", "datetime", "date", "time", "timedelta", "uuid", "url", "multi-host-url", "int", "float", "bool"}
    | {"list", "dict", "literal", "enum"}
)
"""Types of a field that is surely read: without it, there would be no model."""
