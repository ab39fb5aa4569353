"""Every problem of refused arguments, each with its place, what was expected, what came, and a way out.

The JSON Schema is walked beside the value, and the walk words the problems. Where pydantic has refused the value, it
decides which places are in question: what it accepted is not a problem, though the schema may not show that, and what
the schema cannot show is worded as the validator's author did.

No sentence here quotes a value: only names, kinds, and what the schema itself says. From an author's message, the value
is removed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError

from ..core import ToolError
from .author_message import validator_message
from .describe import (
    ANY,
    LIMITS,
    SHOWN,
    choices,
    closest_match,
    describe_at,
    did_you_mean,
    display_name,
    display_path,
    either,
    one_of,
)
from .document import Budget, Document, kind, names_at, pointer, token

_MOST = 50
"""How many problems are looked for."""

_MOST_ERRORS = 10_000
"""More errors of pydantic than these are not gone through one by one: listing them takes longer than the check."""

_MOST_COMPARED = 2 * SHOWN
"""For how many names and values of one call the closest match is looked for."""

_BUDGET = 2_000_000
_EACH = 10
_DEEPEST = 120
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


def refusal(tool: str, problems: Sequence[Problem], *, code: str = "invalid_arguments", remark: str = "") -> ToolError:
    """Return the one error for a call whose arguments have *problems*. *remark* is a sentence about all of them."""
    listed = problems[:SHOWN]
    if len(problems) == 1:
        sentence = listed[0].sentence
        message = f"Tool '{tool}' {sentence[3:]}" if sentence.startswith("It ") else f"Tool '{tool}': {sentence}"
    else:
        count, rest = str(len(problems)), f"{len(problems) - SHOWN} more"
        if len(problems) >= _MOST:
            count, rest = f"{_MOST} or more", "more"
        lines = "".join(f"\n- {problem.sentence}" for problem in listed)
        message = f"Tool '{tool}': {count} problems with its arguments.{lines}"
        message += f"\n- and {rest}." if len(problems) > SHOWN else ""
    message += f"\n{remark}" if remark else ""
    return ToolError(message, code, details={"problems": [problem.to_dict() for problem in listed]})


def error_details(error: ValidationError, *, inputs: bool = False) -> Sequence[Mapping[str, Any]] | None:
    """Return the errors in pydantic's *error*, with *inputs* the refused values too; None where there are too many."""
    if error.error_count() > _MOST_ERRORS:
        return None
    return error.errors(include_url=False, include_input=inputs)


def problems(
    document: Document, value: Any, error: ValidationError | None = None, *, budget: Budget | None = None
) -> list[Problem]:
    """Return what is wrong with *value*, each thing once, at most 50.

    *error* is pydantic's, where pydantic decides. Without it, the schema alone does: nothing is returned for a value
    that is valid, or where looking for what is wrong would take more than *budget*.
    """
    found: list[Problem] = []
    if document.walkable and not document.valid(value, ""):
        found = _Walk(document, budget or Budget(_BUDGET, each=_EACH)).problems(value, "", ())
    details = None if error is None else error_details(error)
    if details is None:
        return found
    refused: dict[str, tuple[Path, Any, list[Any]]] = {}
    places: set[str] = set()
    for detail in details:
        path, part = locate(detail["loc"], value)
        refused.setdefault(pointer(path), (path, part, []))[2].append(detail)
        places.add(pointer((*path, detail["loc"][-1]) if detail["type"] == "missing" else path))
    above = {place[:end] for place in places for end, sign in enumerate(place) if sign == "/"}
    found = [p for p in found if p.path in above or any(_is_within(p.path, place) for place in places)]
    explained = [problem.path for problem in found]
    for place, (path, part, of_place) in refused.items():
        if len(found) >= _MOST:
            break
        if not any(_is_within(p, place) or _is_within(place, p) for p in explained):
            found.append(_from_validator(path, part, of_place, value))
    return found


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


def _is_within(place: str, outer: str) -> bool:
    return f"{place}/".startswith(f"{outer}/")


class _Walk:
    """Explains one value, place by place. What was found at a place is remembered: branches meet again."""

    def __init__(self, document: Document, budget: Budget) -> None:
        self._document = document
        self._budget = budget
        self._compared = 0
        self._known: dict[tuple[Path, str], list[Problem]] = {}
        self._depth = 0
        self._gave_up = False

    def problems(self, value: Any, place: str, path: Path) -> list[Problem]:
        """The problems of *value* at *place*: none where it is valid, or where looking would take too long."""
        known = self._known.get((path, place))
        if known is None:
            known = self._known[path, place] = []  # found by a schema that leads back to itself
            if self._depth > _DEEPEST or not self._budget.take(value):
                self._gave_up = True
            elif not self._document.valid(value, place):
                self._depth += 1
                found: dict[tuple[str, str], Problem] = {}
                for problem in self._found(value, place, path):
                    found.setdefault((problem.path, problem.sentence), problem)
                    if len(found) >= _MOST:
                        break
                self._depth -= 1
                known += found.values() or self._unevaluated(value, place, path)
                if not known and not self._gave_up:
                    known.append(_expected(path, "what the schema admits here", value, exact=False))
        return known

    def _found(self, value: Any, place: str, path: Path) -> Iterator[Problem]:
        document, schema = self._document, self._document.at(place)
        if document.forbids(place):
            yield _expected(path, "nothing", value)
            return
        if not all(document.satisfies(value, place, word) for word in ("type", "enum", "const") if word in schema):
            yield self._another_kind(value, place, path)
            return
        if (target := document.target(place)) is not None:
            yield from self.problems(value, target, path)
        for part in document.branches(place, "allOf"):
            yield from self.problems(value, part, path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield from self._union(value, place, keyword, path)
        if "if" in schema:
            branch = "then" if document.valid(value, f"{place}/if") else "else"
            yield from self.problems(value, f"{place}/{branch}", path)
        if "not" in schema and document.valid(value, f"{place}/not"):
            yield _expected(path, f"anything but {describe_at(document, f'{place}/not')}", value, exact=False)
        for keyword, limit in schema.items():
            if keyword in LIMITS and not document.satisfies(value, place, keyword):
                yield _expected(path, LIMITS[keyword](limit), value, exact=False)
        if "format" in schema and not document.satisfies(value, place, "format"):
            yield _expected(path, f"text in the format '{display_name(schema['format'])}'", value, exact=False)
        if isinstance(value, dict):
            yield from self._object(value, schema, place, path)
        elif isinstance(value, list):
            yield from self._array(value, schema, place, path)

    def _another_kind(self, value: Any, place: str, path: Path) -> Problem:
        """That *value* is of another kind than is expected, or none of the choices."""
        listed = choices(self._document, place)
        match = self._closest(value, [c for c in listed if isinstance(c, str)]) if isinstance(value, str) else None
        expected = describe_at(self._document, place)
        return _expected(path, expected, value, listed=listed, hint=did_you_mean(match, '"'))

    def _closest(self, name: str, names: Iterable[str]) -> str | None:
        self._budget.pause()
        self._compared += 1
        return closest_match(name, names) if self._compared <= _MOST_COMPARED else None

    def _union(self, value: Any, place: str, keyword: str, path: Path) -> Iterator[Problem]:
        document = self._document
        if fitting := [branch for branch in document.branches(place, keyword) if document.valid(value, branch)]:
            if keyword == "oneOf" and len(fitting) > 1:
                forms = ", ".join(dict.fromkeys(describe_at(document, branch) for branch in fitting))
                sentence = f"{display_path(path)} may fit only one of these, and fits several: {forms}."
                yield Problem(pointer(path), f"only one of: {forms}", kind(value), sentence)
            return
        near = [a for a in document.alternatives(place, keyword) if _admits_kind(document.kinds(a), value)]
        if isinstance(value, dict) and (tagged := self._by_tag(near)) is not None:
            yield from self._tagged(value, *tagged, path)
            return
        if not near or any(choices(document, branch) for branch in near):
            yield self._another_kind(value, place, path)
            return
        outcomes = [self.problems(value, branch, path) for branch in near[:SHOWN]]
        shared = [self._shared(value, branch) for branch in near]
        distances = [(len(outcome), -names) for outcome, names in zip(outcomes, shared, strict=False)]
        closest = distances.index(min(distances))
        if distances.count(distances[closest]) == 1 and (shared[closest] or not isinstance(value, dict)):
            yield from outcomes[closest]
        elif common := [problem for problem in outcomes[0] if all(problem in outcome for outcome in outcomes)]:
            yield from common
        else:
            yield self._another_kind(value, place, path)

    def _shared(self, value: Any, place: str) -> int:
        """How many names of an object the schema at *place* has."""
        known = self._document.at(place).get("properties", {})
        return sum(name in known for name in value) if isinstance(value, dict) else 0

    def _by_tag(self, places: Sequence[str]) -> tuple[str, dict[str, str]] | None:
        """The property that tells objects apart, and the place for each of its values."""
        document = self._document
        if len(places) < 2 or not all(isinstance(document.at(place).get("properties"), dict) for place in places):
            return None
        for name in document.at(places[0])["properties"]:
            by_tag: dict[str, str] = {}
            for place in places:
                tags = choices(document, f"{place}/properties/{token(name)}")
                if not tags or any(not isinstance(tag, str) or tag in by_tag for tag in tags):
                    break
                by_tag |= dict.fromkeys(tags, place)
            else:
                return name, by_tag
        return None

    def _tagged(self, value: dict[str, Any], name: str, by_tag: Mapping[str, str], path: Path) -> Iterator[Problem]:
        here, expected = (*path, name), one_of(list(by_tag))
        tag = value.get(name)
        if name not in value:
            yield _missing(here, expected, listed=list(by_tag))
        elif isinstance(tag, str) and tag in by_tag:
            yield from self.problems(value, by_tag[tag], path)
        else:
            match = self._closest(tag, by_tag) if isinstance(tag, str) else None
            yield _expected(here, expected, tag, listed=list(by_tag), hint=did_you_mean(match, '"'))

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], place: str, path: Path) -> Iterator[Problem]:
        document = self._document
        fits = {name: document.member_places(name, place) for name in value}
        unknown = [name for name in value if any(document.forbids(fit) for fit in fits[name])]
        missing = {name: "" for name in schema.get("required", ()) if name not in value}
        for name, needs in schema.get("dependentRequired", {}).items():
            if name in value:
                missing |= {need: name for need in needs if need not in value and need not in missing}
        matches = self._matches(value, unknown, list(missing), schema, place)
        yield from _unknown(unknown, matches, _takes(schema), path)
        for name, right in matches.items():
            yield from self.problems(value[name], f"{place}/properties/{token(right)}", (*path, right))
        for name, because in missing.items():
            if name not in matches.values():
                yield _missing((*path, name), describe_at(document, f"{place}/properties/{token(name)}"), because)
        for name, member in value.items():
            if name not in unknown:
                for fit in fits[name]:
                    yield from self.problems(member, fit, (*path, name))
            if "propertyNames" in schema and (wrong := self.problems(name, f"{place}/propertyNames", (*path, name, 0))):
                yield from _unknown([name], {}, [], path, instead=f"A name here is {wrong[0].expected}.")
        for name in schema.get("dependentSchemas", {}):
            if name in value:
                yield from self.problems(value, f"{place}/dependentSchemas/{token(name)}", path)

    def _matches(
        self, value: Mapping[str, Any], unknown: list[str], missing: list[str], schema: Mapping[str, Any], place: str
    ) -> dict[str, str]:
        """Return for unknown names those that they probably misspell, each once: missing ones before others."""
        matches: dict[str, str] = {}
        free = [name for name in _takes(schema, patterns=False) if name not in value and name not in missing]
        for candidates in (missing, free):
            for name in unknown[:SHOWN]:
                left = [candidate for candidate in candidates if candidate not in matches.values()]
                if name not in matches and (near := self._closest(name, left)) is not None:
                    matches[name] = near
        lost = [name for name in missing if name not in matches.values()]
        over = [name for name in unknown if name not in matches]
        if len(lost) == len(over) == 1 and self._document.valid(value[over[0]], f"{place}/properties/{token(lost[0])}"):
            matches[over[0]] = lost[0]  # nothing else is left that it could be, and the value fits
        return matches

    def _unevaluated(self, value: Any, place: str, path: Path) -> Iterator[Problem]:
        """Names that no part of a composed schema has. Only the validator knows which these are."""
        schema = self._document.at(place)
        if "unevaluatedProperties" not in schema or not isinstance(value, dict):
            return
        validator = self._document.validator_at(place)
        for error in validator.iter_errors(value) if validator is not None and len(value) <= 1000 else ():
            if error.kind.name == "unevaluatedProperties" and not error.instance_path:
                unknown = [name for name in error.kind.value if name in value]
                takes = names_at(self._document, place, {}).known
                free = [name for name in takes if name not in value]
                matches = {name: near for name in unknown[:SHOWN] if (near := self._closest(name, free)) is not None}
                yield from _unknown(unknown, matches, takes, path)

    def _array(self, value: list[Any], schema: Mapping[str, Any], place: str, path: Path) -> Iterator[Problem]:
        document = self._document
        firsts = document.branches(place, "prefixItems")
        if len(value) > len(firsts) and schema.get("items") is False:
            yield _expected(path, LIMITS["maxItems"](len(firsts)), value, exact=False)
            value = value[: len(firsts)]
        for index, (item, fit) in enumerate(zip(value, firsts, strict=False)):
            yield from self.problems(item, fit, (*path, index))
        if isinstance(schema.get("items"), dict):
            for index in document.wrong_items(rest := value[len(firsts) :], f"{place}/items"):
                yield from self.problems(rest[index], f"{place}/items", (*path, len(firsts) + index))
        if "contains" in schema:
            least, most = schema.get("minContains", 1), schema.get("maxContains")
            fitting = sum(document.valid(item, f"{place}/contains") for item in value)
            what = f"that {'is' if least == 1 else 'are'} {describe_at(document, f'{place}/contains')}"
            if fitting < least:
                yield _expected(path, f"{LIMITS['minItems'](least)} {what}", value, exact=False)
            if most is not None and fitting > most:
                yield _expected(path, f"{LIMITS['maxItems'](most)} {what}", value, exact=False)


def _expected(
    path: Path, expected: str, value: Any, *, listed: Sequence[Any] = (), hint: str = "", exact: bool = True
) -> Problem:
    """*exact* where the kind of the value says something about what is wrong with it."""
    keys = (
        f" {{{', '.join(map(display_name, list(value)[:6]))}}}" if isinstance(value, dict) and "{" in expected else ""
    )
    got = f", got {kind(value)}{keys}" if exact else ""
    sentence = f"{display_path(path)}: expected {expected}{got}.{hint}"
    return Problem(pointer(path), expected, kind(value), sentence, tuple(listed[:SHOWN]))


def _missing(path: Path, expected: str, because: str = "", listed: Sequence[Any] = ()) -> Problem:
    why = f", and '{display_name(because)}' needs it" if because else ""
    sentence = f"{display_path(path)} is missing{why}.{f' Expected {expected}.' if expected != ANY else ''}"
    return Problem(pointer(path), expected, "nothing", sentence, tuple(listed[:SHOWN]))


def _unknown(
    unknown: Sequence[str], matches: Mapping[str, str], takes: Sequence[str], path: Path, instead: str = ""
) -> Iterator[Problem]:
    """Names that are not taken. Those that are taken are listed once."""
    listed = ", ".join(map(display_name, takes[: 2 * SHOWN])) + (" …" if len(takes) > 2 * SHOWN else "")
    for number, name in enumerate(unknown[:_MOST], 1):
        subject = f"{display_path(path)} takes no" if path else "It takes no argument"
        rest = f" {instead or f'It takes: {listed}.' if takes or instead else 'It takes none.'}"
        ending = rest if number == len(unknown) else ""
        sentence = f"{subject} '{display_name(name)}'.{did_you_mean(matches.get(name))}{ending}"
        yield Problem(pointer((*path, name)), matches.get(name, "no such name"), "name", sentence)


def _takes(schema: Mapping[str, Any], *, patterns: bool = True) -> list[str]:
    """The names that an object takes, and with *patterns* what it says of others."""
    names = [name for name, of in schema.get("properties", {}).items() if of is not False]
    return names + [f"names that match {pattern}" for pattern in schema.get("patternProperties", ()) if patterns]


def _admits_kind(kinds: frozenset[str], value: Any) -> bool:
    of = kind(value)
    return (
        not kinds
        or of in kinds
        or (of == "integer" and "number" in kinds)
        or (of == "number" and "integer" in kinds and value.is_integer())
    )


def _from_validator(path: Path, value: Any, details: Sequence[Mapping[str, Any]], arguments: Any) -> Problem:
    """The problem of a value that the schema admits, and a validator refuses: nothing of *arguments* is quoted."""
    # Each branch of a union has an error of its own. That a branch expects another type is the least helpful.
    telling = [detail for detail in details if not detail["type"].endswith("_type")] or details
    expected = either(validator_message(detail, value, arguments) for detail in telling[:SHOWN])
    return Problem(pointer(path), expected, kind(value), f"{display_path(path)}: {expected}.")
