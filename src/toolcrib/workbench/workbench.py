"""A workbench: a crib's tools, for one caller. What programs call tools through."""

import asyncio
from asyncio import _get_running_loop  # pyright: ignore[reportPrivateUsage] - as in sync
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, Self, TypeVar, Unpack, overload

from ..call import EventStream, Runtime, check, error_result, needs_approval, run, streamed
from ..core import (
    Answer,
    Call,
    Caller,
    Content,
    Event,
    Pending,
    PendingKind,
    Result,
    SetupError,
    ToolError,
    ToolSpec,
    UnknownToolError,
    answer_from,
)
from ..tools import Dependencies, LoadProblem
from . import state, sync
from .caller_tools import CallerTools
from .lifespan import SourceLife
from .offers import Offers
from .options import Options, require_options
from .profiles import Profiles
from .registry import Registry
from .runtime import CribRuntime, require_sources
from .sync import Startable, at_home

P = ParamSpec("P")
R = TypeVar("R")

_NOWHERE: Any = object()
"""In place of the event loop on which calls may run at once, where there is none."""


class Workbench(Startable):
    """The tools of a crib, ready to be called for one caller.

    *sources* are what `toolcrib.tools.load` takes, or one Registry, or a Crib; the options are those of `Options`. Of
    sources and options it makes a crib of its own, which it stops with itself. *caller* is for whom the calls are made;
    the host sets it, never a model. Of a crib it takes only *ask* and *variables*, as `crib.workbench` does.

    It starts itself at the first call; `async with` and `with` start it and stop it, which closes what `Depends` opened
    and stops the sources. An object whose class has methods marked with `@tool` is a source, which starts and stops
    with the crib; a class of that kind is one too, and each workbench makes an instance of its own. While a source that
    changes is started, its tools are as it has them: a change that cannot be made is logged and noted in `problems`,
    and the tools stay.

    Raises LoadError where a whole source cannot be loaded; DefinitionError and NameConflictError for unfit tools.
    """

    def __init__(
        self,
        sources: Iterable[Any] | Registry | CribRuntime = (),
        *,
        caller: Caller | None = None,
        **options: Unpack[Options],
    ) -> None:
        from .results import Results  # brings pydantic: with the first workbench, and not with the package

        ask, variables = None, None
        self._owns_crib = not isinstance(sources, CribRuntime)
        if isinstance(sources, CribRuntime):
            self.crib, ask, variables = sources, options.pop("ask", None), options.pop("variables", None)
            if options:
                raise SetupError(
                    f"'{next(iter(options))}' is an option of the crib. A workbench takes ask and variables."
                )
        else:
            require_sources(sources, of="Workbench")
            self.crib = CribRuntime(sources, **require_options(options, of="Workbench"))
        self._home = self.crib.home
        self._session: Dependencies | None = None
        self._state, self._direct_on, caller = "new", _NOWHERE, caller or Caller()
        self._profiles = Profiles(self.crib.registry, caller, self._for_profile)
        self._tools = CallerTools(self.crib, caller, self._start, self._profiles.specs)
        self._runtime = self.crib.runtime_for(
            caller,
            ask=ask,
            variables=variables,
            resolve=self._tools.resolve,
            ready=self._tools.ready,
            session=self._session_values,
        )
        is_alone = self._owns_crib and self.crib.options["store"] is None
        self._tools.redaction = self._runtime.redaction
        self._results = self._runtime.handles = self._tools.results = Results(
            self.crib.registry,
            caller=caller,
            limit_chars=self.crib.options["max_result_chars"],
            store=None if is_alone else self.crib.store.results,
            redaction=self._runtime.redaction,
        )
        self.offers = Offers(self.crib, self._tools, caller, self._runtime.redact_also)
        self.crib.add_view(self)

    @classmethod
    def from_config(
        cls, path: str | Path | None = None, *, caller: Caller | None = None, **options: Unpack[Options]
    ) -> Self:
        """Make a workbench of the sources and options in a configuration file; *options* take precedence.

        Without *path*, the file is found as the command finds it. Raises SettingsError, with all that is wrong.
        """
        from .config import config_of

        found = config_of(path, options)
        bench = cls(found.sources, caller=caller, **found.options)
        bench.crib.own(found.own_store)
        return bench

    @property
    def caller(self) -> Caller:
        return self._runtime.caller

    @property
    def registry(self) -> Registry:
        return self.crib.registry

    @property
    def problems(self) -> list[LoadProblem]:
        """What of the sources could not be loaded or started, and which change of theirs could not be made."""
        return self.crib.problems

    @property
    def is_started(self) -> bool:
        return self._state == "started"

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

        Always returns a Result, also for a tool that is not there, or cannot be started. Raises only what the program
        itself did wrong (UnknownToolError for a function that is not a tool of this workbench, SetupError after
        `stop`), and CancelledError when the task that waits is cancelled.
        """
        if type(tool) is str and self._direct_on is _get_running_loop() and not kwargs:
            return run(Call(tool, *args), self._runtime)
        return self._run(self._call_of(tool, args, kwargs))

    def stream(self, tool: Any, /, *args: Any, **kwargs: Any) -> AsyncIterator[Event | Result[Any]]:
        """Call a tool, and yield what it reports meanwhile: first `Progress` and `Emitted` events, last the Result.

        A reader that is slow holds back the tool. A reader that leaves (`break`, then the iterator's `aclose`) cancels
        the call.
        """
        events = EventStream()
        items = streamed(events, lambda: self._run(self._call_of(tool, args, kwargs), events))
        return self._home.items(self, items)

    @at_home
    async def check(self, tool: Any, /, *args: Any, **kwargs: Any) -> Result[dict[str, Any]]:
        """Make a call without the run: the value is the checked arguments by name, and `repairs` what was repaired.

        Nothing is approved, authorized, executed or recorded. Handles in the arguments are followed.
        """
        self._require_open()
        return await check(*await self._profiles.choose(self._call_of(tool, args, kwargs), self._runtime))

    @at_home
    async def needs_approval(self, tool: Any, /, *args: Any, **kwargs: Any) -> PendingKind | None:
        """Return what the policy would ask a person for: "approval", or None. Answers do not count."""
        self._require_open()
        return await needs_approval(*await self._profiles.choose(self._call_of(tool, args, kwargs), self._runtime))

    def would_ask(self, *_: object, **__: object) -> NoReturn:
        """Refuse the name of before 0.2."""
        raise AttributeError("'would_ask' is now 'needs_approval'.")

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
        self._require_open()
        return await _call_each(self.call, queue, (limit or len(queue)) if parallel else 1, stop_on_error=stop_on_error)

    @overload
    def call_sync(self, tool: str, arguments: str | bytes | Mapping[str, Any] | None = None, /) -> Result[Any]: ...
    @overload
    def call_sync(self, tool: Call, /) -> Result[Any]: ...
    @overload
    def call_sync(self, tool: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Result[R]: ...
    @overload
    def call_sync(self, tool: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Result[R]: ...
    def call_sync(self, tool: Any, /, *args: Any, **kwargs: Any) -> Result[Any]:
        """Call a tool from sync code: plain, in a thread, in a notebook, and inside a running loop, which it blocks.

        Where the event loop that runs the call ends before it, the result is `lost`. Raises SetupError on the loop
        that runs the workbench, where the call could never begin: await `call` there.
        """
        call, started_at = self._call_of(tool, args, kwargs), datetime.now(UTC)
        try:
            return self.run_sync(self.call(call))
        except ToolError as error:
            return error_result(call, error, started_at)

    def run_sync(self, work: Coroutine[Any, Any, R]) -> R:
        """Return the value of *work*, which uses this workbench: for sync code, as `call_sync` is."""
        return sync.run(work, home=self._home.loop)

    # Waiting

    @at_home
    async def answer(self, pending_id: str, answer: Answer | Mapping[str, Any], *, by: str | None = None) -> Pending:
        """Answer what a call waits for, in the name of *by*; the same call made again then runs, once.

        In place of *pending_id*, the id of a call that this workbench made. Without *by* it is the caller who answers.

        An approval takes `Approve()` or `Deny("why")`, an input `Input(...)` or `Deny("why")`, or what their `to_dict`
        returns. Returns what was answered. For hosts: nothing that a model sends leads here. Raises AnswerError where
        the answer is not accepted.
        """
        pending, caller = self._runtime.pending, self.caller
        by = caller.principal if by is None else by
        return await pending.answer(pending.id_of(pending_id, caller), answer_from(answer), by=by)

    @at_home
    async def pendings(self) -> Sequence[Pending]:
        """Return what waits for an answer in the store of this workbench, the oldest first, of all callers that share
        it.
        """
        return await self._runtime.pending.store.waiting(now=self.now())

    @at_home
    async def stored_result(self, handle: str) -> tuple[Content, ...]:
        """Return the whole of a large result, secrets redacted, by the handle in `Result.metadata["handle"]`.

        Raises ToolError `unavailable` for one that is not stored, or not for this caller.
        """
        return (await self._results.view(handle)).whole()

    def now(self) -> datetime:
        """Return the time by which what waits expires."""
        return self._runtime.pending.clock()

    # What there is

    def redacted(self, text: str) -> str:
        """Return *text* with the known secrets redacted, as in results."""
        redaction = self._runtime.redaction
        return text if redaction is None else redaction.redact(text)

    def specs(self, *, profiles: Iterable[str] | None = None, deferred: bool = False) -> Sequence[ToolSpec]:
        """Return what the tools available to the caller promise, in order; with `search`, those that are shown.

        *deferred*: all, marked where they are not shown, for providers that search. *profiles* (`[]` for none, again):
        those of tools that need credentials have an argument `profile`, which calls then choose. Plain `available`
        predicates are called now; async ones were at `start`, and at each call. Raises SetupError for no list of names.
        """
        if profiles is not None:
            self._profiles.set(profiles)
            self._set_state(self._state)
        return self._profiles.specs(self._tools.specs(deferred=deferred))

    # Life

    @at_home
    async def start(self) -> None:
        """Make ready. Starting twice changes nothing. After `stop` it begins again, unless its crib is stopped."""
        if self._state == "stopped":
            self.crib.reopen() if self._owns_crib else self.crib.require_open()
            self._tools.reopen()
            self.crib.add_view(self)
            self._set_state("new")
        await self._start()
        await self.crib.lifespan.settle()

    async def stop(self) -> None:
        """Close what was opened for this workbench, the newest first; last its sources, in reverse.

        What fails to close or stop is logged, and the rest is stopped.
        """
        self._is_entered = False
        await self._stop()

    @at_home
    async def _stop(self) -> None:
        self._set_state("stopping")
        self.invalidate()
        for bench in self._profiles.benches.values():
            await bench.stop()
        self._results.forget()
        try:
            await self._close_session()
        finally:
            await self._tools.lifespan.stop()
            self.crib.drop_view(self)
            if self._owns_crib:
                await self.crib.stop()
            self._set_state("stopped")

    @at_home
    async def reset(self) -> None:
        """Back to the state right after `start`: what was opened is closed, and opened again when needed.

        Sources are reset, those of a crib excepted. Raises SetupError, naming those that could not be.
        """
        for bench in self._profiles.benches.values():
            await bench.reset()
        self._tools.forget()
        await self._close_session()
        if self._owns_crib:
            await self.crib.close_resources()
        if self._state == "started":
            if self._owns_crib:
                await self.crib.reset()
            await self._tools.lifespan.reset()
            await self._tools.check_available()

    @at_home
    async def save_state(self) -> dict[str, Any]:
        """Return the state of the sources as JSON data with a version, for `load_state`, also in another process.

        It starts the workbench if need be, since sources may bring state with them. A workbench of a crib has the state
        of what was opened for its caller; the state of what is shared is the crib's to save. Raises ToolcribError for
        state that would not survive, and SetupError for two sources with one `state_key`, and after `stop`.
        """
        self._require_open()
        await self.start()
        return await state.save(self._lives())

    @at_home
    async def load_state(self, saved: Mapping[str, Any]) -> None:
        """Continue from what `save_state` returned: every source named in it gets its state, or none does.

        Sources that are not named in it stay as they are. Raises SetupError for anything that is not such a state, for
        another version, for sources that are not here, and for state that does not fit.
        """
        states = state.states_in(saved)
        self._require_open()
        await self.start()
        idle = {source.state_key: source for source in self._tools.idle_sources(owns_crib=self._owns_crib)}
        state.require_known(states, [*state.by_key(self._lives()), *idle], state.by_key(self.crib.lifespan.lives))
        for key, source in idle.items():
            if key in states:
                await self._tools.run_source(source)
        await state.load(self._lives(), states, describe=self.crib.describe)

    def __repr__(self) -> str:
        return f"<Workbench of {len(self.registry)} tools for {self.caller.principal}>"

    # For the runtime

    def invalidate(self) -> None:
        self._tools.ready.clear()

    def ended(self) -> None:
        """Forget what was started, and has ended with its event loop."""
        self.invalidate()
        if self._state == "started":
            self._set_state("new")
        self._tools.end()
        if self._session is not None:
            self._session.abandon()
            self._session = None

    # Inside

    def _run(self, call: Call, events: EventStream | None = None) -> Coroutine[Any, Any, Result[Any]]:
        if self._direct_on is _get_running_loop():
            return run(call, self._runtime, events)
        return self._run_somewhere(call, events)

    async def _run_somewhere(self, call: Call, events: EventStream | None) -> Result[Any]:
        started_at = datetime.now(UTC)
        try:
            return await self._run_first(call, events)
        except ToolError as error:  # of the loop that it was handed over to
            return error_result(call, error, started_at)

    @at_home
    async def _run_first(self, call: Call, events: EventStream | None) -> Result[Any]:
        self._require_open()
        return await run(*await self._profiles.choose(call, self._runtime), events)

    def _for_profile(self, profile: str) -> tuple["Workbench", Runtime]:
        caller, ask = replace(self.caller, profile=profile), self._runtime.pending.ask
        bench = Workbench(self.crib, caller=caller, ask=ask, variables=self._runtime.variables)
        # They are of one principal and thread, so they read each other's large results.
        bench._results = bench._runtime.handles = bench._tools.results = self._results
        return bench, bench._runtime

    def _set_state(self, state: str) -> None:
        self._state = state
        self._direct_on = self._home.loop if state == "started" and not self._profiles.names else _NOWHERE

    def _require_open(self) -> None:
        if self._state in ("stopping", "stopped"):
            if not self._owns_crib:
                self.crib.require_open()
            instead = "Workbench(registry) shares the tools" if self._owns_crib else "crib.workbench(caller)"
            raise SetupError(f"This workbench is stopped. Make a new one: {instead}. Or start it again.")

    async def _start(self) -> None:
        self._require_open()
        if self._state == "started":
            return
        try:
            await self.crib.start_required()
            if self._owns_crib:
                for source in self.crib.by_caller():
                    if getattr(source, "required", True):
                        await self._tools.run_source(source)
        except Exception:
            await self._give_up_start()
            raise
        if self._state != "new":  # somebody else has started or stopped it meanwhile
            await self._start()
            return
        self._set_state("started")
        await self._results.start()
        await self._tools.check_available()

    @at_home
    async def _give_up_start(self) -> None:
        self.invalidate()
        if self._state == "started":
            self._set_state("new")
        await self._tools.lifespan.stop(for_good=False)
        if self._owns_crib:
            await self.crib.stop(for_good=False)

    def _lives(self) -> list[SourceLife]:
        return [*(self.crib.lifespan.lives if self._owns_crib else ()), *self._tools.lifespan.lives]

    def _call_of(self, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        if isinstance(tool, str):
            try:
                return Call(str(tool), *args, **kwargs)
            except TypeError:
                raise TypeError(
                    f"The arguments of {str(tool)!r} are one mapping, or JSON text: call({str(tool)!r}, {{...}}). "
                    "Keyword arguments are for a tool that is passed as its function."
                ) from None
        if isinstance(tool, Call):
            return tool
        fn = getattr(tool, "fn", tool)
        if (known := next((one for one in self.registry if one is tool or one.fn == fn), None)) is not None:
            return Call(known.spec.name, known.arguments(*args, **kwargs))
        raise UnknownToolError(
            f"{getattr(tool, '__name__', tool)!r} is not a tool of this workbench. Add it: Workbench([...])."
        )

    def _require_loop(self) -> None:
        super()._require_loop()
        self.crib._require_loop()

    def _session_values(self) -> Dependencies:
        if self._session is None:
            self.crib.keep_view(self)
            overrides, redaction = self._runtime.overrides, self._runtime.redaction
            scopes, outer = (("session", "program"), None) if self._owns_crib else (("session",), self.crib.program())
            self._session = Dependencies(*scopes, overrides=overrides, outer=outer, redaction=redaction)
        return self._session

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _call_each(
    make: Callable[[Call], Awaitable[Result[Any]]], calls: Sequence[Call], limit: int, *, stop_on_error: bool
) -> list[Result[Any]]:
    """Return the results of *calls*, in their order, made at most *limit* at a time.

    With *stop_on_error* the first error cancels the calls that have not ended: their result is `cancelled`.
    """
    results: list[Result[Any] | None] = [None] * len(calls)
    waiting = iter(enumerate(calls))
    tasks: set[asyncio.Task[None]] = set()
    stopped = False

    async def work() -> None:
        nonlocal stopped
        for index, call in waiting:
            result = results[index] = await make(call)
            if stop_on_error and result.error is not None:
                stopped = True
                for task in tasks:
                    if task is not asyncio.current_task():
                        task.cancel()
            if stopped:
                return

    if limit == 1:
        await work()
    else:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(limit, len(calls))):
                tasks.add(group.create_task(work()))
    error = ToolError("This call was not finished, because another call failed before it.", "cancelled")
    return [results[index] or error_result(call, error, datetime.now(UTC)) for index, call in enumerate(calls)]
