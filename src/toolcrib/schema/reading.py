"""The document of a call: the JSON that was sent, with its defaults, each member under its schema's name.

It is read beside the value that pydantic made of it. The value leads: its classes say which branch of a union was
taken, which names belong to one field, and what the defaults are. What the value does not explain stays as it was sent,
so nothing that was sent is ever left out. `Document.text` is shown and recorded, `Document.views` are what rules judge,
and `Document.bytes` is what an approved call runs on: the tool gets what is validated from exactly these.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

from pydantic import RootModel, SecretBytes, SecretStr
from pydantic.types import Secret

from ..core import ToolError
from .describe import display_path
from .errors import Path, Problem, refusal
from .json_text import canonical_json, exact, parse_exact, write_json
from .plan import ABSENT, Field, Fields, Plan
from .repair import Repaired
from .serialize import name_in_json, written
from .view import SchemaView, pointer

MASK = "**********"
_SECRETS = (SecretStr, SecretBytes, Secret)
_ALL = ("judged", "all")
_ENCODED = frozenset({"base64", "base64url"})
_LONG_NUMBER = re.compile(r"\d[\d.]{15}|\d[eE]")
"""What every number has that a float cannot hold."""

Members = Mapping[str, Any]
Views = Sequence[SchemaView]
"""The places of the schema that a part may belong to: none where that is not known, or they make no difference."""


@dataclass(eq=False, repr=False)
class Document:
    """The JSON document of one accepted call.

    *original* is its JSON, numbers exact; *value* is what *plan* made of it. *defaults* are a function's, by name.
    *view* is of the input schema: it knows secrets and encoded texts.
    """

    original: Any
    value: Any = ABSENT
    plan: Plan | None = None
    _: KW_ONLY
    defaults: Mapping[str, Any] | None = None
    view: SchemaView | None = None

    @cached_property
    def values(self) -> dict[str, Any]:
        """The document; a number with more digits than a float holds is a Decimal."""
        document: dict[str, Any] = self._read("all")
        return document

    @cached_property
    def views(self) -> Sequence[Mapping[str, Any]]:
        """The document with what fields get from inside other members, and the same with the scalars and keys that the
        tool gets of it, where they differ.
        """
        if self.plan is None:
            return [self.values]
        views = [self._read("judged", is_received=is_received) for is_received in (False, True)]
        return views[: 1 + (canonical_json(views[0]) != canonical_json(views[1]))]

    @cached_property
    def text(self) -> str:
        """The document for a person, as JSON text; values of secret types masked."""
        return write_json(self._read("all", mask=MASK))

    @cached_property
    def bytes(self) -> str:
        """The JSON text to be validated again: with the defaults that were made for this call, and no others."""
        return write_json(self._read("made", ignore_function=True))

    @cached_property
    def has_made(self) -> bool:
        """Whether defaults were made for this call."""
        return self.bytes != write_json(self._read("none", ignore_function=True))

    @cached_property
    def identity(self) -> str:
        """A text that two calls share only if they have the same `bytes`, made defaults aside."""
        reader = _Reader(self.plan, "fixed", None)
        document = self._read_by(reader)
        fixed = self._with_defaults(document)
        if not reader.has_filled and fixed is document:  # as most calls, which leave out nothing
            text = canonical_json(document)
            return f"[{text},{text}]"
        return canonical_json([self._read("none", ignore_function=True), fixed])

    @cached_property
    def identity_as_sent(self) -> str:
        """A text that two calls share only if they were sent as the same JSON."""
        return canonical_json([self.original, self._read("fixed")])

    @cached_property
    def identity_of_values(self) -> str:
        """A text that two calls share only if they were sent as the same JSON and had the same made defaults."""
        return canonical_json([self.original, self.values])

    def _read(
        self, defaults: "Defaults", *, mask: str | None = None, is_received: bool = False, ignore_function: bool = False
    ) -> Any:
        document = self._read_by(_Reader(self.plan, defaults, mask, is_received=is_received))
        return document if ignore_function else self._with_defaults(document, mask)

    def _with_defaults(self, document: Any, mask: str | None = None) -> Any:
        """Return *document* with the defaults of the function, where it lacks any."""
        defaults = self.defaults or {}
        if not isinstance(document, dict) or defaults.keys() <= document.keys():
            return document
        missing = {name: value for name, value in defaults.items() if name not in document}
        return document | {name: written(value, mask=mask, strict=False) for name, value in missing.items()}

    def _read_by(self, reader: "_Reader") -> Any:
        try:
            return reader.arguments(self.original, self.value, self.view)
        except RecursionError:
            problem = "The arguments are nested too deeply to be decided on. Send flatter ones, or in several calls."
            raise ToolError(problem, "denied") from None


Defaults = Literal["judged", "all", "fixed", "made", "none"]
"""Which defaults are filled in: all, those that are the same in each call, those made for this one, or none.

Where rules judge, all, and what a field gets from inside another member.
"""


class _Reader:
    """One walk through a document beside its value.

    *is_received*: scalars and keys are what the tool gets, not what was sent. `has_filled`: a member that was not sent
    has its default.
    """

    def __init__(self, plan: Plan | None, defaults: Defaults, mask: str | None, *, is_received: bool = False) -> None:
        self._root: Fields = () if plan is None else plan.root
        self._classes: Mapping[type, Fields] = {} if plan is None else plan.classes
        self._tables: Sequence[Fields] = () if plan is None else plan.tables
        self._defaults = defaults
        self._mask = mask
        self._is_received = is_received
        self.has_filled = False

    def arguments(self, document: Any, value: Any, view: SchemaView | None) -> Any:
        """Return the whole *document*, of which *value* was made."""
        is_shaped = self._mask is not None or self._is_received  # else a part stays as it was sent, secret or encoded
        views = view.alternatives if is_shaped and view is not None else ()
        if self._root and isinstance(document, dict) and isinstance(value, Mapping):
            return self._object(document, value, self._root, views)
        return self._read(document, value, views)

    def _read(self, document: Any, value: Any, views: Views) -> Any:
        """Return *document* under the schema's names."""
        if self._mask is not None and document not in (None, "") and _is_secret(document, value, views):
            return self._mask
        if isinstance(value, _SECRETS):
            return document
        if isinstance(value, RootModel):
            return self._read(document, value.root, views)
        fields = self._classes.get(type(value))
        is_as_sent = not self._is_received or value is ABSENT
        if isinstance(document, dict):
            if fields is not None:
                extra = getattr(value, "__pydantic_extra__", None)
                return self._object(document, _members(value), fields, views, extra=extra)
            if isinstance(value, Mapping) or is_as_sent:
                return self._mapping(document, value if isinstance(value, Mapping) else {}, views)
        elif isinstance(document, list):
            if isinstance(value, list | tuple) and len(value) >= len(document):
                return self._list(document, value, views, has_fields=fields is not None)
            if is_as_sent:
                return self._items(document, value, views)
        elif is_as_sent or _is_encoded(views):
            return document
        return _as_json(value, document)

    def _list(self, document: Sequence[Any], value: Sequence[Any], views: Views, *, has_fields: bool) -> list[Any]:
        """Return the items of a list, and the defaults of a named tuple that was sent as a shorter one."""
        pairs = enumerate(zip(document, value, strict=False))
        items = [self._read(item, inner, _items_of(views, index)) for index, (item, inner) in pairs]
        more = value[len(document) :] if self._defaults in _ALL and has_fields else ()
        return items + [written(default, mask=self._mask, strict=False) for default in more]

    def _object(
        self, document: Members, value: Members, fields: Fields, views: Views, *, extra: Members | None = None
    ) -> dict[str, Any]:
        """Return the members of an object by its *fields*. A member of no field is an *extra* one, or inside an alias.

        An extra one of a model may have a field's own name, where that field is only read by its alias.
        """
        extra_values = value if extra is None else extra
        owners = {name: field for field in fields for name in field.names}
        read: dict[str, Any] = {}
        for name, member in document.items():
            field = owners.get(name)
            own_name = name if field is None or field.names[0] in document else field.names[0]
            inner = extra_values.get(name, ABSENT) if field is None else value.get(field.name, ABSENT)
            read[own_name] = self._read(member, inner, _members_of(views, name, own_name))
        self._fill(read, document, value, fields)
        return read

    def _fill(self, read: dict[str, Any], document: Members, value: Members, fields: Fields) -> None:
        """Add to *read* the values of those *fields* that were not sent, as far as they are to be seen."""
        for field in fields:
            name = field.names[0] if field.names else field.name
            default = value.get(field.name, field.default)
            if default is ABSENT or isinstance(default, Iterator) or not self._fills(field):
                continue
            if name not in read if field.inside.isdisjoint(document) else self._defaults == "judged":
                read[name] = written(default, mask=self._mask, strict=False)
                self.has_filled = True

    def _fills(self, field: Field) -> bool:
        if self._defaults == "made":
            return field.is_made and bool(field.names)
        return self._defaults in _ALL or (self._defaults == "fixed" and not field.is_made)

    def _mapping(self, document: Mapping[str, Any], value: Mapping[Any, Any], views: Views) -> Any:
        """Return the members of a mapping, or of a TypedDict: its class is not in the value."""
        try:
            values = {name_in_json(key): member for key, member in value.items()}
        except ValueError:  # keys that JSON has no names for
            values = {}
        if values.keys() != document.keys():
            tables = _fitting(self._tables, document, values)
            if len(tables) == 1:
                return self._object(document, values, tables.pop(), views)
            if self._is_received and value:
                return written(value, strict=False)
            # A key type has changed the names, perhaps, and keeps the order.
            values = dict(zip(document, values.values(), strict=True)) if len(values) == len(document) else {}
        return {
            name: self._read(member, values.get(name, ABSENT), _members_of(views, name))
            for name, member in document.items()
        }

    def _items(self, document: Sequence[Any], value: Any, views: Views) -> list[Any]:
        """Return the items of what is not a list in Python: a set, or what its validator made of them."""
        items = value if isinstance(value, Set) else ()
        if self._mask is not None and any(isinstance(item, _SECRETS) for item in items):
            return [self._mask] * len(document)
        return [self._read(item, ABSENT, _items_of(views, index)) for index, item in enumerate(document)]


class _Decimals(_Reader):
    """Writes those numbers as text that a Decimal would get rounded: pydantic reads numbers as floats.

    `decimals` are the numbers of the document that became Decimals, and `others` what became neither that nor a float.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "none", None)
        self.decimals: list[Decimal] = []
        self.others: list[Decimal] = []

    def _read(self, document: Any, value: Any, views: Views) -> Any:
        if type(document) is not Decimal:
            return super()._read(document, value, views)
        if isinstance(value, float):
            return document
        (self.decimals if isinstance(value, Decimal) else self.others).append(document)
        return str(document)

    def _items(self, document: Sequence[Any], value: Any, views: Views) -> list[Any]:
        inner = next(iter(value), ABSENT) if isinstance(value, Set) else ABSENT
        return [self._read(item, inner, views) for item in document]


def _fitting(tables: Sequence[Fields], document: Members, value: Members) -> set[Fields]:
    """Return the TypedDicts of *tables* that can have made *value* of *document*: all of it, and no more."""
    by_name = [(table, {name: field.name for field in table for name in field.names}) for table in tables]
    return {table for table, names in by_name if {names.get(name, name) for name in document} == set(value)}


def _members_of(views: Views, *names: str) -> Views:
    if not views:
        return ()
    places = dict.fromkeys([place for view in views for name in set(names) for place in view.member(name)])
    return tuple([part for place in places for part in place.alternatives])


def _items_of(views: Views, index: int) -> Views:
    arrays = (view for view in views if not {"items", "prefixItems"}.isdisjoint(view.schema))
    return tuple(part for view in arrays for part in view.item(index).alternatives)


def _is_secret(document: Any, value: Any, views: Views) -> bool:
    """Return whether a value is secret: by its type, or by its place where the type is not known any more."""
    if isinstance(value, _SECRETS):
        return True
    places = [view for view in views if view.admits_kind_of(document)]
    secret = [view.schema.get("format") == "password" for view in places]
    return bool(secret) and (any(secret) if value is ABSENT else all(secret))


def _is_encoded(views: Views) -> bool:
    """Return whether a text is decoded here: what the tool gets is then not what the schema describes."""
    return any(view.schema.get("format") in _ENCODED for view in views)


def _members(value: Any) -> Mapping[str, Any]:
    """Return the fields of a model, a dataclass or a named tuple, by name."""
    if isinstance(value, tuple):
        return dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if name[:2] != "__"]
    in_slots = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return in_slots | getattr(value, "__dict__", {})


def _as_json(value: Any, document: Any) -> Any:
    """Return a *value* as the tool gets it: stripped, normalized, whatever its validators do; else *document*."""
    if type(value) in (str, int, float, bool):
        return value
    try:
        if isinstance(value, Decimal) and value.is_finite():
            return exact(value)
        return document if isinstance(value, Iterator) else written(value, strict=False, other=lambda _: document)
    except (ValueError, ArithmeticError, RecursionError):  # a type that only its own validator knows
        return document


# Numbers beside pydantic's


def with_exact_decimals(tool: str, plan: Plan, validate: Callable[..., Any]) -> Callable[..., Any]:
    """Return *validate*, which gives a Decimal all the digits that were sent.

    It raises ToolError where only the value of a union decides whether a number is a Decimal.
    """
    if not plan.decimals:
        return validate

    def validated(text: str | bytes, **options: Any) -> Any:
        value = validate(text, **options)
        if not _LONG_NUMBER.search(text if isinstance(text, str) else text.decode()):
            return value
        document = parse_exact(text)
        numbers = _Decimals(plan)
        exact_document = numbers.arguments(document, value, None)
        if numbers.decimals and not numbers.others:
            value = validate(write_json(exact_document), **options)
            numbers = _Decimals(plan)
            numbers.arguments(document, value, None)  # a branch for texts may have taken one
        if numbers.others:
            raise refusal(tool, [_inexact(_path_to(number, document) or ()) for number in numbers.others])
        return value

    return validated


def restored(tool: str, text: str, repaired: Repaired) -> Repaired:
    """Return what was *repaired* in *text* with the numbers as they were sent, those that no float holds as Decimals.

    Raises ToolError where two numbers in *text* are the same float.
    """
    if not _LONG_NUMBER.search(text):
        return repaired

    def restore(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {name: restore(member, (*path, name)) for name, member in value.items()}
        if isinstance(value, list):
            return [restore(item, (*path, index)) for index, item in enumerate(value)]
        if type(value) is not float or not (spellings := repaired.respelled.get(short := repr(value))):
            return value
        numbers = {parse_exact(spelling) for spelling in ({*spellings, short} if short in text else spellings)}
        if len(numbers) > 1:
            raise refusal(tool, [_inexact(path)])
        return numbers.pop()

    return replace(repaired, value=restore(repaired.value, ()))


def _path_to(number: Decimal, document: Any) -> Path | None:
    items = document if isinstance(document, list) else ()
    pairs = document.items() if isinstance(document, dict) else enumerate(items)
    for step, part in pairs:
        if part is number:
            return (step,)
        if (path := _path_to(number, part)) is not None:
            return (step, *path)
    return None


def _inexact(path: Path) -> Problem:
    sentence = f"{display_path(path)}: a number has more digits than are read here. Send fewer, or send it as text."
    return Problem(pointer(path), "a shorter number, or text", "number", sentence)
