"""Lowering into a strict mode: objects list all their members, and nothing else may be written.

A member that may be left out is asked for with null for absent; an object of any names is asked for as a list of
entries. What cannot be said at all is grave: the tool is better sent without strict mode.
"""

from typing import Any

from .combine import Combined, is_annotation
from .document import kind
from .keywords import NUMBERS, STRINGS
from .lift import KEY, VALUE, Entries, Items, Member, Members, OneOf, Plan
from .losses import Loss, subject
from .lowering import Lowering
from .parts import Conj, Part, either
from .telling import Out

_SCALARS = ("string", "integer", "number", "boolean", "null")
_ANY = ["string", "number", "boolean", "null"]
_OBJECTS = frozenset({"properties", "required", "additionalProperties", "patternProperties", "minProperties"})
_ARRAYS = frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"})


class Strict(Lowering):
    """The lowering of one schema into a dialect whose objects are closed."""

    def keeps(self, conj: Conj) -> bool:
        """Never: parts that are closed one by one would shut each other out."""
        return False

    def cut(self, conj: Conj) -> Out:
        """Strict mode has no words for what goes on without end, or too deep."""
        super().cut(conj)
        part = next((each for each in conj if isinstance(each, Part)), self.places.root)
        for key in [key for key in self.losses if key[0] == part.path and key[1] in ("$ref", "nesting")]:
            what = f"In strict mode {subject(part.path)} could not hold more of its own kind, or is nested too deeply."
            self.losses[key] = Loss(*key, what)
        return self.anything()

    def anything(self) -> Out:
        """Any value that is no object and no list: strict mode has no words for all of them."""
        return Out({"type": list(_ANY)})

    def emit(self, both: Combined, depth: int, *, root: bool = False) -> Out | None:
        """What *both* demands, in the dialect's words."""
        if both.unions:
            return self.spread_unions(both, depth)
        around = self.around({key: value for key, (value, _) in both.said.items() if is_annotation(key)})
        values = self.values(both)
        if values is not None:
            return self._listed(both, values, around)
        kinds = both.kinds or self._guessed(both)
        if kinds is None:
            return Out({**around, **self.anything().schema})
        scalars = tuple(kind for kind in kinds if kind in _SCALARS)
        groups = [(kind,) for kind in kinds if kind not in _SCALARS] + ([scalars] if scalars else [])
        outs: list[Out] = []
        for group in groups:
            both.kinds = group
            if group == ("object",):
                out = self._object(both, depth, root=root)
            else:
                out = self._array(both, depth) if group == ("array",) else self._scalar(both)
            if out is not None:
                outs.append(out)
        both.kinds = kinds
        return self.joined(outs, around, both.parts[0]) if outs else None

    def _guessed(self, both: Combined) -> tuple[str, ...] | None:
        part = both.parts[0] if both.parts else self.places.root
        meaning = (
            f"The provider's strict mode must be told the type of {subject(part.path)}, and the schema does not say it."
        )
        self.lose(part, "type", meaning, grave=True)
        said = set(both.order)
        if said & _OBJECTS:
            return ("object",)
        return ("array",) if said & _ARRAYS else None

    def _listed(self, both: Combined, values: list[Any], around: dict[str, Any]) -> Out | None:
        part = both.said["enum" if "enum" in both.said else "const"][1]
        plain = [value for value in values if not isinstance(value, dict | list)]
        if len(plain) < len(values):
            what = "The provider's strict mode lists no objects and no lists among the values of"
            self.lose(part, "enum" if "enum" in both.said else "const", f"{what} {subject(part.path)}.", grave=True)
            if not plain:
                return Out({**around, **self.anything().schema})
        if not plain:
            return None
        kinds = list(dict.fromkeys(map(kind, plain)))
        if "number" in kinds and "integer" in kinds:
            kinds.remove("integer")
        named = kinds[0] if len(kinds) == 1 else kinds
        if "const" in both.said and "enum" not in both.said and self.accepts.takes("const"):
            return Out({**around, "type": named, "const": plain[0]})
        return Out({**around, "type": named, "enum": plain})

    def _scalar(self, both: Combined) -> Out:
        kinds = both.kinds or ()
        out: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else list(kinds)}
        for keyword in (*NUMBERS, *STRINGS):
            if keyword in both.said and self.matters(both, keyword):
                self.assertion(both, keyword, out)
        if "not" in both.inner and self.trivial(both.inner["not"][0]) is not False:
            self.lose_said(both, "not")
        if "if" in both.inner and ("then" in both.inner or "else" in both.inner):
            self.lose_said(both, "if")
        return Out(out)

    def _unsaid(self, both: Combined, *keywords: str) -> None:
        """Tell of demands that are not kept: conditions, and *keywords*."""
        for keyword in ("not", "if", *keywords):
            if keyword in both.inner:
                demand, _ = both.inner[keyword]
                idle = self.trivial(demand) is (keyword != "not")
                if keyword == "if":
                    idle = "then" not in both.inner and "else" not in both.inner
                if keyword == "contains":
                    idle = both.value("minContains", 1) == 0 and "maxContains" not in both.said
                if not idle:
                    self.lose_said(both, keyword)

    # -- lists -----------------------------------------------------------------------------------------------------

    def _array(self, both: Combined, depth: int) -> Out | None:
        out: dict[str, Any] = {"type": "array"}
        for keyword in ("minItems", "maxItems", "uniqueItems"):
            if keyword in both.said:
                self.assertion(both, keyword, out)
        self._unsaid(both, "contains")
        ends = both.items is not None and self.trivial(both.items[0]) is False
        rest: Conj = () if both.items is None else both.items[0]
        demands = [*both.first, *([] if ends else [rest])]
        if len(set(demands)) > 1:
            self.lose(both.first_part or both.parts[0], "prefixItems")
        if ends and out.get("maxItems", len(both.first) + 1) > len(both.first):
            self._at_most(both, out, len(both.first))
        if not demands:
            # Only the empty list is left: what its items would be does not matter.
            out["items"] = {"type": "string"}
            return Out(out)
        demand = either(demands)
        if self.trivial(demand) is True:
            self._untyped(both)
            each: Out | None = self.anything()
        else:
            each = self.lower(demand, depth + 1)
        if each is None:
            self._at_most(both, out, 0)
            each = Out({"type": "string"})
        out["items"] = each.schema
        return Out(out, None if each.plan is None else Items((), each.plan))

    def _at_most(self, both: Combined, out: dict[str, Any], count: int) -> None:
        if self.accepts.takes("maxItems"):
            out["maxItems"] = count
        else:
            part = both.items[1] if both.items else both.parts[0]
            self.lose(part, "items", f"The provider is not told that {subject(part.path)} has at most {count} items.")

    def _untyped(self, both: Combined) -> None:
        part = both.parts[0] if both.parts else self.places.root
        what = "The provider's strict mode must be told the type of the items of"
        self.lose(part, "items", f"{what} {subject(part.path)}, and the schema does not say it.", grave=True)

    # -- objects ---------------------------------------------------------------------------------------------------

    def _object(self, both: Combined, depth: int, *, root: bool) -> Out | None:
        part = both.parts[0] if both.parts else self.places.root
        required = both.value("required", [])
        self._unsaid(both, "propertyNames")
        if both.dependent:
            self.lose_said(both, "dependentSchemas")
        if "dependentRequired" in both.said and self.matters(both, "dependentRequired"):
            self.lose_said(both, "dependentRequired")
        names = dict.fromkeys([*both.properties, *required])
        if not names and (entries := self._entries(both, depth, root=root)):
            return entries
        self._close(both, part, root=root)
        for keyword in ("minProperties", "maxProperties"):
            if keyword in both.said and self.matters(both, keyword) and not self._counted(both, keyword):
                self.lose_said(both, keyword)
        members: dict[str, Any] = {}
        plans: dict[str, Member] = {}
        for name in names:
            demand = both.properties.get(name, both.additional[0] if both.additional else ())
            lowered = self.lower(demand, depth + 1)
            if lowered is None:
                if name in required:
                    return None
                continue
            absent = False
            if self.accepts.all_required and name not in required:
                lowered, absent = self._optional(lowered, demand, name, part)
            members[name] = lowered.schema
            if absent or lowered.plan is not None:
                plans[name] = Member(name, absent, lowered.plan)
        asked = list(members) if self.accepts.all_required else [name for name in members if name in required]
        out = {"type": "object", "properties": members, "required": asked, "additionalProperties": False}
        return Out(out, Members(plans) if plans else None)

    def _counted(self, both: Combined, keyword: str) -> bool:
        """Whether a number of members is kept anyhow: no others than the listed ones may be written."""
        return keyword == "maxProperties" and both.said[keyword][0] >= len(both.properties)

    def _close(self, both: Combined, part: Part, *, root: bool) -> None:
        """Tell what it means that the object takes no members but those listed."""
        what = subject(part.path)
        if both.patterns:
            owner = next(iter(both.patterns.values()))[1]
            meaning = f"In strict mode {what} could have no members whose names are only described by a pattern."
            self.lose(owner, "patternProperties", meaning, grave=True)
        if both.additional is None:
            free = not both.properties and "properties" not in both.order and not root
            meaning = (
                f"In strict mode {what}, which takes any members, could have none."
                if free
                else f"The model can give {what} no members but those listed, though the schema would take others."
            )
            self.lose(part, "additionalProperties", meaning, grave=free)
        elif self.trivial(both.additional[0]) is not False:
            meaning = f"In strict mode {what} could have no other members than those listed, and it takes others."
            self.lose(both.additional[1], "additionalProperties", meaning, grave=True)

    def _entries(self, both: Combined, depth: int, *, root: bool) -> Out | None:
        """An object of any names as a list of entries; None where it is none, or that cannot be said."""
        if root:
            return None
        demands = [demand for demand, _ in both.patterns.values()]
        ends = both.additional is not None and self.trivial(both.additional[0]) is False
        if demands and not ends:
            return None
        if not demands:
            if both.additional is None or ends or self.trivial(both.additional[0]) is True:
                return None
            demands = [both.additional[0]]
        value = self.lower(either(demands), depth + 1)
        if value is None:
            return None
        key = self._key(both)
        part = both.additional[1] if both.additional else both.parts[0]
        meaning = (
            f"The members of {subject(part.path)} are asked for as a list of entries, and the provider is not told "
            "that no name stands twice; Toolcrib still checks it."
        )
        self.lose(part, "additionalProperties", meaning)
        entry = {
            "type": "object",
            "properties": {KEY: key, VALUE: value.schema},
            "required": [KEY, VALUE],
            "additionalProperties": False,
        }
        out: dict[str, Any] = {"type": "array", "items": entry}
        for keyword, other in (("minProperties", "minItems"), ("maxProperties", "maxItems")):
            if keyword in both.said and self.matters(both, keyword):
                count, _ = both.said[keyword]
                most = dict(self.accepts.at_most).get(other)
                if self.accepts.takes(other) and (most is None or count <= most):
                    out[other] = count
                else:
                    self.lose_said(both, keyword)
        return Out(out, Entries(value.plan))

    def _key(self, both: Combined) -> dict[str, Any]:
        """Words for the names of an object's members."""
        key: dict[str, Any] = {"type": "string", "description": "The name."}
        if both.patterns:
            pattern, (_, owner) = next(iter(both.patterns.items()))
            said = Combined([owner], kinds=("string",), said={"pattern": (pattern, owner)})
            before = set(self.losses)
            self.assertion(said, "pattern", key)
            for added in set(self.losses) - before:  # it is told as what it stands for in the schema
                del self.losses[added]
            if "pattern" not in key or len(both.patterns) > 1:
                key.pop("pattern", None)
                self.lose(owner, "patternProperties")
        return key

    def _optional(self, out: Out, demand: Conj, name: str, part: Part) -> tuple[Out, bool]:
        """*out* with null for absent, and whether null is to be left out again."""
        if demand and self.holds(None, demand):
            schema = next((e.schema for e in demand if isinstance(e, Part) and isinstance(e.schema, dict)), {})
            if schema.get("default", ...) is not None:
                meaning = (
                    f"In strict mode null would stand for no '{name}' at all, and here it has a meaning of its own."
                )
                owner = next((element for element in demand if isinstance(element, Part)), part)
                self.lose(owner, "required", meaning, grave=True)
            return out, False
        return Out(_nullable(out.schema), out.plan), True

    # -- unions ----------------------------------------------------------------------------------------------------

    def joined(self, outs: list[Out], around: dict[str, Any], part: Part) -> Out:
        """One of *outs*, described by *around*, and lifted as the one that fits."""
        told = super().joined(outs, around, part)
        if told.plan is None and "anyOf" in told.schema and any(out.plan is not None for out in outs):
            branches: list[tuple[dict[str, Any], Plan | None]] = [(out.schema, out.plan) for out in outs]
            self.lifted.append((part, outs))
            return Out(told.schema, OneOf(branches))
        return told


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """*schema* with null let in."""
    named = schema.get("type")
    if "null" in (named or ()):
        return schema
    kinds = [named] if isinstance(named, str) else list(named or ())
    if kinds and "const" not in schema and not set(kinds) - set(_SCALARS):
        more = {} if "enum" not in schema else {"enum": [*schema["enum"], None]}
        return {**schema, "type": [*kinds, "null"], **more}
    around = {key: value for key, value in schema.items() if key in ("title", "description")}
    inner = {key: value for key, value in schema.items() if key not in around}
    branches = inner["anyOf"] if inner.keys() == {"anyOf"} else [inner]
    return {**around, "anyOf": [*branches, *([] if {"type": "null"} in branches else [{"type": "null"}])]}
