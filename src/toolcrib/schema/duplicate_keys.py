"""Finds JSON keys that stand twice in an object, mostly by counting.

pydantic reads `{"a": 1, "a": 2}` as `{"a": 2}`. Another reader may see 1, so such text is refused. Parsing it a second
time to look would double the cost of a large call. But every key has its own colon, and its own two quotes: where a
text has no more of them than the keys (and strings) that were surely read from it, no key stood twice. Only where the
count leaves room is the text parsed again. So a count may be too low, which costs time, and must never be too high,
which would hide a duplicate.
"""

import types
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

Counter = Callable[[Any], int]

_fields_set = attrgetter("__pydantic_fields_set__")


class _Count(NamedTuple):
    """Counts the keys surely read into a value, and its strings, None where these cannot be counted at a glance."""

    keys: Counter
    strings: Counter | None


def unique_keys_test(annotations: Mapping[str, Any]) -> Callable[[str, dict[str, Any]], bool]:
    """Return a test of JSON text and the arguments read from it: true where surely no key stands twice in it."""
    counts = {name: _count(annotation) for name, annotation in annotations.items()}
    inside = [(name, count.keys) for name, count in counts.items() if count and count.keys is not _none]
    if not inside:
        return lambda text, arguments: len(arguments) == text.count(":") or len(arguments) == most_keys(text)

    def keys_of(arguments: dict[str, Any]) -> int:
        keys = len(arguments)
        for name, count in inside:
            if (value := arguments.get(name)) is not None:
                keys += count(value)
        return keys

    def by_colons(text: str, arguments: dict[str, Any]) -> bool:
        keys = keys_of(arguments)
        return keys == text.count(":") or keys == most_keys(text)

    strings = [(name, count.strings) for name, count in counts.items() if count and count.strings]
    if len(strings) < len(annotations):
        return by_colons

    def by_quotes(text: str, arguments: dict[str, Any]) -> bool:
        # Times, links and sentences have colons in them, and few have quotes.
        found = keys_of(arguments)
        for name, count in strings:
            if (value := arguments.get(name)) is not None:
                found += count(value)
        return 2 * found == text.count('"') or by_colons(text, arguments)

    return by_quotes


def most_keys(text: str) -> int:
    """Return the most keys that JSON *text* can have: before the colon of each is its quote, or white space."""
    most = text.count('":') + text.count(" :")
    for space in "\n\r\t":
        if space in text:
            most += text.count(f"{space}:")
    return most


def _none(_: Any) -> int:
    return 0


def _is_string(value: Any) -> int:
    return type(value) is str


def _count(annotation: Any) -> _Count | None:
    """Return what counts the keys and strings in a value of this type, if the type is one where that is quick."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        count = _count(inner[0]) if all(map(_is_harmless, inner[1:])) else None
        # Two functions of a validator's author could make a string of a number: only what describes is let through.
        return count if count is None or all(map(_describes, inner[1:])) else _Count(count.keys, None)
    if origin in (Union, types.UnionType):
        branches = [branch for branch in inner if branch is not type(None)]
        return _count(branches[0]) if len(branches) == 1 else None
    if annotation is str:
        return _Count(_none, _is_string)
    if annotation in (int, float, bool):
        return _Count(_none, _none)
    if origin is dict and inner[1] in _SCALARS:
        return _Count(len, None)
    if origin is list and (fields := _plain_fields(inner[0])) is not None:
        types_read = [_type_read(field["schema"]) for field in fields.values()]
        if not all(kind in _NO_DEFAULT for kind in types_read):
            return _Count(lambda items: sum(map(len, map(_fields_set, items))), None)
        keys, strings = len(fields), sum(kind in _STRINGS for kind in types_read)
        exact = all(kind in _STRINGS or kind in _NO_STRINGS for kind in types_read)
        return _Count(lambda items: len(items) * keys, (lambda items: len(items) * strings) if exact else None)
    if _plain_fields(annotation) is not None:
        return _Count(lambda model: len(model.__pydantic_fields_set__), None)
    return None


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


def _type_read(plan: Mapping[str, Any]) -> str:
    """Return what pydantic-core reads for a field: the type of its plan, also inside pydantic's classes for links."""
    return str(plan["schema"]["type"] if is_link(plan) else plan["type"])


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


def _describes(extra: Any) -> bool:
    return isinstance(extra, str) or (isinstance(extra, FieldInfo) and not extra.metadata)


_SCALARS = (str, int, float, bool)
_STRINGS = frozenset({"str", "datetime", "date", "time", "timedelta", "uuid", "url", "multi-host-url"})
"""Types that are read from a JSON string and, strictly, from nothing else."""
_NO_STRINGS = frozenset({"int", "float", "bool"})
_NO_DEFAULT = _STRINGS | _NO_STRINGS | {"list", "dict", "literal", "enum"}
"""Types of a field that is surely read: without it, there would be no model."""
