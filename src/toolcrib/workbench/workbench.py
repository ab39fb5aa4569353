"""A workbench: started tools, for one caller. What programs call tools through."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from ..call import Desk, Feed, Provided, Retries, Scene, refuse, run
from ..call import around as wrap
from ..core import (
    RESULT_CHARS,
    Answer,
    Around,
    Asker,
    Call,
    Caller,
    Content,
    Event,
    MayAnswer,
    Pending,
    PendingStore,
    Policy,
    Recorder,
    Result,
    ResultStore,
    SetupError,
    Tool,
    ToolError,
    ToolSpec,
    UnknownToolError,
)
from ..record import Redactor
from ..tools import LoadProblem
from . import door
from .held import Held
from .limits import Limit, Limiter
from .pendings import MemoryPendings
from .processes import Processes
from .registry import Registry, unknown
from .sources import Sources
from .state import state_of, states_in

if TYPE_CHECKING:
    from .crib import Crib

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("toolcrib")


class Workbench:
    """Tools, ready to be called for one caller.

    *sources* are what `toolcrib.tools.load` takes, or one Registry. It starts itself at the first call; `async with`
    and `with` start it and stop it, which closes what `Depends` opened and stops the sources. An object whose class has
    methods marked with `@tool` is a source, which starts and stops with the workbench; a class of that kind is one,
    too, and each workbench makes an instance of its own. While a source that changes is started, its tools are as it
    has them: a change that cannot be made is logged and said in `problems`, and the tools stay.

    - *caller*: for whom the calls are made; the host says, never a model.
    - *repair*: whether what a model sent may be repaired where its schema leaves one reading.
    - *timeout_s*: the longest a call may take, in seconds, beside the tool's own limit.
    - *limits*: how many calls run at a time and how often; a Limiter, to count together with other workbenches.
    - *retries*: how failed calls of tools that can be repeated are made again; the first that fits a tool holds.
    - *around*: wraps whole calls, the first outermost; limits are inside of them, so an answer they keep costs nothing.
    - *policy*: decides over each call when its arguments are known, before anybody is asked for credentials.
    - *secrets*: text that no result, error or log of these calls may show.
    - *recorder*: is told of each call that ended.
    - *overrides*: providers in the place of others, as for tests.
    - *variables*: what tools find in `Context.variables`.
    - *show_errors*: tell models the text of exceptions, for development.
    - *max_result_chars*: how many characters of a result are shown. Of a larger one there is a preview; the whole is
      kept under a handle, and `read_result` is among the tools. None shows everything.
    - *results*: the store of large results; in memory by default. Workbenches that share one share handles, for
      the same principal and thread.
    - *ask*: asks a person at once, in the caller's name; without it, and where it gives None, calls wait for `answer`.
    - *may_answer*: who may answer what is pending; the default is anybody, except the caller where the policy says so.
    - *pendings*: the store of what waits; in memory by default. Workbenches that share one share what waits.
    - *processes*: where tools with `isolation="process"` run; its own by default. Workbenches may share one, and then
      whoever made it closes it.
    - *pending_s*: how long a call waits for its answer, and how long an answer works, in seconds, on *clock*.

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
        limits: Limiter | Iterable[Limit] = (),
        retries: Iterable[Retries] = (),
        around: Iterable[Around] = (),
        policy: Policy | None = None,
        secrets: Iterable[str] = (),
        recorder: Recorder | None = None,
        overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        show_errors: bool = False,
        max_result_chars: int | None = RESULT_CHARS,
        results: ResultStore | None = None,
        ask: Asker | None = None,
        may_answer: MayAnswer | None = None,
        pendings: PendingStore | None = None,
        pending_s: float = 900.0,
        processes: Processes | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        if isinstance(sources, str) or callable(sources) or not isinstance(sources, Iterable):
            raise SetupError("Workbench takes a list of sources: Workbench([add]).")
        if timeout_s is not None and not timeout_s > 0:
            raise SetupError("timeout_s is a number of seconds above 0, or None for no limit.")
        if not pending_s > 0:
            raise SetupError("pending_s is a number of seconds above 0.")
        self.problems: list[LoadProblem] = []
        self.registry = sources if isinstance(sources, Registry) else Registry()
        self._sources = None if isinstance(sources, Registry) else Sources(sources, self.registry, self.problems)
        known = tuple(secrets)
        self._scene = Scene(
            session=self._session,
            caller=caller or Caller(),
            repair=repair,
            policy=policy,
            timeout_s=timeout_s,
            retries=_retries(retries),
            redaction=Redactor(known) if known else None,
            recorder=recorder,
            overrides=overrides or {},
            variables=variables or {},
            show_errors=show_errors,
            desk=Desk(
                store=MemoryPendings() if pendings is None else pendings,
                ask=ask,
                may_answer=may_answer,
                within_s=pending_s,
                clock=clock,
            ),
        )
        self._processes = self._scene.isolation = processes or Processes()
        self._own_processes = processes is None
        if self._sources is not None:
            self._sources.forget = self._processes.forget
        self._limiter = limits if isinstance(limits, Limiter) else Limiter(limits)
        self._wraps = tuple(around)
        self._max_result_chars = max_result_chars
        self._result_store = results
        self._crib: Crib | None = None
        self._begin(Held(self.registry, self._sources, redaction=self._scene.redaction, on_end=self.ended))

    def _begin(self, held: Held) -> None:
        """What each workbench has for itself."""
        from .results import Results  # brings pydantic: with the first workbench, and not with the package

        self._held = held
        self._is_wrapped = bool(self._wraps or self._limiter.limits)
        self._wrapped = wrap((*self._wraps, self._limiter.around()), self._scene)
        self._results = self._scene.shelf = Results(
            self.registry,
            caller=self._scene.caller,
            limit_chars=self._max_result_chars,
            store=self._result_store,
            redaction=self._scene.redaction,
        )
        self._sessions: dict[asyncio.AbstractEventLoop, Provided] = {}
        self._home: asyncio.AbstractEventLoop | None = None
        self._state = "new"
        self._seen_available: dict[str, bool] = {}

    def _for(
        self, crib: "Crib", caller: Caller, *, ask: Asker | None, variables: Mapping[str, Any] | None
    ) -> "Workbench":
        """A workbench of *crib* for *caller*. It shares with this one whatever is not a caller's own."""
        made = Workbench.__new__(Workbench)
        made.__dict__.update(self.__dict__)
        made._crib = crib
        made._own_processes = False
        made._sources = None
        made._scene = replace(
            self._scene,
            session=made._session,
            caller=caller,
            variables=self._scene.variables if variables is None else {**self._scene.variables, **variables},
            desk=self._desk if ask is None else replace(self._desk, ask=ask),
        )
        redaction = self._scene.redaction
        made._begin(Held(self.registry, None, outer=self._held, redaction=redaction, on_end=made.ended))
        return made

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
    def call(self, tool: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Result[Any]]:
        """Call a tool: by name with JSON text or a mapping, with a Call, or by its function with typed arguments.

        Always gives a Result, also for a tool that is not there. Raises only what the program itself did wrong
        (UnknownToolError for a function that is no tool of this workbench, SetupError after `stop`), and CancelledError
        when the task that waits is cancelled.
        """
        if type(tool) is str:
            return self._run(Call(tool, *args, **kwargs) if kwargs else Call(tool, *args))
        return self._run(self._call_of(tool, args, kwargs))

    async def stream(self, tool: Any, /, *args: Any, **kwargs: Any) -> AsyncIterator[Event | Result[Any]]:
        """`call`, and what the tool says meanwhile: first `Progress` and `Emitted` events, last the Result.

        A reader that is slow holds back the tool. A reader that leaves (`break`, then the iterator's `aclose`) cancels
        the call.
        """
        feed = Feed()
        call = Call(tool, *args, **kwargs) if type(tool) is str else self._call_of(tool, args, kwargs)
        task = asyncio.create_task(self._run(call, feed))
        task.add_done_callback(feed.end)
        try:
            async for event in feed:
                yield event
            yield await task
        finally:
            if not task.done():
                feed.end()
                task.cancel()
                await asyncio.wait({task})

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
        if self._state != "started":
            await self.start()
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
        return self.run_sync(self.call(tool, *args, **kwargs))

    def run_sync(self, work: Coroutine[Any, Any, R]) -> R:
        """What *work* gives, which uses this workbench: for sync code, as `call_sync` is."""
        return door.run(work, home=self._home)

    # Waiting

    async def answer(self, pending_id: str, answer: Answer, *, by: str) -> Pending:
        """Answer what a call waits for, in the name of *by*; the same call made again then runs, once.

        An approval takes `Approve()` or `Deny("why")`, an input `Input(...)` or `Deny("why")`. Gives what was answered.
        For hosts: nothing that a model sends leads here. Raises AnswerError where the answer does not count.
        """
        return await self._desk.answer(pending_id, answer, by=by)

    async def pendings(self) -> Sequence[Pending]:
        """What waits for an answer in the store of this workbench, the oldest first, of all callers that share it."""
        return await self._desk.store.waiting(now_s=self._desk.clock())

    async def kept(self, handle: str) -> tuple[Content, ...]:
        """The whole of a large result, known secrets struck out, by the handle in `Result.metadata["handle"]`.

        Raises ToolError `unavailable` for one that is not kept, or not for this caller.
        """
        return (await self._results.view(handle)).whole()

    def now_s(self) -> float:
        """The time by which what waits expires, in seconds since the epoch."""
        return self._desk.clock()

    # What there is

    def struck(self, text: str) -> str:
        """*text* with the known secrets struck out, as in results."""
        redaction = self._scene.redaction
        return text if redaction is None else redaction.strike(text)

    def specs(self) -> Sequence[ToolSpec]:
        """What the tools available to the caller promise, in order.

        Plain `available` predicates are asked now; async ones were asked at `start`, and are again at each call.
        """
        every = self.registry.specs()
        if self._results.issued and (reader := self._results.reader()) is not None:
            every = (*every, reader.spec)
        conditional = self.registry.conditional()
        if not conditional:
            return every
        hidden = {tool.spec.name for tool in conditional if not self._looks_available(tool)}
        return tuple(spec for spec in every if spec.name not in hidden)

    # Life

    async def start(self) -> None:
        """Make ready. Starting twice changes nothing. Raises SetupError after `stop`."""
        if self._state == "stopped":
            if self._crib is not None:
                self._crib.require_open()
                raise SetupError("This workbench is stopped. Make a new one: crib.workbench(caller).")
            raise SetupError("This workbench is stopped. Make a new one: Workbench(registry) shares the tools.")
        if self._state == "started":
            return
        if self._crib is not None:
            await self._crib.start()
        await self._held.start()
        if self._state != "new":  # somebody else has started or stopped it meanwhile
            await self.start()
            return
        self._home = asyncio.get_running_loop()
        self._state = "started"
        await self._results.start()
        await self._ask_available()

    async def stop(self) -> None:
        """Close what was opened for this workbench, the newest first, each on the loop it was opened on.

        The sources come last, in reverse. What fails to close or stop is logged, and the rest is stopped.
        """
        self._state = "stopped"
        self._results.forget()
        try:
            await self._close_sessions()
        finally:
            await self._held.stop()
            if self._crib is not None:
                self._crib.let_go(self)

    async def reset(self) -> None:
        """Back to the state right after `start`: what was opened is closed, and opened anew when needed.

        Sources are reset, those of a crib excepted. Raises SetupError, naming those that could not be.
        """
        self._results.forget()
        await self._close_sessions()
        if self._state == "started":
            await self._held.reset()
            await self._ask_available()

    # State

    async def save_state(self) -> dict[str, Any]:
        """The state of the sources as JSON data with a version, for `load_state`, also in another process.

        It starts the workbench if need be, since sources may bring state with them. A workbench of a crib has the state
        of its own instances of classes; the state of what is shared is the crib's to save. Raises ToolcribError for
        state that would not survive, and SetupError for two sources with one `state_key`, and after `stop`.
        """
        if self._state != "started":
            await self.start()
        return state_of(await self._held.save())

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `save_state` gave: every source named in it gets its state, or none does.

        Sources that are not named in it stay as they are. Raises SetupError for what is no such state, for another
        version, for sources that are not here, and for state that does not fit.
        """
        states = states_in(state)
        if self._state != "started":
            await self.start()
        await self._held.load(states)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # Nobody leaves what was not entered.
            if self._state == "started":
                self._state = "new"
            await self._held.stop(for_good=False)
            raise
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

    def ended(self) -> None:
        """For what holds the sources: they have ended with their event loop. The next call starts them again."""
        self._held.ready.clear()
        if self._state == "started":
            self._state = "new"

    @property
    def _desk(self) -> Desk:
        assert self._scene.desk is not None
        return self._scene.desk

    async def _run(self, call: Call, feed: Feed | None = None) -> Result[Any]:
        if self._state != "started":
            await self.start()
        found: Tool | None = self.registry.find(call.tool) or self._results.reader(call.tool)
        if found is None:
            return refuse(call, ToolError(unknown(call.tool, self._visible_names()), "unknown_tool"), self._scene)
        if found.available is not None and not await self._is_available(found):
            return refuse(
                call, ToolError(f"Tool '{call.tool}' is not available to you now.", "unavailable"), self._scene
            )
        if found.owner is not None:
            try:
                ready: Tool | None = self._held.ready.get(found)
                found = ready or await self._own(found, call)
            except ToolError as error:
                return refuse(call, error, self._scene)
        if self._is_wrapped or found.turn is not None:
            return await self._wrapped(found, call, feed)
        return await run(found, call, self._scene, feed)

    async def _own(self, tool: Any, call: Call) -> Tool:
        """*tool*, whose object or class runs now."""
        limits = [limit for limit in (tool.spec.timeout_s, self._scene.timeout_s, call.timeout_s) if limit is not None]
        try:
            async with asyncio.timeout(min(limits, default=None)):
                return await self._held.own(tool)
        except TimeoutError:
            raise ToolError(f"Tool '{tool.spec.name}' did not become ready in time.", "timeout") from None
        except SetupError:
            _log.exception("Tool '%s' is not ready", tool.spec.name)
            raise ToolError(f"Tool '{tool.spec.name}' could not be made ready.", "unavailable") from None

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
            if self._crib is None:
                session = Provided("session", "program", overrides=self._scene.overrides)
            else:
                self._crib.keep(self)
                session = Provided("session", overrides=self._scene.overrides, outer=self._crib.program())
            self._sessions[loop] = session
        return session

    async def _close_sessions(self) -> None:
        await close_each(self._sessions)
        if self._own_processes:
            await self._processes.close()

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


async def close_each(sessions: dict[asyncio.AbstractEventLoop, Provided]) -> None:
    """Close what was opened on each event loop, there, the newest first."""
    here = asyncio.get_running_loop()
    while sessions:
        loop, session = sessions.popitem()
        if loop is here:
            await session.close()
        elif loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(session.close(), loop))
        else:
            _log.warning("What Depends opened on an event loop that has ended cannot be closed any more.")


def _retries(retries: Iterable[Retries]) -> Sequence[Retries] | None:
    plans = tuple(retries)
    if wrong := [plan for plan in plans if not isinstance(plan, Retries)]:
        raise SetupError(
            f'retries are Retries values, as in retries=[Retries("gh_*", times=3)], not {type(wrong[0]).__name__}.'
        )
    return plans or None
