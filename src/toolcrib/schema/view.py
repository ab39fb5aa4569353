"""A JSON Schema 2020-12 as its readers need it: messages, repair, rules, forms and the command ask this one class.

    view = SchemaView(spec.input_schema)
    for name, member in view.members.items():
        print(name, name in view.required, [sorted(form.kinds) for form in member.alternatives])

A view is one place of a schema. Its own keywords are in `schema`; what its `$ref`s and unions lead to, in
`alternatives`: a reader that only looks at those sees neither. Asking only for validity at each place stays linear
where listing every error of every branch of nested unions doubles with each level.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from pydantic_core import from_json, to_json

from ..machinery import defer_package

if TYPE_CHECKING:
    import jsonschema_rs
    from jsonschema_rs import Draft202012Validator as Validator
else:
    jsonschema_rs = defer_package("jsonschema_rs")  # 4 MiB, and many programs validate by no schema of their own

KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
"""The JSON types."""

UNIONS = ("anyOf", "oneOf")

MAX_REFERENCES = 32
"""How many references may lead on from one to the next."""

MAX_NESTING = 64
"""Levels of JSON in a schema that is lowered, and of readings in one another: people write far fewer."""

ASSERTIONS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"}
    | {"format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "dependentRequired"}
)
"""Keywords with a plain value."""

CONDITIONS = frozenset(
    {"not", "if", "contains", "unevaluatedItems", "propertyNames", "dependentSchemas", "dependencies"}
    | {"unevaluatedProperties"}
)
"""Keywords that only a dialect with all keywords takes."""

STRUCTURE = frozenset(
    {"type", "enum", "const", "properties", "required", "patternProperties", "additionalProperties", "prefixItems"}
    | {"items"}
)
_IN_PLACE = frozenset({"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "then", "else", "minContains", "maxContains"})
_DEMANDING = STRUCTURE | ASSERTIONS | CONDITIONS | _IN_PLACE

SAME_VALUE = frozenset({"allOf", *UNIONS, "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Keywords whose schemas apply to the value itself, not to its members or items."""

COMBINING = ("allOf", *UNIONS)

_BASE = "urn:toolcrib:arguments"
_ONE = frozenset(
    {"additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames", "contentSchema"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
# `dependencies` is of older drafts: jsonschema-rs checks it. Some of what it names are lists of names.
_NAMED = frozenset(("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"))
LEADING = (_ONE | _LISTS | _NAMED) - SAME_VALUE
"""Keywords whose schemas may apply to members and items."""

_TYPING = ("type", "$ref", *UNIONS, "allOf", "enum", "const")


class SchemaView:
    """One place of a JSON Schema. Two views of the same place are the same object, so they can be kept in sets.

    *schema* is the whole schema; this view is its root. *formats*: `format` is judged too.
    """

    pointer: str
    """Where it is: a JSON pointer (RFC 6901), "" for the root."""
    schema: Mapping[str, Any]
    """Its own keywords; empty where there are none, or where it is just true or false."""
    is_false: bool
    """Whether no value at all is valid here."""

    def __init__(
        self, schema: Any, *, formats: bool = False, _document: "_Document | None" = None, _pointer: str = ""
    ) -> None:
        if _document is None:
            _document = _Document(schema, formats)
            _document.views[""] = self
            schema = _document.root
        self._document, self.pointer = _document, _pointer
        self.schema = schema if isinstance(schema, Mapping) else {}
        self.is_false = schema is False

    def __repr__(self) -> str:
        return f"<SchemaView '{self.pointer}': {self.schema or not self.is_false}>"

    # -- where things are ------------------------------------------------------------------------------------------

    def at(self, *steps: str | int) -> "SchemaView":
        """Return the place at *steps* below this one; an empty view where there is none."""
        return self._document.view(self.pointer + pointer(steps))

    @property
    def root(self) -> "SchemaView":
        """The whole schema."""
        return self._document.view("")

    @property
    def is_walkable(self) -> bool:
        """Whether pointers mean what they seem to: not where a part has an `$id` of its own."""
        return self._document.is_walkable

    @property
    def target(self) -> "SchemaView | None":
        """Where its `$ref` leads, if that is in this schema."""
        return self._document.place(self.schema.get("$ref"))

    @property
    def leads_out(self) -> bool:
        """Whether it has a reference that is not followed: to another schema, an anchor, or a `$dynamicRef`."""
        return "$dynamicRef" in self.schema or ("$ref" in self.schema and self.target is None)

    @cached_property
    def chain(self) -> "Sequence[SchemaView]":
        """This place, where its `$ref` leads, and so on; what stands beside a `$ref` stays behind."""
        views: list[SchemaView] = [self]
        while (target := views[-1].target) is not None and target not in views and len(views) < MAX_REFERENCES:
            views.append(target)
        return views

    @property
    def resolved(self) -> "SchemaView":
        """Where its references lead in the end."""
        return self.chain[-1]

    def branches(self, keyword: str) -> "list[SchemaView]":
        """Return what *keyword* lists here (`anyOf`, `oneOf`, `allOf`, `prefixItems`)."""
        entries = self.schema.get(keyword)
        return [self.at(keyword, index) for index in range(len(entries))] if isinstance(entries, list) else []

    @property
    def parts(self) -> "list[SchemaView]":
        """The places whose demands hold here too: where its `$ref` leads, and what its `allOf` lists."""
        return [*([] if self.target is None else [self.target]), *self.branches("allOf")]

    @property
    def is_typed(self) -> bool:
        """Whether it says what kind of value it takes."""
        return not self.schema.keys().isdisjoint(_TYPING)

    @cached_property
    def alternatives(self) -> "Sequence[SchemaView]":
        """What a value may be here: references, unions and a single `allOf` followed, each place once.

        A place that is none of these is its own alternative; so is one with keywords of its own beside a union.
        """
        leaves: dict[SchemaView, None] = {}
        places: set[SchemaView] = set()

        def add(view: SchemaView) -> None:
            view = view.resolved
            if view in places:
                return
            places.add(view)
            inner = view._listed
            for branch in inner or ():
                add(branch)
            if not inner:
                leaves[view] = None

        add(self)
        return tuple(leaves)

    @property
    def _listed(self) -> "list[SchemaView]":
        """What it is one of, if that is all that it says."""
        groups = [self.branches(keyword) for keyword in (*UNIONS, "allOf") if keyword in self.schema]
        is_all = len(groups) == 1 and self.schema.keys().isdisjoint(("type", "properties", "enum", "const", "items"))
        return groups[0] if is_all and ("allOf" not in self.schema or len(groups[0]) == 1) else []

    def inside(self) -> "Iterator[tuple[str, SchemaView]]":
        """Return the schemas directly inside, each with the keyword it stands under."""
        for keyword, value in self.schema.items():
            if keyword in _ONE:
                yield keyword, self.at(keyword)
            elif keyword in _LISTS or keyword in _NAMED:
                yield from ((keyword, self.at(keyword, step)) for step in _steps(value))

    def rebuilt(self, change: "Callable[[SchemaView], Any]") -> dict[str, Any]:
        """Return its keywords, with *change* of each schema directly inside in the place of that."""

        def changed(inner: Any, *steps: str | int) -> Any:
            return change(self.at(*steps)) if isinstance(inner, Mapping) else inner  # true, false, a list of names

        schema = dict(self.schema)
        for keyword, value in self.schema.items():
            if keyword in _ONE:
                schema[keyword] = changed(value, keyword)
            elif keyword in _LISTS:
                schema[keyword] = [changed(inner, keyword, index) for index, inner in enumerate(value)]
            elif keyword in _NAMED:
                schema[keyword] = {name: changed(inner, keyword, name) for name, inner in value.items()}
        return schema

    def reach(self) -> "set[SchemaView]":
        """Return the places inside this one, and those that references lead to; itself only if it contains itself."""
        places: set[SchemaView] = set()
        waiting = [self]
        while waiting:
            view = waiting.pop()
            onward = [inner for keyword, inner in view.inside() if keyword not in ("$defs", "definitions")]
            onward += [target] if (target := view.target) is not None else []
            waiting += [place for place in onward if place not in places]
            places.update(onward)
        return places

    @cached_property
    def is_recursive(self) -> bool:
        """Whether it contains itself."""
        return self in self.reach()

    @property
    def takes_anything(self) -> bool:
        """Whether some value in it is left open: there a reader takes whatever comes, `1e999` as infinity too."""
        views = {self, *self.reach()}
        return not all(view.is_false or view.is_typed for view in views)

    # -- what is there ---------------------------------------------------------------------------------------------

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The JSON types that it names itself, by `type`, `enum` or `const`; none where it names none."""
        types = self.schema.get("type")
        if types is not None:
            return frozenset([types] if isinstance(types, str) else types)
        return frozenset(map(kind, self.constants or ()))

    @property
    def admitted_kinds(self) -> frozenset[str]:
        """The JSON types of what may be valid here, references and unions followed: all where none is named."""
        kinds = frozenset[str]().union(*(form.kinds or KINDS for form in self.alternatives))
        return kinds | {"integer"} if "number" in kinds else kinds

    def admits_kind_of(self, value: Any) -> bool:
        """Return whether a value of this JSON type may be valid here."""
        of, kinds = kind(value), self.kinds
        is_whole = of == "number" and "integer" in kinds and value.is_integer()
        return not kinds or of in kinds or (of == "integer" and "number" in kinds) or is_whole

    @cached_property
    def constants(self) -> Sequence[Any] | None:
        """The only values that are valid here, if it lists them."""
        values = [self.schema["const"]] if "const" in self.schema else self.schema.get("enum")
        return values if isinstance(values, list) else None

    @cached_property
    def choices(self) -> list[Any]:
        """The values that are listed as valid, by one of its alternatives or another."""
        return [choice for view in self.alternatives for choice in view.constants or ()]

    @cached_property
    def members(self) -> "Mapping[str, SchemaView]":
        """The members that an object lists, by name."""
        return {name: self.at("properties", name) for name in self.schema.get("properties", ())}

    @cached_property
    def required(self) -> Sequence[str]:
        """The names of the members that an object has to have."""
        return tuple(self.schema.get("required", ()))

    @cached_property
    def names(self) -> "SchemaNames":
        """The names of members here and in all that applies to the same value: references, `allOf`, unions."""
        self.__dict__["names"] = SchemaNames()  # of what leads back to itself
        parts = [view.names for view in self.parts]
        required = frozenset(self.required).union(*(part.required for part in parts))
        for keyword in UNIONS:
            if branches := [branch.names for branch in self.branches(keyword)]:
                required |= frozenset.intersection(*(branch.required for branch in branches))
                parts += branches
        members = dict.fromkeys(chain(self.members, *(part.members for part in parts)))
        is_open = self._admits_others or any(part.is_open for part in parts)
        return SchemaNames(tuple(members), required, is_open, is_composed=bool(parts))

    @property
    def _admits_others(self) -> bool:
        """Whether its own keywords speak of members that it does not list, and admit them."""
        closing = [self.schema.get(word, False) for word in ("additionalProperties", "unevaluatedProperties")]
        return bool(self.schema.get("patternProperties")) or any(value is not False for value in closing)

    @property
    def additional(self) -> "SchemaView | None":
        """Members that are not listed; None where that is not said: then they are allowed."""
        return self.at("additionalProperties") if "additionalProperties" in self.schema else None

    def member(self, name: str) -> "list[SchemaView]":
        """Return the places that speak of the member *name*: none where that is not said."""
        patterns = self.schema.get("patternProperties", ())
        views = [self.members[name]] if name in self.members else []
        views += [self.at("patternProperties", pattern) for pattern in patterns if self._document.fits(name, pattern)]
        return views or [view for view in [self.additional] if view is not None]

    def item(self, index: int) -> "SchemaView":
        """Return the place of the item at *index*."""
        is_first = index < len(self.schema.get("prefixItems", ()))
        return self.at("prefixItems", index) if is_first else self.at("items")

    # -- what is valid ---------------------------------------------------------------------------------------------

    def is_valid(self, value: Any, *, formats: bool | None = None) -> bool:
        """Return whether *value* is valid here. Where that cannot be decided for a part, the whole decides: True."""
        return self._document.is_valid(value, ("", self.pointer), lambda: {"$ref": self._reference}, formats)

    def satisfies(self, value: Any, keyword: str) -> bool:
        """Return whether *value* satisfies one keyword of this place, the others aside."""
        return self._document.is_valid(value, (keyword, self.pointer), lambda: {keyword: self.schema[keyword]})

    def wrong_items(self, items: Sequence[Any]) -> Iterator[int]:
        """Return the indexes of *items* that are not valid here, found by halves: of many items most are valid."""
        ranges = [(0, len(items))]
        while ranges:
            start, stop = ranges.pop()
            part = items[start:stop]
            if self._document.is_valid(part, ("items of", self.pointer), lambda: {"items": {"$ref": self._reference}}):
                continue
            if stop - start == 1:
                yield start
            else:
                middle = (start + stop) // 2
                ranges += [(middle, stop), (start, middle)]

    @property
    def _reference(self) -> str:
        return f"{self._document.base}#{quote(self.pointer, safe='/~')}"


def by_tag(views: Sequence[SchemaView]) -> tuple[str, dict[str, SchemaView]] | None:
    """Return the member whose texts tell the objects at *views* apart, and the view for each text; None without one."""
    for name in views[0].members if len(views) > 1 else ():
        tagged: dict[str, SchemaView] = {}
        for view in views:
            tags = view.members[name].resolved.constants if name in view.members else None
            if not tags or any(not isinstance(tag, str) or tag in tagged for tag in tags):
                break
            tagged |= dict.fromkeys(tags, view)
        else:
            return name, tagged
    return None


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return *schema* with what its `$ref`s lead to in the place of each.

    What stands beside a `$ref` goes before what it leads to. Definitions that contain themselves cannot be put in
    place: they stay in `$defs`, and the `$ref`s to them stay too. A `$ref` that leads anywhere but into `$defs` stays.
    """
    definitions = SchemaView({"$defs": schema.get("$defs", {})})
    recursive_names: set[str] = set()

    def put(view: SchemaView) -> Any:
        inner = view.rebuilt(put)
        if isinstance(discriminator := inner.get("discriminator"), Mapping):
            # OpenAPI's: its mapping leads to definitions, and these are gone.
            inner["discriminator"] = {name: value for name, value in discriminator.items() if name != "mapping"}
        reference = view.schema.get("$ref")
        path = steps(reference) if isinstance(reference, str) and reference.startswith("#/$defs/") else []
        if len(path) != 2 or path[1] not in definitions.schema["$defs"]:
            return inner
        target = definitions.at(*path)
        if target.is_recursive:
            recursive_names.add(path[1])
            return inner
        del inner["$ref"]
        return {**put(target), **inner}

    names = ("$id", "$schema")
    whole: dict[str, Any] = put(SchemaView({key: value for key, value in schema.items() if key != "$defs"}))
    done: dict[str, Any] = {}
    while left := recursive_names - done.keys():
        done |= {name: put(definitions.at("$defs", name)) for name in sorted(left)}
    whole = {**{name: schema[name] for name in names if name in schema}, **whole}
    return {**whole, "$defs": done} if done else whole


def with_branch(schema: Mapping[str, Any], branch: Mapping[str, Any], *, around: Collection[str]) -> dict[str, Any]:
    """Return *schema* with *branch* admitted beside it. The keywords *around* stay outside of the union."""
    outside = {key: value for key, value in schema.items() if key in around}
    inner = {key: value for key, value in schema.items() if key not in around}
    branches = inner["anyOf"] if inner.keys() == {"anyOf"} else [inner]
    return {**outside, "anyOf": branches if branch in branches else [*branches, branch]}


@dataclass(frozen=True, slots=True)
class SchemaNames:
    """The names of an object's *members*, and of those *required* in any case; *is_open* where it admits others.

    *is_composed* where parts have names too, which `additionalProperties` does not see.
    """

    members: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    is_open: bool = False
    is_composed: bool = False


class _Document:
    """What the views of one schema share: its text, and the validators of its places, each made when it is needed."""

    def __init__(self, schema: Mapping[str, Any], formats: bool) -> None:
        identity = schema.get("$id")
        self.root = root = {key: value for key, value in schema.items() if key not in ("$id", "$schema")}
        self.base = identity.partition("#")[0] if isinstance(identity, str) and ":" in identity else _BASE
        self.is_walkable = not any(map(_has_identity, root.values()))
        self.views: dict[str, SchemaView] = {}
        self._formats = formats
        self._registry: jsonschema_rs.Registry | None = None
        self._validators: dict[tuple[str, str, bool], Validator | None] = {}

    def view(self, pointer: str) -> SchemaView:
        view = self.views.get(pointer)
        if view is None:
            view = self.views[pointer] = SchemaView(self._part(pointer), _document=self, _pointer=pointer)
        return view

    def _part(self, pointer: str) -> Any:
        part: Any = self.root
        for step in steps(pointer):
            if isinstance(part, list):
                part = part[int(step)] if step.isdecimal() and int(step) < len(part) else None
            else:
                part = part.get(step) if isinstance(part, Mapping) else None
        return part

    def place(self, reference: Any) -> SchemaView | None:
        """Return where a `$ref` leads, if that is a place of this schema."""
        if not isinstance(reference, str):
            return None
        base, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if base not in ("", self.base) or (fragment and fragment[0] != "/"):
            return None
        return self.view(fragment) if isinstance(self._part(fragment), Mapping | bool) else None

    def fits(self, name: str, pattern: str) -> bool:
        return self.is_valid(name, ("pattern", pattern), lambda: {"pattern": pattern})

    def is_valid(
        self, value: Any, key: tuple[str, str], schema: Callable[[], dict[str, Any]], formats: bool | None = None
    ) -> bool:
        """Return whether *value* is valid under *schema*, of which the validator is kept by *key*."""
        full_key = *key, self._formats if formats is None else formats
        if full_key not in self._validators:
            self._validators[full_key] = self._validator(schema(), full_key[2])
        validator = self._validators[full_key]
        return validator is None or validator.is_valid(value)

    def _validator(self, schema: dict[str, Any], formats: bool) -> "Validator | None":
        try:
            if self._registry is None:
                self._registry = jsonschema_rs.Registry([(self.base, _with_bounds(self.root))])
            return validator(schema, formats=formats, registry=self._registry)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
            return None


_LOOKS_AROUND = re.compile(r"\(\?<?[=!]|\\[1-9k]")

MAX_LOOKED_AROUND_CHARS = 5_000
"""How long a text may be that a pattern looks around in from each place: that takes 0.05 s, ten times as many 5 s."""

_BOUND = rf"^(?!(?:[\s\S](?=[\s\S]|$)){{{MAX_LOOKED_AROUND_CHARS + 1}}})[\s\S]*?"


def _with_bounds(part: Any) -> Any:
    """Return *part* of a schema, in which no pattern holds all threads for longer than a moment."""
    if isinstance(part, list):
        return [_with_bounds(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    copy = {key: inner if key in ("const", "enum") else _with_bounds(inner) for key, inner in part.items()}
    if isinstance(pattern := part.get("pattern"), str):
        copy["pattern"] = _bounded(pattern)
    if isinstance(patterns := copy.get("patternProperties"), dict):
        copy["patternProperties"] = {_bounded(name): inner for name, inner in patterns.items()}
    return copy


def _bounded(pattern: str) -> str:
    """Return *pattern*, which fits no long text if it looks around from each of its places."""
    is_anchored = pattern.startswith("^") and "|" not in pattern
    return pattern if is_anchored or not _LOOKS_AROUND.search(pattern) else f"{_BOUND}(?:{pattern})"


def _steps(value: Any) -> Iterable[str | int]:
    return range(len(value)) if isinstance(value, list) else tuple(value)


def _has_identity(part: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(part.get("$id"), str) or any(map(_has_identity, part.values()))
    return isinstance(part, list) and any(map(_has_identity, part))


def validator(schema: Mapping[str, Any], *, formats: bool, registry: Any = None) -> "Validator":
    """Return a validator for *schema* (JSON Schema 2020-12). A remote `$ref` is never fetched.

    Its messages name no values. Raises jsonschema_rs.ValidationError, ReferencingError or ValueError for a schema that
    is not valid.
    """
    document = _with_bounds(dict(schema))
    return jsonschema_rs.Draft202012Validator(
        document, registry=registry, validate_formats=formats, offline=True, mask="the value"
    )


def is_valid(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether *value* is valid, formats aside. A schema that was used lately costs only its text."""
    return _validator_of(to_json(dict(schema))).is_valid(value)


@lru_cache(maxsize=512)
def _validator_of(schema: bytes) -> "Validator":
    return validator(from_json(schema), formats=False)


def is_deep(value: Any) -> bool:
    """Return whether objects and lists are nested over `MAX_NESTING` levels deep in *value*."""
    level = [value]
    for _ in range(MAX_NESTING):
        parts = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [inner for outer in parts for inner in outer if isinstance(inner, dict | list)]
    return bool(level)


def is_annotation(keyword: str) -> bool:
    """Return whether *keyword* demands nothing."""
    return keyword not in _DEMANDING


def pointer(path: Iterable[str | int]) -> str:
    """Return *path* as a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def steps(pointer: str) -> list[str]:
    """Return the steps of a JSON pointer."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def kind(value: Any) -> str:
    """Return the JSON type of a decoded value."""
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
