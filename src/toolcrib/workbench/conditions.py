"""Conditions on the arguments of a call: a JSON pointer, and comparisons by the type that the tool's schema has there.

Everything here is True, False, or None where it cannot be judged. Values compare, and not how they are written:
`"100.00"` is 100 where a number may be written as text, and a moment is the same with another offset.
"""

import operator as operators
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
ABSENT = object()
"""What stands where a pointer leads to nothing."""

_ORDERS = {name: getattr(operators, name) for name in ("gt", "ge", "lt", "le")}
_NUMBERS = frozenset(("integer", "number"))
_CONTAINERS = frozenset(("array", "object", "null"))
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
        None if None in constants else tuple(value for values in constants for value in values or ()),
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
    elif members := [view.members[name] for name in names_of(part, spec) if name in view.members]:
        yield from members
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
    return all(_can(place, op, operand) for op, operand in tests.items())


def can_judge(place: Place, tests: Mapping[str, Any]) -> bool:
    """Return whether *tests* are true or false of some value at *place*: there is no order of lists, and no pattern."""
    if place.types is None or place.constants is not None:
        return True
    is_container = place.types <= _CONTAINERS
    return all(
        _can(place, op, operand) if op in _ORDERS else op != "like" or not is_container for op, operand in tests.items()
    )


def _can(place: Place, op: str, operand: Any) -> bool:
    if op in ("exists", "ne"):
        return True
    if op == "in":
        return any(_can(place, "eq", value) for value in operand)
    if place.constants is not None:
        return any(compare(place, op, value, operand) for value in place.constants)
    if place.types is None:
        return True
    match kind := _type_of(operand):
        case "string":
            return _can_be_text(place, operand, place.types, is_pattern=op == "like")
        case "number":
            return place.is_number or ("string" in place.types and not place.formats)
        case _:
            return kind in place.types


def _can_be_text(place: Place, text: str, types: frozenset[str], *, is_pattern: bool) -> bool:
    if place.is_number and (_NUMERIC.fullmatch(text) if is_pattern else _number(text) is not None):
        return True
    if "string" not in types or not place.formats or (is_pattern and _WILD.search(text)):
        return "string" in types
    return any(_read(form, text) is not None for form in place.formats)


# Values


def all_of(results: Iterable[bool | None]) -> bool | None:
    """Return whether all *results* are true: a single false one decides."""
    values = {*results}
    return False if False in values else None if None in values else True


def any_of(results: Iterable[bool | None]) -> bool | None:
    """Return whether one of *results* is true: a single true one decides."""
    values = {*results}
    return True if True in values else None if None in values else False


def agreed(results: Iterable[bool | None]) -> bool | None:
    """Return what all *results* are; None where they differ."""
    values = {*results}
    return values.pop() if len(values) == 1 else None


def judge(value: Any, parts: Sequence[str], spec: ToolSpec, holds: Callable[[Any], bool | None]) -> bool | None:
    """Return what *holds* says of the value that *parts* of a pointer lead to, ABSENT where they lead to none.

    Of several values at '*', one has to hold. A member that a call has by several names, which may be those of another
    object, is judged only where it is the same by all of them.
    """
    if not parts or value is OPAQUE:
        return holds(value)
    part, rest = parts[0], parts[1:]
    members: list[Any] = []
    if isinstance(value, Mapping):
        if part != "*":
            matches: list[Any] = [value[name] for name in names_of(part, spec) if name in value] or [ABSENT]
            # The same number is the same key to a type of numbers: `1.0` and `01` for `1`.
            number = _number(part)
            if number is not None:
                matches += [member for key, member in value.items() if key != part and _number(key) == number]
            return agreed(judge(member, rest, spec, holds) for member in matches)
        members = [*value.values()]
    elif isinstance(value, list):
        members = value if part == "*" else value[int(part) :][:1] if part.isascii() and part.isdigit() else []
    return any_of(judge(member, rest, spec, holds) for member in members) if members else holds(ABSENT)


def compare(place: Place, op: str, value: Any, operand: Any) -> bool | None:
    """Return whether *value*, at *place*, is *op* than *operand*."""
    if value is ABSENT:
        return op == "ne" or (op == "exists" and operand is False)
    if op == "exists":
        return operand is True
    if value is OPAQUE or not _is_of_type(place, value):
        return None
    if op == "ne":
        is_equal = compare(place, "eq", value, operand)
        return None if is_equal is None else not is_equal
    if op == "in":
        return any_of(compare(place, "eq", value, choice) for choice in operand)
    if op == "like":
        return _like(place, value, operand)
    pair = _pair(place, value, operand)
    if pair is None:
        return _equal(value, operand) if op == "eq" else None
    return _ordered(op, *pair)


def _is_of_type(place: Place, value: Any) -> bool:
    """Return whether *value* is what the schema describes, and not what a type made of it."""
    kind = _type_of(value)
    return value is None or place.types is None or kind in place.types or (kind == "number" and place.is_number)


def _like(place: Place, value: Any, pattern: str) -> bool | None:
    if isinstance(value, list | dict):
        return None
    if value is None or isinstance(value, bool):
        return False
    if not _WILD.search(pattern) and (is_equal := compare(place, "eq", value, pattern)) is not None:
        return is_equal
    texts = {str(value), *(str(reading) for form in place.formats if (reading := _read(form, value)) is not None)}
    return agreed(is_like(pattern, text) for text in texts)


def _pair(place: Place, value: Any, operand: Any) -> tuple[Any, Any] | None:
    """Return both as values of one type that *place* allows; None where there is none, or no order in it."""
    if isinstance(value, str) and isinstance(operand, str):
        for form in place.formats:
            left, right = _read(form, value), _read(form, operand)
            if left is not None and right is not None:
                return left, right
        if place.types is None or not place.is_number:
            return value, operand
    elif not (_is_scalar(value) and _is_scalar(operand)):
        return None
    left, right = _number(value), _number(operand)
    if left is not None and right is not None:
        return left, right
    return (value, operand) if isinstance(value, str) and isinstance(operand, str) else None


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)


def _ordered(op: str, left: Any, right: Any) -> bool | None:
    if isinstance(left, datetime) and isinstance(right, datetime) and (left.tzinfo is None) != (right.tzinfo is None):
        # Which moment one of them is depends on where it is read.
        left, right = (moment if moment.tzinfo else moment.replace(tzinfo=UTC) for moment in (left, right))
        if abs(left - right) <= _FURTHEST_OFFSET:
            return None
    try:
        return left == right if op == "eq" else bool(_ORDERS[op](left, right))
    except TypeError:
        return None


def _equal(value: Any, operand: Any) -> bool:
    """Return whether two JSON values are equal, numbers by value; true is not a number."""
    if isinstance(value, list) and isinstance(operand, list | tuple):
        return len(value) == len(operand) and all(map(_equal, value, operand))
    if isinstance(value, Mapping) and isinstance(operand, Mapping):
        return value.keys() == operand.keys() and all(_equal(inner, operand[name]) for name, inner in value.items())
    if _type_of(value) == _type_of(operand) == "number":
        return _number(value) == _number(operand)
    return _type_of(value) == _type_of(operand) and bool(value == operand)


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
