"""`toolcrib.lock`: what each source was, and what its tools promised, when they were accepted.

It knows no kind of source: of each it has a text that names it, the commit and the hash of its content where it has
them, and the definitions of its tools. This file loads nothing.
"""

import difflib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

from pydantic import Field, ValidationError

from ..core import Hints, LoadError
from ..machinery import canonical
from ..sandbox import MAX_BYTES, content_hash
from ..sandbox.folders import LOCK as LOCK
from ..schema.declared import Strict
from ..schema.toml import parse_toml
from .content import bytes_of
from .function import Tool
from .git import DOCUMENT, GitAddress, GitSource, is_git_address, parse_git_address
from .loading import split_name
from .modules import LoadProblem, require_static_imports, source_hash
from .remote import MCPSource, is_remote, locked_text

_VERSION = 1
_HEAD = (
    "# Written by `toolcrib lock`: what each source was, and what its tools promised, when they were accepted.\n"
    f"version = {_VERSION}\n"
)
_HASH = r"^[0-9a-f]{64}$"

Definition = Mapping[str, Any]
"""What a tool promises, as JSON data: see `definition_of`."""


class _Tool(Strict):
    name: str
    sha256: str = Field(pattern=_HASH)
    definition: str


class _Source(Strict):
    where: str = Field(alias="from")
    commit: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    sha256: str | None = Field(default=None, pattern=_HASH)
    tool: list[_Tool] = Field(default_factory=list[_Tool])


class _File(Strict):
    version: int
    source: list[_Source] = Field(default_factory=list[_Source])


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """A tool of the source *where* that is not as it was accepted: its *old* definition, and the *new* one."""

    where: str
    name: str
    old: Definition | None
    new: Definition | None

    @property
    def kind(self) -> Literal["new", "changed", "gone"]:
        return "new" if self.old is None else "gone" if self.new is None else "changed"

    @property
    def diff(self) -> str:
        """What differs, line by line. What is not plain ASCII is escaped."""
        before, after = _shown(self.old).splitlines(), _shown(self.new).splitlines()
        return "\n".join(difflib.unified_diff(before, after, "accepted", "now", n=2, lineterm=""))

    @property
    def digest(self) -> str:
        """The SHA-256 of all of it: who accepts this digest accepts exactly this change."""
        return _hash({"where": self.where, "old": self.old, "new": self.new})


class NotAccepted(LoadProblem):
    """A tool that is left out until a person accepts what it promises now."""


@dataclass(frozen=True, slots=True)
class LockedSource:
    """One source: its *commit* and the *sha256* of its content, where it has these, and its accepted *tools*."""

    where: str
    commit: str | None = None
    sha256: str | None = None
    tools: Mapping[str, Definition] = field(default_factory=dict[str, Definition])

    def changes(self, tools: Iterable[Tool[..., Any]]) -> list[DefinitionChange]:
        """Return what differs between *tools*, those of the source by their own names, and the accepted ones."""
        now = {tool.spec.name: definition_of(tool) for tool in tools}
        pairs = [(name, self.tools.get(name), now.get(name)) for name in sorted({*now, *self.tools})]
        return [DefinitionChange(self.where, *pair) for pair in pairs if not _is_same(*pair[1:])]


@dataclass(frozen=True, slots=True)
class Lock:
    """What is in a lock *file*. Paths in it are relative to its folder."""

    file: Path
    sources: Mapping[str, LockedSource] = field(default_factory=dict[str, LockedSource])

    def key(self, source: str | MCPSource) -> str:
        """Return *source*, as it was written for the current folder, as the text by which it is found here."""
        if isinstance(source, str) and is_git_address(source):
            address = parse_git_address(source)
            if not address.is_local:
                return str(address)
            return str(GitAddress(self._relative(address.repository), address.ref, address.folder))
        if isinstance(source, str) and source.startswith(DOCUMENT):
            where = source.removeprefix(DOCUMENT)
            return source if "://" in where else DOCUMENT + self.key(where)
        if isinstance(source, MCPSource) or is_remote(source):
            return locked_text(source, self._relative)
        path, name = split_name(Path(source).expanduser())
        return f"{self._relative(str(path))}{':' * bool(name)}{name}" if path.exists() else source

    def find(self, source: str | MCPSource) -> LockedSource | None:
        return self.sources.get(self.key(source))

    def hold(self, source: str | MCPSource) -> "Hold | None":
        """Return what holds the tools of *source* to what was accepted, if it is locked."""
        return None if (entry := self.find(source)) is None else Hold(self.file, entry)

    def pinned(self, source: str | MCPSource) -> str | GitSource | MCPSource:
        """Return *source* as it was locked, for `load`.

        Raises LoadError for an address that was not locked, and for what has other content than it had then.
        """
        if isinstance(source, MCPSource) or is_remote(source):
            return source
        entry = self.find(source)
        if is_git_address(source):
            if entry is None or entry.commit is None:
                raise LoadError(
                    f"{source} is not in {self.file}, and what comes from outside has to be. See what it offers, and "
                    f"lock it: toolcrib lock {source}"
                )
            return GitSource(parse_git_address(source), entry.commit, entry.sha256)
        # What a document or a server has is locked tool by tool, and has no hash.
        sha256 = None if entry is None else entry.sha256
        if sha256 is not None and sha256 != locked_hash(source):
            raise LoadError(
                f"{source} has changed since it was locked in {self.file}. If that was you: "
                f"toolcrib lock --update {source}"
            )
        return source

    def with_source(self, source: LockedSource) -> "Lock":
        return replace(self, sources={**self.sources, source.where: source})

    def accepting(self, changes: Iterable[DefinitionChange]) -> "Lock":
        """Return the lock with *changes*. Raises LoadError where what they were compared with is not what it has."""
        sources = {**self.sources}
        for change in changes:
            source = sources.get(change.where)
            if source is None or not _is_same(source.tools.get(change.name), change.old):
                raise LoadError(f"What {self.file} has of '{change.name}' has changed meanwhile. Look at it again.")
            tools = {name: definition for name, definition in source.tools.items() if name != change.name}
            addition = {} if change.new is None else {change.name: change.new}
            sources[change.where] = replace(source, tools=tools | addition)
        return replace(self, sources=sources)

    def write(self) -> None:
        """Write the file, whole or not at all. Raises LoadError."""
        text = _HEAD + "".join(_text_of(source) for _, source in sorted(self.sources.items()))
        try:
            with NamedTemporaryFile(
                "w", dir=self.file.parent, delete=False, encoding="utf-8", newline="\n"
            ) as temporary:
                temporary.write(text)
                temporary.close()
                Path(temporary.name).chmod(0o644)
                Path(temporary.name).replace(self.file)
        except OSError as error:
            raise LoadError(f"{self.file} cannot be written: {error.strerror}.") from None

    def _relative(self, path: str) -> str:
        relative = Path(os.path.relpath(Path(path).expanduser(), self.file.parent)).as_posix()
        return relative if relative.startswith("..") else f"./{'' if relative == '.' else relative}"


class Hold:
    """Lets those tools of a source through that are as its *entry* in the lock *file* has them.

    `changes` are what differs in the tools that it has seen last.
    """

    def __init__(self, file: Path, entry: LockedSource) -> None:
        self.file = file
        self.entry = entry
        self.changes: Sequence[DefinitionChange] = ()
        self._stamp = _stamp(file)

    def __call__(self, tools: Sequence[Tool[..., Any]]) -> list[Tool[..., Any]]:
        """Return those of *tools* that are as they were accepted."""
        self.changes = self.entry.changes(tools)
        names = {change.name for change in self.changes}
        return [tool for tool in tools if tool.spec.name not in names]

    @property
    def problems(self) -> list[LoadProblem]:
        """A problem for each tool that is left out."""
        return [
            NotAccepted(
                change.where,
                f"Tool '{change.name}' {'is new' if change.kind == 'new' else 'has changed'} since the source was "
                f"locked, so it is left out. See what it promises with `toolcrib lock`, and accept it with "
                f"`toolcrib lock --accept {change.name}`.",
            )
            for change in self.changes
            if change.kind != "gone"
        ]

    def accept(self, change: DefinitionChange) -> None:
        """Write *change* into the file. Raises LoadError."""
        (read_lock(self.file) or Lock(self.file)).accepting([change]).write()

    def update(self) -> bool:
        """Read what has been accepted since. Return whether that is other than before. Raises LoadError.

        An entry of another commit or content is for the next start.
        """
        if (stamp := _stamp(self.file)) == self._stamp:
            return False
        lock = read_lock(self.file)
        entry = None if lock is None else lock.sources.get(self.entry.where)
        self._stamp = stamp
        if entry is None or (entry.commit, entry.sha256) != (self.entry.commit, self.entry.sha256):
            return False
        before, self.entry = self.entry, entry
        return before != entry


def _stamp(file: Path) -> object:
    return (status.st_mtime_ns, status.st_ino) if file.exists() and (status := file.stat()) else None


def locked_hash(source: str) -> str | None:
    """Return the hash of what *source*, a path or `file.py:name`, has: of a file with what it imports beside it.

    None where there is no such path. Raises LoadError for what a hash cannot hold.
    """
    path = split_name(Path(source).expanduser())[0]
    if path.suffix != ".py" or not path.is_file():
        return content_hash(path) if path.exists() else None
    require_static_imports(path.resolve())
    return source_hash(path.resolve())


def read_lock(file: Path) -> Lock | None:
    """Return what is in *file*; None where there is no such file.

    Raises LoadError for what `toolcrib lock` does not write: a file that was damaged locks nothing.
    """
    if not file.exists():
        return None
    try:
        text = bytes_of(file, MAX_BYTES).decode().replace("\r\n", "\n")
        data = parse_toml(text)
    except ValueError as error:
        raise _damaged(file, f"it is not valid TOML ({error})") from None
    if data.get("version") != _VERSION:
        raise LoadError(
            f"{file} is not of version {_VERSION}, the one that is read here. Use the Toolcrib that wrote it."
        )
    try:
        document = _File.model_validate(data)
    except ValidationError as error:
        keys = ".".join(map(str, error.errors(include_input=False, include_url=False)[0]["loc"]))
        raise _damaged(file, f"its '{keys}' is not as it was written") from None
    sources: dict[str, LockedSource] = {}
    for source in document.source:
        tools = {mistake.name: _definition(file, mistake) for mistake in source.tool}
        if source.where in sources or len(tools) < len(source.tool):
            raise _damaged(file, f"it has two entries of one name in '{source.where}'")
        sources[source.where] = LockedSource(source.where, source.commit, source.sha256, tools)
    return Lock(file, sources)


def definition_of(tool: Tool[..., Any]) -> Definition:
    """Return what *tool* promises, and what it needs, as JSON data: what a person accepts."""
    spec = tool.spec
    return {
        "name": spec.name,
        "title": spec.title,
        "description": spec.description,
        "input_schema": dict(spec.input_schema),
        "output_schema": None if spec.output_schema is None else dict(spec.output_schema),
        "hints": {name: value for name in Hints.__slots__ if (value := getattr(spec.hints, name)) is not None},
        "auth": [requirement.to_dict() for requirement in spec.requirements],
        "needs": dict(tool.requires),
    }


def _definition(file: Path, tool: _Tool) -> Definition:
    try:
        definition = json.loads(tool.definition)
        is_whole = isinstance(definition, dict) and _hash(definition) == tool.sha256
    except (ValueError, RecursionError):
        is_whole = False
    if not is_whole:
        raise _damaged(file, f"the definition of '{tool.name}' does not have its hash")
    return definition  # type: ignore[no-any-return]


def _damaged(file: Path, why: str) -> LoadError:
    return LoadError(f"{file} cannot be used: {why.rstrip('.')}. Restore it, or remove it and run `toolcrib lock`.")


def _is_same(old: Definition | None, new: Definition | None) -> bool:
    return old is new if old is None or new is None else canonical(old) == canonical(new)


def _hash(definition: Definition) -> str:
    return hashlib.sha256(canonical(definition).encode()).hexdigest()


def _text_of(source: LockedSource) -> str:
    lines = ["", "[[source]]", f"from = {_string(source.where)}"]
    lines += [f"{key} = {_string(value)}" for key in ("commit", "sha256") if (value := getattr(source, key))]
    for name, definition in sorted(source.tools.items()):
        text = _shown(definition).replace("'''", "''\\u0027")
        lines += ["", "[[source.tool]]", f"name = {_string(name)}", f'sha256 = "{_hash(definition)}"']
        lines += [f"definition = '''\n{text}'''"]
    return "\n".join(lines) + "\n"


def _shown(definition: Definition | None) -> str:
    """Return JSON for people, line by line. What is not plain ASCII is escaped: nothing in it is invisible."""
    if definition is None:
        return ""
    return json.dumps(definition, indent=2, sort_keys=True).replace("\x7f", "\\u007f")


def _string(text: str) -> str:
    text_in_quotes = "".join(f"\\U{ord(c):08X}" if not c.isprintable() else f"\\{c}" if c in '"\\' else c for c in text)
    return f'"{text_in_quotes}"'
