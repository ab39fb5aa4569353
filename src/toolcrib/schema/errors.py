"""Every problem of refused arguments, each with its place, what was expected, what came, and a way out.

The JSON Schema is walked beside the value, and the walk words the problems. Where pydantic has refused the value, it
decides which places are in question: what it accepted is not a problem, though the schema may not show that, and what
the schema cannot show is worded as the validator's author did.

No sentence here quotes a value: only names, kinds, and what the schema itself says. From an author's message, the value
is removed.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from time import thread_time
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core.core_schema import ErrorType

from ..core import ToolError
from .describe import (
    ANY,
    LIMITS,
    MAX_NAMES,
    SHOWN,
    closest_match,
    describe_at,
    did_you_mean,
    display_name,
    display_path,
    either,
    forms_of,
    in_braces,
    one_of,
)
from .view import UNIONS, SchemaView, by_tag, kind, pointer

MAX_PROBLEMS = 50
"""How many problems are looked for."""

MAX_ERRORS = 10_000
"""More errors of pydantic than these are not gone through one by one: listing them takes longer than the check."""

SEARCH_TIMEOUT_S = 0.5
"""How long a search may work: nothing else can run meanwhile. Ordinary calls look at tens of places."""

_MAX_DEPTH = 120
"""How many schemas are gone through to one place. Each takes some frames of Python's stack."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the arguments. *path* is a JSON pointer (RFC 6901); *choices* are the schema's.

    A sentence that begins with "It" has the tool as its subject.
    """

    path: str
    expected: str
    received: str
    sentence: str
    choices: tuple[Any, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as JSON values, without empty choices."""
        return {name: value for name, value in {**asdict(self), "choices": list(self.choices)}.items() if value != []}


Problems = Iterator[Problem]


def refusal(tool: str, problems: Sequence[Problem], *, code: str = "invalid_arguments", remark: str = "") -> ToolError:
    """Return the one error for a call whose arguments have *problems*. *remark* is a sentence about all of them."""
    first_problems = problems[:SHOWN]
    if len(problems) == 1:
        sentence = first_problems[0].sentence
        message = f"Tool '{tool}' {sentence[3:]}" if sentence.startswith("It ") else f"Tool '{tool}': {sentence}"
    else:
        count, rest = str(len(problems)), f"{len(problems) - SHOWN} more"
        if len(problems) >= MAX_PROBLEMS:
            count, rest = f"{MAX_PROBLEMS} or more", "more"
        lines = "".join(f"\n- {problem.sentence}" for problem in first_problems)
        message = f"Tool '{tool}': {count} problems with its arguments.{lines}"
        message += f"\n- and {rest}." if len(problems) > SHOWN else ""
    message += f"\n{remark}" if remark else ""
    return ToolError(message, code, details={"problems": [problem.to_dict() for problem in first_problems]})


def error_details(error: ValidationError, *, inputs: bool = False) -> Sequence[Mapping[str, Any]] | None:
    """Return the errors in pydantic's *error*, with *inputs* the refused values too; None where there are too many."""
    if error.error_count() > MAX_ERRORS:
        return None
    return error.errors(include_url=False, include_input=inputs)


def problems(view: SchemaView, value: Any, error: ValidationError | None = None) -> list[Problem]:
    """Return what is wrong with *value*, each thing once, at most 50.

    *error* is pydantic's, where pydantic decides. Without it, the schema alone does: nothing is returned for a value
    that is valid, or where looking for what is wrong would take too long.
    """
    by_schema = [] if view.is_valid(value) else _Walk(is_final=error is None).problems(value, view, ())
    details = None if error is None else error_details(error)
    if details is None:
        return by_schema
    places: set[str] = set()
    for detail in details:
        path, _ = locate(detail["loc"], value)
        places.add(pointer((*path, detail["loc"][-1]) if detail["type"] == "missing" else path))
    in_question = [problem for problem in by_schema if _meets(problem.path, places)]
    return [*in_question, *_by_pydantic_alone(details, value, [problem.path for problem in in_question])]


def _by_pydantic_alone(details: Iterable[Any], value: Any, explained_paths: Sequence[str]) -> list[Problem]:
    """Return a problem for each place that pydantic's *details* refuse and the schema has no words for."""
    refusals: dict[str, tuple[Path, Any, list[Any]]] = {}
    for detail in details:
        path, part = locate(detail["loc"], value)
        refusals.setdefault(pointer(path), (path, part, []))[2].append(detail)
    problems: list[Problem] = []
    for place, (path, part, of_place) in refusals.items():
        if len(problems) + len(explained_paths) >= MAX_PROBLEMS:
            break
        if explained_paths and all(detail["type"] == "extra_forbidden" for detail in of_place):
            continue  # perhaps of another branch of a union
        if not _meets(place, explained_paths):
            problems.append(_from_validator(path, part, of_place, value))
    return problems


def locate(loc: Sequence[Any], data: Any) -> tuple[Path, Any]:
    """Follow *loc* as far as it leads into the data: pydantic also puts the names of union branches into it."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(data, dict):
            leads = part in data
        else:
            leads = isinstance(data, list) and isinstance(part, int) and 0 <= part < len(data)
        if leads:
            data = data[part]
            path.append(part)
    return tuple(path), data


def _meets(place: str, others: Iterable[str]) -> bool:
    """Return whether the JSON pointer *place* is one of *others*, or leads into one or on the way to one."""
    start = f"{place}/"
    return any(other.startswith(start) or start.startswith(f"{other}/") for other in others)


def _omit(names: Iterable[str], others: Collection[str]) -> list[str]:
    return [name for name in names if name not in others]


class _Walk:
    """Explains one value, place by place. The problems of a place are remembered: branches meet again."""

    def __init__(self, *, is_final: bool) -> None:
        self._due = thread_time() + SEARCH_TIMEOUT_S
        self._is_final = is_final
        self._compared = 0
        self._memory: dict[tuple[Path, SchemaView], list[Problem]] = {}
        self._depth = 0
        self._gave_up = False

    def problems(self, value: Any, view: SchemaView, path: Path) -> list[Problem]:
        """Return the problems of *value* at *view*: none where it is valid, or where looking would take too long."""
        memory = self._memory.get((path, view))
        if memory is None:
            memory = self._memory[path, view] = []  # what a schema that leads back to itself finds
            if self._depth > _MAX_DEPTH or thread_time() > self._due:
                self._gave_up = True
            elif not view.is_valid(value):
                self._depth += 1
                problems: dict[tuple[str, str], Problem] = {}
                for problem in self._explained(value, view, path):
                    problems.setdefault((problem.path, problem.sentence), problem)
                    if len(problems) >= MAX_PROBLEMS:
                        break
                self._depth -= 1
                memory += problems.values()
                if not memory and self._is_final and not self._gave_up:
                    memory.append(_expected(path, "what the schema admits here", value, with_kind=False))
        return memory

    def _explained(self, value: Any, view: SchemaView, path: Path) -> Problems:
        schema = view.schema
        if view.is_false:
            yield _expected(path, "nothing", value)
            return
        if not all(view.satisfies(value, word) for word in ("type", "enum", "const") if word in schema):
            yield self._another_kind(value, view, path)
            return
        for part in view.parts:
            yield from self.problems(value, part, path)
        for keyword in UNIONS:
            if keyword in schema:
                yield from self._union(value, view, keyword, path)
        yield from _over_limits(value, view, path)
        if isinstance(value, dict):
            yield from self._object(value, view, path)
        elif isinstance(value, list):
            yield from self._array(value, view, path)

    def _another_kind(self, value: Any, view: SchemaView, path: Path) -> Problem:
        """Return that *value* is of another kind than is expected, or none of the choices."""
        texts = [choice for choice in view.choices if isinstance(choice, str)]
        match = self._closest(value, texts) if isinstance(value, str) else None
        # Of an object its keys say more.
        with_kind = isinstance(value, dict) or not any(form.admits_kind_of(value) for form in view.alternatives)
        hint = did_you_mean(match, '"')
        return _expected(path, describe_at(view), value, choices=view.choices, hint=hint, with_kind=with_kind)

    def _closest(self, name: str, names: Collection[str]) -> str | None:
        self._compared += min(max(len(names), MAX_NAMES // SHOWN), MAX_NAMES)
        return closest_match(name, names) if self._compared <= 2 * MAX_NAMES else None

    def _union(self, value: Any, view: SchemaView, keyword: str, path: Path) -> Problems:
        branches = view.branches(keyword)
        fitting = [branch for branch in branches if branch.is_valid(value)]
        if not fitting:
            yield from self._no_branch(value, view, branches, path)
        elif keyword == "oneOf" and len(fitting) > 1:
            forms = ", ".join(dict.fromkeys(map(describe_at, fitting[:SHOWN])))
            sentence = f"{display_path(path)} may fit only one of these, and fits several: {forms}."
            yield Problem(pointer(path), f"only one of: {forms}", kind(value), sentence)

    def _no_branch(self, value: Any, view: SchemaView, branches: Sequence[SchemaView], path: Path) -> Problems:
        """Return why *value* fits none of *branches*."""
        leaves = dict.fromkeys(leaf for branch in branches for leaf in branch.alternatives)
        near = [leaf for leaf in leaves if leaf.admits_kind_of(value)]
        if isinstance(value, dict) and (tagged := by_tag(near)) is not None:
            yield from self._tagged(value, *tagged, path)
        elif not near or any(leaf.choices for leaf in near):
            yield self._another_kind(value, view, path)
        else:
            yield from self._closest_branch(value, view, near, path)

    def _closest_branch(self, value: Any, view: SchemaView, near: Sequence[SchemaView], path: Path) -> Problems:
        """Return the problems of the branch that was probably meant: the one with the fewest, if just one has."""
        outcomes = [self.problems(value, leaf, path) for leaf in near[:SHOWN]]
        names: Set[str] = value.keys() if isinstance(value, dict) else frozenset()
        common_counts = [len(names & leaf.members.keys()) for leaf in near]
        distances = [(len(outcome), -count) for outcome, count in zip(outcomes, common_counts, strict=False)]
        closest = distances.index(min(distances))
        if distances.count(distances[closest]) == 1 and (common_counts[closest] or not isinstance(value, dict)):
            yield from outcomes[closest]
        elif common := _common_problems(outcomes):
            yield from common
        elif view.alternatives == (view.resolved,):  # what stands beside the union is kept to
            yield _expected(path, forms_of(near), value)
        else:
            yield self._another_kind(value, view, path)

    def _tagged(self, value: dict[str, Any], name: str, views_by_tag: Mapping[str, SchemaView], path: Path) -> Problems:
        tag_path, expected = (*path, name), one_of(list(views_by_tag))
        tag = value.get(name)
        if name not in value:
            yield _missing(tag_path, expected, choices=list(views_by_tag))
        elif isinstance(tag, str) and tag in views_by_tag:
            yield from self.problems(value, views_by_tag[tag], path)
        else:
            match = self._closest(tag, views_by_tag) if isinstance(tag, str) else None
            hint, is_text = did_you_mean(match, '"'), isinstance(tag, str)
            yield _expected(tag_path, expected, tag, choices=list(views_by_tag), hint=hint, with_kind=not is_text)

    def _object(self, value: dict[str, Any], view: SchemaView, path: Path) -> Problems:
        places = {name: view.member(name) for name in value}
        unknown = [name for name in value if any(place.is_false for place in places[name])]
        if view.schema.get("unevaluatedProperties") is False:
            known = {*view.names.members, *unknown}
            unknown += _omit(value, known)
        missing = _omit(view.required, value)
        matches = self._matches(value, unknown, missing, view)
        yield from _unknown(unknown, matches, _takes(view), path)
        for name, right in matches.items():
            yield from self.problems(value[name], view.at("properties", right), (*path, right))
        for name in _omit(missing, matches.values()):
            yield _missing((*path, name), describe_at(view.at("properties", name)))
        for name in _omit(value, unknown):
            for place in places[name]:
                yield from self.problems(value[name], place, (*path, name))

    def _matches(
        self, value: Mapping[str, Any], unknown: Sequence[str], missing: Sequence[str], view: SchemaView
    ) -> dict[str, str]:
        """Return for unknown names those that they probably misspell, each once: missing ones before others."""
        matches: dict[str, str] = {}
        free = _omit(view.names.members, {*value, *missing})
        for candidates in (missing, free):
            for name in unknown[:SHOWN]:
                left = _omit(candidates, matches.values())
                if name not in matches and (near := self._closest(name, left)) is not None:
                    matches[name] = near
        leftovers, over = _omit(missing, matches.values()), _omit(unknown, matches)
        if len(leftovers) == len(over) == 1 and view.at("properties", leftovers[0]).is_valid(value[over[0]]):
            matches[over[0]] = leftovers[0]  # nothing else is left that it could be, and the value fits
        return matches

    def _array(self, value: list[Any], view: SchemaView, path: Path) -> Problems:
        firsts = len(view.schema.get("prefixItems", ()))
        for index, item in enumerate(value[:firsts]):
            yield from self.problems(item, view.item(index), (*path, index))
        if "items" in view.schema:
            rest = value[firsts:]
            for index in view.item(firsts).wrong_items(rest):
                yield from self.problems(rest[index], view.item(firsts), (*path, firsts + index))


def _expected(
    path: Path, expected: str, value: Any, *, choices: Sequence[Any] = (), hint: str = "", with_kind: bool = True
) -> Problem:
    """Return that something else was expected; *with_kind* where the kind of the value says something about it."""
    keys = f" {in_braces(value)}" if isinstance(value, dict) and "{" in expected else ""
    got = f", got {kind(value)}{keys}" if with_kind else ""
    sentence = f"{display_path(path)}: expected {expected}{got}.{hint}"
    return Problem(pointer(path), expected, kind(value), sentence, tuple(choices[:SHOWN]))


def _over_limits(value: Any, view: SchemaView, path: Path) -> Problems:
    """Return a problem for each limit, and the format, that *value* does not keep to."""
    for keyword, limit in view.schema.items():
        if keyword in LIMITS and not view.satisfies(value, keyword):
            yield _expected(path, LIMITS[keyword](limit), value, with_kind=False)
    if "format" in view.schema and not view.satisfies(value, "format"):
        expected = f"text in the format '{display_name(view.schema['format'])}'"
        yield _expected(path, expected, value, with_kind=False)


def _common_problems(outcomes: Sequence[list[Problem]]) -> list[Problem]:
    return [problem for problem in outcomes[0] if all(problem in outcome for outcome in outcomes)]


def _missing(path: Path, expected: str, choices: Sequence[Any] = ()) -> Problem:
    sentence = f"{display_path(path)} is missing.{f' Expected {expected}.' if expected != ANY else ''}"
    return Problem(pointer(path), expected, "nothing", sentence, tuple(choices[:SHOWN]))


def _unknown(unknown: Sequence[str], matches: Mapping[str, str], takes: Sequence[str], path: Path) -> Problems:
    """Return a problem for each name that is not taken. Those that are taken are listed once."""
    names = ", ".join(map(display_name, takes[: 2 * SHOWN])) + (" …" if len(takes) > 2 * SHOWN else "")
    for number, name in enumerate(unknown[:MAX_PROBLEMS], 1):
        subject = f"{display_path(path)} takes no" if path else "It takes no argument"
        rest = f" It takes: {names}." if takes else " It takes none."
        ending = rest if number == len(unknown) else ""
        sentence = f"{subject} '{display_name(name)}'.{did_you_mean(matches.get(name))}{ending}"
        yield Problem(pointer((*path, name)), matches.get(name, "no such name"), "name", sentence)


def _takes(view: SchemaView) -> list[str]:
    """Return the names that an object takes, and what it says of others."""
    names = [name for name in view.names.members if not view.at("properties", name).is_false]
    return names + [f"names that match {pattern}" for pattern in view.schema.get("patternProperties", ())]


def _from_validator(path: Path, value: Any, details: Sequence[Mapping[str, Any]], arguments: Any) -> Problem:
    """Return the problem of a value that the schema admits and a validator refuses; it quotes none of *arguments*."""
    # Each branch of a union has an error of its own. That a branch expects another type is the least helpful.
    helpful = [detail for detail in details if not detail["type"].endswith("_type")] or details
    expected = either(validator_message(detail, value, arguments) for detail in helpful[:SHOWN])
    return Problem(pointer(path), expected, kind(value), f"{display_path(path)}: {expected}.")


# The message of a validator, which its author wrote

_QUOTING = {
    "extra_forbidden": "no field takes it",
    "uuid_parsing": "expected a valid UUID",
    "timezone_offset": "expected another timezone offset",
    "zoneinfo_str": "expected a valid timezone name",
    "import_error": "expected something that can be imported",
    "union_tag_invalid": "expected one of the known tags",
    "url_parsing": "expected a valid URL",
}
"""pydantic's errors whose own messages quote the value."""


def validator_message(error: Mapping[str, Any], value: Any, arguments: Any) -> str:
    """Return the message of pydantic's *error* over *value* as a part of a sentence, without values of *arguments*."""
    if (own := _QUOTING.get(error["type"])) is not None:
        return own
    if type(error.get("ctx", {}).get("error")).__module__ == "ipaddress":
        return "expected a valid IP address or network"
    message = " ".join(str(error["msg"]).removeprefix("Value error,").removeprefix("Assertion failed,").split())
    # pydantic's own messages list what it expects, which may be a value elsewhere.
    other_values = () if error["type"] in _KNOWN_TYPES else _scalars(arguments)
    message = _without_values(message, [*_scalars(value), *other_values])
    message = message[:_MAX_MESSAGE_CHARS].rstrip(".") or "refused"
    for beginning, better in _BEGINNINGS.items():
        message = re.sub(f"^{beginning}", better, message)
    return message if message[1:2].isupper() else f"{message[:1].lower()}{message[1:]}"


_MAX_MESSAGE_CHARS = 500
_BEGINNINGS = {
    "Input should be in ": "expected text in ",
    "Input should be ": "expected ",
    "Input should have ": "expected it to have ",
}

_KNOWN_TYPES = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error"}
"""The types of pydantic's own errors."""


def _scalars(value: Any) -> Iterator[Any]:
    """Return the texts and numbers in *value*, at any depth: the first of them, if there are very many."""
    left, most = [value], _MAX_SCALARS
    while left and most:
        value = left.pop()
        most -= 1
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str | float) or (type(value) is int and value.bit_length() < 1000):
            yield value


def _without_values(message: str, values: Sequence[Any]) -> str:
    """Return *message* with what it has of *values* replaced by "…".

    Where an author quotes only a part of a long text, that part is found by its length.
    """
    texts = [" ".join(value.split()) for value in values if isinstance(value, str)]
    rest = _without_parts(message[:_MAX_MESSAGE_CHARS], "\n".join(texts)[:_MAX_SEARCHED_CHARS])
    numbers = _spellings(values)
    short = {text for text in texts if 0 < len(text) <= _MAX_MESSAGE_CHARS}
    for text in sorted(short | numbers, key=len, reverse=True):
        if text not in rest:
            continue
        # As a word by itself only where it is long enough to be no word of the sentence.
        is_word = len(text) >= 4 or text in numbers or not text.isalpha()
        bare = rf"|(?<![\w.]){re.escape(text)}(?![\w]|\.\w)" if is_word else ""
        rest = re.sub(rf"(?<=['\"]){re.escape(text)}(?=['\"]){bare}", "…", rest)
    return rest


def _spellings(values: Iterable[Any]) -> set[str]:
    """Return how a message may write the numbers among *values*, as far as that is more than one digit."""
    numbers = [value for value in values if not isinstance(value, str)]
    return {text for number in numbers for text in (str(number), f"{number:,}", f"{number:g}") if len(text) > 1}


def _without_parts(message: str, text: str) -> str:
    """Return *message* with what it has of *text* replaced by "…", where that is long."""
    rest, at = "", 0
    while at < len(message):
        size = _MIN_QUOTED_CHARS
        if at + size <= len(message) and message[at : at + size] in text:
            while at + size < len(message) and message[at : at + size + 1] in text:
                size += 1
            rest, at = f"{rest}…", at + size
        else:
            rest, at = rest + message[at], at + 1
    return rest


_MAX_SCALARS = 500
_MAX_SEARCHED_CHARS = 5000
_MIN_QUOTED_CHARS = 12
