"""Lowers a JSON Schema to what a model provider accepts, and restores the arguments that a model writes under it.

A lowered schema is never narrower than the original, once arguments are restored, without a loss that says so. One
that the provider takes as it is comes out as it is. Any other is rewritten with the keywords that tools use: types,
members, items, limits, references, unions, a single `allOf`. Other keywords (`not`, `if`, patterns of names, several
`allOf`) are left out. That makes the schema wider; it is reported, and Toolcrib's own check still holds.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import filterfalse, islice
from math import floor
from operator import is_, is_not
from typing import Any, Literal

import jsonschema_rs

from .describe import either, in_words, with_sentences
from .required import MAX_STATES
from .view import (
    ASSERTIONS,
    COMBINING,
    CONDITIONS,
    KINDS,
    MAX_REFERENCES,
    STRUCTURE,
    UNIONS,
    SchemaView,
    by_tag,
    is_annotation,
    is_deep,
    kind,
    steps,
    with_branch,
)

Lift = Callable[[dict[str, Any]], dict[str, Any]]
Members = Mapping[str, list[SchemaView]]

_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
_COMPOSING = frozenset({"$ref", *COMBINING})
# The formats that jsonschema-rs checks. Others are up to the reader of the schema.
_FORMATS = frozenset(
    {"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri"}
    | {"uri-reference", "iri", "iri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex"}
    | {"uuid"}
)

PLAIN = STRUCTURE | ASSERTIONS | {"anyOf", "title", "description", "default", "examples"}
"""The keywords that can be rewritten, and those that describe."""

Recursion = Literal["any", "optional", "none"]
"""Where a schema may refer to itself: anywhere; only below optional members; nowhere."""

Weight = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Accepts:
    """What one provider accepts, in one mode. *source* says where that is documented.

    *keywords*: those it takes below the root, `description`, `enum` and `additionalProperties` among them; None: all.
    Conditions (`not`, `if`, `contains`, `oneOf` and the like) can only be taken with all others. *not_at_root*: those
    it refuses for the arguments themselves.
    *formats*, *enum_kinds* (JSON types of the values of an `enum`): None: all. *patterns*: a regular expression that
    a `pattern` must match to be taken; None: all. *at_most*: keywords taken up to a value only.
    *needs_items*: an array must have `items`. *closed*: an object lists its members and takes no others, and every
    place must have a type, an object or array no other type beside it; *all_required*: and all members must be written,
    so that null stands for absent. *member_names*: a regular expression for the names of arguments.
    *names*, *name_length*: for names of tools. *max_...*: for one schema; *most_...*: for all strict tools together.
    *large_enum*: an `enum` of more values than the first number has texts of at most the second number of characters.
    *strictly*: what it accepts in its strict mode; None: it has none.
    """

    name: str
    source: str
    keywords: frozenset[str] | None = None
    not_at_root: frozenset[str] = frozenset()
    formats: frozenset[str] | None = None
    enum_kinds: frozenset[str] | None = None
    patterns: str | None = None
    at_most: tuple[tuple[str, float], ...] = ()
    recursion: Recursion = "any"
    needs_items: bool = False
    closed: bool = False
    all_required: bool = False
    member_names: str | None = None
    max_depth: int | None = None
    max_members: int | None = None
    max_values: int | None = None
    max_characters: int | None = None
    large_enum: tuple[int, int] | None = None
    most_tools: int | None = None
    most_optional: int | None = None
    most_unions: int | None = None
    names: str = r"[A-Za-z0-9_-]{1,64}"
    name_length: int = 64
    strictly: "Accepts | None" = None

    def takes(self, keyword: str) -> bool:
        """Return whether *keyword* is taken below the root."""
        return self.keywords is None or keyword in self.keywords

    def takes_as_it_is(self, text: str) -> bool:
        """Return whether any schema is taken as it is, and one of this *text* has no references to look at."""
        demands = self.keywords is not None or self.not_at_root or self.needs_items or self.member_names
        return not demands and '$ref"' not in text and '$dynamicRef"' not in text

    def takes_name(self, name: str) -> bool:
        """Return whether an argument may have this name."""
        return self.member_names is None or re.fullmatch(self.member_names, name) is not None


@dataclass(frozen=True, slots=True)
class Loss:
    """A demand of a schema that its lowered form does not make.

    *path* is a JSON pointer to the place in the original schema, *keyword* what stands there, *meaning* one sentence.
    *weight*: `high` where a part of the schema is missing, or strict mode that was asked for; `medium` for a demand
    that the model does not see as one; `low` where hardly any call is affected.
    """

    path: str
    keyword: str
    meaning: str
    weight: Weight = "medium"

    def to_dict(self) -> dict[str, str]:
        """Return the loss as JSON data."""
        return {"path": self.path, "keyword": self.keyword, "meaning": self.meaning, "weight": self.weight}


def heaviest_first(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Return *losses* by weight, so that what nearly every tool loses hides nothing."""
    return tuple(sorted(losses, key=lambda loss: ("high", "medium", "low").index(loss.weight)))


def omitted(path: str, keyword: str, value: Any) -> str:
    """Return the sentence for a keyword that is left out.

    The model may break it; the check then explains that to it.
    """
    text = json.dumps(value, ensure_ascii=False)
    of = f" ({text})" if len(text) <= 60 and not isinstance(value, dict | None) else ""
    return f"The schema for the provider omits '{keyword}'{of} of {subject(path)}; Toolcrib still checks it."


def subject(path: str) -> str:
    """Return the name for what stands at *path*, in a sentence."""
    rest = iter(steps(path))
    name, inside = "", False
    for keyword in rest:
        if keyword in ("properties", "$defs", "definitions"):
            name, inside = next(rest, name), False
        elif keyword in ("items", "contains", "additionalProperties", "unevaluatedItems"):
            inside = True
        elif keyword in ("prefixItems", "patternProperties"):
            inside, _ = True, next(rest, None)
        elif keyword in ("dependentSchemas", *COMBINING):
            next(rest, None)
    owner = f"'{name}'" if name else "the arguments"
    return f"the values inside {owner}" if inside else owner


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
        return _lower(json.dumps(schema, separators=(",", ":")), accepts, bool(strict))
    except (TypeError, ValueError):
        return _any_object("is not valid JSON")
    except RecursionError:
        return _any_object("is nested too deeply")


@lru_cache(maxsize=1024)
def _lower(text: str, accepts: Accepts, strict: bool) -> Lowered:
    schema: dict[str, Any] = json.loads(text)
    if accepts.takes_as_it_is(text):
        low = Lowered(schema if schema.get("type") == "object" else {"type": "object", **schema})
        return _without_strict(low, None, accepts) if strict else low
    if is_deep(schema):
        return _any_object("is nested too deeply")
    if not jsonschema_rs.meta.is_valid(schema):
        return _any_object("is not valid JSON Schema 2020-12")
    reason: Loss | None = None
    if strict and accepts.strictly is not None:
        try:
            return _rewritten(schema, accepts.strictly)
        except _Obstacle as obstacle:
            reason = obstacle.loss
    low = _rewritten(schema, accepts)
    return _without_strict(low, reason, accepts) if strict else low


def _any_object(reason: str) -> Lowered:
    meaning = f"The schema for the provider is any object: the schema of the tool {reason}."
    return Lowered({"type": "object", "properties": {}}, (Loss("", "$schema", meaning, "high"),))


def _without_strict(low: Lowered, reason: Loss | None, accepts: Accepts) -> Lowered:
    meaning = f"Strict mode was asked for, and the tool is sent without it: {accepts.name} has none for this tool."
    if reason is not None:
        meaning = f"{reason.meaning} So the tool is sent without strict mode."
    loss = Loss("" if reason is None else reason.path, "strict", meaning, "high")
    return replace(low, losses=(*low.losses, loss))


class _Obstacle(Exception):
    """Raised for the first thing by which a strict mode would change what the tool takes."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss.meaning)
        self.loss = loss


def _rewritten(schema: dict[str, Any], accepts: Accepts) -> Lowered:
    """Return *schema* lowered. Raises _Obstacle where *accepts* is a strict mode that would change it."""
    # `items` would make all items count as evaluated.
    if accepts.needs_items and accepts.keywords is None and "unevaluatedItems" not in str(schema):
        schema = _with_items(SchemaView(schema))
    if _fits(schema, accepts):
        unchanged = {key: value for key, value in schema.items() if key != "$schema"}
        return Lowered({"type": "object", "properties": {}, **unchanged})
    rewrite = _Rewrite({"type": "object", **schema}, accepts)
    final, names = rewrite.run()
    restore = Restore(rewrite.start, rewrite.has_nullable, names)
    for member in restore.ambiguous():
        meaning = "In strict mode the arguments would not show which of several descriptions they follow."
        rewrite.lose(member, "anyOf", meaning, obstructs=True)
    optional, unions = _measure(final, rewrite)
    lifts = bool(names or rewrite.has_nullable)
    lift: Lift = restore if lifts else _unchanged
    return Lowered(final, tuple(rewrite.losses.values()), accepts.closed, lift, lifts, optional, unions)


def _with_items(view: SchemaView) -> dict[str, Any]:
    """Return the schema at *view* in which each array says what its items are: anything, where it said nothing."""
    schema = view.rebuilt(_with_items)
    return {**schema, "items": {}} if "array" in view.kinds and schema.get("items", True) is True else schema


def _fits(schema: dict[str, Any], accepts: Accepts) -> bool:
    """Return whether *schema* can be sent as it is."""
    if accepts.keywords is not None or accepts.not_at_root & schema.keys() or schema.get("type", "object") != "object":
        return False
    root = SchemaView(schema)
    definitions = [view for keyword, view in root.inside() if keyword in ("$defs", "definitions")]
    for view in {root, *root.reach()}.union(definitions, *(view.reach() for view in definitions)):
        has_items = "array" not in view.kinds or isinstance(view.schema.get("items"), dict)
        if (accepts.needs_items and not has_items) or view.leads_out:
            return False
    return all(map(accepts.takes_name, schema.get("properties", ())))


class _Rewrite:
    """The rewriting of one schema for one dialect. Use it once.

    `losses` has what was left out. `start` is where the arguments are described, `has_nullable` whether null stands for
    absent anywhere.

    Each place that is referred to becomes a definition. Where a dialect takes no recursion, the references that lead
    back to a definition that is being written (`_open`) are cut: without these the definitions cannot be in a circle.
    A dialect that takes recursion below optional members has its definitions there written later (`_waiting`), each
    from its own beginning, so that the open ones are those that a chain of required places leads to.
    """

    def __init__(self, schema: Mapping[str, Any], accepts: Accepts) -> None:
        self.start = self.root = SchemaView(schema)
        self.accepts = accepts if accepts.keywords is not None else replace(accepts, keywords=PLAIN)
        self.losses: dict[tuple[str, str], Loss] = {}
        self.has_nullable = False
        self._names: dict[SchemaView, str] = {}
        self._definitions: dict[str, dict[str, Any]] = {}
        self._waiting: list[SchemaView] = []
        self._open = {self.root}
        self._is_optional = False  # below a member that may be left out

    def run(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the schema, and the members' own names by those in the schema, where they differ."""
        schema, names = self._renamed(self._root())
        while self._waiting:
            self._open.clear()
            self._define(self._waiting.pop())
        return ({**schema, "$defs": self._definitions} if self._definitions else schema), names

    def lose(
        self, view: SchemaView, keyword: str, meaning: str = "", *, obstructs: bool = False, weight: Weight = "medium"
    ) -> None:
        """Report that *keyword* at *view* is left out. *obstructs*: in a strict mode, it cannot be: raise _Obstacle."""
        # With these all that a place demands is lost.
        weight = "high" if keyword in ("$ref", "$dynamicRef", "false") else weight
        meaning = meaning or omitted(view.pointer, keyword, view.schema.get(keyword))
        loss = Loss(view.pointer, keyword, meaning, weight)
        if obstructs and self.accepts.closed:
            raise _Obstacle(loss)
        self.losses.setdefault((view.pointer, keyword), loss)

    # -- the arguments themselves ----------------------------------------------------------------------------------

    def _root(self) -> dict[str, Any]:
        """Return the root: always an object, without the keywords that the dialect refuses there."""
        view, places = self.root, {self.root}
        around: dict[str, Any] = {}
        while (inner := self._only_part(view, beside={"type"})) is not None and inner not in places:
            around = {**self._annotations(view), **around}
            places.add(inner)
            self.start = view = inner
        words = [word for word in self._words(view) if word not in _COMPOSING]
        for word in ("enum", "const"):
            if word in words:
                self.lose(view, word)
                words.remove(word)
        out: dict[str, Any] = {}
        if view.is_false or "object" not in (view.kinds or KINDS):
            meaning = "The schema for the provider is any object; no arguments are valid."
            self.lose(view, "false", meaning, obstructs=True)
        else:
            out = self._plain(view, words, self._members_of_parts(view), view.names.required)
            branches = [branch for keyword in UNIONS for branch in view.branches(keyword)]
            groups = [sorted({*view.required, *branch.names.required}) for branch in branches]
            sentence = f"Give {either(' and '.join(map(repr, group)) for group in groups)}."
            if all(groups) and len(set(map(tuple, groups))) > 1 and len(sentence) <= 300:
                out["description"] = with_sentences(out.get("description"), [sentence])
        return {"type": "object", "properties": {}, **out, **around} | {"type": "object"}

    def _members_of_parts(self, view: SchemaView) -> dict[str, list[SchemaView]]:
        """Return the members of *view* and of all that it is composed of: a member may be as any of its places says.

        Report that the schema omits which of them go together.
        """
        members: dict[str, list[SchemaView]] = {}
        parts = [view]
        for part in parts:  # which grows
            for name, member in part.members.items():
                members.setdefault(name, []).append(member)
            for word in _COMPOSING.intersection(self._words(part)):
                meaning = (
                    "The schema for the provider has all members together, and omits which of them go together or are "
                    "required together; Toolcrib still checks it."
                )
                self.lose(part, word, meaning, obstructs=True)
            inner = [*part.parts, *(branch for word in UNIONS for branch in part.branches(word))]
            parts += [place for place in inner if place not in parts]
        return members

    def _renamed(self, schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the root with names of arguments that the provider takes, and their own names by these."""
        members: dict[str, Any] = schema["properties"]
        names: dict[str, str] = {}
        for name in filterfalse(self.accepts.takes_name, members):
            names[name] = _free_name(name, {*names.values(), *members})
        if not names:
            return schema, {}
        schema = {**schema, "properties": {names.get(name, name): member for name, member in members.items()}}
        if "required" in schema:
            schema["required"] = [names.get(name, name) for name in schema["required"]]
        if schema.pop("dependentRequired", None) is not None:
            self.lose(self.start, "dependentRequired")
        if schema.get("additionalProperties") is not False:
            for name, new_name in names.items():
                meaning = f"The provider's name for '{name}' is '{new_name}', so no other argument can be so named."
                self.lose(self.start.at("properties", name), "properties", meaning, weight="low")
        return schema, {new_name: name for name, new_name in names.items()}

    # -- one place -------------------------------------------------------------------------------------------------

    def _place(self, view: SchemaView) -> dict[str, Any] | None:
        """Return what *view* demands, in the dialect; None where no value can be valid."""
        if view.is_false:
            return None
        if (inner := self._only_part(view)) is not None:
            schema = self._reference(view, inner) if "$ref" in view.schema else self._place(inner)
            return _described(schema, self._annotations(view))
        words = self._words(view)
        if view.constants is not None:
            return self._listed(view, words, view.constants)
        unions = [word for word in words if word in UNIONS]
        if len(unions) == 1 and {*words} <= {"type", *unions}:
            return self._union(view, unions[0])
        composing = _COMPOSING.intersection(words)
        parts = view.parts
        if parts and composing and {*words}.isdisjoint(("type", "properties")):
            # The first of several parts says most; the others are left out.
            for word in {*words} - {"$ref"}:
                self.lose(view, word, obstructs=True)
            schema = self._reference(view, parts[0]) if view.target is parts[0] else self._place(parts[0])
            return _described(schema, self._annotations(view))
        for word in composing:
            self.lose(view, word, obstructs=True)
        return self._plain(view, [word for word in words if word not in composing])

    def _some(self, view: SchemaView) -> dict[str, Any]:
        """Return what *view* demands. No dialect has a form for no value at all: that is any value, reported."""
        schema = self._place(view)
        if schema is None:
            self.lose(view, "false", obstructs=True)
        return schema or {}

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
        words = {word for word in view.schema if not is_annotation(word)}.difference(beside)
        branches = view.branches("allOf")
        if words == {"$ref"}:
            return view.target
        return branches[0] if words == {"allOf"} and len(branches) == 1 else None

    def _union(self, view: SchemaView, keyword: str) -> dict[str, Any] | None:
        """Return a union with nothing beside it but a type, which its branches should name."""
        branches = [branch for branch in view.branches(keyword) if not branch.is_false]
        if keyword == "oneOf" and not _exclude_each_other(branches):
            self.lose(view, "oneOf")
        places = [schema for branch in branches if (schema := self._place(branch)) is not None]
        if "type" in view.schema:
            leaves = [leaf for branch in branches for leaf in branch.alternatives]
            is_named = all(leaf.kinds and leaf.kinds <= _all_numbers(view.kinds) for leaf in leaves)
            if self.accepts.closed or not is_named:
                self.lose(view, "type", obstructs=True)
        if len(places) < 2:
            return _described(places[0], self._annotations(view)) if places else None
        return {**self._annotations(view), "anyOf": places}

    def _plain(
        self, view: SchemaView, words: list[str], members: Members | None = None, required: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return a place that is not composed of others. *members* and *required* are those of the arguments."""
        schema, accepts, required = view.schema, self.accepts, {*required, *view.required}
        types = view.kinds or frozenset(KINDS)
        if accepts.closed and (not view.kinds or (len(types) > 1 and not types <= _SCALARS)):
            place = subject(view.pointer)
            meaning = f"The provider's strict mode needs one type of {place}, and the schema does not name it."
            self.lose(view, "type", meaning, obstructs=True)
        out = self._annotations(view)
        if "type" in schema:
            out["type"] = schema["type"] if len(view.kinds) > 1 else next(iter(view.kinds))
        notes = [note for word in words if word in ASSERTIONS for note in self._assertion(view, word, types, out)]
        for word in CONDITIONS.intersection(words):
            self.lose(view, word)
        if "object" in types:
            members = {name: [member] for name, member in view.members.items()} if members is None else members
            names = [name for name in members if name in required]
            write = self._closed_object if accepts.closed else self._open_object
            out |= write(view, members, [*names, *(name for name in view.required if name not in members)])
        if "array" in types:
            self._items(view, out)
        if notes:
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
            limit_value = value if not is_whole else floor(value) + 1 if is_lower else -floor(-value) - 1
            tighter = max if is_lower else min
            out[inclusive] = tighter(view.schema.get(inclusive, limit_value), limit_value)
            if is_whole:
                return []
        if word == "format" and value not in _FORMATS:  # which demands nothing
            return []
        self.lose(view, word)
        return in_words(word, value)

    def _listed(self, view: SchemaView, words: list[str], constants: Sequence[Any]) -> dict[str, Any] | None:
        """Return the *constants* that are listed at *view*: those that are valid under all that it says."""
        # Under the list itself all of its values are valid, and each would be compared with all.
        beside = {*words} - {"enum"}
        judge = partial(view.satisfies, keyword="type") if beside == {"type"} else view.is_valid
        values = [value for value in constants if not beside or judge(value)]
        if not values:
            return None
        groups: dict[str, list[Any]] = {}
        for value in values:
            groups.setdefault(kind(value), []).append(value)
        if self.accepts.closed and not groups.keys() <= _SCALARS:
            sentence = "The provider's strict mode lists no objects and no lists among the values of"
            meaning = f"{sentence} {subject(view.pointer)}."
            self.lose(view, "const" if "const" in words else "enum", meaning, obstructs=True)
        return self._listed_by_kind(view, words, values, groups)

    def _listed_by_kind(
        self, view: SchemaView, words: list[str], values: list[Any], groups: Mapping[str, list[Any]]
    ) -> dict[str, Any]:
        """Return *values* in *groups* by JSON type, for a dialect that does not list values of every type."""
        around = self._annotations(view)
        enum_kinds = self.accepts.enum_kinds or KINDS
        branches = [{"type": of, "enum": group} if of in enum_kinds else {"type": of} for of, group in groups.items()]
        is_whole = all(
            of in {"null", *enum_kinds} or (of == "boolean" and len({*group}) == 2) for of, group in groups.items()
        )
        if not is_whole:
            around["description"] = with_sentences(around.get("description"), in_words("enum", values))
            for word in {*words} - {"type"}:
                self.lose(view, word)
        return {**around, **(branches[0] if len(branches) == 1 else {"anyOf": branches})}

    # -- objects and lists -----------------------------------------------------------------------------------------

    def _open_object(self, view: SchemaView, members: Members, required: list[str]) -> dict[str, Any]:
        """Return an object that may have other members than those listed."""
        out: dict[str, Any] = {}
        if members or "properties" in view.schema:
            out["properties"] = {name: self._member(views, name in required) for name, views in members.items()}
        if required or "required" in view.schema:
            out["required"] = required
        if "patternProperties" in view.schema:  # `additionalProperties` would hold for its members
            self.lose(view, "patternProperties")
        elif view.additional is not None:
            additional = True if view.schema["additionalProperties"] is True else self._place(view.additional)
            out["additionalProperties"] = False if additional is None else additional
        return out

    def _member(self, views: list[SchemaView], is_required: bool) -> dict[str, Any]:
        """Return a member that is as one of *views* describes it."""
        before, self._is_optional = self._is_optional, self._is_optional or not is_required
        schemas = [self._some(view) for view in views]
        self._is_optional = before
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _closed_object(self, view: SchemaView, members: Members, required: list[str]) -> dict[str, Any]:
        """Return an object of strict mode: it lists its members and takes no others."""
        others, missing = view.additional, [name for name in required if name not in members]
        is_described = bool(members) or "properties" in view.schema or view is self.start
        takes_others = others is not None and not others.is_false
        owner = subject(view.pointer)
        for keyword, is_obstacle, meaning in (
            ("patternProperties", "patternProperties" in view.schema, "have no members that only a pattern describes"),
            ("required", missing, f"not have '{''.join(missing[:1])}', which it must have and does not describe"),
            ("additionalProperties", others is None and not is_described, "have no members, and it takes any"),
            ("additionalProperties", takes_others, "have no other members than those listed, and it takes others"),
        ):
            if is_obstacle:
                self.lose(view, keyword, f"In strict mode {owner} could {meaning}.", obstructs=True)
        if others is None:
            meaning = f"The model can give {owner} no members but those listed, though the schema would take others."
            self.lose(view, "additionalProperties", meaning, weight="low")
        properties = {name: self._member(views[:1], name in required) for name, views in members.items()}
        for name in properties if self.accepts.all_required else ():
            member = members[name][0]
            if name in required or member.schema.get("default", ...) is None:
                continue
            if member.is_valid(None):
                meaning = f"In strict mode null would mean that there is no '{name}', and it has a meaning of its own."
                self.lose(member, "required", meaning, obstructs=True)
            else:
                self.has_nullable = True
                properties[name] = _nullable(properties[name])
        required_names = [name for name in properties if self.accepts.all_required or name in required]
        return {"properties": properties, "required": required_names, "additionalProperties": False}

    def _items(self, view: SchemaView, out: dict[str, Any]) -> None:
        """Put what is demanded of items into *out*."""
        first = view.branches("prefixItems")
        rest = view.at("items") if "items" in view.schema else None
        if first and not self.accepts.takes("prefixItems"):  # `items` would hold for the first ones
            self.lose(view, "prefixItems", obstructs=True)
            first, rest = [], None
        if first:
            out["prefixItems"] = [self._some(item) for item in first]
        items = None if rest is None else self._place(rest)
        if items is not None:
            out["items"] = items
        elif rest is not None and self.accepts.takes("maxItems"):
            out["maxItems"] = min(view.schema.get("maxItems", len(first)), len(first))
        if items is None and self.accepts.closed:
            place = f"The provider's strict mode needs the type of the items of {subject(view.pointer)}"
            self.lose(view, "items", f"{place}, and the schema does not name it.", obstructs=True)
        elif items is None and self.accepts.needs_items and "array" in view.kinds:
            out["items"] = {}

    # -- references ------------------------------------------------------------------------------------------------

    def _reference(self, view: SchemaView, target: SchemaView) -> dict[str, Any]:
        """Return a reference to the definition of *target*, which is written if it is not yet."""
        accepts = self.accepts
        is_later = accepts.recursion == "any" or (accepts.recursion == "optional" and self._is_optional)
        if not is_later and (target in self._open or len(self._open) > MAX_REFERENCES):
            return self._cut(view)
        name = self._names.get(target)
        if name is None:
            name = self._names[target] = _free_name((steps(target.pointer) or ["root"])[-1], {*self._names.values()})
        if is_later:
            self._waiting.append(target)
        else:
            self._define(target)
        return {"$ref": f"#/$defs/{name}"}

    def _define(self, target: SchemaView) -> None:
        name = self._names[target]
        if name not in self._definitions:
            self._open.add(target)
            self._definitions[name] = {}  # its place in the order
            self._definitions[name] = self._some(target)
            self._open.discard(target)

    def _cut(self, view: SchemaView) -> dict[str, Any]:
        """Return any value: *view* leads back to what it is in, or is too deep inside."""
        place = subject(view.pointer)
        meaning = f"The schema for the provider omits what is deeper inside {place}; Toolcrib still checks it."
        if self.accepts.closed:
            meaning = f"In strict mode {place} could not hold more of its own kind, or is nested too deeply."
        self.lose(view, "$ref", meaning, obstructs=True)
        return {}

    def _annotations(self, view: SchemaView) -> dict[str, Any]:
        """Return the keywords of *view* that only describe. A default without a form becomes a sentence."""
        words = [word for word in view.schema if is_annotation(word) and word[:1] != "$" and word != "definitions"]
        out = {word: view.schema[word] for word in words if self.accepts.takes(word)}
        default = view.schema.get("default")
        if default is not None and "default" not in out:
            sentence = f"Default: {json.dumps(default, ensure_ascii=False)}."
            out["description"] = with_sentences(out.get("description"), [sentence])
        return out


def _free_name(name: str, others: Collection[str]) -> str:
    """Return *name* in letters that every dialect takes, with a number behind it where *others* have it."""
    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:50] or "_"
    names = (f"{stem}_{number + 1}" if number else stem for number in range(len(others) + 1))
    return next(name for name in names if name not in others)


def _all_numbers(kinds: frozenset[str]) -> frozenset[str]:
    return kinds | {"integer"} if "number" in kinds else kinds


def _exclude_each_other(branches: Iterable[SchemaView]) -> bool:
    """Return whether surely no value is valid under two of *branches*: by their types, their texts, or a tag."""
    views = [branch.resolved for branch in branches]
    by_kind = {of: [view for view in views if of in _all_numbers(view.kinds or frozenset(KINDS))] for of in KINDS}
    return all(len(of_kind) < 2 or _are_apart(of_kind, of) for of, of_kind in by_kind.items())


def _are_apart(views: list[SchemaView], of: str) -> bool:
    """Return whether surely no value of the JSON type *of* is valid under two of *views*."""
    texts = [text for view in views for text in view.constants or (None,)]
    if all(isinstance(text, str) for text in texts):
        return len({*texts}) == len(texts)
    tag = by_tag(views) if of == "object" else None
    return tag is not None and all(tag[0] in view.required for view in views)


def _described(schema: dict[str, Any] | None, around: dict[str, Any]) -> dict[str, Any] | None:
    """Return *schema* with the annotations *around* it: beside a `$ref` the dialects take none."""
    if schema is None or not around:
        return schema
    return {**around, "anyOf": [schema]} if "$ref" in schema else {**schema, **around}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* with null allowed."""
    types = schema.get("type", [])
    kinds = [types] if isinstance(types, str) else types
    if "null" in kinds:
        return schema
    if kinds and "const" not in schema and _SCALARS.issuperset(kinds):
        more = {} if "enum" not in schema else {"enum": [*schema["enum"], None]}
        return {**schema, "type": [*kinds, "null"], **more}
    return with_branch(schema, {"type": "null"}, around=("title", "description"))


def _measure(schema: dict[str, Any], rewrite: _Rewrite) -> tuple[int, int]:
    """Return the numbers of optional members and of members of several types. Report a schema that is too large."""
    accepts = rewrite.accepts
    optional = unions = members = values = characters = deepest = longest = 0
    waiting = [(SchemaView(schema), 0)]
    while waiting:
        view, depth = waiting.pop()
        own, choices = view.schema.get("properties", {}), view.schema.get("enum", ())
        optional += len(own.keys() - set(view.schema.get("required", ())))
        unions += sum("anyOf" in m or isinstance(m.get("type"), list) for m in own.values() if isinstance(m, dict))
        depth += "properties" in view.schema
        deepest = max(deepest, depth)
        members += len(own)
        values += len(choices)
        if accepts.large_enum is not None and len(choices) > accepts.large_enum[0]:
            longest = max(longest, sum(len(value) for value in choices if isinstance(value, str)))
        names = [*own, *choices, *view.schema.get("$defs", ()), view.schema.get("const", "")]
        characters += sum(len(str(word)) for word in names)
        waiting.extend((inner, depth) for _, inner in view.inside())
    for count, limit, unit in (
        (deepest, accepts.max_depth, "levels of objects"),
        (members, accepts.max_members, "members"),
        (values, accepts.max_values, "listed values"),
        (characters, accepts.max_characters, "characters in names and values"),
        (longest, (accepts.large_enum or (0, None))[1], "characters in a long list of values"),
    ):
        if limit is not None and count > limit:
            meaning = f"The provider takes at most {limit} {unit} in one schema, and this one has {count}."
            rewrite.lose(rewrite.root, unit, meaning, obstructs=True)
    return optional, unions


class Restore:
    """What has to be undone under a lowered schema. Called with arguments, it returns them restored.

    Two things are undone: *names* of arguments that a provider refuses (their own names by the provider's), and, with
    *has_nullable*, null where it stands for an absent member. Values in which nothing has to be undone are returned as
    the same objects.

    Which branch of a union a value follows is not looked for: `ambiguous` has the places where that would matter.
    """

    __slots__ = ("_absent", "_has_nullable", "_start", "names")

    def __init__(self, start: SchemaView, has_nullable: bool, names: Mapping[str, str]) -> None:
        self._start = frozenset(start.alternatives)
        self._has_nullable = has_nullable
        self._absent: dict[SchemaView, frozenset[str]] = {}
        self.names = names

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not arguments.keys().isdisjoint(self.names):
            own = {self.names.get(name, name): value for name, value in arguments.items()}
            if len(own) == len(arguments):
                arguments = own
        result: dict[str, Any] = self._restore(arguments, self._start) if self._has_nullable else arguments
        return result

    def _restore(self, value: Any, views: frozenset[SchemaView]) -> Any:
        if isinstance(value, dict):
            absent = frozenset[str]().union(*map(self._absent_if_null, views))
            members = {
                name: self._restore(inner, _members(views, name))
                for name, inner in value.items()
                if inner is not None or name not in absent
            }
            is_same = len(members) == len(value) and all(map(is_, members.values(), value.values()))
            return value if is_same else members
        if isinstance(value, list):
            inside = _items(views)
            items = [self._restore(item, inside) for item in value]
            return items if any(map(is_not, items, value)) else value
        return value

    def _absent_if_null(self, view: SchemaView) -> frozenset[str]:
        """Return the members at *view* that are absent where they are null."""
        if view not in self._absent:
            optional = [(name, member) for name, member in view.members.items() if name not in view.required]
            self._absent[view] = frozenset(name for name, member in optional if not member.is_valid(None))
        return self._absent[view]

    def ambiguous(self) -> Iterator[SchemaView]:
        """Return the members that are absent if null under one description of a value, and may be null under another.

        Descriptions that may hold for the same value are looked at together, as `_restore` does.
        """
        waiting = [self._start] if self._has_nullable else []
        known_groups = {*waiting}
        while waiting:
            views = waiting.pop()
            groups = [_items(views)]
            by_name: dict[str, list[SchemaView]] = {}
            for view in views:
                for name in view.members:
                    by_name.setdefault(name, []).append(view)
            for name, holders in by_name.items():
                groups.append(_members(holders, name))
                if absent := {view for view in holders if name in self._absent_if_null(view)}:
                    members = (view.members[name] for view in holders if view not in absent)
                    yield from islice((member for member in members if member.is_valid(None)), 1)
            new = [group for group in groups if group and group not in known_groups]
            if len(known_groups) > MAX_STATES:
                yield next(iter(self._start))
                return
            known_groups.update(new)
            waiting += new


def _members(views: Iterable[SchemaView], name: str) -> frozenset[SchemaView]:
    return frozenset(leaf for view in views if name in view.members for leaf in view.members[name].alternatives)


def _items(views: Iterable[SchemaView]) -> frozenset[SchemaView]:
    return frozenset(leaf for view in views if "items" in view.schema for leaf in view.at("items").alternatives)
