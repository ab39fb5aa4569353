"""Rules as data: the first that matches a call decides over it.

Where a rule cannot be compared with a call (an amount that is text, a value that has no JSON form), a rule that allows
does not match, and one that denies or asks does. So a call never gets further for being odd.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, get_args

from ..core import Caller, Decided, Do, Hints, SetupError, ToolSpec, translated

Names = str | Sequence[str]

_MISSING = object()
_OPAQUE = object()
_OPERATORS = ("eq", "ne", "gt", "ge", "lt", "le", "in", "like", "exists")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What to *do* (`allow`, `deny`, `ask`) with the calls that it matches. All that is said must be true of a call.

    - *tools*, *principals*: patterns, one or several, with `*` for anything and `?` for one character. In a tool's name
      `.` stands for whatever separates a prefix from the rest: `db.*` is `db_query` and `db-query` too.
    - *hint*: what the tool says of itself: `read_only`, `destructive`, `idempotent`, `open_world` or `long_running`;
      `not read_only` for every tool that does not say so.
    - *tags*: the tool has one of these.
    - *where*: conditions on arguments, by JSON pointer (RFC 6901), where `*` is any member: text is a pattern, another
      JSON value is itself, and a table has operators (`eq`, `ne`, `gt`, `ge`, `lt`, `le`, `in`, `like`, `exists`):
      `{"/path": "/etc/*", "/amount": {"gt": 100}}`.
    - *message*: the reason of a `deny`, told to the model; of an `ask`, shown to the person.
    - *others_only*: whoever made the call may not answer it.
    - *name*: under which it is recorded.

    Raises SetupError for what can never match or be decided.
    """

    do: Do
    tools: Names = "*"
    hint: str | None = None
    principals: Names = "*"
    tags: Names = ()
    where: Mapping[str, Any] = field(default_factory=dict[str, Any])
    message: str = ""
    others_only: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        _require_one_of("do", self.do, get_args(Do))
        for key in ("tools", "principals", "tags"):
            value = getattr(self, key)
            if not isinstance(value, str | list | tuple) or not all(isinstance(name, str) for name in value):
                raise SetupError(f"'{key}' of a rule is a text or a list of texts.")
            if key != "tags" and not (value and all(_each(value))):
                raise SetupError(f"'{key}' of a rule says nothing, so it would match no call. Leave it out for all.")
        for key, kind, said in (
            ("message", str, "a text"),
            ("others_only", bool, "true or false"),
            ("name", str | None, "a text"),
        ):
            if not isinstance(getattr(self, key), kind):
                raise SetupError(f"'{key}' of a rule is {said}.")
        if self.others_only and self.do != "ask":
            raise SetupError("'others_only' says who may answer, so it goes with do = \"ask\".")
        if self.hint is not None:
            _require_one_of("hint", str(self.hint).removeprefix("not "), tuple(Hints.__slots__))
        if not isinstance(self.where, Mapping):
            raise SetupError("'where' of a rule is a table of conditions by JSON pointer.")
        for pointer, condition in self.where.items():
            _require_condition(pointer, condition)

    def matches(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> bool:
        """Whether the rule is about this call. *arguments* are the checked ones."""
        if not (
            any(_like(pattern, spec.name, tool=True) for pattern in _each(self.tools))
            and any(_like(pattern, caller.principal) for pattern in _each(self.principals))
            and (not self.tags or not spec.tags.isdisjoint(_each(self.tags)))
            and (self.hint is None or _hinted(self.hint, spec.hints))
        ):
            return False
        if not self.where:
            return True
        from ..schema import plain

        # What a call leaves out runs with its default, so that is what a condition is about.
        written = {**spec.defaults(), **plain(arguments, lambda _: _OPAQUE)}
        in_doubt = self.do != "allow"
        return all(_holds(written, pointer, condition, in_doubt) for pointer, condition in self.where.items())


class Rules:
    """A policy of rules: the first that matches decides, and where none does, *default*.

    Raises SetupError for a default that is no decision.
    """

    def __init__(self, rules: Iterable[Rule], *, default: Do = "allow") -> None:
        self._rules = tuple(rules)
        if not all(isinstance(rule, Rule) for rule in self._rules):
            raise SetupError("Rules takes Rule objects. For data, as from a file: rules_from_data([...]).")
        _require_one_of("default", default, get_args(Do))
        self._default = Decided(default, "default")
        self._decisions = tuple(
            Decided(rule.do, rule.name or f"rule {number}", rule.message, rule.others_only)
            for number, rule in enumerate(self._rules, 1)
        )

    def __call__(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Decided:
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
    """The rules of a file: one mapping each, with the names of `Rule`.

    Raises SetupError, with the number of the rule, for names that a rule does not have and for values it cannot take.
    """
    if isinstance(data, Mapping | str):
        raise SetupError("Rules are a list of tables: [[rule]].")
    known = [each.name for each in fields(Rule)]
    rules: list[Rule] = []
    for number, row in enumerate(data, 1):
        if not isinstance(row, Mapping):
            raise SetupError(f"Rule {number} is no table, but a {type(row).__name__}.")
        for key in row:
            if key not in known:
                raise SetupError(
                    f"Rule {number}: there is no '{_short(key)}' in a rule.{_meant(key, known)} "
                    f"It takes: {', '.join(known)}."
                )
        if "do" not in row:
            raise SetupError(f'Rule {number} does not say what to do. Add do = "allow", "deny" or "ask".')
        try:
            rules.append(Rule(**row))
        except SetupError as error:
            raise SetupError(f"Rule {number}: {error}") from None
    return Rules(rules, default=default)


def _require_one_of(key: str, value: Any, known: Sequence[str]) -> None:
    if isinstance(value, str) and value in known:
        return
    raise SetupError(
        f"'{key}' of a rule cannot be '{_short(value)}'.{_meant(value, known)} It is one of: {', '.join(known)}."
    )


def _meant(name: Any, known: Sequence[str]) -> str:
    from ..schema import nearest

    meant = nearest(name, known) if isinstance(name, str) else None
    return f" Did you mean '{meant}'?" if meant else ""


def _short(value: Any) -> str:
    from ..schema import spoken

    return spoken(str(value))


def _require_condition(pointer: Any, condition: Any) -> None:
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        raise SetupError(f"'{_short(pointer)}' in 'where' is no JSON pointer: one begins with '/', as in '/path'.")
    if not isinstance(condition, Mapping):
        return
    if not condition:
        raise SetupError(f"'where' says nothing of '{pointer}'. The operators are: {', '.join(_OPERATORS)}.")
    for operator, bound in condition.items():
        if operator not in _OPERATORS:
            raise SetupError(
                f"'where' has no operator '{_short(operator)}' (of '{pointer}'). It has: {', '.join(_OPERATORS)}."
            )
        wants = {"in": list | tuple, "like": str, "exists": bool}.get(operator)
        if wants is not None and not isinstance(bound, wants):
            said = {"in": "a list", "like": "a pattern", "exists": "true or false"}[operator]
            raise SetupError(f"'{operator}' of '{pointer}' takes {said}.")
        if operator in ("gt", "ge", "lt", "le") and type(bound) not in (int, float, str):
            raise SetupError(f"'{operator}' of '{pointer}' takes a number or a text.")


def _each(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _hinted(hint: str, hints: Hints) -> bool:
    if hint.startswith("not "):
        return getattr(hints, hint.removeprefix("not ")) is not True
    return getattr(hints, hint) is True


def _like(pattern: str, text: str, *, tool: bool = False) -> bool:
    return _compiled(pattern, tool).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str, tool: bool) -> re.Pattern[str]:
    return re.compile(translated(pattern, tool=tool), re.DOTALL)


def _holds(root: Any, pointer: str, condition: Any, in_doubt: bool) -> bool:
    found = list(_at(root, [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]))
    tests = condition if isinstance(condition, Mapping) else {"like" if isinstance(condition, str) else "eq": condition}
    if not found:
        # Of what is not there, only this can be said.
        return all((op == "exists" and bound is False) or op == "ne" for op, bound in tests.items())
    return any(all(_true(op, value, bound, in_doubt) for op, bound in tests.items()) for value in found)


def _at(value: Any, parts: Sequence[str]) -> Iterator[Any]:
    if not parts:
        yield value
        return
    if value is _OPAQUE:
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
            left, right = ordered
            return bool({"gt": left > right, "ge": left >= right, "lt": left < right, "le": left <= right}[operator])


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
