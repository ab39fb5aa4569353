"""A source of tools that follows a `.py` file, or a folder of them: what is saved is loaded.

A file that cannot be loaded keeps its tools as they were, and becomes a problem with file and line.
"""

import ast
import hashlib
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..core import LoadError
from .following import SETTLE_S, AnyTool, Change, Following, PathState, change_of
from .loading import SOURCES, Loaded, reload_files, split_name
from .modules import LoadProblem
from .places import identity, place_of

_MAX_NEEDED = 1000
"""How many files of packages that tools import are followed."""


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


class Watched(Following):
    """The tools of *source*, a `.py` file, `"file.py:name"` or a folder, as its files are.

    They are loaded at once; between `start` and `stop` a thread follows the files. A file that changes is loaded when
    it stays unchanged for *settle_s* seconds, so one that is saved in two writes is loaded once, and whole.

    Files beside it that it imports are followed too, with all that is in packages beside it; not what is imported by a
    name in a string, and nothing that is installed. Where one of these changes, all of them are imported again.

    What was loaded, and what could not be, goes to the log `toolcrib.watch`. Raises LoadError for what is neither a
    `.py` file nor a folder.
    """

    def __init__(self, source: str | Path, *, settle_s: float = SETTLE_S) -> None:
        path, self._name = split_name(source)
        if not (path.is_dir() or path.suffix == ".py"):
            raise LoadError(f"{path} is not a Python file or a folder, so it cannot be watched. A source is {SOURCES}.")
        if not path.exists():
            raise LoadError(f"There is no file {path}. A source is {SOURCES}.")
        super().__init__(path, f"{path}:{self._name}" if self._name else str(path), settle_s)
        self._is_folder = path.is_dir()
        self._files: dict[Path, _File] = {}
        self._missing: LoadProblem | None = None
        self._stale: set[Path] = set()
        self._update(self._look())

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

    def _counts(self, path: str) -> bool:
        return path.endswith(".py") or Path(path) in self._seen

    def _keeps_tools(self, problem: LoadProblem, change: Change) -> bool:
        others = [file for path, file in self._files.items() if path not in change.files]
        return any(problem in file.problems and file.tools for file in others)

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
            return change_of(before, self.tools(), tuple(loaded), new)

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
            reason = "It was removed, and its tools with it." if was_there else "It is not there."
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
