"""Sources that follow files: Python, tools for the sandbox, OpenAPI documents. What is saved is loaded.

    units    what is loaded each by itself: a `.py` file, a folder with a `tool.toml`, a document
    needs    other paths that a unit was made of: it is loaded again when one of them changes
    state    a digest of what is at a path; two looks that differ in one are a change

A unit that cannot be loaded keeps its tools as they were, and becomes a problem. What was loaded, and what could not
be, goes to the log `toolcrib.watch`.
"""

import ast
import logging
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..core import LoadError, SetupError, Source
from .content import content_hash
from .function import Tool
from .git import DOCUMENT
from .loading import SOURCES, Loaded, reload_files, split_name
from .modules import LoadProblem, python_files, sandboxed_in
from .places import identity

if TYPE_CHECKING:
    from .openapi import OpenAPISource
    from .permissions import Permissions

SETTLE_S = 0.3
_RECHECK_INTERVAL_S = 2.0
_MAX_NEEDS = 1000
"""How many files of packages that tools import are followed."""

AnyTool = Tool[..., Any]
_log = logging.getLogger("toolcrib.watch")


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


@dataclass(slots=True)
class _Unit:
    """The *tools* that a unit offers, its *problems*, and the other paths that it *needs*."""

    tools: list[AnyTool] = field(default_factory=list[AnyTool])
    problems: list[LoadProblem] = field(default_factory=list[LoadProblem])
    needs: frozenset[Path] = frozenset()

    def update(self, loaded: Loaded, *, keeps_tools: bool) -> None:
        """Take over what was *loaded*; with *keeps_tools*, none of the tools of before goes."""
        names = {tool.spec.name for tool in loaded.tools}
        old = [tool for tool in self.tools if tool.spec.name not in names] if keeps_tools else []
        self.tools, self.problems = [*loaded.tools, *old], loaded.problems


class _FileSource(Source):
    """The tools of what is at *path*, loaded at once. Between `start` and `stop` a thread follows it.

    What stays unchanged for *settle_s* seconds is loaded, so what is saved in two writes is loaded once, and whole.
    """

    def __init__(self, path: Path, label: str, settle_s: float) -> None:
        self._label = label
        self._path = path.resolve()
        self._settle_s = settle_s
        self._units: dict[Path, _Unit] = {}
        self._missing: LoadProblem | None = None
        self._seen: dict[Path, object] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._users = 0
        self._users_lock = threading.Lock()  # not the other one, which is held while files are imported
        self._update(self._look())

    # What a kind of file is

    @abstractmethod
    def _list_units(self) -> list[Path]:
        """Return the paths of the units that are there now."""

    @abstractmethod
    def _state(self, path: Path) -> object:
        """Return what is at *path*, as a value that differs when it has changed."""

    @abstractmethod
    def _needs(self, unit: Path) -> Iterable[Path] | None:
        """Return the other paths that *unit* is made of; None where that cannot be told now."""

    @abstractmethod
    def _load(self, units: Sequence[Path], changed: Collection[Path]) -> dict[Path, Loaded]:
        """Load *units*, of which some, or what they need, have *changed*."""

    def _is_relevant(self, path: str) -> bool:
        """Return whether an event at *path* may concern the source."""
        return Path(path) in self._seen

    def _keeps_tools(self, loaded: Loaded) -> bool:
        """Return whether a unit keeps the tools of before that are not in what was *loaded*."""
        return bool(loaded.problems)

    def _missing_reason(self, was_there: bool) -> str | None:
        """Return what is wrong where no unit is there."""
        return "It was removed, and its tools with it." if was_there else "It is not there."

    # What it offers

    def tools(self) -> list[AnyTool]:
        """Return the tools, as they were last loaded. A file may export what it imported from another: one tool."""
        tools: dict[object, AnyTool] = {}
        for unit in self._units.values():
            for tool in unit.tools:
                tools.setdefault(identity(tool), tool)
        return list(tools.values())

    @property
    def problems(self) -> Sequence[LoadProblem]:
        """What is wrong with the files, as they were last loaded."""
        problems = [problem for unit in self._units.values() for problem in unit.problems]
        return problems if self._missing is None else [*problems, self._missing]

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

    def __str__(self) -> str:
        return self._label

    def __repr__(self) -> str:
        return f"<Watched {self}>"

    # Following

    def look(self) -> Change | None:
        """Load now what has changed since the last look. Return None if nothing has."""
        change = self._update(self._look())
        if change is not None:
            for problem in change.problems:
                keeps = any(problem in unit.problems and unit.tools for unit in self._units.values())
                unchanged = ", so its tools stay as they were" if keeps else ""
                _log.warning("Not loaded%s: %s", unchanged, problem)
            if change.files:
                _log.info("%s", change)
            self.changed()
        return change

    def _follow(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                for _ in self._events(stop):
                    if stop.is_set() or self.look() is not None:
                        break  # there may be other folders to watch
            except Exception:
                _log.exception("Watching %s failed; trying again", self)
                stop.wait(SETTLE_S)

    def _events(self, stop: threading.Event) -> Iterator[None]:
        """Yield when files may have changed: at events, and now and then, since some file systems have none."""
        from watchfiles import watch  # here, so that importing toolcrib does not load it

        looked_at = -_RECHECK_INTERVAL_S  # at once: what changed before the watch began sends no event
        events = watch(
            *{folder for path in self._seen for folder in (path, path.parent, self._path) if folder.is_dir()},
            watch_filter=lambda _, path: self._is_relevant(path),
            stop_event=stop,
            step=max(10, int(self._settle_s * 1000)),
            rust_timeout=100,
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=False,
            ignore_permission_denied=True,
        )
        for changes in events:
            if changes or monotonic() - looked_at >= _RECHECK_INTERVAL_S:
                yield
                looked_at = monotonic()

    def _look(self) -> dict[Path, object]:
        units = self._list_units()
        needs = [unit.needs for unit in list(self._units.values())]
        return {path: self._state(path) for path in {self._path, *units}.union(*needs)}

    def _update(self, now: dict[Path, object]) -> Change | None:
        """Load what differs between *now* and what was seen before."""
        with self._lock:
            changed = {path for path in {*now, *self._seen} if now.get(path) != self._seen.get(path)}
            self._seen = now
            if not changed:
                return None
            before, problems, was_there = self.tools(), self.problems, bool(self._units or self._missing)
            units = self._list_units()
            old = self._units
            due = [path for path in units if path not in old or path in changed or old[path].needs & changed]
            current = {path: old.get(path) or _Unit() for path in units}
            loaded: dict[Path, Loaded] = {}
            if due:
                self._note_needs(current, due)  # before it is imported: what is saved meanwhile is a change
                loaded = self._load(due, changed.union(*(old[path].needs for path in due if path in old)))
                for path, result in loaded.items():
                    current[path].update(result, keeps_tools=self._keeps_tools(result))
                self._note_needs(current, due)
            self._units = current
            reason = None if self._units else self._missing_reason(was_there)
            if self._units and not (self.tools() or any(unit.problems for unit in current.values())):
                reason = "It defines no tool. Mark functions with @tool."
            self._missing = LoadProblem(str(self._path), reason) if reason else None
            paths = {self._path, *units}.union(*(unit.needs for unit in current.values()))
            self._seen = {path: state for path, state in self._seen.items() if path in paths}
            files = tuple(path for path, result in loaded.items() if not result.failed)
            new = tuple(problem for problem in self.problems if problem not in problems)
            return _change(before, self.tools(), files, new)

    def _note_needs(self, units: dict[Path, _Unit], due: Iterable[Path]) -> None:
        for path in due:
            if (needs := self._needs(path)) is not None:
                units[path].needs = frozenset(needs) - {path}
            for need in units[path].needs - self._seen.keys():
                self._seen[need] = self._state(need)


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


def _content(path: Path) -> object:
    """Return a digest of the file or folder *path*, or why it cannot be read."""
    try:
        return content_hash(path) if path.exists() else None
    except (LoadError, OSError) as error:
        return str(error)


# Python


class Watched(_FileSource):
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
        self._is_folder = path.is_dir()
        self._stale: set[Path] = set()
        super().__init__(path, f"{path}:{self._name}" if self._name else str(path), settle_s)

    def _list_units(self) -> list[Path]:
        if self._is_folder:
            return python_files(self._path)
        return [self._path] if self._path.exists() or self._path.is_symlink() else []

    def _state(self, path: Path) -> object:
        if path.is_dir():
            return tuple(sorted(file.name for file in path.glob("*.py")))
        return _content(path)

    def _is_relevant(self, path: str) -> bool:
        return path.endswith(".py") or super()._is_relevant(path)

    def _missing_reason(self, was_there: bool) -> str | None:
        if self._is_folder and self._path.is_dir():
            return "The folder has no .py file."
        return super()._missing_reason(was_there)

    def _needs(self, unit: Path) -> Iterable[Path] | None:
        """Return the files beside it that *unit* imports, and those that these import, there or not."""
        folder = self._path if self._is_folder else self._path.parent
        waiting, needs = _imports(unit, folder), set[Path]()
        if waiting is None:
            return None
        while waiting and len(needs) < _MAX_NEEDS:
            path = waiting.pop()
            if path not in needs:
                needs.add(path)
                waiting |= _imports(path, folder) or set()
        return needs

    def _load(self, units: Sequence[Path], changed: Collection[Path]) -> dict[Path, Loaded]:
        # A module that imports one that has changed has to be imported again, too; so have those of failed loads.
        self._stale.update(changed)
        results = dict(zip(units, reload_files(units, self._name, stale=self._stale), strict=True))
        if not all(result.failed for result in results.values()):
            self._stale.clear()
        return results


def _imports(path: Path, folder: Path) -> set[Path] | None:
    """Return what a file imports from *folder*, or what is in a package. Return None where that cannot be read."""
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


# Tools for the sandbox, and documents


class WatchedSandboxed(_FileSource):
    """The tools for the sandbox at *path*, a `.wasm` file, a folder with a `tool.toml`, or a folder of either.

    Each gets what *permissions* give it.
    """

    def __init__(self, path: Path, permissions: "Permissions", *, settle_s: float = SETTLE_S) -> None:
        self._permissions = permissions
        super().__init__(path, str(path), settle_s)

    def _list_units(self) -> list[Path]:
        return sandboxed_in(self._path) if self._path.is_dir() else [self._path]

    def _state(self, path: Path) -> object:
        # All of a unit's folder counts: what a program reads may be in any file of it.
        return None if path == self._path and path not in self._list_units() else _content(path)

    def _needs(self, unit: Path) -> Iterable[Path]:
        return ()

    def _is_relevant(self, path: str) -> bool:
        return "__pycache__" not in path

    def _load(self, units: Sequence[Path], changed: Collection[Path]) -> dict[Path, Loaded]:
        from .sandboxed import wasm_tools

        results: dict[Path, Loaded] = {}
        for path in units:
            try:
                results[path] = Loaded(*wasm_tools([path], self._permissions))
            except LoadError as error:
                results[path] = Loaded(problems=[LoadProblem(str(path), str(error))])
        return results


class WatchedDocument(_FileSource):
    """The operations of the OpenAPI document in a *file*, of which *read* makes the source.

    The files that its references lead to are followed, too.
    """

    def __init__(self, file: Path, read: "Callable[[], OpenAPISource]", *, settle_s: float = SETTLE_S) -> None:
        self._file = file
        self._read = read
        self._source: OpenAPISource | None = None
        super().__init__(file, f"{DOCUMENT}{file}", settle_s)

    async def stop(self) -> None:
        await super().stop()
        if self._source is not None:
            await self._source.stop()

    def _list_units(self) -> list[Path]:
        return [self._path] if self._path.exists() else []

    def _state(self, path: Path) -> object:
        return _content(path)

    def _needs(self, unit: Path) -> Iterable[Path]:
        return () if self._source is None else self._source.files

    def _load(self, units: Sequence[Path], changed: Collection[Path]) -> dict[Path, Loaded]:
        try:
            if self._source is None:
                self._source = self._read()
            else:
                self._source.reload()
        except (LoadError, SetupError) as error:
            message = str(error).removeprefix(f"{self._file}: ")
            if message.startswith(f"{self._file} "):
                message = f"It{message.removeprefix(str(self._file))}"
            return {self._path: Loaded(problems=[LoadProblem(str(self._path), message)])}
        return {self._path: Loaded([*self._source.tools()], list(self._source.problems))}

    def _keeps_tools(self, loaded: Loaded) -> bool:
        return loaded.failed  # a document that is loaded has problems, too: the operations that are left out
