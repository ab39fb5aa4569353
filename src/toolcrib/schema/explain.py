"""Why arguments were refused: every problem of a call, each with its place, what was expected, what came, a way out.

No sentence here quotes a value: only names, kinds, and what the schema itself says. The words of a validator's author
are shown with the value struck out of them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import ToolError
from .document import Document, Effort, kind, pointer, token
from .words import (
    ANY,
    LIMITS,
    SHOWN,
    called,
    choices,
    describe_at,
    did_you_mean,
    either,
    nearest,
    one_of,
    spoken,
)

__all__ = [
    "Problem",
    "lead",
    "nearest",
    "other_problems",
    "problems",
    "refusal",
    "spoken",
]

_FOUND = 50
"""How many problems are looked for."""

_EFFORT = 2_000_000
_EACH = 10
_DEEPEST = 120
"""How many schemas are gone through to one place. Each takes some frames of Python's stack."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the arguments. *path* is a JSON pointer (RFC 6901); `choices` are the schema's.

    A sentence that begins with "It" speaks of the tool.
    """

    path: str
    sentence: str
    expected: str
    came: str
    choices: tuple[Any, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "path": self.path,
            "expected": self.expected,
            "came": self.came,
            "choices": list(self.choices),
            "sentence": self.sentence,
        }
        return {name: value for name, value in said.items() if value != []}


def refusal(tool: str, problems: Sequence[Problem], *, code: str = "invalid_arguments") -> ToolError:
    """The one answer to a call whose arguments have *problems*."""
    shown = problems[:SHOWN]
    if len(problems) == 1:
        sentence = shown[0].sentence
        message = f"Tool '{tool}' {sentence[3:]}" if sentence.startswith("It ") else f"Tool '{tool}': {sentence}"
    else:
        count, rest = str(len(problems)), f"{len(problems) - SHOWN} more"
        if len(problems) >= _FOUND:
            count, rest = f"{_FOUND} or more", "more"
        lines = "".join(f"\n- {problem.sentence}" for problem in shown)
        message = f"Tool '{tool}': {count} problems with its arguments.{lines}"
        message += f"\n- and {rest}." if len(problems) > SHOWN else ""
    return ToolError(message, code, details={"problems": [problem.to_dict() for problem in shown]})


def problems(document: Document, value: Any) -> list[Problem]:
    """What the schema has against *value*, each thing once, at most 50.

    None if it is valid, or where looking for what is wrong would take too long.
    """
    if not document.walkable or document.valid(value, ""):
        return []
    return _Look(document).problems(value, "", ())


def other_problems(errors: Sequence[Mapping[str, Any]], data: Any, known: Sequence[Problem]) -> list[Problem]:
    """pydantic's errors, where *known* does not already speak of their place."""
    found: dict[str, tuple[Path, Any, list[Mapping[str, Any]]]] = {}
    for error in errors:
        path, value = lead(error["loc"], data)
        place = pointer(path)
        if not any(f"{p.path}/".startswith(f"{place}/") or f"{place}/".startswith(f"{p.path}/") for p in known):
            found.setdefault(place, (path, value, []))[2].append(error)
            if len(found) >= _FOUND:
                break
    problems: list[Problem] = []
    for place, (path, value, here) in found.items():
        # Each branch of a union has its say. That a value is of another type than a branch wants says least.
        telling = [error for error in here if not error["type"].endswith("_type")] or here
        said = either(_said(error, value) for error in telling[:SHOWN])
        problems.append(Problem(place, f"{called(path)}: {said}.", said, kind(value)))
    return problems


def in_question(known: list[Problem], errors: Sequence[Mapping[str, Any]], data: Any) -> list[Problem]:
    """Those of the *known* problems at whose place, or above or below it, pydantic has an error too."""
    places: set[str] = set()
    above: set[str] = set()
    for error in errors:
        path, _ = lead(error["loc"], data)
        parts = (*path, error["loc"][-1]) if error["type"] == "missing" else path
        places.add(pointer(parts))
        above |= {pointer(parts[:length]) for length in range(len(parts))}
    return [p for p in known if p.path in above or any(f"{p.path}/".startswith(f"{place}/") for place in places)]


def lead(loc: Sequence[Any], data: Any) -> tuple[Path, Any]:
    """As far as *loc* leads into the data: pydantic also puts the names of union branches into it."""
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


class _Look:
    """One value being explained, place by place. What was found at a place is remembered: branches meet again."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._effort = Effort(_EFFORT, each=_EACH)
        self._known: dict[tuple[Path, str], list[Problem]] = {}
        self._depth = 0
        self._gave_up = False

    def problems(self, value: Any, place: str, path: Path) -> list[Problem]:
        """The problems of *value* at *place*: none where it is valid, or where looking would take too long."""
        known = self._known.get((path, place))
        if known is None:
            known = self._known[path, place] = []  # found by a schema that leads back to itself
            if self._depth > _DEEPEST or not self._effort.take(value):
                self._gave_up = True
            elif not self._document.valid(value, place):
                self._depth += 1
                found: dict[tuple[str, str], Problem] = {}
                for problem in self._look(value, place, path):
                    found.setdefault((problem.path, problem.sentence), problem)
                    if len(found) >= _FOUND:
                        break
                self._depth -= 1
                known += found.values() or self._unevaluated(value, place, path)
                if not known and not self._gave_up:
                    known.append(_expected(path, "what the schema admits here", value, exact=False))
        return known

    def _look(self, value: Any, place: str, path: Path) -> Iterator[Problem]:
        document, schema = self._document, self._document.at(place)
        if document.forbids(place):
            yield _expected(path, "nothing", value)
            return
        if not all(document.keeps(value, place, word) for word in ("type", "enum", "const") if word in schema):
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
            if keyword in LIMITS and not document.keeps(value, place, keyword):
                yield _expected(path, LIMITS[keyword](limit), value, exact=False)
        if "format" in schema and not document.keeps(value, place, "format"):
            yield _expected(path, f"text in the format '{spoken(schema['format'])}'", value, exact=False)
        if isinstance(value, dict):
            yield from self._object(value, schema, place, path)
        elif isinstance(value, list):
            yield from self._array(value, schema, place, path)

    def _another_kind(self, value: Any, place: str, path: Path) -> Problem:
        """That *value* is of another kind than is expected, or none of the choices."""
        listed = choices(self._document, place)
        meant = nearest(value, [c for c in listed if isinstance(c, str)]) if isinstance(value, str) else None
        expected = describe_at(self._document, place)
        return _expected(path, expected, value, listed=listed, hint=did_you_mean(meant, '"'))

    def _union(self, value: Any, place: str, keyword: str, path: Path) -> Iterator[Problem]:
        document = self._document
        if fitting := [branch for branch in document.branches(place, keyword) if document.valid(value, branch)]:
            if keyword == "oneOf" and len(fitting) > 1:
                forms = ", ".join(dict.fromkeys(describe_at(document, branch) for branch in fitting))
                sentence = f"{called(path)} may fit only one of these, and fits several: {forms}."
                yield Problem(pointer(path), sentence, f"only one of: {forms}", kind(value))
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
        """How many names of an object are those of the schema at *place*."""
        known = self._document.at(place).get("properties", {})
        return sum(name in known for name in value) if isinstance(value, dict) else 0

    def _by_tag(self, places: Sequence[str]) -> tuple[str, dict[str, str]] | None:
        """The property that tells objects apart, and which of its values stands for which place."""
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
            meant = nearest(tag, by_tag) if isinstance(tag, str) else None
            yield _expected(here, expected, tag, listed=list(by_tag), hint=did_you_mean(meant, '"'))

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], place: str, path: Path) -> Iterator[Problem]:
        document = self._document
        fits = {name: document.of_member(name, place) for name in value}
        unknown = [name for name in value if any(document.forbids(fit) for fit in fits[name])]
        missing = {name: "" for name in schema.get("required", ()) if name not in value}
        for name, needs in schema.get("dependentRequired", {}).items():
            if name in value:
                missing |= {need: name for need in needs if need not in value and need not in missing}
        meant = self._meant(value, unknown, list(missing), schema, place)
        yield from _unknown(unknown, meant, _takes(schema), path)
        for name, right in meant.items():
            yield from self.problems(value[name], f"{place}/properties/{token(right)}", (*path, right))
        for name, because in missing.items():
            if name not in meant.values():
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

    def _meant(
        self, value: Mapping[str, Any], unknown: list[str], missing: list[str], schema: Mapping[str, Any], place: str
    ) -> dict[str, str]:
        """For unknown names, those that were probably meant, each only once: missing ones before others."""
        meant: dict[str, str] = {}
        free = [name for name in _takes(schema, patterns=False) if name not in value and name not in missing]
        for candidates in (missing, free):
            for name in unknown[:SHOWN]:
                left = [candidate for candidate in candidates if candidate not in meant.values()]
                if name not in meant and (near := nearest(name, left)) is not None:
                    meant[name] = near
        lost = [name for name in missing if name not in meant.values()]
        over = [name for name in unknown if name not in meant]
        if len(lost) == len(over) == 1 and self._document.valid(value[over[0]], f"{place}/properties/{token(lost[0])}"):
            meant[over[0]] = lost[0]  # nothing else is left to be meant, and the value fits
        return meant

    def _unevaluated(self, value: Any, place: str, path: Path) -> Iterator[Problem]:
        """Names that no part of a composed schema speaks of. Only the validator can tell which these are."""
        schema = self._document.at(place)
        if "unevaluatedProperties" not in schema or not isinstance(value, dict):
            return
        judge = self._document.judge(place)
        for error in judge.iter_errors(value) if judge is not None and len(value) <= 1000 else ():
            if error.kind.name == "unevaluatedProperties" and not error.instance_path:
                unknown = [name for name in error.kind.value if name in value]
                takes = list(dict.fromkeys(self._names(place, 0)))
                free = [name for name in takes if name not in value]
                meant = {name: near for name in unknown[:SHOWN] if (near := nearest(name, free)) is not None}
                yield from _unknown(unknown, meant, takes, path)

    def _names(self, place: str, depth: int) -> Iterator[str]:
        """The names that a composed schema speaks of."""
        place = self._document.resolved(place)
        schema = self._document.at(place)
        if depth > 6:
            return
        yield from schema.get("properties", {})
        parts = [f"{place}/{word}" for word in ("if", "then", "else") if word in schema]
        parts += [branch for word in ("allOf", "anyOf", "oneOf") for branch in self._document.branches(place, word)]
        parts += [f"{place}/dependentSchemas/{token(name)}" for name in schema.get("dependentSchemas", {})]
        for part in parts:
            yield from self._names(part, depth + 1)

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
    keys = f" {{{', '.join(map(spoken, list(value)[:6]))}}}" if isinstance(value, dict) and "{" in expected else ""
    got = f", got {kind(value)}{keys}" if exact else ""
    sentence = f"{called(path)}: expected {expected}{got}.{hint}"
    return Problem(pointer(path), sentence, expected, kind(value), tuple(listed[:SHOWN]))


def _missing(path: Path, expected: str, because: str = "", listed: Sequence[Any] = ()) -> Problem:
    why = f", and '{spoken(because)}' needs it" if because else ""
    sentence = f"{called(path)} is missing{why}.{f' Expected {expected}.' if expected != ANY else ''}"
    return Problem(pointer(path), sentence, expected, "nothing", tuple(listed[:SHOWN]))


def _unknown(
    unknown: Sequence[str], meant: Mapping[str, str], takes: Sequence[str], path: Path, instead: str = ""
) -> Iterator[Problem]:
    """Names that are not taken. What is taken is said once."""
    listed = ", ".join(map(spoken, takes[: 2 * SHOWN])) + (" …" if len(takes) > 2 * SHOWN else "")
    for number, name in enumerate(unknown[:_FOUND], 1):
        subject = f"{called(path)} takes no" if path else "It takes no argument"
        rest = f" {instead or f'It takes: {listed}.' if takes or instead else 'It takes none.'}"
        sentence = f"{subject} '{spoken(name)}'.{did_you_mean(meant.get(name))}{rest if number == len(unknown) else ''}"
        yield Problem(pointer((*path, name)), sentence, meant.get(name, "no such name"), "name")


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


_QUOTING = {
    "uuid_parsing": "expected a valid UUID",
    "timezone_offset": "expected another timezone offset",
    "zoneinfo_str": "expected a valid timezone name",
    "import_error": "expected something that can be imported",
    "union_tag_invalid": "expected one of the known tags",
    "url_parsing": "expected a valid URL",
}
"""pydantic's errors whose own words quote the value."""


def _said(error: Mapping[str, Any], value: Any) -> str:
    """pydantic's or an author's words, to stand in a sentence, with the value struck out."""
    if (own := _QUOTING.get(error["type"])) is not None:
        return own
    if type(error.get("ctx", {}).get("error")).__module__ == "ipaddress":
        return "expected a valid IP address or network"
    said = " ".join(str(error["msg"]).removeprefix("Value error,").removeprefix("Assertion failed,").split())
    said = said[:_LONGEST].rstrip(".") or "refused"
    for beginning, better in _BEGINNINGS.items():
        said = re.sub(f"^{beginning}", better, said)
    for text in sorted(_texts(value), key=len, reverse=True):
        # As a word by itself only where it is long enough to be no word of the sentence.
        bare = rf"|(?<!\w){re.escape(text)}(?!\w)" if len(text) >= 4 else ""
        said = re.sub(rf"(?<=['\"]){re.escape(text)}(?=['\"]){bare}", "…", said)
    return said if said[1:2].isupper() else f"{said[:1].lower()}{said[1:]}"


_LONGEST = 500
_BEGINNINGS = {
    "Input should be in ": "expected text in ",
    "Input should be ": "expected ",
    "Input should have ": "expected it to have ",
}


def _texts(value: Any) -> list[str]:
    """Texts in a value, as far as an author is likely to quote them."""
    if isinstance(value, str):
        return [value] if 0 < len(value) <= 1000 else []
    members = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [member for member in members[:50] if isinstance(member, str) and 0 < len(member) <= 1000]
