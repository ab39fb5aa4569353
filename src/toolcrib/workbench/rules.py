"""Rules as data: the first that matches a call decides whether it runs.

Where a rule cannot be compared with a call (an amount that is text, a value that has no JSON form), a rule that allows
does not match, and one that denies or asks does. So an odd call never gets further than a plain one.
"""

import operator as operators
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args

from annotated_doc import Doc
from annotated_types import MinLen

from ..core import Caller, Decision, Do, Hints, SetupError, ToolSpec, translate_glob
from ..schema import display_name, to_json_values
from ..schema.declared import from_rows, require_fields

Hint = Literal["read_only", "destructive", "idempotent", "open_world", "long_running"]
NotHint = Literal["not read_only", "not destructive", "not idempotent", "not open_world", "not long_running"]
Names = Annotated[str, MinLen(1)] | Annotated[Sequence[Annotated[str, MinLen(1)]], MinLen(1)]

_OPAQUE = object()
_NUMBER_OR_TEXT = "a number or a text"
_OPERATORS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "eq": ((object,), ""),
    "ne": ((object,), ""),
    "gt": ((int, float, str), _NUMBER_OR_TEXT),
    "ge": ((int, float, str), _NUMBER_OR_TEXT),
    "lt": ((int, float, str), _NUMBER_OR_TEXT),
    "le": ((int, float, str), _NUMBER_OR_TEXT),
    "in": ((list, tuple), "a list"),
    "like": ((str,), "a pattern"),
    "exists": ((bool,), "true or false"),
}
"""The operators of a condition, with the types that each compares with, and their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What to do with the calls that match. Every condition of a rule must hold; the first rule that matches decides.

    Raises SetupError for a rule that could never match or decide.
    """

    do: Annotated[Do, Doc("Allow the call, deny it, or ask a person.")]
    tools: Annotated[
        Names, Doc("Globs of tool names, one or several: '*' is any text, '?' one character, '.' any separator.")
    ] = "*"
    hint: Annotated[
        Hint | NotHint | None, Doc("Tools that have this hint; with 'not ' before it, tools that do not have it.")
    ] = None
    principals: Annotated[Names, Doc("Globs of the names of callers, one or several.")] = "*"
    tags: Annotated[str | Sequence[str], Doc("Tools that have one of these tags.")] = ()
    where: Annotated[
        Mapping[str, Any],
        Doc(
            "Conditions on arguments by JSON pointer (RFC 6901), where '*' is any member. Text is a pattern, another "
            "value is compared, a table has operators: { '/path' = '/etc/*', '/amount' = { gt = 100 } }."
        ),
    ] = field(default_factory=dict[str, Any])
    message: Annotated[str, Doc("The reason: sent to the model when denied, shown to the person when asked.")] = ""
    others_only: Annotated[bool, Doc("Whether the caller may not answer, but only somebody else.")] = False
    name: Annotated[str | None, Doc("The name under which the decision is recorded.")] = None

    def __post_init__(self) -> None:
        require_fields(self)
        if self.others_only and self.do != "ask":
            raise SetupError("'others_only' restricts who may answer, so it needs do = \"ask\".")
        for pointer, condition in self.where.items():
            _require_condition(pointer, condition)

    def matches(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> bool:
        """Whether the rule matches this call. *arguments* are the checked ones."""
        if not (
            any(_like(pattern, spec.name, tool=True) for pattern in _each(self.tools))
            and any(_like(pattern, caller.principal) for pattern in _each(self.principals))
            and (not self.tags or not spec.tags.isdisjoint(_each(self.tags)))
            and (self.hint is None or _hinted(self.hint, spec.hints))
        ):
            return False
        if not self.where:
            return True
        # An argument that a call leaves out has its default, so that is what a condition compares.
        written = {**spec.defaults(), **to_json_values(arguments, lambda _: _OPAQUE)}
        in_doubt = self.do != "allow"
        return all(_holds(written, pointer, condition, in_doubt) for pointer, condition in self.where.items())


class Rules:
    """A policy of rules: the first that matches decides, and where none does, *default*.

    Raises SetupError for a default that is not a decision.
    """

    def __init__(self, rules: Iterable[Rule], *, default: Do = "allow") -> None:
        self._rules = tuple(rules)
        if not all(isinstance(rule, Rule) for rule in self._rules):
            raise SetupError("Rules takes Rule objects. For data, as in a file, use rules_from_data([...]).")
        if default not in get_args(Do):
            raise SetupError(
                f"'default' of Rules is one of {', '.join(get_args(Do))}, not '{display_name(str(default))}'."
            )
        self._default = Decision(default, "default")
        self._decisions = tuple(
            Decision(rule.do, rule.name or f"rule {number}", rule.message, rule.others_only)
            for number, rule in enumerate(self._rules, 1)
        )

    def __call__(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Decision:
        for rule, decided in zip(self._rules, self._decisions, strict=True):
            if rule.matches(spec, arguments, caller):
                return decided
        return self._default

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return f"<Rules: {len(self)}, else {self._default.do}>"


def rules_from_data(data: Iterable[Mapping[str, Any]], *, default: Do = "allow") -> Rules:
    """Rules from a list of tables, as TOML has them. Raises SetupError, naming the table and the key."""
    return Rules(from_rows(Rule, data, of="rule"), default=default)


def _require_condition(pointer: str, condition: Any) -> None:
    if not pointer.startswith("/"):
        raise SetupError(
            f"'{display_name(pointer)}' in 'where' is not a JSON pointer, which begins with '/', as in '/path'."
        )
    if not isinstance(condition, Mapping):
        return
    known = f"The operators are: {', '.join(_OPERATORS)}."
    if not condition:
        raise SetupError(f"'where' has no condition for '{pointer}'. {known}")
    for operator, bound in condition.items():
        if operator not in _OPERATORS:
            raise SetupError(f"'where' has no operator '{display_name(str(operator))}' (for '{pointer}'). {known}")
        types, expected = _OPERATORS[operator]
        # A bool is an int to Python, and not a number to anybody else.
        if not isinstance(bound, types) or (expected == _NUMBER_OR_TEXT and isinstance(bound, bool)):
            raise SetupError(f"'{operator}' for '{pointer}' takes {expected}.")


def _each(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _hinted(hint: str, hints: Hints) -> bool:
    if hint.startswith("not "):
        return getattr(hints, hint.removeprefix("not ")) is not True
    return getattr(hints, hint) is True


def _like(pattern: str, text: str, *, tool: bool = False) -> bool:
    return _compiled(pattern, tool).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str, tool: bool) -> re.Pattern[str]:
    return re.compile(translate_glob(pattern, tool=tool), re.DOTALL)


def _holds(root: Any, pointer: str, condition: Any, in_doubt: bool) -> bool:
    found = list(_at(root, [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]))
    tests = condition if isinstance(condition, Mapping) else {"like" if isinstance(condition, str) else "eq": condition}
    if not found:
        # Nothing else is true of a value that is not there.
        return all((op == "exists" and bound is False) or op == "ne" for op, bound in tests.items())
    return any(all(_true(op, value, bound, in_doubt) for op, bound in tests.items()) for value in found)


def _at(value: Any, parts: Sequence[str]) -> Iterator[Any]:
    if not parts or value is _OPAQUE:
        yield value
        return
    part, rest = parts[0], parts[1:]
    if isinstance(value, Mapping):
        for inner in value.values() if part == "*" else [value[part]] if part in value else ():
            yield from _at(inner, rest)
    elif isinstance(value, list):
        indexes = range(len(value)) if part == "*" else [int(part)] if part.isascii() and part.isdigit() else ()
        for index in indexes:
            if index < len(value):
                yield from _at(value[index], rest)


def _true(operator: str, value: Any, bound: Any, in_doubt: bool) -> bool:
    if operator == "exists":
        return bound is True
    if value is _OPAQUE:
        return in_doubt
    match operator:
        case "eq":
            return _same(value, bound)
        case "ne":
            return not _same(value, bound)
        case "in":
            return any(_same(value, each) for each in bound)
        case "like":
            return _like(bound, value) if isinstance(value, str) else in_doubt and isinstance(value, list | dict)
        case _:
            ordered = _ordered(value, bound)
            if ordered is None:
                return in_doubt
            return bool(getattr(operators, operator)(*ordered))


def _same(value: Any, bound: Any) -> bool:
    if isinstance(value, bool) or isinstance(bound, bool):
        return value is bound
    if isinstance(bound, tuple):
        bound = list(bound)
    return bool(value == bound)


def _ordered(value: Any, bound: Any) -> tuple[Any, Any] | None:
    """Both as numbers or both as text; None where they have no order."""
    if isinstance(bound, str):
        return (value, bound) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        left, right = Decimal(str(value)), Decimal(str(bound))
    except InvalidOperation:
        return None
    return None if left.is_nan() or right.is_nan() else (left, right)
