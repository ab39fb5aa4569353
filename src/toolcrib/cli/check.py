"""`toolcrib check`: findings about the settings and about tools, and the answers of servers and of the store.

All of it is one list of findings. An example is tried only where it can do no harm: in the sandbox, of a tool that has
nothing beyond it.
"""

import asyncio
import re
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..call import may_be_repeated
from ..core import Secret, SetupError, StoreError, ToolAuth, ToolcribError, ToolSpec
from ..machinery import compile_globs
from ..schema import SchemaView, display_name
from ..tools import Permissions, Tool, is_git_address
from ..workbench import Workbench
from ..workbench.config import LoadedSource, has_all, load_sources
from ..workbench.credentials import CALLBACK_PATH, store_of, vault_store
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
from .arguments import SourceNames
from .sources import load_listed, log_fetches
from .store import use_tables
from .terminal import UsageError, counted, log_to_stderr, no_such, one_line

if TYPE_CHECKING:
    from ..auth import Client, CredentialBroker, Provider
    from ..store import Store

MIN_DESCRIPTION_CHARS, MAX_DESCRIPTION_CHARS = 15, 1024

_SECRET_NAME = re.compile(r"passw|secret|token|api_?key|credential", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_VISIBLE_CONTROLS = "\n\t\r"

app = group()

Level = Literal["problem", "warning", "note", "ok", "missing"]
"""A problem makes the check fail, a warning only where it is strict. What is `missing` is made at its first use."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a *subject*: a tool (`tools.py: add`), a place (`toolcrib.toml:12`), the store."""

    level: Level
    message: str
    subject: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class _Report:
    """What was looked at and its findings. `title` and `counts` are of its last line."""

    title: str
    sources: Sequence[Mapping[str, Any]]
    """Each is `{"source": "tools.py", "place": "toolcrib.toml:1", "tools": ["add"]}`."""
    findings: Sequence[Finding]
    counts: Mapping[str, int]

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)


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
    if schema and not sources:
        session.output.write(SCHEMA.read_text("utf-8"))
        return 0
    output = session.output  # claimed before what the sources print
    report = _of_sources(sources, connects=connects) if sources else _of_settings(session, connects=connects)
    if session.as_json:
        title = {"file": report.title} if report.title else {}
        findings = [*map(asdict, report.findings)]
        output.json({**title, "ok": not report.count("problem"), "sources": report.sources, "findings": findings})
    else:
        output.write("\n".join(map(one_line, _lines(report))))
    fails = report.count("problem") or (strict and report.count("warning"))
    return 1 if fails else 0


def _lines(report: _Report) -> Iterator[str]:
    for source in report.sources:
        place = f"{source['place']}: " if source["place"] else ""
        yield f"{place}{source['source']}: {', '.join(source['tools']) or source.get('no_tools', 'no tools')}"
    yield from (f"{finding.level}: {finding.subject}: {finding.message}" for finding in report.findings)
    levels: tuple[Level, ...] = ("problem", "warning")
    outcome = " and ".join(counted(report.count(level), level) for level in levels if report.count(level))
    counts = ", ".join(counted(number, noun) for noun, number in report.counts.items())
    title = f"{report.title}: " if report.title else ""
    yield f"{title}{counts}: {outcome or 'no problems'}."


# The settings


def _of_settings(session: Session, *, connects: bool) -> _Report:
    file = find_settings(session.config)
    if file is None:
        raise UsageError(f"There is no {NAME} here. Name a file: --config FILE.")
    log_to_stderr(tracebacks=False)
    try:
        settings = read_settings(file)
    except SettingsError as error:
        if not session.as_json:
            raise
        return _Report(str(file), [], [_of_settings_file("problem", problem) for problem in error.problems], {})
    listings = load_sources(settings.sources, settings)
    specs = [tool.spec for listing in listings for tool in listing.tools]
    findings = [
        *(_of_source("problem", listing, message) for listing in listings for message in listing.problems),
        *_wrong_rules(settings, specs),
        *_wrong_clients(settings),
        *_weak_settings(settings, listings),
        *_idle_tables(settings, specs, is_complete=_has_all_tools(settings, listings)),
        *_plain_secrets(settings, settings.written.get("variables", {}), ("variables",)),
    ]
    if connects:
        findings += [*_answers(listings, settings), *_store_answers(settings, session.store)]
    counts = {"source": len(listings), "tool": len(specs), "rule": len(settings.rules), "limit": len(settings.limits)}
    return _Report(str(file), [*map(_source_data, listings)], findings, counts)


def _has_all_tools(settings: Settings, listings: Sequence[LoadedSource]) -> bool:
    """Return whether the tools of *listings* are all that a server of *settings* can have."""
    is_partial = any(listing.problems or listing.is_listed_at_start for listing in listings)
    return has_all(settings, listings) and not is_partial


def _source_data(listing: LoadedSource) -> dict[str, Any]:
    names = [tool.spec.name for tool in listing.tools]
    data = {"source": listing.named.shown, "place": listing.named.place, "tools": names}
    return data | ({"no_tools": "its tools are known when it is connected to"} if listing.is_listed_at_start else {})


def _of_source(level: Level, listing: LoadedSource, message: str) -> Finding:
    place = str(listing.named.place)
    return Finding(level, message.removeprefix(f"{place}: "), place, None if level == "problem" else listing.named.line)


def _of_settings_file(level: Level, problem: SettingsProblem) -> Finding:
    return Finding(level, problem.message, problem.place, problem.line)


def _at(settings: Settings, level: Level, message: str, *keys: str | int) -> Finding:
    """Return a finding about the value under *keys*."""
    place, line = settings.place(*keys)
    return Finding(level, message, place, line)


def _wrong_rules(settings: Settings, specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    """Yield the rules that can never match what their tools take. No workbench starts with them."""
    for number, rule in enumerate(settings.rules):
        if mismatches := rule.mismatches(specs):
            yield _at(settings, "problem", f"This rule {rule.problem(mismatches)}", "rule", number, "where")


def _wrong_clients(settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with `[auth.PROVIDER]`: an unknown provider or key, or a key that is missing.

    And of each that people log in to, the address to register there.
    """
    if not settings.values.auth and settings.values.providers is None:
        return
    try:
        from ..auth import load_catalogue

        file = settings.path(settings.values.providers)
        catalogue = load_catalogue(None if file is None else Path(file))
    except SetupError as error:
        yield _at(settings, "problem", str(error), "auth" if settings.values.providers is None else "providers")
        return
    yield from _of_clients(settings, catalogue)


def _of_clients(settings: Settings, catalogue: Mapping[str, "Provider"]) -> Iterator[Finding]:
    from ..auth import Client, CredentialBroker

    at = settings.values.server
    base = (at.public_base_url or f"http://127.0.0.1:{at.port}").rstrip("/")
    clients = {name: Client.from_settings(table) for name, table in settings.values.auth.items()}
    known = {name: client for name, client in clients.items() if name in catalogue or name.startswith("mcp:")}
    try:
        broker = CredentialBroker(clients=known, catalogue=catalogue, redirect_uri=f"{base}{CALLBACK_PATH}")
    except SetupError as error:
        yield _at(settings, "problem", str(error), "auth")
        return
    for name in clients:
        if name not in known:
            message = f"{no_such('There is no provider', name, catalogue)} `toolcrib auth providers` lists them."
            yield _at(settings, "problem", message, "auth", name)
            continue
        yield from _of_client(settings, name, broker, known[name])


def _of_client(settings: Settings, name: str, broker: "CredentialBroker", client: "Client") -> Iterator[Finding]:
    from ..auth.catalogue import CLIENT_KEYS, SERVER_KEYS

    entry = broker.providers.get(name)
    keys = (*CLIENT_KEYS, *(entry.settings if entry else SERVER_KEYS))
    for key in (key for key in settings.values.auth[name] if key not in keys):
        message = f"{no_such('There is no key', key, keys, f' in [auth.{name}]')} It takes: {', '.join(keys)}."
        yield _at(settings, "problem", message, "auth", name, key)
    if entry and (missing := broker.missing(name)):
        yield _at(settings, "problem", f"[auth.{name}] needs {' and '.join(missing)}.", "auth", name)
    table = client if entry is None else entry.oauth2
    if table is not None and table.grant == "authorization_code":
        yield _at(settings, "note", broker.to_register(name).strip(), "auth", name)


def _weak_settings(settings: Settings, listings: Sequence[LoadedSource]) -> Iterator[Finding]:
    yield from (_of_settings_file("warning", problem) for problem in unknown_variables())
    if not settings.sources:
        yield _at(settings, "warning", "There is no [[source]], so there are no tools.")
    for listing in listings:
        if not listing.tools and not listing.problems and not listing.is_listed_at_start:
            yield _of_source("warning", listing, "The filters of this source leave none of its tools.")


def _idle_tables(settings: Settings, specs: Sequence[ToolSpec], *, is_complete: bool) -> Iterator[Finding]:
    """Yield the tables that match no tool. Where *specs* are all tools, no workbench starts with an unknown name."""
    unknown = {(key, number): sentence for key, number, sentence in settings.unknown_names(specs)}
    for (key, number), sentence in unknown.items():
        yield _at(settings, "problem" if is_complete else "warning", f"This {key} {sentence}", key, number)
    rules = [*settings.rules]
    for key, effects in _effects(settings, specs).items():
        reason = " that can be repeated (idempotent or read_only)" if key == "retry" else ""
        for number, has_effect in enumerate(effects):
            if not has_effect and (key, number) not in unknown:
                title = f"rule ({rules[number].do})" if key == "rule" else key
                yield _at(settings, "warning", f"This {title} matches no tool{reason}.", key, number)


def _effects(settings: Settings, specs: Sequence[ToolSpec]) -> dict[str, Sequence[bool]]:
    """Return by key whether each of its tables is about a tool."""
    names = [spec.name for spec in specs]
    repeatable = [spec.name for spec in specs if may_be_repeated(spec)]
    deadlines = [compile_globs(table.tools) for table in settings.values.deadline]
    return {
        "rule": [rule.is_about_reads or any(map(rule.is_about, specs)) for rule in settings.rules],
        "limit": [any(map(limit.names.fullmatch, names)) for limit in settings.limits],
        "retry": [any(map(retry.names.fullmatch, repeatable)) for retry in settings.retries],
        "deadline": [any(map(globs.fullmatch, names)) for globs in deadlines],
    }


def _plain_secrets(settings: Settings, value: Any, keys: tuple[str | int, ...]) -> Iterator[Finding]:
    """Yield the texts in *value* that are not references, and are named like secrets."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _plain_secrets(settings, inner, (*keys, key))
    elif isinstance(value, str) and value and "${" not in value and _SECRET_NAME.search(str(keys[-1])):
        message = (
            f"'{display_name(str(keys[-1]))}' is written out here. Keep a secret elsewhere, and write '${{env:NAME}}'."
        )
        yield _at(settings, "warning", message, *keys)


# Servers and the store


def _answers(listings: Sequence[LoadedSource], settings: Settings) -> Iterator[Finding]:
    """Connect to each source that has to be connected to."""
    for entry in (listing.named for listing in listings if listing.is_listed_at_start):
        start = time.monotonic()
        try:
            server = load_listed(entry.granted(entry.source))
        except ToolcribError as error:
            yield Finding("problem", settings.redact(str(error)), entry.shown)
            continue
        took = f"{counted(len(server.tools), 'tool')} in {time.monotonic() - start:.2f} s"
        problems = "; ".join(settings.redact(str(problem)) for problem in server.problems)
        yield Finding("problem" if problems else "ok", problems or took, entry.shown)


def _store_answers(settings: Settings, where: str | None) -> Iterator[Finding]:
    """Connect to the store and read its key, and make neither."""
    if find_spec("sqlalchemy") is None:
        yield Finding("missing", "pip install 'toolcrib[store]'", "store")
        return
    try:
        store = store_of(settings, where)
    except ToolcribError as error:
        yield Finding("problem", str(error), "store")
        return
    yield from _answers_of(store, "store")
    if (vault := vault_store(settings, store, where)) is not store:
        yield from _answers_of(vault, "store of the vault")


def _answers_of(store: "Store", subject: str) -> Iterator[Finding]:
    try:
        if store.file is not None and not store.file.exists():
            yield Finding("missing", f"{store.place}: not made yet; it is when it is first used", subject)
            return
        yield Finding("ok", f"{store.place}: reachable; {_tables(store)}", subject)
        subject = f"key of the {subject}"
        yield _key_answer(store, subject)
    except Exception as error:
        yield Finding("problem", str(error) or type(error).__name__, subject)
    finally:
        store.close()


def _tables(store: "Store") -> str:
    use_tables(store)
    behind = asyncio.run(store.pending_migrations())
    return f"tables that come with the next use: {', '.join(sorted(behind))}" if behind else "its tables are current"


def _key_answer(store: "Store", subject: str) -> Finding:
    if (file := store.keys.file) is not None and not file.exists():
        if not asyncio.run(store.has_sealed()):
            return Finding("missing", f"{file}: not made yet; it is when something is sealed", subject)
        raise StoreError(f"The key file {file} is not there. Without it, what is sealed in the store cannot be opened.")
    store.keys.unseal(store.keys.seal(b"", "check"), "check")
    return Finding("ok", f"readable: {store.keys.place}", subject)


# The tools of sources


def _of_sources(names: Sequence[str], *, connects: bool) -> _Report:
    log_fetches()
    sources: list[dict[str, Any]] = []
    findings: list[Finding] = []
    for name in names:
        tools, about_tools = _checked(name, connects=connects)
        sources.append({"source": name, "place": None, "tools": tools})
        findings += about_tools
    counts = {"source": len(sources), "tool": sum(len(source["tools"]) for source in sources)}
    return _Report("", sources, findings, counts)


def _checked(source: str, *, connects: bool) -> tuple[list[str], list[Finding]]:
    """Return the names of the tools of *source*, and what was found about them."""
    # A stranger's Python is not imported for this. What any other tool needs is looked at, and is not given to it.
    permissions = Permissions(trusted=not is_git_address(source))
    try:
        listing = load_listed(permissions.to(source), connects=connects)
    except ToolcribError as error:
        return [], [Finding("problem", str(error), source)]
    about_tools = [Finding("problem", str(problem), source) for problem in listing.problems]
    for tool in listing.tools:
        subject = f"{source}: {tool.spec.name}"
        about_tools += [replace(finding, subject=subject) for finding in (*findings(tool), *asyncio.run(_tried(tool)))]
    return [tool.spec.name for tool in listing.tools], about_tools


def findings(tool: Tool[..., Any]) -> Iterator[Finding]:
    """Yield what is weak or wrong in the name, the texts, the schema, the hints and the needs of *tool*."""
    yield from (Finding("problem", message) for message, applies in _contradictions(tool).items() if applies)
    yield from (Finding("warning", message) for message, applies in _weaknesses(tool).items() if applies)
    yield from _schema_findings(tool.spec.input_schema)
    yield from _unseen_characters(tool.spec)


def _unseen_characters(spec: ToolSpec) -> Iterator[Finding]:
    for place, text in _texts(spec.to_dict()):
        unseen = {c for c in text if c not in _VISIBLE_CONTROLS and unicodedata.category(c) in ("Cc", "Cf", "Co")}
        if unseen:
            codes = ", ".join(sorted(f"U+{ord(c):04X}" for c in unseen)[:3])
            yield Finding("problem", f"{place} has characters that a model reads and a person does not see: {codes}.")


def _contradictions(tool: Tool[..., Any]) -> dict[str, Any]:
    """Return what can be wrong in the texts, the hints and the needs of *tool*, and whether it is."""
    hints, hosts = tool.spec.hints, tool.requires.get("hosts", ())
    writes = any(not mount["read_only"] for mount in tool.requires.get("mounts", ()))
    return {
        "It has no description: a model cannot tell when to call it.": not tool.spec.description.strip(),
        "It is declared read_only and destructive.": hints.read_only and hints.destructive,
        "It is declared read_only, and needs a folder to write in.": hints.read_only and writes,
        "It is declared open_world = false, and needs to reach hosts.": hints.open_world is False and hosts,
        "It needs to reach every host. Name those that it uses.": "*" in hosts,
    }


def _weaknesses(tool: Tool[..., Any]) -> dict[str, bool]:
    """Return what can be weak in the name, the texts, the hints and the examples of *tool*, and whether it is."""
    spec, hints = tool.spec, tool.spec.hints
    chars = len(spec.description) if spec.description.strip() else 0
    has_odd_name = not _NAME.fullmatch(spec.name)
    return {
        "Its name is not one that all providers take: they get another (64 letters, digits, _ -).": has_odd_name,
        f"Its description has {chars} characters. Say what it does, and when.": 0 < chars < MIN_DESCRIPTION_CHARS,
        f"Its description is longer than {MAX_DESCRIPTION_CHARS} characters, which some providers cut.": (
            chars > MAX_DESCRIPTION_CHARS
        ),
        "It declares neither read_only nor destructive, so it is taken to change things.": (
            hints.read_only is None and hints.destructive is None
        ),
        "It has no examples, so nothing of it was tried.": not spec.examples and tool.isolation == "wasm",
    }


def _schema_findings(schema: Mapping[str, Any]) -> Iterator[Finding]:
    properties = schema.get("properties") or {}
    if not properties and schema.get("additionalProperties") is not False:
        yield Finding("warning", "Its schema takes any arguments. Name those that it takes.")
    for name, member in properties.items():
        yield from _argument_findings(name, member if isinstance(member, Mapping) else {})


def _argument_findings(name: str, keywords: Mapping[str, Any]) -> Iterator[Finding]:
    if _SECRET_NAME.search(name) and keywords.get("type", "string") == "string":
        yield Finding("warning", f"Argument '{name}' looks like a credential, which a model would write. Use auth.")
    if not SchemaView(keywords).is_typed:
        yield Finding("warning", f"Argument '{name}' has no type.")
    if not keywords.get("description") and "$ref" not in keywords:
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


def _needs(tool: Tool[..., Any]) -> list[str]:
    needs = [f"a token of {need.provider}" for need in tool.spec.requirements if isinstance(need, ToolAuth)]
    needs += [f"the secret {need.name}" for need in tool.spec.requirements if isinstance(need, Secret)]
    return needs + [key for key in ("variables", "hosts", "mounts") if tool.requires.get(key)]


async def _tried(tool: Tool[..., Any]) -> list[Finding]:
    """Try the examples of *tool* in the sandbox, with nothing granted."""
    examples = tool.spec.examples
    if not examples or tool.isolation != "wasm":
        return []
    if needs := _needs(tool):
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
