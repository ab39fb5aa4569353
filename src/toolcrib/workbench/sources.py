"""What a crib was given as its sources: their tools in the registry, and kept in step with it.

What runs of them is in `lifespan.py`.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import DefinitionError, SetupError, Source, ToolcribError, UnknownToolError
from ..machinery import in_thread
from ..tools import Loaded, LoadProblem, as_tool, load, offered_by
from .lifespan import name_of
from .registry import Registry, fold
from .views import AnyTool, View, holds_of, joined, known_names, loaded_from, prefixes_of

if TYPE_CHECKING:
    from ..tools.lock import DefinitionChange, Hold, Lock

_log = logging.getLogger("toolcrib")
_renames = logging.getLogger("toolcrib.names")


class Sources:
    """The *sources* of a crib: their tools are put into *registry*, and follow their changes.

    Of servers with a tool of one name, the one that is given first has it, whichever answers first.
    Where a change cannot be made, the tools stay as they were. *forget* is called with the tools that a change takes
    out, before it does. They are held to the file *lock*.
    """

    def __init__(
        self,
        sources: Iterable[Any],
        registry: Registry,
        forget: Callable[[Sequence[AnyTool]], None],
        lock: str | Path | None = None,
    ) -> None:
        self.registry = registry
        self._forget = forget
        self._held_to: Lock | None = None
        if lock is not None:
            from .config import lock_in  # which few programs need

            self._held_to = lock_in(lock)
        self._lock = threading.RLock()
        self._entries = [self._entry(source) for source in _flat(sources)]

    @property
    def problems(self) -> list[LoadProblem]:
        """What could not be loaded, and the changes that could not be made."""
        return [problem for entry in self._entries for problem in entry.problems]

    async def lock_changes(self) -> "list[DefinitionChange]":
        """Return how tools differ from what was accepted by now: what was meanwhile is taken over first.

        Raises LoadError for a lock file that is damaged.
        """
        changes: list[DefinitionChange] = []
        for entry in self._entries:
            for hold in holds_of(entry.source):
                before = hold.problems
                if await in_thread(hold.update):
                    entry.unread = [problem for problem in entry.unread if problem not in before]
                    for source in entry.dynamic:
                        if getattr(source, "hold", None) is hold:
                            source.hold_again()  # type: ignore[attr-defined]
                    self._changed(entry)
                changes += hold.changes
        return sorted(changes, key=lambda change: (change.where, change.name))

    async def accept(self, digest: str) -> "DefinitionChange | None":
        """Write the change with *digest* into the lock file, and take it over. None where there is no such change.

        Raises LoadError.
        """
        await self.lock_changes()
        holds: list[Hold] = [hold for entry in self._entries for hold in holds_of(entry.source)]
        pairs = [(hold, change) for hold in holds for change in hold.changes if change.digest == digest]
        for hold, change in pairs[:1]:
            await in_thread(partial(hold.accept, change))
            await self.lock_changes()
            return change
        return None

    def order(self) -> list[Any]:
        """Return the sources that have a life, in the order in which they were given."""
        by_id: dict[int, Any] = {}
        for entry in self._entries:
            for source in (*entry.dynamic, *(tool.source for tool in entry.tools if tool.source is not None)):
                by_id.setdefault(id(source), source)
        return [*by_id.values()]

    def follow(self) -> Callable[[], None]:
        """Take over what the sources offer now, and from now on. Returns a function that ends that.

        Raises where a required source offers what cannot be offered; later changes of that kind are logged.
        """
        with ExitStack() as unlinks:
            for entry in self._entries:
                for source in entry.dynamic:
                    listen = getattr(source, "on_change", None)
                    if listen is not None:
                        unlinks.callback(listen(partial(self._changed, entry)))
                if entry.is_required:
                    self._refresh_first(entry)
            return unlinks.pop_all().close

    def refresh(self, source: Any, *, runs: bool = True) -> None:
        """Take over what *source* offers, which has started after the others, or that no other waits for it."""
        for entry in self._entries:
            if any(member is source for member in entry.dynamic):
                entry.awaited = [member for member in entry.awaited if member is not source]
                if runs:
                    self._changed(entry)
                else:
                    self._refresh_later(entry)

    def _entry(self, source: Any) -> "_Entry":
        reading = _Reading(self._held_to)
        view = reading.view(source)
        name = name_of(reading.dynamic[0] if len(reading.dynamic) == 1 else source)
        entry = _Entry(view, reading.dynamic, name, reading.problems)
        try:
            entry.tools = loaded_from(entry.source).tools
        except UnknownToolError:
            # What a view names may be there only when its source is started.
            if not entry.dynamic:
                raise
        except Exception as error:
            if entry.is_required or not entry.dynamic:
                raise
            entry.failure = entry.problem_of(error)
        for problem in filter(None, (*entry.unread, entry.failure)):
            _log.warning("Not loaded: %s", problem)
        for tool in entry.tools:
            self.registry.add(tool)
        entry.awaited = [*filter(_is_listed_at_start, entry.dynamic)]
        return entry

    def _refresh_first(self, entry: "_Entry") -> None:
        entry.awaited = [member for member in entry.awaited if not getattr(member, "required", True)]
        try:
            self._refresh(entry)
        except ToolcribError:
            raise
        except Exception as error:
            raise SetupError(
                f"The tools of {entry.name} could not be listed: {type(error).__name__}: {error}"
            ) from error

    def _changed(self, entry: "_Entry") -> None:
        with self._lock:
            entry.failure = None
            try:
                self._refresh(entry)
            except Exception as error:
                entry.failure = entry.problem_of(error)
                _log.warning("The tools of %s stay as they were: %s", entry.name, entry.failure.reason)
            self._refresh_later(entry)

    def _refresh_later(self, entry: "_Entry") -> None:
        """Let the servers after *entry* have names that it has not, or no longer."""
        with self._lock:
            for later in self._entries[self._entries.index(entry) + 1 :]:
                if later.conflicts or later.is_waiting:
                    self._changed(later)
                    break  # which does the same for those after it

    def _refresh(self, entry: "_Entry") -> None:
        with self._lock:
            new = loaded_from(entry.source).tools
            present = [tool.spec.name for tool in entry.tools if self.registry.find(tool.spec.name) is tool]
            taken: list[AnyTool] = []
            if entry.is_of_servers:
                new, taken = self._allowed(entry, new, present)
            before = {id(tool) for tool in entry.tools}
            if len(new) == len(entry.tools) == len(present) and all(id(tool) in before for tool in new):
                return
            self._forget(entry.tools)  # first: who finds a new one must find no worker that knows the old
            self.registry.exchange([*present, *(tool.spec.name for tool in taken)], new)
            entry.tools = new
            for tool in taken:
                self._take_over(tool, entry)

    def _take_over(self, tool: AnyTool, entry: "_Entry") -> None:
        loser = self._entry_of(tool)
        loser.tools = [other for other in loser.tools if other is not tool]
        loser.conflicts.append(_conflict(loser, tool.spec.name, entry))
        _log.warning("%s takes the tool '%s' over from %s", entry.name, tool.spec.name, loser.name)

    def _allowed(
        self, entry: "_Entry", new: list[AnyTool], present: Collection[str]
    ) -> tuple[list[AnyTool], list[AnyTool]]:
        """Return those of *new* whose names *entry* may have, and the tools of later servers that they replace.

        A server of a client's file puts its own name before names that another one has. A server must not empty itself
        by one name. Until those before it have been tried, it gets no new ones.
        """
        earlier = self._entries[: self._entries.index(entry)]
        entry.is_waiting = any(other.awaited for other in earlier)
        entry.conflicts.clear()
        allowed: list[AnyTool] = []
        taken: list[AnyTool] = []

        def rival_for(tool: AnyTool) -> "_Entry | None":
            """Return the entry that has the name of *tool*, where *entry* may not have it; else allow it."""
            name = tool.spec.name
            holder = self.registry.holder(name)
            is_own = holder is not None and holder.spec.name in present
            rival = self._reserving(entry, earlier, name)
            if rival is None and holder is not None and not is_own:
                rival = self._entry_of(holder)
                if rival.is_of_servers and rival not in earlier:
                    taken.append(holder)
                    rival = None
            if rival is None and (is_own or not entry.is_waiting):
                allowed.append(tool)
            return rival

        renamed: list[str] = []
        for tool in new:
            if (rival := rival_for(tool)) is not None and entry.fallback_prefix:
                with suppress(DefinitionError):  # a name that is too long
                    own = tool.named(f"{entry.fallback_prefix}{tool.spec.name}")
                    if (rival := rival_for(own)) is None and own.spec.name not in present and not entry.is_waiting:
                        renamed.append(own.spec.name)
            if rival is not None:
                entry.conflicts.append(_conflict(entry, tool.spec.name, rival))
        if renamed:
            _renames.warning(
                "%s: another server has tools of these names, so here they are %s", entry.name, ", ".join(renamed)
            )
        return allowed, taken

    def _reserving(self, entry: "_Entry", earlier: "list[_Entry]", name: str) -> "_Entry | None":
        """Return the entry for which *name* is kept: by the longest prefix, or because an *earlier* one has it."""
        lengths = {other: other.length_of_prefix(name) for other in self._entries}
        longest = max(lengths.values())
        if longest > lengths[entry]:
            return next(other for other in lengths if lengths[other] == longest)
        return next((other for other in earlier if fold(name) in other.known), None)

    def _entry_of(self, tool: AnyTool) -> "_Entry":
        return next((entry for entry in self._entries if any(own is tool for own in entry.tools)), _ADDED)


def _flat(sources: Iterable[Any]) -> Iterator[Any]:
    for source in sources:
        if isinstance(source, list | tuple):
            yield from _flat(source)
        else:
            yield source


def _is_listed_at_start(source: Source) -> bool:
    return getattr(source, "listed_at_start", False)


def _conflict(entry: "_Entry", name: str, rival: "_Entry") -> LoadProblem:
    return LoadProblem(
        entry.name,
        f"Another source has a tool '{name}' too, or its name is kept for it ({rival.name}), so this one is left out. "
        'Give the tools of one of them a prefix: prefix = "..." in its [[source]], or prefixed(source, "...").',
    )


@dataclass(slots=True, eq=False)
class _Entry:
    """One of the sources that were given. *source* loads without reading anything again; *dynamic* are in it.

    *unread* could not be loaded, *conflicts* have the name of a tool of another source, and *failure* is why its tools
    stay as they were. *awaited* have not been tried yet, and it *is_waiting* for such ones of other entries.
    """

    source: Any
    dynamic: list[Source]
    name: str
    unread: list[LoadProblem]
    tools: list[AnyTool] = field(default_factory=list[AnyTool])
    conflicts: list[LoadProblem] = field(default_factory=list[LoadProblem])
    failure: LoadProblem | None = None
    awaited: list[Source] = field(default_factory=list[Source])
    is_waiting: bool = False
    known: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.known = frozenset(map(fold, known_names(self.source)))
        self.prefixes = tuple(fold(prefix).casefold() for prefix in prefixes_of(self.source))

    def length_of_prefix(self, name: str) -> int:
        """Return how long its prefix is that *name* begins with; 0 where it has none of them."""
        start = fold(name).casefold() if self.prefixes else ""
        return max((len(prefix) for prefix in self.prefixes if start.startswith(prefix)), default=0)

    @property
    def fallback_prefix(self) -> str:
        """What its tools are prefixed with where others have their names: of a server in a client's file, its name."""
        return next((getattr(source, "fallback_prefix", "") for source in self.dynamic), "")

    @property
    def is_of_servers(self) -> bool:
        """Whether its names are chosen elsewhere, and known only once it has started."""
        return any(map(_is_listed_at_start, self.dynamic))

    @property
    def is_required(self) -> bool:
        """Whether one of its sources that start is."""
        return any(getattr(source, "required", True) for source in self.dynamic)

    def problem_of(self, error: Exception) -> LoadProblem:
        """Return the problem that its tools could not be listed."""
        reason = str(error) if isinstance(error, ToolcribError) else f"{type(error).__name__}: {error}"
        return LoadProblem(self.name, reason)

    @property
    def problems(self) -> list[LoadProblem]:
        """All its problems, those that its sources report of themselves among them."""
        of_sources = [problem for source in self.dynamic for problem in getattr(source, "problems", ())]
        return [*self.unread, *self.conflicts, *of_sources, *([] if self.failure is None else [self.failure])]


class _Reading:
    """Loads a source once. What cannot change stays as it was loaded; views and what can change are asked again."""

    def __init__(self, lock: "Lock | None") -> None:
        self._lock = lock
        self.dynamic: list[Source] = []
        self.problems: list[LoadProblem] = []

    def view(self, source: Any) -> Any:
        if isinstance(source, View):
            offered: Any
            before = len(self.dynamic)
            view = replace(source, sources=tuple(map(self.view, source.sources)))
            for offered in self.dynamic[before:] if source.labels else ():
                offered.labels = source.labels | getattr(offered, "labels", frozenset())
            return view
        if isinstance(source, list | tuple):
            return joined(*map(self.view, source))
        if isinstance(source, Registry):
            return Loaded(list(source))
        if self._lock is None:
            return self._offered(load(source))
        from .config import accepted, pinned

        now, lock_entry = pinned(source, self._lock)
        content = load(now)
        offer, changes = accepted(self._offered(content), content, lock_entry, name_of(source))
        self.problems += changes
        return offer

    def _offered(self, loaded: Loaded) -> Any:
        self.problems += loaded.problems
        if loaded.source is None:
            return loaded
        self.dynamic.append(loaded.source)
        return _Offered(loaded.source)


class _Offered:
    """What a source that may change offers now: its tools, each sharing its life, and the same one each time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._made: dict[int, tuple[Any, AnyTool]] = {}

    def __toolcrib__(self) -> Sequence[AnyTool]:
        # By what it offers, which is kept, so that no number is another one's.
        self._made = {
            id(item): self._made.get(id(item)) or (item, self._own(item)) for item in offered_by(self._source)
        }
        return [tool for _, tool in self._made.values()]

    @property
    def expected(self) -> Sequence[str]:
        return getattr(self._source, "expected", ())

    @property
    def hold(self) -> Any:
        return getattr(self._source, "hold", None)

    def _own(self, item: Any) -> AnyTool:
        tool = as_tool(item)
        return tool if tool.source is not None else tool.offered_by(self._source)


_ADDED = _Entry((), [], "the program", [])
"""The entry of tools that were put into the registry by others."""
