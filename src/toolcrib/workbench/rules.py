"""Rules as data: the first that matches a call decides whether it runs.

Where a rule cannot judge a call (an amount that is text, a value that has no JSON form), the call is denied, whatever
the rule does: so an odd call never gets further than a plain one. A rule that names nothing, that can match none of its
tools, or can never judge one of them, is refused (`GuardedRules`), so that a typing error in it lets nothing through.

A condition of a rule is a JSON pointer, and comparisons by the type that the tool's schema has there. It is True,
False, or None where it cannot be judged. Values compare, and not how they are written: `"100.00"` is 100 where a number
may be written as text, and a moment is the same with another offset.
"""

import operator as operators
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Literal, NamedTuple, get_args
from uuid import UUID

from annotated_doc import Doc
from annotated_types import MinLen
from pydantic import Field, TypeAdapter

from ..call import CheckedArguments, caller_names, is_approver
from ..core import Approvers, Caller, Decision, Hints, SetupError, ToolError, ToolSpec
from ..machinery import Do, approvers_from, fact_of_call, named_approvers, text_digest, translate_glob
from ..schema import SchemaView, closest_match, did_you_mean, display_name, written
from ..schema.declared import Strict, from_rows, require_fields
from ..schema.view import kind, steps
from .limits import Limit
from .resources import spellings
from .results import READERS
from .search import FINDERS

Hint = Literal["read_only", "destructive", "idempotent", "open_world", "long_running"]
NotHint = Literal["not read_only", "not destructive", "not idempotent", "not open_world", "not long_running"]
Names = Annotated[str, MinLen(1)] | Annotated[Sequence[Annotated[str, MinLen(1)]], MinLen(1)]

MAX_CALLS = 100
"""How many calls a rule with `at_most` counts."""

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


class AtMost(Strict):
    """How many calls a rule lets through, before the next rules decide."""

    calls: int = Field(ge=1, le=MAX_CALLS, description="How many.")
    per: Literal["thread"] = Field(default="thread", description="In each thread of a caller.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What to do with the calls that match. Every condition of a rule must hold; the first rule that matches decides.

    Raises SetupError for a rule that could never match or decide.
    """

    do: Annotated[Do, Doc("Allow the call, deny it, or ask a person.")]
    tools: Annotated[
        Names | None,
        Doc(
            "Globs of tool names, one or several: '*' is any text, '?' one character, '.' any separator. A rule "
            "without 'tools', 'resources' and 'prompts' is about all of them."
        ),
    ] = None
    resources: Annotated[
        Names | None, Doc("Globs of the URIs of resources that are read, as written and percent-decoded.")
    ] = None
    prompts: Annotated[Names | None, Doc("Globs of the names of prompts that are filled in.")] = None
    hint: Annotated[
        Hint | NotHint | None, Doc("Tools that have this hint; with 'not ' before it, tools that do not have it.")
    ] = None
    principals: Annotated[Names, Doc("Globs of the names of callers, one or several.")] = "*"
    groups: Annotated[Names, Doc("Globs of groups, one or several: callers that are in one of them.")] = ()
    claims: Annotated[
        Mapping[str, Names],
        Doc("Claims that the caller's token must have, each with one or several globs: { org = 'acme' }."),
    ] = field(default_factory=dict[str, Names])
    tags: Annotated[Names, Doc("Tools that have one of these tags.")] = ()
    where: Annotated[
        Mapping[str, Any],
        Doc(
            "Conditions on arguments by JSON pointer (RFC 6901), where '*' is any member, and to allow every one. Text "
            "is a pattern, another value is compared, a table has operators: { '/path' = '/etc/*', '/amount' = { gt = "
            "100 } }."
        ),
    ] = field(default_factory=dict[str, Any])
    seen: Annotated[
        Names | None,
        Doc("Labels, one or several: only once the thread has seen a result with one of them. No grant lifts this."),
    ] = None
    after: Annotated[
        Names | None, Doc("Globs of tool names: only once a call of such a tool has succeeded in the thread.")
    ] = None
    at_most: Annotated[AtMost | None, Doc("Only the first calls that it lets through: { calls = 3 }.")] = None
    message: Annotated[str, Doc("The reason: sent to the model when denied, shown to the person when asked.")] = ""
    others_only: Annotated[bool, Doc("Whether another person than the caller has to answer.")] = False
    approvers: Annotated[
        Mapping[Literal["groups", "principals"], Names] | None,
        Doc(
            "Who may answer, and no others: members of a group, or principals, by glob: { groups = ['leads'], "
            "principals = ['alice'] }."
        ),
    ] = None
    name: Annotated[str | None, Doc("The name under which the decision is recorded.")] = None
    optional: Annotated[bool, Doc("Whether what it names may be missing: else that is an error at the start.")] = False
    remembers: bool = field(init=False, repr=False, compare=False)
    """Whether the rule asks for what came before in the thread."""
    _patterns: Mapping[str, re.Pattern[str]] = field(init=False, repr=False, compare=False)
    """By kind, what it names; none where it is about all."""

    def __post_init__(self) -> None:
        require_fields(self)
        named = {"tool": self.tools, "resource": self.resources, "prompt": self.prompts}
        patterns = {kind: self._pattern(globs, kind) for kind, globs in named.items() if globs is not None}
        object.__setattr__(self, "_patterns", patterns)
        if self.others_only and self.do != "ask":
            raise SetupError("'others_only' restricts who may answer, so it needs do = \"ask\".")
        self._require_approvers()
        for pointer, condition in self.where.items():
            _require_condition(pointer, condition)
        if self.at_most is not None:
            object.__setattr__(self, "at_most", AtMost.model_validate(self.at_most))
        remembers = self.seen is not None or self.after is not None or self.at_most is not None
        object.__setattr__(self, "remembers", remembers)

    def _require_approvers(self) -> None:
        if self.approvers is not None:
            if self.do != "ask":
                raise SetupError("'approvers' are who may answer, so they need do = \"ask\".")
            object.__setattr__(self, "approvers", approvers_from(self.approvers))
            self._require_other_approver(self.approvers)

    def _require_other_approver(self, approvers: Approvers) -> None:
        """Raise SetupError where the rule is for one caller, who may not answer, and *approvers* have no other."""
        names = {*_globs(approvers.get("principals"))}
        is_of_one = len(names) == 1 and not approvers.get("groups") and not any(map(_WILD.search, names))
        if self.others_only and is_of_one and {*_globs(self.principals)} == names:
            raise SetupError(
                f"With 'others_only', {named_approvers(approvers)} may not answer their own calls, and 'approvers' "
                "names no others: name another, or a group."
            )

    def matches(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> bool:
        """Return whether the rule matches this call. *arguments* are the checked ones.

        Raises ToolError `denied`, naming the field, where a condition can be neither true nor false of a value.
        """
        is_match = self.is_about(spec) and self.is_for(caller)
        return is_match and _meets(self.where, spec, arguments, of_every=self.do == "allow")

    def is_for(self, caller: Caller) -> bool:
        """Return whether the rule is for this caller. One who lacks a group or a claim does not have it, whatever the
        rule.
        """
        return (
            _is_any(self.principals, caller_names(caller))
            and (not self.groups or _is_any(self.groups, caller.groups))
            and all(
                _is_any(globs, [value for claim, value in caller.claims if claim == name])
                for name, globs in self.claims.items()
            )
        )

    def facts(self, name: str) -> Iterator[tuple[frozenset[str], bool]]:
        """Yield the facts that the rule, called *name*, asks for: of each set one, or with False, none."""
        if self.seen is not None:
            yield frozenset(f"seen {label}" for label in _globs(self.seen)), True
        if self.after is not None:
            yield frozenset(f"after {glob}" for glob in _globs(self.after)), True
        if self.at_most is not None:
            yield frozenset({fact_of_call(name, self.at_most.calls)}), False

    @property
    def is_for_all(self) -> bool:
        """Whether the rule is for every caller."""
        return "*" in _globs(self.principals) and not self.groups and not self.claims

    @property
    def is_about_reads(self) -> bool:
        """Whether the rule names resources or prompts."""
        return self.resources is not None or self.prompts is not None

    def is_about(self, spec: ToolSpec) -> bool:
        """Return whether the rule is for this tool, for some of its calls by some callers."""
        return (
            self._is_named(spec)
            and (not self.tags or not spec.tags.isdisjoint(_globs(self.tags)))
            and (self.hint is None or _hinted(self.hint, spec.hints))
        )

    def _is_named(self, spec: ToolSpec) -> bool:
        if not self._patterns:
            return True
        pattern = self._patterns.get(spec.kind)
        if pattern is None or spec.kind == "tool":
            return pattern is not None and pattern.fullmatch(spec.name) is not None
        # One who reads a resource chooses how its URI is written.
        is_match = all if self.do == "allow" else any
        return is_match(pattern.fullmatch(name) is not None for name in spellings(spec))

    def _pattern(self, globs: Names, kind: str) -> re.Pattern[str]:
        # What restricts a tool also holds in another case.
        return _compiled(tuple(_globs(globs)), kind == "tool", self.do != "allow")

    def _names(self, pattern: str, name: str) -> bool:
        return self._pattern(pattern, "tool").fullmatch(name) is not None

    def unknown(self, specs: Iterable[ToolSpec]) -> str | None:
        """Return the sentence about a name or a tag of the rule that none of *specs* has. None for an optional rule.

        A pattern of a rule that allows may match nothing: it lets nothing through.
        """
        specs = tuple(specs)
        if self.optional or not specs:
            return None
        unknown = next(filter(None, (unknown_name(*names) for names in self._all_names(specs))), None)
        return unknown and f"({self.do}) {unknown}"

    def _all_names(
        self, specs: Sequence[ToolSpec]
    ) -> Iterator[tuple[Iterable[str], Iterable[str], Callable[[str, str], bool]]]:
        """Yield for each kind of name those of the rule, those that *specs* have, and what matches."""
        tools = [spec.name for spec in specs]
        globs = _literal(self.tools) if self.do == "allow" else _globs(self.tools)
        yield globs, (*tools, *READERS, *FINDERS), self._names
        yield _globs(self.tags), (tag for spec in specs for tag in spec.tags), str.__eq__
        yield _globs(self.seen), (label for spec in specs for label in spec.labels), str.__eq__
        yield _literal(self.after), tools, self._names

    def mismatches(self, specs: Iterable[ToolSpec]) -> dict[str, str]:
        """Return the tools that the rule is for and can never match, by name, each with the reason.

        Of tools that a pattern names, those that it can never judge, and no others where it can match one of them: a
        rule for '*' is about the tools that have the argument.
        """
        about = [*filter(self.is_about, specs)] if self.where else []
        # For example {"pay": _Mismatch("'pay' takes nothing at '/amont'. ...", is_judged=True)}
        mismatches = {spec.name: mismatch for spec in about if (mismatch := self._mismatch(spec)) is not None}
        is_for_some = len(mismatches) < len(about)
        names = _literal(self.tools)
        return {
            name: mismatch.reason
            for name, mismatch in mismatches.items()
            if not (is_for_some and mismatch.is_judged and not any(self._names(literal, name) for literal in names))
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

    With *mark_untrusted*, models are shown results with the label `untrusted` between random delimiters, as data.
    Raises SetupError for a default that is not a decision.
    """

    def __init__(self, rules: Iterable[Rule], *, default: Do = "allow", mark_untrusted: bool = False) -> None:
        self._rules = tuple(rules)
        self.mark_untrusted = mark_untrusted
        if not all(isinstance(rule, Rule) for rule in self._rules):
            raise SetupError("Rules takes Rule objects. For data, as in a file, use rules_from_data([...]).")
        if default not in get_args(Do):
            raise SetupError(
                f"'default' of Rules is one of {', '.join(get_args(Do))}, not '{display_name(str(default))}'."
            )
        self.default: Do = default
        self._default = Decision(default, "default")
        self._decisions = tuple(
            (rule, _decision_of(rule, rule.name or f"rule {number}")) for number, rule in enumerate(self._rules, 1)
        )
        self._remembering = tuple((str(decision.rule), rule) for rule, decision in self._decisions if rule.remembers)
        self.remembers = bool(self._remembering)
        """Whether any rule asks for what came before."""

    def __call__(
        self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller, facts: Collection[str] | None = None
    ) -> Decision:
        """Return the decision. *facts* are those of `asked` that the thread remembers: None where that is not known."""
        for rule, decision in self._decisions:
            try:
                if rule.matches(spec, arguments, caller) and (
                    not rule.remembers or _holds_of(rule, str(decision.rule), facts)
                ):
                    return decision
            except _NotJudged as error:
                return Decision("deny", decision.rule, error.message)
        return self._default

    def asked(self, spec: ToolSpec, caller: Caller) -> frozenset[str]:
        """Return the facts that rules about this tool and *caller* ask for."""
        return frozenset(
            fact
            for name, rule in self._remembering
            if rule.is_about(spec) and rule.is_for(caller)
            for facts, _ in rule.facts(name)
            for fact in facts
        )

    def facts_of_success(self, spec: ToolSpec) -> frozenset[str]:
        """Return the facts that rules ask for, and that a call of *spec* makes true where it succeeds."""
        globs = {glob for _, rule in self._remembering for glob in _globs(rule.after)} if spec.kind == "tool" else ()
        return frozenset(f"after {glob}" for glob in globs if is_like(glob, spec.name, tool=True))

    def hides(self, spec: ToolSpec, caller: Caller) -> bool:
        """Return whether every call of this tool by *caller* is denied, whatever its arguments are."""
        for rule in self._rules:
            if rule.is_about(spec) and rule.is_for(caller):
                if rule.do != "deny":
                    return False
                if not rule.where and not rule.remembers:
                    return True
        return self._default.do == "deny"

    def meets(self, where: Mapping[str, Any], spec: ToolSpec, arguments: Mapping[str, Any]) -> bool:
        """Return whether *arguments* meet the conditions of a grant, without doubt."""
        try:
            return _meets(where, spec, arguments, of_every=True)
        except _NotJudged:
            return False

    def grantable(self, name: str, globs: Names, where: Mapping[str, Any], specs: Iterable[ToolSpec]) -> list[ToolSpec]:
        """Return those of *specs* that *globs* name, and that the rule *name* is about. Raises SetupError for *where*
        with conditions that none of them can meet.
        """
        rule = Rule(do="allow", tools=globs, where=where)
        about = [own for label, own in self.named() if label == name]
        covered = [spec for spec in filter(rule.is_about, specs) if any(own.is_about(spec) for own in about)]
        mismatches = rule.mismatches(covered)
        if covered and len(mismatches) == len(covered):
            raise SetupError(next(iter(mismatches.values())))
        return [spec for spec in covered if spec.name not in mismatches]

    def guarded(self, specs: Callable[[], Sequence[ToolSpec]], doors: Callable[[], Iterable[str]]) -> "GuardedRules":
        """Return the same policy for tools that come and go: see `GuardedRules`."""
        return GuardedRules(self, specs, doors)

    def has_approver(self, caller: Caller) -> bool:
        """Return whether a rule names *caller* among its approvers."""
        return any(rule.approvers is not None and is_approver(caller, rule.approvers) for rule in self._rules)

    def all_optional(self) -> "Rules":
        """Return the same rules for some of their tools: what they name may be missing."""
        rules = [replace(rule, optional=True) for rule in self._rules]
        return Rules(rules, default=self.default, mark_untrusted=self.mark_untrusted)

    def named(self) -> Iterator[tuple[str, Rule]]:
        """Return the rules, each with the name under which its decision is recorded."""
        yield from ((str(decision.rule), rule) for rule, decision in self._decisions)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return f"<Rules: {len(self)}, else {self._default.do}>"


Right = Literal["calls:all", "keys", "sources", "tasks"]
"""What members of a role may see or change beyond what is their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What its members may, beside what everybody may. Raises SetupError for a role without members."""

    may: Annotated[
        Sequence[Right],
        Doc(
            "'calls:all': see the calls of everybody. 'tasks': see, cancel and settle the tasks of everybody. 'keys': "
            "make and revoke keys. 'sources': accept what has changed in a source."
        ),
    ]
    groups: Annotated[Names, Doc("Globs of groups, one or several.")] = ()
    principals: Annotated[Names, Doc("Globs of the names of callers, one or several.")] = ()

    def __post_init__(self) -> None:
        require_fields(self)
        if not self.groups and not self.principals:
            raise SetupError("A role is of 'groups', 'principals', or both.")

    def gives(self, caller: Caller, right: Right) -> bool:
        """Return whether *caller* has *right* by this role."""
        members: Approvers = {"groups": self.groups} if self.groups else {}
        if self.principals:
            members = {**members, "principals": self.principals}
        return right in self.may and is_approver(caller, members)


def _meets(where: Mapping[str, Any], spec: ToolSpec, arguments: Mapping[str, Any], *, of_every: bool) -> bool:
    """Return whether *arguments* meet all conditions: at '*' one value, or with *of_every*, as what allows has to, all.

    Raises _NotJudged where one is neither true nor false of them.
    """
    if not where:
        return True
    views = _views_of(spec, arguments)
    # What was sent may not be what the tool gets of it: a condition must be the same of both.
    results = {
        pointer: agreed(_holds(view, spec, pointer, condition, of_every) for view in views)
        for pointer, condition in where.items()
    }
    result = all_of(results.values())
    if result is None:
        pointer = next(pointer for pointer, holds in results.items() if holds is None)
        raise _NotJudged(f"a rule cannot judge what is at '{display_name(pointer)}'.", "denied")
    return result


def _views_of(spec: ToolSpec, arguments: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return *arguments* as they were sent, and as the tool gets them. One that is left out has its default."""
    if not isinstance(arguments, CheckedArguments):
        return [{**spec.defaults(), **written(arguments, strict=False, other=lambda _: OPAQUE)}]
    # The items of an iterator are validated when the tool takes them: what it will get is not known yet.
    unknown = {name: OPAQUE for name, value in arguments.items() if isinstance(value, Iterator)}
    return [{**view, **unknown} for view in arguments.forms.views]


def _digest_of(rule: Rule, name: str) -> str:
    """Return what a grant of *rule* is bound to, whatever the rule says; empty where none lifts it."""
    is_grantable = rule.do == "ask" and rule.seen is None
    return f"{name} {text_digest(repr(replace(rule, optional=False)))}" if is_grantable else ""


def _decision_of(rule: Rule, name: str) -> Decision:
    at_most = None if rule.at_most is None else rule.at_most.calls
    return Decision(
        rule.do,
        name,
        rule.message,
        rule.others_only,
        approvers=rule.approvers,
        grantable=_digest_of(rule, name),
        at_most=at_most,
    )


def _holds_of(rule: Rule, name: str, facts: Collection[str] | None) -> bool:
    if facts is None:
        raise _NotJudged("a rule asks what came before in this thread, and that is not known now.", "denied")
    return all(asked.isdisjoint(facts) is not expected for asked, expected in rule.facts(name))


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


def _globs(globs: str | Sequence[str] | None) -> Sequence[str]:
    return () if globs is None else (globs,) if isinstance(globs, str) else globs


def _is_any(globs: str | Sequence[str], names: Iterable[str]) -> bool:
    return any(glob == "*" or is_like(glob, name) for name in names for glob in _globs(globs))


def _literal(globs: str | Sequence[str] | None) -> Sequence[str]:
    """Return those of *globs* that are names in full."""
    return [glob for glob in _globs(globs) if not _WILD.search(glob)]


def _tests(condition: Any) -> Mapping[str, Any]:
    """Return *condition* as operators with what they compare with."""
    if isinstance(condition, Mapping):
        return condition
    return {"like" if isinstance(condition, str) else "eq": condition}


def _holds(view: Any, spec: ToolSpec, pointer: str, condition: Any, of_every: bool) -> bool | None:
    tests, place = _tests(condition), _place(spec, pointer) or ANYWHERE

    def holds(value: Any) -> bool | None:
        return all_of(compare(place, op, value, operand) for op, operand in tests.items())

    return judge(view, steps(pointer), spec, holds, all_of if of_every else any_of)


def _nearest(spec: ToolSpec, pointer: str) -> str:
    names = [*spec.input_schema.get("properties", ())]
    first = steps(pointer)[0]
    return "" if any(name in names for name in names_of(first, spec)) else did_you_mean(closest_match(first, names))


class GuardedRules(Rules):
    """The policy *rules* over tools that come and go: what a rule can never match is denied, and as long as a rule
    names nothing, so are the tools that came after the start: one of them may be what it is about.

    *specs* returns the tools that are there, *doors* the names of those that are only for a login.
    """

    def __init__(
        self, rules: Rules, specs: Callable[[], Sequence[ToolSpec]], doors: Callable[[], Iterable[str]]
    ) -> None:
        super().__init__(rules, default=rules.default, mark_untrusted=rules.mark_untrusted)
        self._specs = specs
        self._doors = doors
        self._decided: frozenset[tuple[str, frozenset[str]]] = frozenset()  # names and tags
        self._known: Sequence[ToolSpec] | None = None
        self._unknown: dict[str, str] = {}
        self._checked: dict[str, ToolSpec] = {}
        self._denials: dict[str, Decision] = {}

    def unknown(self) -> dict[str, str]:
        """Return the problem of each rule that names nothing, by its label."""
        if (specs := self._specs()) is not self._known:
            sentences = {label: rule.unknown(specs) for label, rule in self.named()}
            self._unknown = {label: f"{label} {sentence}" for label, sentence in sentences.items() if sentence}
            self._known = specs
        return self._unknown

    def start(self) -> Sequence[str]:
        """Take the tools that are there for those of the start. Returns what `check` does."""
        self._decided = frozenset((spec.name, spec.tags) for spec in self._specs())
        return self.check()

    def check(self, *more: ToolSpec) -> Sequence[str]:
        """Find out again which tools are withheld. Returns a problem for each rule that can never match one."""
        present, unknown = self._specs(), self.unknown()
        specs = {spec.name: spec for spec in (*present, *more)}
        denials: dict[str, Decision] = {}
        if unknown:
            denial = Decision("deny", next(iter(unknown)), "a rule names a tool or tag that does not exist.")
            later = {spec.name for spec in present if (spec.name, spec.tags) not in self._decided}
            denials = dict.fromkeys(later - {*self._doors()}, denial)
        else:
            self._decided |= {(spec.name, spec.tags) for spec in present}
        problems: list[str] = []
        for label, rule in self.named():
            if mismatches := rule.mismatches(specs.values()):
                problems.append(f"{label} {rule.problem(mismatches)}")
                denial = Decision("deny", label, "a rule about it can never match.")
                denials = dict.fromkeys(mismatches, denial) | denials
        self._denials, self._checked = denials, specs
        return problems

    def __call__(
        self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller, facts: Collection[str] | None = None
    ) -> Decision:
        return self._denial(spec) or super().__call__(spec, arguments, caller, facts)

    def hides(self, spec: ToolSpec, caller: Caller) -> bool:
        """Return whether every call of this tool by *caller* is denied, whatever its arguments are."""
        return self._denial(spec) is not None or super().hides(spec, caller)

    def _denial(self, spec: ToolSpec) -> Decision | None:
        if spec.kind != "tool":
            return None
        if self._checked.get(spec.name) is not spec:
            self.check(spec)
        return self._denials.get(spec.name)


def _hinted(hint: str, hints: Hints) -> bool:
    if hint.startswith("not "):
        return getattr(hints, hint.removeprefix("not ")) is not True
    return getattr(hints, hint) is True


# Conditions: where they lead by the schema of a tool

OPAQUE = object()
"""A value that has no JSON form."""
ABSENT = object()
"""What stands where a pointer leads to nothing."""

_ORDERS = {name: getattr(operators, name) for name in ("gt", "ge", "lt", "le")}
_NUMBERS = frozenset(("integer", "number"))
_CONTAINERS = frozenset(("array", "object", "null"))
_WILD = re.compile(r"[*?]")
_NUMERIC = re.compile(r"[-+0-9.eE*?_]*")
_FURTHEST_OFFSET = timedelta(hours=14)


def _decoded(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError
    plain = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    return b64decode(plain + "=" * (-len(plain) % 4), validate=True)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "date-time": TypeAdapter(datetime).validate_python,
    "date": TypeAdapter(date).validate_python,
    "time": TypeAdapter(time).validate_python,
    "duration": TypeAdapter(timedelta).validate_python,
    "uuid": TypeAdapter(UUID).validate_python,
    "ipv4": TypeAdapter(IPv4Address).validate_python,
    "ipv6": TypeAdapter(IPv6Address).validate_python,
    "base64": _decoded,
    "base64url": _decoded,
}
"""Readers of the texts of a format. They raise ValueError or TypeError for another text."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the schema of a tool allows where a pointer leads: *types* of JSON (None: any), *formats* of texts."""

    types: frozenset[str] | None
    formats: frozenset[str]
    constants: tuple[Any, ...] | None

    @property
    def is_number(self) -> bool:
        return self.types is None or not self.types.isdisjoint(_NUMBERS)


ANYWHERE = Place(None, frozenset(), None)
_ANYTHING = SchemaView({})
_KEYWORDS = {"object": {"properties", "additionalProperties", "patternProperties"}, "array": {"items", "prefixItems"}}


def names_of(part: str, spec: ToolSpec) -> Sequence[str]:
    """Return *part*, and the other names under which a call of the tool may have the same member."""
    return [part, *sorted({name for group in spec.names if part in group for name in group} - {part})]


def place_of(spec: ToolSpec, pointer: str) -> Place | None:
    """Return the place that *pointer* leads to in arguments of the tool; None where none of them has such a value."""
    views = [*_views_at(SchemaView(spec.input_schema), steps(pointer), spec)]
    if not views:
        return None
    kinds = [view.kinds for view in views]
    constants = [view.constants for view in views]
    formats = {view.schema.get("format", view.schema.get("contentEncoding")) for view in views}
    return Place(
        None if frozenset() in kinds else frozenset().union(*kinds),
        frozenset(formats & _READERS.keys()),
        None if None in constants else tuple(value for values in constants for value in values or ()),
    )


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


def _views_at(view: SchemaView, parts: Sequence[str], spec: ToolSpec) -> Iterator[SchemaView]:
    """Return the places, without references and unions, of the values that *parts* lead to."""
    for form in view.alternatives:
        if form.is_false:
            continue
        if not parts:
            yield form
            continue
        kinds = form.kinds or _described_kinds(form)
        if not kinds:
            yield form  # which allows anything, also below
            continue
        part, rest = parts[0], parts[1:]
        if "object" in kinds:
            for member in _members(form, part, spec):
                yield from _views_at(member, rest, spec)
        if "array" in kinds:
            for item in _items(form, part):
                yield from _views_at(item, rest, spec)


def _described_kinds(form: SchemaView) -> frozenset[str]:
    """Return the kinds of value that *form*, which names none, has keywords for."""
    return frozenset(kind for kind, keywords in _KEYWORDS.items() if not keywords.isdisjoint(form.schema))


def _members(view: SchemaView, part: str, spec: ToolSpec) -> Iterator[SchemaView]:
    patterns = [view.at("patternProperties", pattern) for pattern in view.schema.get("patternProperties", ())]
    if part == "*":
        yield from view.members.values()
    elif members := [view.members[name] for name in names_of(part, spec) if name in view.members]:
        yield from members
        return
    yield from patterns
    # Objects that list their members do not get others: models leave them out, whatever their schema has.
    if view.additional is not None or not view.members:
        yield view.additional or _ANYTHING


def _items(view: SchemaView, part: str) -> Iterator[SchemaView]:
    if part == "*":
        yield from (*view.branches("prefixItems"), view.at("items"))
    elif part.isascii() and part.isdigit() and int(part) < view.schema.get("maxItems", int(part) + 1):
        yield view.item(int(part))


def _type_of(value: Any) -> str:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return "number"
    return "array" if isinstance(value, tuple) else kind(value)


# Whether a condition can hold


def can_hold(place: Place, tests: Mapping[str, Any]) -> bool:
    """Return whether there are values at *place* of which all of *tests* may be true."""
    return all(_can(place, op, operand) for op, operand in tests.items())


def can_judge(place: Place, tests: Mapping[str, Any]) -> bool:
    """Return whether *tests* are true or false of some value at *place*: there is no order of lists, and no pattern."""
    if place.types is None or place.constants is not None:
        return True
    is_container = place.types <= _CONTAINERS
    return all(
        _can(place, op, operand) if op in _ORDERS else op != "like" or not is_container for op, operand in tests.items()
    )


def _can(place: Place, op: str, operand: Any) -> bool:
    if op in ("exists", "ne"):
        return True
    if op == "in":
        return any(_can(place, "eq", value) for value in operand)
    if place.constants is not None:
        return any(compare(place, op, value, operand) for value in place.constants)
    if place.types is None:
        return True
    match kind := _type_of(operand):
        case "string":
            return _can_be_text(place, operand, place.types, is_pattern=op == "like")
        case "number":
            return place.is_number or ("string" in place.types and not place.formats)
        case _:
            return kind in place.types


def _can_be_text(place: Place, text: str, types: frozenset[str], *, is_pattern: bool) -> bool:
    if place.is_number and (_NUMERIC.fullmatch(text) if is_pattern else _number(text) is not None):
        return True
    if "string" not in types or not place.formats or (is_pattern and _WILD.search(text)):
        return "string" in types
    return any(_read(form, text) is not None for form in place.formats)


# Values


def all_of(results: Iterable[bool | None]) -> bool | None:
    """Return whether all *results* are true: a single false one decides."""
    values = {*results}
    return False if False in values else None if None in values else True


def any_of(results: Iterable[bool | None]) -> bool | None:
    """Return whether one of *results* is true: a single true one decides."""
    values = {*results}
    return True if True in values else None if None in values else False


def agreed(results: Iterable[bool | None]) -> bool | None:
    """Return what all *results* are; None where they differ."""
    values = {*results}
    return values.pop() if len(values) == 1 else None


def judge(
    value: Any,
    parts: Sequence[str],
    spec: ToolSpec,
    holds: Callable[[Any], bool | None],
    combined: Callable[[Iterable[bool | None]], bool | None],
) -> bool | None:
    """Return what *holds* says of the value that *parts* of a pointer lead to, ABSENT where they lead to none.

    Several values at '*' are *combined*. A member that a call has by several names, which may be those of another
    object, is judged only where it is the same by all of them.
    """
    if not parts or value is OPAQUE:
        return holds(value)
    part, rest = parts[0], parts[1:]
    if isinstance(value, Mapping) and part != "*":
        return agreed(judge(member, rest, spec, holds, combined) for member in _members_named(part, value, spec))
    values = _values_at(part, value)
    return combined(judge(member, rest, spec, holds, combined) for member in values) if values else holds(ABSENT)


def _members_named(part: str, value: Mapping[str, Any], spec: ToolSpec) -> list[Any]:
    """Return the members that *value* has by the names of one, or ABSENT."""
    members = [value[name] for name in names_of(part, spec) if name in value] or [ABSENT]
    # The same number is the same key to a type of numbers: `1.0` and `01` for `1`.
    number = _number(part)
    if number is not None:
        members += [member for key, member in value.items() if key != part and _number(key) == number]
    return members


def _values_at(part: str, value: Any) -> Sequence[Any]:
    """Return the values at '*' in a mapping or list, or the item of a list with the number *part*."""
    if isinstance(value, Mapping):
        return [*value.values()]
    if not isinstance(value, list):
        return ()
    if part == "*":
        return value
    return value[int(part) :][:1] if part.isascii() and part.isdigit() else ()


def compare(place: Place, op: str, value: Any, operand: Any) -> bool | None:
    """Return whether *value*, at *place*, is *op* than *operand*."""
    if op == "exists":
        return operand is (value is not ABSENT)
    if value is ABSENT:
        return op == "ne"
    if value is OPAQUE or not _is_of_type(place, value):
        return None
    if op == "ne":
        is_equal = compare(place, "eq", value, operand)
        return None if is_equal is None else not is_equal
    if op == "in":
        return any_of(map(partial(compare, place, "eq", value), operand))
    if op == "like":
        return _like(place, value, operand)
    pair = _pair(place, value, operand)
    if pair is None:
        return _equal(value, operand) if op == "eq" else None
    return _ordered(op, *pair)


def _is_of_type(place: Place, value: Any) -> bool:
    """Return whether *value* is what the schema describes, and not what a type made of it."""
    kind = _type_of(value)
    return value is None or place.types is None or kind in place.types or (kind == "number" and place.is_number)


def _like(place: Place, value: Any, pattern: str) -> bool | None:
    if isinstance(value, list | dict):
        return None
    if value is None or isinstance(value, bool):
        return False
    if not _WILD.search(pattern) and (is_equal := compare(place, "eq", value, pattern)) is not None:
        return is_equal
    texts = {str(value), *(str(reading) for form in place.formats if (reading := _read(form, value)) is not None)}
    return agreed(is_like(pattern, text) for text in texts)


def _pair(place: Place, value: Any, operand: Any) -> tuple[Any, Any] | None:
    """Return both as values of one type that *place* allows; None where there is none, or no order in it."""
    if isinstance(value, str) and isinstance(operand, str):
        return _pair_of_texts(place, value, operand)
    return _both(_number, value, operand) if _is_scalar(value) and _is_scalar(operand) else None


def _pair_of_texts(place: Place, value: str, operand: str) -> tuple[Any, Any]:
    """Return both as a format of *place* reads them, or as numbers where it has some, else as they are."""
    readers: list[Callable[[Any], Any]] = [partial(_read, form) for form in place.formats]
    if place.types is not None and place.is_number:
        readers.append(_number)
    pairs = (_both(read, value, operand) for read in readers)
    return next(filter(None, pairs), (value, operand))


def _both(read: Callable[[Any], Any], value: Any, operand: Any) -> tuple[Any, Any] | None:
    """Return what *read* makes of both; None where it makes nothing of one of them."""
    left, right = read(value), read(operand)
    return None if left is None or right is None else (left, right)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)


def _ordered(op: str, left: Any, right: Any) -> bool | None:
    if isinstance(left, datetime) and isinstance(right, datetime) and (left.tzinfo is None) != (right.tzinfo is None):
        # Which moment one of them is depends on where it is read.
        left, right = (moment if moment.tzinfo else moment.replace(tzinfo=UTC) for moment in (left, right))
        if abs(left - right) <= _FURTHEST_OFFSET:
            return None
    try:
        return left == right if op == "eq" else bool(_ORDERS[op](left, right))
    except TypeError:
        return None


def _equal(value: Any, operand: Any) -> bool:
    """Return whether two JSON values are equal, numbers by value; true is not a number."""
    if isinstance(value, list) and isinstance(operand, list | tuple):
        return len(value) == len(operand) and all(map(_equal, value, operand))
    if isinstance(value, Mapping) and isinstance(operand, Mapping):
        return value.keys() == operand.keys() and all(_equal(inner, operand[name]) for name, inner in value.items())
    if _type_of(value) == _type_of(operand) == "number":
        return _number(value) == _number(operand)
    return _type_of(value) == _type_of(operand) and bool(value == operand)


def _number(value: Any) -> Decimal | None:
    try:
        number = Decimal(value if isinstance(value, str | int | Decimal) else str(value))
    except InvalidOperation:
        return None
    return None if number.is_nan() else number


def _read(form: str, value: Any) -> Any:
    try:
        return _READERS[form](value)
    except (ValueError, TypeError, OverflowError):
        return None


def unknown_name(
    globs: Iterable[str],
    names: Iterable[str],
    matches: Callable[[str, str], bool],
    *,
    way_out: str = " If it may be missing: optional = true.",
) -> str | None:
    """Return the sentence about the first of *globs* that none of *names* has."""
    names = [*dict.fromkeys(names)]
    for glob in globs:
        if glob != "*" and not any(matches(glob, name) for name in names):
            proposal = did_you_mean(closest_match(glob, names))
            return f"names '{display_name(glob)}', which no tool has.{proposal}{way_out}"
    return None


def unknown_of_limit(limit: Limit, names: Iterable[str]) -> str | None:
    """Return the sentence about a tool that *limit* names in full, and that is none of *names*."""
    globs = [] if limit.optional else _literal(limit.tools)
    return unknown_name(globs, names, partial(is_like, tool=True))


def is_like(pattern: str, text: str, *, tool: bool = False) -> bool:
    """Return whether a glob fits *text*."""
    return _compiled((pattern,), tool, False).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _compiled(globs: tuple[str, ...], tool: bool, is_any_case: bool) -> re.Pattern[str]:
    """Return what matches one of *globs*."""
    flags = re.DOTALL | re.IGNORECASE if is_any_case else re.DOTALL
    return re.compile("|".join(f"(?:{translate_glob(glob, tool=tool)})" for glob in globs), flags)
