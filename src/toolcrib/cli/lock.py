"""`toolcrib lock`: note what sources are and what their tools promise, and accept what has changed of that."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core import LoadError, ToolcribError
from ..schema.describe import closest_match, did_you_mean, display_name
from ..tools import load
from ..tools.content import content_hash
from ..tools.git import DOCUMENT, GitSource, fetch, is_git_address, parse_git_address
from ..tools.lock import DefinitionChange, Lock, LockedSource, definition_of, read_lock
from ..tools.remote import MCPSource, is_remote
from ..workbench.config import lock_file
from ..workbench.named_source import NamedSource
from ..workbench.settings import Settings
from .app import Session, command, group
from .options import SourceNames
from .sources import connect, log_fetches
from .terminal import Output, UsageError, echo, one_line

app = group()

_KINDS = {
    "new": "new, and left out until it is accepted",
    "changed": "changed, and left out until it is accepted",
    "gone": "gone",
}


@dataclass(frozen=True, slots=True)
class _Report:
    """A source as it is now: its entry in the lock, how its tools differ from the old one, and its problems."""

    entry: LockedSource | None
    changes: Sequence[DefinitionChange] = ()
    accepted_names: Sequence[str] = ()
    problems: Sequence[str] = ()


@command(app, "lock", example="toolcrib lock git+https://example.com/tools@v1#weather")
def lock(
    session: Session,
    sources: SourceNames = None,
    update: Annotated[
        bool, typer.Option("--update", help="Take what each source is now: the commit of its branch, its content.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="NAME", help="Accept what this tool promises now; may be repeated."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail where something differs.")] = False,
) -> int:
    """Lock sources, and what their tools promise.

    A source is locked by its commit and content. Without SOURCE, all that come from outside or are locked. A tool that
    promises something else than it did is shown, and left out until it is accepted. The file is toolcrib.lock, beside
    the settings or in the current folder.
    """
    accept = accept or []
    if check and (update or accept):
        raise UsageError("--check changes nothing, so it goes with neither --update nor --accept.")
    output = session.output  # claimed before what the sources print
    log_fetches()
    file = lock_file(session.settings)
    before = read_lock(file) or Lock(file)
    named_sources = _sources(sources or (), session.settings, before)
    if not named_sources:
        raise UsageError("There is nothing to lock: name a source, as in toolcrib lock git+https://HOST/PATH@REF")
    reports = {
        before.key(source.source): _report(source, before, accept, update=update, check=check)
        for source in named_sources
    }
    _require_changes(accept, reports)
    after = before
    for report in reports.values():
        after = after if report.entry is None else after.with_source(report.entry)
    if not check and after != before:
        after.write()
    is_ok = not any(report.changes or report.problems for report in reports.values())
    if session.as_json:
        output.json({"file": str(file), "ok": is_ok, "sources": [_data(*item) for item in reports.items()]})
    else:
        _write(reports, file, output, check=check)
    return 0 if is_ok else 1


def _write(reports: Mapping[str, _Report], file: Path, output: Output, *, check: bool) -> None:
    """Write the reports for people, and how to accept what has changed."""
    for key, report in reports.items():
        for line in _lines(key, report):
            output.write(line)
        for problem in report.problems:
            echo(f"Not loaded: {problem}" if key in problem and not check else f"Not loaded: {key}: {problem}")
    if names := sorted({change.name for report in reports.values() for change in report.changes}):
        options = " ".join(f"--accept {name}" for name in names)
        echo(f"{file}: not accepted: {', '.join(names)}. If that is what you want: toolcrib lock {options}")


def _sources(written: Sequence[str], settings: Settings, lock: Lock) -> list[NamedSource]:
    """Return the sources that are *written*; without these, those that are locked, or have to be by the settings.

    A source of the settings has the permissions that it has there.
    """
    by_key = {lock.key(source.source): source for source in settings.sources}
    if written:
        return [by_key.get(lock.key(source), NamedSource(source, source)) for source in written]
    outside = [source for key, source in by_key.items() if is_git_address(source.source) or key in lock.sources]
    return outside + [NamedSource(key, _from_here(key, lock.file)) for key in lock.sources if key not in by_key]


def _from_here(key: str, file: Path) -> str:
    """Return the text *key* of a lock *file* as it is written in the current folder."""
    if is_git_address(key):
        return str(parse_git_address(key).beside(file.parent))
    if key.startswith(DOCUMENT):
        return DOCUMENT + _from_here(key.removeprefix(DOCUMENT), file)
    return str(file.parent / key) if key.startswith(("./", "../")) else key


def _report(source: NamedSource, lock: Lock, accept: Sequence[str], *, update: bool, check: bool) -> _Report:
    old = lock.find(source.source)
    if old is None and check:
        return _Report(None, problems=(f"It is not locked. Lock it: toolcrib lock {source.written}",))
    try:
        pinned, entry = _pin(source.source, None if update else old, lock.key(source.source))
        listing = load(source.granted(pinned))
        if getattr(listing.source, "listed_at_start", False):
            asyncio.run(connect(listing))
    except ToolcribError as error:
        return _Report(old, problems=(str(error),))
    problems = tuple(map(str, listing.problems))
    now = {tool.spec.name: definition_of(tool) for tool in listing.tools}
    if old is None:
        return _Report(replace(entry, tools=now), problems=problems)
    changes = old.changes(listing.tools)
    names = [change.name for change in changes if change.name in accept]
    # The old definitions but for those of accepted names: theirs are the new ones, and go where the tool has gone.
    tools = {name: definition for name, definition in old.tools.items() if name in now or name not in names}
    tools |= {name: now[name] for name in names if name in now}
    rest = [change for change in changes if change.name not in names]
    return _Report(replace(entry, tools=tools), rest, names, problems)


def _pin(
    source: str | MCPSource, old: LockedSource | None, key: str
) -> tuple[str | GitSource | MCPSource, LockedSource]:
    """Return *source* for `load`, and its entry without tools: as *old* has it, or as it is now."""
    if isinstance(source, MCPSource) or is_remote(source):
        return source, LockedSource(key)
    if is_git_address(source):
        address = parse_git_address(source)
        pinned = GitSource(address) if old is None else GitSource(address, old.commit, old.sha256)
        folder = fetch(pinned)
        entry = LockedSource(key, folder.commit, folder.sha256)
        return replace(pinned, commit=folder.commit, sha256=folder.sha256), entry
    path = Path(source).expanduser()
    sha256 = content_hash(path) if path.exists() else None
    if old is not None and old.sha256 != sha256:
        raise LoadError(f"It has changed since it was locked. If that was you: toolcrib lock --update {source}")
    return source, LockedSource(key, None, sha256)


def _require_changes(accept: Sequence[str], reports: Mapping[str, _Report]) -> None:
    names: set[str] = set()
    for report in reports.values():
        names.update(report.accepted_names, (change.name for change in report.changes))
    for name in accept:
        if name not in names:
            hint = did_you_mean(closest_match(name, names))
            raise UsageError(f"--accept: there is no change of a tool '{display_name(name)}' to accept.{hint}")


def _data(key: str, report: _Report) -> dict[str, Any]:
    entry = report.entry
    return {
        "source": key,
        "commit": entry and entry.commit,
        "sha256": entry and entry.sha256,
        "tools": sorted(entry.tools) if entry else [],
        "accepted": list(report.accepted_names),
        "changes": [{"tool": change.name, "kind": change.kind, "diff": change.diff} for change in report.changes],
        "problems": list(report.problems),
    }


def _lines(key: str, report: _Report) -> list[str]:
    entry, lines = report.entry, list[str]()
    if entry is not None:
        commit = f" at {entry.commit[:12]}" if entry.commit else ""
        lines.append(one_line(f"{key}{commit}: {', '.join(sorted(entry.tools)) or 'no tools'}"))
    lines += [f"  {one_line(name)}: accepted" for name in report.accepted_names]
    for change in report.changes:
        lines.append(f"  {one_line(change.name)}: {_KINDS[change.kind]}")
        lines += [f"    {line}" for line in change.diff.splitlines()]
    return lines
