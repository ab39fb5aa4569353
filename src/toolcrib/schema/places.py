"""A JSON Schema taken apart: the places in it, where references lead, and which values are valid at a place."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from urllib.parse import unquote, urljoin

from .document import Document, token

_NUMBER, _STRING, _ARRAY, _OBJECT = ("integer", "number"), ("string",), ("array",), ("object",)
KINDS = ("null", "boolean", *_NUMBER, *_STRING, *_ARRAY, *_OBJECT)

ASSERTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), _STRING),
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems"), _ARRAY),
    **dict.fromkeys(("required", "minProperties", "maxProperties", "dependentRequired"), _OBJECT),
}
"""Keywords with a plain value, and the JSON types of which they demand something."""

CONDITIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("not", "if"), KINDS),
    **dict.fromkeys(("contains", "unevaluatedItems"), _ARRAY),
    **dict.fromkeys(("propertyNames", "dependentSchemas", "dependencies", "unevaluatedProperties"), _OBJECT),
}
"""Keywords that only a dialect with all keywords takes, and the JSON types of which they demand something."""

IN_PLACE = ("allOf", "$ref", "$dynamicRef", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies")
"""Keywords that apply other schemas to the same value, which `unevaluated...` then takes into account."""

_WITH_SCHEMA = frozenset({*CONDITIONS, "additionalProperties", "items", "then", "else", "contentSchema"})
_WITH_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
# `dependencies` is of older drafts. jsonschema-rs checks it, so it counts; some of what it names are lists of names.
_WITH_NAMED_SCHEMAS = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
_DEMANDS = frozenset(
    {*ASSERTIONS, *CONDITIONS, *IN_PLACE, "type", "enum", "const", "minContains", "maxContains", "then", "else"}
    | {"properties", "patternProperties", "additionalProperties", "prefixItems", "items"}
)

PLAIN = _DEMANDS - {*CONDITIONS, *IN_PLACE, "minContains", "maxContains", "then", "else"} | {
    *("anyOf", "title", "description", "default", "examples")
}
"""The keywords that the walk can rewrite, and those that describe."""


def is_annotation(keyword: str) -> bool:
    """Whether *keyword* demands nothing."""
    return keyword not in _DEMANDS


def says_nothing(schema: Any) -> bool:
    """Whether any value is valid under *schema*, because it has annotations only."""
    return schema is True or (isinstance(schema, dict) and not schema.keys() & _DEMANDS)


@dataclass(frozen=True, slots=True)
class Part:
    """One place of a schema, known by its JSON pointer; *bare* where some of its keywords are left aside."""

    path: str
    schema: Any = field(compare=False)
    base: str = field(default="", compare=False)
    bare: bool = False

    def at(self, *steps: str | int) -> "Part":
        """The place at *steps* below this one."""
        schema, path, base = self.schema, self.path, self.base
        for step in steps:
            schema = schema[step]
            path += "/" + token(step)
        identity = schema.get("$id") if isinstance(schema, dict) else None
        return Part(path, schema, urljoin(base, identity) if isinstance(identity, str) else base)

    def only(self, keywords: Iterable[str]) -> "Part":
        """This place with *keywords* only."""
        return Part(self.path, {word: self.schema[word] for word in keywords if word in self.schema}, self.base, True)

    def listed(self, keyword: str) -> "list[Conj]":
        """The branches under *keyword*."""
        return [(self.at(keyword, index),) for index in range(len(self.schema.get(keyword, ())))]

    @property
    def refers(self) -> bool:
        """Whether it has a reference."""
        return isinstance(self.schema, dict) and ("$ref" in self.schema or "$dynamicRef" in self.schema)


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of several conjunctions."""

    branches: "tuple[Conj, ...]"


Conj = tuple[Part | Either, ...]
"""Parts that must all hold; none of them: any value is valid."""


def either(branches: list[Conj]) -> Conj:
    """The conjunction that holds where one of *branches* does."""
    different = tuple(dict.fromkeys(branches))
    if not all(different):
        return ()
    return different[0] if len(different) == 1 else (Either(different),)


def all_parts(conj: Conj) -> list[Part]:
    """All places in *conj*."""
    found: list[Part] = []
    for element in conj:
        found += [element] if isinstance(element, Part) else chain.from_iterable(map(all_parts, element.branches))
    return found


def verdict(conj: Conj) -> bool | None:
    """True where any value is valid under *conj*, False where none is, None where it depends on the value."""
    if all(isinstance(element, Part) and says_nothing(element.schema) for element in conj):
        return True
    return False if any(isinstance(element, Part) and element.schema is False for element in conj) else None


Follow = Callable[[Part, str, str], bool]
"""Called with a part, a keyword of it, and the step of a JSON pointer below that."""


class Places:
    """The places of one schema: where references lead, what is reached from a place, which values are valid there."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        identity = root.get("$id")
        self.root = Part("", root, identity.partition("#")[0] if isinstance(identity, str) else "")
        self._resources = {self.root.base: self.root, "": self.root}
        self._anchors: dict[tuple[str, str], Part] = {}
        self._dynamic: Counter[str] = Counter()
        self._targets: dict[Part, Part | None] = {}
        self._documents: dict[Part | None, Document] = {}
        for part in within(self.root):
            if isinstance(part.schema, dict):
                if isinstance(part.schema.get("$id"), str):
                    self._resources.setdefault(part.base.partition("#")[0], part)
                for keyword in ("$anchor", "$dynamicAnchor"):
                    if isinstance(name := part.schema.get(keyword), str):
                        self._anchors.setdefault((part.base, name), part)
                        self._dynamic[name] += keyword == "$dynamicAnchor"

    def target(self, part: Part) -> Part | None:
        """The one place that the reference at *part* leads to; None where that is not in this schema.

        None also where there is more than one: beside a `$ref` a `$dynamicRef`, or several anchors that this may mean.
        """
        if part not in self._targets:
            refs = [part.schema[word] for word in ("$ref", "$dynamicRef") if word in part.schema]
            unclear = len(refs) > 1 or ("$ref" not in part.schema and self._dynamic[refs[0].partition("#")[2]] > 1)
            self._targets[part] = None if unclear else self.place(part, refs[0])
        return self._targets[part]

    def place(self, part: Part, ref: str) -> Part | None:
        """The place that *ref* at *part* leads to; None where that is not in this schema."""
        uri, _, fragment = ref.partition("#")
        resource = self._resources.get(urljoin(part.base, uri) if uri else part.base)
        fragment = unquote(fragment)
        if resource is None or not fragment:
            return resource
        if not fragment.startswith("/"):
            return self._anchors.get((resource.base, fragment))
        found = resource
        for step in fragment[1:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found.at(int(step) if isinstance(found.schema, list) else step)
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        return found if isinstance(found.schema, dict | bool) else None

    def all(self) -> "set[Part]":
        """All places in the schema, and those that references lead to under keywords that nobody knows."""
        places = list(within(self.root))
        return {*places, *self.reach(*places)}

    def leads_out(self, part: Part) -> bool:
        """Whether a reference at *part* leads out of this schema."""
        refs = [part.schema[word] for word in ("$ref", "$dynamicRef") if word in part.schema] if part.refers else ()
        return any(self.place(part, ref) is None for ref in refs)

    def reach(self, *starts: Part, follow: "Follow | None" = None) -> set[Part]:
        """The places inside *starts*, and those that references lead to, as far as *follow* goes."""
        seen: set[Part] = set()
        waiting = list(starts)
        while waiting:
            for place in self._next(waiting.pop(), follow):
                if place not in seen:
                    seen.add(place)
                    waiting.append(place)
        return seen

    def cyclic(self, *, follow: "Follow | None" = None) -> set[Part]:
        """The places that contain themselves, as far as *follow* goes."""
        onward: dict[Part, list[Part]] = {}
        backward: dict[Part, list[Part]] = {}
        for part in self.all():
            onward[part] = self._next(part, follow)
            for place in onward[part]:
                backward.setdefault(place, []).append(part)
        found: set[Part] = set()
        left: set[Part] = set(onward)
        for start in reversed(_finished(onward)):  # Kosaraju: what leads back to the start, of what is left
            group, waiting = {start}, [start] if start in left else []
            left.discard(start)
            while waiting:
                new = {place for place in backward.get(waiting.pop(), ()) if place in left}
                left -= new
                group |= new
                waiting.extend(new)
            if len(group) > 1 or start in onward[start]:
                found |= group
        return found

    def _next(self, part: Part, follow: "Follow | None" = None) -> list[Part]:
        """The places directly inside *part*, and where its reference leads."""
        inside = [
            place
            for keyword, place in below(part)
            if keyword not in ("$defs", "definitions")
            and (follow is None or follow(part, keyword, place.path[len(part.path) + len(keyword) + 2 :]))
        ]
        target = self.target(part) if part.refers else None
        return inside if target is None else [*inside, target]

    def valid(self, value: Any, conj: Conj) -> bool:
        """Whether *value* is valid under *conj*; True where that cannot be found out."""
        return all(
            self._valid(value, element)
            if isinstance(element, Part)
            else any(self.valid(value, branch) for branch in element.branches)
            for element in conj
        )

    def _valid(self, value: Any, part: Part) -> bool:
        own = part if part.bare else None
        if own not in self._documents:
            root = self.root.schema
            # A bare part stands nowhere in the schema: it is put beside its definitions.
            more = {"$defs": {**root.get("$defs", {}), "-": part.schema}} if part.bare else {}
            self._documents[own] = Document({**root, **more}, formats=False)
        return self._documents[own].valid(value, "/$defs/-" if part.bare else part.path)


def _finished(graph: Mapping[Part, list[Part]]) -> list[Part]:
    """The nodes of *graph*, each after those that it leads to, cycles aside."""
    order: list[Part] = []
    seen: set[Part] = set()
    for start in graph:
        stack = [] if start in seen else [(start, iter(graph[start]))]
        seen.add(start)
        while stack:
            part, more = stack[-1]
            place = next((place for place in more if place not in seen), None)
            if place is None:
                order.append(part)
                stack.pop()
            else:
                seen.add(place)
                stack.append((place, iter(graph[place])))
    return order


def below(part: Part) -> Iterator[tuple[str, Part]]:
    """The schemas directly inside the one at *part*, each with its keyword."""
    for keyword, value in part.schema.items() if isinstance(part.schema, dict) else ():
        if keyword in _WITH_NAMED_SCHEMAS:
            yield from ((keyword, part.at(keyword, name)) for name in value)
        elif keyword in _WITH_SCHEMAS:
            yield from ((keyword, part.at(keyword, index)) for index in range(len(value)))
        elif keyword in _WITH_SCHEMA:
            yield keyword, part.at(keyword)


def rebuilt(part: Part, change: Callable[[Part], Any]) -> dict[str, Any]:
    """The schema at *part*, with *change* of each schema directly inside in its place."""
    out = dict(part.schema)
    for keyword, value in part.schema.items():
        if keyword in _WITH_NAMED_SCHEMAS:
            out[keyword] = {name: change(part.at(keyword, name)) for name in value}
        elif keyword in _WITH_SCHEMAS:
            out[keyword] = [change(part.at(keyword, index)) for index in range(len(value))]
        elif keyword in _WITH_SCHEMA:
            out[keyword] = change(part.at(keyword))
    return out


def within(part: Part) -> Iterator[Part]:
    """*part*, and all places inside it."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(inner for _, inner in below(part))
