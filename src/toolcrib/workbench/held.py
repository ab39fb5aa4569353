"""What runs of the sources of one workbench: all or nothing at the start, in reverse at the stop, and state of its own.

Everybody has an instance to themselves of what was given as a class.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..core import Redaction, SetupError, ToolcribError
from ..tools import Group, Kind, Tool
from .lives import Life, Once
from .registry import Registry
from .sources import AnySource, Sources, called
from .state import nobody, require_json

AnyTool = Tool[..., Any]

_log = logging.getLogger("toolcrib")


class Held:
    """The sources that run for one workbench.

    *sources* are its own: they are started with it; those that are classes too, if it *makes* instances of them.
    Whatever else is in *registry* is started when a tool of it is first called: the instance of a class is this
    workbench's own, an object is held by *outer*, the crib of this workbench, or if there is none, by this one.
    *on_end* is told where what was started has ended with its event loop.
    """

    def __init__(
        self,
        registry: Registry,
        sources: Sources | None,
        *,
        outer: "Held | None" = None,
        redaction: Redaction | None = None,
        on_end: Callable[[], None],
    ) -> None:
        self.sources = sources
        self.makes = True
        # Tools that share a life, by those of them that can be called now.
        self.ready: dict[Any, Any] = {}
        self._registry = registry
        self._outer = outer
        self._redaction = redaction
        self.on_end = on_end
        self._starting = Once()
        self._lives: dict[int, Life] = {}  # by source, in order of their start
        self._mine: dict[int, _Mine] = {}  # by kind
        self._onces: dict[int, Once] = {}  # by source
        self._closed = False
        self._seen: object = None  # the registry, when last nothing was gone from it
        self._end_following: Callable[[], None] | None = None

    # Life

    async def start(self) -> None:
        """Start the workbench's own sources, in their order, once. Where one fails, those before it are stopped.

        Raises SetupError, naming the source.
        """
        if self.sources is not None and self._end_following is None and self.sources.order():
            await self._starting.run(self._start)

    async def own(self, tool: AnyTool) -> AnyTool:
        """*tool*, which shares the life of an object or class, as one that is ready to be called here.

        Raises SetupError where its source cannot be started.
        """
        member = tool.owner
        assert member is not None
        if isinstance(member.source, Group):
            await (self._outer or self)._begin_once(member.source)
            self.ready[tool] = tool
            return tool
        mine = self._mine_of(member.source)
        await self._begin_once(mine.group)
        bound = self.ready[tool] = member.bound(tool, mine.group)
        return bound

    async def stop(self, *, for_good: bool = True) -> None:
        """Stop what runs, in reverse. What fails to stop is logged, and the others are stopped."""
        self._closed = for_good
        await self._starting.give_up()
        for once in list(self._onces.values()):
            await once.give_up()
        self._end()
        self.ready.clear()
        while self._lives:
            # Kept until it has stopped, so that whoever else stops this waits for it, too.
            number, life = next(reversed(self._lives.items()))
            await life.stop()
            self._lives.pop(number, None)
        self._mine.clear()

    async def reset(self) -> None:
        """Reset what runs. Raises SetupError, naming what could not be; the others are reset."""
        failed: list[tuple[str, Exception]] = []
        for life in list(self._lives.values()):
            if (reset := getattr(life.source, "reset", None)) is not None:
                try:
                    await life.on_loop(reset)
                except Exception as error:
                    failed.append((life.name, error))
        if failed:
            names = ", ".join(name for name, _ in failed)
            raise SetupError(f"The source {names} could not be reset: {self._said(failed[0][1])}") from failed[0][1]

    # State

    async def save(self) -> dict[str, Any]:
        """The state of each source that keeps some, as JSON data, by its key. Raises ToolcribError."""
        saved: dict[str, Any] = {}
        for key, life in self._by_key().items():
            state = await life.on_loop(life.source.save_state)
            if state is not None:
                saved[key] = require_json(state, f"The state of {life.name}")
        return saved

    async def load(self, states: Mapping[str, Any]) -> None:
        """Give each source named in *states* its state: all of them, or none. Raises SetupError."""
        there = [*self._by_key()]
        sleeping = {source.state_key: source for source in self._owners() if not self._runs(source)}
        for key in states:
            if key not in there and key not in sleeping:
                raise SetupError(nobody(key, [*there, *sleeping]))
        for key, source in sleeping.items():
            if key in states:
                await self._begin_once(self._mine_of(source).group if isinstance(source, Kind) else source)
        lives = self._by_key()
        for key, state in states.items():
            # What can be told without touching anything is told before anything is touched.
            if (check := getattr(lives[key].source, "check_state", None)) is not None:
                try:
                    check(state)
                except Exception as error:
                    raise self._no_state(key, error) from error
        before: list[tuple[Life, Any]] = []
        for key, state in states.items():
            life = lives[key]
            try:
                was = await life.on_loop(life.source.save_state)
                await life.on_loop(partial(life.source.load_state, state))
            except BaseException as error:
                for earlier, state_before in reversed(before):
                    await _put_back(earlier, state_before)
                if not isinstance(error, Exception):
                    raise
                raise self._no_state(key, error) from error
            before.append((life, was))

    def _no_state(self, key: str, error: Exception) -> SetupError:
        return SetupError(f"The state of '{key}' cannot be loaded, so none is: {self._said(error)}")

    def _by_key(self) -> dict[str, Life]:
        """What runs for this workbench, and may keep state, by the names under which it is kept."""
        found: dict[str, Life] = {}
        gone = self._gone()
        for life in self._lives.values():
            if life in gone or not hasattr(life.source, "load_state") or not hasattr(life.source, "save_state"):
                continue
            key = getattr(life.source, "state_key", None) or type(life.source).__name__
            if key in found:
                raise SetupError(
                    f"Two sources keep their state under one name, '{key}'. Give one of them another with state_key."
                )
            found[key] = life
        return found

    def _owners(self) -> list[Group | Kind]:
        """Whose tools are in the registry, as far as they are this workbench's own to hold."""
        owners = {id(tool.owner.source): tool.owner.source for tool in self._registry if tool.owner is not None}
        return [each for each in owners.values() if (self.makes if isinstance(each, Kind) else self._outer is None)]

    def _runs(self, source: Group | Kind) -> bool:
        if isinstance(source, Kind):
            return id(source) in self._mine and id(self._mine[id(source)].group) in self._lives
        return id(source) in self._lives

    # Inside

    async def _start(self) -> None:
        assert self.sources is not None
        try:
            for source in self.sources.order():
                if isinstance(source, Kind) and not self.makes:
                    continue
                group = self._mine_of(source).group if isinstance(source, Kind) else source
                await self._begin(group)
            self._end_following = self.sources.follow()
        except BaseException:
            while self._lives:
                _, life = self._lives.popitem()
                await life.stop()
            self._mine.clear()
            self.ready.clear()
            raise

    async def _begin_once(self, source: AnySource) -> None:
        if id(source) in self._lives and not self._closed:
            return
        try:
            await self._onces.setdefault(id(source), Once()).run(lambda: self._begin(source))
        except Exception:
            for number, mine in list(self._mine.items()):
                if mine.group is source:
                    del self._mine[number]  # the next call makes another
            raise
        self._require_open(source)

    async def _begin(self, source: AnySource) -> None:
        self._require_open(source)
        if id(source) in self._lives:
            return
        # First, since it may have what this one wants.
        for gone in self._gone():
            await self._lives.pop(id(gone.source)).stop()
        life = Life(source, called(source), self._ended)
        try:
            await life.start()
        except Exception as error:
            raise SetupError(f"The source {life.name} could not be started: {self._said(error)}") from error
        self._lives[id(source)] = life  # whoever stops this workbench waits for it from here on
        if self._closed:
            await life.stop()
            self._lives.pop(id(source), None)

    def _require_open(self, source: AnySource) -> None:
        if self._closed:
            raise SetupError(f"The source {called(source)} was stopped with its workbench.")

    def _gone(self) -> list[Life]:
        """Objects of which no tool is left: their source offers others now, as a file does that was loaded again."""
        specs = self._registry.specs()
        if specs is self._seen:
            return []
        left = {id(tool.owner.source) for tool in self._registry if tool.owner is not None}
        left |= {id(mine.group) for kind, mine in self._mine.items() if kind in left}
        gone = [life for life in self._lives.values() if isinstance(life.source, Group) and id(life.source) not in left]
        if not gone:
            self._seen = specs
        return gone

    def _mine_of(self, kind: Kind) -> "_Mine":
        mine = self._mine.get(id(kind))
        if mine is None:
            try:
                mine = self._mine.setdefault(id(kind), _Mine(kind, kind.make()))
            except Exception as error:
                raise SetupError(f"The source {kind.name} could not be made: {self._said(error)}") from error
        return mine

    def _ended(self, life: Life) -> None:
        """An event loop has ended, and with it what was started on it."""
        self._lives.pop(id(life.source), None)
        self.ready.clear()
        self._end()
        self.on_end()

    def _end(self) -> None:
        if self._end_following is not None:
            self._end_following()
            self._end_following = None

    def _said(self, error: BaseException) -> str:
        said = str(error) if isinstance(error, ToolcribError) else f"{type(error).__name__}: {error}"
        return said if self._redaction is None else self._redaction.strike(said)


@dataclass(slots=True)
class _Mine:
    """This workbench's own instance of a class."""

    kind: Kind
    group: Group


async def _put_back(life: Life, state: Any) -> None:
    try:
        if state is not None:
            await life.on_loop(lambda: life.source.load_state(state))
    except Exception:
        _log.exception("The source %s could not be given the state back that it had", life.name)
