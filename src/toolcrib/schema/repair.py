"""Repairs arguments, only where the schema leaves one reading of what a model sent.

The rules, and there are no others: JSON in a string where no string is admitted; a number or boolean where text is, if
it would be written the same; null for an argument that may be left out; one item for a list (null is not an item, and a
list is one only where items are lists); a name that differs in case or in `-` and `_`. Every rule proposes readings;
where more than one reading is valid, none is taken. Text that is a JSON array is never an item: clients send a list so.
Valid data is never touched.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain
from time import thread_time
from typing import Any

import pydantic_core

from ..core import Repair
from .errors import SEARCH_TIMEOUT_S
from .json_text import JSONError, parse_json, respelled
from .view import MAX_NESTING, UNIONS, SchemaView, kind, pointer

Reading = tuple[Any, tuple[Repair, ...]]

_PARSED = frozenset({"object", "array", "number", "integer", "boolean"})


@dataclass(frozen=True, slots=True)
class Repaired:
    """Arguments after repair. *respelled* are the numbers that Python writes in another way than they were sent.

    `gave_up` where it would have taken too long to tell whether they can be repaired.
    """

    value: Any
    repairs: tuple[Repair, ...]
    respelled: Mapping[str, set[str]]
    gave_up: bool = False


class _Ambiguous(Exception):
    """More than one reading is valid, or it would take too long to tell."""


def repair(value: Any, text: str, view: SchemaView, *, refused: frozenset[str] | None) -> Repaired:
    """Repair each argument of *value*, read from *text*, for which there is one reading; others stay as they are.

    *refused* are the names of the arguments in question. Where that is not known (None), the schema decides.
    """
    search = _Search(respelled(text) if text.strip() else {})
    repairs: tuple[Repair, ...] = ()
    if isinstance(value, str):
        inner = search.parsed(value)
        if not isinstance(inner, dict):
            return Repaired(value, (), {})
        value, repairs = inner, (Repair("", "string", "object"),)
    if isinstance(value, dict):
        value, inner_repairs = search.arguments(value, view.resolved, refused)
        repairs += inner_repairs
    return Repaired(value, repairs, search.numbers, search.gave_up)


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
            repairs.append(Repair(pointer(path), "number", "integer"))
    if not repairs:
        return repaired
    return replace(repaired, value=value, repairs=(*repaired.repairs, *repairs))


def _is_whole(number: float, respelled: Mapping[str, set[str]]) -> bool:
    """Return whether *number* is an integer, and was one as it was spelled."""
    if not number.is_integer() or not math.fabs(number) < 2**53:
        return False
    return all(Decimal(spelled) == int(number) for spelled in respelled.get(repr(number), ()))


class _Search:
    """The search for readings of one call. Each value is read once at a place: the branches of unions meet again."""

    def __init__(self, numbers: dict[str, set[str]]) -> None:
        self._due = thread_time() + SEARCH_TIMEOUT_S
        self.gave_up = False
        self._texts: dict[str, Any] = {}
        self._known: dict[tuple[int, SchemaView, str], list[Reading]] = {}
        self.numbers = numbers

    def parsed(self, text: str) -> Any:
        """Return the JSON in a string; None where there is none. Remember how its numbers were spelled."""
        if text not in self._texts:
            try:
                self._texts[text] = parse_json(text)
            except JSONError:
                self._texts[text] = None
            else:
                for number, spellings in respelled(text).items():
                    self.numbers.setdefault(number, set()).update(spellings)
        return self._texts[text]

    def _require_time(self, depth: int = 0) -> None:
        if depth > MAX_NESTING or thread_time() > self._due:
            self.gave_up = True
            raise _Ambiguous

    def readings(self, value: Any, view: SchemaView, path: str, depth: int) -> list[Reading]:
        """Return the one valid reading of *value*, or none where there is none. Raises _Ambiguous for more than one."""
        # The values live as long as the search, in the arguments or among the parsed texts, so an id means one value.
        key = id(value), view, path
        readings = self._known.get(key)
        if readings is None:
            self._require_time(depth)
            if view.is_valid(value):
                readings = [(value, ())]
            else:
                readings = self._one_or_none(list(self._proposed(value, view, path, depth + 1)), view)
            self._known[key] = readings
        return readings

    def _proposed(self, value: Any, view: SchemaView, path: str, depth: int) -> Iterator[Reading]:
        if self._is_list_in_text(value, view):
            yield from self._in_text(value, view, path, depth)
            return
        for branch in _branches(view):
            yield from self.readings(value, branch, path, depth)
        if isinstance(value, dict) and "object" in view.kinds:
            yield from self._object(value, view, path, depth)
        if isinstance(value, str) and view.kinds & _PARSED:
            yield from self._in_text(value, view, path, depth)
        if isinstance(value, bool | int | float) and "string" in view.kinds:
            yield from self._as_text(value, view, path)
        if "array" in view.kinds:
            yield from self._as_list(value, view, path, depth)

    def _is_list_in_text(self, value: Any, view: SchemaView) -> bool:
        return isinstance(value, str) and _admits_lists(view) and isinstance(self.parsed(value), list)

    def _as_text(self, value: float, view: SchemaView, path: str) -> Iterator[Reading]:
        text = json.dumps(value)
        # A format is judged here too: a number is not a date, though some readers take it for one.
        if text not in self.numbers and view.is_valid(text, formats=True):
            yield text, (Repair(path, kind(value), "string"),)

    def _as_list(self, value: Any, view: SchemaView, path: str, depth: int) -> Iterator[Reading]:
        if isinstance(value, list):
            yield from self._each_item(value, view, path, depth)
        if _may_be_item(value, view):
            for item, repairs in self.readings(value, view.item(0), path, depth):
                yield [item], (Repair(path, kind(value), "array"), *repairs)

    def _in_text(self, text: str, view: SchemaView, path: str, depth: int) -> Iterator[Reading]:
        self._require_time(depth)
        value = self.parsed(text)
        if value is None or isinstance(value, str):
            return
        for reading, repairs in self.readings(value, view, path, depth):
            yield reading, (Repair(path, "string", kind(value)), *repairs)

    def _each_item(self, value: list[Any], view: SchemaView, path: str, depth: int) -> Iterator[Reading]:
        items, repairs = list(value), list[Repair]()
        firsts = min(len(view.schema.get("prefixItems", ())), len(value))
        wrong = (firsts + index for index in view.item(firsts).wrong_items(value[firsts:]))
        for index in chain(range(firsts), wrong):
            readings = self.readings(value[index], view.item(index), f"{path}/{index}", depth)
            if not readings:
                return
            items[index] = readings[0][0]
            repairs += readings[0][1]
        yield items, tuple(repairs)

    def arguments(self, value: dict[str, Any], view: SchemaView, refused: frozenset[str] | None) -> Reading:
        """Repair the *refused* members of *value*; those that cannot be repaired are left as they are."""
        result: dict[str, Any] = {}
        repairs: list[Repair] = []
        for key, name in _names(value, view):
            in_question = refused is None or key in refused or name in refused
            try:
                readings = self._member(value[key], key, name, view, "", 0) if in_question else []
            except _Ambiguous:
                readings = []
            members, notes = readings[0] if readings else ({name: value[key]}, self._renaming(key, name, ""))
            result |= members
            repairs += notes
        return result, tuple(repairs)

    def _object(self, value: dict[str, Any], view: SchemaView, path: str, depth: int) -> Iterator[Reading]:
        result: dict[str, Any] = {}
        repairs: list[Repair] = []
        for key, name in _names(value, view):
            readings = self._member(value[key], key, name, view, path, depth)
            if not readings:
                return
            result |= readings[0][0]
            repairs += readings[0][1]
        yield result, tuple(repairs)

    def _member(self, value: Any, key: str, name: str, view: SchemaView, path: str, depth: int) -> list[Reading]:
        """Return the readings of one member, each an object with it alone, or without it."""
        place, renaming = path + pointer([key]), self._renaming(key, name, path)
        places = view.member(name)
        may_be_left_out = name in view.members and name not in view.required
        if value is None and may_be_left_out and not all(place.is_valid(None) for place in places):
            return [({}, (*renaming, Repair(place, "null", "default")))]
        if len(places) != 1:
            return [({name: value}, renaming)]
        readings = self.readings(value, places[0], place, depth)
        return [({name: reading}, (*renaming, *repairs)) for reading, repairs in readings]

    def _renaming(self, key: str, name: str, path: str) -> tuple[Repair, ...]:
        return () if key == name else (Repair(path + pointer([key]), "key", "key"),)

    def _one_or_none(self, proposed: list[Reading], view: SchemaView) -> list[Reading]:
        """Return the reading with the fewest repairs, if all valid ones have the same value."""
        distinct: dict[str, Reading] = {}
        for reading in proposed:
            self._require_time()
            if view.is_valid(reading[0]):
                text = json.dumps(reading[0], sort_keys=True) if len(proposed) > 1 else ""
                shortest = distinct.setdefault(text, reading)
                if len(reading[1]) < len(shortest[1]):
                    distinct[text] = reading
        if len(distinct) > 1:
            raise _Ambiguous
        return list(distinct.values())


def _branches(view: SchemaView) -> list[SchemaView]:
    """Return what a value at *view* may be read as: its unions, its only `allOf`, and where its `$ref` leads."""
    parts = view.branches("allOf")
    branches = [branch for word in UNIONS for branch in view.branches(word)] + (parts if len(parts) == 1 else [])
    return branches + ([] if view.target is None else [view.target])


def _may_be_item(value: Any, view: SchemaView) -> bool:
    """Return whether *value* could be the one item of a list: null never, a list only where items are lists."""
    if isinstance(value, list):
        return bool(value) and _admits_lists(view.item(0))
    return value is not None


def _admits_lists(view: SchemaView) -> bool:
    return any("array" in form.kinds for form in view.alternatives)


def _names(value: Mapping[str, Any], view: SchemaView) -> list[tuple[str, str]]:
    """Return each key of an object with the name that it matches.

    A key that differs from a member in case, `-` and `_` only is that member, if it can be no other one.
    """
    is_open = view.schema.get("additionalProperties", True) is not False or "patternProperties" in view.schema
    by_fold: dict[str, list[str]] = {}
    for name in view.members:
        by_fold.setdefault(_fold(name), []).append(name)
    claims: dict[str, list[str]] = {}
    targets = {*(view.required if is_open else view.members)} - value.keys()
    for key in value.keys() - view.members.keys():
        names = by_fold.get(_fold(key), [])
        if len(names) == 1 and names[0] in targets:
            claims.setdefault(names[0], []).append(key)
    new_names = {keys[0]: name for name, keys in claims.items() if len(keys) == 1}
    return [(key, new_names.get(key, key)) for key in value]


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")
