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

from pydantic import TypeAdapter

from ..core import ToolSpec
from ..machinery import translate_glob
from ..schema import SchemaView
from ..schema.view import kind, steps

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


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "date-time": TypeAdapter(datetime).validate_python,
    "date": TypeAdapter(date).validate_python,
    "time": TypeAdapter(time).validate_python,
    "duration": TypeAdapter(timedelta).validate_python,
    "uuid": TypeAdapter(UUID).validate_python,
    "ipv4": TypeAdapter(IPv4Address).validate_python,
    "ipv6": TypeAdapter(IPv6Address).validate_python,
    "base64": _decoded,
    "base64url": _decoded,
}
"""Readers of the texts of a format. They raise ValueError or TypeError for another text."""


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
_ANYTHING = SchemaView({})
_MEMBERS = frozenset(("properties", "additionalProperties", "patternProperties"))
_ITEMS = frozenset(("items", "prefixItems"))


def names_of(part: str, spec: ToolSpec) -> Sequence[str]:
    """Return *part*, and the other names under which a call of the tool may have the same member."""
    return [part, *sorted({name for group in spec.names if part in group for name in group} - {part})]


def place_of(spec: ToolSpec, pointer: str) -> Place | None:
    """Return the place that *pointer* leads to in arguments of the tool; None where none of them has such a value."""
    views = [*_views_at(SchemaView(spec.input_schema), steps(pointer), spec)]
    if not views:
        return None
    kinds = [view.kinds for view in views]
    constants = [view.constants for view in views]
    formats = {view.schema.get("format", view.schema.get("contentEncoding")) for view in views}
    return Place(
        None if frozenset() in kinds else frozenset().union(*kinds),
        frozenset(formats & _READERS.keys()),
        None if None in constants else tuple(value for listed in constants for value in listed or ()),
    )


def _views_at(view: SchemaView, parts: Sequence[str], spec: ToolSpec) -> Iterator[SchemaView]:
    """Return the places, without references and unions, of the values that *parts* lead to."""
    for form in view.alternatives:
        if form.is_false:
            continue
        if not parts:
            yield form
            continue
        has_members = not _MEMBERS.isdisjoint(form.schema)
        has_items = not _ITEMS.isdisjoint(form.schema)
        if not form.kinds and not has_members and not has_items:
            yield form  # which allows anything, also below
            continue
        part, rest = parts[0], parts[1:]
        if "object" in form.kinds or (not form.kinds and has_members):
            for member in _members(form, part, spec):
                yield from _views_at(member, rest, spec)
        if "array" in form.kinds or (not form.kinds and has_items):
            for item in _items(form, part):
                yield from _views_at(item, rest, spec)


def _members(view: SchemaView, part: str, spec: ToolSpec) -> Iterator[SchemaView]:
    patterns = [view.at("patternProperties", pattern) for pattern in view.schema.get("patternProperties", ())]
    if part == "*":
        yield from view.members.values()
    elif named := [view.members[name] for name in names_of(part, spec) if name in view.members]:
        yield from named
        return
    yield from patterns
    # Objects that list their members do not get others: models leave them out, whatever their schema has.
    if view.additional is not None or not view.members or view is view.root:
        yield view.additional or _ANYTHING


def _items(view: SchemaView, part: str) -> Iterator[SchemaView]:
    if part == "*":
        yield from (*view.branches("prefixItems"), view.at("items"))
    elif part.isascii() and part.isdigit() and int(part) < view.schema.get("maxItems", int(part) + 1):
        yield view.item(int(part))


def _type_of(value: Any) -> str:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return "number"
    return "array" if isinstance(value, tuple) else kind(value)


# Whether a condition can hold


def can_hold(place: Place, tests: Mapping[str, Any]) -> bool:
    """Return whether there are values at *place* of which all of *tests* may be true."""
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
    """Return whether one of the values that *parts* of a pointer lead to *holds*; None where there is none.

    Where a call has a member by several names, which may be those of another object, it is *in_doubt* if one holds.
    """
    if not parts or value is OPAQUE:
        return holds(value)
    part, rest = parts[0], parts[1:]
    inner: list[Any] = []
    if isinstance(value, Mapping):
        inner = [*value.values()] if part == "*" else _members_named(value, part, spec, in_doubt)
    elif isinstance(value, list):
        inner = value if part == "*" else value[int(part) :][:1] if part.isascii() and part.isdigit() else []
    results = [holds_at(each, rest, spec, holds, in_doubt=in_doubt) for each in inner]
    found = [result for result in results if result is not None]
    if not found:
        return None
    return any(found) if part == "*" or in_doubt else all(found)


def _members_named(value: Mapping[str, Any], part: str, spec: ToolSpec, in_doubt: bool) -> list[Any]:
    """Return the members named *part*, and those whose key is the same number: `1.0` and `01` for `1`.

    Without one that is named so, only in doubt.
    """
    inner = [value[name] for name in names_of(part, spec) if name in value]
    if (number := _number(part)) is not None and (inner or in_doubt):
        inner += [member for key, member in value.items() if key != part and _number(key) == number]
    return inner


def compare(place: Place, op: str, value: Any, bound: Any) -> bool | None:
    """Return whether *value*, at *place*, is *op* than *bound*; None where they cannot be compared."""
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
    """Return whether *value* is what the schema describes, and not what a type made of it."""
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
    """Yield both as values of the types that *place* allows; nothing where they are of different types."""
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
    """Return whether two JSON values are equal, numbers by value; true is not a number."""
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
    """Return whether a glob fits *text*."""
    return _compiled(pattern, tool).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str, tool: bool) -> re.Pattern[str]:
    return re.compile(translate_glob(pattern, tool=tool), re.DOTALL)
