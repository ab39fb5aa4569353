"""Forms from JSON Schemas: the fields that a person sees, and the arguments that they have filled in.

    form = to_form(view, {"rows": [1, 2]})       # {"n/rows": "2", "v/rows/0": "1", "v/rows/1": "2"}
    value_of(root_field(view, form))             # {"rows": [1, 2]}

A form is what a browser sends: texts by name. A name is a sign and the place in the arguments, a JSON pointer with each
step percent-encoded:

    v  the text of a value            f  the bytes of a file       j  JSON, where there are no fields for a value
    k  which alternative was chosen   n  how many items a list has
    e  what is sent where nothing is filled in: "" for the first of what there is

Where no fields can show a value exactly, its JSON is shown. This file does no I/O.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Literal
from urllib.parse import quote, unquote

from ...machinery import escaped
from ...schema import SchemaView
from ...schema.describe import describe_at
from ...schema.handles import REFERENCE
from ...schema.json_text import JSONError, canonical_json, parse_exact, parse_json, write_json
from ...schema.view import pointer

Form = Mapping[str, str | bytes]
Steps = tuple[str | int, ...]
Kind = Literal["text", "line", "number", "choice", "const", "date", "time", "datetime-local", "file", "json"]
Parts = Literal["object", "list", "union"]

MAX_FIELDS = 300
"""How many fields a form shows before what is deeper is shown as JSON."""
MAX_DEPTH = 6
MAX_ITEMS = 200
_SPARE_ITEMS = 2
_MAX_LINE_CHARS = 200
_KINDS: Mapping[str, Kind] = {
    "date": "date",
    "time": "time",
    "date-time": "datetime-local",
    **dict.fromkeys(("base64", "base64url"), "file"),
    **dict.fromkeys(("email", "uri", "uuid", "duration"), "line"),
}
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,300})(\.\d{1,300})?([eE][+-]?\d{1,3})?")
_STATES = {"out": "leave out", "value": "send it empty", "null": "send null"}
_NULL = frozenset({"null"})

MISSING: Any = object()
"""What is left out."""


@dataclass
class Field:
    """One place of a form. Its parts are in `fields`: members, items, or what was chosen of several alternatives."""

    view: SchemaView
    steps: Steps = ()
    is_required: bool = True
    is_spare: bool = False
    kind: Kind | Parts = "json"
    text: str = ""
    alternatives: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What can be chosen: the value that is sent for each, and its label."""
    alternative: str = ""
    choices: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    states: list[str] = field(default_factory=list[str])
    state: str = "out"
    fields: list["Field"] = field(default_factory=list["Field"])
    size: int = 0
    """How many items were filled in, or added."""
    is_touched: bool = False
    problems: list[str] = field(default_factory=list[str])
    title: str = "Arguments"
    """What the whole is called."""

    @property
    def place(self) -> str:
        return _place(self.steps)

    @property
    def label(self) -> str:
        last = self.steps[-1] if self.steps else self.title
        return f"Item {last + 1}" if isinstance(last, int) else last

    @property
    def words(self) -> str:
        """Its type, in words."""
        return describe_at(_Without(self.view).view)

    @property
    def description(self) -> str:
        schemas = (view.schema for view in (self.view, *self.view.chain[1:]))
        return next((str(schema["description"]) for schema in schemas if schema.get("description")), "")

    @property
    def default(self) -> str | None:
        return write_json(self.view.schema["default"]) if "default" in self.view.schema else None

    @property
    def empty_states(self) -> list[tuple[str, str]]:
        """The values to choose from where nothing is filled in, the first as "", if a person has to be asked."""
        if self.is_required and "null" not in self.states and self.state == self.states[0]:
            return []
        return [("" if number == 0 else state, _STATES[state]) for number, state in enumerate(self.states)]

    def all(self) -> "Iterable[Field]":
        yield self
        for inner in self.fields:
            yield from inner.all()


@dataclass
class Draft:
    """A value that a person fills in: its fields, and the same as JSON text, of which each changes the other."""

    fields: Field
    raw: str
    raw_problem: str = ""

    @property
    def is_invalid(self) -> bool:
        return bool(self.raw_problem) or invalid(self.fields)

    @property
    def body(self) -> bytes:
        return self.raw.encode(errors="replace")


class _Without:
    """A view without the form in which a handle is sent in place of its value."""

    def __init__(self, view: SchemaView) -> None:
        forms = [form for form in view.alternatives if form.schema != REFERENCE]
        self.forms = [form for form in forms if form.kinds != _NULL]
        self.takes_null = any("null" in form.kinds for form in forms)
        self.view = self.forms[0] if len(self.forms) == 1 < len(view.alternatives) and not self.takes_null else view

    @property
    def constants(self) -> list[Any] | None:
        """The only values, if it lists them."""
        constants = [form.constants for form in self.forms]
        values = [value for values in constants for value in values or ()]
        if None in constants or not values:
            return None
        return [*values, None] if self.takes_null and None not in values else values


def visible_json(value: Any) -> str:
    """Return *value* as JSON text in which everything is seen."""
    return escaped(write_json(value, indent=2), invisible=True, as_json=True)


def root_field(view: SchemaView, form: Form) -> Field:
    """Return the fields of the arguments that *view* describes, as they are filled in in *form*."""
    return _field(view, form, (), depth=depth_of(view))


def depth_of(view: SchemaView) -> int:
    """Return down to which depth a form shows fields: as deep as it has no more than `MAX_FIELDS`."""
    for depth in range(2, MAX_DEPTH + 1):
        if sum(1 for _ in _field(view, {}, (), depth=depth).all()) > MAX_FIELDS:
            return depth - 1
    return MAX_DEPTH


def value_of(of: Field) -> Any:
    """Return the value that was filled in; MISSING where it is to be left out, or is not valid JSON."""
    match of.kind:
        case "object":
            return _parts(of) if of.is_touched or of.state == "value" else _of_state(of, {})
        case "list":
            return [*_parts(of).values()] or _of_state(of, [])
        case "const":
            return next(iter(of.view.constants or [None]))
        case "union" if of.fields:
            return value_of(of.fields[0])
        case "union":
            return None if of.alternative == "null" else MISSING
        case _:
            return _read(of)


def to_form(view: SchemaView, value: Any) -> dict[str, str]:
    """Return a form that has *value* filled in."""
    return _to_form(view, value, (), depth=depth_of(view))


def changed(form: Form, action: str) -> Form:
    """Return *form* after a list has one more item (*action* is `add/rows`), or one less (`remove/rows/2`)."""
    verb, _, _ = action.partition("/")
    place, last = action.removeprefix(verb), ""
    if verb == "remove":
        place, _, last = place.rpartition("/")
    indexes = {*range(_size(form, place)), *_filled(form, place)}
    keep = [index for index in sorted(indexes) if str(index) != last]
    renumbered: dict[str, str | bytes] = {}
    for name, text in form.items():
        inner = name[1:].removeprefix(f"{place}/")
        step, slash, rest = inner.partition("/")
        if inner == name[1:] or not step.isdecimal():
            renumbered[name] = text
        elif int(step) in keep:
            renumbered[f"{name[0]}{place}/{keep.index(int(step))}{slash}{rest}"] = text
    return {**renumbered, f"n{place}": str(len(keep) + (verb == "add"))}


def draft_of(view: SchemaView, form: Form) -> Draft:
    """Return what was filled in: as the JSON text `raw` of *form* where it has that, else in its fields."""
    raw = form.get("raw")
    value: Any = {}
    if isinstance(raw, str):
        raw, problem = raw or "{}", ""
        try:
            parse_json(raw)
            value = parse_exact(raw)
        except JSONError as error:
            problem = f"This is not valid JSON: {error}."
        if not isinstance(value, dict):
            value, problem = {}, 'Arguments are a JSON object, as in {"name": 1}.'
        return Draft(root_field(view, to_form(view, value)), raw, problem)
    action = _text(form, "act")
    if action.partition("/")[0] in ("add", "remove"):
        form = changed(form, action)
    fields = root_field(view, form)
    value = value_of(fields)
    return Draft(fields, "{}" if value is MISSING else visible_json(value))


def outline(view: SchemaView) -> list[Field]:
    """Return the members that *view* describes, each followed by those inside it: at most `MAX_FIELDS`."""
    return list(islice(_outline(view, (), frozenset()), MAX_FIELDS))


def _outline(view: SchemaView, steps: tuple[str, ...], above: frozenset[SchemaView]) -> Iterator[Field]:
    for name, inner in view.members.items():
        yield Field(inner, (*steps, name), name in view.required)
        forms = _Without(inner).forms
        forms += [item for form in forms if "items" in form.schema for item in form.at("items").alternatives]
        for form in forms:
            if form.members and form not in above:
                yield from _outline(form, (*steps, name), above | {view})


def mark(root: Field, problems: Iterable[Mapping[str, Any]]) -> list[str]:
    """Add each of *problems* to the field nearest to its place. Return those of the whole."""
    fields = {pointer(of.steps): of for of in root.all()}
    for problem in problems:
        path = str(problem.get("path", ""))
        while path and path not in fields:
            path = path.rpartition("/")[0]
        fields[path].problems.append(str(problem.get("sentence", "")))
    return root.problems


def invalid(root: Field) -> bool:
    """Return whether something that was written as JSON is none. The fields say so."""
    value_of(root)
    return any(of.problems for of in root.all())


# From a form


def _field(
    view: SchemaView,
    form: Form,
    steps: Steps,
    *,
    depth: int,
    is_required: bool = True,
    is_spare: bool = False,
    above: frozenset[SchemaView] = frozenset(),
) -> Field:
    place, plain = _place(steps), _Without(view)
    of = Field(view, steps, is_required, is_spare)
    of.is_touched = next(_filled_steps(form, place), None) is not None
    if f"j{place}" in form:
        of.text = _text(form, f"j{place}")
    elif (constants := plain.constants) is not None:
        _list_constants(of, constants, form)
    elif len(plain.forms) > 1:
        _choose(of, plain, form, depth, above)
        return of
    elif plain.forms:
        _fill(of, plain.forms[0], form, depth, above)
    of.states = _states(of, takes_null=plain.takes_null)
    of.state = _text(form, f"e{place}")
    of.state = of.state if of.state in of.states else of.states[0]
    return of


_FILLED = {"v", "f", "j", "e"}


def _states(of: Field, *, takes_null: bool) -> list[str]:
    """Return what may be sent where nothing is filled in, the likeliest first."""
    if of.is_spare or of.kind in ("choice", "const", "json"):
        return ["out"]
    if not of.steps:
        return ["value"]
    is_text, is_whole = of.kind in ("text", "line"), of.kind in ("object", "list")
    states = ["out", *(["value"] if is_text or is_whole else []), *(["null"] if takes_null else [])]
    is_first_left_out = not of.is_required or is_text
    return states if is_first_left_out else [*states[1:], "out"]


def _list_constants(of: Field, constants: list[Any], form: Form) -> None:
    """Give *of* the only values that there are, and which was chosen."""
    of.choices = [(text := json.dumps(value), value if isinstance(value, str) else text) for value in constants]
    if len(constants) == 1 and of.is_required:
        of.kind = "const"
    else:
        of.kind, of.text = "choice", _text(form, f"v{of.place}")


def _choose(of: Field, plain: _Without, form: Form, depth: int, above: frozenset[SchemaView]) -> None:
    """Give *of* the field of the alternative that was chosen."""
    of.kind = "union"
    of.alternatives = [("out" if of.is_required else "", "leave out")]
    for number, inner in enumerate(plain.forms):
        of.alternatives.append((str(number), str(inner.schema.get("title") or describe_at(inner))))
    of.alternatives += [("null", "nothing (null)")] if plain.takes_null else []
    choice = _text(form, f"k{of.place}")
    of.alternative = choice if choice in dict(of.alternatives) else of.alternatives[of.is_required][0]
    if of.alternative.isdecimal():
        inner = plain.forms[int(of.alternative)]
        of.fields = [_field(inner, form, of.steps, depth=depth, above=above)]


def _fill(of: Field, form_view: SchemaView, form: Form, depth: int, above: frozenset[SchemaView]) -> None:
    """Give *of* its kind, and what was filled in."""
    of.kind = _kind(form_view)
    if of.kind in ("object", "list") and (depth <= 0 or form_view in above):
        of.kind = "json"
    within = above | {form_view}
    match of.kind:
        case "object":
            part, required = partial(_field, depth=depth - 1, above=within), form_view.required
            of.fields = [
                part(inner, form, (*of.steps, name), is_required=name in required)
                for name, inner in form_view.members.items()
            ]
        case "list":
            _fill_items(of, form_view.at("items"), form, depth - 1, within)
        case _:
            _fill_text(of, form_view.schema, form)


def _fill_items(of: Field, item: SchemaView, form: Form, depth: int, above: frozenset[SchemaView]) -> None:
    """Give *of* the fields of its items, and of some more to fill in where they are plain."""
    of.size = _size(form, of.place)
    is_plain = len(item.alternatives) == 1 and _kind(item.resolved) not in ("object", "list", "json")
    end = max([of.size, *(index + 1 for index in _filled(form, of.place))]) + (_SPARE_ITEMS if is_plain else 0)
    of.fields = [
        _field(item, form, (*of.steps, index), depth=depth, is_spare=index >= of.size, above=above)
        for index in range(min(end, MAX_ITEMS + _SPARE_ITEMS))
    ]


def _fill_text(of: Field, schema: Mapping[str, Any], form: Form) -> None:
    """Give *of* the text or the file that was filled in, and of a choice what there is."""
    if of.kind == "choice":
        of.choices = [(text, text) for text in ("true", "false")]
        of.choices += [("null", "nothing (null)")] if _Without(of.view).takes_null else []
    upload = form.get(f"f{of.place}")
    if isinstance(upload, bytes) and upload:
        is_for_urls = "base64url" in (schema.get("format"), schema.get("contentEncoding"))
        of.text = (base64.urlsafe_b64encode if is_for_urls else base64.b64encode)(upload).decode()
    else:
        of.text = _text(form, f"v{of.place}")


def _kind(form: SchemaView) -> Kind | Parts:
    """Return how a value is filled in of which the kind is clear; as JSON where it is not."""
    schema = form.schema
    match sorted(form.kinds - {"null"}):
        case ["integer"] | ["number"] | ["integer", "number"]:
            return "number"
        case ["boolean"]:
            return "choice"
        case ["string"]:
            return _kind_of_text(schema)
        case ["array"] if "items" in schema and "prefixItems" not in schema:
            return "list"
        case ["object"] if {*form.names.members} == {*form.members}:
            return "object" if form.members or schema.get("additionalProperties") is False else "json"
        case _:
            return "json"


def _kind_of_text(schema: Mapping[str, Any]) -> Kind:
    if schema.get("contentEncoding") in ("base64", "base64url"):
        return "file"
    is_short = "pattern" in schema or schema.get("maxLength", _MAX_LINE_CHARS + 1) <= _MAX_LINE_CHARS
    return _KINDS.get(str(schema.get("format")), "line" if is_short else "text")


# To values


def _of_state(of: Field, empty: Any) -> Any:
    return {"value": empty, "null": None}.get(of.state, MISSING)


def _parts(of: Field) -> dict[str, Any]:
    """Return the values of the members or items of *of*, without those that are left out."""
    values = {str(inner.steps[-1]): value_of(inner) for inner in of.fields}
    return {step: value for step, value in values.items() if value is not MISSING}


def _read(of: Field) -> Any:
    """Return the value of a text. What is not as it should be stays text, for the check to refuse."""
    if not (text := of.text):
        return _of_state(of, "")
    match of.kind:
        case "json" | "choice":
            try:
                parse_json(text)
            except JSONError as error:
                of.problems = [f"This is not valid JSON: {error}."]
                return MISSING
            return parse_exact(text)
        case "number":
            text = text.strip()
            return parse_exact(text) if _NUMBER.fullmatch(text) else text
        case "datetime-local" | "time" if re.fullmatch(r"(.*T)?\d\d:\d\d(:[\d.]+)?", text):
            text += ":00" if text.count(":") == 1 else ""  # as browsers write a whole minute
            return f"{text}Z" if of.kind == "datetime-local" else text
        case _:
            return text


# From values


def _to_form(
    view: SchemaView,
    value: Any,
    steps: Steps,
    *,
    depth: int,
    is_required: bool = True,
    above: frozenset[SchemaView] = frozenset(),
) -> dict[str, str]:
    """Return the part of a form with *value* at *steps*: fields if they give exactly this value again, else JSON."""
    plain = _Without(view)
    inner = plain.forms[0] if plain.forms else view
    place = _place(steps)
    if plain.constants is not None or _kind(inner) == "choice":
        form = {f"v{place}": json.dumps(value)}
    elif len(plain.forms) > 1:
        form = _alternative_to_form(plain.forms, value, steps, depth, above)
    else:
        form = _parts_to_form(inner, value, steps, depth - 1, above | {inner})
    if _shows(form, _field(view, form, steps, depth=depth, is_required=is_required, above=above), value):
        return form
    return {f"j{place}": visible_json(value)}


def _alternative_to_form(
    forms: Sequence[SchemaView], value: Any, steps: Steps, depth: int, above: frozenset[SchemaView]
) -> dict[str, str]:
    """Return which of *forms* has *value*, the first that takes it, with the part of the form for that."""
    name = f"k{_place(steps)}"
    if value is None:
        return {name: "null"}
    for number, form_view in enumerate(forms):
        if form_view.is_valid(value):
            return {name: str(number), **_to_form(form_view, value, steps, depth=depth, above=above)}
    return {}


def _parts_to_form(
    inner: SchemaView, value: Any, steps: Steps, depth: int, above: frozenset[SchemaView]
) -> dict[str, str]:
    """Return the form for the members of *value*, its items, or its text."""
    place, part = _place(steps), partial(_to_form, depth=depth, above=above)
    match value:
        case None:
            return {f"e{place}": "null"}
        case dict():
            form = _members_to_form(inner, value, steps, part)
            is_empty = next(_filled_steps(form, place), None) is None
        case list():
            form = {f"n{place}": str(len(value))}
            for index, item in enumerate(value[:MAX_ITEMS]):
                form |= part(inner.at("items"), item, (*steps, index))
            is_empty = not value
        case _:
            text = value if isinstance(value, str) else write_json(value)
            form = {f"v{place}": text[: -1 if _kind(inner) == "datetime-local" else None]}
            is_empty = not text
    return {**form, f"e{place}": "value"} if is_empty else form


def _members_to_form(
    inner: SchemaView, value: Mapping[str, Any], steps: Steps, part: Callable[..., Mapping[str, str]]
) -> dict[str, str]:
    absent = [_place((*steps, name)) for name in inner.required if name not in value]
    form = {f"{sign}{place}": "out" for place in absent for sign in "ek"}
    for name, member in inner.members.items():
        if name in value:
            form |= part(member, value[name], (*steps, name), is_required=name in inner.required)
    return form


def _shows(form: Form, root: Field, value: Any) -> bool:
    """Return whether a browser that shows *form* sends *value* again."""
    if len(form) > MAX_FIELDS or not all(map(_survives, form.values())) or not all(map(_is_shown, root.all())):
        return False
    again = value_of(root)
    return again is not MISSING and canonical_json(again) == canonical_json(value)


def _is_shown(of: Field) -> bool:
    """Return whether the input of *of* has its text as it is."""
    if not of.text:
        return True
    match of.kind:
        case "line":
            return "\n" not in of.text
        case "choice":
            return of.text in dict(of.choices)
        case kind:
            return kind not in _NATIVE or _NATIVE[kind](of.text)


def _survives(text: str | bytes) -> bool:
    return isinstance(text, str) and escaped(text, invisible=True) == text


def _is_moment(text: str) -> bool:
    try:
        return datetime.strptime(f"{text}Z", "%Y-%m-%dT%H:%M:%S%z").year >= 1000
    except ValueError:
        return False


_NATIVE = {
    "date": lambda text: _is_moment(f"{text}T00:00:00"),
    "time": lambda text: _is_moment(f"2000-01-01T{text}"),
    "datetime-local": _is_moment,
}
"""What the native inputs of browsers show."""


# Names


def _place(steps: Iterable[str | int]) -> str:
    return "".join(f"/{quote(str(step), safe='')}" for step in steps)


def _text(form: Form, name: str) -> str:
    text = form.get(name, "")
    return text.replace("\r\n", "\n") if isinstance(text, str) else ""


def _size(form: Form, place: str) -> int:
    text = _text(form, f"n{place}")
    return min(int(text), MAX_ITEMS) if text.isdecimal() and len(text) < 6 else 0


def _filled(form: Form, place: str) -> set[int]:
    """Return the indexes of the items of a list in which something is filled in."""
    steps = map(unquote, _filled_steps(form, place))
    return {int(step) for step in steps if step.isdecimal() and len(step) < 6 and int(step) < MAX_ITEMS}


def _filled_steps(form: Form, place: str) -> Iterator[str]:
    """Yield in which steps below *place* something is filled in."""
    for name, text in form.items():
        if text and name[:1] in _FILLED and name.startswith(f"{place}/", 1):
            yield name[len(place) + 2 :].partition("/")[0]
