"""What a workbench or crib was given as its sources: their tools in the registry, and kept in step with it.

What runs of them is said in `held.py`.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..core import SetupError, Source, ToolcribError, UnknownToolError
from ..tools import Group, Kind, LoadProblem, Tool, load
from .registry import Registry
from .views import View, joined, loaded_from

AnyTool = Tool[..., Any]
AnySource = Source | Group

_log = logging.getLogger("toolcrib")


class Sources:
    """What was *given* to a workbench: the tools of it are put into *registry*, and kept there as they change.

    What cannot be loaded, and a change that cannot be made, is said in *problems*; the tools stay what they were then.
    """

    def __init__(self, given: Iterable[Any], registry: Registry, problems: list[LoadProblem]) -> None:
        self.registry = registry
        self._problems = problems
        self._lock = threading.RLock()
        self._entries: list[_Entry] = []
        self.forget: Callable[[], None] = _nothing
        """Called where tools that run in worker processes are exchanged: what a worker imported is out of date."""
        for source in given:
            settled = _Settling()
            entry = _Entry(settled.view(source), settled.dynamic, said=called(source))
            for problem in settled.problems:
                _log.warning("Not loaded: %s", problem)
            problems += settled.problems
            try:
                tools = loaded_from(entry.source).tools
            except UnknownToolError:
                # What a view names may be there only when its source is started.
                if not entry.dynamic:
                    raise
                tools = []
            for tool in tools:
                registry.add(tool)
            entry.tools = tools
            entry.last = entry.problem_list()
            problems += entry.last
            self._entries.append(entry)

    def order(self) -> list[AnySource | Kind]:
        """What is to be started, as it was given."""
        found: dict[int, AnySource | Kind] = {}
        for entry in self._entries:
            for source in (*entry.dynamic, *(tool.owner.source for tool in entry.tools if tool.owner is not None)):
                found.setdefault(id(source), source)
        return list(found.values())

    def follow(self) -> Callable[[], None]:
        """Take over what the sources offer now, and from now on. Gives what ends that.

        Raises where they offer now what cannot be offered; later changes of that kind are logged.
        """
        ends: list[Callable[[], None]] = []
        try:
            for entry in self._entries:
                for source in entry.dynamic:
                    listen = getattr(source, "on_change", None)
                    if listen is not None:
                        ends.append(listen(partial(self._changed, entry)))
                if entry.dynamic:
                    self._refresh_first(entry)
        except BaseException:
            _end(ends)
            raise
        return lambda: _end(ends)

    def _refresh_first(self, entry: "_Entry") -> None:
        try:
            self._refresh(entry)
        except ToolcribError:
            raise
        except Exception as error:
            raise SetupError(f"The tools of {entry.said} cannot be told: {type(error).__name__}: {error}") from error

    def _changed(self, entry: "_Entry") -> None:
        with self._lock:
            problems: list[LoadProblem] = []
            try:
                self._refresh(entry)
            except Exception as error:
                said = str(error) if isinstance(error, ToolcribError) else f"{type(error).__name__}: {error}"
                problems.append(LoadProblem(entry.said, said))
                _log.warning("The tools of %s stay what they were: %s", entry.said, said)
            self._tell(entry, [*entry.problem_list(), *problems])

    def _refresh(self, entry: "_Entry") -> None:
        with self._lock:
            new = loaded_from(entry.source).tools
            mine = [tool.spec.name for tool in entry.tools if self.registry.find(tool.spec.name) is tool]
            kept = {id(tool) for tool in entry.tools}
            if len(new) == len(entry.tools) == len(mine) and all(id(tool) in kept for tool in new):
                return
            self.registry.exchange(mine, new)
            if any(tool.isolation is not None for tool in entry.tools):
                self.forget()
            entry.tools = new

    def _tell(self, entry: "_Entry", problems: list[LoadProblem]) -> None:
        for problem in entry.last:
            if problem in self._problems:
                self._problems.remove(problem)
        self._problems += problems
        entry.last = problems


@dataclass(slots=True)
class _Entry:
    """One of the sources that were given. *source* loads without reading anything again; *dynamic* are in it."""

    source: Any
    dynamic: list[Source]
    said: str
    tools: list[AnyTool] = field(default_factory=list[AnyTool])
    last: list[LoadProblem] = field(default_factory=list[LoadProblem])

    def problem_list(self) -> list[LoadProblem]:
        """What sources that look after themselves say is wrong."""
        return [problem for source in self.dynamic for problem in getattr(source, "problems", ())]


class _Settling:
    """Loads a source once. What cannot change becomes a list of tools; views and what can change stay."""

    def __init__(self) -> None:
        self.dynamic: list[Source] = []
        self.problems: list[LoadProblem] = []

    def view(self, source: Any) -> Any:
        if isinstance(source, View):
            return replace(source, sources=tuple(map(self.view, source.sources)))
        if isinstance(source, list | tuple):
            return joined(*map(self.view, source))
        if isinstance(source, Registry):
            return _Settled(list(source))
        loaded = load(source)
        self.problems += loaded.problems
        if loaded.source is not None:
            self.dynamic.append(loaded.source)
            return loaded.source
        return _Settled(loaded.tools)


@dataclass(frozen=True, slots=True)
class _Settled:
    tools: Sequence[AnyTool]

    def __toolcrib__(self) -> Sequence[AnyTool]:
        return self.tools


def _end(ends: Iterable[Callable[[], None]]) -> None:
    for end in ends:
        end()


def _nothing() -> None: ...


def called(source: Any) -> str:
    """What *source* is called. Nothing that is in an object: there may be secrets in it."""
    if isinstance(source, Group | Kind):
        return source.name
    is_named = any("__str__" in vars(base) for base in type(source).__mro__[:-1])
    if is_named and (isinstance(source, str | Path | View) or Source in type(source).__mro__):
        return str(source)
    return getattr(source, "__name__", type(source).__name__)
