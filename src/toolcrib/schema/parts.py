"""A JSON Schema taken apart: the places in it, where its references lead, and several of them as one.

What a place demands is a *conjunction*: parts that must all hold. A `$ref` and its siblings are one, an `allOf` is one,
and so is what two parts of it say of the same member.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urljoin

from .bare import admits
from .document import token

ONE = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
"""Keywords whose value is a schema."""

LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords whose value is a list of schemas."""

NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
"""Keywords whose value is an object of schemas."""


@dataclass(frozen=True, slots=True)
class Part:
    """One place of a schema, known by its JSON pointer; *trimmed* where some of its keywords are left aside."""

    path: str
    schema: Any = field(compare=False)
    base: str = field(default="", compare=False)
    trimmed: bool = False

    def at(self, *steps: str | int) -> "Part":
        """The place at *steps* below this one."""
        schema, path, base = self.schema, self.path, self.base
        for step in steps:
            schema = schema[step]
            path += "/" + token(step)
        identity = schema.get("$id") if isinstance(schema, dict) else None
        return Part(path, schema, urljoin(base, identity) if isinstance(identity, str) else base)

    def without(self, *keywords: str) -> "Part":
        """This place with *keywords* left aside."""
        return Part(self.path, {k: v for k, v in self.schema.items() if k not in keywords}, self.base, True)


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of several conjunctions."""

    branches: "tuple[Conj, ...]"


Conj = tuple[Part | Either, ...]
"""Parts that must all hold; none of them: anything goes."""


def either(branches: list[Conj]) -> Conj:
    """What holds where one of *branches* does. A branch that demands nothing makes the whole demand nothing."""
    different = tuple(dict.fromkeys(branches))
    if not all(different):
        return ()
    return different[0] if len(different) == 1 else (Either(different),)


class Places:
    """The places of one schema that references lead to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        identity = root.get("$id")
        self.root = Part("", root, identity.partition("#")[0] if isinstance(identity, str) else "")
        self._resources = {self.root.base: self.root, "": self.root}
        self._anchors: dict[tuple[str, str], Part] = {}
        waiting = [self.root]
        while waiting:
            part = waiting.pop()
            if isinstance(part.schema, dict):
                if isinstance(part.schema.get("$id"), str):
                    self._resources.setdefault(part.base.partition("#")[0], part)
                for keyword in ("$anchor", "$dynamicAnchor"):
                    if isinstance(name := part.schema.get(keyword), str):
                        self._anchors.setdefault((part.base, name), part)
                waiting.extend(below(part))

    def target(self, part: Part) -> Part | None:
        """Where the reference at *part* leads; None where that is not in this schema.

        A `$dynamicRef` leads where a `$ref` would: within one schema an anchor has one place.
        """
        ref = part.schema.get("$ref", part.schema.get("$dynamicRef"))
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


def below(part: Part) -> Iterator[Part]:
    """The schemas directly inside the one at *part*."""
    schema = part.schema
    for keyword in schema:
        if keyword in ONE:
            yield part.at(keyword)
        elif keyword in LISTED:
            yield from (part.at(keyword, index) for index in range(len(schema[keyword])))
        elif keyword in NAMED:
            yield from (part.at(keyword, name) for name in schema[keyword])


@lru_cache(maxsize=4096)
def matches(name: str, pattern: str) -> bool:
    """Whether *pattern*, as JSON Schema understands it, is found in *name*."""
    return admits({"pattern": pattern}, name)


def nesting(value: Any) -> int:
    """How deeply objects and lists are nested in *value*."""
    depth, level = 0, [value]
    while level := [inner for outer in level for inner in _inside(outer)]:
        depth += 1
    return depth


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
