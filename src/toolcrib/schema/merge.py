"""Several places of a schema merged into what they demand together.

What holds at a place is a *conjunction*: parts that must all hold. A `$ref` and its siblings are one, an `allOf` is
one, and so is what two parts demand of the same member. Where two demands cannot be merged, the first is kept and the
other is reported as lost: the result may be wider than its parts, and is never narrower.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, combinations, product
from typing import Any

from .json_schema_validator import Validator, validator
from .places import ASSERTIONS, CONDITIONS, IN_PLACE, Conj, Either, Part, Places, is_annotation

_BY_VALUE = ("anyOf", "oneOf", "if", "dependentSchemas", "dependencies")
_TIGHTER: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
    "uniqueItems": lambda a, b: a or b,
    "required": lambda a, b: [*a, *(name for name in b if name not in a)],
    "dependentRequired": lambda a, b: {n: list(dict.fromkeys([*a.get(n, ()), *b.get(n, ())])) for n in {**a, **b}},
}
_MAX_BRANCHES = 64  # of several unions together, or where each branch repeats what stands beside the union
_MAX_ALTERNATIVES = 1000  # of one union with nothing beside it
_MAX_QUESTIONS = 1000  # how many conjunctions are looked at, to find out which exclude each other

Lose = Callable[[Part, str], None]
"""Called with a part and its keyword that is left out."""


@dataclass(frozen=True, slots=True)
class Union:
    """An `anyOf` or `oneOf`: where it stands, and its branches."""

    part: Part
    keyword: str
    branches: list[Conj]


@dataclass(frozen=True, slots=True)
class _Closure:
    """What holds for the members that *owner* does not name."""

    owner: Part
    names: frozenset[str]
    patterns: frozenset[str]
    demand: Part

    @property
    def keyword(self) -> tuple[Part, str]:
        """The keyword it comes from, for the report of its loss."""
        return self.owner, _last(self.demand)


@dataclass(slots=True)
class Merged:
    """What a conjunction demands. Each demand has what it comes from, parts or keywords, for the report of its loss.

    *keywords* are assertions, listed values and annotations; *conditions* the places of keywords in `CONDITIONS`.
    *notes* are the sentences for a description that stand for demands without a form in the dialect.
    """

    parts: list[Part]
    kinds: tuple[str, ...] | None = None
    keywords: dict[str, tuple[Any, Part]] = field(default_factory=dict)
    properties: dict[str, Conj] = field(default_factory=dict)
    patterns: dict[str, tuple[Conj, Part]] = field(default_factory=dict)
    additional: tuple[Conj, tuple[tuple[Part, str], ...]] | None = None
    first: list[Conj] = field(default_factory=list)
    items: tuple[Conj, tuple[tuple[Part, str], ...]] | None = None
    unions: list[Union] = field(default_factory=list)
    conditions: list[tuple[Part, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def get(self, keyword: str, default: Any = None) -> Any:
        """The value of an assertion."""
        return self.keywords[keyword][0] if keyword in self.keywords else default

    @property
    def plain(self) -> dict[str, Any]:
        """The values of all keywords."""
        return {keyword: value for keyword, (value, _) in self.keywords.items()}

    def has(self, keyword: str) -> bool:
        """Whether one of the parts has *keyword*."""
        return any(keyword in part.schema for part in self.parts)

    def values(self) -> list[Any] | None:
        """The values that one of the parts lists; None where none lists any."""
        values: list[Any] | None = [self.get("const")] if "const" in self.keywords else self.get("enum")
        return values

    def listed(self, places: Places) -> list[Any] | None:
        """The valid ones of the values that a part lists; None where none lists any."""
        values = self.values()
        return values and [value for value in values if places.valid(value, tuple(self.parts))]


def merge(conj: Conj, places: Places, lose: Lose) -> Merged | None:
    """What *conj* demands; None where no value can be valid."""
    spread = _spread(conj, places, lose)
    if spread is None:
        return None
    parts, eithers = spread
    merged = Merged(parts)
    closures: list[_Closure] = []
    rest: dict[Part, Part] = {}
    for part in parts:
        for keyword, value in part.schema.items():
            match keyword:
                case "type":
                    merged.kinds = _common(merged.kinds, (value,) if isinstance(value, str) else tuple(value))
                case "anyOf" | "oneOf":
                    merged.unions.append(Union(part, keyword, part.listed(keyword)))
                case "additionalProperties":
                    names, patterns = part.schema.get("properties", ()), part.schema.get("patternProperties", ())
                    closures.append(_Closure(part, frozenset(names), frozenset(patterns), part.at(keyword)))
                case "items":
                    rest[part] = part.at(keyword)
                case "unevaluatedProperties" if "additionalProperties" in part.schema:
                    pass
                case "unevaluatedProperties" if (closure := _evaluated(part, places)) is not None:
                    closures.append(closure)
                case "unevaluatedItems" if "items" in part.schema:
                    pass
                case "unevaluatedItems" if not any(word in part.schema for word in (*IN_PLACE, "contains")):
                    rest[part] = part.at(keyword)
                case _ if keyword in CONDITIONS:
                    merged.conditions.append((part, keyword))
                case _ if keyword in ("enum", "const", *ASSERTIONS) or is_annotation(keyword):
                    _keyword(merged, part, keyword, lose)
                case _:
                    pass  # spread already, or merged below
    if merged.kinds == ():
        return None
    _members(merged, closures, lose)
    _items(merged, rest)
    merged.unions += [Union(parts[0] if parts else places.root, "anyOf", list(each.branches)) for each in eithers]
    return merged


def _spread(conj: Conj, places: Places, lose: Lose) -> tuple[list[Part], list[Either]] | None:
    """The parts of *conj*, with those that their `$ref` and `allOf` lead to. None where no value can be valid."""
    parts: dict[Part, None] = {}
    eithers: dict[Either, None] = {}
    waiting = list(reversed(conj))
    while waiting:
        element = waiting.pop()
        if isinstance(element, Either):
            eithers[element] = None
        elif element.schema is False:
            return None
        elif isinstance(element.schema, dict) and element not in parts:
            parts[element] = None
            waiting.extend(chain.from_iterable(reversed(element.listed("allOf"))))
            if element.refers:
                target = places.target(element)
                if target is None:
                    lose(element, "$ref" if "$ref" in element.schema else "$dynamicRef")
                else:
                    waiting.append(target)
    return list(parts), list(eithers)


def _keyword(merged: Merged, part: Part, keyword: str, lose: Lose) -> None:
    value = part.schema[keyword]
    before = merged.get(keyword)
    if keyword not in merged.keywords:
        merged.keywords[keyword] = value, part
    elif keyword in _TIGHTER:
        merged.keywords[keyword] = _TIGHTER[keyword](before, value), part
    elif keyword == "multipleOf" and isinstance(before, int) and isinstance(value, int):
        merged.keywords[keyword] = math.lcm(before, value), part
    elif keyword in ASSERTIONS and before != value:
        lose(part, keyword)
    # Of annotations the first counts; of listed values those that are valid under every part: see Merged.listed.


def _members(merged: Merged, closures: list[_Closure], lose: Lose) -> None:
    names = dict.fromkeys(name for part in merged.parts for name in part.schema.get("properties", ()))
    patterns = dict.fromkeys(pattern for part in merged.parts for pattern in part.schema.get("patternProperties", ()))
    names |= dict.fromkeys(name for closure in closures for name in sorted(closure.names) if name not in names)
    for name in names:
        demand: dict[Part | Either, None] = {}
        for part in merged.parts:
            if name in part.schema.get("properties", ()):
                demand[part.at("properties", name)] = None
            for pattern in part.schema.get("patternProperties", ()):
                if matches(name, pattern):
                    demand[part.at("patternProperties", pattern)] = None
        for closure in closures:
            if name not in closure.names and not any(matches(name, pattern) for pattern in closure.patterns):
                demand[closure.demand] = None
        merged.properties[name] = tuple(demand)
    for pattern in patterns:
        owners = [part for part in merged.parts if pattern in part.schema.get("patternProperties", ())]
        demand = dict.fromkeys(part.at("patternProperties", pattern) for part in owners)
        for closure in closures:
            if pattern not in closure.patterns:
                if closure.patterns:
                    lose(*closure.keyword)
                else:
                    demand[closure.demand] = None
        merged.patterns[pattern] = tuple(demand), owners[-1]
    if closures:
        merged.additional = tuple(each.demand for each in closures), tuple(each.keyword for each in closures)


def _items(merged: Merged, rest: dict[Part, Part]) -> None:
    for index in range(max((len(part.schema.get("prefixItems", ())) for part in merged.parts), default=0)):
        demand: list[Part | Either] = []
        for part in merged.parts:
            if index < len(part.schema.get("prefixItems", ())):
                demand.append(part.at("prefixItems", index))
            elif part in rest:
                demand.append(rest[part])
        merged.first.append(tuple(demand))
    if rest:
        merged.items = tuple(rest.values()), tuple((part, _last(each)) for part, each in rest.items())


def _last(part: Part) -> str:
    return part.path.rpartition("/")[2]


def _evaluated(part: Part, places: Places) -> _Closure | None:
    """`unevaluatedProperties` at *part* as `additionalProperties`; None where what it sees depends on the value."""
    spread = _spread((part,), places, ignore)
    names: set[str] = set()
    patterns: set[str] = set()
    for inner in spread[0] if spread else ():
        others = () if inner is part else ("additionalProperties", "unevaluatedProperties")
        if any(word in inner.schema for word in (*_BY_VALUE, *others)):
            return None
        names |= set(inner.schema.get("properties", ()))
        patterns |= set(inner.schema.get("patternProperties", ()))
    return _Closure(part, frozenset(names), frozenset(patterns), part.at("unevaluatedProperties"))


def ignore(part: Part, keyword: str) -> None:
    """A `Lose` that reports nothing."""


def _common(kinds: tuple[str, ...] | None, others: tuple[str, ...]) -> tuple[str, ...]:
    if kinds is None:
        return others
    found = [kind for kind in kinds if kind in others or (kind == "integer" and "number" in others)]
    if "number" in kinds and "integer" in others and "number" not in others and "integer" not in found:
        found.append("integer")
    return tuple(found)


def matches(name: str, pattern: str) -> bool:
    """Whether a `patternProperties` of *pattern* is about *name*."""
    return _pattern(pattern).is_valid(name)


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> Validator:
    return validator({"pattern": pattern}, formats=False)


def bare(part: Part) -> Part:
    """*part* without its unions, and without what merging has spread out already or what only describes."""
    dropped = {"anyOf", "oneOf", "allOf", "$ref", "$dynamicRef"}
    if any(word in part.schema for word in IN_PLACE):
        # What those let in would no longer be seen to be evaluated.
        dropped |= {"unevaluatedProperties", "unevaluatedItems"}
    return part.only(word for word in part.schema if word not in dropped and not is_annotation(word))


def branches(merged: Merged) -> list[Conj] | None:
    """The unions of *merged* as one: for each choice of branches a conjunction of all that holds. None: too many."""
    base = [part for part in map(bare, merged.parts) if part.schema]
    alone = len(merged.unions) == 1 and all(part.schema.keys() == {"type"} for part in base)
    most = _MAX_ALTERNATIVES if alone else _MAX_BRANCHES
    if math.prod(len(union.branches) for union in merged.unions) > most:
        return None
    choices = product(*(union.branches for union in merged.unions))
    return [tuple(dict.fromkeys(chain(base, *chosen))) for chosen in choices]


def apart(branches: list[Conj], places: Places, known: dict[Conj, bool]) -> bool:
    """Whether surely no value is valid under two of *branches*. *known* is for `impossible`."""
    views = [view for branch in branches if (view := merge(branch, places, ignore)) is not None]
    if _different([view.values() for view in views]):
        return True
    names = [name for name in views[0].get("required", ()) if all(name in view.properties for view in views)]
    if all(view.kinds == ("object",) and set(names) <= set(view.get("required", ())) for view in views):
        for name in names:
            members = [merge(view.properties[name], places, ignore) for view in views]
            if _different([None if member is None else member.values() for member in members]):
                return True
    return all(impossible(one + other, places, known) for one, other in combinations(branches, 2))


def _different(groups: list[list[Any] | None]) -> bool:
    """Whether no two of *groups* have a value in common; False where that is not certain."""
    seen: set[Any] = set()
    for group in groups:
        if group is None or not all(isinstance(value, str | int | float | None) for value in group):
            return False
        own = {(isinstance(value, bool), value) for value in group}  # in Python, 1 is True and 1.0
        if own & seen:
            return False
        seen |= own
    return True


def impossible(conj: Conj, places: Places, known: dict[Conj, bool], *, depth: int = 0) -> bool:
    """Whether surely no value is valid under *conj*; False where that is not certain. *known* keeps the answers."""
    if conj not in known and len(known) < _MAX_QUESTIONS:
        known[conj] = False  # the answer where the conjunction is met again inside itself
        known[conj] = depth < 12 and _impossible(conj, places, known, depth)
    return known.get(conj, False)


def _impossible(conj: Conj, places: Places, known: dict[Conj, bool], depth: int) -> bool:
    merged = merge(conj, places, ignore)
    if merged is None:
        return True
    values = merged.listed(places)
    if values is not None:
        return not values
    if merged.kinds is not None and set(merged.kinds) <= {"integer", "number"}:
        least, most = merged.get("minimum", -math.inf), merged.get("maximum", math.inf)
        above, under = merged.get("exclusiveMinimum", -math.inf), merged.get("exclusiveMaximum", math.inf)
        if least > most or above >= min(most, under) or least >= under:
            return True
    if merged.unions:
        choices = branches(merged)
        return choices is not None and all(impossible(each, places, known, depth=depth + 1) for each in choices)
    if merged.kinds == ("object",):
        other = merged.additional[0] if merged.additional and not merged.patterns else ()
        members = (merged.properties.get(name, other) for name in merged.get("required", ()))
        return any(impossible(member, places, known, depth=depth + 1) for member in members)
    return False
