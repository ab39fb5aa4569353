"""What pydantic's plan of a type (its core schema) says of names and code, and validators stricter than pydantic's own.

pydantic reads NaN, and `1e999` as infinity, into a float of any class that does not say otherwise, and into a Decimal
of one that takes them. None of them is JSON (RFC 8259 §6), so no class can have been promised them by a model.

A member that no field takes, or under a second name of a field, is ignored by a class that does not say otherwise: then
a person would be shown what the tool never gets. Where a class takes any other member, a second name is refused still.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, cast

from pydantic import VERSION, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, SchemaValidator

from .describe import display_name
from .errors import error_details, locate
from .json_text import parse_exact
from .required import MAX_LOOKS

ABSENT: Any = object()
"""The value of a member that pydantic keeps nowhere."""

_OBJECTS = frozenset({"model-fields", "typed-dict", "dataclass-args", "named-tuple"})
_CLOSABLE = _OBJECTS - {"named-tuple"}
_MANY = frozenset({"list", "set", "frozenset", "tuple", "dict"})

_NO_PLAN = frozenset(
    {"cls", "config", "function", "metadata", "default", "default_factory", "serialization", "expected", "ref"}
)
"""Keys of a plan whose values are not plans."""

_READ_BY_PYDANTIC = frozenset(
    {"str", "int", "float", "bool", "decimal", "bytes", "date", "time", "datetime", "timedelta", "uuid", "url", "enum"}
    | {"none", "literal", "list", "set", "frozenset", "tuple", "dict", "nullable", "union", "tagged-union", "default"}
    | {"model", "model-fields", "model-field", "typed-dict", "typed-dict-field", "dataclass", "dataclass-args"}
    | {"dataclass-field", "definitions", "definition-ref"}
)
"""Kinds of a plan that let no NaN through where numbers are finite."""


class Field(NamedTuple):
    """One field of a class: the *names* under which it may be sent, the schema's first.

    Without names it is read from inside the members *inside*, or only its class sets it. *default* is one that is the
    same in each call, which a dataclass may not keep (an InitVar). *is_made*: the default is made for each call.
    """

    name: str
    names: tuple[str, ...]
    inside: frozenset[str]
    default: Any
    is_made: bool


Fields = tuple[Field, ...]


class Plan:
    """What a plan says, and the stricter `validator` of it. *validator* is pydantic's own.

    `classes` has the fields of each class, `tables` those of each TypedDict, `root` those of the arguments. `names` are
    the groups of names by which a call may send the same member. `code` is what a user's types run to make values:
    validators, factories of defaults, hooks of construction. `decimals`: whether there are any.

    `may_multiply`: unions may be inside themselves, and pydantic reads each branch of each again.

    *finite*: NaN and infinities are refused wherever a number is read; `is_finite`, whether nothing else lets them in:
    not where anything at all is read, or by a user's code. *closed*: other members are refused in the outermost object
    too.
    """

    def __init__(self, plan: Mapping[str, Any], validator: Any, *, finite: bool = True, closed: bool = True) -> None:
        self.classes: dict[type, Fields] = {}
        self.tables: list[Fields] = []
        self.names: dict[frozenset[str], None] = {}
        self.code: list[Any] = []
        self.decimals = False
        self.is_finite = True
        self._finite, self._closed = finite, closed
        self._changes = 0
        self._built: set[type] = set()
        self._has_unions = False
        self._definitions = {part["ref"]: part for part in plan.get("definitions", ())}
        self.validator = validator
        self._strict = strict = self._read(plan, is_root=True)
        self._definitions = {part["ref"]: part for part in strict.get("definitions", ())}
        self.may_multiply = self._has_unions and bool(self._definitions)
        if self._changes:
            self.validator = self._validator_of(strict)
        outer = inner_plan(plan)
        self.root = tuple(_read_fields(outer, {})) if outer["type"] == "typed-dict" else ()

    @functools.cached_property
    def quick_validator(self) -> Any:
        """The same for long texts: of each list or dict it names the first error.

        pydantic makes an error for each item in each branch of a union, and holds all threads meanwhile.
        """
        return self._validator_of(_quick(self._strict))

    def _validator_of(self, plan: Mapping[str, Any]) -> Any:
        try:
            return _validator_of(plan, self._built)
        except Exception:  # a plan that only pydantic itself can build
            self.is_finite = False
            return self.validator

    def models(self) -> dict[str, bool]:
        """Return the arguments that are models of which only pydantic sets the fields, or, with True, lists of them.

        In their values, each field that is set was read from a name of its own in the text.
        """
        models: dict[str, bool] = {}
        for name, field in inner_plan(self._strict)["fields"].items():
            plan = self._target(field["schema"])
            is_list = plan["type"] == "list" and "items_schema" in plan
            if self._is_plain_model(self._target(plan["items_schema"]) if is_list else plan):
                models[name] = is_list
        return models

    def _target(self, plan: Any) -> Any:
        """Return *plan*, or what it refers to."""
        return self._definitions.get(plan.get("schema_ref"), plan)

    def _is_plain_model(self, plan: Mapping[str, Any]) -> bool:
        """Return whether *plan* is of a model in which each field is read by its own name, and no code sets others."""
        if plan["type"] != "model" or any(plan.get(key) for key in ("root_model", "custom_init", "post_init")):
            return False
        inner = plan["schema"]
        return inner["type"] == "model-fields" and not any("validation_alias" in of for of in inner["fields"].values())

    def is_bounded(self, value: Any) -> bool:
        """Return whether pydantic reads the JSON *value* in at most `MAX_LOOKS` steps, by its branches.

        In 16 levels of a union of three models that have a member in common, it would take 43 million.
        """
        counts: dict[tuple[int, int], int] = {}

        def count(plan: Any, value: Any) -> int:
            if not isinstance(value, dict | list):
                return 1
            key = id(plan), id(value)
            if key not in counts:
                if len(counts) > MAX_LOOKS:
                    raise RecursionError
                counts[key] = 1
                counts[key] += sum(count(inner, part) for inner, part in self._inside(plan, value))
            return counts[key]

        try:
            return count(self._strict, value) <= MAX_LOOKS
        except RecursionError:
            return False

    def _inside(self, plan: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
        """Return what is looked at in the object or list *value* under *plan*: plans, each with a part of it."""
        kind, items = plan["type"], plan.get("items_schema")
        if kind == "definition-ref" and plan["schema_ref"] in self._definitions:
            yield self._definitions[plan["schema_ref"]], value
        elif kind in ("union", "tagged-union"):
            yield from ((choice, value) for choice in _choices(plan, value))
        elif kind in _OBJECTS and isinstance(value, dict):
            for name, field in _entries(plan):
                names = {name, *(str(path[0]) for path in _alias_paths(field.get("validation_alias")))}
                yield from ((field["schema"], value[name]) for name in names if name in value)
        elif kind in _MANY and isinstance(value, list) and items:
            plans = items if isinstance(items, list) else [items]
            yield from ((plans[min(index, len(plans) - 1)], item) for index, item in enumerate(value))
        elif kind == "dict" and isinstance(value, dict) and "values_schema" in plan:
            yield from ((plan["values_schema"], item) for item in value.values())
        else:
            inner = [plan.get(key) for key in ("schema", "json_schema", "strict_schema")] + plan.get("steps", [])
            yield from ((part, value) for part in inner if isinstance(part, Mapping))

    def _read(
        self, plan: Any, config: Mapping[str, Any] | None = None, owner: Any = None, *, is_root: bool = False
    ) -> Any:
        """Note what is anywhere in *plan*, which is of the class *owner*, and return it stricter."""
        if isinstance(plan, list | tuple):  # in a tuple: a choice of a union, with its label
            return type(plan)(self._read(part) for part in plan)
        if not isinstance(plan, Mapping):
            return plan
        kind, config, owner = plan.get("type"), plan.get("config") or config or {}, plan.get("cls") or owner
        is_root = is_root and kind in ("definitions", "typed-dict")
        extra = plan.get("extra_behavior") or config.get("extra_fields_behavior") or "ignore"
        if isinstance(kind, str) and (extra == "allow" or kind not in _READ_BY_PYDANTIC):
            self.is_finite = False
        self.decimals = self.decimals or kind == "decimal"
        if kind in ("model", "dataclass") and vars(plan["cls"]).get("__pydantic_complete__"):
            self._built.add(plan["cls"])
        self._note_code(plan)
        fields: Fields = ()
        if kind in _OBJECTS:
            fields = tuple(_read_fields(plan, config))
            self._note_fields(kind, fields, owner)
            owner = None
        elif kind == "call":  # a NamedTuple, for pydantic before 2.14
            fields = tuple(_read_fields({"fields": plan["arguments_schema"]["arguments_schema"]}, config))
            self._note_fields(kind, fields, plan["function"])
        strict = {key: self._part(key, part, config, owner, is_root) for key, part in plan.items()}
        if self._finite and kind in ("float", "decimal"):
            self._changes += 1
            strict["allow_inf_nan"] = False
        if kind == "union":
            strict = self._tagged(strict)
            self._has_unions = self._has_unions or strict["type"] == kind
        is_closable = kind in _CLOSABLE and (self._closed or not is_root)
        return self._closed_object(strict, fields, extra) if is_closable else strict

    def _tagged(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Return *plan*, of a union; of models that are told apart by a text in each, so that one of them is read."""
        tags: dict[str, dict[Any, Any]] = {}
        choices = _choices(plan)
        for choice in choices:
            for name, text in _fixed_texts(self._target(choice)):
                tags.setdefault(name, {})[text] = choice
        for name, by_text in tags.items():
            if len(by_text) == len(choices) > 1:
                self._changes += 1
                rest = {key: part for key, part in plan.items() if key not in ("mode", "auto_collapse")}
                return {**rest, "type": "tagged-union", "discriminator": name, "choices": by_text}
        return plan

    def _part(self, key: str, part: Any, config: Mapping[str, Any], owner: Any, is_root: bool) -> Any:
        """Read *part*, which stands under *key* of a plan with *config* of the class *owner*."""
        if key in _NO_PLAN:
            return part
        if key in ("fields", "choices") and isinstance(part, Mapping):  # their names are a user's
            return {name: self._read(inner) for name, inner in part.items()}
        is_inside = key == "schema"
        return self._read(part, config if is_inside else None, owner, is_root=is_root and is_inside)

    def _note_code(self, plan: Mapping[str, Any]) -> None:
        if plan.get("post_init") or plan.get("custom_init"):
            self.code += [getattr(plan["cls"], hook, None) for hook in ("__init__", "__post_init__", "model_post_init")]
        if isinstance(function := plan.get("function"), Mapping):
            self.code.append(function["function"])
        self.code.append(plan.get("default_factory"))

    def _note_fields(self, kind: str, fields: Fields, owner: Any) -> None:
        if kind == "typed-dict":
            self.tables.append(fields)
        else:
            self.classes.setdefault(owner, fields)
        groups = (frozenset([field.name, *field.names]) for field in fields)
        self.names |= dict.fromkeys(group for group in groups if len(group) > 1)

    def _closed_object(self, plan: dict[str, Any], fields: Fields, extra: str) -> dict[str, Any]:
        """Return *plan*, of an object, so that it refuses other members, and a field under two of its names."""
        names = {name: field.names for field in fields if len(field.names) > 1 for name in field.names}
        if extra == "forbid" or (extra == "allow" and not names):
            return plan
        self._changes += 1
        if extra == "ignore" or plan["type"] != "model-fields":
            # In others than models, an extra member can hide behind a field.
            return {**plan, "extra_behavior": "forbid"}
        check = {"type": "no-info", "function": functools.partial(_require_one_name_each, names)}
        return {"type": "function-after", "function": check, "schema": plan}


_HIDING = threading.Lock()


def _validator_of(plan: Mapping[str, Any], classes: Iterable[Any]) -> SchemaValidator:
    """Return the validator of *plan*, without the validators that *classes* hold ready: those are of their own plans.

    pydantic 2.12 uses these of every class that says that it is complete.
    """
    if not VERSION.startswith("2.12."):
        return SchemaValidator(cast(Any, plan), _use_prebuilt=False)
    with _HIDING:
        try:
            for kind in classes:
                kind.__pydantic_complete__ = False
            return SchemaValidator(cast(Any, plan))
        finally:
            for kind in classes:
                kind.__pydantic_complete__ = True


def _quick(plan: Any) -> Any:
    """Return *plan* so that reading a list or a dict ends with its first error."""
    if isinstance(plan, list | tuple):
        return type(plan)(map(_quick, plan))
    if not isinstance(plan, dict):
        return plan
    quick: dict[str, Any] = {"fail_fast": True} if plan.get("type") in _MANY else {}
    for key, part in plan.items():
        if key in ("fields", "choices") and isinstance(part, dict):  # their names are a user's
            quick[key] = {name: _quick(inner) for name, inner in part.items()}
        else:
            quick[key] = part if key in _NO_PLAN else _quick(part)
    return quick


def inner_plan(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *plan* without the definitions around it."""
    while plan["type"] == "definitions":
        plan = plan["schema"]
    return plan


def _choices(plan: Mapping[str, Any], value: Any = None) -> list[Any]:
    """Return the plans that a union tries with *value*: where a tag tells them apart, the one that *value* names."""
    choices, tag = plan["choices"], plan.get("discriminator")
    if isinstance(tag, str) and isinstance(value, dict):
        return [choices[value[tag]]] if isinstance(value.get(tag), str) and value[tag] in choices else []
    choices = choices.values() if isinstance(choices, Mapping) else choices
    return [choice[0] if isinstance(choice, tuple) else choice for choice in choices]


def _fixed_texts(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the fields in *plan*, of a model, that take one text only, each with it."""
    fields = plan["schema"].get("fields", {}) if plan["type"] == "model" else {}
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        texts = field["schema"].get("expected", ())
        if len(texts) == 1 and type(texts[0]) is str and "validation_alias" not in field:
            yield name, texts[0]


def _entries(plan: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the fields of an object in *plan*, by name: in a mapping, or each with its name."""
    fields: Any = plan["fields"]
    return fields.items() if isinstance(fields, Mapping) else ((field["name"], field) for field in fields)


def _read_fields(plan: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Field]:
    """Return the fields of an object in pydantic's *plan*."""
    config = plan.get("config") or config
    for name, field in _entries(plan):
        paths = [] if field.get("init") is False else _paths(name, field, config)
        names = dict.fromkeys(str(path[0]) for path in paths if len(path) == 1)
        inside = frozenset(str(path[0]) for path in paths if len(path) > 1)
        inner = field["schema"]
        while inner["type"] != "default" and isinstance(inner.get("schema"), Mapping):
            inner = inner["schema"]
        yield Field(name, tuple(names), inside, inner.get("default", ABSENT), "default_factory" in inner)


def _paths(name: str, field: Mapping[str, Any], config: Mapping[str, Any]) -> list[Any]:
    """Return the paths by which a class with *config* reads the field *name*: by its alias, its name, or both."""
    paths = [] if config.get("validate_by_alias") is False else _alias_paths(field.get("validation_alias"))
    return [*paths, [name]] if reads_by_name(config) or not paths else paths


def reads_by_name(config: Mapping[str, Any]) -> bool:
    """Return whether a class with *config*, pydantic's, reads fields by their own names beside their aliases."""
    return bool(config.get("validate_by_name") or config.get("populate_by_name"))


def _alias_paths(alias: Any) -> list[Any]:
    """Return the paths of an alias, which is a name, a path or several: `[["amount"], ["lines", 0, "amount"]]`.

    A path of more than one step leads into another member.
    """
    if not alias:
        return []
    if isinstance(alias, str):
        return [[alias]]
    return [*alias] if isinstance(alias[0], list | tuple) else [alias]


# Each name once

_fields_set = attrgetter("__pydantic_fields_set__")


def count_names(models: Iterable[Any]) -> int:
    """Return how many names *models* were read from."""
    return sum(map(len, map(_fields_set, models)))


# One name a member


def _require_one_name_each(names: dict[str, tuple[str, ...]], parts: Any) -> Any:
    """Raise where one of *names* is an extra member of a model: it has the field under another of its names, too.

    *parts* is what pydantic makes a model of: its fields, its extra members, and the names of the fields that were set.
    """
    for name in parts[1] or ():
        if name in names:
            raise _two_names(names[name])
    return parts


def with_names_told(plan: Plan, validate: Callable[..., Any]) -> Callable[..., Any]:
    """Return *validate*, whose error names both names of a field that is sent under two: one would be hidden."""
    if not plan.names:
        return validate

    def validated(text: str | bytes, **options: Any) -> Any:
        try:
            return validate(text, **options)
        except ValidationError as error:
            errors: list[InitErrorDetails] = []
            unknown = [detail["loc"] for detail in error_details(error) or () if detail["type"] == "extra_forbidden"]
            document = parse_exact(text) if unknown else None
            for loc in unknown:
                place, members = locate(loc[:-1], document)
                for group in plan.names:
                    names = sorted(group.intersection(members)) if loc[-1] in group else []
                    if len(names) > 1:
                        errors.append({"type": _two_names(names), "loc": place, "input": None})
            if errors:
                raise ValidationError.from_exception_data("arguments", errors) from None
            raise

    return validated


def _two_names(names: Iterable[str]) -> PydanticCustomError:
    """Return pydantic's error for a field that is sent under several of its *names*."""
    words = " and ".join(f"'{display_name(name)}'" for name in names)
    return PydanticCustomError("two_names", "{names} are names of one field; send one of them", {"names": words})
