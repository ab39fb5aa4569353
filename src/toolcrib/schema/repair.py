"""Repairs arguments, only where the schema leaves one reading of what a model sent.

The rules, and there are no others: JSON in a string where no string is admitted; a number or boolean where text is, if
it would be written the same; null for an argument that may be left out; one item for a list (null is not an item, and a
list is one only where items are lists); a name that differs in case or in `-` and `_`. Every rule proposes readings;
where more than one reading is valid, none is taken. Valid data is never touched.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain
from typing import Any

import pydantic_core

from ..core import Repair
from .document import Budget, Document, kind, named_kinds, token
from .parse import JSONError, parse_json, respelled

Reading = tuple[Any, tuple[Repair, ...]]

_DEEPEST = 64

_PARSED = frozenset({"object", "array", "number", "integer", "boolean"})


@dataclass(frozen=True, slots=True)
class Repaired:
    """Arguments after repair. *written* maps places in *value* to those they were written at, if they moved.

    `gave_up` where it would have taken too long to tell whether they can be repaired.
    """

    value: Any
    repairs: tuple[Repair, ...]
    written: Mapping[tuple[str, str | int], str]
    respelled: Mapping[str, set[str]]
    gave_up: bool = False


class _Ambiguous(Exception):
    """More than one reading is valid, or it would take too long to tell."""


def repair(value: Any, text: str, document: Document, *, refused: frozenset[str] | None, budget: Budget) -> Repaired:
    """Repair each argument of *value*, read from *text*, for which there is one reading; others stay as they are.

    *refused* are the names of the arguments in question. Where that is not known (None), the schema decides.
    """
    search = _Search(document, respelled(text) if text.strip() else {}, budget)
    noted: tuple[Repair, ...] = ()
    if isinstance(value, str):
        inner, numbers = search.parsed(value)
        if not isinstance(inner, dict):
            return Repaired(value, (), {}, {})
        value, noted, search.numbers = inner, (Repair("", "string", "object"),), numbers
    if isinstance(value, dict) and document.walkable:
        value, repairs = search.arguments(value, document.resolved(""), refused)
        noted += repairs
    return Repaired(value, noted, search.written, search.all_numbers, search.gave_up)


def with_integers(repaired: Repaired, places: Iterable[Sequence[str | int]]) -> Repaired:
    """Convert whole numbers at *places* (`1.0`) to integers."""
    value = pydantic_core.from_json(pydantic_core.to_json(repaired.value))
    repairs: list[Repair] = []
    for path in places:
        holder = value
        for part in path[:-1]:
            holder = holder[part]
        number = holder[path[-1]] if path else None
        if isinstance(number, float) and _is_whole(number, repaired.respelled):
            holder[path[-1]] = int(number)
            written = ""
            for part in path:
                written = repaired.written.get((written, part), f"{written}/{token(part)}")
            repairs.append(Repair(written, "number", "integer"))
    if not repairs:
        return repaired
    return replace(repaired, value=value, repairs=(*repaired.repairs, *repairs))


def _is_whole(number: float, respelled: Mapping[str, set[str]]) -> bool:
    """Whether *number* is an integer, and was one as it was spelled."""
    if not number.is_integer() or not math.fabs(number) < 2**53:
        return False
    return all(Decimal(spelled) == int(number) for spelled in respelled.get(repr(number), ()))


class _Search:
    """The search for readings of one call. Each value is read once at a place: the branches of unions meet again."""

    def __init__(self, document: Document, numbers: dict[str, set[str]], budget: Budget) -> None:
        self._document = document
        self._budget = budget
        self.gave_up = False
        self._texts: dict[str, tuple[Any, dict[str, set[str]]]] = {}
        self._known: dict[tuple[int, str, str], list[Reading]] = {}
        self.numbers = numbers
        self.all_numbers = dict(numbers)
        self.written: dict[tuple[str, str | int], str] = {}

    def parsed(self, text: str) -> tuple[Any, dict[str, set[str]]]:
        """Return the JSON in a string (None where there is none), and how its numbers were spelled."""
        found = self._texts.get(text)
        if found is None:
            try:
                found = parse_json(text), respelled(text)
            except JSONError:
                found = None, {}
            self._texts[text] = found
            for again, spelled in found[1].items():
                self.all_numbers[again] = self.all_numbers.get(again, set()) | spelled
        return found

    def _require(self, value: Any, depth: int = 0) -> None:
        if depth > _DEEPEST or not self._budget.take(value):
            self.gave_up = True
            raise _Ambiguous

    def readings(self, value: Any, place: str, path: str, depth: int) -> list[Reading]:
        """Return the one valid reading of *value*, or none where there is none. Raises _Ambiguous for more than one."""
        # The values live as long as the search, in the arguments or among the parsed texts, so an id means one value.
        key = id(value), place, path
        found = self._known.get(key)
        if found is None:
            self._require(value, depth)
            if self._document.valid(value, place):
                found = [(value, ())]
            else:
                found = self._one_or_none(value, list(self._proposed(value, place, path, depth + 1)), place)
            self._known[key] = found
        return found

    def _proposed(self, value: Any, place: str, path: str, depth: int) -> Iterator[Reading]:
        schema = self._document.at(place)
        branches = [*self._document.branches(place, "anyOf"), *self._document.branches(place, "oneOf")]
        if (target := self._document.target(place)) is not None:
            branches.append(target)
        if len(every := self._document.branches(place, "allOf")) == 1:
            branches += every
        for branch in branches:
            yield from self.readings(value, branch, path, depth)
        admitted = named_kinds(schema)
        if isinstance(value, dict) and "object" in admitted:
            yield from self._object(value, place, path, depth)
        if isinstance(value, str) and admitted & _PARSED:
            yield from self._in_text(value, place, path, depth)
        if isinstance(value, bool | int | float) and "string" in admitted:
            text = json.dumps(value)
            # A format is judged here too: a number is not a date, though some readers take it for one.
            if text not in self.numbers and self._document.valid(text, place, formats=True):
                yield text, (Repair(path, kind(value), "string"),)
        if "array" in admitted:
            if isinstance(value, list):
                yield from self._each_item(value, place, path, depth)
            if self._may_be_item(value, place):
                yield from self._one_item(value, place, path, depth)

    def _in_text(self, text: str, place: str, path: str, depth: int) -> Iterator[Reading]:
        self._require(text, depth)
        value, numbers = self.parsed(text)
        if value is None or isinstance(value, str):
            return
        outside, self.numbers = self.numbers, numbers
        try:
            for reading, repairs in self.readings(value, place, path, depth):
                yield reading, (Repair(path, "string", kind(value)), *repairs)
        finally:
            self.numbers = outside

    def _each_item(self, value: list[Any], place: str, path: str, depth: int) -> Iterator[Reading]:
        items, repairs = list(value), list[Repair]()
        firsts = min(len(self._document.branches(place, "prefixItems")), len(value))
        wrong = (firsts + index for index in self._document.wrong_items(value[firsts:], f"{place}/items"))
        for index in chain(range(firsts), wrong):
            readings = self.readings(value[index], self._item(place, index), f"{path}/{index}", depth)
            if not readings:
                return
            items[index] = readings[0][0]
            repairs += readings[0][1]
        yield items, tuple(repairs)

    def _may_be_item(self, value: Any, place: str) -> bool:
        """Whether *value* could be the one item of a list: null never, a list only where items are lists."""
        if isinstance(value, list):
            return bool(value) and self._names_arrays(self._item(place, 0))
        return value is not None

    def _names_arrays(self, place: str, depth: int = 0) -> bool:
        document = self._document
        unions = [branch for word in ("anyOf", "oneOf") for branch in document.branches(document.resolved(place), word)]
        return "array" in document.kinds(place) or (depth < 6 and any(self._names_arrays(b, depth + 1) for b in unions))

    def _one_item(self, value: Any, place: str, path: str, depth: int) -> Iterator[Reading]:
        for item, repairs in self.readings(value, self._item(place, 0), path, depth):
            self.written[path, 0] = path
            yield [item], (Repair(path, kind(value), "array"), *repairs)

    def _item(self, place: str, index: int) -> str:
        firsts = self._document.branches(place, "prefixItems")
        return firsts[index] if index < len(firsts) else f"{place}/items"

    def arguments(self, value: dict[str, Any], place: str, refused: frozenset[str] | None) -> Reading:
        """Repair the *refused* members of *value*; those that cannot be repaired are left as they are."""
        result: dict[str, Any] = {}
        repairs: list[Repair] = []
        for key, name in self._names(value, place):
            in_question = refused is None or key in refused or name in refused
            try:
                readings = self._member(value[key], key, name, place, "", 0) if in_question else []
            except _Ambiguous:
                readings = []
            members, noted = readings[0] if readings else ({name: value[key]}, self._renaming(key, name, ""))
            result |= members
            repairs += noted
        return result, tuple(repairs)

    def _object(self, value: dict[str, Any], place: str, path: str, depth: int) -> Iterator[Reading]:
        result: dict[str, Any] = {}
        repairs: list[Repair] = []
        for key, name in self._names(value, place):
            readings = self._member(value[key], key, name, place, path, depth)
            if not readings:
                return
            result |= readings[0][0]
            repairs += readings[0][1]
        yield result, tuple(repairs)

    def _member(self, value: Any, key: str, name: str, place: str, path: str, depth: int) -> list[Reading]:
        """Return the readings of one member, each an object with it alone, or without it."""
        schema, here, renaming = self._document.at(place), f"{path}/{token(key)}", self._renaming(key, name, path)
        fits = self._document.member_places(name, place)
        may_be_left_out = name in schema.get("properties", ()) and name not in schema.get("required", ())
        if value is None and may_be_left_out and not all(self._document.valid(None, fit) for fit in fits):
            return [({}, (*renaming, Repair(here, "null", "default")))]
        if len(fits) != 1:
            return [({name: value}, renaming)]
        readings = self.readings(value, fits[0], here, depth)
        return [({name: reading}, (*renaming, *repairs)) for reading, repairs in readings]

    def _renaming(self, key: str, name: str, path: str) -> tuple[Repair, ...]:
        if key == name:
            return ()
        here = self.written[path, name] = f"{path}/{token(key)}"
        return (Repair(here, "key", "key"),)

    def _names(self, value: Mapping[str, Any], place: str) -> list[tuple[str, str]]:
        """Return each key of an object with the name that it matches."""
        schema = self._document.at(place)
        open_to_others = schema.get("additionalProperties", True) is not False or "patternProperties" in schema
        required = frozenset(schema.get("required", ()))
        renamed = _renamed(value, schema.get("properties", {}), required, open_to_others=open_to_others)
        return [(key, renamed.get(key, key)) for key in value]

    def _one_or_none(self, value: Any, proposed: list[Reading], place: str) -> list[Reading]:
        distinct: dict[str, Reading] = {}
        for reading in proposed:
            self._require(value)
            if self._document.valid(reading[0], place):
                written = json.dumps(reading[0], sort_keys=True) if len(proposed) > 1 else ""
                known = distinct.setdefault(written, reading)
                if len(reading[1]) < len(known[1]):
                    distinct[written] = reading
        if len(distinct) > 1:
            raise _Ambiguous
        return list(distinct.values())


def _renamed(
    value: Mapping[str, Any], properties: Mapping[str, Any], required: frozenset[str], *, open_to_others: bool
) -> dict[str, str]:
    """Map keys that differ from a property in case, `-` and `_` only, each to the one property it can match."""
    by_fold: dict[str, list[str]] = {}
    for name in properties:
        by_fold.setdefault(_fold(name), []).append(name)
    claims: dict[str, list[str]] = {}
    for key in value:
        if key not in properties:
            match = by_fold.get(_fold(key), [])
            if len(match) == 1 and match[0] not in value and (match[0] in required or not open_to_others):
                claims.setdefault(match[0], []).append(key)
    return {keys[0]: name for name, keys in claims.items() if len(keys) == 1}


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")
