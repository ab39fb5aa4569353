"""How pydantic reads a JSON document, followed beside the value that it made of it.

Its plan (the core schema) gives the names under which each field is accepted, and the types of the values. The value
decides which branch of a union was taken, and has the defaults.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pydantic_core
from pydantic import EncodedBytes, EncodedStr, SecretBytes, SecretStr
from pydantic.types import Secret

from ..core import ToolError
from .exact_json import canonical_json, exact
from .written import is_plain, name_in_json, written

Path = tuple[str | int, ...]


class Field(NamedTuple):
    """One field of an object: the paths under which it is accepted, the first as in the JSON Schema."""

    name: str
    plan: Mapping[str, Any]
    paths: tuple[Path, ...]


class Plan:
    """The plan of the arguments: `has_names` where a field has several names, `decimals` and `has_factories` where
    there are any.

    `names` are the groups of names by which a call may send the same member: a field's own name, and its aliases.
    `code` is what a user's types run to make the values: validators, factories of defaults, hooks of construction.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.refs: dict[str, Mapping[str, Any]] = {}
        self.fields: dict[int, tuple[Field, ...]] = {}
        self.code: list[Any] = []
        self.names: dict[frozenset[str], None] = {}
        self.decimals = self.has_names = self.has_factories = False
        self._find(root, {})

    def _find(self, plan: Any, config: Mapping[str, Any]) -> None:
        """Note what is anywhere in *plan*, and the fields of its objects."""
        if isinstance(plan, list | tuple):
            for part in plan:
                self._find(part, config)
        if not isinstance(plan, Mapping):
            return
        kind = plan.get("type")
        if kind == "definitions":
            self.refs |= {each["ref"]: each for each in plan["definitions"]}
        config = plan.get("config") or config
        if kind in ("model-fields", "dataclass-args", "typed-dict", "named-tuple"):
            fields = self.fields[id(plan)] = tuple(_fields(plan, config))
            self.has_names = self.has_names or any(len(field.paths) > 1 for field in fields)
            # A path of several steps is another place, and not another name.
            groups = (frozenset([f.name, *(str(p[0]) for p in f.paths if len(p) == 1)]) for f in fields)
            self.names |= dict.fromkeys(group for group in groups if len(group) > 1)
        self.decimals = self.decimals or kind == "decimal"
        if plan.get("post_init") or plan.get("custom_init"):
            self.code += [getattr(plan["cls"], hook, None) for hook in ("__init__", "__post_init__", "model_post_init")]
        if isinstance(function := plan.get("function"), Mapping):
            self.code.append(function["function"])
        self.code.append(plan.get("default_factory"))
        self.has_factories = self.has_factories or "default_factory" in plan
        for key, part in plan.items():
            if key in ("fields", "choices") and isinstance(part, Mapping):
                self._find(list(part.values()), config)  # their names are a user's
            elif key not in _NO_PLAN:
                self._find(part, config)


_NO_PLAN = frozenset({"cls", "config", "function", "metadata", "default", "serialization", "expected"})


def _fields(plan: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Field]:
    listed: Any = plan["fields"]
    by_alias = config.get("validate_by_alias") is not False
    by_name = bool(config.get("validate_by_name") or config.get("populate_by_name"))
    for name, field in listed.items() if isinstance(listed, Mapping) else ((each["name"], each) for each in listed):
        alias = field.get("validation_alias")
        paths: list[Path] = []
        if by_alias and alias is not None:
            paths = [(alias,)] if isinstance(alias, str) else [tuple(path) for path in _paths(alias)]
        if not paths or by_name:
            paths.append((name,))
        if field.get("init") is False:
            paths = []
        yield Field(name, field["schema"], tuple(dict.fromkeys(paths)))


def _paths(alias: Sequence[Any]) -> Sequence[Sequence[Any]]:
    return alias if isinstance(alias[0], list | tuple) else [alias]


Purpose = Literal["sent", "shown", "values", "bound", "exact", "complete"]
"""What a document is read for, each member under its schema's name:

    sent      as it is, for a digest
    shown     with the defaults, for a person, secrets masked
    values    with the defaults, for rules: scalars as the tool gets them
    bound     with the defaults that are the same in each call, for a digest too
    exact     to be validated: Decimals that no float holds are text
    complete  to be validated again: with the defaults that a factory made
"""
_WITH_DEFAULTS = ("shown", "values", "bound", "complete")

ABSENT: Any = object()
MASK = "**********"
_MAX_DEPTH = 20
_MAX_DIGITS = 400  # of the largest float, 309
_SECRETS = (SecretStr, SecretBytes, Secret)
_PLAIN = frozenset({"str", "int", "bool"})
_ITEMS = frozenset({"list", "set", "frozenset", "deque", "generator"})
_OBJECTS = frozenset({"model-fields", "dataclass-args", "typed-dict"})
_SCALARS: Mapping[str, type[Any]] = {"str": str, "int": int, "float": float, "bool": bool, "decimal": Decimal}
_NOT_TEXT = frozenset({*_SCALARS, *_ITEMS, *_OBJECTS, "none", "tuple", "dict", "model", "dataclass", "named-tuple"}) - {
    *("str", "float", "deque", "generator")
}
"""Types that, strictly, are not read from a string."""


class Reading:
    """One walk through a document for one purpose.

    `twice` has the fields that it has under two of their names, `inexact` the places where a number is a Decimal to one
    branch of a union, and something else to another; `is_complete` where defaults were added.
    """

    def __init__(self, plan: Plan, purpose: Purpose) -> None:
        self._plan = plan
        self._purpose = purpose
        self._mask = MASK if purpose == "shown" else None
        self._known: dict[tuple[int, int], Any] = {}
        self._alive: list[Any] = []  # what is known by its id must not be replaced by something with the same
        self.twice: list[tuple[Path, tuple[str, ...]]] = []
        self.inexact: list[Path] = []
        self.is_complete = False

    def __call__(self, document: Any, value: Any) -> Any:
        """Return *document*, of which *value* was made. Raises ToolError."""
        try:
            return self._read(self._plan.root, document, value, ())
        except RecursionError:
            problem = "The arguments are nested too deeply to be decided on. Send flatter ones, or in several calls."
            raise ToolError(problem, "invalid_arguments") from None

    def _read(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        """Return *document* as it is read by *plan*."""
        kind, is_scalar = plan["type"], not isinstance(document, dict | list)
        if is_scalar and self._purpose == "values" and value is not ABSENT:
            return document if self._is_encoded(plan) else _as_json(value, document)
        if self._purpose == "sent" and _sees_the_document(plan):
            return document  # a user's code may tell two spellings from one another
        is_secret = kind == "function-after" and plan["function"].get("function") in (SecretStr, SecretBytes)
        if (is_secret and is_scalar) or isinstance(value, _SECRETS):
            return document if self._mask is None or document in ("", None) else self._mask
        if kind in ("union", "tagged-union"):
            return self._union(plan, document, value, path)
        if kind == "definition-ref":
            return self._read(self._plan.refs[plan["schema_ref"]], document, value, path)
        if kind in _ITEMS:
            return self._items(plan, document, value, path) if isinstance(document, list) else document
        if kind in _OBJECTS or (kind == "named-tuple" and isinstance(document, dict)):
            return self._object(plan, document, value, path) if isinstance(document, dict) else document
        if kind == "dict":
            return self._dict(plan, document, value, path) if isinstance(document, dict) else document
        if kind in ("tuple", "named-tuple"):
            return self._tuple(plan, document, value, path) if isinstance(document, list) else document
        if kind == "decimal" and self._purpose == "exact" and type(document) is Decimal:
            return str(document)
        if kind == "nullable" and document is None:
            return None
        if kind == "chain":
            return self._read(plan["steps"][0], document, ABSENT, path)
        if kind == "model" and plan.get("root_model"):
            value = getattr(value, "root", ABSENT)
        inner = _wrapped(plan)
        return document if kind == "json" or inner is None else self._read(inner, document, value, path)

    def _object(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        fields = self._plan.fields[id(plan)]
        values = _members(value)
        owners: dict[str, list[Field]] = {}
        for field in fields:
            for name in dict.fromkeys(str(way[0]) for way in field.paths):
                owners.setdefault(name, []).append(field)
        read: dict[str, Any] = {}
        for name, member in document.items():
            owner = owners.get(name, ())
            if len(owner) == 1 and (name,) in owner[0].paths:
                field = owner[0]
                schema_name = _own_name(field, owners) or name
                member = self._read(field.plan, member, values.get(field.name, ABSENT), (*path, name))
                read[name if schema_name in document else schema_name] = member
            elif owner:  # read by several fields, or in parts: as it was written
                read[name] = MASK if self._mask and any(map(_is_secret, owner)) else member
            else:
                extras = plan.get("extras_schema")
                read[name] = self._read(extras, member, values.get(name, ABSENT), (*path, name)) if extras else member
        for field in fields:
            ways = [way for way in field.paths if _has(document, way)]
            if len(ways) > 1 and any(len(owners[str(way[0])]) == 1 for way in ways):
                self.twice.append((path, tuple(".".join(map(str, way)) for way in ways)))
            if self._purpose in _WITH_DEFAULTS and not any(len(way) == 1 for way in ways):
                self._fill(read, field, _own_name(field, owners) or field.name, values)
        return read

    def _fill(self, read: dict[str, Any], field: Field, name: str, values: Mapping[str, Any]) -> None:
        """Add the default of *field*, if it applies."""
        if name in read or (self._purpose == "complete" and not field.paths):
            return
        if self._purpose in ("bound", "complete") and _has_factory(field.plan) is not (self._purpose == "complete"):
            return
        default = values.get(field.name, ABSENT)
        if default is ABSENT and field.plan["type"] == "default":
            default = field.plan.get("default", ABSENT)
        if default is not ABSENT and not isinstance(default, Iterator):
            self.is_complete = True
            read[name] = written(default, mask=self._mask, strict=False)

    def _dict(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        inner = plan.get("values_schema", {"type": "any"})
        made: Mapping[str, Any] = {}
        if isinstance(value, Mapping):
            with suppress(ValueError):  # keys that JSON has no names for
                made = {name_in_json(key): member for key, member in value.items()}
                if self._purpose == "values":
                    # By the keys that their type has made: a tool gets 1 for "01".
                    beside = {name: member for name, member in _by_shortest_names(value).items() if name not in made}
                    if beside or made.keys() != document.keys():
                        return written({**value, **beside}, strict=False)
        if made.keys() != document.keys():
            made = dict(zip(document, made.values(), strict=True)) if len(made) == len(document) else {}
        return {
            name: self._read(inner, member, made.get(name, ABSENT), (*path, name)) for name, member in document.items()
        }

    def _items(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        inner, is_ordered = plan.get("items_schema"), isinstance(value, Sequence) and len(value) == len(document)
        values = value if is_ordered else [ABSENT] * len(document)
        read, needs_values = document, self._purpose == "values"
        if inner is not None and inner["type"] in _PLAIN and (not needs_values or (is_ordered and is_plain(value))):
            read = list(value) if needs_values else document
        elif inner is not None:
            pairs = zip(document, values, strict=True)
            read = [self._read(inner, item, made, (*path, index)) for index, (item, made) in enumerate(pairs)]
        if plan["type"] not in ("set", "frozenset") or self._purpose not in ("sent", "values", "bound"):
            return read
        unique = {canonical_json(item): item for item in read}
        return [unique[text] for text in sorted(unique)]

    def _tuple(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        plans: list[Any] = plan.get("items_schema") or [field["schema"] for field in plan["fields"]]
        if (variadic := plan.get("variadic_items_index", plan.get("variadic_item_index"))) is not None:
            more = max(len(document) - len(plans) + 1, 0)
            plans = [*plans[:variadic], *[plans[variadic]] * more, *plans[variadic + 1 :]]
        values: Sequence[Any] = value if isinstance(value, tuple) and len(value) >= len(document) else ()
        read = [
            self._read(inner, item, values[index] if values else ABSENT, (*path, index))
            for index, (item, inner) in enumerate(zip(document, plans, strict=False))
        ]
        return read + document[len(read) :]

    def _union(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        """Return *document* as the branches read it that the value can be of, if they agree; else as it was written."""
        known = (id(plan), id(document))
        if known in self._known:
            return self._known[known]
        choices, listed = plan["choices"], _choices(plan)
        tag = document.get(plan["discriminator"]) if _has_tag(plan, document) else None
        fitting = [index for index, choice in enumerate(listed) if self._fits(choice, document, value)]
        if isinstance(tag, str | int) and tag in choices:
            fitting = [list(choices).index(tag)]
        branches = [listed[index] for index in fitting] or listed
        outcomes = [self._read(branch, document, value, path) for branch in branches]
        if self._purpose == "sent":
            # With its branch: what one branch reads as the same may be something else to another.
            read = [fitting[0], outcomes[0]] if len(fitting) == 1 else [None, document]
        elif self._purpose == "exact" and isinstance(document, Decimal):
            read = self._exact(branches, outcomes, document, path)
        elif len({canonical_json(outcome) for outcome in outcomes}) == 1:
            read = outcomes[0]
        else:
            if self._purpose == "exact":
                self.inexact.append(path)
            read = _masked(outcomes) if self._mask else document
        if isinstance(document, dict | list):
            self._known[known] = read
            self._alive.append(document)
        return read

    def _exact(self, branches: Sequence[Any], outcomes: Sequence[Any], number: Decimal, path: Path) -> Any:
        """Return *number* as text, where only the Decimal among the *branches* can take it."""
        text = next((outcome for outcome in outcomes if isinstance(outcome, str)), None)
        kinds = {self._unwrapped(branch)["type"] for branch in branches}
        if text is None or "float" in kinds:
            return number
        if not kinds <= _NOT_TEXT:
            self.inexact.append(path)
        return text

    def _is_encoded(self, plan: Mapping[str, Any]) -> bool:
        """Return whether *plan* decodes a text: what the tool gets is then not what its schema describes."""
        if plan["type"] in ("union", "tagged-union"):
            return any(map(self._is_encoded, _choices(plan)))
        function = plan["function"].get("function") if plan["type"] == "function-after" else None
        if isinstance(getattr(function, "__self__", None), EncodedBytes | EncodedStr):
            return True
        inner = self._unwrapped(plan, once=True)
        return inner is not plan and self._is_encoded(inner)

    def _unwrapped(self, plan: Mapping[str, Any], *, once: bool = False) -> Mapping[str, Any]:
        """Return the plan inside references, defaults and validators that run after it."""
        if plan["type"] == "definition-ref":
            inner = self._plan.refs[plan["schema_ref"]]
        elif plan["type"] in ("nullable", "default", "function-after"):
            inner = plan["schema"]
        else:
            return plan
        return inner if once else self._unwrapped(inner)

    def _fits(self, plan: Mapping[str, Any], document: Any, value: Any, depth: int = 0) -> bool:
        """Return whether *plan* can have made *value* of *document*. True in doubt."""
        kind = plan["type"]
        if value is ABSENT or depth > _MAX_DEPTH:
            return True
        if kind in ("model", "dataclass"):
            return isinstance(value, plan["cls"])
        if kind in _SCALARS:
            return isinstance(value, _SCALARS[kind]) and (kind != "int" or not isinstance(value, bool))
        if kind == "none" or (kind == "nullable" and document is None):
            return value is None
        if kind == "definition-ref":
            return self._fits(self._plan.refs[plan["schema_ref"]], document, value, depth + 1)
        if kind == "typed-dict":
            # It has all the fields that the document gives, and no others.
            names = {field.name for field in self._plan.fields[id(plan)]}
            given = {field.name for field in self._plan.fields[id(plan)] if any(_has(document, p) for p in field.paths)}
            is_open = "allow" in (plan.get("extra_behavior"), (plan.get("config") or {}).get("extra_fields_behavior"))
            return isinstance(value, Mapping) and given <= value.keys() and (is_open or value.keys() <= names)
        if kind in ("tuple", "named-tuple"):
            return isinstance(value, plan.get("cls", tuple))
        pairs: Iterator[tuple[Any, Any]] = iter(())
        if kind in ("list", "set", "frozenset"):
            if not (type(value) in (list, set, frozenset) and isinstance(document, list)):
                return False
            pairs = zip(document, value, strict=False) if kind == "list" and isinstance(value, list) else pairs
            inner = plan.get("items_schema")
        elif kind == "dict":
            if not (isinstance(value, Mapping) and isinstance(document, dict)):
                return False
            pairs, inner = zip(document.values(), value.values(), strict=False), plan.get("values_schema")
        else:
            pairs, inner = iter([(document, value)]), _wrapped(plan) if kind in _TRANSPARENT else None
        return inner is None or all(self._fits(inner, *pair, depth + 1) for pair in pairs)


_TRANSPARENT = frozenset({"nullable", "default", "lax-or-strict", "json-or-python"})


def _wrapped(plan: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the plan directly inside *plan* that reads JSON, if there is one."""
    inner = next((plan[key] for key in ("json_schema", "strict_schema", "schema") if key in plan), None)
    return inner if isinstance(inner, Mapping) else None


def _has_tag(plan: Mapping[str, Any], document: Any) -> bool:
    return isinstance(plan.get("discriminator"), str) and isinstance(document, dict)


def _sees_the_document(plan: Mapping[str, Any]) -> bool:
    """Return whether a user's code gets what was sent, and not what pydantic read of it."""
    if plan["type"] not in ("function-before", "function-wrap", "function-plain"):
        return bool(plan.get("custom_init"))
    function = plan["function"]["function"]
    return not str(getattr(getattr(function, "func", function), "__module__", "")).startswith("pydantic.")


def _choices(plan: Mapping[str, Any]) -> list[Any]:
    choices = plan["choices"]
    listed = choices.values() if isinstance(choices, Mapping) else choices
    return [choice[0] if isinstance(choice, tuple) else choice for choice in listed]  # some have a label


def _by_shortest_names(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the members with a number as their key, which has several names, by the shortest: `1` for `1.0`."""
    numbers = ((Decimal(str(key)), each) for key, each in value.items() if isinstance(key, Decimal | float))
    near = ((key, each) for key, each in numbers if key.is_finite() and abs(key.adjusted()) < _MAX_DIGITS)
    return {_shortest(format(key if key else Decimal(), "f")): each for key, each in near}


def _shortest(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _masked(outcomes: Sequence[Any]) -> Any:
    """Return what is masked in one of the *outcomes*, at the same place in all."""
    first = outcomes[0]
    if MASK in [outcome for outcome in outcomes if isinstance(outcome, str)]:
        return MASK
    if all(isinstance(outcome, dict) for outcome in outcomes):
        names = dict.fromkeys(name for outcome in outcomes for name in outcome)
        return {name: _masked([outcome[name] for outcome in outcomes if name in outcome]) for name in names}
    if all(isinstance(outcome, list) and len(outcome) == len(first) for outcome in outcomes):
        return [_masked(items) for items in zip(*outcomes, strict=True)]
    return first


def _own_name(field: Field, owners: Mapping[str, Sequence[Field]]) -> str | None:
    """Return the name of *field* in the JSON Schema; None for a path, or where another field reads that name, too."""
    first = field.paths[0] if field.paths else ()
    return str(first[0]) if len(first) == 1 and len(owners.get(str(first[0]), ())) == 1 else None


def _members(value: Any) -> Mapping[str, Any]:
    """Return the fields of a model, a dataclass, a TypedDict or a named tuple, by name."""
    if isinstance(value, dict | Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    if hasattr(type(value), "__pydantic_fields__") or (is_dataclass(value) and not isinstance(value, type)):
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if name[:2] != "__"]
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        return held | getattr(value, "__dict__", {}) | (getattr(value, "__pydantic_extra__", None) or {})
    return {}


def _has(document: Any, path: Path) -> bool:
    for part in path:
        if isinstance(part, str):
            if not (isinstance(document, dict) and part in document):
                return False
        elif not (isinstance(document, list) and -len(document) <= part < len(document)):
            return False
        document = document[part]  # pyright: ignore[reportArgumentType, reportCallIssue]
    return True


def _as_json(value: Any, document: Any) -> Any:
    """Return a scalar of the *document* as the tool gets it: stripped, normalized, whatever its validators do."""
    if type(value) in (str, int, float, bool):
        return value
    try:
        if isinstance(value, Decimal) and value.is_finite():
            return exact(value)
        return document if isinstance(value, Iterator) else pydantic_core.to_jsonable_python(written(value))
    except (ValueError, ArithmeticError, RecursionError):  # a type that only its own validator knows
        return document


def _has_factory(plan: Mapping[str, Any]) -> bool:
    """Return whether the default of a field is made for each call."""
    while plan["type"] != "default" and isinstance(plan.get("schema"), Mapping):
        plan = plan["schema"]
    return plan["type"] == "default" and "default_factory" in plan


def _is_secret(field: Field) -> bool:
    return any(secret.__name__ in str(field.plan) for secret in _SECRETS)
