"""Why arguments were refused: every problem of a call, each with its place, what was expected, what came, a way out.

No sentence here quotes a value: only names, kinds, and what the schema itself says.
"""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from ..core import ToolError
from .repair import kind

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the arguments. *path* is a JSON pointer (RFC 6901); `choices` are the schema's."""

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
    shown = problems[:_SHOWN]
    if len(problems) == 1:
        message = f"Tool '{tool}': {shown[0].sentence}"
    else:
        rest = f"\n- and {len(problems) - _SHOWN} more." if len(problems) > _SHOWN else ""
        lines = "".join(f"\n- {problem.sentence}" for problem in shown)
        message = f"Tool '{tool}': {len(problems)} problems with its arguments.{lines}{rest}"
    return ToolError(message, code, details={"problems": [problem.to_dict() for problem in shown]})


def schema_problems(
    errors: Iterable[jsonschema_rs.ValidationError], schema: Mapping[str, Any], data: Any
) -> list[Problem]:
    """The errors of jsonschema-rs in our words, sorted by place and said once each."""
    found: dict[tuple[str, str], Problem] = {}
    for error in errors:
        for problem in _problems(error, schema, data):
            found.setdefault((problem.path, problem.sentence), problem)
    return list(found.values())


def other_problems(errors: Sequence[Mapping[str, Any]], data: Any, known: Sequence[Problem]) -> list[Problem]:
    """pydantic's errors, where *known* does not already speak of their place."""
    found: dict[str, Problem] = {}
    for error in errors:
        place, value = _place(error["loc"], data)
        if any(p.path == place or place.startswith(f"{p.path}/") or p.path.startswith(f"{place}/") for p in known):
            continue
        said = str(error["msg"]).rstrip(".")
        said = said.removeprefix("Value error, ").removeprefix("Assertion failed, ")
        sentence = f"{_called(place)}: {said[:1].lower()}{said[1:]}."
        found.setdefault(place, Problem(place, sentence, said, kind(value)))
    return list(found.values())


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of *names* that was probably meant."""
    known = {candidate.lower().replace("-", "_"): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower().replace("-", "_")[:100], known, n=1, cutoff=0.6)
    return known[close[0]] if close else None


def spoken(name: str) -> str:
    """A name that came from outside, short and on one line."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name[:64])
    return plain + ("…" if len(name) > 64 else "")


def _problems(error: jsonschema_rs.ValidationError, root: Mapping[str, Any], data: Any) -> Iterable[Problem]:
    path = pointer(error.instance_path)
    name = error.kind.name
    value = _at(data, error.instance_path)
    schema = _schema_at(root, error.schema_path[:-1])
    if name == "required":
        missing = str(error.kind.value)
        expected = describe(schema.get("properties", {}).get(missing, {}), root)
        where = f"{path}/{missing}"
        yield Problem(where, f"{_called(where)} is missing. Expected {expected}.", expected, "nothing")
    elif name in ("additionalProperties", "unevaluatedProperties", "falseSchema"):
        unexpected = error.kind.value if isinstance(error.kind.value, list) else [str(error.instance_path[-1])]
        yield from _unknown_names(unexpected, schema, value if isinstance(value, dict) else {}, path)
    elif name in ("anyOf", "oneOf") and (branch := _telling_branch(error)):
        for inner in branch:
            yield from _problems(inner, root, data)
    elif name in ("type", "anyOf", "oneOf", "enum", "const"):
        expected, choices = describe(schema, root), _choices(schema, root)
        yield Problem(path, f"{_called(path)}: expected {expected}, got {kind(value)}.", expected, kind(value), choices)
    else:
        said = error.message.replace("the value", "the value")
        yield Problem(path, f"{_called(path)}: {said}.", describe(schema, root), kind(value))


def _unknown_names(
    names: Sequence[str], schema: Mapping[str, Any], given: Mapping[str, Any], path: str
) -> Iterable[Problem]:
    properties = list(schema.get("properties", {}))
    free = [name for name in properties if name not in given]
    missing = [name for name in schema.get("required", ()) if name not in given]
    takes = f"It takes: {', '.join(properties)}." if properties else "It takes none."
    for name in names:
        meant = nearest(name, free) or (missing[0] if len(missing) == len(names) == 1 else None)
        hint = f" Did you mean '{meant}'?" if meant else ""
        where = pointer([name])
        of = f" in {_called(path)}" if path else ""
        sentence = f"there is no argument '{spoken(name)}'{of}.{hint} {takes}"
        yield Problem(path + where, sentence, meant or "no such name", "name")


def _telling_branch(error: jsonschema_rs.ValidationError) -> list[jsonschema_rs.ValidationError] | None:
    """The one branch of a union that the value is of the right kind for, if there is just one."""
    depth = len(error.instance_path)
    branches: list[list[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", [])
    near = [
        branch
        for branch in branches
        if branch
        and not any(e.kind.name in ("type", "enum", "const") and len(e.instance_path) == depth for e in branch)
    ]
    return near[0] if len(near) == 1 else None


def describe(schema: Any, root: Mapping[str, Any], *, depth: int = 0) -> str:
    """What a schema expects, in a few words."""
    if not isinstance(schema, dict) or depth > 6:
        return "any value"
    if isinstance(schema.get("$ref"), str):
        return describe(_schema_at(root, schema["$ref"].lstrip("#/").split("/")), root, depth=depth + 1)
    if "enum" in schema or "const" in schema:
        choices = schema.get("enum") or [schema["const"]]
        listed = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices[:_SHOWN])
        more = f" … ({len(choices)} in all)" if len(choices) > _SHOWN else ""
        return f"one of {listed}{more}" if len(choices) > 1 else listed
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return _or(dict.fromkeys(describe(branch, root, depth=depth + 1) for branch in schema[union]))
    named = schema.get("type")
    if isinstance(named, list):
        return _or(named)
    if named == "array" and isinstance(schema.get("items"), dict):
        return f"array of {describe(schema['items'], root, depth=depth + 1)}"
    if isinstance(named, str):
        return f"{named} ({schema['format']})" if "format" in schema else named
    return "any value"


def _or(words: Iterable[str]) -> str:
    *firsts, last = list(words) or ["any value"]
    return f"{', '.join(firsts)} or {last}" if firsts else last


def _choices(schema: Any, root: Mapping[str, Any]) -> tuple[Any, ...]:
    if not isinstance(schema, dict):
        return ()
    if isinstance(schema.get("$ref"), str):
        return _choices(_schema_at(root, schema["$ref"].lstrip("#/").split("/")), root)
    if "const" in schema:
        return (schema["const"],)
    listed = list(schema.get("enum", ()))
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        listed += _choices(branch, root)
    return tuple(listed[:_SHOWN])


def _called(path: str) -> str:
    return f"'{spoken(path[1:] if path.count('/') == 1 else path)}'" if path else "the arguments"


def _at(data: Any, path: Iterable[str | int]) -> Any:
    for part in path:
        data = data[part]
    return data


def _schema_at(root: Any, path: Iterable[str | int]) -> dict[str, Any]:
    found: Any = root
    for part in path:
        if isinstance(found, dict) and isinstance(found.get("$ref"), str) and part not in found:
            found = _schema_at(root, found["$ref"].lstrip("#/").split("/"))
        if part == "$ref":
            continue
        found = found[int(part)] if isinstance(found, list) else found.get(part, {}) if isinstance(found, dict) else {}
    if isinstance(found, dict) and isinstance(found.get("$ref"), str):
        found = _schema_at(root, found["$ref"].lstrip("#/").split("/"))
    return found if isinstance(found, dict) else {}


def _place(loc: Sequence[str | int], data: Any) -> tuple[str, Any]:
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
    return pointer(path), data
