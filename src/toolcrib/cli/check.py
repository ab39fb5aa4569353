"""`toolcrib check`: what is wrong, weak or without effect in the settings and in tools, and what of them answers.

An example is tried only where it can do no harm: in the sandbox, of a tool that has nothing beyond it.
"""

import asyncio
import re
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..call import may_be_repeated
from ..core import Secret, SetupError, StoreError, ToolAuth, ToolcribError, ToolSpec, compile_globs
from ..schema.describe import closest_match, did_you_mean, display_name
from ..tools import Permissions, Tool, load
from ..tools.git import is_git_address
from ..workbench import Rule, Workbench
from ..workbench.config import LoadedSource, load_sources
from ..workbench.credentials import store_of
from ..workbench.named_source import NamedSource
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
from .app import Session, command, group
from .options import SourceNames
from .sources import connect, log_fetches
from .terminal import UsageError, counted, echo, log_to_stderr, one_line

if TYPE_CHECKING:
    from ..store import Store

MIN_DESCRIPTION_CHARS, MAX_DESCRIPTION_CHARS = 15, 1024

_SECRET_NAME = re.compile(r"passw|secret|token|api_?key|credential", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_VISIBLE_CONTROLS = "\n\t\r"

app = group()


@command(app, "check", example="toolcrib check --config toolcrib.toml", takes="config store json")
def check(
    session: Session,
    sources: SourceNames = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as failures.")] = False,
    connects: Annotated[
        bool, typer.Option("--connect", help="Connect to servers and to the store, and say what answers.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of the settings, for editors, and check nothing.")
    ] = False,
) -> int:
    """Check the settings, or the tools of sources.

    Of the settings, all that they name; of tools, their texts, schemas, hints, needs and examples. Examples are tried
    in the sandbox, for tools that run there and need nothing beyond it. Nothing of yours is made or changed.
    """
    if sources:
        return _check_sources(session, sources, strict=strict, connects=connects)
    if schema:
        session.output.write(SCHEMA.read_text("utf-8"))
        return 0
    return _check_settings(session, strict=strict, connects=connects)


# The settings


def _check_settings(session: Session, *, strict: bool, connects: bool) -> int:
    output = session.output
    file = find_settings(session.config)
    if file is None:
        raise UsageError(f"There is no {NAME} here. Name a file: --config FILE.")
    log_to_stderr(tracebacks=False)
    try:
        settings = read_settings(file)
    except SettingsError as error:
        if not session.as_json:
            raise
        output.json({"file": str(file), "ok": False, "sources": [], "problems": _problem_data(error.problems)})
        return 1
    sources = load_sources(settings.sources, settings)
    specs = [tool.spec for source in sources for tool in source.tools]
    warnings = [*_warnings(settings, specs, sources)]
    mistakes = [*_wrong_rules(settings, specs), *_wrong_clients(settings)]
    answers = [*_answers(settings, session.store, [source.named for source in sources])] if connects else []
    not_loaded = [problem for source in sources for problem in source.problems]
    problems = len(not_loaded) + len(mistakes) + sum(answer.status == "problem" for answer in answers)
    status = 1 if problems or (strict and warnings) else 0
    if session.as_json:
        data: dict[str, Any] = {
            "file": str(file),
            "ok": not problems,
            "sources": [*map(_source_data, sources)],
            "problems": _problem_data(mistakes),
            "warnings": _problem_data(warnings),
        }
        output.json({**data, "answers": [*map(asdict, answers)]} if connects else data)
        return status
    for source in sources:
        missing = "its tools are known when it is connected to" if source.is_listed_at_start else "no tools"
        tools = ", ".join(tool.spec.name for tool in source.tools) or missing
        output.line(f"{source.named.place}: {source.named.written}: {tools}")
    for answer in answers:
        output.line(f"{answer.name}: {answer.status}: {answer.detail}")
    for kind, messages in (("Not loaded", not_loaded), ("Error", mistakes), ("Warning", warnings)):
        for message in map(str, messages):
            echo(f"{kind}: {message}")
    counts = {"source": len(sources), "tool": len(specs), "rule": len(settings.rules), "limit": len(settings.limits)}
    outcome = {"problem": problems, "warning": len(warnings)}
    ends = " and ".join(counted(number, noun) for noun, number in outcome.items() if number)
    texts = ", ".join(counted(number, noun) for noun, number in counts.items())
    output.write(f"{file}: {texts}: {ends or 'no problems'}.")
    return status


def _source_data(source: LoadedSource) -> dict[str, Any]:
    return {
        "source": source.named.written,
        "place": source.named.place,
        "line": source.named.line,
        "tools": [tool.spec.name for tool in source.tools],
        "problems": list(source.problems),
    }


def _problem_data(problems: Sequence[SettingsProblem]) -> list[dict[str, Any]]:
    return [{"place": problem.place, "line": problem.line, "message": problem.message} for problem in problems]


def rules_for(spec: ToolSpec, rules: Iterable[Rule]) -> Iterator[Rule]:
    """Yield the rules that can decide over calls of a tool: those after one without conditions cannot."""
    for rule in rules:
        if rule.is_about(spec):
            yield rule
            if not rule.where and rule.is_for_all:
                return


def _wrong_rules(settings: Settings, specs: Sequence[ToolSpec]) -> Iterator[SettingsProblem]:
    """Yield the rules that can never match what their tools take. No workbench starts with them."""
    for number, rule in enumerate(settings.rules):
        if mismatches := rule.mismatches(specs):
            yield _at(settings, f"This rule {rule.problem(mismatches)}", "rule", number, "where")


def _wrong_clients(settings: Settings) -> Iterator[SettingsProblem]:
    """Yield what is wrong with `[auth.PROVIDER]`: an unknown provider or key, or a key that is missing."""
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
        keys = ("client_id", "client_secret", *entry.settings)
        for key in table:
            if key not in keys:
                hint = did_you_mean(closest_match(key, keys))
                message = f"There is no key '{display_name(key)}' in [auth.{name}].{hint} It takes: {', '.join(keys)}."
                yield _at(settings, message, "auth", name, key)
        broker = CredentialBroker(clients={name: Client.from_settings(table)}, catalogue=catalogue)
        if missing := broker.missing(name):
            yield _at(settings, f"[auth.{name}] needs {' and '.join(missing)}.", "auth", name)


def _warnings(
    settings: Settings, specs: Sequence[ToolSpec], loaded: Sequence[LoadedSource]
) -> Iterator[SettingsProblem]:
    yield from unknown_variables()
    if not settings.sources:
        yield _at(settings, "There is no [[source]], so there are no tools.")
    for source in loaded:
        if not source.tools and not source.problems and not source.is_listed_at_start:
            message = "The filters of this source leave none of its tools."
            yield SettingsProblem(str(source.named.place), message, source.named.line)
    for number, rule in enumerate(settings.rules):
        if not any(rule.is_about(spec) for spec in specs):
            yield _at(settings, f"This rule ({rule.do}) matches no tool.", "rule", number)
    for number, limit in enumerate(settings.limits):
        if not any(limit.names.fullmatch(spec.name) for spec in specs):
            yield _at(settings, "This limit matches no tool.", "limit", number)
    for number, retry in enumerate(settings.retries):
        matches = [spec for spec in specs if retry.names.fullmatch(spec.name)]
        if not any(may_be_repeated(spec) for spec in matches):
            reason = " that can be repeated (idempotent or read_only)" if matches else ""
            yield _at(settings, f"This retry matches no tool{reason}.", "retry", number)
    for number, table in enumerate(settings.values.deadline):
        if not any(compile_globs(table.tools).fullmatch(spec.name) for spec in specs):
            yield _at(settings, "This deadline matches no tool.", "deadline", number)
    for keys in _plain_secrets(settings.written.get("variables", {}), ("variables",)):
        name = display_name(str(keys[-1]))
        yield _at(settings, f"'{name}' is written out here. Keep a secret elsewhere, and write '${{env:NAME}}'.", *keys)


def _plain_secrets(value: Any, keys: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yield the keys of texts that are not references, and are named like secrets."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _plain_secrets(inner, (*keys, key))
    elif isinstance(value, str) and value and "${" not in value and _SECRET_NAME.search(str(keys[-1])):
        yield keys


def _at(settings: Settings, message: str, *keys: str | int) -> SettingsProblem:
    place, line = settings.place(*keys)
    return SettingsProblem(place, message, line)


# What answers


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of connecting to one thing. Only a `problem` makes the check fail; what is `missing` is made later."""

    name: str
    status: Literal["ok", "missing", "problem"]
    detail: str


def _answers(settings: Settings, where: str | None, sources: Sequence[NamedSource]) -> Iterator[Answer]:
    """Connect to each source that has to be connected to, and to the store."""
    for named in sources:
        started = time.monotonic()
        try:
            loaded = load(named.granted(named.source))
            if not getattr(loaded.source, "listed_at_start", False):
                continue
            asyncio.run(connect(loaded))
        except ToolcribError as error:
            yield Answer(named.written, "problem", settings.redact(str(error)))
            continue
        took = f"{counted(len(loaded.tools), 'tool')} in {time.monotonic() - started:.2f} s"
        problems = "; ".join(settings.redact(str(problem)) for problem in loaded.problems)
        yield Answer(named.written, "problem" if problems else "ok", problems or took)
    if find_spec("sqlalchemy") is None:
        yield Answer("store", "missing", "pip install 'toolcrib[store]'")
        return
    try:
        store = store_of(settings, where)
    except ToolcribError as error:
        yield Answer("store", "problem", str(error))
        return
    try:
        if store.file is not None and not store.file.exists():
            yield Answer("store", "missing", f"{store.place}: not made yet; it is when it is first used")
            return
        for name, try_out in (("store", _store_answer), ("key of the store", _key_answer)):
            try:
                yield try_out(name, store)
            except Exception as error:
                yield Answer(name, "problem", str(error) or type(error).__name__)
    finally:
        store.close()


def _store_answer(name: str, store: "Store") -> Answer:
    from ..record.call_rows import RECORD

    schemas: list[Any] = [RECORD]
    if find_spec("authlib") is not None:
        from ..auth.sealed import AUTH

        schemas.append(AUTH)
    if find_spec("mcp") is not None:
        from ..serve.keys import KEYS

        schemas.append(KEYS)
    for schema in schemas:
        store.use(schema)
    behind = asyncio.run(store.pending_migrations())
    tables = f"tables that come with the next use: {', '.join(sorted(behind))}" if behind else "its tables are current"
    return Answer(name, "ok", f"{store.place}: reachable; {tables}")


def _key_answer(name: str, store: "Store") -> Answer:
    if (file := store.keys.file) is not None and not file.exists():
        if not asyncio.run(store.has_sealed()):
            return Answer(name, "missing", f"{file}: not made yet; it is when something is sealed")
        raise StoreError(f"The key file {file} is not there. Without it, what is sealed in the store cannot be opened.")
    store.keys.unseal(store.keys.seal(b"", "check"), "check")
    return Answer(name, "ok", f"readable: {store.keys.place}")


# The tools of sources


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a tool: a `problem` makes the check fail, a `warning` only where it is strict."""

    level: Literal["problem", "warning", "note"]
    message: str


@dataclass(frozen=True, slots=True)
class _Checked:
    source: str
    tools: Mapping[str, Sequence[Finding]]
    problems: Sequence[str]


def _check_sources(session: Session, sources: Sequence[str], *, strict: bool, connects: bool) -> int:
    output = session.output
    log_fetches()
    reports = [asyncio.run(_checked(source, connects=connects)) for source in sources]
    levels = [finding.level for report in reports for findings in report.tools.values() for finding in findings]
    not_loaded = sum(len(report.problems) for report in reports)
    problems, warnings = levels.count("problem") + not_loaded, levels.count("warning")
    if session.as_json:
        output.json({"ok": not problems, "sources": [asdict(report) for report in reports]})
    else:
        for line in (line for report in reports for line in _lines(report)):
            output.write(line)
        tools = sum(len(report.tools) for report in reports)
        output.write(f"{counted(tools, 'tool')}, {counted(problems, 'problem')}, {counted(warnings, 'warning')}.")
    return 1 if problems or (strict and warnings) else 0


async def _checked(source: str, *, connects: bool) -> _Checked:
    # A stranger's Python is not imported for this. What any other tool needs is looked at, and is not given to it.
    permissions = Permissions(trusted=not is_git_address(source))
    try:
        loaded = load(permissions.to(source))
        if connects and getattr(loaded.source, "listed_at_start", False):
            await connect(loaded)
    except ToolcribError as error:
        return _Checked(source, {}, [str(error)])
    tools = {tool.spec.name: [*findings(tool), *await _tried(tool)] for tool in loaded.tools}
    return _Checked(source, tools, [*map(str, loaded.problems)])


def findings(tool: Tool[..., Any]) -> Iterator[Finding]:
    """Yield what is weak or wrong in the name, the texts, the schema, the hints and the needs of *tool*."""
    spec = tool.spec
    if not _NAME.fullmatch(spec.name):
        message = "Its name is not one that all providers take: they get another (64 letters, digits, _ -)."
        yield Finding("warning", message)
    chars = len(spec.description)
    if not spec.description.strip():
        yield Finding("problem", "It has no description: a model cannot tell when to call it.")
    elif chars < MIN_DESCRIPTION_CHARS:
        yield Finding("warning", f"Its description has {chars} characters. Say what it does, and when.")
    elif chars > MAX_DESCRIPTION_CHARS:
        message = f"Its description is longer than {MAX_DESCRIPTION_CHARS} characters, which some providers cut."
        yield Finding("warning", message)
    for place, text in _texts(spec.to_dict()):
        unseen = {c for c in text if c not in _VISIBLE_CONTROLS and unicodedata.category(c) in ("Cc", "Cf", "Co")}
        if unseen:
            codes = ", ".join(sorted(f"U+{ord(c):04X}" for c in unseen)[:3])
            yield Finding("problem", f"{place} has characters that a model reads and a person does not see: {codes}.")
    yield from _schema_findings(spec.input_schema)
    hints, needs = spec.hints, tool.requires
    if hints.read_only and hints.destructive:
        yield Finding("problem", "It is declared read_only and destructive.")
    if hints.read_only is None and hints.destructive is None:
        yield Finding("warning", "It declares neither read_only nor destructive, so it is taken to change things.")
    if hints.read_only and any(not mount["read_only"] for mount in needs.get("mounts", ())):
        yield Finding("problem", "It is declared read_only, and needs a folder to write in.")
    if hints.open_world is False and needs.get("hosts"):
        yield Finding("problem", "It is declared open_world = false, and needs to reach hosts.")
    if "*" in needs.get("hosts", ()):
        yield Finding("problem", "It needs to reach every host. Name those that it uses.")
    if not spec.examples and tool.isolation == "wasm":
        yield Finding("warning", "It has no examples, so nothing of it was tried.")


def _schema_findings(schema: Mapping[str, Any]) -> Iterator[Finding]:
    properties = schema.get("properties") or {}
    if not properties and schema.get("additionalProperties") is not False:
        yield Finding("warning", "Its schema takes any arguments. Name those that it takes.")
    for name, schema_of in properties.items():
        of: Mapping[str, Any] = schema_of if isinstance(schema_of, Mapping) else {}
        if _SECRET_NAME.search(name) and of.get("type", "string") == "string":
            yield Finding("warning", f"Argument '{name}' looks like a credential, which a model would write. Use auth.")
        if not {"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"} & of.keys():
            yield Finding("warning", f"Argument '{name}' has no type.")
        if not of.get("description") and "$ref" not in of:
            yield Finding("warning", f"Argument '{name}' has no description.")


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts in *value*, each with the names that lead to it; names are texts, too."""
    if isinstance(value, str):
        yield f"'{place}'", value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"A name in '{place}'", str(key)
            yield from _texts(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, place)


async def _tried(tool: Tool[..., Any]) -> list[Finding]:
    """Try the examples of *tool* in the sandbox, with nothing granted."""
    examples = tool.spec.examples
    if not examples or tool.isolation != "wasm":
        return []
    needs = [f"a token of {need.provider}" for need in tool.spec.requirements if isinstance(need, ToolAuth)]
    needs += [f"the secret {need.name}" for need in tool.spec.requirements if isinstance(need, Secret)]
    needs += [key for key in ("variables", "hosts", "mounts") if tool.requires.get(key)]
    if needs:
        return [Finding("note", f"Its examples were not tried: it needs {', '.join(needs)}.")]
    failures: list[Finding] = []
    async with Workbench([tool]) as bench:
        for number, example in enumerate(examples, 1):
            result = await bench.call(tool.spec.name, example)
            if result.status != "success":
                code = result.error.code if result.error is not None else result.status
                failures.append(Finding("problem", f"Example {number} does not work ({code}): {result.text}"))
    works = len(examples) - len(failures)
    return [*failures, Finding("note", f"{works} of {len(examples)} examples work in the sandbox.")]


def _lines(checked: _Checked) -> Iterator[str]:
    source = one_line(checked.source)
    for problem in checked.problems:
        yield f"{source}: problem: {one_line(problem)}"
    for name, findings_of in checked.tools.items():
        yield f"{source}: {one_line(name)}{'' if findings_of else ': no findings'}"
        yield from (f"  {finding.level}: {one_line(finding.message)}" for finding in findings_of)
