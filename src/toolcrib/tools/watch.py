"""A `.py` file, or a folder of them, whose tools follow the files: what is saved is loaded, and whoever asked is told.

What cannot be loaded changes nothing: the tools stay what they were, and a problem names file and line.

The files are looked at a few times a second. There are few of them, so that costs next to nothing, needs no package,
and holds on every file system and for files and folders that are replaced under their name, as editors do.
"""

import ast
import hashlib
import logging
import os
import stat
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from ..core import LoadError
from ..core.source import Source
from .function import Tool
from .load import KINDS, LoadProblem, line_of, load_again, origin

AnyTool = Tool[..., Any]
Stamp = tuple[object, ...] | None

_log = logging.getLogger("toolcrib.watch")

_EVERY_S = 0.2
_SETTLE_S = 0.3
"""For so long a file has to stay as it is: one that is saved in two writes is loaded once, and whole."""
_MOST_NEEDED = 1000
"""How many files of packages that tools import are looked at."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a save did: the names of tools, and what could not be loaded. *files* are those that were loaded anew."""

    files: tuple[Path, ...] = ()
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[LoadProblem, ...] = ()

    def __str__(self) -> str:
        files = ", ".join(path.name for path in self.files)
        said = {"new": self.added, "changed": self.changed, "gone": self.removed}
        parts = [f"{word}: {', '.join(names)}" for word, names in said.items() if names]
        return f"Loaded {files} again; {'; '.join(parts) or 'the tools promise what they did'}."


@dataclass(frozen=True, slots=True)
class _File:
    """What one file gave when it could last be loaded, and what it imports from beside it.

    *problem* is what is wrong with it now. It *wants* to give other tools, if not for the names of other files' tools.
    """

    tools: list[AnyTool]
    needs: frozenset[Path]
    problem: LoadProblem | None = None
    wants: list[AnyTool] | None = None


class Watched(Source):
    """The tools of *source*, a `.py` file, `"file.py:name"` or a folder, as its files are.

    They are loaded at once; between `start` and `stop` a thread looks for changes, *every_s* seconds. A file that
    changes is loaded when it has stayed as it is for *settle_s* seconds.

    Files beside that they import are looked at too, with all that is in packages beside them; not what is imported by a
    name in a text, and nothing that is installed. Where one of these changes, all of them are imported anew.

    What was loaded, and what could not be, is told to the log `toolcrib.watch`. Raises LoadError for what is no `.py`
    file and no folder.
    """

    def __init__(self, source: str | Path, *, every_s: float = _EVERY_S, settle_s: float = _SETTLE_S) -> None:
        path, self._name = _split(source)
        self._said = str(path)
        self._path = path.resolve()
        self._is_folder = path.is_dir()
        self._every_s = every_s
        self._settle_s = settle_s
        self._lock = threading.Lock()
        self._files: dict[Path, _File] = {}
        self._gone: LoadProblem | None = None
        self._stale: set[Path] = set()
        self._seen: dict[Path, Stamp] = {}
        self._contents: dict[Path, str] = {}
        self._stop = threading.Event()
        self._users = 0
        self._counting = threading.Lock()  # not the other one, which is held while files are imported
        with self._lock:
            self._take(self._look())

    async def start(self) -> None:
        with self._counting:
            self._users += 1
            if self._users > 1:
                return
            self._stop = threading.Event()
        # A daemon: a module that never ends being imported must not keep the process from ending.
        threading.Thread(
            target=self._follow, args=(self._stop,), name=f"toolcrib-watch-{self._path.name}", daemon=True
        ).start()

    async def stop(self) -> None:
        with self._counting:
            self._users = max(0, self._users - 1)
            if not self._users:
                self._stop.set()

    def tools(self) -> list[AnyTool]:
        """The tools, as of the last look."""
        return _joined(self._files.values())

    @property
    def problems(self) -> Sequence[LoadProblem]:
        """What is wrong with the files, as of the last look."""
        found = [file.problem for file in self._files.values() if file.problem is not None]
        return [*found, *([self._gone] if self._gone is not None else [])]

    def look(self) -> Change | None:
        """Load at once what has changed since the last look. None if nothing has."""
        with self._lock:
            change = self._take(self._look())
        if change is not None:
            self._tell(change)
        return change

    def __toolcrib__(self) -> list[AnyTool]:
        return self.tools()

    def __str__(self) -> str:
        return f"{self._said}:{self._name}" if self._name else self._said

    def __repr__(self) -> str:
        return f"<Watched {self}>"

    def _follow(self, stop: threading.Event) -> None:
        waits: dict[Path, Stamp] | None = None
        since_s = 0.0
        while not stop.wait(self._every_s):
            change = None
            try:
                with self._lock:
                    now = self._look()
                    if now == self._seen:
                        waits = None
                    elif now != waits:
                        waits, since_s = now, monotonic()
                    elif monotonic() - since_s >= self._settle_s:
                        waits, change = None, self._take(now)
                if change is not None and not stop.is_set():
                    self._tell(change)
            except Exception:
                _log.exception("Looking at %s failed; it is looked at again", self)

    def _tell(self, change: Change) -> None:
        for problem in change.problems:
            kept = any(file.problem == problem and file.tools for file in self._files.values())
            _log.warning("Not loaded%s: %s", ", so its tools stay as they were" if kept else "", problem)
        if change.files:
            _log.info("%s", change)
        self.changed()

    # Looking

    def _look(self) -> dict[Path, Stamp]:
        """What can be seen of each file without reading it."""
        root = _stamp(self._path)
        return {
            self._path: root,
            **{path: _stamp(path) for path in (*self._there(root), *self._needed()) if path != self._path},
        }

    def _needed(self) -> set[Path]:
        return {path for file in self._files.values() for path in file.needs}

    def _there(self, root: Stamp) -> list[Path]:
        """The files that are the source, where *root* is what was seen of its file or folder."""
        if not self._is_folder:
            return [] if root is None else [self._path]
        match root:
            case ("folder", *names):
                return [self._path / str(name) for name in names if str(name)[0] not in "_."]
            case ("unreadable", _):
                return list(self._files)  # it cannot be told, so nothing is taken to be gone
            case _:
                return []

    # Loading

    def _take(self, now: dict[Path, Stamp]) -> Change | None:
        differing = [path for path in {*now, *self._seen} if now.get(path) != self._seen.get(path)]
        contents = {path: _content(path) for path in differing}
        changed = {path for path in differing if contents[path] != self._contents.get(path)}
        self._seen = now
        self._contents |= contents
        if not changed:
            return None
        before, problems = self.tools(), self.problems
        files = self._there(now[self._path])
        was_there = bool(self._files)
        loaded = self._reload(files, changed)
        self._gone = self._missing(was_there)
        seen = {self._path, *files, *self._needed()}
        self._seen = {path: stamp for path, stamp in self._seen.items() if path in seen}
        self._contents = {path: content for path, content in self._contents.items() if path in seen}
        new = tuple(problem for problem in self.problems if problem not in problems)
        return _change(before, self.tools(), tuple(loaded), new)

    def _reload(self, files: Sequence[Path], changed: set[Path]) -> list[Path]:
        """Load those of *files* that have changed, or import what has. Those that were loaded."""
        old = self._files
        due = [path for path in files if path not in old or path in changed or old[path].needs & changed]
        folder = self._path if self._is_folder else self._path.parent
        needs = {path: _needs(path, folder) for path in due}
        for path in set[Path]().union(*(found for found in needs.values() if found is not None)) - self._seen.keys():
            # Before it is imported: what is saved meanwhile has to be seen.
            self._seen[path] = _stamp(path)
            self._contents[path] = _content(path)
        # A module that imports one that has changed has to be imported anew as well.
        self._stale |= changed.union(*(needs[path] or () for path in due if path in old and old[path].needs & changed))
        made = {path: old[path] for path in files if path in old}
        for path, result in self._load(due):
            before = old.get(path) or _File([], frozenset())
            found = needs[path]
            needed = before.needs if found is None else found
            if isinstance(result, LoadProblem):
                made[path] = _File(before.tools, needed, result, before.wants)
            else:
                made[path] = _File(result, needed)
        loaded = [path for path in due if made[path].problem is None]
        if loaded:
            self._stale.clear()
        wants = [path for path in made if path not in due and made[path].wants is not None]
        for path in wants:
            made[path] = _File(made[path].wants or [], made[path].needs)
        kept = {path: old[path].tools if path in old else [] for path in (*loaded, *wants)}
        self._files = _agreed({path: made[path] for path in files}, kept)
        return [path for path in loaded if self._files[path].problem is None]

    def _load(self, due: Sequence[Path]) -> list[tuple[Path, list[AnyTool] | LoadProblem]]:
        # To read a pipe would be to wait for its writer.
        files = [path for path in due if path.is_file()]
        loaded = load_again(files, self._name, stale=self._stale)
        unread = LoadProblem("", "It is no file that can be read.")
        others = [(path, replace(unread, place=str(path))) for path in due if path not in files]
        return [*zip(files, loaded, strict=True), *others]

    def _missing(self, was_there: bool) -> LoadProblem | None:
        if not self._files:
            if self._is_folder and self._path.is_dir():
                return LoadProblem(str(self._path), "The folder holds no .py file.")
            is_gone = was_there or self._gone is not None
            return LoadProblem(str(self._path), "It is gone, and its tools with it." if is_gone else "It is not there.")
        if not any(file.tools or file.problem for file in self._files.values()):
            return LoadProblem(str(self._path), "It defines no tool. Mark functions with @tool.")
        return None


def _split(source: str | Path) -> tuple[Path, str]:
    path, name = Path(source), ""
    if not path.exists() and ".py:" in str(source):
        file, _, name = str(source).rpartition(":")
        path = Path(file)
    if not (path.is_dir() or path.suffix == ".py"):
        raise LoadError(
            f"{path} is no Python file and no folder of them, so it cannot be watched. A source is {KINDS}."
        )
    if not path.exists():
        raise LoadError(f"There is no file {path}. A source is {KINDS}.")
    return path, name


def _stamp(path: Path) -> Stamp:
    """What changes with a file, or with the names in a folder; None where there is neither."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            return ("folder", *sorted(name for name in os.listdir(path) if name.endswith(".py")))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return ("unreadable", error.errno)
    return ("file", stat.S_IFMT(found.st_mode), found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _content(path: Path) -> str:
    """What a file holds, to be compared: a save that changes nothing is none."""
    try:
        if path.is_file():
            return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"unreadable: {error.errno}"
    return str(_stamp(path))


def _needs(file: Path, folder: Path) -> frozenset[Path] | None:
    """The files beside *file* that it imports, and those that these import, whether they are there or not.

    None where the file's own imports cannot be read.
    """
    todo, found = _imported(file, folder), set[Path]()
    if todo is None:
        return None
    while todo and len(found) < _MOST_NEEDED:
        path = todo.pop()
        if path not in found:
            found.add(path)
            if path.suffix == ".py":
                todo |= _imported(path, folder) or set()
            else:
                todo |= _inside(path)
    return frozenset(found - {file})


def _imported(file: Path, folder: Path) -> set[Path] | None:
    if not file.is_file():
        return None
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    paths: set[Path] = set()
    for name in names - sys.stdlib_module_names - {"toolcrib"}:
        paths.add(folder / f"{name}.py")
        if (folder / name).is_dir():
            paths.add(folder / name)
    return paths


def _inside(package: Path) -> set[Path]:
    try:
        inside = list(package.iterdir())
    except OSError:
        return set()
    return {path for path in inside if path.suffix == ".py" or (path.name.isidentifier() and path.is_dir())}


def _joined(files: Iterable[_File]) -> list[AnyTool]:
    """The tools of *files*. One may export what it imported from another: one tool, found twice."""
    found: dict[object, AnyTool] = {}
    for file in files:
        for tool in file.tools:
            found.setdefault(origin(tool), tool)
    return list(found.values())


def _agreed(files: dict[Path, _File], kept: dict[Path, list[AnyTool]]) -> dict[Path, _File]:
    """*files*, of which those that are new go back to what they *kept* where two tools would have one name."""
    while (clash := _clash(files)) is not None:
        (path, tool), (other, taken) = clash
        if path not in kept:
            (path, tool), (other, taken) = (other, taken), (path, tool)
        if path == other and path not in kept:
            return files
        name, as_well = tool.spec.name, taken.spec.name
        differ = "" if name == as_well else f" (there '{as_well}', which differs only in - and _)"
        reason = (
            f"'{name}' is the name of the tool at {other}:{line_of(taken.fn)} too{differ}. Give one another name: "
            '@tool(name="...").'
        )
        refused = files[path]
        files[path] = _File(
            kept.pop(path), refused.needs, LoadProblem(f"{path}:{line_of(tool.fn)}", reason), refused.tools
        )
    return files


def _clash(files: Mapping[Path, _File]) -> tuple[tuple[Path, AnyTool], tuple[Path, AnyTool]] | None:
    """Two tools that a model could not tell apart, the second first."""
    seen: dict[str, tuple[Path, AnyTool]] = {}
    for path, file in files.items():
        for tool in file.tools:
            taken = seen.setdefault(tool.spec.name.replace("-", "_"), (path, tool))
            if taken[1] is not tool and origin(taken[1]) != origin(tool):
                return (path, tool), taken
    return None


def _change(
    old: Sequence[AnyTool], new: Sequence[AnyTool], files: tuple[Path, ...], problems: tuple[LoadProblem, ...]
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
