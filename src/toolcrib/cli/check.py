"""`toolcrib check`: the settings, what they name, and what in them has no effect. `lint` checks sources."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..call import may_be_repeated
from ..core import SetupError, ToolSpec, compile_globs
from ..schema.describe import closest_match, did_you_mean, display_name
from ..workbench import Rule
from ..workbench.config import LoadedSource, load_sources
from ..workbench.settings import (
    NAME,
    SCHEMA,
    Settings,
    SettingsError,
    SettingsProblem,
    find_settings,
    read_settings,
    unknown_variables,
)
from .lint import SECRET_NAME, run_lint
from .terminal import Output, UsageError, counted, echo, log_to_stderr, one_line


def run_check(config: Path | None, written: Sequence[str], *, as_json: bool, strict: bool, print_schema: bool) -> int:
    """All of `toolcrib check`. Returns the exit status."""
    if written:
        return run_lint(written, as_json=as_json, strict=strict)
    output = Output()
    if print_schema:
        output.write(SCHEMA.read_text("utf-8"))
        return 0
    file = find_settings(config)
    if file is None:
        raise UsageError(f"There is no {NAME} here. Name a file: --config FILE.")
    log_to_stderr(tracebacks=False)
    try:
        settings = read_settings(file)
    except SettingsError as error:
        if not as_json:
            raise
        output.json({"file": str(file), "ok": False, "sources": [], "problems": _problem_data(error.problems)})
        return 1
    sources = load_sources(settings.sources, settings)
    specs = [tool.spec for source in sources for tool in source.tools]
    warnings = [*_warnings(settings, specs, sources)]
    wrong_rules = [*_wrong_rules(settings, specs), *_wrong_clients(settings)]
    problems = sum(len(source.problems) for source in sources) + len(wrong_rules)
    if as_json:
        output.json(
            {
                "file": str(file),
                "ok": not problems,
                "sources": [*map(_source_data, sources)],
                "problems": _problem_data(wrong_rules),
                "warnings": _problem_data(warnings),
            }
        )
    else:
        _write_report(settings, sources, wrong_rules, warnings, output)
    return 1 if problems or (strict and warnings) else 0


def _write_report(
    settings: Settings,
    sources: Sequence[LoadedSource],
    wrong_rules: Sequence[SettingsProblem],
    warnings: Sequence[SettingsProblem],
    output: Output,
) -> None:
    for source in sources:
        absent = "its tools are known when it is connected to" if source.is_listed_at_start else "no tools"
        tools = ", ".join(tool.spec.name for tool in source.tools) or absent
        output.write(one_line(f"{source.named.place}: {source.named.written}: {tools}"))
    problems = [problem for source in sources for problem in source.problems]
    for problem in problems:
        echo(f"Not loaded: {problem}")
    for wrong in wrong_rules:
        echo(f"Error: {wrong}")
    for warning in warnings:
        echo(f"Warning: {warning}")
    counts = {
        "source": len(sources),
        "tool": sum(len(source.tools) for source in sources),
        "rule": len(settings.rules),
        "limit": len(settings.limits),
    }
    found = {"problem": len(problems) + len(wrong_rules), "warning": len(warnings)}
    ends = [counted(number, what) for what, number in found.items() if number]
    listed = ", ".join(counted(number, what) for what, number in counts.items())
    output.write(f"{settings.file}: {listed}: {' and '.join(ends) or 'no problems'}.")


def _source_data(source: LoadedSource) -> dict[str, Any]:
    return {
        "source": source.named.written,
        "place": source.named.place,
        "line": source.named.line,
        "tools": [tool.spec.name for tool in source.tools],
        "problems": list(source.problems),
    }


def _problem_data(problems: Sequence[SettingsProblem]) -> list[dict[str, Any]]:
    return [{"place": each.place, "line": each.line, "message": each.message} for each in problems]


def rules_for(spec: ToolSpec, rules: Iterable[Rule]) -> Iterator[Rule]:
    """The rules that can decide over calls of a tool: those after one without conditions cannot."""
    for rule in rules:
        if rule.is_about(spec):
            yield rule
            if not rule.where and rule.is_for_all:
                return


def _wrong_rules(settings: Settings, specs: Sequence[ToolSpec]) -> Iterator[SettingsProblem]:
    """The rules that can never match what their tools take. No workbench starts with them."""
    for number, rule in enumerate(settings.rules):
        if found := rule.mismatches(specs):
            yield _at(settings, f"This rule {rule.problem(found)}", "rule", number, "where")


def _wrong_clients(settings: Settings) -> Iterator[SettingsProblem]:
    """What is wrong with `[auth.PROVIDER]`: a provider or a key that there is not, or a key that is missing."""
    if not settings.values.auth and settings.values.providers is None:
        return
    try:
        from ..auth import Client, CredentialBroker, load_catalogue

        file = settings.path(settings.values.providers)
        catalogue = load_catalogue(None if file is None else Path(file))
    except SetupError as error:
        yield _at(settings, str(error), "auth" if settings.values.providers is None else "providers")
        return
    for name, table in settings.values.auth.items():
        if (entry := catalogue.get(name)) is None:
            hint = did_you_mean(closest_match(name, catalogue))
            message = f"There is no provider '{display_name(name)}'.{hint} `toolcrib auth providers` lists them."
            yield _at(settings, message, "auth", name)
            continue
        known = ("client_id", "client_secret", *entry.settings)
        for key in table:
            if key not in known:
                hint = did_you_mean(closest_match(key, known))
                message = f"There is no key '{display_name(key)}' in [auth.{name}].{hint} It takes: {', '.join(known)}."
                yield _at(settings, message, "auth", name, key)
        broker = CredentialBroker(clients={name: Client.from_settings(table)}, catalogue=catalogue)
        if absent := broker.missing(name):
            yield _at(settings, f"[auth.{name}] needs {' and '.join(absent)}.", "auth", name)


def _warnings(
    settings: Settings, specs: Sequence[ToolSpec], loaded: Sequence[LoadedSource]
) -> Iterator[SettingsProblem]:
    yield from unknown_variables()
    if not settings.sources:
        yield _at(settings, "There is no [[source]], so there are no tools.")
    for source in loaded:
        if not source.tools and not source.problems and not source.is_listed_at_start:
            yield SettingsProblem(
                str(source.named.place), "The filters of this source leave none of its tools.", source.named.line
            )
    for number, rule in enumerate(settings.rules):
        matched = [spec for spec in specs if [*rules_for(spec, [rule])]]
        if not matched:
            yield _at(settings, f"This rule ({rule.do}) matches no tool.", "rule", number)
    for number, limit in enumerate(settings.limits):
        if not any(limit.names.fullmatch(spec.name) for spec in specs):
            yield _at(settings, "This limit matches no tool.", "limit", number)
    for number, retry in enumerate(settings.retries):
        matched = [spec for spec in specs if retry.names.fullmatch(spec.name)]
        if not any(may_be_repeated(spec) for spec in matched):
            which = " that can be repeated (idempotent or read_only)" if matched else ""
            yield _at(settings, f"This retry matches no tool{which}.", "retry", number)
    for number, table in enumerate(settings.values.deadline):
        if not any(compile_globs(table.tools).fullmatch(spec.name) for spec in specs):
            yield _at(settings, "This deadline matches no tool.", "deadline", number)
    for keys in _plain_secrets(settings.written.get("variables", {}), ("variables",)):
        message = (
            f"'{display_name(str(keys[-1]))}' is written out here. Keep a secret elsewhere, and write '${{env:NAME}}'."
        )
        yield _at(settings, message, *keys)


def _plain_secrets(value: Any, keys: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """The keys of texts that are not references, and are named like secrets."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _plain_secrets(inner, (*keys, key))
    elif isinstance(value, str) and value and "${" not in value and SECRET_NAME.search(str(keys[-1])):
        yield keys


def _at(settings: Settings, message: str, *keys: str | int) -> SettingsProblem:
    place, line = settings.place(*keys)
    return SettingsProblem(place, message, line)
