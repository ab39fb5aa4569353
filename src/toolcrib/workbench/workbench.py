"""A workbench: started tools, for one caller. What programs call tools through."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

from ..call import Provided, Scene, refuse, run
from ..core import Call, Caller, Policy, Recorder, Result, SetupError, Tool, ToolError, ToolSpec, UnknownToolError
from ..record import Redactor
from ..tools import LoadProblem, load
from . import door
from .registry import Registry, unknown

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("toolcrib")


class Workbench:
    """Tools, ready to be called for one caller.

    *sources* are what `toolcrib.tools.load` takes, or one Registry. It starts itself at the first call; `async with`
    and `with` start it and stop it, which closes what `Depends` opened.

    - *caller*: for whom the calls are made; the host says, never a model.
    - *repair*: whether what a model sent may be repaired where its schema leaves one reading.
    - *timeout_s*: the longest a call may take, in seconds, beside the tool's own limit.
    - *policy*: decides over each call when its arguments are known, before anybody is asked for credentials.
    - *secrets*: text that no result, error or log of these calls may show.
    - *recorder*: is told of each call that ended.
    - *overrides*: providers in the place of others, as for tests.
    - *variables*: what tools find in `Context.variables`.
    - *show_errors*: tell models the text of exceptions, for development.

    `problems` says what of the sources could not be loaded. Raises LoadError where a whole source cannot be, and
    DefinitionError or NameConflictError for tools that cannot work.
    """

    def __init__(
        self,
        sources: Iterable[Any] | Registry = (),
        *,
        caller: Caller | None = None,
        repair: bool = True,
        timeout_s: float | None = None,
        policy: Policy | None = None,
        secrets: Iterable[str] = (),
        recorder: Recorder | None = None,
        overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        show_errors: bool = False,
    ) -> None:
        if isinstance(sources, str) or callable(sources):
            raise SetupError("Workbench takes a list of sources: Workbench([add]).")
        if timeout_s is not None and not timeout_s > 0:
            raise SetupError("timeout_s is a number of seconds above 0, or None for no limit.")
        self.problems: list[LoadProblem] = []
        self.registry = sources if isinstance(sources, Registry) else self._registry(sources)
        known = tuple(secrets)
        self._scene = Scene(
            session=self._session,
            caller=caller or Caller(),
            repair=repair,
            policy=policy,
            timeout_s=timeout_s,
            redaction=Redactor(known) if known else None,
            recorder=recorder,
            overrides=overrides or {},
            variables=variables or {},
            show_errors=show_errors,
        )
        self._sessions: dict[asyncio.AbstractEventLoop, Provided] = {}
        self._home: asyncio.AbstractEventLoop | None = None
        self._state = "new"
        self._seen_available: dict[str, bool] = {}

    @property
    def caller(self) -> Caller:
        return self._scene.caller

    # Calls

    @overload
    async def call(self, tool: str, arguments: str | bytes | Mapping[str, Any] | None = None, /) -> Result[Any]: ...
    @overload
    async def call(self, tool: Call, /) -> Result[Any]: ...
    @overload
    async def call(self, tool: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Result[R]: ...
    @overload
    async def call(self, tool: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Result[R]: ...
    async def call(self, tool: Any, /, *args: Any, **kwargs: Any) -> Result[Any]:
        """Call a tool: by name with JSON text or a mapping, with a Call, or by its function with typed arguments.

        Always gives a Result, also for a tool that is not there. Raises only what the program itself did wrong
        (UnknownToolError for a function that is no tool of this workbench, SetupError after `stop`), and CancelledError
        when the task that waits is cancelled.
        """
        call = Call(tool, *args, **kwargs) if type(tool) is str else self._call_of(tool, args, kwargs)
        if self._state != "started":
            await self.start()
        found = self.registry.find(call.tool)
        if found is None:
            return refuse(call, ToolError(unknown(call.tool, self._visible_names()), "unknown_tool"), self._scene)
        if found.available is not None and not await self._is_available(found):
            return refuse(
                call, ToolError(f"Tool '{call.tool}' is not available to you now.", "unavailable"), self._scene
            )
        return await run(found, call, self._scene)

    async def call_many(
        self,
        calls: Iterable[Call | tuple[str, str | bytes | Mapping[str, Any] | None]],
        *,
        parallel: bool = True,
        limit: int | None = None,
        stop_on_error: bool = False,
    ) -> list[Result[Any]]:
        """Call several tools; the results are in the order of the calls, one for each.

        *parallel* runs them side by side, at most *limit* at a time; without it they run one after the other. With
        *stop_on_error* the first error cancels the calls that have not ended: their result is `cancelled`.
        """
        queue = [call if isinstance(call, Call) else Call(*call) for call in calls]
        if limit is not None and limit < 1:
            raise SetupError("limit is how many calls run at a time: 1 or more, or None for no limit.")
        results: list[Result[Any] | None] = [None] * len(queue)
        waiting = iter(enumerate(queue))
        tasks: set[asyncio.Task[None]] = set()
        stopped = False

        async def work() -> None:
            nonlocal stopped
            for index, call in waiting:
                result = results[index] = await self.call(call)
                if stop_on_error and result.error is not None:
                    stopped = True
                    for task in tasks:
                        if task is not asyncio.current_task():
                            task.cancel()
                if stopped:
                    return

        if not parallel:
            await work()
        else:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(limit or len(queue), len(queue))):
                    tasks.add(group.create_task(work()))
        message = "This call was not finished, because another call failed before it."
        return [
            result or refuse(call, ToolError(message, "cancelled"), self._scene)
            for call, result in zip(queue, results, strict=True)
        ]

    @overload
    def call_sync(self, tool: str, arguments: str | bytes | Mapping[str, Any] | None = None, /) -> Result[Any]: ...
    @overload
    def call_sync(self, tool: Call, /) -> Result[Any]: ...
    @overload
    def call_sync(self, tool: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Result[R]: ...
    @overload
    def call_sync(self, tool: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Result[R]: ...
    def call_sync(self, tool: Any, /, *args: Any, **kwargs: Any) -> Result[Any]:
        """`call`, for sync code: plain, in a thread, in a notebook, and inside a running loop, which it blocks."""
        return door.run(self.call(tool, *args, **kwargs), home=self._home)

    # What there is

    def specs(self) -> Sequence[ToolSpec]:
        """What the tools available to the caller promise, in order.

        Plain `available` predicates are asked now; async ones were asked at `start`, and are again at each call.
        """
        every = self.registry.specs()
        conditional = self.registry.conditional()
        if not conditional:
            return every
        hidden = {tool.spec.name for tool in conditional if not self._looks_available(tool)}
        return tuple(spec for spec in every if spec.name not in hidden)

    # Life

    async def start(self) -> None:
        """Make ready. Starting twice changes nothing. Raises SetupError after `stop`."""
        if self._state == "stopped":
            raise SetupError("This workbench is stopped. Make a new one: Workbench(registry) shares the tools.")
        if self._state == "started":
            return
        self._home = asyncio.get_running_loop()
        self._state = "started"
        await self._ask_available()

    async def stop(self) -> None:
        """Close what was opened for this workbench, the newest first, each on the loop it was opened on."""
        self._state = "stopped"
        await self._close_sessions()

    async def reset(self) -> None:
        """Back to the state right after `start`: what was opened is closed, and opened anew when needed."""
        await self._close_sessions()
        if self._state == "started":
            await self._ask_available()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        door.run(self.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        door.run(self.stop(), home=self._home)

    def __repr__(self) -> str:
        return f"<Workbench of {len(self.registry)} tools for {self.caller.principal}>"

    # Inside

    def _registry(self, sources: Iterable[Any]) -> Registry:
        registry = Registry()
        for source in sources:
            loaded = load(source)
            self.problems += loaded.problems
            for problem in loaded.problems:
                _log.warning("Not loaded: %s", problem)
            for tool in loaded.tools:
                registry.add(tool)
        return registry

    def _call_of(self, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        if isinstance(tool, Call):
            return tool
        if isinstance(tool, str):
            return Call(str(tool), *args, **kwargs)
        for known in self.registry:
            if known is tool or known.fn == tool:
                return Call(known.spec.name, known.arguments(*args, **kwargs))
        raise UnknownToolError(
            f"{getattr(tool, '__name__', tool)!r} is no tool of this workbench. Add it: Workbench([...])."
        )

    def _session(self) -> Provided:
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            session = self._sessions[loop] = Provided("session", "program", overrides=self._scene.overrides)
        return session

    async def _close_sessions(self) -> None:
        here = asyncio.get_running_loop()
        while self._sessions:
            loop, session = self._sessions.popitem()
            if loop is here:
                await session.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(session.close(), loop))
            else:
                _log.warning("What Depends opened on an event loop that has ended cannot be closed any more.")

    def _visible_names(self) -> list[str]:
        return [spec.name for spec in self.specs()]

    async def _ask_available(self) -> None:
        for tool in self.registry.conditional():
            await self._is_available(tool)

    async def _is_available(self, tool: Tool) -> bool:
        answer = self._asked(tool)
        if not isinstance(answer, bool):
            try:
                answer = bool(await answer)
            except Exception:
                _log.exception("Whether '%s' is available could not be asked; it is taken not to be", tool.spec.name)
                answer = False
            self._seen_available[tool.spec.name] = answer
        return answer

    def _looks_available(self, tool: Tool) -> bool:
        answer = self._asked(tool)
        if isinstance(answer, bool):
            return answer
        if asyncio.iscoroutine(answer):
            answer.close()
        if tool.spec.name not in self._seen_available and self._state == "new":
            door.run(self._is_available(tool))
        return self._seen_available.get(tool.spec.name, False)

    def _asked(self, tool: Tool) -> bool | Awaitable[bool]:
        assert tool.available is not None
        try:
            answer = tool.available(self._scene.caller)
        except Exception:
            _log.exception("Whether '%s' is available could not be asked; it is taken not to be", tool.spec.name)
            return False
        return answer if hasattr(type(answer), "__await__") else bool(answer)
