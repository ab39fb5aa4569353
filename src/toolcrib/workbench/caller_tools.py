"""The tools of one caller: found by name, available to them, with what they need running."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..call import Bounded
from ..core import (
    Call,
    Caller,
    Redaction,
    SetupError,
    Tool,
    ToolcribError,
    ToolError,
    ToolSpec,
    current_deadline,
    log_failure,
    redacted,
)
from ..tools import ObjectSource, as_tool, offered_by
from . import sync
from .lifespan import Lifespan, SharedTask, name_of
from .registry import unknown
from .search import ToolSearch

if TYPE_CHECKING:
    from .results import Results
    from .runtime import CribRuntime

_log = logging.getLogger("toolcrib")


class CallerTools:
    """The tools of *crib* for *caller*. `ready` has those that can be called as they are, by name.

    *start* starts the workbench of the caller. `lifespan` has the sources that were opened for them. *present* is how
    what is found is shown to them.
    """

    results: "Results"

    def __init__(
        self,
        crib: "CribRuntime",
        caller: Caller,
        start: Callable[[], Awaitable[None]],
        present: Callable[[Sequence[ToolSpec]], Sequence[ToolSpec]],
    ) -> None:
        self.ready: dict[str, Tool] = {}
        self.lifespan = Lifespan(describe=crib.describe, in_use=self._is_in_use, changed=self._changed)
        self._crib = crib
        self._registry = crib.registry
        self.redaction: Redaction | None = crib.redaction
        """That of the caller, once the workbench has made it."""
        self._caller = caller
        self._start = start
        self._opened: dict[int, tuple[Any, Any]] = {}  # by source: the source, and what it opened for this caller
        self._opening: dict[int, SharedTask] = {}
        self._seen_available: dict[str, bool] = {}
        self._allowed: tuple[Sequence[ToolSpec], Sequence[ToolSpec]] | None = None
        """All tools as they were last listed, and those that the policy does not hide from the caller."""
        self.search: ToolSearch | None = None
        if crib.search is not None:
            self.search = ToolSearch(crib.registry, crib.index, crib.search, visible=self.every, present=present)

    def reopen(self) -> None:
        """Begin anew after the stop of `lifespan`: what is opened for the caller is opened again."""
        self._opened.clear()
        self.lifespan.reopen()

    def end(self) -> None:
        """Forget what was started, and has ended with its event loop."""
        self.lifespan.end()
        self._opening.clear()

    def specs(self, *, deferred: bool = False) -> Sequence[ToolSpec]:
        """Return what the tools shown to the caller promise, in order; or of all available ones, with *deferred*."""
        shown = self.every()
        if self.search is not None:
            shown = self.search.deferred(shown) if deferred else self.search.shown(shown)
        if self.results.issued and (reader := self.results.reader()) is not None and not self._hides(reader.spec):
            shown = (*shown, reader.spec)
        return shown

    def forget(self) -> None:
        """Forget large results, and what was found."""
        self.results.forget()
        if self.search is not None:
            self.search.forget()

    def every(self) -> Sequence[ToolSpec]:
        """Return what the tools available to the caller promise, in order, also of those that a search has to find.

        Without those that the policy denies them wholly.
        """
        every = self._registry.specs()
        if getattr(self._crib.options["policy"], "hides", None) is not None:
            if self._allowed is None or self._allowed[0] != every:
                self._allowed = every, tuple(spec for spec in every if not self._hides(spec))
            every = self._allowed[1]
        conditional = self._registry.conditional()
        if not conditional:
            return every
        hidden = {tool.spec.name for tool in conditional if not self._looks_available(tool)}
        return tuple(spec for spec in every if spec.name not in hidden)

    def _hides(self, spec: ToolSpec) -> bool:
        hides = getattr(self._crib.options["policy"], "hides", None)
        return hides is not None and hides(spec, self._caller)

    async def resolve(self, call: Call) -> Tool:
        """Return the tool of *call*, ready to be called. Raises ToolError."""
        outer = current_deadline.get()
        limits = [limit for limit in (self._crib.options["timeout_s"], call.timeout_s) if limit is not None]
        try:
            async with asyncio.timeout(min((*limits, *(() if outer is None else (outer.left_s,))), default=None)):
                work = self._started(call)
                if call.cancellation is None:
                    return await work
                found: Tool = await Bounded(work, call.tool, None, call.cancellation)
                return found
        except TimeoutError:
            raise ToolError(f"Tool '{call.tool}' did not become ready in time.", "timeout") from None
        except ToolcribError as error:
            reason = redacted(self._crib.describe(error), self.redaction)
            _log.error("Tool '%s' is not ready: %s", call.tool, reason)
            raise ToolError(
                f"Tool '{call.tool}' is not available now: what it needs could not be started. Try again later.",
                "unavailable",
            ) from None

    async def _started(self, call: Call) -> Tool:
        await self._start()
        return await self._find(call)

    async def _find(self, call: Call) -> Tool:
        name = call.tool
        tool: Any = self._registry.find(name) or self._own(name)
        if tool is None:
            await self._crib.lifespan.settle()  # a source that is not required may have it
            tool = self._registry.find(name)
        if tool is None and (down := self._crib.lifespan.unlisted()):
            from ..schema.describe import display_name  # brings pydantic, which whoever imports this need not have

            raise ToolError(
                f"There is no tool '{display_name(name)}' now, and {', '.join(map(name_of, down))} is not available, "
                "which may have it. Try again later.",
                "unavailable",
            )
        if tool is None:
            raise ToolError(unknown(name, [spec.name for spec in self.specs()]), "unknown_tool")
        if tool.available is not None and not await self._is_available(tool):
            raise ToolError(f"Tool '{name}' is not available to you now.", "unavailable")
        ready: Tool = tool if tool.source is None else await self._ready(tool)
        if tool.available is None:
            self.ready[name] = ready
            if self._registry.find(name) is not tool and self._own(name) is not tool:
                self.ready.pop(name, None)  # changed meanwhile
        return ready

    def _own(self, name: str) -> Tool | None:
        """Return the tool called *name* of those that every caller has: one that reads results, and one that finds
        tools.
        """
        return self.results.reader(name) or (None if self.search is None else self.search.tool(name))

    async def _ready(self, tool: Any) -> Tool:
        """Return *tool*, whose source runs."""
        opened = await self.run_source(tool.source)
        if opened is None:
            return tool  # type: ignore[no-any-return]
        own = next((each for each in map(as_tool, offered_by(opened)) if each.origin == tool.origin), None)
        if own is None:
            raise SetupError(f"The source {name_of(tool.source)} has no tool '{tool.origin}' for this caller.")
        return tool.bound_to(own)  # type: ignore[no-any-return]

    async def run_source(self, source: Any) -> Any:
        """Wait until *source* runs for this caller. Returns what it has opened for them, None where it is shared."""
        if hasattr(source, "start") and (self._crib.is_own(source) or isinstance(source, ObjectSource)):
            await self._crib.lifespan.run(source)
        if not hasattr(source, "open"):
            return None
        while (opened := self._opened.get(id(source))) is None:
            await self._opening.setdefault(id(source), SharedTask()).run(partial(self._open, source))
        try:
            await self.lifespan.run(opened[1])
        except Exception:
            if self._opened.get(id(source)) is opened and not self.lifespan.is_tried(opened[1]):
                del self._opened[id(source)]  # the next call opens another
            raise
        return opened[1]

    async def _open(self, source: Any) -> None:
        try:
            made = source.open(self._caller)
            self._opened[id(source)] = (source, await made if isinstance(made, Awaitable) else made)
        except Exception as error:
            raise SetupError(
                f"The source {name_of(source)} could not be opened: {self._crib.describe(error)}"
            ) from error

    def idle_sources(self, *, owns_crib: bool) -> list[Any]:
        """Return sources with tools here that are this workbench's own to start, and do not run."""
        sources = {id(tool.source): tool.source for tool in self._registry if hasattr(tool.source, "state_key")}
        return [
            source
            for source in sources.values()
            if (id(source) not in self._opened if hasattr(source, "open") else owns_crib)
            and not self._crib.lifespan.runs(source)
        ]

    def _is_in_use(self, opened: Any) -> bool:
        source = next((source for source, each in self._opened.values() if each is opened), None)
        return any(tool.source is source for tool in self._registry)

    def _changed(self, _source: Any, _reason: str | None) -> None:
        self.ready.clear()

    async def check_available(self) -> None:
        for tool in self._registry.conditional():
            await self._is_available(tool)

    async def _is_available(self, tool: Tool) -> bool:
        answer = self._availability(tool)
        if not isinstance(answer, bool):
            try:
                answer = bool(await answer)
            except Exception as error:
                self._log_unknown(tool, error)
                answer = False
            self._seen_available[tool.spec.name] = answer
        return answer

    def _looks_available(self, tool: Tool) -> bool:
        answer = self._availability(tool)
        if isinstance(answer, bool):
            return answer
        if asyncio.iscoroutine(answer):
            answer.close()
        if tool.spec.name not in self._seen_available:
            sync.run(self._is_available(tool))
        return self._seen_available.get(tool.spec.name, False)

    def _availability(self, tool: Tool) -> bool | Awaitable[bool]:
        assert tool.available is not None
        try:
            answer = tool.available(self._caller)
        except Exception as error:
            self._log_unknown(tool, error)
            return False
        return answer if hasattr(type(answer), "__await__") else bool(answer)

    def _log_unknown(self, tool: Tool, error: Exception) -> None:
        what = f"Whether '{tool.spec.name}' is available could not be found out; it is taken not to be"
        log_failure(what, error, self.redaction)
