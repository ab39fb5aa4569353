"""`toolcrib lock`: note what sources are and what their tools promise, and accept what has changed of that."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core import LoadError, ToolcribError
from ..tools.git import DOCUMENT, GitSource, fetch, is_git_address, parse_git_address
from ..tools.lock import DefinitionChange, Lock, LockedSource, definition_of, locked_hash, read_lock
from ..tools.remote import MCPSource, is_remote, placed
from ..workbench.config import lock_file
from ..workbench.settings import NamedSource, Settings
from .app import Session, command, group
from .arguments import SourceNames
from .sources import load_listed, log_fetches
from .terminal import Output, UsageError, echo, no_such, one_line

app = group()

_KINDS = {
    "new": "new, and left out until it is accepted",
    "changed": "changed, and left out until it is accepted",
    "gone": "gone",
}


@dataclass(frozen=True, slots=True)
class _Look:
    """A source as it is now: its entry for the lock, if it has one, and how its tools differ from the old one."""

    key: str
    entry: LockedSource | None
    problems: Sequence[str] = ()
    changes: Sequence[DefinitionChange] = ()
    accept: Sequence[str] = ()
    """The names of the tools whose changes are accepted."""

    @property
    def accepted_names(self) -> list[str]:
        return [change.name for change in self.changes if change.name in self.accept]

    @property
    def open_changes(self) -> list[DefinitionChange]:
        return [change for change in self.changes if change.name not in self.accept]

    def is_ok(self) -> bool:
        return not (self.open_changes or self.problems)

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.key,
            "commit": self.entry and self.entry.commit,
            "sha256": self.entry and self.entry.sha256,
            "tools": sorted(self.entry.tools) if self.entry else [],
            "accepted": self.accepted_names,
            "changes": [
                {"tool": change.name, "kind": change.kind, "diff": change.diff} for change in self.open_changes
            ],
            "problems": list(self.problems),
        }


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
    named_sources = _sources(sources, session.settings, before)
    looks = [_look(source, before, accept, update=update, check=check) for source in named_sources]
    _require_changes(accept, looks)
    if not check:
        _save(before, looks)
    is_ok = all(map(_Look.is_ok, looks))
    if session.as_json:
        output.json({"file": str(file), "ok": is_ok, "sources": [*map(_Look.to_dict, looks)]})
    else:
        _write(looks, file, output, check=check)
    return 0 if is_ok else 1


def _save(before: Lock, looks: Sequence[_Look]) -> None:
    after = before
    for look in looks:
        after = after if look.entry is None else after.with_source(look.entry)
    if after != before:
        after.write()


def _write(looks: Sequence[_Look], file: Path, output: Output, *, check: bool) -> None:
    """Write for people what each source is now, and how to accept what has changed."""
    for look in looks:
        _write_source(look, output, check=check)
    if names := sorted({change.name for look in looks for change in look.open_changes}):
        options = " ".join(f"--accept {name}" for name in names)
        echo(f"{file}: not accepted: {', '.join(names)}. If that is what you want: toolcrib lock {options}")


def _write_source(look: _Look, output: Output, *, check: bool) -> None:
    if (entry := look.entry) is not None:
        commit = f" at {entry.commit[:12]}" if entry.commit else ""
        output.write(one_line(f"{look.key}{commit}: {', '.join(sorted(entry.tools)) or 'no tools'}"))
    for name in look.accepted_names:
        output.write(f"  {one_line(name)}: accepted")
    for change in look.open_changes:
        lines = [f"  {one_line(change.name)}: {_KINDS[change.kind]}"]
        output.write("\n".join([*lines, *(f"    {line}" for line in change.diff.splitlines())]))
    for problem in look.problems:
        echo(f"Not loaded: {problem}" if look.key in problem and not check else f"Not loaded: {look.key}: {problem}")


def _sources(written: Sequence[str] | None, settings: Settings, lock: Lock) -> list[NamedSource]:
    """Return the sources that are *written*; without these, those that are locked, or have to be by the settings.

    A source of the settings has the permissions that it has there. Raises UsageError where there is none.
    """
    by_key = {lock.key(source.source): source for source in settings.sources}
    if written:
        return [by_key.get(lock.key(source), NamedSource(source, source)) for source in written]
    outside = [source for key, source in by_key.items() if is_git_address(source.source) or key in lock.sources]
    outside += [NamedSource(key, _from_here(key, lock.file)) for key in lock.sources if key not in by_key]
    if not outside:
        raise UsageError("There is nothing to lock: name a source, as in toolcrib lock git+https://HOST/PATH@REF")
    return outside


def _from_here(key: str, file: Path) -> str:
    """Return the text *key* of a lock *file* as it is written in the current folder."""
    if is_git_address(key):
        return str(parse_git_address(key).beside(file.parent))
    if key.startswith(DOCUMENT):
        return DOCUMENT + _from_here(key.removeprefix(DOCUMENT), file)
    return str(file.parent / key) if key.startswith(("./", "../")) else placed(key, file.parent)


def _look(source: NamedSource, lock: Lock, accept: Sequence[str], *, update: bool, check: bool) -> _Look:
    """Return *source* as it is now, and how its tools differ from the old entry in *lock*."""
    old, key = lock.find(source.source), lock.key(source.source)
    if old is None and check:
        return _Look(key, None, [f"It is not locked. Lock it: toolcrib lock {source.written}"])
    try:
        pinned, entry = _pin(source.source, None if update else old, key)
        listing = load_listed(source.granted(pinned))
    except ToolcribError as error:
        return _Look(key, old, [str(error)])
    now = {tool.spec.name: definition_of(tool) for tool in listing.tools}
    problems = [*map(str, listing.problems)]
    if old is None:
        return _Look(key, replace(entry, tools=now), problems)
    changes = old.changes(listing.tools)
    acceptances = [change for change in changes if change.name in accept]
    after = lock.with_source(replace(entry, tools=old.tools)).accepting(acceptances).sources[key]
    return _Look(key, after, problems, changes, accept)


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
    sha256 = locked_hash(source)
    if old is not None and old.sha256 != sha256:
        raise LoadError(f"It has changed since it was locked. If that was you: toolcrib lock --update {source}")
    return source, LockedSource(key, None, sha256)


def _require_changes(accept: Sequence[str], looks: Sequence[_Look]) -> None:
    names = {change.name for look in looks for change in look.changes}
    for name in accept:
        if name not in names:
            raise UsageError(no_such("--accept: there is no change of a tool", name, names, " to accept"))
