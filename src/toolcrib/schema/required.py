"""What a JSON Schema that an author or a server wrote must be, so that arguments can be checked against it.

Among that: how often it looks at one value. References that double let a few lines look a billion times; jsonschema-rs
remembers what it has seen of references that lead back to themselves, and of no others, and holds every thread until it
is done.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import jsonschema_rs
import pydantic_core

from ..core import DefinitionError
from .view import LEADING, SAME_VALUE, SchemaView, steps, validator


def require_schema(schema: Any, *, label: str) -> dict[str, Any]:
    """Return a copy of *schema*, if it is a JSON Schema 2020-12 of an object.

    Raises DefinitionError otherwise, with what is wrong with it.
    """
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"{label}: parameters= takes a JSON Schema as a mapping, not {type(schema).__name__}.")
    try:
        text = pydantic_core.to_json(schema)
        plain: dict[str, Any] = pydantic_core.from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise DefinitionError(f"{label}: parameters= is not JSON: {str(error).partition(chr(10))[0]}.") from None
    if plain.get("type", "object") != "object":
        raise DefinitionError(
            f"{label}: the root of parameters= has type {plain['type']!r}. Arguments are an object: "
            '{"type": "object", "properties": {...}}.'
        )
    # Whatever version it names, it is read as 2020-12; the meta-schema says if that does not fit.
    plain = {"type": "object", **{key: value for key, value in plain.items() if key != "$schema"}}
    _require_valid(plain, label)
    if (b'"$ref"' in text or b'"$dynamicRef"' in text) and not is_plainly_bounded(plain):
        _require_bounded(plain, label)
    return plain


def _require_valid(schema: dict[str, Any], label: str) -> None:
    """Raise DefinitionError for what the meta-schema refuses, and for a reference that leads nowhere."""
    try:
        jsonschema_rs.meta.validate(schema)
        validator(schema, formats=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        message = getattr(error, "message", str(error))
        place = "/".join(map(str, getattr(error, "instance_path", ())))
        at = f" (at '/{place}')" if place else ""
        if not isinstance(error, jsonschema_rs.ValidationError) or error.kind.name in ("$ref", "$dynamicRef"):
            at += '. A $ref may only lead to a place in the schema itself, like "#/$defs/name"'
        raise DefinitionError(f"{label}: parameters= is not a JSON Schema 2020-12: {message}{at}.") from None


def _require_bounded(schema: dict[str, Any], label: str) -> None:
    """Raise DefinitionError for references by which a short value takes for ever."""
    root = SchemaView(schema)
    if any(view.leads_out for view in [root, *root.reach()]) or not root.is_walkable:
        raise DefinitionError(
            f'{label}: parameters= refers by a name or an address of its own. Refer by place, like "#/$defs/name".'
        )
    try:
        place = leads_to_itself(schema)
        times = 0 if place is not None else times_looked(schema)
    except RecursionError:
        raise DefinitionError(f"{label}: in parameters=, too many references lead on from one to the next.") from None
    if place is not None:
        raise DefinitionError(
            f"{label}: in parameters=, '{place}' applies itself to the same value, so it expresses nothing. Let its "
            "references lead on to a member or an item."
        )
    if times > MAX_LOOKS:
        raise DefinitionError(
            f"{label}: in parameters=, the references double again and again, so that one value is looked at over "
            f"{MAX_LOOKS:,} times. Refer to each definition once for each value."
        )


MAX_LOOKS = 1_000_000
"""How often one value may be looked at, which takes about 50 ms."""

MAX_STATES = 2_000
"""How many kinds of values, or groups of places for one, are looked into: beyond, it is not known."""

_NOT_INSIDE = SAME_VALUE | {"$defs", "definitions", "contentSchema"}
"""Keywords whose schemas apply to no member or item of the value."""

_MOVING = frozenset({"$ref", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor"})

_Applied = Counter[SchemaView]
"""The places of a schema that apply to one value, and how often."""


def is_plainly_bounded(schema: Mapping[str, Any], sizes: dict[str, int | None] | None = None) -> bool:
    """Return whether *schema* with each `$ref` written out, once for each time it is used, has few places.

    Then nothing in it leads to itself, or doubles too often. False where this quick look cannot tell: of what refers to
    itself, or to more than its own `$defs`. *sizes* keeps what is found of definitions that other schemas share.
    """
    definitions = schema.get("$defs", {})
    sizes = {} if sizes is None else sizes

    def size_of(name: str) -> int:
        if name not in sizes:
            sizes[name] = None
            sizes[name] = size(definitions[name])
        count = sizes[name]
        if count is None:
            raise LookupError(name)
        return count

    def size(part: Any) -> int:
        count = 1
        if type(part) is bool:
            return count
        for value in part.values() if type(part) is dict else part:
            if type(value) is dict or type(value) is list:
                count += size(value)
        if type(part) is dict and not part.keys().isdisjoint(_MOVING):
            ref = part.get("$ref", "")
            if not isinstance(ref, str) or not ref.startswith("#/$defs/") or len(part.keys() & _MOVING) > 1:
                raise LookupError(ref)
            count += size_of(ref.removeprefix("#/$defs/"))
        return count

    try:
        return size({key: value for key, value in schema.items() if key != "$defs"}) <= MAX_LOOKS
    except (LookupError, RecursionError):
        return False


def is_bounded(schema: Mapping[str, Any]) -> bool:
    """Return whether *schema* looks at no value too often, nor without end."""
    return is_plainly_bounded(schema) or (leads_to_itself(schema) is None and times_looked(schema) <= MAX_LOOKS)


def leads_to_itself(schema: Mapping[str, Any]) -> str | None:
    """Return the pointer to a place of *schema* that applies itself to the same value; None where there is none."""
    root = SchemaView(schema)
    applied = _Expansion()
    for view in [root, *root.reach()]:
        if applied.of(view) is None:
            return applied.cycle
    return None


def times_looked(schema: Mapping[str, Any]) -> int:
    """Return how often *schema*, in which no place leads to itself, looks at a value inside the worst one.

    A number over `MAX_LOOKS` is a lower bound. References that lead back to themselves count once.
    """
    expansion = _Expansion()
    most = 0
    states: set[Hashable] = set()
    start = expansion.of_all(Counter([SchemaView(schema)]))
    waiting: list[tuple[_Applied, frozenset[frozenset[SchemaView]]]] = [(start, frozenset())]
    while waiting and len(states) < MAX_STATES and most <= MAX_LOOKS:
        applied, above = waiting.pop()
        most = max(most, applied.total())
        # Without places that only refer on, there are as many kinds of values as definitions, not as references.
        inner = {place: times for place, times in applied.items() if not place.schema.keys().isdisjoint(LEADING)}
        places = frozenset(inner)
        if places in above or (state := frozenset(inner.items())) in states:
            continue
        states.add(state)
        for members in _members(applied):
            waiting.append((expansion.of_all(members), above | {places}))
    return most


class _Expansion:
    """What applies to one value: a place, and all that its references and unions lead to, each as often as it does.

    `cycle` is a place that leads to itself, once one was found.
    """

    def __init__(self) -> None:
        self._known: dict[SchemaView, _Applied | None] = {}
        self._open: list[SchemaView] = []
        self.cycle: str | None = None

    def of(self, view: SchemaView) -> _Applied | None:
        """Return what applies where *view* does; None where that is without end."""
        if view in self._open:
            self.cycle = min(place.pointer for place in self._open[self._open.index(view) :])
            return None
        if view not in self._known:
            self._open.append(view)
            applied: _Applied | None = Counter([view])
            inside = [inner for keyword, inner in view.inside() if keyword in SAME_VALUE]
            for inner in [*inside, *([] if view.target is None else [view.target])]:
                more = self.of(inner)
                applied = None if more is None or applied is None else applied + more
            self._open.pop()
            self._known[view] = applied
        return self._known[view]

    def of_all(self, views: _Applied) -> _Applied:
        """Return what applies where all of *views* do, each as often as it is counted there."""
        applied: _Applied = Counter()
        for view, times in views.items():
            applied.update({place: times * n for place, n in (self.of(view) or {}).items()})
        return applied


def _members(applied: _Applied) -> Iterator[_Applied]:
    """Return what applies to each member and item of a value that has them all."""
    groups: dict[str, _Applied] = {}
    additional: dict[SchemaView, SchemaView] = {}
    for view, times in applied.items():
        for keyword, inner in view.inside():
            if keyword in _NOT_INSIDE:
                continue
            if keyword == "additionalProperties":
                additional[view] = inner
            is_named = keyword in ("properties", "patternProperties")
            step = inner.pointer.removeprefix(view.pointer) if is_named else keyword
            groups.setdefault(step, Counter())[inner] += times
    for step, group in groups.items():
        for view, inner in additional.items():
            if step.startswith("/properties/") and steps(step)[1] not in view.members:
                group[inner] += applied[view]
    yield from groups.values()
