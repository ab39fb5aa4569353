"""Conditions on the arguments of a call: a JSON pointer, and comparisons by the type that the tool's schema has there.

A comparison is True, False, or None where the two cannot be compared. Values compare, and not how they are written:
`"100.00"` is 100 where a number may be written as text, and a moment is the same with another offset.
"""

import operator as operators
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from uuid import UUID

from ..core import ToolSpec, translate_glob

OPAQUE = object()
"""A value that has no JSON form."""

_ORDERS = {name: getattr(operators, name) for name in ("gt", "ge", "lt", "le")}
_NUMBERS = frozenset(("integer", "number"))
_WILD = re.compile(r"[*?]")
_NUMERIC = re.compile(r"[-+0-9.eE*?_]*")
_FURTHEST_OFFSET = timedelta(hours=14)


def _decoded(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError
    plain = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    return b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _by_type(kind: Any) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        from pydantic import TypeAdapter

        return _adapter(TypeAdapter, kind).validate_python(value)

    return read


@lru_cache
def _adapter(make: Any, kind: Any) -> Any:
    return make(kind)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "date-time": _by_type(datetime),
    "date": _by_type(date),
    "time": _by_type(time),
    "duration": _by_type(timedelta),
    "uuid": _by_type(UUID),
    "ipv4": _by_type(IPv4Address),
    "ipv6": _by_type(IPv6Address),
    "base64": _decoded,
    "base64url": _decoded,
}
"""What a text of a format stands for. They raise ValueError or TypeError for another text."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the schema of a tool allows where a pointer leads: *types* of JSON (None: any), *formats* of texts."""

    types: frozenset[str] | None
    formats: frozenset[str]
    constants: tuple[Any, ...] | None

    @property
    def is_number(self) -> bool:
        return self.types is None or not self.types.isdisjoint(_NUMBERS)


ANYWHERE = Place(None, frozenset(), None)


def steps(pointer: str) -> list[str]:
    """The parts of a JSON pointer."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def names_of(part: str, spec: ToolSpec) -> Sequence[str]:
    """*part*, and the other names under which a call of the tool may have the same member."""
    return [part, *sorted({name for group in spec.names if part in group for name in group} - {part})]


def place_of(spec: ToolSpec, pointer: str) -> Place | None:
    """The place that *pointer* leads to in arguments of the tool; None where none of them has such a value."""
    found = [*_schemas_at(spec.input_schema, steps(pointer), spec, frozenset())]
    types: set[str] | None = set()
    formats: set[str] = set()
    constants: list[Any] | None = []
    for schema in found:
        listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
        constants = None if constants is None or listed is None else [*constants, *listed]
        own = schema.get("type")
        if own is None and listed is not None:
            own = [_type_of(value) for value in listed]
        types = None if types is None or own is None else types | ({own} if isinstance(own, str) else {*own})
        if isinstance(form := schema.get("format", schema.get("contentEncoding")), str):
            formats.add(form)
    if not found:
        return None
    return Place(
        None if types is None else frozenset(types),
        frozenset(formats & _READERS.keys()),
        None if constants is None else tuple(constants),
    )


def _schemas_at(schema: Any, parts: Sequence[str], spec: ToolSpec, seen: frozenset[int]) -> Iterator[Mapping[str, Any]]:
    """The schemas, without references and alternatives, of the values that *parts* lead to."""
    if schema is False or id(schema) in seen:
        return
    if not isinstance(schema, Mapping):  # true, which allows anything
        yield {}
        return
    inner = [*(schema[word] for word in ("anyOf", "oneOf", "allOf") if word in schema)]
    if isinstance(ref := schema.get("$ref"), str):
        inner.append([_target(spec.input_schema, ref)])
    for branches in inner:
        for branch in branches:
            yield from _schemas_at(branch, parts, spec, seen | {id(schema)})
    own = schema.get("type")
    if not parts:
        if not inner or own is not None or "enum" in schema or "const" in schema:
            yield schema
        return
    types = {own} if isinstance(own, str) else None if own is None else {*own}
    has_members = not {"properties", "additionalProperties", "patternProperties"}.isdisjoint(schema)
    has_items = not {"items", "prefixItems"}.isdisjoint(schema)
    if types is None and not has_members and not has_items:
        if not inner:
            yield {}
        return
    part, rest = parts[0], parts[1:]
    if types is None or "object" in types:
        for member in _members(schema, part, spec) if has_members or types is not None else ():
            yield from _schemas_at(member, rest, spec, frozenset())
    if (types is None and has_items) or (types is not None and "array" in types):
        for item in _items(schema, part):
            yield from _schemas_at(item, rest, spec, frozenset())


def _members(schema: Mapping[str, Any], part: str, spec: ToolSpec) -> Iterator[Any]:
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    if part == "*":
        yield from (*properties.values(), *patterns.values())
    elif named := [properties[name] for name in names_of(part, spec) if name in properties]:
        yield from named
        return
    else:
        yield from patterns.values()  # whether a pattern fits is not worth to be found out
    # An object that lists its members does not get others: models leave them out, whatever their schema has.
    yield schema.get("additionalProperties", not properties or schema is spec.input_schema)


def _items(schema: Mapping[str, Any], part: str) -> Iterator[Any]:
    first = schema.get("prefixItems", ())
    if part == "*":
        yield from first
    elif not (part.isascii() and part.isdigit()) or int(part) >= schema.get("maxItems", int(part) + 1):
        return
    elif int(part) < len(first):
        yield first[int(part)]
        return
    yield schema.get("items", True)


def _target(root: Any, ref: str) -> Any:
    """What a reference within the schema leads to; True, which allows anything, where it leads elsewhere."""
    found = root
    for step in steps(ref.removeprefix("#")) if ref.startswith("#") else ["$elsewhere"]:
        found = found.get(step, True) if isinstance(found, Mapping) else True
    return found


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float() | Decimal():
            return "number"
        case str():
            return "string"
        case None:
            return "null"
        case list() | tuple():
            return "array"
        case _:
            return "object"


# Whether a condition can hold


def can_hold(place: Place, tests: Mapping[str, Any]) -> bool:
    """Whether there are values at *place* of which all of *tests* may be true."""
    return all(_can(place, op, bound) for op, bound in tests.items())


def _can(place: Place, op: str, bound: Any) -> bool:
    if op in ("exists", "ne"):
        return True
    if op == "in":
        return any(_can(place, "eq", each) for each in bound)
    if place.constants is not None:
        return any(compare(place, op, value, bound) for value in place.constants)
    if place.types is None:
        return True
    kind = _type_of(bound)
    if kind == "string":
        if place.is_number and (_NUMERIC.fullmatch(bound) if op == "like" else _number(bound) is not None):
            return True
        if "string" not in place.types:
            return False
        is_text = op == "like" and _WILD.search(bound) is not None
        return is_text or not place.formats or any(_read(form, bound) is not None for form in place.formats)
    if kind == "number":
        is_plain = "string" in place.types and not place.formats
        return place.is_number or is_plain or any(_read(form, bound) is not None for form in place.formats)
    return kind in place.types


# Values


def holds_at(
    value: Any, parts: Sequence[str], spec: ToolSpec, holds: Callable[[Any], bool], *, in_doubt: bool
) -> bool | None:
    """Whether one of the values that *parts* of a pointer lead to *holds*; None where there is none.

    Where a call has a member by several names, which may be those of another object, it is *in_doubt* if one holds.
    """
    if not parts or value is OPAQUE:
        return holds(value)
    part, rest = parts[0], parts[1:]
    inner: list[Any] = []
    if isinstance(value, Mapping):
        inner = [*value.values()] if part == "*" else [value[name] for name in names_of(part, spec) if name in value]
    elif isinstance(value, list):
        inner = value if part == "*" else value[int(part) :][:1] if part.isascii() and part.isdigit() else []
    results = [holds_at(each, rest, spec, holds, in_doubt=in_doubt) for each in inner]
    found = [result for result in results if result is not None]
    if not found:
        return None
    return any(found) if part == "*" or in_doubt else all(found)


def compare(place: Place, op: str, value: Any, bound: Any) -> bool | None:
    """Whether *value*, at *place*, is *op* than *bound*; None where they cannot be compared."""
    if op == "exists":
        return bound is True
    if value is OPAQUE or not _is_of_type(place, value):
        return None
    if op == "ne":
        same = compare(place, "eq", value, bound)
        return None if same is None else not same
    if op == "in":
        found = [compare(place, "eq", value, each) for each in bound]
        return True if True in found else None if None in found else False
    if op == "like":
        return _like(place, value, bound)
    pairs = [*_pairs(place, value, bound)]
    if not pairs:
        if op == "eq":
            return _equal(value, bound)
        return None
    results = {_ordered(op, *pair) for pair in pairs}
    return results.pop() if len(results) == 1 else None


def _is_of_type(place: Place, value: Any) -> bool:
    """Whether *value* is what the schema describes, and not what a type made of it."""
    kind = _type_of(value)
    return value is None or place.types is None or kind in place.types or (kind == "number" and place.is_number)


def _like(place: Place, value: Any, pattern: str) -> bool | None:
    if isinstance(value, list | dict):
        return None
    if value is None or isinstance(value, bool):
        return False
    if not _WILD.search(pattern) and (same := compare(place, "eq", value, pattern)) is not None:
        return same
    texts = {str(value), *(str(read) for form in place.formats if (read := _read(form, value)) is not None)}
    results = {is_like(pattern, text) for text in texts}
    return results.pop() if len(results) == 1 else None


def _pairs(place: Place, value: Any, bound: Any) -> Iterator[tuple[Any, Any]]:
    """Both as values of the types that *place* allows; nothing where they are of different types."""
    if isinstance(value, str) and isinstance(bound, str):
        for form in place.formats:
            left, right = _read(form, value), _read(form, bound)
            if left is not None and right is not None:
                yield left, right
                return
        if place.types is None or not place.is_number:
            yield value, bound
            return
        left, right = _number(value), _number(bound)
        yield (value, bound) if left is None or right is None else (left, right)
        return
    scalar = str | int | float | Decimal
    if not isinstance(value, scalar) or not isinstance(bound, scalar) or bool in (type(value), type(bound)):
        return
    if _number(value) is not None and _number(bound) is not None:
        yield _number(value), _number(bound)
        return
    for form in place.formats:
        left, right = _read(form, value), _read(form, bound)
        if left is not None and right is not None:
            yield left, right


def _ordered(op: str, left: Any, right: Any) -> bool | None:
    if isinstance(left, datetime) and isinstance(right, datetime) and (left.tzinfo is None) != (right.tzinfo is None):
        # Which moment one of them is depends on where it is read.
        left, right = (each if each.tzinfo else each.replace(tzinfo=UTC) for each in (left, right))
        if abs(left - right) <= _FURTHEST_OFFSET:
            return None
    try:
        return left == right if op == "eq" else bool(_ORDERS[op](left, right))
    except TypeError:
        return None


def _equal(value: Any, bound: Any) -> bool:
    """Whether two JSON values are equal, numbers by value; true is not a number."""
    if isinstance(value, list) and isinstance(bound, list | tuple):
        return len(value) == len(bound) and all(map(_equal, value, bound))
    if isinstance(value, Mapping) and isinstance(bound, Mapping):
        return value.keys() == bound.keys() and all(_equal(inner, bound[name]) for name, inner in value.items())
    if _type_of(value) == _type_of(bound) == "number":
        return _number(value) == _number(bound)
    return _type_of(value) == _type_of(bound) and bool(value == bound)


def _number(value: Any) -> Decimal | None:
    try:
        number = Decimal(value if isinstance(value, str | int | Decimal) else str(value))
    except InvalidOperation:
        return None
    return None if number.is_nan() else number


def _read(form: str, value: Any) -> Any:
    try:
        return _READERS[form](value)
    except (ValueError, TypeError, OverflowError):
        return None


def is_like(pattern: str, text: str, *, tool: bool = False) -> bool:
    """Whether a glob fits *text*."""
    return _compiled(pattern, tool).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str, tool: bool) -> re.Pattern[str]:
    return re.compile(translate_glob(pattern, tool=tool), re.DOTALL)
