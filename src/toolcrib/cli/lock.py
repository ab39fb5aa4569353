"""`toolcrib lock`: note what sources are and what their tools promise, and accept what has changed of that."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core import LoadError, ToolcribError
from ..schema.describe import closest_match, did_you_mean, display_name
from ..tools import Tool, load
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


@dataclass(frozen=True, slots=True)
class _Seen:
    """A source as it is now: the entry that it has, or would have, what its tools differ in, and what is wrong."""

    entry: LockedSource | None
    changes: Sequence[DefinitionChange] = ()
    accepted: Sequence[str] = ()
    problems: Sequence[str] = ()

    @property
    def is_ok(self) -> bool:
        return not self.changes and not self.problems


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
    output = session.output
    log_fetches()
    file = lock_file(session.settings)
    before = read_lock(file) or Lock(file)
    named = _named(sources or (), session.settings, before)
    if not named:
        raise UsageError("There is nothing to lock: name a source, as in toolcrib lock git+https://HOST/PATH@REF")
    seen = {before.key(source.source): _look(source, before, accept, update=update, check=check) for source in named}
    _require_names(accept, seen)
    after = before
    for source in seen.values():
        after = after if source.entry is None else after.with_source(source.entry)
    if not check and after != before:
        after.write()
    is_ok = all(source.is_ok for source in seen.values())
    if session.as_json:
        output.json({"file": str(file), "ok": is_ok, "sources": [*map(_data, seen.items())]})
    else:
        _write_report(seen, file, output, check=check)
    return 0 if is_ok else 1


def _named(written: Sequence[str], settings: Settings, lock: Lock) -> list[NamedSource]:
    """Return the sources that are *written*; without these, those that are locked, or have to be by the settings.

    A source of the settings has the permissions that it has there.
    """
    known = {lock.key(one.source): one for one in settings.sources}
    if written:
        return [known.get(lock.key(source), NamedSource(source, source)) for source in written]
    outside = [one for key, one in known.items() if is_git_address(one.source) or key in lock.sources]
    others = [NamedSource(key, _from_here(key, lock.file)) for key in lock.sources if key not in known]
    return outside + others


def _from_here(key: str, file: Path) -> str:
    """Return the text *key* of a lock *file* as it is written in the current folder."""
    if is_git_address(key):
        return str(parse_git_address(key).beside(file.parent))
    if key.startswith(DOCUMENT):
        return DOCUMENT + _from_here(key.removeprefix(DOCUMENT), file)
    return str(file.parent / key) if key.startswith(("./", "../")) else key


def _look(named: NamedSource, lock: Lock, accept: Sequence[str], *, update: bool, check: bool) -> _Seen:
    old = lock.find(named.source)
    if old is None and check:
        return _Seen(None, problems=(f"It is not locked. Lock it: toolcrib lock {named.written}",))
    try:
        source, now = _pin(named.source, None if update else old, lock.key(named.source))
        loaded = load(named.granted(source))
        if getattr(loaded.source, "listed_at_start", False):
            asyncio.run(connect(loaded))
    except ToolcribError as error:
        return _Seen(old, problems=(str(error),))
    problems = tuple(map(str, loaded.problems))
    tools = loaded.tools
    if old is None:
        return _Seen(replace(now, tools={tool.spec.name: definition_of(tool) for tool in tools}), problems=problems)
    changes = tuple(old.changes(tools))
    accepted = tuple(change.name for change in changes if change.name in accept)
    definitions = _definitions(old, tools, accepted)
    left = tuple(change for change in changes if change.name not in accepted)
    return _Seen(replace(now, tools=definitions), left, accepted, problems)


def _pin(
    source: str | MCPSource, old: LockedSource | None, key: str
) -> tuple[str | GitSource | MCPSource, LockedSource]:
    """Return *source* for `load`, and its entry without tools: as *old* has it, or as it is now."""
    if isinstance(source, MCPSource) or is_remote(source):
        return source, LockedSource(key)
    if is_git_address(source):
        address = parse_git_address(source)
        wanted = GitSource(address) if old is None else GitSource(address, old.commit, old.sha256)
        fetched = fetch(wanted)
        return replace(wanted, commit=fetched.commit, sha256=fetched.sha256), LockedSource(
            key, fetched.commit, fetched.sha256
        )
    path = Path(source).expanduser()
    sha256 = content_hash(path) if path.exists() else None
    if old is not None and old.sha256 != sha256:
        raise LoadError(f"It has changed since it was locked. If that was you: toolcrib lock --update {source}")
    return source, LockedSource(key, None, sha256)


def _definitions(old: LockedSource, tools: Sequence[Tool[..., Any]], accepted: Sequence[str]) -> dict[str, Any]:
    """Return the definitions that are accepted from now on; of a tool that is gone, that one goes too once that is."""
    now = {tool.spec.name: definition_of(tool) for tool in tools}
    definitions = {name: definition for name, definition in old.tools.items() if name in now or name not in accepted}
    return definitions | {name: now[name] for name in accepted if name in now}


def _require_names(accept: Sequence[str], seen: dict[str, _Seen]) -> None:
    changed = {name for one in seen.values() for name in (*one.accepted, *(change.name for change in one.changes))}
    for name in accept:
        if name not in changed:
            hint = did_you_mean(closest_match(name, changed))
            raise UsageError(f"--accept: there is no change of a tool '{display_name(name)}' to accept.{hint}")


def _data(item: tuple[str, _Seen]) -> dict[str, Any]:
    key, seen = item
    entry = seen.entry
    return {
        "source": key,
        "commit": entry and entry.commit,
        "sha256": entry and entry.sha256,
        "tools": sorted(entry.tools) if entry else [],
        "accepted": list(seen.accepted),
        "changes": [{"tool": change.name, "kind": change.kind, "diff": change.diff} for change in seen.changes],
        "problems": list(seen.problems),
    }


def _write_report(seen: dict[str, _Seen], file: Path, output: Output, *, check: bool) -> None:
    for key, one in seen.items():
        if one.entry is not None:
            at = f" at {one.entry.commit[:12]}" if one.entry.commit else ""
            output.write(one_line(f"{key}{at}: {', '.join(sorted(one.entry.tools)) or 'no tools'}"))
        for name in one.accepted:
            output.write(f"  {one_line(name)}: accepted")
        for change in one.changes:
            output.write(f"  {one_line(change.name)}: {_KINDS[change.kind]}")
            output.write("\n".join(f"    {line}" for line in change.diff.splitlines()))
        for problem in one.problems:
            echo(f"Not loaded: {key}: {problem}" if check or key not in problem else f"Not loaded: {problem}")
    names = sorted({change.name for one in seen.values() for change in one.changes})
    if names:
        accept = " ".join(f"--accept {name}" for name in names)
        echo(f"{file}: not accepted: {', '.join(names)}. If that is what you want: toolcrib lock {accept}")


_KINDS = {
    "new": "new, and left out until it is accepted",
    "changed": "changed, and left out until it is accepted",
    "gone": "gone",
}
