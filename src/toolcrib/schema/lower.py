"""Lowers a JSON Schema to what a model provider accepts, and reports what is lost by that.

A lowered schema is never narrower than the original, once arguments are restored, without a loss that says so. One
that the provider takes as it is comes out as it is. Keywords that few tools use are left out where a dialect does not
take them: `not`, `if`, patterns of names, several `allOf`. That makes a schema wider; it is reported, and Toolcrib's
own check still holds.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from math import floor
from typing import Any

import jsonschema_rs

from .describe import either, in_words, with_sentences
from .dialect import ASSERTIONS, CONDITIONS, PLAIN, Accepts, Loss, Weight, is_annotation, omitted, subject
from .restore import Restore
from .view import KINDS, UNIONS, SchemaView, kind

__all__ = ["Accepts", "Lift", "Loss", "Lowered", "lower"]

Lift = Callable[[dict[str, Any]], dict[str, Any]]

_MAX_NESTING = 64  # levels of JSON; people write fewer, and providers take far fewer
_MAX_DEPTH = 100  # levels of schemas, those that references lead to included
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
# The formats that jsonschema-rs checks. Others are up to the reader of the schema.
_FORMATS = frozenset(
    {"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri"}
    | {"uri-reference", "iri", "iri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex"}
    | {"uuid"}
)


def _unchanged(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


@dataclass(slots=True)
class Lowered:
    """A schema in a provider's dialect. A value, which is shared: do not change it.

    `lift` turns arguments as a model wrote them under `schema` into arguments as the original schema takes them, and
    returns the same object where nothing has to be done; `lifts` says whether anything ever has. `optional` and
    `unions` count the members that may be left out, and those of several types.
    """

    schema: dict[str, Any]
    losses: tuple[Loss, ...] = ()
    strict: bool = False
    lift: Lift = _unchanged
    lifts: bool = False
    optional: int = 0
    unions: int = 0


def lower(schema: Mapping[str, Any], accepts: Accepts, *, strict: bool | None = None) -> Lowered:
    """Return *schema*, a JSON Schema 2020-12 of an object, in the dialect of *accepts*.

    *strict* True asks for the dialect's strict mode. Where that would change what the tool takes, the schema is lowered
    without it, and a loss with the keyword `strict` says why. None and False ask for no strict mode.
    The same schema again costs a look-up.
    """
    try:
        text = json.dumps(schema, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return _any_object("is not valid JSON, or is nested too deeply")
    return _lower(text, accepts, bool(strict))


@lru_cache(maxsize=1024)
def _lower(text: str, accepts: Accepts, strict: bool) -> Lowered:
    schema: dict[str, Any] = json.loads(text)
    is_free = accepts.keywords is None and not (accepts.not_at_root or accepts.needs_items or accepts.member_names)
    if is_free and '$ref"' not in text and '$dynamicRef"' not in text:
        low = Lowered(schema if schema.get("type") == "object" else {"type": "object", **schema})
        return _without_strict(low, [], accepts) if strict else low
    schema, too_deep = _shallow(schema)
    if not jsonschema_rs.meta.is_valid(schema):
        return _any_object("is not valid JSON Schema 2020-12")
    if not SchemaView(schema).is_walkable and "$ref" in text:
        return _any_object("has an `$id` inside, to which its references are relative")
    obstacles: list[Loss] = []
    if strict and accepts.strictly is not None:
        low, obstacles = _rewritten(schema, accepts.strictly)
        if not obstacles and not too_deep:
            return low
    low, _ = _rewritten(schema, accepts)
    low = replace(low, losses=(*too_deep, *low.losses))
    return _without_strict(low, obstacles, accepts) if strict and not accepts.closed else low


def _any_object(reason: str) -> Lowered:
    meaning = f"The schema for the provider is any object: the schema of the tool {reason}."
    return Lowered({"type": "object", "properties": {}}, (Loss("", "$schema", meaning, "high"),))


def _without_strict(low: Lowered, obstacles: list[Loss], accepts: Accepts) -> Lowered:
    end = "So the tool is sent without strict mode."
    losses = [Loss(loss.path, "strict", f"{loss.meaning} {end}", "high") for loss in obstacles]
    if not losses:
        meaning = f"Strict mode was asked for, and the tool is sent without it: {accepts.name} has none for this tool."
        losses = [Loss("", "strict", meaning, "high")]
    return replace(low, losses=(*low.losses, *losses))


def _shallow(schema: dict[str, Any]) -> tuple[dict[str, Any], list[Loss]]:
    """Return *schema* without what is nested too deeply for any provider, and the losses."""
    if _nesting(schema) <= _MAX_NESTING:
        return schema, []
    members = schema.get("properties")
    if isinstance(members, dict) and _nesting({**schema, "properties": {}}) <= _MAX_NESTING:
        deep = [name for name, member in members.items() if _nesting(member) > _MAX_NESTING - 2]
        schema = {**schema, "properties": {**members, **{name: {} for name in deep}}}
        paths = [SchemaView(schema).at("properties", name).pointer for name in deep]
    else:
        schema, paths = {"type": "object", "properties": {}}, [""]
    meaning = "The schema for the provider omits what is inside: it is nested too deeply; Toolcrib still checks it."
    return schema, [Loss(path, "nesting", meaning, "high") for path in paths]


def _nesting(value: Any) -> int:
    """Return how deeply objects and lists are nested in *value*."""
    depth, level = 0, [value]
    while level := [inner for outer in level for inner in _inside(outer)]:
        depth += 1
    return depth


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _rewritten(schema: dict[str, Any], accepts: Accepts) -> tuple[Lowered, list[Loss]]:
    """Return *schema* lowered, and those of its losses that rule strict mode out."""
    if _fits(schema, accepts):
        unchanged = {key: value for key, value in schema.items() if key != "$schema"}
        return Lowered({"type": "object", "properties": {}, **unchanged}), []
    rewrite = _Rewrite({"type": "object", **schema}, accepts)
    final, names = rewrite.run()
    restore = Restore(rewrite.root, rewrite.followed, rewrite.nullable, names)
    for member in restore.ambiguous():
        meaning = "In strict mode the arguments would not show which of several descriptions they follow."
        rewrite.lose(member, "anyOf", meaning, grave=True)
    optional, unions = _measure(final, rewrite)
    grave = [loss for key, loss in rewrite.losses.items() if key in rewrite.grave]
    lifts = restore.is_needed
    lift: Lift = restore if lifts else _unchanged
    return Lowered(final, tuple(rewrite.losses.values()), accepts.closed, lift, lifts, optional, unions), grave


def _fits(schema: dict[str, Any], accepts: Accepts) -> bool:
    """Return whether *schema* can be sent as it is."""
    if accepts.keywords is not None or accepts.not_at_root & schema.keys() or schema.get("type", "object") != "object":
        return False
    for view in _places(SchemaView(schema)):
        has_no_items = "array" in view.kinds and not isinstance(view.schema.get("items"), dict)
        if (accepts.needs_items and has_no_items) or _leads_out(view):
            return False
    return all(map(accepts.takes_name, schema.get("properties", ())))


def _places(root: SchemaView) -> set[SchemaView]:
    """Return all places of a schema, its definitions included."""
    places = {root, *root.reach()}
    definitions = [view for keyword, view in root.inside() if keyword in ("$defs", "definitions")]
    return places.union(definitions, *(view.reach() for view in definitions if view not in places))


def _leads_out(view: SchemaView) -> bool:
    """Return whether a reference does not stay in its schema: other than those that `view.leads_out`, anchors do."""
    reference, dynamic = (str(view.schema.get(word, "#")) for word in ("$ref", "$dynamicRef"))
    return not (dynamic.startswith("#") and (view.target is not None or re.fullmatch(r"#([^/].*)?", reference)))


class _Rewrite:
    """The rewriting of one schema for one dialect. Use it once.

    `losses` has what was left out; *grave* are those with which a strict mode would change what the tool takes. For
    `Restore`: `followed` has the places that a place's references and unions lead to, `nullable` the names of the
    members of an object for which null stands for absent.

    Each place that is referred to becomes a definition. Where a dialect takes no recursion, the references that lead
    back to a definition that is being written (`_open`) are cut: without these the definitions cannot be in a circle.
    A dialect that takes recursion below optional members has its definitions there written later, each from its own
    beginning, so that the open ones are those that a chain of required places leads to.
    """

    def __init__(self, schema: Mapping[str, Any], accepts: Accepts) -> None:
        self.root = SchemaView(schema)
        if accepts.keywords is None and not _can_be_copied(self.root, accepts):
            # What is left out below `not`, `if` or `oneOf` would make a schema narrower: these are left out as well.
            accepts = replace(accepts, keywords=PLAIN)
        self.accepts = accepts
        self.losses: dict[tuple[str, str], Loss] = {}
        self.grave: set[tuple[str, str]] = set()
        self.followed: dict[SchemaView, list[SchemaView]] = {}
        self.nullable: dict[SchemaView, set[str]] = {}
        self._names: dict[SchemaView, str] = {}
        self._definitions: dict[str, dict[str, Any]] = {}
        self._waiting: list[SchemaView] = []
        self._open = {self.root}
        self._shared: set[SchemaView] = set()
        self._written: SchemaView | None = None  # the definition that the next place begins

    def run(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the schema, and the members' own names by those in the schema, where they differ."""
        schema, names = self._renamed(self._root())
        while self._waiting:
            self._open.clear()
            self._define(self._waiting.pop(), 0)
        return ({**schema, "$defs": self._definitions} if self._definitions else schema), names

    def lose(
        self,
        view: SchemaView,
        keyword: str,
        meaning: str | None = None,
        *,
        grave: bool = False,
        weight: Weight = "medium",
    ) -> None:
        """Report that *keyword* at *view* is left out."""
        key = view.pointer, keyword
        if key not in self.losses or (grave and key not in self.grave):
            # With these all that a place demands is lost.
            weight = "high" if keyword in ("$ref", "$dynamicRef", "nesting", "false") else weight
            meaning = meaning or omitted(view.pointer, keyword, view.schema.get(keyword))
            self.losses[key] = Loss(view.pointer, keyword, meaning, weight)
        if grave:
            self.grave.add(key)

    # -- the arguments themselves ----------------------------------------------------------------------------------

    def _root(self) -> dict[str, Any]:
        """Return the root: always an object, without the keywords that the dialect refuses there."""
        view = self.root
        around: dict[str, Any] = {}
        while (inner := self._only_part(view, beside={"type"})) is not None and "object" in (view.kinds or KINDS):
            if view in self.followed:  # in a circle
                break
            around = {**self._annotations(view), **around}
            self.followed[view] = [inner]
            view = inner
        words = self._words(view)
        refused = self.accepts.not_at_root.intersection(words)
        out: dict[str, Any] | None = None
        if view.is_false or "object" not in (view.kinds or KINDS):
            pass
        elif self.accepts.keywords is None:
            out = self._flat(view, words, 0, is_root=True) if refused else self._copy(view)
        else:
            for word in refused.intersection(("enum", "const")):
                self.lose(view, word)
            composed = refused.intersection(_COMPOSING)
            make = self._flat if composed else self._plain
            out = make(view, [word for word in words if word not in ("enum", "const")], 0, is_root=True)
        if out is None:
            self.lose(view, "false", "The schema for the provider is any object; no arguments are valid.", grave=True)
            out = {}
        return {"type": "object", "properties": {}, **out, **around} | {"type": "object"}

    def _renamed(self, schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the root with names of arguments that the provider takes, and their own names by these."""
        members: dict[str, Any] = schema["properties"]
        refused = [name for name in members if not self.accepts.takes_name(name)]
        if not refused:
            return schema, {}
        names = {name: name for name in members}
        for name in refused:
            new = fitting = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:50] or "_"
            salt = 0
            while new in names.values() or new in members:
                new = f"{fitting}_{sha256(f'{salt}:{name}'.encode()).hexdigest()[:8]}"
                salt += 1
            names[name] = new
        schema = {**schema, "properties": {names[name]: member for name, member in members.items()}}
        if "required" in schema:
            schema["required"] = [names.get(name, name) for name in schema["required"]]
        for word in _NAMING:
            if schema.pop(word, None) is not None:
                self.lose(self.root, word)
                if word == "patternProperties":  # without which its members would be additional
                    schema.pop("additionalProperties", None)
        if schema.get("additionalProperties") is not False:
            for name in refused:
                meaning = (
                    f"The provider's name for '{name}' is '{names[name]}', so no other argument can have that name."
                )
                self.lose(self.root.at("properties", name), "properties", meaning, weight="low")
        return schema, {names[name]: name for name in refused}

    # -- one place -------------------------------------------------------------------------------------------------

    def _place(
        self, view: SchemaView, depth: int, *, later: bool = False, kinds: frozenset[str] = frozenset()
    ) -> dict[str, Any] | None:
        """Return what *view* demands, in the dialect; None where no value can be valid.

        *kinds* are the types that a union around it names. *later*: what is referred to need not be written at once.
        """
        written, self._written = self._written, None
        if view.is_false:
            return None
        if self.accepts.keywords is None:
            return self._copy(view)
        if depth > _MAX_DEPTH:
            return self._cut(view)
        if (inner := self._only_part(view)) is not None:
            self.followed[view] = [inner]
            if "$ref" in view.schema:
                return _described(self._reference(view, inner, depth, later=later), self._annotations(view))
            return _described(self._place(inner, depth + 1, later=later, kinds=kinds), self._annotations(view))
        words = self._words(view)
        if view.constants is not None:
            return self._listed(view, words)
        unions = [word for word in words if word in UNIONS]
        if len(unions) == 1 and set(words) <= {"type", *unions}:
            return self._union(view, unions[0], depth, later=later, kinds=view.kinds or kinds)
        composing = _COMPOSING.intersection(words)
        if composing and view.names.known and "object" in (view.kinds or KINDS):
            # A definition of its own, as what it is composed of may lead back to it.
            return (
                self._flat(view, words, depth, later=later)
                if view is written
                else self._reference(view, view, depth, later=later)
            )
        if composing and "type" not in words and (parts := [view.target, *view.branches("allOf")]) != [None]:
            # The first of several parts says most; the others are left out.
            for word in words:
                if word != "$ref":
                    self.lose(view, word, grave=True)
            part = next(part for part in parts if part is not None)
            return _described(self._place(part, depth + 1, later=later, kinds=kinds), self._annotations(view))
        for word in composing:
            self.lose(view, word, grave=True)
        rest = [word for word in words if word not in composing]
        return self._plain(view, rest, depth, later=later, kinds=kinds)

    def _words(self, view: SchemaView) -> list[str]:
        """Return the keywords of *view* that demand something. Report references that lead out of the schema."""
        words = [word for word in view.schema if not is_annotation(word)]
        if view.leads_out:
            for word in ("$ref", "$dynamicRef"):
                if word in words:
                    self.lose(view, word)
                    words.remove(word)
        return words

    def _only_part(self, view: SchemaView, *, beside: Iterable[str] = ()) -> SchemaView | None:
        """Return the place that says all that *view* demands: where its `$ref` leads, or its only `allOf`."""
        match {word for word in view.schema if not is_annotation(word)}.difference(beside):
            case words if words == {"$ref"}:
                return view.target
            case words if words == {"allOf"}:
                branches = view.branches("allOf")
                return branches[0] if len(branches) == 1 else None
            case _:
                return None

    def _union(
        self, view: SchemaView, keyword: str, depth: int, *, later: bool, kinds: frozenset[str]
    ) -> dict[str, Any] | None:
        """Return a union with nothing beside it but a type, which its branches get where they name none."""
        self.followed[view] = branches = [branch for branch in view.branches(keyword) if not branch.is_false]
        for branch in branches:
            own = branch.resolved.kinds
            is_inside = own <= kinds or (own <= kinds | {"integer"} and "number" in kinds)
            # What a branch is composed of is written without the type, and so is what stands beside a reference.
            is_plain = all(self._only_part(place) is not None for place in branch.chain[:-1])
            words = {word for word in branch.schema if not is_annotation(word)}
            gets_type = words.isdisjoint(_COMPOSING) or (len(words) == 1 and words <= {*UNIONS})
            if kinds and not (is_inside and is_plain if own else gets_type):
                self.lose(view, "type")
        if keyword == "oneOf" and not _exclude_each_other(branches, kinds):
            self.lose(view, "oneOf")
        pairs = [self._place(branch, depth + 1, later=later, kinds=kinds) for branch in branches]
        lowered = [schema for schema in pairs if schema is not None]
        if kinds and {} in lowered:
            self.lose(view, "type")
        if len(lowered) < 2:
            return _described(lowered[0], self._annotations(view)) if lowered else None
        return {**self._annotations(view), "anyOf": lowered}

    def _flat(
        self, view: SchemaView, words: list[str], depth: int, *, later: bool = False, is_root: bool = False
    ) -> dict[str, Any]:
        """Return the object at *view* with the members of all that it is composed of together."""
        members: dict[str, list[SchemaView]] = {}
        for part in self._parts(view):
            for name, member in part.members.items():
                members.setdefault(name, []).append(member)
        self._lose_by_merging(view, members)
        if not is_root:
            self._shared.update(
                member for views in members.values() for member in views if view.pointer not in member.pointer
            )
        required = sorted(view.names.required, key=[*members, *sorted(view.names.required)].index)
        if self.accepts.keywords is not None:
            words = [word for word in words if word not in _COMPOSING]
            out = self._plain(view, words, depth, later=later, is_root=is_root, members=members, required=required)
        else:
            for word in ("unevaluatedProperties", *self.accepts.not_at_root):
                if word in words:
                    self.lose(view, word)
            out = {word: value for word, value in self._copy(view).items() if word not in self.accepts.not_at_root}
            out.pop("unevaluatedProperties", None)  # what is flat would not count as evaluated
            out["properties"] = {name: self._member(views, 0, later=True) for name, views in members.items()}
            out |= {"required": required} if required else {}
        needs = [view.required, *(branch.names.required for branch in self._branches(view))]
        groups = [" and ".join(repr(name) for name in members if name in {*needs[0], *need}) for need in needs[1:]]
        sentence = f"Give {either(groups)}."
        if all(groups) and len(set(groups)) > 1 and len(sentence) <= 300 and self.accepts.takes("description"):
            out["description"] = with_sentences(out.get("description"), [sentence])
        return out

    def _lose_by_merging(self, view: SchemaView, members: Mapping[str, list[SchemaView]]) -> None:
        """Report what *view* itself demands of members, and no longer does beside those of its parts."""
        others = [f"'{name}'" for name in members if name not in view.members]
        if others and view.additional is not None and (view.additional.is_false or view.additional.schema):
            meaning = (
                f"The schema for the provider lists {others[0]}, which a part of {subject(view.pointer)} describes, "
                "and omits what 'additionalProperties' demands of it; Toolcrib still checks it."
            )
            self.lose(view, "additionalProperties", meaning, grave=True)
        for name, own in view.members.items():
            if len(members[name]) > 1 and not self.accepts.closed and (own.is_false or self._words(own)):
                meaning = (
                    f"The schema for the provider also takes as '{name}' what only a part of "
                    f"{subject(view.pointer)} describes; Toolcrib still checks it."
                )
                self.lose(own, "type", meaning)

    def _branches(self, view: SchemaView) -> list[SchemaView]:
        return [branch for keyword in UNIONS for branch in view.branches(keyword)]

    def _parts(self, view: SchemaView) -> Iterator[SchemaView]:
        """Return all that the object at *view* is composed of. Report that what goes together is not expressed."""
        waiting, seen = [view], {view}
        while waiting:
            part = waiting.pop(0)
            yield part
            if self._only_part(part) is None or part is view:
                meaning = (
                    "The schema for the provider has all members together, and omits which of them go together or are "
                    "required together; Toolcrib still checks it."
                )
                for word in _COMPOSING.intersection(self._words(part)):
                    self.lose(part, word, meaning, grave=True)
            target = [] if part.target is None else [part.target]
            inner = [*target, *part.branches("allOf"), *self._branches(part)]
            waiting += [place for place in inner if place not in seen]
            seen.update(inner)

    def _plain(
        self,
        view: SchemaView,
        words: list[str],
        depth: int,
        *,
        later: bool = False,
        kinds: frozenset[str] = frozenset(),
        is_root: bool = False,
        members: Mapping[str, list[SchemaView]] | None = None,
        required: list[str] | None = None,
    ) -> dict[str, Any]:
        """Return a place that is not composed of others. *members* and *required* are those of a flat object."""
        schema, accepts = view.schema, self.accepts
        named = schema.get("type", sorted(kinds))
        types = view.kinds or kinds or frozenset(KINDS)
        if accepts.closed and (not named or (len(types) > 1 and not types <= _SCALARS)):
            what = subject(view.pointer)
            meaning = f"The provider's strict mode needs one type of {what}, and the schema does not name it."
            self.lose(view, "type", meaning, grave=True)
            return {}
        out = self._annotations(view)
        if named:
            out["type"] = named[0] if isinstance(named, list) and len(named) == 1 else named
        notes: list[str] = []
        for word in words:
            if word in CONDITIONS and CONDITIONS[word] & types:
                self.lose(view, word)
                notes += in_words(word, schema[word])
            elif word in ASSERTIONS and ASSERTIONS[word] & types:
                notes += self._assertion(view, word, types, out)
        if "object" in types:
            if members is None:
                members = {name: [member] for name, member in view.members.items()}
            required = list(view.required) if required is None else required
            if accepts.closed:
                out |= self._closed(view, members, required, depth, later=later, is_root=is_root)
            else:
                out |= self._open_object(view, members, required, depth, later=later)
        if "array" in types:
            self._items(view, out, depth, later=later)
        if notes and accepts.takes("description"):
            out["description"] = with_sentences(out.get("description"), notes)
        order = {word: index for index, word in enumerate(schema)}
        return dict(sorted(out.items(), key=lambda item: order.get(item[0], -1)))

    def _assertion(self, view: SchemaView, word: str, types: frozenset[str], out: dict[str, Any]) -> list[str]:
        """Put an assertion into *out* as far as the dialect has it. Return the sentences for what is left out."""
        value, accepts = view.schema[word], self.accepts
        inclusive = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(word, "")
        if word in out:  # the tighter of two bounds
            return []
        if accepts.takes(word):
            limit = dict(accepts.at_most).get(word)
            is_refused = word == "format" and accepts.formats is not None and value not in accepts.formats
            is_refused |= word == "pattern" and not re.fullmatch(accepts.patterns or "(?s:.*)", value)
            if limit is not None and value > limit:
                out[word] = limit
            elif not is_refused:
                out[word] = value
                return []
        elif accepts.takes(inclusive):
            is_whole, is_lower = "number" not in types, word == "exclusiveMinimum"
            bound = value if not is_whole else floor(value) + 1 if is_lower else -floor(-value) - 1
            tighter = max if is_lower else min
            out[inclusive] = tighter(view.schema.get(inclusive, bound), bound)
            if is_whole:
                return []
        demands_nothing = value in (0, False) if word in _IDLE_AT_ZERO else word == "format" and value not in _FORMATS
        if demands_nothing:
            return []
        self.lose(view, word)
        return in_words(word, value)

    def _listed(self, view: SchemaView, words: list[str]) -> dict[str, Any] | None:
        """Return the values that are listed at *view*: those that are valid under all that it says."""
        values = [value for value in view.constants or () if view.is_valid(value)]
        if not values:
            return None
        around, keyword = self._annotations(view), "const" if "const" in words else "enum"
        if any(place.leads_out for place in view.reach()):  # so that not all can be judged
            for word in set(words).difference(("enum", "const", "type")):
                self.lose(view, word)
        groups: dict[str, list[Any]] = {}
        for value in values:
            groups.setdefault(kind(value), []).append(value)
        if self.accepts.closed:
            if not groups.keys() <= _SCALARS:
                what = "The provider's strict mode lists no objects and no lists among the values of"
                self.lose(view, keyword, f"{what} {subject(view.pointer)}.", grave=True)
            types = [of for of in groups if of != "integer" or "number" not in groups]
            listed = {"const": values[0]} if keyword == "const" else {"enum": values}
            return {**around, "type": types[0] if len(types) == 1 else types, **listed}
        taken = (self.accepts.enum_kinds or frozenset(KINDS)) if self.accepts.takes("enum") else frozenset[str]()
        branches = [{"type": of, "enum": group} if of in taken else {"type": of} for of, group in groups.items()]
        is_whole = all(of in taken or of == "null" or (of == "boolean" and len(set(groups[of])) == 2) for of in groups)
        if not is_whole:
            notes = in_words("enum", values)
            around["description"] = with_sentences(around.get("description"), notes)
            for word in words:
                if word != "type":
                    self.lose(view, word)
        return {**around, **(branches[0] if len(branches) == 1 else {"anyOf": branches})}

    # -- objects and lists -----------------------------------------------------------------------------------------

    def _open_object(
        self,
        view: SchemaView,
        members: Mapping[str, list[SchemaView]],
        required: list[str],
        depth: int,
        *,
        later: bool,
    ) -> dict[str, Any]:
        """Return an object that may have other members than those listed."""
        out: dict[str, Any] = {}
        if members or "properties" in view.schema:
            optional_later = self.accepts.recursion == "optional"
            out["properties"] = {
                name: self._member(views, depth, later=later or (optional_later and name not in required))
                for name, views in members.items()
            }
        if required or "required" in view.schema:
            out["required"] = required
        if "patternProperties" in view.schema:  # `additionalProperties` would hold for its members
            self.lose(view, "patternProperties")
            if view.additional is not None and view.additional.is_false:
                patterns = [view.at("patternProperties", name) for name in view.schema["patternProperties"]]
                out["additionalProperties"] = self._member(patterns, depth, later=later)
            elif view.additional is not None:
                self.lose(view, "additionalProperties")
        elif view.additional is not None and self.accepts.takes("additionalProperties"):
            value = view.schema["additionalProperties"]
            if isinstance(value, bool):
                out["additionalProperties"] = value
            else:
                others = self._place(view.additional, depth + 1, later=later)
                out["additionalProperties"] = False if others is None else others
        elif view.additional is not None and view.schema["additionalProperties"] is not True:
            self.lose(view, "additionalProperties")
        return out

    def _member(self, views: list[SchemaView], depth: int, *, later: bool) -> dict[str, Any]:
        """Return a member that is as one of *views* describes it."""
        # What several places are composed of stands once, in the definitions.
        schemas = [
            self._reference(view, view, depth, later=later)
            if view in self._shared
            else self._some(view, depth, later=later)
            for view in views
        ]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _some(self, view: SchemaView, depth: int, *, later: bool) -> dict[str, Any]:
        """Return what *view* demands. No dialect has a form for no value at all: that is any value, reported."""
        schema = self._place(view, depth + 1, later=later)
        if schema is None:
            self.lose(view, "false", grave=True)
        return schema or {}

    def _closed(
        self,
        view: SchemaView,
        members: Mapping[str, list[SchemaView]],
        required: list[str],
        depth: int,
        *,
        later: bool,
        is_root: bool,
    ) -> dict[str, Any]:
        """Return an object of strict mode: it lists its members and takes no others."""
        what = subject(view.pointer)
        if "patternProperties" in view.schema:
            meaning = f"In strict mode {what} could have no members whose names are only described by a pattern."
            self.lose(view, "patternProperties", meaning, grave=True)
        if missing := [name for name in required if name not in members]:
            meaning = f"In strict mode {what} could not have '{missing[0]}', which it must have and does not describe."
            self.lose(view, "required", meaning, grave=True)
        if view.additional is None and (members or "properties" in view.schema or is_root):
            meaning = f"The model can give {what} no members but those listed, though the schema would take others."
            self.lose(view, "additionalProperties", meaning, weight="low")
        elif view.additional is None:
            meaning = f"In strict mode {what}, which takes any members, could have none."
            self.lose(view, "additionalProperties", meaning, grave=True)
        elif not view.additional.is_false:
            meaning = f"In strict mode {what} could have no other members than those listed, and it takes others."
            self.lose(view, "additionalProperties", meaning, grave=True)
        properties: dict[str, Any] = {}
        for name, (member, *_) in members.items():
            schema = self._some(member, depth, later=later)
            is_optional = self.accepts.all_required and name not in required
            properties[name] = self._optional(view, name, member, schema) if is_optional else schema
        asked = [name for name in properties if self.accepts.all_required or name in required]
        return {"properties": properties, "required": asked, "additionalProperties": False}

    def _optional(self, view: SchemaView, name: str, member: SchemaView, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the *schema* of an optional member with null for absent."""
        if not member.is_valid(None):
            self.nullable.setdefault(view, set()).add(name)
            return _nullable(schema)
        if member.schema.get("default", ...) is not None:
            meaning = f"In strict mode null would mean that there is no '{name}', and here it has a meaning of its own."
            self.lose(member, "required", meaning, grave=True)
        return schema

    def _items(self, view: SchemaView, out: dict[str, Any], depth: int, *, later: bool) -> None:
        """Put what is demanded of items into *out*."""
        first = view.branches("prefixItems")
        rest = view.at("items") if "items" in view.schema else None
        if first and not self.accepts.takes("prefixItems"):  # `items` would hold for the first ones
            self.lose(view, "prefixItems", grave=True)
            first, rest = [], None
            if self.accepts.closed:
                return
        if first:
            out["prefixItems"] = [self._some(item, depth, later=later) for item in first]
        items = None if rest is None else self._place(rest, depth + 1, later=later)
        if items is not None:
            out["items"] = items
        elif rest is not None and self.accepts.takes("maxItems"):
            out["maxItems"] = min(view.schema.get("maxItems", len(first)), len(first))
        elif rest is not None:
            self.lose(view, "items", grave=True)
        if items is None and self.accepts.closed:
            what = f"The provider's strict mode needs the type of the items of {subject(view.pointer)}"
            self.lose(view, "items", f"{what}, and the schema does not name it.", grave=True)
        elif items is None and self.accepts.needs_items and "array" in view.kinds:
            out["items"] = {}

    # -- references ------------------------------------------------------------------------------------------------

    def _reference(self, view: SchemaView, target: SchemaView, depth: int, *, later: bool) -> dict[str, Any]:
        """Return a reference to the definition of *target*, which is written if it is not yet."""
        later = later or self.accepts.recursion == "any"
        is_plain = not self.accepts.not_at_root & self.root.schema.keys() and self.accepts.root_reference
        if target is self.root and is_plain and later and not self.accepts.member_names:
            return {"$ref": "#"}
        if target in self._open and not later:
            return self._cut(view)
        name = self._names.get(target)
        if name is None:
            last = target.pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
            stem = re.sub(r"[^A-Za-z0-9_.-]", "_", last)[:60] or "root"
            taken = set(self._names.values())
            name = next(name for n in range(len(taken) + 1) if (name := f"{stem}_{n + 1}" if n else stem) not in taken)
            self._names[target] = name
        if later:
            self._waiting.append(target)
        else:
            self._define(target, depth)
        return {"$ref": f"#/$defs/{name}"}

    def _define(self, target: SchemaView, depth: int) -> None:
        name = self._names[target]
        if name not in self._definitions:
            self._open.add(target)
            self._definitions[name] = {}  # its place in the order
            self._written = target
            self._definitions[name] = self._some(target, depth, later=self.accepts.keywords is None)
            self._open.discard(target)

    def _cut(self, view: SchemaView) -> dict[str, Any]:
        """Return any value: *view* is nested too deeply, in itself or at all."""
        what = subject(view.pointer)
        meaning = f"The schema for the provider omits what is deeper inside {what}; Toolcrib still checks it."
        if self.accepts.closed:
            meaning = f"In strict mode {what} could not hold more of its own kind, or is nested too deeply."
        self.lose(view, "$ref" if "$ref" in view.schema else "nesting", meaning, grave=True)
        return {}

    def _annotations(self, view: SchemaView) -> dict[str, Any]:
        """Return the keywords of *view* that only describe. A default without a form becomes a sentence."""
        words = [word for word in view.schema if is_annotation(word) and word[:1] != "$" and word != "definitions"]
        out = {word: view.schema[word] for word in words if self.accepts.takes(word)}
        default = view.schema.get("default")
        if default is not None and "default" not in out and self.accepts.takes("description"):
            sentence = f"Default: {json.dumps(default, ensure_ascii=False)}."
            out["description"] = with_sentences(out.get("description"), [sentence])
        return out

    def _copy(self, view: SchemaView) -> dict[str, Any]:
        """Return the schema at *view* with all its keywords; references lead to definitions."""
        out = view.rebuilt(lambda inner: False if inner.is_false else self._copy(inner))
        out = {word: value for word, value in out.items() if word[:1] != "$" and word != "definitions"}
        if view.target is not None:
            out |= self._reference(view, view.target, 0, later=True)
        if self.accepts.needs_items and "array" in view.kinds and not isinstance(out.get("items"), dict):
            if out.pop("items", True) is False:
                length = len(out.get("prefixItems", ()))
                out["maxItems"] = min(length, out.get("maxItems", length))
            out["items"] = {}
        return out


_COMPOSING = frozenset({"$ref", "allOf", *UNIONS})
# Keywords of the arguments that name members.
_NAMING = (
    *("if", "then", "else", "dependencies", "dependentSchemas", "dependentRequired", "propertyNames"),
    *("patternProperties", "unevaluatedProperties", "not", *_COMPOSING),
)
_IDLE_AT_ZERO = frozenset({"minLength", "minItems", "minProperties", "uniqueItems"})


def _can_be_copied(root: SchemaView, accepts: Accepts) -> bool:
    """Return whether a dialect with all keywords can take each place as it stands."""
    for view in _places(root):
        # The items that every list must have would leave nothing unevaluated.
        if view.leads_out or (accepts.needs_items and "unevaluatedItems" in view.schema):
            return False
    return True


def _exclude_each_other(branches: list[SchemaView], kinds: frozenset[str]) -> bool:
    """Return whether surely no value is valid under two of *branches*, which are of *kinds* if they name none."""
    for of in KINDS:
        of_kind = [view for branch in branches if of in _kinds_of(view := branch.resolved, kinds)]
        if len(of_kind) < 2 or _have_different([view.constants for view in of_kind]):
            continue
        names = set(of_kind[0].required).intersection(*(view.required for view in of_kind[1:]))
        constants = [[view.at("properties", name).resolved.constants for view in of_kind] for name in sorted(names)]
        if of != "object" or not any(map(_have_different, constants)):
            return False
    return True


def _kinds_of(view: SchemaView, kinds: frozenset[str]) -> frozenset[str]:
    named = view.kinds or kinds or frozenset(KINDS)
    return named | {"integer"} if "number" in named else named


def _have_different(groups: Iterable[Iterable[Any] | None]) -> bool:
    """Return whether no two of *groups* have a value in common; False where that is not certain."""
    seen: set[Any] = set()
    for group in groups:
        if group is None or not all(isinstance(value, str | int | float | None) for value in group):
            return False
        own = {(isinstance(value, bool), value) for value in group}  # in Python, 1 is True and 1.0
        if own & seen:
            return False
        seen |= own
    return True


def _described(schema: dict[str, Any] | None, around: dict[str, Any]) -> dict[str, Any] | None:
    """Return *schema* with the annotations *around* it: beside a `$ref` the dialects take none."""
    if schema is None or not around:
        return schema
    return {**around, "anyOf": [schema]} if "$ref" in schema else {**schema, **around}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* with null allowed."""
    named = schema.get("type")
    if "null" in (named or ()):
        return schema
    kinds = [named] if isinstance(named, str) else list(named or ())
    if kinds and "const" not in schema and _SCALARS.issuperset(kinds):
        more = {} if "enum" not in schema else {"enum": [*schema["enum"], None]}
        return {**schema, "type": [*kinds, "null"], **more}
    around = {key: value for key, value in schema.items() if key in ("title", "description")}
    inner = {key: value for key, value in schema.items() if key not in around}
    options = inner["anyOf"] if inner.keys() == {"anyOf"} else [inner]
    return {**around, "anyOf": [*options, *([] if {"type": "null"} in options else [{"type": "null"}])]}


def _measure(schema: dict[str, Any], rewrite: _Rewrite) -> tuple[int, int]:
    """Return the numbers of optional members and of members of several types. Report a schema that is too large."""
    accepts = rewrite.accepts
    optional = unions = members = values = characters = deepest = longest = 0
    waiting = [(SchemaView(schema), 0)]
    while waiting:
        view, depth = waiting.pop()
        own, listed = view.schema.get("properties", {}), view.schema.get("enum", ())
        optional += len(own.keys() - set(view.schema.get("required", ())))
        unions += sum("anyOf" in m or isinstance(m.get("type"), list) for m in own.values() if isinstance(m, dict))
        depth += "properties" in view.schema
        deepest = max(deepest, depth)
        members += len(own)
        values += len(listed)
        if accepts.large_enum is not None and len(listed) > accepts.large_enum[0]:
            longest = max(longest, sum(len(value) for value in listed if isinstance(value, str)))
        names = [*own, *listed, *view.schema.get("$defs", ()), view.schema.get("const", "")]
        characters += sum(len(str(word)) for word in names)
        waiting.extend((inner, depth) for _, inner in view.inside())
    for count, limit, what in (
        (deepest, accepts.max_depth, "levels of objects"),
        (members, accepts.max_members, "members"),
        (values, accepts.max_values, "listed values"),
        (characters, accepts.max_characters, "characters in names and values"),
        (longest, (accepts.large_enum or (0, None))[1], "characters in a long list of values"),
    ):
        if limit is not None and count > limit:
            meaning = f"The provider takes at most {limit} {what} in one schema, and this one has {count}."
            rewrite.lose(rewrite.root, what, meaning, grave=True)
    return optional, unions
