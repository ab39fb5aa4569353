"""How often a JSON Schema looks at one value: references that double let a few lines look a billion times.

jsonschema-rs remembers what it has seen of references that lead back to themselves, and of no others, and holds every
thread until it is done.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from functools import reduce
from typing import Any

from .places import IN_PLACE, Part, Places, below

MOST = 1_000_000
"""How often one value may be looked at, which takes about 50 ms."""

_STATES = 2_000
"""How many kinds of values are looked into: beyond, it is not known."""

_SAME_VALUE = frozenset({*IN_PLACE, "not", "then", "else"})
_DEFINITIONS = frozenset({"$defs", "definitions", "contentSchema"})

_MOVING = frozenset({"$ref", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor"})

_Applied = Counter[Part]
"""The places of a schema that apply to one value, and how often."""


def is_plainly_bounded(schema: Mapping[str, Any], sizes: dict[str, int | None] | None = None) -> bool:
    """Whether *schema* with each `$ref` written out, once for each time it is used, has at most `MOST` places.

    Then nothing in it leads to itself, or doubles too often. False where this quick look cannot tell: of what refers to
    itself, or to more than its own `$defs`. *sizes* keeps what is found of definitions that other schemas share.
    """
    definitions = schema.get("$defs", {})
    sizes = {} if sizes is None else sizes

    def size_of(name: str) -> int:
        if name not in sizes:
            sizes[name] = None
            sizes[name] = size(definitions[name])
        found = sizes[name]
        if found is None:
            raise LookupError(name)
        return found

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
    found = Places(schema).cyclic(follow=lambda part, keyword, step: keyword in _SAME_VALUE)
    return min((part.path for part in found), default=None)


def times_looked(schema: Mapping[str, Any]) -> int:
    """Return how often *schema*, in which no place leads to itself, looks at a value inside the worst one.

    A number over `MOST` is a lower bound. References that lead back to themselves count once.
    """
    places = Places(schema)
    expanded: dict[Part, _Applied] = {}

    def expand(part: Part) -> _Applied:
        if part not in expanded:
            inside = [inner for keyword, inner in below(part) if keyword in _SAME_VALUE]
            target = places.target(part) if part.refers else None
            applied = [expand(inner) for inner in (*inside, *((target,) if target else ()))]
            expanded[part] = reduce(_add, applied, Counter([part]))
        return expanded[part]

    most = 0
    seen: set[Hashable] = set()
    waiting: list[tuple[_Applied, frozenset[frozenset[Part]]]] = [(expand(places.root), frozenset())]
    while waiting and len(seen) < _STATES and most <= MOST:
        applied, above = waiting.pop()
        here = frozenset(applied)
        if here in above or (known := frozenset(applied.items())) in seen:
            continue
        seen.add(known)
        most = max(most, applied.total())
        for inner in _members(applied):
            each = (Counter({place: times * n for place, n in expand(part).items()}) for part, times in inner.items())
            waiting.append((reduce(_add, each, Counter()), above | {here}))
    return most


def _add(one: _Applied, other: _Applied) -> _Applied:
    one.update(other)
    return one


def _members(applied: _Applied) -> Iterator[_Applied]:
    """What applies to each member and item of a value that has them all."""
    groups: dict[Any, _Applied] = {}
    others: dict[Part, Part] = {}
    for part, times in applied.items():
        for keyword, inner in below(part):
            if keyword in _SAME_VALUE or keyword in _DEFINITIONS:
                continue
            if keyword == "additionalProperties":
                others[part] = inner
            step = inner.path[len(part.path) :] if keyword in ("properties", "patternProperties") else keyword
            groups.setdefault(step, Counter())[inner] += times
    for step, group in groups.items():
        for part, inner in others.items():
            if step.startswith("/properties/") and step.removeprefix("/properties/") not in _names(part):
                group[inner] += applied[part]
    yield from groups.values()


def _names(part: Part) -> set[str]:
    return {name.replace("~", "~0").replace("/", "~1") for name in part.schema.get("properties", ())}
