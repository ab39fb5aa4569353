"""One schema on its way into a provider's dialect: what is kept, what is said in other words, what is lost.

Leaving a demand out makes a schema wider; that is told, and the check still holds. Below `not`, `if` and `oneOf` it
would make it narrower: there, what cannot be said whole is not said at all.
"""

import re
from itertools import product
from math import floor
from typing import Any

from .combine import APPLIED, Combined, combine, is_annotation, says_nothing
from .document import kind
from .keywords import ASSERTIONS, HANDLED, OF_KINDS
from .parts import Conj, Part, either
from .telling import Out, Telling, Told

_MOST_BRANCHES = 64


class Lowering(Telling):
    """The lowering of one schema into a dialect whose objects may be open. Use it once."""

    def root(self, conj: Conj) -> Out:
        """The arguments themselves: always an object."""
        refused = self.accepts.not_at_root
        keep = self.keeps(conj) and not ({"$ref", "allOf"} & refused & set(self.places.root.schema))
        self._active[conj] = 1
        both = combine(conj, self.places, self.lose, whole=keep, patterns=self.accepts.takes("patternProperties"))
        if both is not None and refused & {union.keyword for union in both.unions}:
            both = self.flat(both)
        out = None
        values = None if both is None else self.values(both)
        none = values is not None and not any(isinstance(value, dict) for value in values)
        if both is not None and not none and (both.kinds is None or "object" in both.kinds):
            both.kinds = ("object",)
            self._refuse(both)
            out = self.emit(both, 0, root=True)
        self._active[conj] = 0
        if out is None:
            self.lose(
                self.places.root, "false", "The provider is told of an object; no arguments are valid.", grave=True
            )
            out = Out({"type": "object", "properties": {}})
        return Out({"type": "object", "properties": {}, **out.schema}, out.plan)

    def _refuse(self, both: Combined) -> None:
        """Take out what the dialect refuses for the arguments themselves."""
        for keyword in self.accepts.not_at_root:
            if keyword in both.said and not is_annotation(keyword):
                both.said.pop(keyword)
                self.lose_said(both, keyword)
            if keyword in both.inner:
                _, part = both.inner.pop(keyword)
                self.lose(part, keyword)
            if keyword == "additionalProperties" and both.additional is not None and not both.patterns:
                if self.trivial(both.additional[0]) is not True:
                    self.lose(both.additional[1], keyword)
                both.additional = None

    def flat(self, both: Combined) -> Combined | None:
        """*both* with its unions told as one object that has the members of all branches."""
        branches = self.branches(both)
        if branches is None:
            views: list[Combined] = []
        else:
            found = (combine(conj, self.places, self.lose, whole=False, patterns=False) for conj in branches)
            views = [view for view in found if view is not None and (view.kinds is None or "object" in view.kinds)]
            if not views:
                return None
        if len(views) == 1 and not views[0].unions:
            return views[0]
        base = tuple(self.bare(part, described=True) for part in both.parts)
        merged = combine(base, self.places, self.lose, whole=False, patterns=False)
        if merged is None:
            return None
        for union in both.unions:
            meaning = (
                "The provider is told of all members together, and not which of them go together or are needed "
                "together; Toolcrib still checks it."
            )
            self.lose(union.part, union.keyword, meaning)
        for name in dict.fromkeys(name for view in views for name in view.properties):
            merged.properties[name] = either([view.properties[name] for view in views if name in view.properties])
        for pattern in dict.fromkeys(pattern for view in views for pattern in view.patterns):
            found_in = [view.patterns[pattern] for view in views if pattern in view.patterns]
            merged.patterns[pattern] = either([demand for demand, _ in found_in]), found_in[0][1]
        if views:
            always = [name for name in views[0].value("required", []) if _everywhere(name, views)]
            merged.said["required"] = always, self.places.root
            closed = [view.additional for view in views if view.additional is not None]
            whole = len(closed) == len(views)
            merged.additional = (either([demand for demand, _ in closed]), closed[0][1]) if whole else None
        return merged

    # -- one place -------------------------------------------------------------------------------------------------

    def emit(self, both: Combined, depth: int, *, root: bool = False) -> Out | None:
        """What *both* demands, in the dialect's words."""
        several = len(both.unions) > 1 and (self.accepts.keywords is not None or len(both.parts) > 1)
        if several or (both.unions and self.accepts.unions_alone):
            return self.spread_unions(both, depth)
        enumerated = self.enumerated(both)
        if enumerated is not None:
            return enumerated if enumerated.schema else None
        out: dict[str, Any] = self.around({key: value for key, (value, _) in both.said.items() if key not in HANDLED})
        if both.kinds is not None:
            out["type"] = both.kinds[0] if len(both.kinds) == 1 else list(both.kinds)
        for keyword in ("enum", "const"):
            if keyword in both.said:
                out[keyword] = both.said[keyword][0]
        for keyword in ASSERTIONS:
            if keyword in both.said:
                self.assertion(both, keyword, out)
        steps = (self._members, self._items, self._inner, self._unions)
        if not all(step(both, out, depth) for step in steps):
            return None
        if both.refers is not None and (target := self.places.target(both.refers)):
            out |= self.reference((target,)).schema
        return Out(_ordered(out, both.order))

    def assertion(self, both: Combined, keyword: str, out: dict[str, Any]) -> None:
        """Say *keyword* in *out*, as far as the dialect has words for it."""
        value, _ = both.said[keyword]
        kinds = OF_KINDS[keyword]
        if self.accepts.keywords is not None and both.kinds is not None and not set(kinds) & set(both.kinds):
            return
        other = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(keyword)
        if self.accepts.takes(keyword):
            most = dict(self.accepts.at_most).get(keyword)
            formats, patterns = self.accepts.formats, self.accepts.patterns
            unknown = keyword == "format" and formats is not None and value not in formats
            unknown |= keyword == "pattern" and patterns is not None and not re.fullmatch(patterns, value)
            if most is not None and value > most:
                out[keyword] = most
            elif not unknown:
                out[keyword] = value
                return
        elif other is not None and self.accepts.takes(other):
            whole = both.kinds is not None and "number" not in both.kinds
            lowest = keyword == "exclusiveMinimum"
            bound = value if not whole else floor(value) + 1 if lowest else -floor(-value) - 1
            out[other] = bound if other not in out else max(out[other], bound) if lowest else min(out[other], bound)
            if whole:
                return
        if self.matters(both, keyword):
            self.lose_said(both, keyword)

    # -- enumerations ----------------------------------------------------------------------------------------------

    def enumerated(self, both: Combined) -> Out | None:
        """The values that are left, as such, where that says more than the parts do; nothing in it where none is."""
        own = [k for k in both.order if k not in ("type", "enum", "const") and not is_annotation(k) and k in HANDLED]
        kinds = self.accepts.enum_kinds
        listed = both.value("enum", []) + ([both.said["const"][0]] if "const" in both.said else [])
        plain = kinds is None or all(kind(value) in kinds for value in listed)
        taken = all(self.accepts.takes(k) for k in ("enum", "const") if k in both.said)
        if len(both.parts) == 1 and not both.eithers and plain and taken and all(map(self.accepts.takes, own)):
            return None
        values = self.values(both)
        if values is None:
            return None
        around = self.around({key: value for key, (value, _) in both.said.items() if key not in HANDLED})
        if not values:
            return Out({})
        pieces, whole = self.pieces(values)
        if not whole:
            for part in both.parts:
                for keyword in part.schema:
                    if keyword in HANDLED and keyword not in ("type", "allOf", "$ref", "$dynamicRef"):
                        self.lose(part, keyword)
        return Out({**around, **(pieces[0] if len(pieces) == 1 else {"anyOf": pieces})})

    def pieces(self, values: list[Any]) -> tuple[list[dict[str, Any]], bool]:
        """Words for one of *values*, by kind where the dialect does not list all kinds; whether no others fit them."""
        kinds = self.accepts.enum_kinds
        if kinds is None:
            return [{"enum": values}], True
        pieces: list[dict[str, Any]] = []
        whole = True
        for named in dict.fromkeys(map(kind, values)):
            group = [value for value in values if kind(value) == named]
            if named in kinds:
                pieces.append({"type": named, "enum": group})
            else:
                pieces.append({"type": named})
                whole = whole and (named == "null" or (named == "boolean" and len(set(group)) == 2))
        return pieces, whole

    # -- members and items -----------------------------------------------------------------------------------------

    def _members(self, both: Combined, out: dict[str, Any], depth: int) -> bool:
        required = both.value("required", ())
        additional = both.additional
        if both.patterns and not self.accepts.takes("patternProperties"):
            closes = additional is not None and self.trivial(additional[0]) is not True
            if closes or not all(self.trivial(demand) for demand, _ in both.patterns.values()):
                self.lose_said(both, "patternProperties")
            if additional is not None:
                branches = [additional[0], *(demand for demand, _ in both.patterns.values())]
                additional = either([branch for branch in branches if self.trivial(branch) is not False]), additional[1]
        closed = both.additional is not None and self.trivial(both.additional[0]) is False and not both.patterns
        if both.properties or "properties" in both.order:
            members = out["properties"] = {}
            for name, demand in both.properties.items():
                lowered = self.lower(demand, depth + 1)
                if lowered is not None:
                    members[name] = lowered.schema
                elif name in required:
                    return False
                elif not closed or not self.accepts.takes("additionalProperties"):
                    members[name] = self.nothing(*demand).schema
        if both.patterns and self.accepts.takes("patternProperties"):
            out["patternProperties"] = {
                pattern: (self.lower(demand, depth + 1) or self.nothing(owner)).schema
                for pattern, (demand, owner) in both.patterns.items()
            }
        if additional is not None:
            trivial = self.trivial(additional[0])
            if not self.accepts.takes("additionalProperties"):
                if trivial is not True and self.matters(both, "additionalProperties"):
                    self.lose(additional[1], "additionalProperties")
            elif trivial is not None:
                out["additionalProperties"] = trivial
            else:
                lowered = self.lower(additional[0], depth + 1)
                out["additionalProperties"] = False if lowered is None else lowered.schema
        return True

    def _items(self, both: Combined, out: dict[str, Any], depth: int) -> bool:
        rest = both.items
        ends = rest is not None and self.trivial(rest[0]) is False
        first = both.first
        if ends and (self.accepts.keywords is not None or self.accepts.needs_items):
            out["maxItems"] = min(len(first), out.get("maxItems", len(first)))
            rest = None
        if first and not self.accepts.takes("prefixItems"):
            demands = [*first, *([rest[0]] if rest else [] if ends else [()])]
            if len(set(demands)) > 1 and both.first_part is not None and self.matters(both, "prefixItems"):
                self.lose(both.first_part, "prefixItems")
            rest, first = (either(demands), both.first_part or both.parts[0]), []
        if first:
            lowered = [self.lower(demand, depth + 1) for demand in first]
            if None in lowered:
                end = lowered.index(None)
                out["maxItems"] = min(end, out.get("maxItems", end))
            shown = [each.schema for each in lowered if each is not None]
            if shown:
                out["prefixItems"] = shown
        if rest is not None:
            each = self.lower(rest[0], depth + 1)
            if each is not None:
                out["items"] = each.schema
            elif self.accepts.keywords is None and not self.accepts.needs_items:
                out["items"] = False
            else:
                out["maxItems"] = min(len(first), out.get("maxItems", len(first)))
        arrays = both.kinds is not None and "array" in both.kinds
        if self.accepts.needs_items and arrays and "items" not in out and self.accepts.takes("items"):
            out["items"] = {}
        return True

    # -- conditions and unions -------------------------------------------------------------------------------------

    def _inner(self, both: Combined, out: dict[str, Any], depth: int) -> bool:
        for keyword, (demand, part) in both.inner.items():
            if keyword in ("then", "else"):
                continue
            trivial = self.trivial(demand)
            if keyword == "not" and trivial is True:
                return False
            idle = (keyword == "not" and trivial is False) or (keyword != "contains" and keyword != "not" and trivial)
            if keyword == "if":
                idle = "then" not in both.inner and "else" not in both.inner
            if keyword == "contains" and both.value("minContains", 1) == 0 and "maxContains" not in both.said:
                idle = True
            exact = keyword in ("not", "if") or "maxContains" in both.said
            lowered = None
            # The `items` that every array must have would leave nothing unevaluated.
            if self.accepts.takes(keyword) and not (keyword == "unevaluatedItems" and self.accepts.needs_items):
                lowered = self._whole(demand, depth + 1) if exact else self.lower(demand, depth + 1)
            if lowered is not None:
                out[keyword] = lowered.schema
                if keyword == "if":
                    for word in ("then", "else"):
                        if word in both.inner:
                            branch = self.lower(both.inner[word][0], depth + 1)
                            out[word] = (branch or self.nothing(part)).schema
                elif keyword == "contains":
                    out |= {word: both.said[word][0] for word in ("minContains", "maxContains") if word in both.said}
            elif not idle and self.matters(both, keyword):
                self.lose_said(both, keyword)
        for name, (demand, part) in both.dependent.items():
            if self.accepts.takes("dependentSchemas"):
                lowered = self.lower(demand, depth + 1) or self.nothing(part)
                out.setdefault("dependentSchemas", {})[name] = lowered.schema
            elif self.trivial(demand) is not True and self.matters(both, "dependentSchemas"):
                self.lose_said(both, "dependentSchemas")
        if both.all_of is not None:
            lowered_all = [self.lower(demand, depth + 1) for demand in both.all_of[0]]
            out["allOf"] = [each.schema for each in lowered_all if each is not None]
            return None not in lowered_all
        return True

    def _unions(self, both: Combined, out: dict[str, Any], depth: int) -> bool:
        for union in both.unions:
            if union.keyword == "oneOf" and self.accepts.takes("oneOf"):
                whole = [self._whole(branch, depth + 1) for branch in union.branches]
                if None not in whole:
                    out["oneOf"] = [branch.schema for branch in whole if branch is not None]
                    continue
            lowered = [self.lower(branch, depth + 1) for branch in union.branches]
            branches = [branch for branch in lowered if branch is not None]
            if not branches:
                return False
            told = {"anyOf": [branch.schema for branch in branches]}
            out |= told if "anyOf" not in out else {"allOf": [*out.get("allOf", ()), told]}
            if union.keyword == "oneOf":
                self.told.append(Told(union, branches))
        return True

    def bare(self, part: Part, *, spread_out: bool = True, described: bool = False) -> Part:
        """*part* without its unions; without what is spread out already, and without what only describes."""
        aside = ["anyOf", "oneOf", *(("allOf", "$ref", "$dynamicRef") if spread_out else ())]
        if not described:
            aside += [keyword for keyword in part.schema if is_annotation(keyword)]
        if set(APPLIED) & part.schema.keys():
            # What they let in would no longer be seen to be evaluated.
            for keyword in ("unevaluatedProperties", "unevaluatedItems"):
                if keyword in part.schema:
                    aside.append(keyword)
                    if part.schema[keyword] is not True:
                        self.lose(part, keyword)
        return part.without(*aside)

    def branches(self, both: Combined) -> list[Conj] | None:
        """The unions of *both* as one: every choice of branches, with what holds beside them. None: too many."""
        count = 1
        for union in both.unions:
            count *= len(union.branches)
        if count > _MOST_BRANCHES:
            return None
        spread_out = both.all_of is None and both.refers is None
        bare = tuple(self.bare(part, spread_out=spread_out) for part in both.parts)
        base = tuple(part for part in bare if not says_nothing(part.schema))
        choices = product(*(union.branches for union in both.unions))
        return [tuple(dict.fromkeys((*base, *(each for branch in chosen for each in branch)))) for chosen in choices]

    def spread_unions(self, both: Combined, depth: int) -> Out | None:
        """*both* as one union, each branch of which says everything."""
        conjs = self.branches(both)
        if conjs is None:
            for union in both.unions:
                self.lose(union.part, union.keyword, grave=True)
            both.unions = []
            return self.emit(both, depth)
        lowered = [(conj, self.lower(conj, depth + 1)) for conj in conjs]
        outs = [out for _, out in lowered if out is not None]
        if not outs:
            return None
        around = self.around({key: value for key, (value, _) in both.said.items() if key not in HANDLED})
        for union in both.unions:
            self.told.append(Told(union, outs))
        return self.joined(outs, around, both.unions[0].part)

    def joined(self, outs: list[Out], around: dict[str, Any], part: Part) -> Out:
        """One of *outs*, described by *around*."""
        different = [out for i, out in enumerate(outs) if all(out.schema != o.schema for o in outs[:i])]
        if len(different) == 1:
            only = different[0]
            if not around:
                return only
            if "$ref" not in only.schema or self.accepts.siblings:
                return Out({**only.schema, **around}, only.plan)
        return Out({**around, "anyOf": [out.schema for out in different]}, None)


def _everywhere(name: str, views: list[Combined]) -> bool:
    return all(name in view.value("required", ()) for view in views)


def _ordered(out: dict[str, Any], order: list[str]) -> dict[str, Any]:
    """*out* in the order in which the schema says it."""
    return {key: out[key] for key in order if key in out} | out
