"""`toolcrib check`: the settings, what they name, and what in them is of no use."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..call.inside import may_be_repeated
from ..core import Caller, ToolSpec, matching
from ..schema import nearest
from ..schema.words import did_you_mean, spoken
from ..workbench import Rule
from ..workbench.settings import Settings, SettingsProblem, unknown_variables
from .sources import LoadedSource, load_sources
from .streams import Output, one_line, tell

_TELLING = re.compile(r"passw|secret|token|api_?key|credential", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. `warnings` are of settings that can be used, and do nothing."""

    settings: Settings
    sources: tuple[LoadedSource, ...]
    warnings: tuple[SettingsProblem, ...]

    @property
    def problems(self) -> int:
        return sum(len(source.problems) for source in self.sources)


def report(settings: Settings) -> Report:
    """What *settings* come to. Loads all that they name."""
    loaded = load_sources(settings.sources, settings)
    specs = [tool.spec for source in loaded for tool in source.tools]
    return Report(settings, tuple(loaded), tuple(_warnings(settings, specs, loaded)))


def write_report(found: Report, output: Output) -> None:
    settings = found.settings
    for source in found.sources:
        named = source.named
        tools = ", ".join(tool.spec.name for tool in source.tools) or "no tools"
        output.write(one_line(f"{named.place}: {named.said}: {tools}"))
    for source in found.sources:
        for problem in source.problems:
            tell(f"Not loaded: {problem}")
    for warning in found.warnings:
        tell(f"Warning: {warning}")
    every = sum(len(source.tools) for source in found.sources)
    counts = [
        _count(len(found.sources), "source"),
        _count(every, "tool"),
        _count(len(settings.rules), "rule"),
        _count(len(settings.limits), "limit"),
    ]
    ends = [_count(found.problems, "problem")] if found.problems else []
    ends += [_count(len(found.warnings), "warning")] if found.warnings else []
    output.write(f"{settings.file or 'No settings'}: {', '.join(counts)}: {' and '.join(ends) or 'all is well'}.")


def report_data(found: Report) -> dict[str, Any]:
    """The report as JSON data."""
    return {
        "file": None if found.settings.file is None else str(found.settings.file),
        "ok": not found.problems,
        "sources": [
            {
                "source": source.named.said,
                "place": source.named.place,
                "line": source.named.line,
                "tools": [tool.spec.name for tool in source.tools],
                "problems": list(source.problems),
            }
            for source in found.sources
        ],
        "problems": [],
        "warnings": problem_data(found.warnings),
    }


def problem_data(problems: Sequence[SettingsProblem]) -> list[dict[str, Any]]:
    return [{"place": each.place, "line": each.line, "message": each.message} for each in problems]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _warnings(
    settings: Settings, specs: Sequence[ToolSpec], loaded: Sequence[LoadedSource]
) -> Iterator[SettingsProblem]:
    yield from unknown_variables()
    if not settings.sources:
        yield _at(settings, "There is no [[source]], so there are no tools.")
    for source in loaded:
        if not source.tools and not source.problems:
            yield SettingsProblem(str(source.named.place), "No tool is left of this source.", source.named.line)
    for number, rule in enumerate(settings.rules):
        meant = [spec for spec in specs if _is_about(rule, spec)]
        if not meant:
            yield _at(settings, f"This rule ({rule.do}) is about no tool that is here.", "rule", number)
            continue
        for pointer in rule.where:
            if said := _unknown_argument(pointer, meant):
                yield _at(settings, said, "rule", number, "where", pointer)
    for number, limit in enumerate(settings.limits):
        if not any(limit.names.fullmatch(spec.name) for spec in specs):
            yield _at(settings, "This limit is about no tool that is here.", "limit", number)
    for number, retry in enumerate(settings.retries):
        names = [spec for spec in specs if retry.names.fullmatch(spec.name)]
        if not any(may_be_repeated(spec) for spec in names):
            what = "says that it can be repeated (idempotent or read_only)" if names else "is here"
            yield _at(settings, f"This retry is about no tool that {what}.", "retry", number)
    for number, table in enumerate(settings.values.deadline):
        if not any(matching(table.tools).fullmatch(spec.name) for spec in specs):
            yield _at(settings, "This deadline is about no tool that is here.", "deadline", number)
    for keys in _spelled_out(settings.values.variables, ("variables",)):
        message = f"'{spoken(str(keys[-1]))}' is spelled out here. A secret belongs elsewhere: write '${{env:NAME}}'."
        yield _at(settings, message, *keys)


def _is_about(rule: Rule, spec: ToolSpec) -> bool:
    return replace(rule, where={}, principals="*").matches(spec, {}, Caller())


def _unknown_argument(pointer: str, specs: Sequence[ToolSpec]) -> str | None:
    """That none of the tools takes the argument that *pointer* leads to."""
    name = pointer.split("/")[1].replace("~1", "/").replace("~0", "~")
    schemas = [spec.input_schema for spec in specs]
    if name == "*" or any(schema.get("additionalProperties") is not False for schema in schemas):
        return None
    names = {known for schema in schemas for known in schema.get("properties", ())}
    if name in names:
        return None
    return f"No tool that this rule is about takes '{spoken(name)}'.{did_you_mean(nearest(name, sorted(names)))}"


def _spelled_out(value: Any, keys: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where a text that is no reference stands under a name that sounds like a secret's."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _spelled_out(inner, (*keys, key))
    elif isinstance(value, str) and value and "${" not in value and _TELLING.search(str(keys[-1])):
        yield keys


def _at(settings: Settings, message: str, *keys: str | int) -> SettingsProblem:
    place, line = settings.place(*keys)
    return SettingsProblem(place, message, line)
