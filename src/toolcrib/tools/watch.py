"""Sources that follow files: Python, tools for the sandbox, OpenAPI documents. What is saved is loaded.

    unit     what is loaded by itself: a `.py` file, a folder with a `tool.toml`, a document
    content  a digest of what is at each path that counts; two looks that differ are a change

A unit that cannot be loaded keeps its tools as they were, and becomes a problem. What was loaded, and what could not
be, goes to the log `toolcrib.watch`.
"""

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from ..core import LoadError, SetupError, Source, ToolSpec
from ..machinery import defer_package
from ..sandbox import content_hash
from .git import DOCUMENT
from .loading import SOURCES, AnyTool, Loaded, identity, reload_files, split_name
from .modules import LoadProblem, python_files, sandboxed_in

if TYPE_CHECKING:
    from .openapi import OpenAPISource
    from .permissions import Permissions

SETTLE_S = 0.3
_RECHECK_INTERVAL_S = 2.0

_log = logging.getLogger("toolcrib.watch")


@dataclass(frozen=True, slots=True)
class Change:
    """What a save changed: the names of tools that are "new", "changed" or "gone", and new problems.

    *files* are the units that were loaded again.
    """

    files: tuple[Path, ...] = ()
    tools: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    problems: tuple[LoadProblem, ...] = ()

    def __str__(self) -> str:
        parts = [f"{kind}: {', '.join(names)}" for kind, names in self.tools.items()]
        return f"Loaded {', '.join(path.name for path in self.files)} again; {'; '.join(parts) or 'same tools'}."


class _FileSource(Source):
    """The tools of what is at *path*, loaded at once. Between `start` and `stop` a thread follows it.

    What stays unchanged for *settle_s* seconds is loaded, so what is saved in two writes is loaded once, and whole.
    """

    keeps_tools = True
    """Whether a unit with problems keeps those of its old tools that it no longer has."""

    require_locked: Callable[[], object] = staticmethod(lambda: None)
    """Raises LoadError where the files are not those of the lock, so that none of them is loaded."""

    def __init__(self, path: Path, label: str, settle_s: float) -> None:
        self._label = label
        self._path = path.resolve()
        self._settle_s = settle_s
        self._units: dict[Path, Loaded] = {}
        self._missing: LoadProblem | None = None
        self._content: dict[Path, object] | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._users = 0
        self._users_lock = threading.Lock()  # not the other one, which is held while files are imported
        self._update()

    # What a kind of file is

    @abstractmethod
    def _list_units(self) -> list[Path]:
        """Return the paths of the units that are there now."""

    def _list_files(self) -> Iterable[Path]:
        """Return the paths whose content counts, beside those of the units."""
        return ()

    @abstractmethod
    def _load(self, units: Sequence[Path], changed: set[Path]) -> dict[Path, Loaded]:
        """Load those of *units* that are made of what has *changed*."""

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
        problems = [*dict.fromkeys(problem for unit in self._units.values() for problem in unit.problems)]
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
        change = self._update()
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
        defer_package("watchfiles")  # which imports multiprocessing, for what restarts processes
        from watchfiles.main import watch  # here, so that importing toolcrib does not load it

        looked_at = -_RECHECK_INTERVAL_S  # at once: what changed before the watch began sends no event
        events = watch(
            *{folder for path in self._content or () for folder in (path, path.parent, self._path) if folder.is_dir()},
            watch_filter=lambda _, path: "__pycache__" not in path,
            stop_event=stop,
            step=max(1, int(self._settle_s * 1000)),  # the first half of a save is not loaded
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
        return {path: _digest(path) for path in {*self._list_units(), *self._list_files()}}

    def _update(self) -> Change | None:
        """Load what differs between now and the last look."""
        with self._lock:
            # Looked at before it is loaded: what is saved meanwhile is a change for the next look.
            content, last = self._look(), self._content or {}
            paths = {path for path in {*content, *last} if content.get(path) != last.get(path)}
            if self._content is not None and not paths:
                return None
            before, old_problems, is_first = self._specs(), self.problems, self._content is None
            units = self._list_units()
            refusal = None if is_first else self._refusal()
            results = self._load(units, paths) if refusal is None else dict.fromkeys(units, refusal)
            self._take(units, results)
            self._content = {**self._look(), **content}  # with the paths that are known only now
            if refusal is not None:  # all is loaded once it is as it was locked
                self._content.update(dict.fromkeys(self._content))
            self._missing = self._absence(units, was_there=not is_first)
            return self._change(results, before, old_problems)

    def _specs(self) -> dict[str, ToolSpec]:
        return {tool.spec.name: tool.spec for tool in self.tools()}

    def _change(
        self, results: Mapping[Path, Loaded], before: Mapping[str, ToolSpec], old_problems: Sequence[LoadProblem]
    ) -> Change | None:
        """Return what *results* changed of the tools and problems that were there before; None if nothing."""
        files = tuple(path for path, result in results.items() if not result.failed)
        problems = tuple(problem for problem in self.problems if problem not in old_problems)
        tools = _changed_names(before, self._specs())
        return Change(files, tools, problems) if files or tools or problems else None

    def _refusal(self) -> Loaded | None:
        """Return the problem of files that are not those of the lock; None where they are."""
        try:
            self.require_locked()
        except LoadError as error:
            return Loaded(problems=[LoadProblem(str(self._path), str(error))])
        return None

    def _take(self, units: Sequence[Path], results: Mapping[Path, Loaded]) -> None:
        """Have of *units* their *results*, or where they have none what they had."""
        contents = self._units | {path: self._kept(self._units.get(path), result) for path, result in results.items()}
        self._units = {path: contents[path] for path in units if path in contents}

    def _kept(self, old: Loaded | None, new: Loaded) -> Loaded:
        """Return *new* and the tools of *old* that stay because of its problems."""
        names = {tool.spec.name for tool in new.tools}
        stays = old is not None and (new.failed or (self.keeps_tools and new.problems))
        old_tools = [tool for tool in old.tools if tool.spec.name not in names] if old is not None and stays else []
        return Loaded([*new.tools, *old_tools], new.problems)

    def _absence(self, units: Sequence[Path], *, was_there: bool) -> LoadProblem | None:
        """Return why there are no tools; None where a unit has some, or problems."""
        if any(unit.tools or unit.problems for unit in self._units.values()):
            return None
        if units:
            return LoadProblem(str(self._path), "It defines no tool. Mark functions with @tool.")
        reason = "It was removed, and its tools with it." if was_there else "It is not there."
        return LoadProblem(str(self._path), "The folder has no .py file." if self._path.is_dir() else reason)


def _changed_names(before: Mapping[str, ToolSpec], after: Mapping[str, ToolSpec]) -> dict[str, list[str]]:
    """Return the names of the tools that are "new", "changed" or "gone"."""
    kinds = {
        "new": [name for name in after if name not in before],
        "changed": [name for name, spec in after.items() if before.get(name, spec) != spec],
        "gone": [name for name in before if name not in after],
    }
    return {kind: names for kind, names in kinds.items() if names}


def _digest(path: Path) -> object:
    """Return a digest of the file or folder *path*, or why it cannot be read."""
    try:
        return content_hash(path) if path.exists() else None
    except (LoadError, OSError) as error:
        return str(error)


class Watched(_FileSource):
    """The tools of *source*, a `.py` file, `"file.py:name"` or a folder, as its files are.

    They are loaded at once; between `start` and `stop` a thread follows the files. A file that changes is loaded when
    it stays unchanged for *settle_s* seconds, so one that is saved in two writes is loaded once, and whole.

    Files beside it that it imports are followed too, with the packages beside it; not what is imported by a name in a
    string, and nothing that is installed. Where one of these changes, all of them are imported again.

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
        self._folder = path.resolve() if self._is_folder else path.resolve().parent
        self._imported: set[Path] = set()
        self._stale: set[Path] = set()
        super().__init__(path, f"{path}:{self._name}" if self._name else str(path), settle_s)

    def _list_units(self) -> list[Path]:
        if self._is_folder:
            return python_files(self._path)
        return [self._path] if self._path.exists() or self._path.is_symlink() else []

    def _list_files(self) -> Iterable[Path]:
        # What makes an import fail is not among the imported ones, and may be missing yet.
        suspects = (*self._folder.glob("*.py"), *self._folder.glob("*/*.py")) if self.problems else ()
        return {*self._imported, *suspects}

    def _load(self, units: Sequence[Path], changed: set[Path]) -> dict[Path, Loaded]:
        # A module that imports one that has changed has to be imported again, too; so have those of failed loads.
        beside = changed & self._imported
        if beside:
            self._stale |= self._imported
        loaded = {path for path, unit in self._units.items() if not unit.problems}
        due = [path for path in units if beside or path in changed or path not in loaded]
        results, files = reload_files(due, self._name, stale=self._stale)
        self._imported |= files
        if not all(result.failed for result in results):
            self._stale.clear()
        return dict(zip(due, results, strict=True))


class WatchedSandboxed(_FileSource):
    """The tools for the sandbox at *path*, a `.wasm` file, a folder with a `tool.toml`, or a folder of either.

    Each gets what *permissions* give it.
    """

    def __init__(self, path: Path, permissions: "Permissions", *, settle_s: float = SETTLE_S) -> None:
        self._permissions = permissions
        super().__init__(path, str(path), settle_s)

    def _list_units(self) -> list[Path]:
        return sandboxed_in(self._path) if self._path.is_dir() else [self._path]

    def _load(self, units: Sequence[Path], changed: set[Path]) -> dict[Path, Loaded]:
        from .sandboxed import wasm_tools

        results: dict[Path, Loaded] = {}
        for path in changed.intersection(units):
            try:
                results[path] = Loaded(*wasm_tools([path], self._permissions))
            except LoadError as error:
                results[path] = Loaded(problems=[LoadProblem(str(path), str(error))])
        return results


class WatchedDocument(_FileSource):
    """The operations of the OpenAPI document in a *file*, of which *read* makes the source.

    The files that its references lead to are followed, too.
    """

    keeps_tools = False  # a document that is loaded has problems, too: the operations that are left out

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

    def _list_files(self) -> Iterable[Path]:
        return () if self._source is None else self._source.files

    def _load(self, units: Sequence[Path], changed: set[Path]) -> dict[Path, Loaded]:
        if not units:
            return {}
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
