"""Rules as data: the first that matches a call decides whether it runs.

Where a rule cannot be compared with a call (an amount that is text, a value that has no JSON form), a rule that allows
does not match, and one that denies or asks does. So an odd call never gets further than a plain one. A rule that can
match none of its tools is refused (`GuardedRules`), so that a typing error in it lets nothing through.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from annotated_doc import Doc
from annotated_types import MinLen

from ..call import CheckedArguments
from ..core import Caller, Decision, Hints, SetupError, ToolSpec
from ..machinery import Do
from ..schema import closest_match, display_name, to_json_values
from ..schema.declared import from_rows, require_fields
from ..schema.describe import did_you_mean
from ..schema.view import steps
from .conditions import ANYWHERE, OPAQUE, Place, can_hold, compare, holds_at, is_like, names_of, place_of

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
    others_only: Annotated[bool, Doc("Whether the caller may not answer, but only somebody else.")] = False
    name: Annotated[str | None, Doc("The name under which the decision is recorded.")] = None

    def __post_init__(self) -> None:
        require_fields(self)
        if self.others_only and self.do != "ask":
            raise SetupError("'others_only' restricts who may answer, so it needs do = \"ask\".")
        for pointer, condition in self.where.items():
            _require_condition(pointer, condition)

    def matches(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> bool:
        """Return whether the rule matches this call. *arguments* are the checked ones."""
        if not (self.is_about(spec) and self.is_for(caller)):
            return False
        if not self.where:
            return True
        # An argument that a call leaves out has its default, so that is what a condition compares.
        if isinstance(arguments, CheckedArguments):
            # The items of an iterator are validated when the tool takes them: what it will get is not known yet.
            unknown = {name: OPAQUE for name, value in arguments.items() if isinstance(value, Iterator)}
            views = [{**view, **unknown} for view in arguments.accepted.views]
        else:
            views = [{**spec.defaults(), **to_json_values(arguments, lambda _: OPAQUE)}]
        # What was sent may not be what the tool gets of it: a rule that allows must hold of both, another of either.
        in_doubt = self.do != "allow"
        decide = any if in_doubt else all
        return all(
            decide(_holds(view, spec, pointer, condition, in_doubt) for view in views)
            for pointer, condition in self.where.items()
        )

    def is_for(self, caller: Caller) -> bool:
        """Return whether the rule is for this caller. One who lacks a group or a claim does not have it, whatever the
        rule.
        """
        return (
            any(p == "*" or is_like(p, caller.principal) for p in _each(self.principals))
            and (not self.groups or any(is_like(p, group) for p in _each(self.groups) for group in caller.groups))
            and all(
                any(name == has and is_like(p, value) for p in _each(patterns) for has, value in caller.claims)
                for name, patterns in self.claims.items()
            )
        )

    @property
    def is_for_all(self) -> bool:
        """Whether the rule is for every caller."""
        return "*" in _each(self.principals) and not self.groups and not self.claims

    def is_about(self, spec: ToolSpec) -> bool:
        """Return whether the rule is for this tool, for some of its calls by some callers."""
        return (
            any(pattern == "*" or is_like(pattern, spec.name, tool=True) for pattern in _each(self.tools))
            and (not self.tags or not spec.tags.isdisjoint(_each(self.tags)))
            and (self.hint is None or _hinted(self.hint, spec.hints))
        )

    def mismatches(self, specs: Iterable[ToolSpec]) -> dict[str, str]:
        """Return the tools that the rule is for and can never match, by name, each with the reason.

        Of tools that a pattern names, none where it can match another one: a rule for '*' is about the tools that have
        the argument.
        """
        about = [spec for spec in specs if self.is_about(spec)] if self.where else []
        found = {spec.name: reason for spec in about if (reason := self._mismatch(spec)) is not None}
        if len(found) < len(about):
            found = {name: reason for name, reason in found.items() if name in _each(self.tools)}
        return found

    def problem(self, mismatches: Mapping[str, str]) -> str:
        """Return the sentence about *mismatches* of the rule."""
        first, *others = mismatches.values()
        more = f" The same holds for {len(others)} other tool{'s' * (len(others) > 1)}." if others else ""
        return f"({self.do}) can never match: {first}{more}"

    def _mismatch(self, spec: ToolSpec) -> str | None:
        for pointer, condition in self.where.items():
            tests, place = _tests(condition), _place(spec, pointer)
            if place is None and not all(map(_holds_without, tests.items())):
                return f"'{spec.name}' takes nothing at '{display_name(pointer)}'.{_nearest(spec, pointer)}"
            if place is not None and not can_hold(place, tests):
                types = " or ".join(sorted(place.types or ())) or "value"
                what = "one of a few values" if place.constants is not None else f"of type {types}"
                return (
                    f"what '{spec.name}' takes at '{display_name(pointer)}' is {what}, which is never "
                    "what the rule compares it with."
                )
        return None


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
        self._decided = tuple(
            (rule, Decision(rule.do, rule.name or f"rule {number}", rule.message, rule.others_only))
            for number, rule in enumerate(self._rules, 1)
        )

    def __call__(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Decision:
        for rule, decided in self._decided:
            if rule.matches(spec, arguments, caller):
                return decided
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
        yield from ((str(decided.rule), rule) for rule, decided in self._decided)

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


def _tests(condition: Any) -> Mapping[str, Any]:
    """Return *condition* as operators with what they compare with."""
    if isinstance(condition, Mapping):
        return condition
    return {"like" if isinstance(condition, str) else "eq": condition}


def _holds(root: Any, spec: ToolSpec, pointer: str, condition: Any, in_doubt: bool) -> bool:
    tests, place = _tests(condition), _place(spec, pointer) or ANYWHERE

    def holds(value: Any) -> bool:
        results = (compare(place, op, value, bound) for op, bound in tests.items())
        return all(in_doubt if result is None else result for result in results)

    found = holds_at(root, steps(pointer), spec, holds, in_doubt=in_doubt)
    return all(map(_holds_without, tests.items())) if found is None else found


def _holds_without(test: tuple[str, Any]) -> bool:
    """Return whether a test is true of a value that is not there."""
    op, bound = test
    return (op == "exists" and bound is False) or op == "ne"


def _place(spec: ToolSpec, pointer: str) -> Place | None:
    known = _places.get((id(spec), pointer))
    if known is None:
        if len(_places) >= _MOST_PLACES:
            _places.clear()
        # With the spec, so that no other one gets its id meanwhile.
        known = _places[id(spec), pointer] = spec, place_of(spec, pointer)
    return known[1]


_places: dict[tuple[int, str], tuple[ToolSpec, Place | None]] = {}
_MOST_PLACES = 10_000


def _nearest(spec: ToolSpec, pointer: str) -> str:
    known = [*spec.input_schema.get("properties", ())]
    first = steps(pointer)[0]
    return "" if any(name in known for name in names_of(first, spec)) else did_you_mean(closest_match(first, known))


class GuardedRules:
    """The policy *rules* over tools that come and go: what a rule can never match is denied.

    *specs* returns the tools that are there. `problems` names the rules that withhold tools from calls.
    """

    def __init__(self, rules: Rules, specs: Callable[[], Sequence[ToolSpec]]) -> None:
        self._rules = rules
        self._specs = specs
        self._known: dict[str, ToolSpec] = {}
        self._withheld: dict[str, Decision] = {}
        self.problems: tuple[str, ...] = ()

    def check(self, *more: ToolSpec) -> Sequence[str]:
        """Find out again which tools are withheld. Returns the problems."""
        specs = {spec.name: spec for spec in (*self._specs(), *more)}
        withheld: dict[str, Decision] = {}
        problems: list[str] = []
        for label, rule in self._rules.named():
            if found := rule.mismatches(specs.values()):
                problems.append(f"{label} {rule.problem(found)}")
                denied = Decision("deny", label, "a rule about it can never match.")
                withheld = dict.fromkeys(found, denied) | withheld
        self._withheld, self._known, self.problems = withheld, specs, tuple(problems)
        return self.problems

    def __call__(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Decision:
        if self._known.get(spec.name) is not spec:
            self.check(spec)
        return self._withheld.get(spec.name) or self._rules(spec, arguments, caller)


def _hinted(hint: str, hints: Hints) -> bool:
    if hint.startswith("not "):
        return getattr(hints, hint.removeprefix("not ")) is not True
    return getattr(hints, hint) is True
