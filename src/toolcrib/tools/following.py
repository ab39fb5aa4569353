"""Sources that follow files: a thread sees what is saved, and what is saved is loaded."""

import logging
import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from ..core import LoadError, Source
from .content import content_hash
from .function import Tool
from .modules import LoadProblem

PathState = tuple[object, ...]
"""What is at a path: `("file", digest)`, `("folder", *names)`, `("unreadable", reason)`, or `()` for nothing."""

AnyTool = Tool[..., Any]
_log = logging.getLogger("toolcrib.watch")

SETTLE_S = 0.3
_RECHECK_S = 2.0


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


class Following(Source):
    """A source whose tools are what is at *path*. Between `start` and `stop` a thread follows it.

    What stays unchanged for *settle_s* seconds is loaded, so what is saved in two writes is loaded once, and whole.
    What was loaded, and what could not be, goes to the log `toolcrib.watch`.
    """

    def __init__(self, path: Path, label: str, settle_s: float) -> None:
        self._label = label
        self._path = path.resolve()
        self._settle_s = settle_s
        self._lock = threading.Lock()
        self._seen: dict[Path, PathState] = {}
        self._stop = threading.Event()
        self._users = 0
        self._users_lock = threading.Lock()  # not the other one, which is held while files are imported

    @abstractmethod
    def tools(self) -> list[AnyTool]:
        """The tools, as they were last loaded."""

    @property
    @abstractmethod
    def problems(self) -> Sequence[LoadProblem]:
        """What is wrong with the files, as they were last loaded."""

    @abstractmethod
    def _look(self) -> dict[Path, PathState]:
        """What is at each path that counts."""

    @abstractmethod
    def _update(self, now: dict[Path, PathState]) -> Change | None:
        """Load what differs between *now* and what was seen before."""

    @abstractmethod
    def _counts(self, path: str) -> bool:
        """Whether an event at *path* may concern the source."""

    @abstractmethod
    def _keeps_tools(self, problem: LoadProblem, change: Change) -> bool:
        """Whether what has a new *problem* still offers tools."""

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
                stop.wait(SETTLE_S)

    def _events(self, stop: threading.Event) -> Iterator[None]:
        """Yield when files may have changed: at events, and now and then, since some file systems have none."""
        from watchfiles import watch  # here, so that importing toolcrib does not load it

        looked_at = -_RECHECK_S  # at once: what changed before the watch began sends no event
        events = watch(
            *{folder for path in self._seen for folder in (path, path.parent, self._path) if folder.is_dir()},
            watch_filter=lambda _, path: self._counts(path),
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
            unchanged = ", so its tools stay as they were" if self._keeps_tools(problem, change) else ""
            _log.warning("Not loaded%s: %s", unchanged, problem)
        if change.files:
            _log.info("%s", change)
        self.changed()


def change_of(
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


def content_state(path: Path) -> PathState:
    """What is at *path*, a file or a folder with all that is in it."""
    try:
        return ("content", content_hash(path))
    except LoadError as error:
        return ("unreadable", str(error))
