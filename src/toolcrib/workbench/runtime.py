"""What the workbenches of a crib share: options, registry, sources, stores, limits, executors and redaction.

It knows no workbench: `crib` makes those, and a workbench that was given sources makes one of these for itself.
"""

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from ..call import PendingCalls, Resources, Runtime
from ..core import Answer, Asker, Caller, Pending, Recorder, SetupError, ToolcribError, answer_from, log_failure
from ..record import Redactor
from ..record.log_lines import redact_log
from ..sandbox import Processes
from ..tools import Dependencies, LoadProblem, ObjectSource, Replacements, Tool
from . import state
from .credentials import Credentials
from .lifespan import Lifespan, name_of
from .limits import Limiter
from .options import DOUBLES, Doubles, Options, Stores, require_options
from .registry import Registry
from .resources import PromptList, ResourceList
from .search import Search, SharedIndex
from .sources import Sources
from .sync import Home, Startable, at_home

if TYPE_CHECKING:
    from ..auth import Completed
    from ..store import Store

_log = logging.getLogger("toolcrib")

_OFFERS = ("resources", "prompts", "read_resource", "get_prompt", "open")


class CallerView(Protocol):
    """A workbench, as what it shares with others sees it."""

    @property
    def caller(self) -> Caller: ...
    def invalidate(self) -> None:
        """Forget which tools are ready to be called."""
        ...

    def ended(self) -> None:
        """Forget what was started: it has ended with its event loop."""
        ...

    async def stop(self) -> None: ...


class CribRuntime(Startable):
    """What the workbenches of a crib share, with its life: `Crib` without what makes workbenches."""

    def __init__(self, sources: Iterable[Any] | Registry = (), **options: Unpack[Options]) -> None:
        require_sources(sources, of="Crib")
        self.options: Mapping[str, Any] = {**require_options(options, of="Crib")}
        self._own_store: Any = None
        if isinstance(store := self.options["store"], str | Path):
            from ..store import Store as Database

            store = self._own_store = Database(store)
            self.options = {**self.options, "store": store}
        self.store: Any = Stores() if store is None else store
        self.problems: list[LoadProblem] = []
        self.registry = sources if isinstance(sources, Registry) else Registry()
        policy = self.options["policy"]
        self._rules = None if (guarded := getattr(policy, "guarded", None)) is None else guarded(self.registry.specs)
        self._rule_problems: list[LoadProblem] = []
        doubles = DOUBLES.get() or Doubles()
        self._overrides = Replacements(doubles.overrides)
        self.executors = Resources()
        self.resources = ResourceList()
        self.prompts = PromptList()
        self.limiter = limits if isinstance(limits := self.options["limits"], Limiter) else Limiter(limits)
        secrets = tuple(self.options["secrets"])
        redactor = Redactor(secrets)
        redact_log(redactor)
        self._sources = (
            Sources((), self.registry, self.problems, self._replaced)
            if isinstance(sources, Registry)
            else Sources(sources, self.registry, self.problems, self._replaced, self.options["lock"])
        )
        of_sources = [each for source in self._sources.order() for each in getattr(source, "secrets", ())]
        for secret in of_sources:
            redactor.add(secret)
        self.redaction = redactor if secrets or of_sources or self.options["broker"] is not None else None
        self.is_stopped = False
        self.recorders = self._recorders()
        self._redactors: weakref.WeakValueDictionary[str, Redactor] = weakref.WeakValueDictionary()
        self._given: dict[str, Redactor] = {}  # of the principals to whom secrets were given out
        self._processes = doubles.processes
        if self._processes is not None:
            self.executors.set(Processes, self._processes)
        self.pending = PendingCalls(
            store=self.store.pendings,
            ask=self.options["ask"],
            may_answer=self.options["may_answer"],
            within=timedelta(seconds=self.options["pending_timeout_s"]),
            clock=doubles.clock,
            redaction=self.redaction,
        )
        self.credentials = Credentials(self.options["broker"], self.pending)
        self.search = Search.of(self.options["search"])
        self.index = SharedIndex(None if self.search is None else self.search.embed)
        self._lock = threading.Lock()
        self._views: weakref.WeakSet[CallerView] = weakref.WeakSet()
        self._busy: dict[CallerView, None] = {}  # in order: those that have something to close
        self._program: Dependencies | None = None
        self._end_following: Callable[[], None] | None = None
        self._is_started = False
        self._own = {id(source) for source in self._sources.order()}
        self._unavailable: dict[int, LoadProblem] = {}
        self.lifespan = Lifespan(describe=self.describe, in_use=self._is_in_use, changed=self._source_changed)
        self.home = self._home = Home(self._ended)
        weakly = weakref.WeakMethod(self._invalidate)
        self.registry.on_change(lambda: (method := weakly()) and method())

    @at_home
    async def answer(self, pending_id: str, answer: Answer | Mapping[str, Any], *, by: str) -> Pending:
        """Answer what a call of any of the workbenches waits for. See `Workbench.answer`."""
        return await self.pending.answer(pending_id, answer_from(answer), by=by)

    @at_home
    async def pendings(self) -> Sequence[Pending]:
        """Return what waits for an answer, the oldest first, of all callers."""
        return await self.pending.store.waiting(now=self.pending.clock())

    @at_home
    async def authorize(self, tools: Iterable[str], caller: Caller) -> list[Pending]:
        """Return what *caller* has yet to grant before all of *tools*, by name, can run: one pending a provider.

        The scopes of a provider are united. Raises ToolError `unauthorized`, naming a setting that is missing,
        UnknownToolError, and SetupError without a CredentialBroker.
        """
        requirements = (required for name in tools for required in self.registry.get(name).spec.requirements)
        return await self.credentials.ask_for(dict.fromkeys(requirements), caller)

    @at_home
    async def complete(self, url: str, *, caller: Caller | None = None) -> "Completed":
        """Complete an authorization with *url*, the address that a provider sent somebody back to, with its query.

        For hosts that have a web server of their own; `toolcrib.serve.callback_app` is one to mount. Give *caller*
        where you know who is at the browser: then nobody completes what somebody else has begun (RFC 6749, 10.12).
        Raises CallbackError, whose text is for that person.
        """
        return await self.credentials.complete(url, caller)

    @at_home
    async def wait_for(self, pending: Pending, *, timeout_s: float | None = None) -> bool:
        """Wait until *pending* is answered, or what it asks for is granted, by anybody in any process.

        False where that does not happen within *timeout_s*, or before it expires, and where a grant is refused.
        """
        return await self.credentials.wait_for(pending, timeout_s)

    # For workbenches

    def runtime_for(
        self, caller: Caller, *, ask: Asker | None, variables: Mapping[str, Any] | None, **parts: Any
    ) -> Runtime:
        """Return what the pipeline needs for the calls of *caller*; *parts* are the workbench's own."""
        options, recorders = self.options, self.recorders
        middleware = tuple(options["middleware"])
        redaction = self._redactor_for(caller)
        return Runtime(
            pending=replace(self.pending, ask=ask or self.pending.ask, redaction=redaction),
            resources=self.executors,
            caller=caller,
            middleware=(*middleware, self.limiter.middleware()),
            wraps_all=bool(middleware or self.limiter.limits),
            repair=options["repair"],
            policy=self._rules or options["policy"],
            broker=options["broker"],
            timeout_s=options["timeout_s"],
            retries=tuple(options["retries"]) or None,
            redaction=redaction,
            recorders=recorders,
            start_recorders=tuple(
                one for one in recorders if getattr(type(one), "started", None) not in (None, Recorder.started)
            ),
            records_content=any(getattr(one, "with_content", False) for one in recorders),
            overrides=self._overrides,
            variables={**(options["variables"] or {}), **(variables or {})},
            show_errors=options["show_errors"],
            error_message=options["error_message"],
            redact_also=partial(self._redact_also, caller.principal, redaction),
            **parts,
        )

    @property
    def database(self) -> "Store | None":
        """The database among the options, if there is one."""
        return self.store if hasattr(self.store, "transact") else None

    def _recorders(self) -> tuple[Recorder, ...]:
        recorders: tuple[Recorder, ...] | None = self.options["recorder"]
        if recorders is None and self.database is not None:
            from ..record import DatabaseCalls

            return (DatabaseCalls(self.database),)
        return recorders or ()

    def add_view(self, view: CallerView) -> None:
        with self._lock:
            self._views.add(view)

    def keep_view(self, view: CallerView) -> None:
        """Keep *view*, which has something to close: it is not forgotten before it is stopped."""
        with self._lock:
            self._busy[view] = None

    def drop_view(self, view: CallerView) -> None:
        with self._lock:
            self._busy.pop(view, None)
            self._views.discard(view)

    def program(self) -> Dependencies:
        """Return what `Depends` has opened for the program."""
        if self._program is None:
            self.require_open()
            self._program = Dependencies(
                "program",
                overrides=self._overrides,
                redaction=self.redaction,
                variables=self.options["variables"] or {},
            )
        return self._program

    def by_caller(self) -> list[Any]:
        """Return the sources that are opened for each workbench, in order."""
        return [source for source in self._sources.order() if hasattr(source, "open")]

    def offering(self) -> list[Any]:
        """Return the sources that may offer resources and prompts, in order."""
        return [one for one in self._sources.order() if any(hasattr(one, name) for name in _OFFERS)]

    def is_own(self, source: Any) -> bool:
        """Return whether *source* was given to this crib, and did not come with a registry of another's."""
        return id(source) in self._own

    def require_open(self) -> None:
        """Raise SetupError after `stop`."""
        if self.is_stopped:
            raise SetupError("The crib is stopped, and its workbenches with it. Make a new Crib.")

    def describe(self, error: BaseException) -> str:
        """Return the text of an error, secrets redacted."""
        text = str(error) if isinstance(error, ToolcribError) else f"{type(error).__name__}: {error}"
        return text if self.redaction is None else self.redaction.redact(text)

    # Life

    @at_home
    async def start(self) -> None:
        """Start the sources. Starting twice changes nothing. Raises SetupError after `stop`, and for what fails.

        Where a required source fails, those before it are stopped, and the next start begins again. The others are
        waited for, but not for long.
        """
        await self.start_required()
        await self.lifespan.settle()

    async def start_required(self) -> None:
        """Start, without waiting for sources that are not required."""
        self.require_open()
        if self._is_started:
            return
        sources = [source for source in self._sources.order() if hasattr(source, "start")]
        await self.lifespan.start(sources, self._begin)
        if not self.is_stopped:
            self._is_started = True

    async def stop(self, *, for_good: bool = True) -> None:
        """Stop the workbenches, the newest first; close what was opened for the program; stop the sources."""
        self._is_entered = False
        await self._stop(for_good=for_good)

    @at_home
    async def _stop(self, *, for_good: bool) -> None:
        if for_good:
            self.is_stopped = True
            with self._lock:
                idle = [view for view in self._views if view not in self._busy]
                busy = list(self._busy)
            for view in (*idle, *reversed(busy)):
                try:
                    await view.stop()
                except Exception:
                    _log.exception("The workbench of '%s' failed to stop", view.caller.principal)
            await self._close_program()
            if (settle := getattr(self.options["broker"], "settle", None)) is not None:
                await settle()
        self._is_started = False
        self._unfollow()
        await self.lifespan.stop(for_good=for_good)
        if for_good:
            await self.close_resources()
            for recorder in self.recorders:
                await self._flush(recorder)
            if self._own_store is not None:
                await asyncio.to_thread(self._own_store.close)  # which waits for what is being written
            self._home.loop = None

    async def _close_program(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            await program.close()

    async def _give_up_start(self) -> None:
        await self.stop(for_good=False)

    def reopen(self) -> None:
        """Let `start` begin again after `stop`. For the workbench whose own crib this is."""
        self.is_stopped = False
        self.lifespan.reopen()

    async def _flush(self, recorder: Recorder) -> None:
        try:
            if (flush := getattr(recorder, "flush", None)) is not None:
                await flush()
        except Exception as error:
            log_failure("A recorder could not write its last records", error, self.redaction)

    def own(self, store: Any) -> None:
        """Close *store* with the crib, if it is one: it was made for it."""
        self._own_store = store or self._own_store

    @at_home
    async def reset(self) -> None:
        """Back to the state right after `start`, for the sources and what was opened for the program.

        The workbenches keep what is their own. Raises SetupError, naming the sources that could not be reset.
        """
        self.require_open()
        await self._close_program()
        if self._is_started:
            await self.lifespan.reset()

    @at_home
    async def save_state(self) -> dict[str, Any]:
        """Return the state of the shared sources. See `Workbench.save_state`."""
        await self.start()
        return await state.save(self.lifespan.lives)

    @at_home
    async def load_state(self, saved: Mapping[str, Any]) -> None:
        """Give the shared sources their state back. See `Workbench.load_state`."""
        states = state.states_in(saved)
        await self.start()
        state.require_known(states, list(state.by_key(self.lifespan.lives)))
        await state.load(self.lifespan.lives, states, describe=self.describe)

    async def close_resources(self) -> None:
        """Close the executors that are this crib's own. A later call makes new ones."""
        for resource in self.executors:
            close = getattr(resource, "close", None)
            if close is not None and resource is not self._processes:
                await close()

    # Changes

    def _begin(self) -> None:
        """Follow the sources, which run now. Raises SetupError for rules that none of their tools can match."""
        self._follow()
        problems = [*(self._rules.check() if self._rules is not None else ()), *self._unused_overrides()]
        if problems:
            self._unfollow()
            raise SetupError("\n".join(problems))

    def _unused_overrides(self) -> list[str]:
        # A source that is not required may come later, with the tools that use them.
        if not self._overrides or not all(getattr(source, "required", True) for source in self._sources.order()):
            return []
        return [
            f"No tool uses the provider {getattr(provider, '__qualname__', repr(provider))!r} of 'overrides', so what "
            "it stands for would not be replaced. Name the function that is in Depends(...)."
            for provider in self._overrides.unused(tool.needs for tool in self.registry)
        ]

    def _check_rules(self) -> None:
        """Note the rules that withhold tools which have come later."""
        if self._rules is None or not self._is_started:
            return
        for problem in self._rule_problems:
            self.problems.remove(problem)
        self._rule_problems = [LoadProblem("policy", problem) for problem in self._rules.check()]
        self.problems += self._rule_problems
        for problem in self._rule_problems:
            _log.error("A tool is withheld: %s", problem.reason)

    def _follow(self) -> None:
        if self._end_following is None:
            self._end_following = self._sources.follow()

    def _unfollow(self) -> None:
        if self._end_following is not None:
            self._end_following()
            self._end_following = None

    def _replaced(self, tools: Sequence[Tool[..., Any]]) -> None:
        """Have workers forget what they have imported of these tools, which is out of date."""
        if any(tool.isolation is not None for tool in tools):
            for resource in self.executors:
                if (forget := getattr(resource, "forget", None)) is not None:
                    forget()

    def _source_changed(self, source: Any, reason: str | None) -> None:
        problem = self._unavailable.pop(id(source), None)
        if problem in self.problems:
            self.problems.remove(problem)
        if reason is None:
            self._sources.refresh(source)
        else:
            self._unavailable[id(source)] = problem = LoadProblem(name_of(source), reason)
            self.problems.append(problem)
        self._invalidate()

    def _is_in_use(self, source: Any) -> bool:
        # Sources that may offer other tools later are in use without any.
        return not isinstance(source, ObjectSource) or any(tool.source is source for tool in self.registry)

    def _invalidate(self) -> None:
        self._check_rules()
        with self._lock:
            views = list(self._views)
        for view in views:
            view.invalidate()

    def _ended(self) -> None:
        """Forget what was started, and has ended with its event loop."""
        self._is_started = False
        self._unfollow()
        self.lifespan.end()
        if self._program is not None:
            self._program.abandon()
            self._program = None
        with self._lock:
            views = list(self._views)
        for view in views:
            view.ended()

    def _redactor_for(self, caller: Caller) -> Redactor | None:
        """Return what redacts for *caller*: with a broker, each principal has secrets of their own."""
        if self.redaction is None or self.options["broker"] is None:
            return self.redaction
        with self._lock:
            redactor = self._redactors.get(caller.principal)
            if redactor is None:
                redactor = self._redactors[caller.principal] = self.redaction.copy()
            return redactor

    def _redact_also(self, principal: str, redactor: Redactor | None, secrets: Iterable[str]) -> None:
        """Redact *secrets* for *principal* too, as long as the crib runs: a workbench may be gone before."""
        if redactor is None:
            return
        for secret in secrets:
            redactor.add_recent(secret)
        if principal not in self._given:
            with self._lock:
                if self._given.setdefault(principal, redactor) is redactor:
                    redact_log(redactor)

    def __repr__(self) -> str:
        return f"<Crib of {len(self.registry)} tools>"


def require_sources(sources: Any, *, of: str) -> None:
    """Raise SetupError, naming *of* (the constructor), for anything but a list of sources."""
    if isinstance(sources, str) or callable(sources) or not isinstance(sources, Iterable):
        raise SetupError(f"{of} takes a list of sources: {of}([add]).")
