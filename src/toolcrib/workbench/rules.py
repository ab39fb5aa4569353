"""Rules as data: the first that matches a call decides whether it runs.

Where a rule cannot judge a call (an amount that is text, a value that has no JSON form), the call is denied, whatever
the rule does: so an odd call never gets further than a plain one. A rule that can match none of its tools, or can never
judge one of them, is refused (`GuardedRules`), so that a typing error in it lets nothing through.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, get_args

from annotated_doc import Doc
from annotated_types import MinLen

from ..call import CheckedArguments
from ..core import Caller, Decision, Hints, SetupError, ToolError, ToolSpec
from ..machinery import Do
from ..schema import closest_match, display_name, written
from ..schema.declared import from_rows, require_fields
from ..schema.describe import did_you_mean
from ..schema.view import steps
from .conditions import (
    ABSENT,
    ANYWHERE,
    OPAQUE,
    Place,
    agreed,
    all_of,
    can_hold,
    can_judge,
    compare,
    is_like,
    judge,
    names_of,
    place_of,
)

Hint = Literal["read_only", "destructive", "idempotent", "open_world", "long_running"]
NotHint = Literal["not read_only", "not destructive", "not idempotent", "not open_world", "not long_running"]
Names = Annotated[str, MinLen(1)] | Annotated[Sequence[Annotated[str, MinLen(1)]], MinLen(1)]

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
    groups: Annotated[
        str | Sequence[str], Doc("Globs of groups, one or several: callers that are in one of them.")
    ] = ()
    claims: Annotated[
        Mapping[str, Names],
        Doc("Claims that the caller's token must have, each with one or several globs: { org = 'acme' }."),
    ] = field(default_factory=dict[str, Names])
    tags: Annotated[str | Sequence[str], Doc("Tools that have one of these tags.")] = ()
    where: Annotated[
        Mapping[str, Any],
        Doc(
            "Conditions on arguments by JSON pointer (RFC 6901), where '*' is any member. Text is a pattern, another "
            "value is compared, a table has operators: { '/path' = '/etc/*', '/amount' = { gt = 100 } }."
        ),
    ] = field(default_factory=dict[str, Any])
    message: Annotated[str, Doc("The reason: sent to the model when denied, shown to the person when asked.")] = ""
    others_only: Annotated[bool, Doc("Whether another person than the caller has to answer.")] = False
    name: Annotated[str | None, Doc("The name under which the decision is recorded.")] = None

    def __post_init__(self) -> None:
        require_fields(self)
        if self.others_only and self.do != "ask":
            raise SetupError("'others_only' restricts who may answer, so it needs do = \"ask\".")
        for pointer, condition in self.where.items():
            _require_condition(pointer, condition)

    def matches(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> bool:
        """Return whether the rule matches this call. *arguments* are the checked ones.

        Raises ToolError `denied`, naming the field, where a condition can be neither true nor false of a value.
        """
        if not (self.is_about(spec) and self.is_for(caller)):
            return False
        if not self.where:
            return True
        # An argument that a call leaves out has its default, so that is what a condition compares.
        if isinstance(arguments, CheckedArguments):
            # The items of an iterator are validated when the tool takes them: what it will get is not known yet.
            unknown = {name: OPAQUE for name, value in arguments.items() if isinstance(value, Iterator)}
            views = [{**view, **unknown} for view in arguments.forms.views]
        else:
            views = [{**spec.defaults(), **written(arguments, strict=False, other=lambda _: OPAQUE)}]
        # What was sent may not be what the tool gets of it: a condition must be the same of both.
        results = {
            pointer: agreed(_holds(view, spec, pointer, condition) for view in views)
            for pointer, condition in self.where.items()
        }
        result = all_of(results.values())
        if result is None:
            pointer = next(pointer for pointer, holds in results.items() if holds is None)
            raise _NotJudged(f"a rule cannot judge what is at '{display_name(pointer)}'.", "denied")
        return result

    def is_for(self, caller: Caller) -> bool:
        """Return whether the rule is for this caller. One who lacks a group or a claim does not have it, whatever the
        rule.
        """
        return (
            any(glob == "*" or is_like(glob, caller.principal) for glob in _globs(self.principals))
            and (
                not self.groups or any(is_like(glob, group) for glob in _globs(self.groups) for group in caller.groups)
            )
            and all(
                any(name == claim and is_like(glob, value) for glob in _globs(globs) for claim, value in caller.claims)
                for name, globs in self.claims.items()
            )
        )

    @property
    def is_for_all(self) -> bool:
        """Whether the rule is for every caller."""
        return "*" in _globs(self.principals) and not self.groups and not self.claims

    def is_about(self, spec: ToolSpec) -> bool:
        """Return whether the rule is for this tool, for some of its calls by some callers."""
        return (
            any(pattern == "*" or is_like(pattern, spec.name, tool=True) for pattern in _globs(self.tools))
            and (not self.tags or not spec.tags.isdisjoint(_globs(self.tags)))
            and (self.hint is None or _hinted(self.hint, spec.hints))
        )

    def mismatches(self, specs: Iterable[ToolSpec]) -> dict[str, str]:
        """Return the tools that the rule is for and can never match, by name, each with the reason.

        Of tools that a pattern names, those that it can never judge, and no others where it can match one of them: a
        rule for '*' is about the tools that have the argument.
        """
        about = [spec for spec in specs if self.is_about(spec)] if self.where else []
        # For example {"pay": _Mismatch("'pay' takes nothing at '/amont'. ...", is_judged=True)}
        mismatches = {spec.name: mismatch for spec in about if (mismatch := self._mismatch(spec)) is not None}
        is_for_some = len(mismatches) < len(about)
        names = _globs(self.tools)
        return {
            name: mismatch.reason
            for name, mismatch in mismatches.items()
            if not (is_for_some and mismatch.is_judged and name not in names)
        }

    def problem(self, mismatches: Mapping[str, str]) -> str:
        """Return the sentence about *mismatches* of the rule."""
        first, *rest = mismatches.values()
        more = f" The same holds for {len(rest)} other tool{'s' * (len(rest) > 1)}." if rest else ""
        return f"({self.do}) can never match: {first}{more}"

    def _mismatch(self, spec: ToolSpec) -> "_Mismatch | None":
        for pointer, condition in self.where.items():
            tests, place = _tests(condition), _place(spec, pointer)
            if place is None and not all(compare(ANYWHERE, op, ABSENT, operand) for op, operand in tests.items()):
                reason = f"'{spec.name}' takes nothing at '{display_name(pointer)}'.{_nearest(spec, pointer)}"
                return _Mismatch(reason, is_judged=True)
            if place is not None and not can_hold(place, tests):
                types = " or ".join(sorted(place.types or ())) or "value"
                kind = "one of a few values" if place.constants is not None else f"of type {types}"
                return _Mismatch(
                    f"what '{spec.name}' takes at '{display_name(pointer)}' is {kind}, which is never "
                    "what the rule compares it with.",
                    can_judge(place, tests),
                )
        return None


class _Mismatch(NamedTuple):
    """Why a rule never matches a tool. *is_judged*: its conditions are false of the tool's calls."""

    reason: str
    is_judged: bool


class _NotJudged(ToolError):
    """A call of which a condition is neither true nor false."""


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
            (rule, Decision(rule.do, rule.name or f"rule {number}", rule.message, rule.others_only))
            for number, rule in enumerate(self._rules, 1)
        )

    def __call__(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Decision:
        for rule, decision in self._decisions:
            try:
                if rule.matches(spec, arguments, caller):
                    return decision
            except _NotJudged as error:
                return Decision("deny", decision.rule, error.message)
        return self._default

    def hides(self, spec: ToolSpec, caller: Caller) -> bool:
        """Return whether every call of this tool by *caller* is denied, whatever its arguments are."""
        for rule in self._rules:
            if rule.is_about(spec) and rule.is_for(caller):
                if rule.do != "deny":
                    return False
                if not rule.where:
                    return True
        return self._default.do == "deny"

    def guarded(self, specs: Callable[[], Sequence[ToolSpec]]) -> "GuardedRules":
        """Return the same policy for the tools that *specs* returns, which denies those that a rule can never match."""
        return GuardedRules(self, specs)

    def named(self) -> Iterator[tuple[str, Rule]]:
        """Return the rules, each with the name under which its decision is recorded."""
        yield from ((str(decision.rule), rule) for rule, decision in self._decisions)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return f"<Rules: {len(self)}, else {self._default.do}>"


def rules_from_data(data: Iterable[Mapping[str, Any]], *, default: Do = "allow") -> Rules:
    """Read rules from a list of tables, as TOML has them. Raises SetupError, naming the table and the key."""
    return Rules(from_rows(Rule, data, of="rule"), default=default)


def _require_condition(pointer: str, condition: Any) -> None:
    if not pointer.startswith("/"):
        raise SetupError(
            f"'{display_name(pointer)}' in 'where' is not a JSON pointer, which begins with '/', as in '/path'."
        )
    if not isinstance(condition, Mapping):
        return
    operators = f"The operators are: {', '.join(_OPERATORS)}."
    if not condition:
        raise SetupError(f"'where' has no condition for '{pointer}'. {operators}")
    for operator, operand in condition.items():
        if operator not in _OPERATORS:
            raise SetupError(f"'where' has no operator '{display_name(str(operator))}' (for '{pointer}'). {operators}")
        types, expected = _OPERATORS[operator]
        # A bool is an int to Python, and not a number to a person.
        if not isinstance(operand, types) or (expected == _NUMBER_OR_TEXT and isinstance(operand, bool)):
            raise SetupError(f"'{operator}' for '{pointer}' takes {expected}.")


def _globs(globs: str | Sequence[str]) -> Sequence[str]:
    return (globs,) if isinstance(globs, str) else globs


def _tests(condition: Any) -> Mapping[str, Any]:
    """Return *condition* as operators with what they compare with."""
    if isinstance(condition, Mapping):
        return condition
    return {"like" if isinstance(condition, str) else "eq": condition}


def _holds(view: Any, spec: ToolSpec, pointer: str, condition: Any) -> bool | None:
    tests, place = _tests(condition), _place(spec, pointer) or ANYWHERE

    def holds(value: Any) -> bool | None:
        return all_of(compare(place, op, value, operand) for op, operand in tests.items())

    return judge(view, steps(pointer), spec, holds)


def _place(spec: ToolSpec, pointer: str) -> Place | None:
    entry = _places.get((id(spec), pointer))
    if entry is None:
        if len(_places) >= _MAX_PLACES:
            _places.clear()
        # With the spec, so that no other one gets its id meanwhile.
        entry = _places[id(spec), pointer] = spec, place_of(spec, pointer)
    return entry[1]


_places: dict[tuple[int, str], tuple[ToolSpec, Place | None]] = {}
_MAX_PLACES = 10_000


def _nearest(spec: ToolSpec, pointer: str) -> str:
    names = [*spec.input_schema.get("properties", ())]
    first = steps(pointer)[0]
    return "" if any(name in names for name in names_of(first, spec)) else did_you_mean(closest_match(first, names))


class GuardedRules:
    """The policy *rules* over tools that come and go: what a rule can never match is denied.

    *specs* returns the tools that are there.
    """

    def __init__(self, rules: Rules, specs: Callable[[], Sequence[ToolSpec]]) -> None:
        self._rules = rules
        self._specs = specs
        self._checked: dict[str, ToolSpec] = {}
        self._denials: dict[str, Decision] = {}

    def check(self, *more: ToolSpec) -> Sequence[str]:
        """Find out again which tools are withheld. Returns a problem for each rule that withholds one."""
        specs = {spec.name: spec for spec in (*self._specs(), *more)}
        denials: dict[str, Decision] = {}
        problems: list[str] = []
        for label, rule in self._rules.named():
            if mismatches := rule.mismatches(specs.values()):
                problems.append(f"{label} {rule.problem(mismatches)}")
                denial = Decision("deny", label, "a rule about it can never match.")
                denials = dict.fromkeys(mismatches, denial) | denials
        self._denials, self._checked = denials, specs
        return problems

    def __call__(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Decision:
        if self._checked.get(spec.name) is not spec:
            self.check(spec)
        return self._denials.get(spec.name) or self._rules(spec, arguments, caller)


def _hinted(hint: str, hints: Hints) -> bool:
    if hint.startswith("not "):
        return getattr(hints, hint.removeprefix("not ")) is not True
    return getattr(hints, hint) is True
