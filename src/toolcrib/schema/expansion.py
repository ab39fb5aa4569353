"""How often a JSON Schema looks at one value: references that double let a few lines look a billion times.

jsonschema-rs remembers what it has seen of references that lead back to themselves, and of no others, and holds every
thread until it is done.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from .view import SchemaView, steps

MOST = 1_000_000
"""How often one value may be looked at, which takes about 50 ms."""

_MAX_STATES = 2_000
"""How many kinds of values are looked into: beyond, it is not known."""

_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
_DEFINITIONS = frozenset({"$defs", "definitions", "contentSchema"})

_MOVING = frozenset({"$ref", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor"})

_Applied = Counter[SchemaView]
"""The places of a schema that apply to one value, and how often."""


def is_plainly_bounded(schema: Mapping[str, Any], sizes: dict[str, int | None] | None = None) -> bool:
    """Return whether *schema* with each `$ref` written out, once for each time it is used, has at most `MOST` places.

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
        return size({key: value for key, value in schema.items() if key != "$defs"}) <= MOST
    except (LookupError, RecursionError):
        return False


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

    A number over `MOST` is a lower bound. References that lead back to themselves count once.
    """
    expansion = _Expansion()
    most = 0
    states: set[Hashable] = set()
    start = expansion.of(SchemaView(schema)) or Counter()
    waiting: list[tuple[_Applied, frozenset[frozenset[SchemaView]]]] = [(start, frozenset())]
    while waiting and len(states) < _MAX_STATES and most <= MOST:
        applied, above = waiting.pop()
        places = frozenset(applied)
        if places in above or (state := frozenset(applied.items())) in states:
            continue
        states.add(state)
        most = max(most, applied.total())
        for members in _members(applied):
            inside: _Applied = Counter()
            for view, times in members.items():
                inside.update({place: times * n for place, n in (expansion.of(view) or {}).items()})
            waiting.append((inside, above | {places}))
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
            inside = [inner for keyword, inner in view.inside() if keyword in _SAME_VALUE]
            for inner in [*inside, *([] if view.target is None else [view.target])]:
                more = self.of(inner)
                applied = None if more is None or applied is None else applied + more
            self._open.pop()
            self._known[view] = applied
        return self._known[view]


def _members(applied: _Applied) -> Iterator[_Applied]:
    """Return what applies to each member and item of a value that has them all."""
    groups: dict[str, _Applied] = {}
    additional: dict[SchemaView, SchemaView] = {}
    for view, times in applied.items():
        for keyword, inner in view.inside():
            if keyword in _SAME_VALUE or keyword in _DEFINITIONS:
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
