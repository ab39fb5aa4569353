"""The walk over a schema on its way into a provider's dialect: references, unions, losses, and where it ends."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from .describe import either as either_of
from .describe import with_sentences
from .dialect import Accepts, Loss, Weight, omitted, subject
from .document import token
from .merge import Merged, Union, apart, bare, branches, ignore, merge
from .places import (
    IN_PLACE,
    KINDS,
    PLAIN,
    Conj,
    Part,
    Places,
    all_parts,
    either,
    is_annotation,
    rebuilt,
    says_nothing,
)
from .restore import OneOf, Plan, Ref, undoes

_MAX_DEPTH = 40
_MAX_NODES = 4000
_WHOLE = ("$ref", "$dynamicRef", "nesting", "false")  # with which all that a place demands is lost


@dataclass(slots=True)
class Out:
    """A rewritten place, and what has to be undone in a value that is written for it."""

    schema: dict[str, Any]
    plan: Plan | None = None


class Walk:
    """The walk over one schema, for one dialect. Use it once. A subclass says what becomes of one place.

    *unrolled* is how often what contains itself is written out inside itself, where it may not refer to itself.
    `run` returns the root. The definitions it needs are in `definitions` and `plans`, the losses in `losses`; *grave*
    are those with which a strict mode would change what the tool takes. `crowded` says that not all of it fits.
    """

    def __init__(self, schema: Mapping[str, Any], accepts: Accepts, *, unrolled: int) -> None:
        self.places = Places(schema)
        if accepts.keywords is None and not _can_be_copied(self.places, accepts):
            # What is left out below `not`, `if` or `oneOf` would make a schema narrower: these are left out as well.
            accepts = replace(accepts, keywords=PLAIN)
        self.accepts = accepts
        self.losses: dict[tuple[str, str], Loss] = {}
        self.grave: set[tuple[str, str]] = set()
        self.definitions: dict[str, dict[str, Any]] = {}
        self.plans: dict[str, Plan | None] = {}
        self._names: dict[Conj, str] = {}
        self._waiting: list[tuple[str, Conj]] = []
        self._active: dict[Conj, int] = {}
        self._same: frozenset[Conj] = frozenset()
        self._nodes = 0
        self._size = len(self.places.all())
        self._unrolled = unrolled
        self._written: set[Conj] = set()
        self.crowded = False
        self._cyclic: set[Part] | None = None
        self._choices: list[tuple[list[Union], Part, list[Out]]] = []

    def run(self) -> Out:
        """The root, rewritten."""
        root = self._root()
        while self._waiting:
            name, conj = self._waiting.pop()
            out = self.lower(conj, 0) or self.nothing(conj)
            self.definitions[name], self.plans[name] = out.schema, out.plan
        self._compare_branches()
        return root

    @property
    def unrolls(self) -> bool:
        """Whether something that contains itself is written out."""
        return bool(self._written)

    @property
    def root_name(self) -> str | None:
        """The name of the definition that is the root itself, if something refers to it."""
        return self._names.get((self.places.root,))

    def emit(self, merged: Merged, depth: int, *, root: bool = False) -> Out | None:
        """What *merged* demands, in the dialect; None where no value can be valid."""
        raise NotImplementedError

    def lower(self, conj: Conj, depth: int, same: frozenset[Conj] = frozenset()) -> Out | None:
        """*conj* in the dialect; None where no value can be valid. *same*: those that this is a branch of."""
        if self.accepts.keywords is None:
            return Out(self._verbatim(conj))
        self._nodes += 1
        only = conj[0] if len(conj) == 1 and isinstance(conj[0], Part) else None
        target = self.places.target(only) if only is not None and only.refers else None
        inlined = target is not None and not self._takes_reference(target) and self._is_cyclic(target)
        key = (target,) if target is not None and inlined else conj
        active = self._active.get(key, 0)
        if depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            return self._cut(conj)
        if active and self.accepts.references and self.accepts.recursion == "any" and conj not in same:
            return self._reference(conj)
        if conj in same or active >= self._unrolled or (inlined and self._is_enough(key)):
            return self._cut(conj)
        if only is not None and (out := self._referring(only)) is not None:
            return out
        self._active[key] = active + 1
        self._same = same | {conj}
        merged = merge(conj, self.places, self.lose)
        out = None if merged is None else self.emit(merged, depth)
        self._active[key] = active
        return out

    def lose(
        self, part: Part, keyword: str, meaning: str | None = None, *, grave: bool = False, weight: Weight = "medium"
    ) -> None:
        """Report that *keyword* at *part* is left out."""
        key = part.path, keyword
        if key not in self.losses or (grave and key not in self.grave):
            value = part.schema.get(keyword) if isinstance(part.schema, dict) else None
            weight = "high" if keyword in _WHOLE else weight
            self.losses[key] = Loss(part.path, keyword, meaning or omitted(part.path, keyword, value), weight)
        if grave:
            self.grave.add(key)

    def lose_all(self, merged: Merged, keyword: str) -> None:
        """Report that *keyword* is left out, at each part that has it."""
        for part in merged.parts:
            if keyword in part.schema:
                self.lose(part, keyword)

    def first(self, merged: Merged) -> Part:
        """The place that stands for all of *merged*."""
        return merged.parts[0] if merged.parts else self.places.root

    # -- the arguments themselves ----------------------------------------------------------------------------------

    def _root(self) -> Out:
        """The root: always an object."""
        root, names = self.places.root, self.accepts.member_names
        as_it_is = self.accepts.keywords is None and not self.accepts.not_at_root & root.schema.keys()
        as_it_is &= names is None or all(re.fullmatch(names, name) for name in root.schema.get("properties", ()))
        merged = merge((root,), self.places, ignore if as_it_is else self.lose)
        if merged is not None and not as_it_is:
            merged = self._flat(merged)
        out = None
        if merged is None or not _lets_objects_in(merged, self.places):
            pass
        elif as_it_is:
            out = Out(self.copy(root))
        else:
            merged.kinds = ("object",)
            self._refuse(merged)
            self._active[root,] = 1
            out = self.emit(merged, 0, root=True)
            self._active[root,] = 0
        if out is None:
            self.lose(root, "false", "The schema for the provider is any object; no arguments are valid.", grave=True)
            out = Out({})
        return Out({"type": "object", "properties": {}, **out.schema} | {"type": "object"}, out.plan)

    def _refuse(self, merged: Merged) -> None:
        """Leave out what the dialect refuses for the arguments themselves."""
        for keyword in self.accepts.not_at_root:
            if merged.keywords.pop(keyword, None) or (keyword == "not" and merged.has("not")):
                self.lose_all(merged, keyword)
        merged.conditions = [found for found in merged.conditions if found[1] not in self.accepts.not_at_root]

    def _flat(self, merged: Merged) -> Merged | None:
        """*merged* with the unions that the root may not have as one object that has the members of all branches."""
        if not self.accepts.not_at_root & {union.keyword for union in merged.unions}:
            return merged
        bare_parts = tuple(map(self._bare, merged.parts))
        choices = branches(merged)
        found = [merge(conj, self.places, self.lose) for conj in choices or ()]
        views = [view for view in found if view is not None and "object" in (view.kinds or KINDS)]
        if choices is not None and not views:
            return None
        if len(views) == 1 and not views[0].unions:
            return views[0]
        flat = merge(bare_parts, self.places, self.lose)
        if flat is None:
            return None
        flat.keywords |= {key: value for key, value in merged.keywords.items() if is_annotation(key)}
        flat.notes += self._groups(views)
        for union in merged.unions:
            meaning = (
                "The schema for the provider has all members together, and omits which of them go together or are "
                "required together; Toolcrib still checks it."
            )
            self.lose(union.part, union.keyword, meaning)
        for name in dict.fromkeys(name for view in views for name in view.properties):
            flat.properties[name] = either([view.properties[name] for view in views if name in view.properties])
        for pattern in dict.fromkeys(pattern for view in views for pattern in view.patterns):
            demands = [view.patterns[pattern] for view in views if pattern in view.patterns]
            flat.patterns[pattern] = either([demand for demand, _ in demands]), demands[0][1]
        if views:
            required = [set(view.get("required", ())) for view in views]
            always = [name for name in views[0].get("required", ()) if all(name in names for names in required)]
            flat.keywords["required"] = always, self.places.root
            closed = [view.additional for view in views if view.additional is not None]
            whole = len(closed) == len(views)
            owners = tuple(dict.fromkeys(owner for _, each in closed for owner in each))
            flat.additional = (either([demand for demand, _ in closed]), owners) if whole else None
        return flat

    def _groups(self, views: list[Merged]) -> list[str]:
        """In words, which members the branches require, if they differ."""
        groups = [" and ".join(map(repr, view.get("required", ()))) for view in views]
        text = f"Give {either_of(groups)}."
        return [text] if all(groups) and len(set(groups)) > 1 and len(text) <= 300 else []

    # -- unions ----------------------------------------------------------------------------------------------------

    def _bare(self, part: Part) -> Part:
        """*part* without its unions and the like; reports what cannot be kept without them."""
        found = bare(part)
        for keyword in ("unevaluatedProperties", "unevaluatedItems"):
            if keyword in part.schema and keyword not in found.schema and part.schema[keyword] is not True:
                self.lose(part, keyword)
        return found

    def spread_unions(self, merged: Merged, depth: int) -> Out | None:
        """*merged* as one union, each branch of which has all demands."""
        same = self._same
        choices = branches(merged)
        if choices is None or self._nodes + len(choices) * len(merged.properties) > _MAX_NODES:
            for union in merged.unions:
                self.lose(union.part, union.keyword, grave=True)
                if union.keyword not in union.part.schema:  # made of demands that stand elsewhere
                    for part in chain.from_iterable(map(all_parts, union.branches)):
                        self.lose(part, "nesting", grave=True)
            merged.unions = []
            return self.emit(merged, depth)
        for part in merged.parts:
            self._bare(part)
        outs = [out for conj in choices if (out := self.lower(conj, depth + 1, same)) is not None]
        if not outs:
            return None
        around = self.annotations(merged.plain)
        return self.joined(outs, around, merged.unions, merged.unions[0].part)

    def joined(self, outs: list[Out], around: dict[str, Any], unions: list[Union], part: Part) -> Out:
        """One of *outs*, described by *around*."""
        self._choices.append((unions, part, outs))
        # By their text: to Python 1 and true are equal.
        different = list({json.dumps(out.schema, sort_keys=True): out for out in reversed(outs)}.values())[::-1]
        only = different[0]
        if len(different) == 1 and (not around or "$ref" not in only.schema or self.accepts.siblings):
            return Out({**only.schema, **around}, only.plan)
        planned = any(out.plan is not None for out in outs)
        return Out(
            {**around, "anyOf": [out.schema for out in different]},
            OneOf([(out.schema, out.plan) for out in outs]) if planned else None,
        )

    def _compare_branches(self) -> None:
        """Report the unions of which more than one branch can fit a value, where exactly one has to."""
        choices = [
            (unions, part, outs, any(undoes(out.plan, self.plans) for out in outs))
            for unions, part, outs in self._choices
            if len(outs) > 1
        ]
        choices = [each for each in choices if each[3] or any(union.keyword == "oneOf" for union in each[0])]
        if not choices:
            return
        unions_of = [{"anyOf": [out.schema for out in outs]} for _, _, outs, _ in choices]
        places = Places({"$defs": self.definitions, "anyOf": unions_of})
        known: dict[Conj, bool] = {}
        own: dict[Conj, bool] = {}
        for index, (unions, part, outs, planned) in enumerate(choices):
            parts = [places.root.at("anyOf", index, "anyOf", each) for each in range(len(outs))]
            different = apart([(each,) for each in parts], places, known)
            for union in unions:
                # What is written apart may be the same once it is restored: {"a": null} and {"b": null} are both {}.
                exclusive = different and (not planned or apart(union.branches, self.places, own))
                if union.keyword == "oneOf" and not exclusive:
                    self.lose(union.part, "oneOf")
            if planned and not different:
                meaning = "In strict mode the arguments would not show which of several descriptions they follow."
                self.lose(part, "anyOf", meaning, grave=True)

    # -- references, and where to stop -----------------------------------------------------------------------------

    def _referring(self, part: Part) -> Out | None:
        """What stands at *part*, where that is a reference and nothing else that demands anything."""
        if not part.refers or any(
            not is_annotation(word) and word not in ("$ref", "$dynamicRef") for word in part.schema
        ):
            return None
        target = self.places.target(part)
        if target is None or not self._takes_reference(target):
            return None
        out = self._reference((target,))
        around = self.annotations({k: v for k, v in part.schema.items() if k not in ("$ref", "$dynamicRef")})
        if not around:
            return out
        inner = out.schema if self.accepts.siblings else {"anyOf": [out.schema]}
        return Out({**around, **inner}, out.plan)

    def _takes_reference(self, target: Part) -> bool:
        return self.accepts.references and (self.accepts.recursion == "any" or not self._is_cyclic(target))

    def _is_cyclic(self, target: Part) -> bool:
        """Whether *target* contains itself in a way that the dialect does not take."""
        if self._cyclic is None:
            only_required = self.accepts.references and self.accepts.recursion == "optional"
            self._cyclic = self.places.cyclic(follow=_is_required if only_required else None)
        return target in self._cyclic

    def _is_enough(self, conj: Conj) -> bool:
        """Whether not to write out *conj*, which contains itself, again: as much as the whole schema is written."""
        if conj not in self._written:
            self._written.add(conj)
            return False
        self.crowded |= self._nodes > self._size
        return self._nodes > self._size

    def _reference(self, conj: Conj) -> Out:
        """A reference to the definition of *conj*, which is made if there is none yet."""
        name = self._names.get(conj)
        if name is None:
            last = next(iter(all_parts(conj)), self.places.root).path.rpartition("/")[2]
            stem = re.sub(r"[^A-Za-z0-9_.-]", "_", last.replace("~1", "/").replace("~0", "~"))[:60] or "root"
            name, number, taken = stem, 1, set(self._names.values())
            while name in taken:
                number += 1
                name = f"{stem}_{number}"
            self._names[conj] = name
            self._waiting.append((name, conj))
        return Out({"$ref": f"#/$defs/{name}"}, Ref(name))

    def _cut(self, conj: Conj) -> Out:
        """Anything: *conj* is nested too deeply, in itself or at all."""
        parts = all_parts(conj) or [self.places.root]
        for part in [part for part in parts if not says_nothing(part.schema)] or parts[:1]:
            if self.accepts.closed:
                meaning = (
                    f"In strict mode {subject(part.path)} could not hold more of its own kind, or is nested too deeply."
                )
            else:
                what = f"The schema for the provider omits what is deeper inside {subject(part.path)}"
                meaning = f"{what}; Toolcrib still checks it."
            self.lose(part, "$ref" if part.refers else "nesting", meaning, grave=True)
        return self.anything()

    def anything(self) -> Out:
        """Any value; where a type is needed, any but objects and lists: there is no form for all of them."""
        return Out({"type": ["string", "number", "boolean", "null"]} if self.accepts.needs_type else {})

    def nothing(self, conj: Conj) -> Out:
        """Anything, as no dialect with a list of keywords has a form for no value at all."""
        for part in all_parts(conj) or [self.places.root]:
            self.lose(part, "false", grave=True)
        return self.anything()

    def annotations(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """What only describes, of *keywords*. A default that cannot be given as one is put into the description."""
        plain = {k: v for k, v in keywords.items() if is_annotation(k) and not k.startswith("$") and k != "definitions"}
        out = {keyword: value for keyword, value in plain.items() if self.accepts.takes(keyword)}
        default = plain.get("default")
        if default is not None and "default" not in out and self.accepts.takes("description"):
            text = f"Default: {json.dumps(default, ensure_ascii=False)}."
            out["description"] = with_sentences(out.get("description"), [text])
        return out

    # -- dialects that take all keywords ---------------------------------------------------------------------------

    def copy(self, part: Part) -> Any:
        """The schema at *part* with all its keywords; references lead to definitions."""
        if not isinstance(part.schema, dict):
            return part.schema
        own = part.only(word for word in part.schema if not word.startswith("$") and word != "definitions")
        out = rebuilt(own, self.copy)
        if part.refers and (target := self.places.target(part)) is not None:
            out |= self._reference((target,)).schema
        if self.accepts.needs_items and "array" in out.get("type", ()) and not isinstance(out.get("items"), dict):
            if out.setdefault("items", out.pop("unevaluatedItems", True)) is False:
                length = len(out.get("prefixItems", ()))
                out["maxItems"] = min(length, out.get("maxItems", length))
            out["items"] = {} if isinstance(out["items"], bool) else out["items"]
        return out

    def _verbatim(self, conj: Conj) -> Any:
        """*conj* as it stands in the schema, where the dialect takes all keywords."""
        found = [
            self.copy(element)
            if isinstance(element, Part)
            else {"anyOf": [self._verbatim(branch) for branch in element.branches]}
            for element in conj
        ]
        return {} if not found else found[0] if len(found) == 1 else {"allOf": found}


def _can_be_copied(places: Places, accepts: Accepts) -> bool:
    """Whether a dialect with all keywords can take each place as it stands."""
    for part in places.all():
        if part.refers and places.target(part) is None:
            return False
        schema = part.schema if accepts.needs_items and isinstance(part.schema, dict) else {}
        # The items that every list must have would leave nothing unevaluated.
        inside = "unevaluatedItems" in schema and "items" not in schema and "array" in schema.get("type", ("array",))
        if inside and not says_nothing(schema["unevaluatedItems"]) and schema.keys() & {*IN_PLACE, "contains"}:
            return False
    return True


def _lets_objects_in(merged: Merged, places: Places) -> bool:
    values = merged.listed(places)
    listed = values is None or any(isinstance(value, dict) for value in values)
    return listed and "object" in (merged.kinds or KINDS)


def _is_required(part: Part, keyword: str, step: str) -> bool:
    return keyword != "properties" or step in map(token, part.schema.get("required", ()))
