"""What becomes of one place of a schema in a provider's dialect: which demands are kept, in which form, or lost.

Leaving a demand out makes a schema wider; that is reported, and the check still holds.
"""

import re
from collections.abc import Mapping
from math import floor
from typing import Any

from .describe import in_words, with_sentences
from .dialect import subject
from .document import kind
from .merge import Merged, ignore, matches, merge
from .places import ASSERTIONS, CONDITIONS, KINDS, Conj, Part, either, is_annotation, says_nothing, verdict
from .restore import KEY, VALUE, Entries, Items, Member, Members, Plan
from .walk import Out, Walk

_SCALARS = ("string", "integer", "number", "boolean", "null")
_OBJECT_KEYWORDS = ("properties", "required", "additionalProperties", "patternProperties", "minProperties")
_ARRAY_KEYWORDS = ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")
_IDLE: Mapping[str, Any] = {"minLength": 0, "minItems": 0, "minProperties": 0, "uniqueItems": False, "required": []}
# Others are up to whoever reads the schema: no check holds them.
_FORMATS = frozenset(
    {"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri"}
    | {"uri-reference", "iri", "iri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex"}
    | {"uuid"}
)


class Rewrite(Walk):
    """The rewriting of one schema for one dialect. Use it once."""

    def emit(self, merged: Merged, depth: int, *, root: bool = False) -> Out | None:
        """What *merged* demands, in the dialect; None where no value can be valid."""
        if merged.unions:
            return self.spread_unions(merged, depth)
        out = self._emit(merged, depth, root=root)
        if out is None or not merged.notes or not self.accepts.takes("description"):
            return out
        description = with_sentences(out.schema.get("description"), merged.notes)
        return Out({**out.schema, "description": description}, out.plan)

    def _emit(self, merged: Merged, depth: int, *, root: bool) -> Out | None:
        around = self.annotations(merged.plain)
        values = merged.listed(self.places)
        if values is not None and not self._keeps_listed(merged):
            return self._listed(merged, values, around)
        kinds = merged.kinds
        groups: list[tuple[str, ...]] = [kinds or KINDS]
        if self.accepts.needs_type:
            kinds = kinds or self._guessed(merged)
            if kinds is None:
                return Out({**around, **self.anything().schema})
            scalars = tuple(kind for kind in kinds if kind in _SCALARS)
            groups = [*((kind,) for kind in kinds if kind not in _SCALARS), *([scalars] if scalars else [])]
        outs = [out for group in groups if (out := self._of_kinds(merged, group, depth, root=root)) is not None]
        return self.joined(outs, around, [], self.first(merged)) if outs else None

    def _of_kinds(self, merged: Merged, kinds: tuple[str, ...], depth: int, *, root: bool) -> Out | None:
        """What *merged* demands of values of *kinds*."""
        out: dict[str, Any] = {word: merged.get(word) for word in ("enum", "const") if word in merged.keywords}
        if kinds is not KINDS:
            out["type"] = kinds[0] if len(kinds) == 1 else list(kinds)
        self._conditions(merged, kinds, out)
        if self.accepts.closed and kinds == ("object",) and not root and (entries := self._entries(merged, depth)):
            return entries
        for keyword in ASSERTIONS:
            if keyword in merged.keywords:
                self._assertion(merged, kinds, keyword, out)
        plan: Plan | None = None
        if "object" in kinds:
            shaped = self._object(merged, depth, root=root)
            if shaped is None:
                others = tuple(kind for kind in kinds if kind != "object")
                return self._of_kinds(merged, others, depth, root=root) if others else None
            out |= shaped.schema
            plan = shaped.plan
        if "array" in kinds:
            plan = self._items(merged, kinds, out, depth) or plan
        order = {keyword: index for part in reversed(merged.parts) for index, keyword in enumerate(part.schema)}
        return Out(dict(sorted(out.items(), key=lambda item: order.get(item[0], -1))), plan)

    def _assertion(self, merged: Merged, kinds: tuple[str, ...], keyword: str, out: dict[str, Any]) -> None:
        """Put *keyword* into *out*, as far as the dialect can express it."""
        value = merged.get(keyword)
        if self.accepts.keywords is not None and not set(ASSERTIONS[keyword]) & set(kinds):
            return
        inclusive = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(keyword, "")
        if self.accepts.takes(keyword):
            most = dict(self.accepts.at_most).get(keyword)
            formats, patterns = self.accepts.formats, self.accepts.patterns
            refused = keyword == "format" and formats is not None and value not in formats
            refused |= keyword == "pattern" and patterns is not None and not re.fullmatch(patterns, value)
            if most is not None and value > most:
                out[keyword] = most
            elif not refused:
                out[keyword] = value
                return
        elif self.accepts.takes(inclusive):
            whole = "number" not in kinds
            lowest = keyword == "exclusiveMinimum"
            bound = value if not whole else floor(value) + 1 if lowest else -floor(-value) - 1
            out[inclusive] = max(out.get(inclusive, bound), bound) if lowest else min(out.get(inclusive, bound), bound)
            if whole:
                return
        if self._matters(merged, keyword):
            self.lose_all(merged, keyword)
            merged.notes += in_words(keyword, value)

    def _matters(self, merged: Merged, keyword: str) -> bool:
        """Whether an assertion demands anything."""
        value = merged.get(keyword)
        if keyword == "format":
            return value in _FORMATS
        if keyword == "dependentRequired":
            return any(value.values())
        if keyword == "minProperties" and value <= len(merged.get("required", ())):
            return False
        if keyword == "maxProperties" and self.accepts.closed and value >= len(merged.properties):
            return False
        return keyword not in _IDLE or value != _IDLE[keyword]

    def _conditions(self, merged: Merged, kinds: tuple[str, ...], out: dict[str, Any]) -> None:
        for part, keyword in merged.conditions:
            if _is_idle(part.schema, keyword) or not set(CONDITIONS[keyword]) & set(kinds):
                continue
            if self.accepts.keywords is None and keyword not in out and keyword != "unevaluatedProperties":
                out |= self.copy(part.only([keyword, *(("then", "else") if keyword == "if" else ())]))
            else:
                self.lose(part, keyword)
                merged.notes += in_words(keyword, part.schema[keyword])

    # -- listed values ---------------------------------------------------------------------------------------------

    def _keeps_listed(self, merged: Merged) -> bool:
        """Whether the values can stand as they are listed, beside the other demands."""
        own = [word for word in merged.parts[0].schema if word != "type" and not is_annotation(word)]
        kinds = self.accepts.enum_kinds
        values = [*merged.get("enum", ()), *([merged.get("const")] if "const" in merged.keywords else ())]
        fitting = kinds is None or all(kind(value) in kinds for value in values)
        return len(merged.parts) == 1 and not self.accepts.needs_type and fitting and all(map(self.accepts.takes, own))

    def _listed(self, merged: Merged, values: list[Any], around: dict[str, Any]) -> Out | None:
        """*values* as an enumeration; what cannot be listed is described by its type."""
        if not values:
            return None
        keyword = "enum" if "enum" in merged.keywords else "const"
        if self.accepts.needs_type:
            plain = [value for value in values if not isinstance(value, dict | list)]
            if len(plain) < len(values):
                part = merged.keywords[keyword][1]
                what = "The provider's strict mode lists no objects and no lists among the values of"
                self.lose(part, keyword, f"{what} {subject(part.path)}.", grave=True)
                if not plain:
                    return Out({**around, **self.anything().schema})
            kinds = list(dict.fromkeys(map(kind, plain)))
            if "number" in kinds and "integer" in kinds:
                kinds.remove("integer")
            listed = {"const": plain[0]} if keyword == "const" and self.accepts.takes("const") else {"enum": plain}
            return Out({**around, "type": kinds[0] if len(kinds) == 1 else kinds, **listed})
        allowed = self.accepts.enum_kinds if self.accepts.takes("enum") else ()
        if allowed is None:
            return Out({**around, "enum": values})
        pieces: list[dict[str, Any]] = []
        whole = True
        for named in dict.fromkeys(map(kind, values)):
            group = [value for value in values if kind(value) == named]
            pieces.append({"type": named, "enum": group} if named in allowed else {"type": named})
            whole &= named in allowed or named == "null" or (named == "boolean" and len(set(group)) == 2)
        merged.notes += [] if whole else in_words("enum", values)
        for keyword in dict.fromkeys(word for part in merged.parts for word in part.schema):
            if not whole and not is_annotation(keyword) and keyword not in ("type", "allOf", "$ref", "$dynamicRef"):
                self.lose_all(merged, keyword)
        return Out({**around, **(pieces[0] if len(pieces) == 1 else {"anyOf": pieces})})

    def _guessed(self, merged: Merged) -> tuple[str, ...] | None:
        part = self.first(merged)
        meaning = f"The provider's strict mode needs the type of {subject(part.path)}, and the schema does not name it."
        self.lose(part, "type", meaning, grave=True)
        if any(map(merged.has, _OBJECT_KEYWORDS)):
            return ("object",)
        return ("array",) if any(map(merged.has, _ARRAY_KEYWORDS)) else None

    # -- lists -----------------------------------------------------------------------------------------------------

    def _items(self, merged: Merged, kinds: tuple[str, ...], out: dict[str, Any], depth: int) -> Plan | None:
        """Put what is demanded of items into *out*; returns what has to be undone in them."""
        first, typed = merged.first, self.accepts.needs_type
        rest = None if merged.items is None else merged.items[0]
        ends = rest is not None and verdict(rest) is False
        if ends:
            self._at_most(merged, out, len(first))
            rest = None
        if first and not self.accepts.takes("prefixItems"):
            demands = [*first, *([] if ends else [rest or ()])]
            if len(set(demands)) > 1:
                self.lose_all(merged, "prefixItems")
            rest, first = either(demands), []
        elif typed and not ends:
            rest = rest or ()
        if first:
            lowered = [self.lower(demand, depth + 1) for demand in first]
            if None in lowered:
                self._at_most(merged, out, lowered.index(None))
            if shown := [each.schema for each in lowered if each is not None]:
                out["prefixItems"] = shown
        each: Out | None = None
        if typed and rest is not None and verdict(rest) is True:
            part = self.first(merged)
            what = "The provider's strict mode needs the type of the items of"
            self.lose(part, "items", f"{what} {subject(part.path)}, and the schema does not name it.", grave=True)
            each = self.anything()
        elif rest is not None and (each := self.lower(rest, depth + 1)) is None:
            self._at_most(merged, out, len(first))
        if each is not None:
            out["items"] = each.schema
            return None if each.plan is None else Items(each.plan)
        if typed:
            out["items"] = {"type": "string"}  # of the empty list, which alone is valid
        elif self.accepts.needs_items and kinds is not KINDS:
            out["items"] = {}
        return None

    def _at_most(self, merged: Merged, out: dict[str, Any], count: int) -> None:
        if self.accepts.takes("maxItems"):
            out["maxItems"] = min(out.get("maxItems", count), count)
        else:
            for owner in merged.items[1] if merged.items else ((self.first(merged), "items"),):
                self.lose(*owner)

    # -- objects ---------------------------------------------------------------------------------------------------

    def _object(self, merged: Merged, depth: int, *, root: bool) -> Out | None:
        """What is demanded of members; None where no object can be valid."""
        out: dict[str, Any] = {}
        required, closed = merged.get("required", ()), self.accepts.closed
        if closed:
            self._close(merged, root=root)
        else:
            self._others(merged, out, depth)
        other = merged.additional[0] if merged.additional else ()
        members: dict[str, Any] = {}
        plans: dict[str, Member] = {}
        for name in dict.fromkeys([*merged.properties, *(required if closed else ())]):
            demand = merged.properties.get(name, other)
            low = self.lower(demand, depth + 1)
            if low is None and name in required:
                return None
            if low is None and (closed or (out.get("additionalProperties") is False and not merged.patterns)):
                continue
            low = low or self.nothing(demand)
            absent = False
            if self.accepts.all_required and name not in required:
                low, absent = self._optional(low, demand, name, self.first(merged))
            members[name] = low.schema
            if absent or low.plan is not None:
                plans[name] = Member(name, absent, low.plan)
        if closed:
            asked = list(members) if self.accepts.all_required else [name for name in members if name in required]
            out = {"properties": members, "required": asked, "additionalProperties": False}
        elif members or merged.has("properties"):
            out["properties"] = members
        return Out(out, Members(plans) if plans else None)

    def _others(self, merged: Merged, out: dict[str, Any], depth: int) -> None:
        """Put what is demanded of other members than the listed ones into *out*."""
        additional, patterns = merged.additional, merged.patterns
        free = True if additional is None else verdict(additional[0])
        if patterns and self.accepts.takes("patternProperties"):
            shown: dict[str, Any] = {}
            for pattern, (demand, _) in patterns.items():
                own = tuple(each for each in demand if additional is None or each not in additional[0])
                if own != demand and any(matches(name, pattern) for name in merged.properties):
                    # What holds for others would also hold for those listed, which have the pattern's demand already.
                    if free is False:
                        continue
                    assert additional is not None
                    for owner in additional[1]:
                        self.lose(*owner)
                    demand = own
                shown[pattern] = (self.lower(demand, depth + 1) or self.nothing(demand)).schema
            if shown:
                out["patternProperties"] = shown
        elif patterns:
            demands = [demand for demand, _ in patterns.values()]
            if free is not True or not all(map(verdict, demands)):
                self.lose_all(merged, "patternProperties")
            if additional is not None:
                demands = [each for each in (additional[0], *demands) if verdict(each) is not False]
                additional = either(demands), additional[1]
                free = verdict(additional[0]) if demands else False
        if additional is None:
            return
        if not self.accepts.takes("additionalProperties"):
            for owner in additional[1] if free is not True else ():
                self.lose(*owner)
        elif free is not None:
            out["additionalProperties"] = free
        else:
            lowered = self.lower(additional[0], depth + 1)
            out["additionalProperties"] = False if lowered is None else lowered.schema

    def _close(self, merged: Merged, *, root: bool) -> None:
        """Report what it means that the object takes no members but those listed."""
        part = self.first(merged)
        what = subject(part.path)
        if merged.patterns:
            owner = next(iter(merged.patterns.values()))[1]
            meaning = f"In strict mode {what} could have no members whose names are only described by a pattern."
            self.lose(owner, "patternProperties", meaning, grave=True)
        if merged.additional is None:
            free = not merged.properties and not merged.has("properties") and not root
            meaning = (
                f"In strict mode {what}, which takes any members, could have none."
                if free
                else f"The model can give {what} no members but those listed, though the schema would take others."
            )
            self.lose(part, "additionalProperties", meaning, grave=free, weight="low")
        elif verdict(merged.additional[0]) is not False:
            meaning = f"In strict mode {what} could have no other members than those listed, and it takes others."
            for closed_by in merged.additional[1]:
                self.lose(*closed_by, meaning, grave=True)

    def _optional(self, out: Out, demand: Conj, name: str, part: Part) -> tuple[Out, bool]:
        """*out* with null for absent, and whether null has to be left out again."""
        merged = merge(demand, self.places, ignore)
        typed = merged is None or "null" not in (merged.kinds or ("null",))
        if not demand or typed or not self.places.valid(None, demand):
            return Out(_nullable(out.schema), out.plan), True
        schema = next((e.schema for e in demand if isinstance(e, Part) and isinstance(e.schema, dict)), {})
        if schema.get("default", ...) is not None:
            meaning = f"In strict mode null would mean that there is no '{name}', and here it has a meaning of its own."
            owner = next((element for element in demand if isinstance(element, Part)), part)
            self.lose(owner, "required", meaning, grave=True)
        return out, False

    def _entries(self, merged: Merged, depth: int) -> Out | None:
        """A map as a list of entries; None where it is not a map, or cannot be asked for like that."""
        demands = [demand for demand, _ in merged.patterns.values()]
        free = True if merged.additional is None else verdict(merged.additional[0])
        if merged.properties or merged.get("required") or (free is not False if demands else free is not None):
            return None
        if not demands and merged.additional is not None:
            demands = [merged.additional[0]]
        value = self.lower(either(demands), depth + 1)
        if value is None:
            return None
        key = self._key(merged)
        for part in [part for part in merged.parts if "type" in part.schema] or [self.first(merged)]:
            meaning = (
                f"The members of {subject(part.path)} are asked for as a list of entries, and the schema for the "
                "provider omits that no name may be there twice; Toolcrib still checks it."
            )
            self.lose(part, "additionalProperties", meaning, weight="low")
        if "dependentRequired" in merged.keywords and self._matters(merged, "dependentRequired"):
            self.lose_all(merged, "dependentRequired")
            merged.notes += in_words("dependentRequired", merged.get("dependentRequired"))
        entry = {
            "type": "object",
            "properties": {KEY: key, VALUE: value.schema},
            "required": [KEY, VALUE],
            "additionalProperties": False,
        }
        out: dict[str, Any] = {"type": "array", "items": entry}
        for keyword, other in (("minProperties", "minItems"), ("maxProperties", "maxItems")):
            count = merged.get(keyword, 0)
            if keyword in merged.keywords and (keyword, count) != ("minProperties", 0):
                if self.accepts.takes(other) and count <= dict(self.accepts.at_most).get(other, count):
                    out[other] = count
                else:
                    self.lose_all(merged, keyword)
                    merged.notes += in_words(keyword, count)
        return Out(out, Entries(value.plan))

    def _key(self, merged: Merged) -> dict[str, Any]:
        """The schema for the names of a map's members."""
        key: dict[str, Any] = {"type": "string", "description": "The name."}
        allowed = self.accepts.patterns
        if len(merged.patterns) == 1 and self.accepts.takes("pattern"):
            (pattern,) = merged.patterns
            if allowed is None or re.fullmatch(allowed, pattern):
                return {**key, "pattern": pattern}
        if merged.patterns:
            self.lose_all(merged, "patternProperties")
        return key


def _is_idle(schema: Mapping[str, Any], keyword: str) -> bool:
    """Whether a condition demands nothing."""
    match keyword:
        case "not":
            return schema[keyword] is False
        case "if":
            return "then" not in schema and "else" not in schema
        case "contains":
            return schema.get("minContains") == 0 and "maxContains" not in schema
        case "dependentSchemas" | "dependencies":
            return all(inner == [] or says_nothing(inner) for inner in schema[keyword].values())
        case _:
            return says_nothing(schema[keyword])


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """*schema* with null allowed."""
    named = schema.get("type")
    if "null" in (named or ()):
        return schema
    kinds = [named] if isinstance(named, str) else list(named or ())
    if kinds and "const" not in schema and not set(kinds) - set(_SCALARS):
        more = {} if "enum" not in schema else {"enum": [*schema["enum"], None]}
        return {**schema, "type": [*kinds, "null"], **more}
    around = {key: value for key, value in schema.items() if key in ("title", "description")}
    inner = {key: value for key, value in schema.items() if key not in around}
    options = inner["anyOf"] if inner.keys() == {"anyOf"} else [inner]
    return {**around, "anyOf": [*options, *([] if {"type": "null"} in options else [{"type": "null"}])]}
