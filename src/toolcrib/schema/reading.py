"""How pydantic reads a JSON document, followed beside the value that it made of it.

Its plan (the core schema) gives the names under which each field is accepted, and the types of the values. The value
decides which branch of a union was taken, and has the defaults. Where a user's own code sees the document before
pydantic does, the document is its own identity: such code may tell two spellings from one another.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from pydantic import EncodedBytes, EncodedStr, SecretBytes, SecretStr, TypeAdapter
from pydantic.types import Secret
from pydantic_core import to_jsonable_python

from ..core import ToolError
from .exact_json import canonical_json, exact
from .plan import Field, Path, Plan
from .written import is_plain, name_in_json, written

Purpose = Literal["identity", "values", "bound", "display", "exact", "complete"]
"""For a digest; for rules, with defaults, and scalars as the tool gets them; the same without the defaults that a
factory made; for a person, with defaults, and with secrets masked; to be validated, with the Decimals that no float is
as text; or to be validated again, with those defaults that a factory made.
"""
_VALUES = ("values", "bound")
_MOST_PLACES = 400  # of the largest float, 309

ABSENT: Any = object()
MASK = "**********"
_SECRETS = (SecretStr, SecretBytes, Secret)
_BEFORE = frozenset({"function-before", "function-wrap", "function-plain"})
_ITEMS = frozenset({"list", "set", "frozenset", "deque", "generator"})
_SCALARS: Mapping[str, type[Any]] = {"str": str, "int": int, "float": float, "bool": bool, "decimal": Decimal}
_SPELLINGS: Mapping[str, Any] = {
    "decimal": Decimal,
    **{kind.__name__: TypeAdapter(kind).validate_python for kind in (datetime, date, time, timedelta)},
    "uuid": UUID,
}
"""Types that read several texts as the same value."""


class Reading:
    """One walk through a document for one purpose.

    `twice` has the fields that it has under two of their names, `inexact` the places where a number is a Decimal to one
    branch of a union, and something else to another; `is_complete` where defaults were added.
    """

    def __init__(self, plan: Plan, purpose: Purpose) -> None:
        self._plan = plan
        self._purpose = purpose
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
        """*document* as it is read by *plan*."""
        if self._purpose in _VALUES and value is not ABSENT and not isinstance(document, dict | list):
            return document if self._is_encoded(plan) else _as_json(value, document)
        kind = plan["type"]
        if self._purpose == "identity" and (plan.get("custom_init") or (kind in _BEFORE and not _is_of_pydantic(plan))):
            return document
        is_secret = kind == "function-after" and plan["function"].get("function") in (SecretStr, SecretBytes)
        if is_secret and not isinstance(document, dict | list):
            return self._secret(document)
        if isinstance(value, _SECRETS):
            return self._secret(document)
        if kind in ("union", "tagged-union"):
            return self._union(plan, document, value, path)
        if kind == "definition-ref":
            return self._read(self._plan.refs[plan["schema_ref"]], document, value, path)
        if kind in _ITEMS:
            return self._items(plan, document, value, path)
        if kind in ("model-fields", "dataclass-args", "typed-dict"):
            return self._object(plan, document, value, path)
        match kind:
            case "model" if plan.get("root_model"):
                value = getattr(value, "root", ABSENT)
            case "nullable" if document is None:
                return None
            case "dict":
                return self._dict(plan, document, value, path)
            case "tuple" | "named-tuple":
                return self._tuple(plan, document, value, path)
            case "chain":
                return self._read(plan["steps"][0], document, ABSENT, path)
            case "float" | "decimal" | "datetime" | "date" | "time" | "timedelta" | "uuid":
                return self._scalar(kind, document)
            case _:
                pass
        inner = next((plan[key] for key in ("json_schema", "strict_schema", "schema") if key in plan), None)
        if kind == "json" or not isinstance(inner, Mapping):
            return document
        return self._read(inner, document, value, path)

    def _scalar(self, kind: str, document: Any) -> Any:
        if self._purpose == "identity" and type(document) is int:
            return exact(Decimal(document))
        if self._purpose == "identity" and isinstance(document, str) and kind in _SPELLINGS:
            try:
                same = _SPELLINGS[kind](document)
                return str(same) if kind != "decimal" else exact(same) if same.is_finite() else document
            except (ValueError, ArithmeticError):
                return document
        is_text = self._purpose == "exact" and kind == "decimal" and type(document) is Decimal
        return str(document) if is_text else document

    def _secret(self, document: Any) -> Any:
        is_shown = self._purpose != "display" or document in ("", None)
        return document if is_shown else MASK

    def _object(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        if not isinstance(document, dict):
            return document
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
                sent_as = _own_name(field, owners) or name
                member = self._read(field.plan, member, values.get(field.name, ABSENT), (*path, name))
                read[sent_as if sent_as == name or sent_as not in document else name] = member
            elif owner:  # what is read from inside of it has several owners, or none of its own
                read[name] = self._shared(owner, name, member, values, (*path, name))
            else:
                extras = plan.get("extras_schema")
                read[name] = self._read(extras, member, values.get(name, ABSENT), (*path, name)) if extras else member
        for field in fields:
            given = [way for way in field.paths if _has(document, way)]
            own = [way for way in given if len(owners[str(way[0])]) == 1]
            if len(given) > 1 and own:
                self.twice.append((path, tuple(".".join(map(str, way)) for way in given)))
            is_named = any(len(way) == 1 for way in given)
            if not is_named and self._purpose in (*_VALUES, "display", "complete"):
                self._fill(read, field, _own_name(field, owners) or field.name, values)
        return read

    def _fill(self, read: dict[str, Any], field: Field, name: str, values: Mapping[str, Any]) -> None:
        """Add the default of *field*, if it applies."""
        if name in read or (self._purpose == "complete" and not field.paths):
            return
        if self._purpose in ("bound", "complete") and _has_factory(field.plan) is not (self._purpose == "complete"):
            return
        default = values.get(field.name, ABSENT)
        if default is ABSENT:
            default = field.plan.get("default", ABSENT) if field.plan["type"] == "default" else ABSENT
        if default is ABSENT or isinstance(default, Iterator):
            return
        self.is_complete = True
        read[name] = written(default, mask=MASK if self._purpose == "display" else None, strict=False)

    def _shared(self, owners: Sequence[Field], name: str, member: Any, values: Mapping[str, Any], path: Path) -> Any:
        """A member that several fields read, or that one reads a part of: as it was written, secrets masked."""
        outcomes = [
            self._read(field.plan, member, values.get(field.name, ABSENT), path)
            for field in owners
            if (name,) in field.paths
        ]
        if self._purpose == "display" and len(outcomes) < len(owners) and any(_is_secret(field) for field in owners):
            return MASK  # a part of it, behind a path
        return self._agreed(outcomes, member, path) if outcomes else member

    def _dict(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        if not isinstance(document, dict):
            return document
        inner = plan.get("values_schema", {"type": "any"})
        made: Mapping[str, Any] = {}
        if isinstance(value, Mapping):
            with suppress(ValueError):  # keys that JSON has no names for
                made = {name_in_json(key): each for key, each in value.items()}
                shortest = _by_shortest_names(value) if self._purpose in _VALUES else {}
                beside = {name: each for name, each in shortest.items() if name not in made}
                if (beside or made.keys() != document.keys()) and self._purpose in _VALUES:
                    return written({**value, **beside}, strict=False)  # by the keys that their type has made
        if made.keys() != document.keys():
            made = dict(zip(document, made.values(), strict=True)) if len(made) == len(document) else {}
        return {
            name: self._read(inner, member, made.get(name, ABSENT), (*path, name)) for name, member in document.items()
        }

    def _items(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        if not isinstance(document, list):
            return document
        kind, inner = plan["type"], plan.get("items_schema")
        ordered = isinstance(value, Sequence) and len(value) == len(document)
        values = value if ordered else [ABSENT] * len(document)
        read, needs_values = document, self._purpose in _VALUES
        if inner is not None and inner["type"] in _PLAIN and (not needs_values or (ordered and is_plain(value))):
            read = list(value) if needs_values else document
        elif inner is not None:
            pairs = zip(document, values, strict=True)
            read = [self._read(inner, item, made, (*path, n)) for n, (item, made) in enumerate(pairs)]
        if kind not in ("set", "frozenset") or self._purpose not in ("identity", *_VALUES):
            return read
        unique = {canonical_json(item): item for item in read}
        return [unique[text] for text in sorted(unique)]

    def _tuple(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        if isinstance(document, dict):
            return self._object(plan, document, value, path) if plan["type"] == "named-tuple" else document
        if not isinstance(document, list):
            return document
        plans: list[Any] = plan.get("items_schema") or [field["schema"] for field in plan["fields"]]
        if (variadic := plan.get("variadic_items_index", plan.get("variadic_item_index"))) is not None:
            more = max(len(document) - len(plans) + 1, 0)
            plans = [*plans[:variadic], *[plans[variadic]] * more, *plans[variadic + 1 :]]
        values: Sequence[Any] = value if isinstance(value, tuple) and len(value) >= len(document) else ()
        read = [
            self._read(inner, item, values[n] if values else ABSENT, (*path, n))
            for n, (item, inner) in enumerate(zip(document, plans, strict=False))
        ]
        return read + document[len(read) :]

    def _union(self, plan: Mapping[str, Any], document: Any, value: Any, path: Path) -> Any:
        """*document* as the branches read it that the value can be of, if they agree; else as it was written."""
        known = (id(plan), id(document))
        if isinstance(document, dict | list) and known in self._known:
            return self._known[known]
        choices = plan["choices"]
        listed = list(choices.values()) if isinstance(choices, Mapping) else [_bare(choice) for choice in choices]
        tag = self._tag(plan, document)
        fitting = (
            [n for n, choice in enumerate(listed) if self._fits(choice, document, value)] if tag is None else [tag]
        )
        outcomes = [self._read(listed[n], document, value, path) for n in fitting or range(len(listed))]
        if self._purpose == "exact" and isinstance(document, Decimal):
            read = self._exact(listed, outcomes, document, path)
        elif self._purpose == "identity":
            # With its branch: what one branch reads as the same may be something else to another.
            read = [fitting[0], outcomes[0]] if len(fitting) == 1 else [None, document]
        else:
            read = self._agreed(outcomes, document, path)
        if isinstance(document, dict | list):
            self._known[known] = read
            self._alive.append(document)
        return read

    def _tag(self, plan: Mapping[str, Any], document: Any) -> int | None:
        """Which of the choices *document* names, if it does so by one field."""
        name = plan.get("discriminator")
        if not isinstance(name, str) or not isinstance(document, dict):
            return None
        tags = list(plan["choices"])
        tag = document.get(name)
        return tags.index(tag) if isinstance(tag, str | int) and tag in tags else None

    def _agreed(self, outcomes: Sequence[Any], document: Any, path: Path) -> Any:
        if len(outcomes) == 1 or len({canonical_json(outcome) for outcome in outcomes}) == 1:
            return outcomes[0]
        if self._purpose == "exact":
            self.inexact.append(path)
        return _masked(outcomes) if self._purpose == "display" else document

    def _exact(self, choices: Sequence[Any], outcomes: Sequence[Any], number: Decimal, path: Path) -> Any:
        """*number* as text, where only the Decimal among the *choices* can take it."""
        text = next((outcome for outcome in outcomes if isinstance(outcome, str)), None)
        kinds = {self._kind(choice) for choice in choices}
        if text is None or "float" in kinds:
            return number
        if not kinds <= _NOT_TEXT:
            self.inexact.append(path)
        return text

    def _is_encoded(self, plan: Mapping[str, Any]) -> bool:
        """Whether *plan* decodes a text: what the tool gets is then not what its schema describes."""
        kind = plan["type"]
        if kind == "definition-ref":
            return self._is_encoded(self._plan.refs[plan["schema_ref"]])
        if kind in ("union", "tagged-union"):
            choices = plan["choices"]
            listed = choices.values() if isinstance(choices, Mapping) else map(_bare, choices)
            return any(map(self._is_encoded, listed))
        function = plan["function"].get("function") if kind == "function-after" else None
        if isinstance(getattr(function, "__self__", None), EncodedBytes | EncodedStr):
            return True
        return kind in ("nullable", "default", "function-after") and self._is_encoded(plan["schema"])

    def _kind(self, plan: Mapping[str, Any]) -> str:
        kind: str = plan["type"]
        if kind == "definition-ref":
            return self._kind(self._plan.refs[plan["schema_ref"]])
        return self._kind(plan["schema"]) if kind in ("nullable", "default", "function-after") else kind

    def _fits(self, plan: Mapping[str, Any], document: Any, value: Any, depth: int = 0) -> bool:
        """Whether *plan* can have made *value* of *document*. True in doubt."""
        if value is ABSENT or depth > _DEEPEST:
            return True
        kind = plan["type"]
        if kind in ("model", "dataclass"):
            return isinstance(value, plan["cls"])
        if kind in _SCALARS:
            return isinstance(value, _SCALARS[kind]) and (kind != "int" or not isinstance(value, bool))
        match kind:
            case "none":
                return value is None
            case "nullable" if document is None:
                return value is None
            case "definition-ref":
                return self._fits(self._plan.refs[plan["schema_ref"]], document, value, depth + 1)
            case "list" | "set" | "frozenset":
                if not (type(value) in (list, set, frozenset) and isinstance(document, list)):
                    return False
                inner = plan.get("items_schema") if kind == "list" and isinstance(value, list) else None
                pairs = zip(document, value, strict=False)
                return inner is None or all(self._fits(inner, item, made, depth + 1) for item, made in pairs)
            case "dict":
                if not (isinstance(value, Mapping) and isinstance(document, dict)):
                    return False
                inner = plan.get("values_schema")
                pairs = zip(document.values(), value.values(), strict=False)
                return inner is None or all(self._fits(inner, member, made, depth + 1) for member, made in pairs)
            case "typed-dict":
                return isinstance(value, Mapping) and self._is_typed_dict(plan, document, value)
            case "tuple" | "named-tuple":
                return isinstance(value, plan.get("cls", tuple))
            case "nullable" | "default" | "lax-or-strict" | "json-or-python":
                inner = next(plan[key] for key in ("json_schema", "strict_schema", "schema") if key in plan)
                return self._fits(inner, document, value, depth + 1)
            case _:
                return True

    def _is_typed_dict(self, plan: Mapping[str, Any], document: Any, value: Mapping[str, Any]) -> bool:
        """Whether *value* has all the fields that *document* gives, and no others."""
        fields = self._plan.fields[id(plan)]
        is_open = "allow" in (plan.get("extra_behavior"), (plan.get("config") or {}).get("extra_fields_behavior"))
        given = {field.name for field in fields if any(_has(document, way) for way in field.paths)}
        return given <= value.keys() and (is_open or value.keys() <= {field.name for field in fields})


_DEEPEST = 20
_PLAIN = frozenset({"str", "int", "bool"})
_NOT_TEXT = frozenset(
    {"decimal", "int", "bool", "none", "list", "tuple", "set", "frozenset", "dict", "typed-dict"}
    | {"model", "dataclass", "named-tuple"}
)
"""Types that, strictly, are not read from a string."""


def _by_shortest_names(value: Mapping[Any, Any]) -> dict[str, Any]:
    """What has a number as its key, which may be written in several ways, by its shortest name: `1` for `1.0`."""
    numbers = ((Decimal(str(key)), each) for key, each in value.items() if isinstance(key, Decimal | float))
    near = ((key, each) for key, each in numbers if key.is_finite() and abs(key.adjusted()) < _MOST_PLACES)
    return {_shortest(format(key if key else Decimal(), "f")): each for key, each in near}


def _shortest(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _masked(outcomes: Sequence[Any]) -> Any:
    """What is masked in one of the *outcomes*, at the same place in all."""
    first = outcomes[0]
    if MASK in [outcome for outcome in outcomes if isinstance(outcome, str)]:
        return MASK
    if all(isinstance(outcome, dict) for outcome in outcomes):
        names = dict.fromkeys(name for outcome in outcomes for name in outcome)
        return {name: _masked([outcome[name] for outcome in outcomes if name in outcome]) for name in names}
    if all(isinstance(outcome, list) and len(outcome) == len(first) for outcome in outcomes):
        return [_masked(items) for items in zip(*outcomes, strict=True)]
    return first


def _bare(choice: Any) -> Any:
    return choice[0] if isinstance(choice, tuple) else choice


def _own_name(field: Field, owners: Mapping[str, Sequence[Field]]) -> str | None:
    """The name of *field* in the JSON Schema; None where that is a path, or another field reads the name, too."""
    first = field.paths[0] if field.paths else ()
    return str(first[0]) if len(first) == 1 and len(owners.get(str(first[0]), ())) == 1 else None


def _members(value: Any) -> Mapping[str, Any]:
    """The fields of a model, a dataclass, a TypedDict or a named tuple, by name."""
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
    """A scalar of the *document* as the tool gets it: stripped, normalized, or whatever its validators do to it."""
    if type(value) in (str, int, float, bool):
        return value
    try:
        if isinstance(value, Decimal) and value.is_finite():
            return exact(value)
        return document if isinstance(value, Iterator) else to_jsonable_python(written(value))
    except (ValueError, ArithmeticError, RecursionError):  # a type that only its own validator knows
        return document


def _has_factory(plan: Mapping[str, Any]) -> bool:
    """Whether the default of a field is made for each call."""
    while plan["type"] != "default" and isinstance(plan.get("schema"), Mapping):
        plan = plan["schema"]
    return plan["type"] == "default" and "default_factory" in plan


def _is_secret(field: Field) -> bool:
    return any(secret.__name__ in str(field.plan) for secret in _SECRETS)


def _is_of_pydantic(plan: Mapping[str, Any]) -> bool:
    function = plan["function"]["function"]
    return str(getattr(getattr(function, "func", function), "__module__", "")).startswith("pydantic.")
