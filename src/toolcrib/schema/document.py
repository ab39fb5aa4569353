"""A JSON Schema as a document: its parts by JSON pointer, and whether a value is valid under one of them.

Repair and errors go through a schema place by place. Asking only for validity at each place stays linear where listing
every error of every branch of nested unions doubles with each level.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import quote, unquote

import jsonschema_rs

from .json_schema_validator import Validator

_BASE = "urn:toolcrib:arguments"


class Document:
    """One JSON Schema 2020-12. A *place* is a JSON pointer (RFC 6901) to one of its subschemas; `""` is the whole."""

    def __init__(self, root: Mapping[str, Any], *, formats: bool) -> None:
        identity = root.get("$id")
        self._base = identity.partition("#")[0] if isinstance(identity, str) and ":" in identity else _BASE
        self._root = {key: part for key, part in root.items() if key not in ("$id", "$schema")}
        self._formats = formats
        self._registry: jsonschema_rs.Registry | None = None
        self._validators: dict[tuple[str, str, bool], Validator | None] = {}
        self._kinds: dict[str, frozenset[str]] = {}
        self._parts: dict[str, Any] = {}
        self.words: dict[tuple[str, int], str] = {}
        """What `describe_at` has described: the branches of unions meet again."""
        # Where a part has an `$id` of its own, pointers from the root do not mean what they seem to.
        self.walkable = not any(_renamed_inside(part) for part in self._root.values())

    def at(self, place: str) -> Mapping[str, Any]:
        """The subschema at *place*; nothing in it where there is none, or where it is just true or false."""
        part = self._part(place)
        return part if isinstance(part, dict) else {}

    def forbids(self, place: str) -> bool:
        """Whether nothing at all is valid at *place*."""
        return self._part(place) is False

    def _part(self, place: str) -> Any:
        if place not in self._parts:
            self._parts[place] = self._found(place)
        return self._parts[place]

    def _found(self, place: str) -> Any:
        part: Any = self._root
        for step in place.split("/")[1:]:
            if isinstance(part, list):
                part = part[int(step)] if step.isdecimal() and int(step) < len(part) else None
            else:
                part = part.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(part, dict) else None
        return part

    def target(self, place: str) -> str | None:
        """The place that the `$ref` at *place* leads to, if it has one that stays in this document."""
        ref = self.at(place).get("$ref")
        if not isinstance(ref, str):
            return None
        base, _, fragment = ref.partition("#")
        return unquote(fragment) if base in ("", self._base) and (not fragment or fragment[0] == "/") else None

    def resolved(self, place: str) -> str:
        """*place*, or where its `$ref` leads. What stands beside the `$ref` is left behind."""
        *_, last = self.chain(place)
        return last

    def chain(self, place: str) -> Iterator[str]:
        """*place*, where its `$ref` leads, and so on."""
        for _ in range(32):
            yield place
            if (target := self.target(place)) is None:
                return
            place = target

    def branches(self, place: str, keyword: str) -> list[str]:
        """The places of what *keyword* lists at *place*."""
        listed = self.at(place).get(keyword)
        return [f"{place}/{keyword}/{index}" for index in range(len(listed))] if isinstance(listed, list) else []

    def alternatives(self, place: str, keyword: str) -> list[str]:
        """The branches of a union, and those of the unions that are all that a branch is, `$ref`s followed; each once.

        Without that, two branches that lead to one union double what is found at each level.
        """
        found: dict[str, bool] = {}  # in order, and whether it is only a union of others

        def add(place: str, keyword: str, depth: int) -> None:
            for branch in self.branches(place, keyword):
                resolved = self.resolved(branch)
                if resolved in found:
                    continue
                schema = self.at(resolved)
                inner = [word for word in ("anyOf", "oneOf") if word in schema]
                found[resolved] = len(inner) == 1 and "type" not in schema and depth < 8
                if found[resolved]:
                    add(resolved, inner[0], depth + 1)

        add(place, keyword, 0)
        return [branch for branch, only_union in found.items() if not only_union]

    def kinds(self, place: str) -> frozenset[str]:
        """The JSON types that are named at *place*, directly or by what is listed; none where none is named."""
        found = self._kinds.get(place)
        if found is None:
            found = self._kinds[place] = named_kinds(self.at(self.resolved(place)))
        return found

    def valid(self, value: Any, place: str, *, formats: bool | None = None) -> bool:
        """Whether *value* is valid at *place*. Where that cannot be decided for a part, the whole decides: True."""
        validator = self.validator_at(place, formats=formats)
        return validator is None or validator.is_valid(value)

    def satisfies(self, value: Any, place: str, keyword: str) -> bool:
        """Whether *value* satisfies one keyword of the schema at *place*, the others aside."""
        validator = self._validator((keyword, place), lambda: {keyword: self.at(place)[keyword]}, self._formats)
        return validator is None or validator.is_valid(value)

    def member_places(self, name: str, place: str) -> list[str]:
        """The places that speak of the member *name* of an object at *place*."""
        schema = self.at(place)
        fits = [f"{place}/properties/{token(name)}"] if name in schema.get("properties", ()) else []
        for pattern in schema.get("patternProperties", ()):
            validator = self._validator(("pattern", pattern), functools.partial(dict, pattern=pattern), False)
            if validator is None or validator.is_valid(name):
                fits.append(f"{place}/patternProperties/{token(pattern)}")
        return fits or ([f"{place}/additionalProperties"] if "additionalProperties" in schema else [])

    def wrong_items(self, items: Sequence[Any], place: str) -> Iterator[int]:
        """The indexes of *items* that are not valid at *place*, found by halves, since of many items most are valid."""
        every = self._validator(("every", place), lambda: {"items": {"$ref": self._ref(place)}}, self._formats)
        ranges = [(0, len(items))]
        while ranges:
            start, stop = ranges.pop()
            if start == stop or (every is None or every.is_valid(items[start:stop])):
                continue
            if stop - start == 1:
                yield start
            else:
                middle = (start + stop) // 2
                ranges += [(middle, stop), (start, middle)]

    def validator_at(self, place: str, *, formats: bool | None = None) -> Validator | None:
        """The validator of the schema at *place*. None where the part cannot be taken by itself."""
        judged = self._formats if formats is None else formats
        return self._validator(("", place), lambda: {"$ref": self._ref(place)}, judged)

    def _ref(self, place: str) -> str:
        return f"{self._base}#{quote(place, safe='/~')}"

    def _validator(
        self, purpose: tuple[str, str], schema: Callable[[], dict[str, Any]], formats: bool
    ) -> Validator | None:
        key = *purpose, formats
        if key not in self._validators:
            try:
                if self._registry is None:
                    self._registry = jsonschema_rs.Registry([(self._base, self._root)])
                self._validators[key] = Validator(
                    schema(), registry=self._registry, validate_formats=formats, offline=True, mask="the value"
                )
            except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
                self._validators[key] = None
        return self._validators[key]


@dataclass(frozen=True, slots=True)
class SchemaNames:
    """The names in a schema of an object.

    Those *known*, those *required* in any case, whether it admits *others*, and whether it is *composed* of parts that
    `additionalProperties` does not see.
    """

    known: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    others: bool = False
    composed: bool = False


def schema_names(schema: Mapping[str, Any]) -> SchemaNames:
    """Return the names of *schema*, its own and those of its parts (`$ref`, `allOf`, `anyOf`, ...)."""
    return names_at(Document(schema, formats=False), "", {})


def names_at(document: Document, place: str, seen: dict[str, SchemaNames]) -> SchemaNames:
    """Return the names of the schema at *place*; *seen* are those of places that were looked at."""
    if place in seen:
        return seen[place]
    seen[place] = SchemaNames()
    schema, target = document.at(place), document.target(place)
    required = frozenset(schema.get("required", ()))
    others = bool(schema.get("patternProperties"))
    others |= any(schema.get(word, False) is not False for word in ("additionalProperties", "unevaluatedProperties"))
    certain = document.branches(place, "allOf") + ([target] if target is not None else [])
    parts = [names_at(document, part, seen) for part in certain]
    required = required.union(*(part.required for part in parts))
    for union in ("anyOf", "oneOf"):
        if branches := [names_at(document, branch, seen) for branch in document.branches(place, union)]:
            required |= frozenset.intersection(*(branch.required for branch in branches))
            parts += branches
    possible = [f"{place}/{word}" for word in ("if", "then", "else") if word in schema]
    possible += [f"{place}/dependentSchemas/{token(name)}" for name in schema.get("dependentSchemas", {})]
    parts += [names_at(document, part, seen) for part in possible]
    known = dict.fromkeys([*schema.get("properties", ()), *(name for part in parts for name in part.known)])
    seen[place] = SchemaNames(tuple(known), required, others or any(part.others for part in parts), bool(parts))
    return seen[place]


def _no_pause() -> None: ...


class Budget:
    """How much may still be looked at, so that no schema and no data make a search long.

    *pause* is called at every look, also where nothing is counted; it may raise, which ends the search.
    """

    def __init__(
        self, allowed: int, *, each: int, pause: Callable[[], None] = _no_pause, most_s: float = math.inf
    ) -> None:
        self.pause = pause
        self._due = monotonic() + most_s
        self._left = allowed
        self._each = each
        self._weights: dict[int, int] = {}
        self._alive: list[Any] = []  # what was weighed: an id may be used again

    def take(self, value: Any) -> bool:
        """Whether *value* may be looked at once more."""
        self.pause()
        self._left -= self._each + (self._weigh(value) if isinstance(value, dict | list | str) else 0)
        return self._left >= 0 and monotonic() < self._due

    def _weigh(self, value: Any) -> int:
        if isinstance(value, str):
            return len(value) // 32
        if not isinstance(value, dict | list):
            return 1
        known = self._weights.get(id(value))
        if known is None:
            members = value.values() if isinstance(value, dict) else value
            known = self._weights[id(value)] = 1 + sum(map(self._weigh, members))
            self._alive.append(value)
        return known


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + token(part) for part in path)


def token(part: str | int) -> str:
    """One step of a JSON pointer."""
    return str(part).replace("~", "~0").replace("/", "~1")


def kind(value: Any) -> str:
    """The JSON type of a decoded value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def named_kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a schema names, directly or by what it lists; none where it names none."""
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(named)
    if "enum" in schema:
        return frozenset(kind(choice) for choice in schema["enum"])
    if "const" in schema:
        return frozenset({kind(schema["const"])})
    return frozenset()


def _renamed_inside(part: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(part.get("$id"), str) or any(map(_renamed_inside, part.values()))
    return isinstance(part, list) and any(map(_renamed_inside, part))
