"""Several parts of a schema as one: what they demand together, keyword by keyword.

Where two demands cannot be said as one, the first is kept and the other is told as lost: what comes out may be wider
than the parts, and never narrower.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .parts import Conj, Either, Part, Places, matches

KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")

_SILENT = frozenset({"$id", "$schema", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions", "$comment"})
_TIGHTER: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
    "uniqueItems": lambda a, b: a or b,
    "required": lambda a, b: [*a, *(name for name in b if name not in a)],
    "dependentRequired": lambda a, b: {n: list(dict.fromkeys([*a.get(n, ()), *b.get(n, ())])) for n in {**a, **b}},
}
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding"}
    | {"contentMediaType", "contentSchema"}
)
_DYNAMIC = ("anyOf", "oneOf", "if", "dependentSchemas")
APPLIED = ("allOf", "$ref", "$dynamicRef", *_DYNAMIC)
"""Keywords that apply other schemas to the same value, which `unevaluated...` then takes into account."""

Lose = Callable[[Part, str], None]
"""Told of a keyword at a part that is left out."""


@dataclass(slots=True)
class Union:
    """An `anyOf` or `oneOf`: where it stands, and its branches."""

    part: Part
    keyword: str
    branches: list[Conj]


@dataclass(slots=True)
class Closure:
    """What holds for the members that a part does not speak of."""

    names: frozenset[str]
    patterns: frozenset[str]
    demand: Conj


@dataclass(slots=True)
class Combined:
    """What a conjunction demands. Each demand has the part it comes from, for what is told of it."""

    parts: list[Part]
    eithers: list[Either] = field(default_factory=list)
    kinds: tuple[str, ...] | None = None
    said: dict[str, tuple[Any, Part]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    properties: dict[str, Conj] = field(default_factory=dict)
    patterns: dict[str, tuple[Conj, Part]] = field(default_factory=dict)
    additional: tuple[Conj, Part] | None = None
    first: list[Conj] = field(default_factory=list)
    first_part: Part | None = None
    items: tuple[Conj, Part] | None = None
    rest: dict[Part, Part] = field(default_factory=dict)
    unions: list[Union] = field(default_factory=list)
    inner: dict[str, tuple[Conj, Part]] = field(default_factory=dict)
    dependent: dict[str, tuple[Conj, Part]] = field(default_factory=dict)
    all_of: tuple[list[Conj], Part] | None = None
    refers: Part | None = None

    def value(self, keyword: str, default: Any = None) -> Any:
        """What is said under *keyword*."""
        return self.said[keyword][0] if keyword in self.said else default


def spread(conj: Iterable[Part | Either], places: Places, lose: Lose) -> tuple[list[Part], list[Either]] | None:
    """The parts of *conj*, with those that their `$ref` and `allOf` lead to. None where nothing can hold."""
    parts: dict[Part, None] = {}
    eithers: dict[Either, None] = {}
    waiting = list(reversed(list(conj)))
    while waiting:
        element = waiting.pop()
        if isinstance(element, Either):
            eithers[element] = None
        elif element.schema is False:
            return None
        elif isinstance(element.schema, dict) and element not in parts:
            parts[element] = None
            schema = element.schema
            waiting.extend(element.at("allOf", index) for index in reversed(range(len(schema.get("allOf", ())))))
            if "$ref" in schema or "$dynamicRef" in schema:
                target = places.target(element)
                if target is None:
                    lose(element, "$ref" if "$ref" in schema else "$dynamicRef")
                else:
                    waiting.append(target)
    return list(parts), list(eithers)


def combine(conj: Conj, places: Places, lose: Lose, *, whole: bool, patterns: bool) -> Combined | None:
    """What *conj* demands; None where nothing can hold.

    *whole* keeps the `$ref` and `allOf` of a single part as they are; *patterns* says that `patternProperties` will be
    kept, so that what they demand of a known name need not be said of the name.
    """
    single = conj[0] if len(conj) == 1 else None
    if whole and isinstance(single, Part) and isinstance(single.schema, dict):
        parts: list[Part] = [single]
        eithers: list[Either] = []
    else:
        found = spread(conj, places, lose)
        if found is None:
            return None
        parts, eithers = found
        whole = False
    both = Combined(parts, eithers)
    closures: list[Closure] = []
    for part in parts:
        if not _take(both, part, closures, places, lose, whole):
            return None
    _members(both, closures, lose, patterns and (whole or len(parts) == 1))
    _places(both)
    for found_either in eithers:
        both.unions.append(Union(parts[0] if parts else places.root, "anyOf", list(found_either.branches)))
    return None if both.kinds == () else both


def _take(both: Combined, part: Part, closures: list[Closure], places: Places, lose: Lose, whole: bool) -> bool:
    schema = part.schema
    for keyword, value in schema.items():
        if keyword in _SILENT:
            continue
        if keyword not in both.order:
            both.order.append(keyword)
        match keyword:
            case "type":
                kinds = (value,) if isinstance(value, str) else tuple(value)
                both.kinds = kinds if both.kinds is None else _common(both.kinds, kinds)
            case "anyOf" | "oneOf":
                both.unions.append(Union(part, keyword, [(branch,) for branch in _listed(part, keyword)]))
            case "allOf":
                if whole:
                    both.all_of = [(branch,) for branch in _listed(part, keyword)], part
            case "$ref" | "$dynamicRef":
                if whole:
                    both.refers = part
            case "not" | "contains":
                if keyword in both.inner:
                    lose(part, keyword)
                else:
                    both.inner[keyword] = (part.at(keyword),), part
            case "propertyNames":
                before = both.inner[keyword][0] if keyword in both.inner else ()
                both.inner[keyword] = (*before, part.at(keyword)), part
            case "if":
                if "if" in both.inner:
                    lose(part, "if")
                else:
                    both.inner |= {word: ((part.at(word),), part) for word in ("if", "then", "else") if word in schema}
            case "minContains" | "maxContains":
                if both.inner.get("contains", (None, part))[1] is part:
                    both.said[keyword] = value, part
            case "dependentSchemas":
                for name in value:
                    before = both.dependent[name][0] if name in both.dependent else ()
                    both.dependent[name] = (*before, part.at(keyword, name)), part
            case "unevaluatedProperties" | "unevaluatedItems":
                _unevaluated(both, part, keyword, closures, places, lose, whole)
            case "enum" | "const" if keyword in both.said:
                pass  # every part is asked about each value of the first: see Lowering.values
            case "multipleOf" if keyword in both.said:
                joint = _multiple(both.said[keyword][0], value)
                if joint is None:
                    lose(part, keyword)
                else:
                    both.said[keyword] = joint, part
            case "properties" | "patternProperties" | "additionalProperties":
                pass
            case "prefixItems" | "items" | "then" | "else":
                pass
            case _ if keyword in _TIGHTER and keyword in both.said:
                both.said[keyword] = _TIGHTER[keyword](both.said[keyword][0], value), part
            case _ if keyword in both.said:
                if keyword in ("pattern", "format") and both.said[keyword][0] != value:
                    lose(part, keyword)
            case _:
                both.said[keyword] = value, part
    if "additionalProperties" in schema:
        names, patterns = frozenset(schema.get("properties", ())), frozenset(schema.get("patternProperties", ()))
        closures.append(Closure(names, patterns, (part.at("additionalProperties"),)))
        before = both.additional[0] if both.additional else ()
        both.additional = (*before, part.at("additionalProperties")), part
    return both.kinds != ()


def _members(both: Combined, closures: list[Closure], lose: Lose, apart: bool) -> None:
    """Fills in what is demanded of members. *apart*: patterns stay beside the names they match."""
    sources = [part for part in both.parts if "properties" in part.schema or "patternProperties" in part.schema]
    names = dict.fromkeys(name for part in sources for name in part.schema.get("properties", ()))
    patterns = dict.fromkeys(pattern for part in sources for pattern in part.schema.get("patternProperties", ()))
    for closure in closures:  # those of unevaluatedProperties know names that stand elsewhere
        names |= dict.fromkeys(name for name in closure.names if name not in names)
    for name in names:
        demand: list[Part | Either] = []
        for part in sources:
            if name in part.schema.get("properties", ()):
                demand.append(part.at("properties", name))
            if not apart:
                for pattern in part.schema.get("patternProperties", ()):
                    if matches(name, pattern):
                        demand.append(part.at("patternProperties", pattern))
        for closure in closures:
            if name not in closure.names and not any(matches(name, pattern) for pattern in closure.patterns):
                demand += closure.demand
        both.properties[name] = tuple(dict.fromkeys(demand))
    for pattern in patterns:
        demand = []
        owner = both.parts[0]
        for part in sources:
            if pattern in part.schema.get("patternProperties", ()):
                demand.append(part.at("patternProperties", pattern))
                owner = part
        for closure in closures:
            if pattern not in closure.patterns:
                if closure.patterns:
                    lose(owner, "patternProperties")
                else:
                    demand += closure.demand
        both.patterns[pattern] = tuple(dict.fromkeys(demand)), owner


def _places(both: Combined) -> None:
    """Fills in what is demanded of items."""
    both.rest |= {part: part.at("items") for part in both.parts if "items" in part.schema}
    length = max((len(part.schema.get("prefixItems", ())) for part in both.parts), default=0)
    for index in range(length):
        demand: list[Part | Either] = []
        for part in both.parts:
            if index < len(part.schema.get("prefixItems", ())):
                demand.append(part.at("prefixItems", index))
                both.first_part = both.first_part or part
            elif part in both.rest:
                demand.append(both.rest[part])
        both.first.append(tuple(demand))
    if both.rest:
        both.items = tuple(both.rest.values()), next(iter(both.rest))


def _unevaluated(
    both: Combined, part: Part, keyword: str, closures: list[Closure], places: Places, lose: Lose, whole: bool
) -> None:
    """`unevaluated...` where it comes to the same as `additionalProperties` or `items`; else as it is, or lost."""
    schema = part.schema
    if {"unevaluatedItems": "items", "unevaluatedProperties": "additionalProperties"}[keyword] in schema:
        return  # which sees to all of them
    if keyword == "unevaluatedItems":
        if any(word in schema for word in (*APPLIED, "contains")):
            if whole:
                both.inner[keyword] = (part.at(keyword),), part
            elif schema[keyword] is not True:
                lose(part, keyword)
        else:
            both.rest[part] = part.at(keyword)
        return
    if not any(word in schema for word in APPLIED):
        names: frozenset[str] | None = frozenset(schema.get("properties", ()))
        patterns = frozenset(schema.get("patternProperties", ()))
    elif whole:
        both.inner[keyword] = (part.at(keyword),), part
        return
    else:
        names, patterns = _evaluated(part, places)
    if names is None:
        if schema[keyword] is not True:
            lose(part, keyword)
        return
    closures.append(Closure(names, patterns, (part.at(keyword),)))
    both.additional = (*(both.additional[0] if both.additional else ()), part.at(keyword)), part


def _evaluated(part: Part, places: Places) -> tuple[frozenset[str] | None, frozenset[str]]:
    """The names that *part* surely speaks of, with all that must hold with it; None where that depends on the value."""
    found = spread((part,), places, lambda part, keyword: None)
    names: set[str] = set()
    patterns: set[str] = set()
    for inner in found[0] if found else ():
        if any(word in inner.schema for word in _DYNAMIC):
            return None, frozenset()
        if inner is not part and any(
            word in inner.schema for word in ("additionalProperties", "unevaluatedProperties")
        ):
            return None, frozenset()
        names |= set(inner.schema.get("properties", ()))
        patterns |= set(inner.schema.get("patternProperties", ()))
    return frozenset(names), frozenset(patterns)


def _listed(part: Part, keyword: str) -> list[Part]:
    return [part.at(keyword, index) for index in range(len(part.schema[keyword]))]


def _common(kinds: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    found = [kind for kind in kinds if kind in others or (kind == "integer" and "number" in others)]
    if "number" in kinds and "integer" in others and "number" not in others and "integer" not in found:
        found.append("integer")
    return tuple(found)


def _multiple(one: float, other: float) -> float | None:
    if isinstance(one, int) and isinstance(other, int):
        return math.lcm(one, other)
    return one if one == other else None


def says_nothing(schema: Any) -> bool:
    """Whether a schema lets everything through: it only describes, or not even that."""
    return schema is True or (isinstance(schema, dict) and not (schema.keys() - _ANNOTATIONS - _SILENT))


def is_annotation(keyword: str) -> bool:
    """Whether *keyword* only describes."""
    return keyword in _ANNOTATIONS or keyword in _SILENT
