"""A source of tools that follows a `.py` file, or a folder of them: what is saved is loaded.

A file that cannot be loaded keeps its tools as they were, and becomes a problem with file and line.
"""

import ast
import hashlib
import logging
import os
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

from ..core import LoadError, Source
from .function import Tool
from .load import SOURCES, Loaded, identity, place_of, reload_files, split_name
from .modules import LoadProblem

PathState = tuple[object, ...]
"""What is at a path: `("file", digest)`, `("folder", *names)`, `("unreadable", reason)`, or `()` for nothing."""

AnyTool = Tool[..., Any]
_log = logging.getLogger("toolcrib.watch")

_SETTLE_S = 0.3
_RECHECK_S = 2.0
_MAX_NEEDED = 1000
"""How many files of packages that tools import are followed."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a save changed: the names of tools, and new problems. *files* are those that were loaded again."""

    files: tuple[Path, ...] = ()
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[LoadProblem, ...] = ()

    def __str__(self) -> str:
        names = {"new": self.added, "changed": self.changed, "gone": self.removed}
        parts = [f"{label}: {', '.join(which)}" for label, which in names.items() if which]
        return f"Loaded {', '.join(path.name for path in self.files)} again; {'; '.join(parts) or 'same tools'}."


@dataclass(frozen=True, slots=True)
class _File:
    """One file: the tools that it offers, the *newest* that could be loaded, and the files beside it that it imports.

    With a *conflict*, where one of the newest tools has the name of another file's, it offers those that it had before.
    """

    tools: list[AnyTool] = field(default_factory=list[AnyTool])
    newest: list[AnyTool] = field(default_factory=list[AnyTool])
    needs: frozenset[Path] = frozenset()
    errors: tuple[LoadProblem, ...] = ()
    conflict: LoadProblem | None = None

    @property
    def problems(self) -> tuple[LoadProblem, ...]:
        return self.errors if self.conflict is None else (*self.errors, self.conflict)

    def loaded(self, result: Loaded, needs: frozenset[Path] | None) -> "_File":
        """The file after it was loaded. While there are errors in it, none of its tools goes."""
        names = {tool.spec.name for tool in result.tools}
        old = [tool for tool in self.newest if tool.spec.name not in names] if result.problems else []
        newest = self.newest if result.failed else [*result.tools, *old]
        return _File(self.tools, newest, self.needs if needs is None else needs, tuple(result.problems))


class Watched(Source):
    """The tools of *source*, a `.py` file, `"file.py:name"` or a folder, as its files are.

    They are loaded at once; between `start` and `stop` a thread follows the files. A file that changes is loaded when
    it stays unchanged for *settle_s* seconds, so one that is saved in two writes is loaded once, and whole.

    Files beside it that it imports are followed too, with all that is in packages beside it; not what is imported by a
    name in a string, and nothing that is installed. Where one of these changes, all of them are imported again.

    What was loaded, and what could not be, goes to the log `toolcrib.watch`. Raises LoadError for what is neither a
    `.py` file nor a folder.
    """

    def __init__(self, source: str | Path, *, settle_s: float = _SETTLE_S) -> None:
        path, self._name = split_name(source)
        if not (path.is_dir() or path.suffix == ".py"):
            raise LoadError(f"{path} is not a Python file or a folder, so it cannot be watched. A source is {SOURCES}.")
        if not path.exists():
            raise LoadError(f"There is no file {path}. A source is {SOURCES}.")
        self._label = f"{path}:{self._name}" if self._name else str(path)
        self._path = path.resolve()
        self._is_folder = path.is_dir()
        self._settle_s = settle_s
        self._lock = threading.Lock()
        self._files: dict[Path, _File] = {}
        self._missing: LoadProblem | None = None
        self._stale: set[Path] = set()
        self._seen: dict[Path, PathState] = {}
        self._stop = threading.Event()
        self._users = 0
        self._users_lock = threading.Lock()  # not the other one, which is held while files are imported
        self._update(self._look())

    async def start(self) -> None:
        with self._users_lock:
            self._users += 1
            if self._users > 1:
                return
            self._stop = threading.Event()
        # A daemon: a module that never ends being imported must not keep the process from ending.
        threading.Thread(
            target=self._follow, args=(self._stop,), name=f"toolcrib-watch-{self._path.name}", daemon=True
        ).start()

    async def stop(self) -> None:
        with self._users_lock:
            self._users = max(0, self._users - 1)
            if not self._users:
                self._stop.set()

    def tools(self) -> list[AnyTool]:
        """The tools, as they were last loaded. A file may export what it imported from another: one tool."""
        found: dict[object, AnyTool] = {}
        for file in self._files.values():
            for tool in file.tools:
                found.setdefault(identity(tool), tool)
        return list(found.values())

    @property
    def problems(self) -> Sequence[LoadProblem]:
        """What is wrong with the files, as they were last loaded."""
        found = [problem for file in self._files.values() for problem in file.problems]
        return [*found, *([self._missing] if self._missing is not None else [])]

    def look(self) -> Change | None:
        """Load now what has changed since the last look. None if nothing has."""
        change = self._update(self._look())
        if change is not None:
            self._report(change)
        return change

    def __str__(self) -> str:
        return self._label

    def __repr__(self) -> str:
        return f"<Watched {self}>"

    # Following

    def _follow(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                for _ in self._events(stop):
                    now = self._look()
                    if now == self._seen:
                        continue
                    now = self._settled(now, stop)
                    change = None if stop.is_set() else self._update(now)
                    if change is not None and not stop.is_set():
                        self._report(change)
                    break  # there may be other folders to watch
            except Exception:
                _log.exception("Watching %s failed; trying again", self)
                stop.wait(_SETTLE_S)

    def _events(self, stop: threading.Event) -> Iterator[None]:
        """Yield when files may have changed: at events, and now and then, since some file systems have none."""
        from watchfiles import watch  # here, so that importing toolcrib does not load it

        looked_at = -_RECHECK_S  # at once: what changed before the watch began sends no event
        events = watch(
            *{folder for path in self._seen for folder in (path.parent, self._path) if folder.is_dir()},
            watch_filter=lambda _, path: path.endswith(".py") or Path(path) in self._seen,
            stop_event=stop,
            rust_timeout=100,
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=False,
            ignore_permission_denied=True,
        )
        for changes in events:
            if changes or monotonic() - looked_at >= _RECHECK_S:
                yield
                looked_at = monotonic()

    def _settled(self, now: dict[Path, PathState], stop: threading.Event) -> dict[Path, PathState]:
        while not stop.wait(self._settle_s) and (later := self._look()) != now:
            now = later
        return now

    def _report(self, change: Change) -> None:
        for problem in change.problems:
            unchanged = any(
                problem in file.problems and file.tools
                for path, file in self._files.items()
                if path not in change.files
            )
            _log.warning("Not loaded%s: %s", ", so its tools stay as they were" if unchanged else "", problem)
        if change.files:
            _log.info("%s", change)
        self.changed()

    def _look(self) -> dict[Path, PathState]:
        root = _state_of(self._path)
        paths = {*self._own_files(root), *self._needed()} - {self._path}
        return {self._path: root, **{path: _state_of(path) for path in paths}}

    def _needed(self) -> set[Path]:
        return set[Path]().union(*(file.needs for file in list(self._files.values())))

    def _own_files(self, root: PathState) -> list[Path]:
        """The files that are the source, where its file or folder has *root*."""
        if not self._is_folder:
            return [self._path] if root else []
        match root:
            case ("folder", *names):
                return [self._path / str(name) for name in names if str(name)[0] not in "_."]
            case ("unreadable", _):
                return list(self._files)  # nobody knows, so nothing is taken to be gone
            case _:
                return []

    # Loading

    def _update(self, now: dict[Path, PathState]) -> Change | None:
        """Load what differs between *now* and what was seen before."""
        with self._lock:
            changed = {path for path in {*now, *self._seen} if now.get(path) != self._seen.get(path)}
            self._seen = now
            if not changed:
                return None
            before, problems, was_there = self.tools(), self.problems, bool(self._files) or self._missing is not None
            files = self._own_files(now[self._path])
            loaded = self._reload(files, changed)
            self._missing = self._missing_problem(was_there)
            followed = {self._path, *files, *self._needed()}
            self._seen = {path: state for path, state in self._seen.items() if path in followed}
            new = tuple(problem for problem in self.problems if problem not in problems)
            return _change(before, self.tools(), tuple(loaded), new)

    def _reload(self, files: Sequence[Path], changed: set[Path]) -> list[Path]:
        """Load those of *files* that have changed, or import what has. Returns those that were loaded."""
        old = self._files
        due = [path for path in files if path not in old or path in changed or old[path].needs & changed]
        folder = self._path if self._is_folder else self._path.parent
        needs = {path: _needs(path, folder) for path in due}
        for path in set[Path]().union(*(found or () for found in needs.values())) - self._seen.keys():
            self._seen[path] = _state_of(path)  # before it is imported: what is saved meanwhile is a change
        # A module that imports one that has changed has to be imported again, too.
        self._stale |= changed.union(*(needs[path] or () for path in due if path in old and old[path].needs & changed))
        made = dict(old)
        results = dict(zip(due, reload_files(due, self._name, stale=self._stale), strict=True))
        for path, result in results.items():
            made[path] = old.get(path, _File()).loaded(result, needs[path])
        if not all(result.failed for result in results.values()):
            self._stale.clear()
        self._files = _without_conflicts({path: made[path] for path in files})
        return [path for path, result in results.items() if not (result.failed or self._files[path].conflict)]

    def _missing_problem(self, was_there: bool) -> LoadProblem | None:
        reason = None
        if not self._files:
            reason = "It is gone, and its tools with it." if was_there else "It is not there."
            if self._is_folder and self._path.is_dir():
                reason = "The folder has no .py file."
        elif not any(file.tools or file.problems for file in self._files.values()):
            reason = "It defines no tool. Mark functions with @tool."
        return LoadProblem(str(self._path), reason) if reason else None


def _state_of(path: Path) -> PathState:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return ("folder", *sorted(name for name in os.listdir(path) if name.endswith(".py")))  # noqa: PTH208
        if stat.S_ISREG(mode):
            return ("file", hashlib.sha256(path.read_bytes()).hexdigest())
        return ("unreadable", stat.S_IFMT(mode))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        return ("unreadable", error.errno)


def _needs(file: Path, folder: Path) -> frozenset[Path] | None:
    """The files in *folder* that *file* imports, and those that these import, whether they are there or not.

    None where the file's own imports cannot be read.
    """
    todo, found = _imports(file, folder), set[Path]()
    if todo is None:
        return None
    while todo and len(found) < _MAX_NEEDED:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo |= _imports(path, folder) or set()
    return frozenset(found - {file})


def _imports(path: Path, folder: Path) -> set[Path] | None:
    """What a file imports from *folder*, or what is in a package. None where that cannot be read."""
    try:
        if path.suffix != ".py":
            return {inside for inside in path.iterdir() if inside.suffix == ".py" or inside.name.isidentifier()}
        tree = ast.parse(path.read_bytes() if path.is_file() else "?")
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    names -= sys.stdlib_module_names | {"toolcrib"}
    return {folder / f"{name}.py" for name in names} | {folder / name for name in names}


def _without_conflicts(files: Mapping[Path, _File]) -> dict[Path, _File]:
    """*files* with the tools that they offer now: the newest, or where the name of one is taken, those from before."""
    names: dict[str, AnyTool] = {}
    offered: dict[Path, _File] = {}
    unchanged_first = sorted(files, key=lambda path: files[path].newest is not files[path].tools)
    for path in unchanged_first:
        file, own = files[path], dict(names)
        conflict = None
        for tool in file.newest:
            taken = own.setdefault(_folded(tool), tool)
            if identity(taken) != identity(tool):
                conflict = conflict or _conflict(tool, taken)
        tools = file.newest
        if conflict is not None:
            tools = [tool for tool in file.tools if _folded(tool) not in names]
        names |= {_folded(tool): tool for tool in tools}
        offered[path] = replace(file, tools=tools, conflict=conflict)
    return {path: offered[path] for path in files}


def _folded(tool: AnyTool) -> str:
    return tool.spec.name.replace("-", "_")


def _conflict(tool: AnyTool, taken: AnyTool) -> LoadProblem:
    name, other = tool.spec.name, taken.spec.name
    differ = "" if name == other else f" (there '{other}', which differs only in - and _)"
    return LoadProblem(
        place_of(tool) or name,
        f"'{name}' is also the name of the tool at {place_of(taken)}{differ}. Give one another name: "
        '@tool(name="...").',
    )


def _change(
    old: Iterable[AnyTool], new: Iterable[AnyTool], files: tuple[Path, ...], problems: tuple[LoadProblem, ...]
) -> Change | None:
    before, after = ({tool.spec.name: tool.spec for tool in tools} for tools in (old, new))
    if not (files or problems or before != after):
        return None
    return Change(
        files,
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name, spec in after.items() if name in before and before[name] != spec),
        removed=tuple(name for name in before if name not in after),
        problems=problems,
    )
