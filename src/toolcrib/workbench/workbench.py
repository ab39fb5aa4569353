"""A crib, the tools of a program, and its workbenches: the same tools, each for one caller.

`Crib` has what all callers share, and lives as long as the program; `Workbench` has what one caller has open. They are
in one file because each makes the other: a crib hands out workbenches, and a workbench of sources makes its own crib.
"""

import asyncio
import logging
import threading
import weakref
from asyncio import _get_running_loop  # pyright: ignore[reportPrivateUsage] - as in sync
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Self, TypeVar, Unpack, cast, overload

from ..call import (
    TASK_LIFE,
    EventStream,
    Grants,
    Patient,
    PendingCalls,
    Resources,
    Runtime,
    TaskRun,
    check,
    dry_run,
    error_result,
    keep,
    needs_approval,
    run,
    streamed,
    within,
)
from ..core import (
    Answer,
    Call,
    Caller,
    Content,
    Event,
    Grant,
    Pending,
    PendingKind,
    Recorder,
    Redaction,
    Result,
    SetupError,
    ToolcribError,
    ToolError,
    ToolSpec,
    UnknownToolError,
)
from ..core import Tool as AnyTool
from ..machinery import Asker, Semaphore, answer_from, create_lasting_task, log_failure, redacted
from ..record.redact import CallerRedactors, Redactor, redact_log
from ..sandbox import Processes
from ..tools import Dependencies, LoadProblem, ObjectSource, Replacements, Tool, as_tool, offered_by
from . import sync
from .credentials import Credentials
from .lifespan import (
    PATIENCE_S,
    Lifespan,
    SharedTask,
    SourceLife,
    by_key,
    load_state,
    name_of,
    require_known,
    save_state,
    states_in,
)
from .limits import Limiter
from .options import DOUBLES, Doubles, Options, Stores, require_options
from .profiles import Profiles
from .registry import Registry, unknown
from .resources import Offers, PromptList, ResourceList, Unlisted
from .search import Search, SharedIndex, ToolSearch
from .sources import Sources
from .sync import Home, Startable, at_home

if TYPE_CHECKING:
    from ..auth import Completed
    from ..store import Store
    from ..tools.lock import DefinitionChange
    from .tasks import Tasks

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("toolcrib")

_NOWHERE: Any = object()
"""In place of the event loop on which calls may run at once, where there is none."""

_OFFERS = ("resources", "prompts", "read_resource", "get_prompt", "open")


class Crib(Startable):
    """The runtime of tools, for the life of a program; it hands them out by caller: `crib.workbench(Caller("alice"))`.

    *sources* are what `toolcrib.tools.load` takes, or one Registry; the options are those of `Options`. Its workbenches
    share the registry, the sources, what waits, the large results, the counts of limits and the worker processes; a
    workbench is made in the same time for any number of tools.

    Sources are started once for all, with the crib or the first of its workbenches. A source that is opened by caller,
    such as a class, is opened for each workbench when a tool of it is first called, so that each caller has its state
    for themselves. A dependency with the scope `program` is opened once for the crib.

    `async with` and `with` start and stop it. `stop` stops the workbenches that were made of it, which then refuse
    calls; closes what was opened for the program; and stops the sources, in reverse.

    `problems` has what of the sources could not be loaded or started. Raises LoadError where a whole source cannot be
    loaded, and DefinitionError or NameConflictError for tools that cannot work.
    """

    _constructor = "Crib"
    """Whose options they are, in the errors about them."""

    def __init__(self, sources: Iterable[Any] | Registry = (), **options: Unpack[Options]) -> None:
        _require_sources(sources, of=self._constructor)
        self.options: Mapping[str, Any] = {**require_options(options, of=self._constructor)}
        self._own_store: Any = None
        self.store: Any = self._open_store()
        self.registry, own_sources = (sources, ()) if isinstance(sources, Registry) else (Registry(), sources)
        policy = self.options["policy"]
        guarded = getattr(policy, "guarded", None)
        self._rules = None if guarded is None else guarded(self.registry.specs, self._doors)
        self._is_undecided = False
        self._rule_problems: list[LoadProblem] = []
        doubles = DOUBLES.get() or Doubles()
        self._overrides = Replacements(doubles.overrides)
        self.executors = Resources()
        self.resources = ResourceList()
        self.prompts = PromptList()
        self.limiter = limits if isinstance(limits := self.options["limits"], Limiter) else Limiter(limits)
        redactor = Redactor(self.options["secrets"])
        redact_log(redactor)
        self._sources = Sources(own_sources, self.registry, self._forget_imports, self.options["lock"])
        with_life = self._sources.order()
        self.redaction = self._share_redaction(with_life, redactor)
        self.is_stopped = False
        self.recorders = self._recorders()
        self._redactors = CallerRedactors(redactor)
        self._processes = doubles.processes
        if self._processes is not None:
            self.executors.set(Processes, self._processes)
        self.grants = Grants(
            store=getattr(self.store.pendings, "grants", None),
            policy=self._rules or policy,
            tool=self.registry.find,
            specs=self.registry.specs,
            clock=doubles.clock,
        )
        """Approvals for more than one call: listed, and revoked."""
        self.pending = PendingCalls(
            store=self.store.pendings,
            tool=self.registry.find,
            grants=self.grants,
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
        self._views: weakref.WeakSet[Workbench] = weakref.WeakSet()
        self._busy: dict[Workbench, None] = {}  # in order: those that have something to close
        self._program: Dependencies | None = None
        self._end_following: Callable[[], None] | None = None
        self._is_started = False
        self._own = {id(source) for source in with_life}
        self._unavailable: dict[int, LoadProblem] = {}
        self.lifespan = Lifespan(describe=self.describe, in_use=self._is_in_use, changed=self._source_changed)
        self.home = self._home = Home(self._ended)
        weakly = weakref.WeakMethod(self._invalidate)
        self.registry.on_change(lambda: (method := weakly()) and method())

    @classmethod
    def from_config(cls, path: str | Path | None = None, **options: Unpack[Options]) -> Self:
        """Make a crib of the sources and options in a configuration file; *options* take precedence.

        Without *path*, the file is found as the command finds it. Raises SettingsError, with all that is wrong.
        """
        from .config import config_of

        config = config_of(path, options)
        crib = cls(config.sources, **config.options)
        crib.own(config.own_store)
        return crib

    def workbench(
        self, caller: Caller | None = None, *, ask: Asker | None = None, variables: Mapping[str, Any] | None = None
    ) -> "Workbench":
        """Make a workbench for *caller*, to be stopped when their session ends. Raises SetupError after `stop`.

        *ask* asks the person of this session; *variables* are added to those of the crib.
        """
        self.require_open()
        value: object = caller
        if not isinstance(value, Caller | None):
            kind = type(value).__name__
            raise SetupError(f'A workbench is for a Caller, as in crib.workbench(Caller("alice")), not {kind}.')
        return Workbench(self, caller=caller, ask=ask, variables=variables)

    @at_home
    async def answer(self, pending_id: str, answer: Answer | Mapping[str, Any], *, by: Caller | str) -> Pending:
        """Answer what a call of any of the workbenches waits for. See `Workbench.answer`."""
        pending, _ = await self.pending.answer(pending_id, answer_from(answer), by=by)
        return pending

    @at_home
    async def preview(self, pending_id: str, answer: Answer | Mapping[str, Any], *, by: Caller | str) -> Grant | None:
        """Return what `answer` would grant, with its text to show before; None where it is for one call.

        Raises AnswerError as that does.
        """
        _, grant = await self.pending.answer(pending_id, answer_from(answer), by=by, is_preview=True)
        return grant

    @at_home
    async def lock_changes(self) -> "Sequence[DefinitionChange]":
        """Return the tools that differ from what the lock file has accepted, which are left out.

        Raises LoadError for a lock file that is damaged.
        """
        return await self._sources.lock_changes()

    @at_home
    async def accept_change(self, digest: str) -> "DefinitionChange | None":
        """Accept the change of `lock_changes` with *digest*: write it into the lock file, and offer the tool.

        Return None where no change has that digest any more. Raises LoadError.
        """
        return await self._sources.accept(digest)

    @at_home
    async def pendings(self, *, principal: str | None = None) -> Sequence[Pending]:
        """Return what waits for an answer, the oldest first: of *principal*, or of all callers."""
        return await self.pending.store.waiting(now=self.pending.clock(), principal=principal)

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
        """Complete an authorization with *url*, the address that a provider sent a browser back to, with its query.

        For hosts that have a web server of their own; `toolcrib.serve.callback_app` is one to mount. Give *caller*
        where you know who is at the browser: then a person completes only what they have begun (RFC 6749, 10.12).
        Raises CallbackError, whose text is for that person.
        """
        return await self.credentials.complete(url, caller)

    @at_home
    async def wait_for(self, pending: Pending, *, timeout_s: float | None = None) -> bool:
        """Wait until *pending* is answered, or what it asks for is granted, in any process.

        False where that does not happen within *timeout_s*, or before it expires, and where a grant is refused. A task
        that it waits for has ended then; False where it is lost.
        """
        if pending.kind == "task" and self.database is not None:
            try:
                result = await self.tasks.wait(pending.id, principal=pending.principal, timeout_s=timeout_s)
            except TimeoutError:
                return False
            return result.error is None or result.error.code != "lost"
        return await self.credentials.wait_for(pending, timeout_s)

    @cached_property
    def tasks(self) -> "Tasks":
        """The calls that run as tasks: those of tools with `task=True`. Raises SetupError without a database."""
        if self.database is None:
            raise SetupError("Tasks need a database: Crib([...], store=...).")
        from importlib.metadata import entry_points

        (engine,) = entry_points(group="toolcrib.engines", name="embedded")
        return cast("Tasks", engine.load()(self))

    @property
    def unclaimed_tasks(self) -> Sequence[str]:
        """The names of tools with tasks that have been due for a minute, and that no process has taken up."""
        return self.tasks.unclaimed if "tasks" in self.__dict__ else ()

    async def drain(self, timeout_s: float) -> None:
        """Take up no more tasks here, and wait until those that run have ended, at most *timeout_s* seconds."""
        if "tasks" in self.__dict__:
            await self.tasks.drain(timeout_s)

    @property
    def marks(self) -> bool:
        """Whether models are shown results with the label `untrusted` as data: `mark_untrusted` of the rules."""
        return getattr(self.options["policy"], "mark_untrusted", False)

    # For workbenches

    def runtime_for(
        self, caller: Caller, *, ask: Asker | None, variables: Mapping[str, Any] | None, **parts: Any
    ) -> Runtime:
        """Return what the pipeline needs for the calls of *caller*; *parts* are the workbench's own."""
        options, recorders = self.options, self.recorders
        middleware = tuple(options["middleware"])
        # With a broker, each principal has secrets of their own.
        redaction = self.redaction if options["broker"] is None else self._redactors.of(caller.principal)
        return Runtime(
            pending=replace(self.pending, ask=ask or self.pending.ask, redaction=redaction),
            resources=self.executors,
            caller=caller,
            middleware=(*middleware, self.limiter.middleware(getattr(self.store, "limits", None))),
            wraps_all=bool(middleware or self.limiter.limits),
            repair=options["repair"],
            policy=self._rules or options["policy"],
            broker=options["broker"],
            timeout_s=options["timeout_s"],
            ledger=getattr(self.store, "ledger", None),
            threads=getattr(self.store, "threads", None),
            remembers=getattr(options["policy"], "remembers", False),
            marks=self.marks,
            retries=tuple(options["retries"]) or None,
            redaction=redaction,
            recorders=recorders,
            start_recorders=tuple(filter(_records_starts, recorders)),
            records_content=any(getattr(recorder, "with_content", False) for recorder in recorders),
            digest=next(filter(None, (getattr(recorder, "digest", None) for recorder in recorders)), None),
            overrides=self._overrides,
            variables={**(options["variables"] or {}), **(variables or {})},
            show_errors=options["show_errors"],
            error_message=options["error_message"],
            redact_also=partial(self._redactors.give, caller.principal, redaction),
            **parts,
        )

    @property
    def database(self) -> "Store | None":
        """The database among the options, if there is one."""
        return self.store if hasattr(self.store, "transact") else None

    def _open_store(self) -> Any:
        """Return the stores that the option `store` is, or stands for. A database that is opened here is ours."""
        store = self.options["store"]
        if not isinstance(store, str | Path):
            return Stores() if store is None else store
        from ..store import Store as Database

        self._own_store = Database(store)
        self.options = {**self.options, "store": self._own_store}
        return self._own_store

    def _share_redaction(self, sources: Iterable[Any], redactor: Redactor) -> Redactor | None:
        """Return *redactor* with the secrets of *sources*, which then redact by it; None where there may be none."""
        secrets = [secret for source in sources for secret in getattr(source, "secrets", ())]
        for secret in secrets:
            redactor.add(secret)
        redaction = redactor if any((secrets, self.options["secrets"], self.options["broker"] is not None)) else None
        for source in sources:
            if hasattr(source, "redaction"):
                source.redaction = redaction
        return redaction

    def _recorders(self) -> tuple[Recorder, ...]:
        recorders: tuple[Recorder, ...] | None = self.options["recorder"]
        if recorders is None and self.database is not None:
            from ..record import DatabaseCalls

            return (DatabaseCalls(self.database),)
        return recorders or ()

    def add_view(self, view: "Workbench") -> None:
        with self._lock:
            self._views.add(view)

    def keep_view(self, view: "Workbench") -> None:
        """Keep *view*, which has something to close: it is not forgotten before it is stopped."""
        with self._lock:
            self._busy[view] = None

    def drop_view(self, view: "Workbench") -> None:
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
        return [source for source in self._sources.order() if any(hasattr(source, name) for name in _OFFERS)]

    @property
    def problems(self) -> list[LoadProblem]:
        """What of the sources could not be loaded or started, and which change of theirs could not be made."""
        return [*self._sources.problems, *self._unavailable.values(), *self._rule_problems]

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
        await self.settle_sources()

    async def settle_sources(self) -> None:
        """Wait for the sources that are not required, but not for long. Raises SetupError where all are there, and a
        rule or a limit names none of their tools.
        """
        await self.lifespan.settle()
        if not self._is_undecided:
            return
        self._is_undecided = False
        if not self._is_incomplete() and (problems := self._unknown_names()):
            await self.stop(for_good=False)
            raise SetupError("\n".join(problems))
        self._check_rules()

    async def start_required(self) -> None:
        """Start, without waiting for sources that are not required."""
        self.require_open()
        if self._is_started:
            return
        sources = [source for source in self._sources.order() if hasattr(source, "start")]
        await self.lifespan.start(sources, self._begin)
        if not self.is_stopped:
            self._is_started = True
            await self._start_tasks()

    async def _start_tasks(self) -> None:
        """Run what is due of the tools that run as tasks, and of webhooks, if there are any."""
        if self.database is not None and (self._task_tool() is not None or self.database.webhooks):
            await self.tasks.start()

    def _task_tool(self) -> str | None:
        """Return the name of a tool that runs as a task; None where there is none."""
        return next((tool.spec.name for tool in self.registry if tool.is_task), None)

    async def stop(self, *, for_good: bool = True) -> None:
        """Stop the workbenches, the newest first; close what was opened for the program; stop the sources."""
        self._is_entered = False
        await self._stop(for_good=for_good)

    @at_home
    async def _stop(self, *, for_good: bool) -> None:
        if "tasks" in self.__dict__:
            await self.tasks.stop()
            del self.tasks
        if for_good:
            self.is_stopped = True
            await self._stop_views()
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

    async def _stop_views(self) -> None:
        with self._lock:
            idle = [view for view in self._views if view not in self._busy]
            busy = list(self._busy)
        for view in (*idle, *reversed(busy)):
            try:
                await view.stop()
            except Exception:
                _log.exception("The workbench of '%s' failed to stop", view.caller.principal)

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
        return await save_state(self.lifespan.lives)

    @at_home
    async def load_state(self, saved: Mapping[str, Any]) -> None:
        """Give the shared sources their state back. See `Workbench.load_state`."""
        states = states_in(saved)
        await self.start()
        require_known(states, list(by_key(self.lifespan.lives)))
        await load_state(self.lifespan.lives, states, describe=self.describe)

    async def close_resources(self) -> None:
        """Close the executors that are this crib's own. A later call makes new ones."""
        for resource in self.executors:
            close = getattr(resource, "close", None)
            if close is not None and resource is not self._processes:
                await close()

    # Changes

    def _begin(self) -> None:
        """Follow the sources, which run now. Raises SetupError for rules that none of their tools can match."""
        if self._end_following is None:
            self._end_following = self._sources.follow()
        problems = [*(self._rules.start() if self._rules is not None else ()), *self._unused_overrides()]
        if self.database is None and (task := self._task_tool()) is not None:
            problems.append(f"Tool '{task}' runs as a task, which needs a database: store=...")
        self._is_undecided = self._is_incomplete()
        if not self._is_undecided:
            problems += self._unknown_names()
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

    def _doors(self) -> list[str]:
        """Return the names of the tools that a server offers until a caller has logged in."""
        return [tool.spec.name for tool in self.registry if getattr(tool.source, "connecting", None) == tool.origin]

    def _is_incomplete(self) -> bool:
        """Return whether tools are missing that a rule may name: of sources that do not run, or not as a whole."""
        late = [source for source in self._sources.order() if not getattr(source, "required", True)]
        has_unstarted = any(hasattr(source, "start") and not self.lifespan.runs(source) for source in late)
        return bool(has_unstarted or self._sources.problems or self._unavailable or self._doors())

    def _unknown_names(self) -> list[str]:
        """Return the problems of the rules and limits that name tools that are not there."""
        problems = [] if self._rules is None else [*self._rules.unknown().values()]
        # A Limiter may be shared with workbenches that have other tools.
        if self.limiter.limits and self.limiter is not self.options["limits"] and len(self.registry):
            from .rules import unknown_of_limit  # brings pydantic: with the first limit, and not with the package

            names = [spec.name for spec in self.registry.specs()]
            unknown = [
                unknown_of_limit(limit, names) or limit.unknown_unit(self.registry) for limit in self.limiter.limits
            ]
            problems += [f"limit {number} {sentence}" for number, sentence in enumerate(unknown, 1) if sentence]
        return problems

    def _check_rules(self) -> None:
        """Note the rules that withhold tools which have come later."""
        if self._is_started:
            problems = [*(self._rules.check() if self._rules is not None else ()), *self._unknown_names()]
            self._rule_problems = [LoadProblem("policy", problem) for problem in problems]
            for problem in () if self._is_undecided else problems:
                _log.error("A tool is withheld, or not limited: %s", problem)

    def _unfollow(self) -> None:
        if self._end_following is not None:
            self._end_following()
            self._end_following = None

    def _forget_imports(self, tools: Sequence[Tool[..., Any]]) -> None:
        """Have workers forget what they have imported of these tools, in whose place others come."""
        if any(tool.isolation is not None for tool in tools):
            for resource in self.executors:
                if (forget := getattr(resource, "forget", None)) is not None:
                    forget()

    def _source_changed(self, source: Any, reason: str | None) -> None:
        self._unavailable.pop(id(source), None)
        if reason is not None:
            self._unavailable[id(source)] = LoadProblem(name_of(source), reason)
        self._sources.refresh(source, runs=reason is None)
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
        if self._is_started and "tasks" not in self.__dict__:
            self._home.call_soon(lambda: keep(create_lasting_task(self._start_tasks())))

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

    def __repr__(self) -> str:
        return f"<Crib of {len(self.registry)} tools>"


class _OwnCrib(Crib):
    """The crib that a workbench makes of its sources and options."""

    _constructor = "Workbench"


class Workbench(Startable):
    """The tools of a crib, ready to be called for one caller.

    *sources* are what `toolcrib.tools.load` takes, or one Registry, or a Crib; the options are those of `Options`. Of
    sources and options it makes a crib of its own, which it stops with itself. *caller* is the principal of the calls;
    the host sets it, never a model. Of a crib it takes only *ask* and *variables*, as `crib.workbench` does.

    It starts itself at the first call; `async with` and `with` start it and stop it, which closes what `Depends` opened
    and stops the sources. An object whose class has methods marked with `@tool` is a source, which starts and stops
    with the crib; a class of that kind is one too, and each workbench makes an instance of its own. While a source that
    changes is started, its tools are as it has them: a change that cannot be made is logged and noted in `problems`,
    and the tools stay.

    Raises LoadError where a whole source cannot be loaded; DefinitionError and NameConflictError for unfit tools.
    """

    def __init__(
        self, sources: Iterable[Any] | Registry | Crib = (), *, caller: Caller | None = None, **options: Unpack[Options]
    ) -> None:
        from .results import Results  # brings pydantic: with the first workbench, and not with the package

        ask, variables = None, None
        self._owns_crib = not isinstance(sources, Crib)
        if isinstance(sources, Crib):
            self.crib, ask, variables = sources, options.pop("ask", None), options.pop("variables", None)
            if options:
                raise SetupError(
                    f"'{next(iter(options))}' is an option of the crib. A workbench takes ask and variables."
                )
        else:
            self.crib = _OwnCrib(sources, **options)
        crib = self.crib
        caller = caller or Caller()
        self._home = crib.home
        self._session: Dependencies | None = None
        self._state, self._direct_on = "new", _NOWHERE
        self._users, self._is_users = 0, False
        self._turn = Semaphore(1)
        self._ready: dict[str, AnyTool] = {}  # those that can be called as they are
        self._runtime = crib.runtime_for(
            caller, ask=ask, variables=variables, resolve=self._resolve, ready=self._ready, session=self._session_values
        )
        self.redaction: Redaction | None = self._runtime.redaction
        self.results = self._runtime.handles = Results(
            crib.registry,
            caller=caller,
            limit_chars=crib.options["max_result_chars"],
            store=crib.store.results,
            owns_store=self._owns_crib and crib.options["store"] is None,
            redaction=self.redaction,
        )
        self.lifespan = Lifespan(describe=crib.describe, in_use=self._is_in_use, changed=self._source_changed)
        self._opened: dict[int, tuple[Any, Any]] = {}  # by source: the source, and what it opened for this caller
        self._opening: dict[int, SharedTask] = {}
        self._availability: dict[str, bool] = {}  # by tool: what an async check has answered last
        self._allowed: tuple[Sequence[ToolSpec], Sequence[ToolSpec]] | None = None
        """All tools as they were last listed, and those that the policy does not hide from the caller."""
        self._profiles = Profiles(crib.registry, caller, self._for_profile)
        self._search: ToolSearch | None = None
        if crib.search is not None:
            self._search = ToolSearch(
                crib.registry, crib.index, crib.search, visible=self._visible, present=self._profiles.specs
            )
        self.offers = Offers(
            self._runtime,
            crib.resources,
            crib.prompts,
            crib.offering,
            run=self._run_unlisted,
            hides=self._hides,
            run_source=self._run_source,
            view=lambda handle: self.results.view(handle),
        )
        crib.add_view(self)

    @classmethod
    def from_config(
        cls, path: str | Path | None = None, *, caller: Caller | None = None, **options: Unpack[Options]
    ) -> Self:
        """Make a workbench of the sources and options in a configuration file; *options* take precedence.

        Without *path*, the file is found as the command finds it. Raises SettingsError, with all that is wrong.
        """
        from .config import config_of

        config = config_of(path, options)
        bench = cls(config.sources, caller=caller, **config.options)
        bench.crib.own(config.own_store)
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
    async def call(
        self,
        tool: str,
        arguments: str | bytes | Mapping[str, Any] | None = None,
        /,
        *,
        idempotency_key: str | None = None,
    ) -> Result[Any]: ...
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

        Of the calls of a principal with one *idempotency_key* one is made, over all processes that share the store, and
        the others get its result, marked as `repeated` in its metadata. Without a database that is a SetupError.
        """
        if type(tool) is str and self._direct_on is _get_running_loop() and len(args) == 1 and not kwargs:
            return run(Call(tool, args[0]), self._runtime)
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
    async def dry_run(self, tool: Any, /, *args: Any, **kwargs: Any) -> Result[dict[str, Any]]:
        """Do the same as `check`, with what the policy decides in `metadata["decision"]`, if there is a policy.

        Grants count, answers do not: a call that a person has approved is one to ask about until it is made.
        """
        self._require_open()
        return await dry_run(*await self._profiles.choose(self._call_of(tool, args, kwargs), self._runtime))

    @at_home
    async def needs_approval(self, tool: Any, /, *args: Any, **kwargs: Any) -> PendingKind | None:
        """Return what the policy would ask a person for: "approval", or None. Answers do not count."""
        self._require_open()
        return await needs_approval(*await self._profiles.choose(self._call_of(tool, args, kwargs), self._runtime))

    def would_ask(self, *_: object, **__: object) -> NoReturn:
        """Refuse the name of before 0.1."""
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
    def call_sync(
        self,
        tool: str,
        arguments: str | bytes | Mapping[str, Any] | None = None,
        /,
        *,
        idempotency_key: str | None = None,
    ) -> Result[Any]: ...
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
    async def answer(
        self,
        pending_id: str | None = None,
        answer: Answer | Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        by: Caller | str | None = None,
    ) -> Pending:
        """Answer what a call waits for, in the name of *by*; the same call made again then runs, once.

        In place of *pending_id*, *call_id* takes the id of a call that this workbench made: models choose these, so
        the two are never looked up by one name. Without *by* it is the caller who answers.

        An approval takes `Approve()` or `Deny("why")`, an input `Input(...)` or `Deny("why")`, or what their `to_dict`
        returns. Returns what was answered. For hosts: nothing that a model sends leads here. Raises AnswerError where
        the answer is not accepted, and SetupError for both ids or none.
        """
        waits = self._runtime.pending
        if (pending_id is None) is (call_id is None) or answer is None:
            raise SetupError("answer() takes the id of what is pending, or call_id=, and an answer.")
        if pending_id is None:
            pending_id = waits.id_for(call_id or "", self.caller)
        pending, _ = await waits.answer(pending_id, answer_from(answer), by=self.caller if by is None else by)
        return pending

    @at_home
    async def pendings(self, *, principal: str | None = None) -> Sequence[Pending]:
        """Return what waits for an answer in the store of this workbench, the oldest first: of *principal*, or of all
        callers that share it.
        """
        return await self._runtime.pending.store.waiting(now=self.now(), principal=principal)

    @at_home
    async def stored_result(self, handle: str) -> tuple[Content, ...]:
        """Return the whole of a large result, secrets redacted, by the handle in `Result.metadata["handle"]`.

        Raises ToolError `unavailable` for one that is not stored, or not for this caller.
        """
        content = await self.results.view(handle)
        await self.remember(content.labels)
        return content.whole()

    @at_home
    async def remember(self, labels: Collection[str]) -> None:
        """Have the thread of the caller remember that its model is shown what has *labels*, as after such a result.

        For what it is shown in another way. Raises where that cannot be stored.
        """
        if labels and (threads := self._runtime.threads) is not None:
            await threads.remember(self.caller.principal, self.caller.thread, {f"seen {label}" for label in labels})

    def now(self) -> datetime:
        """Return the time by which what waits expires."""
        return self._runtime.pending.clock()

    # What there is

    def redacted(self, text: str) -> str:
        """Return *text* with the known secrets redacted, as in results."""
        return redacted(text, self.redaction)

    def specs(
        self, *, profiles: Iterable[str] | None = None, deferred: bool = False, every: bool = False
    ) -> Sequence[ToolSpec]:
        """Return what the tools available to the caller promise, in order; with `search`, those that are shown.

        *deferred*: all, marked where they are not shown, for providers that search. *every*: all that may be shown
        later, with `finder` and `reader`, for lists that do not change. *profiles* (`[]` for none, again):
        those of tools that need credentials have an argument `profile`, which calls then choose. Plain `available`
        predicates are called now; async ones were at `start`, and at each call. Raises SetupError for no list of names.
        """
        if profiles is not None:
            self._profiles.set(profiles)
            self._set_state(self._state)
        specs = self._visible()
        reader = self.reader() if every or self.results.is_listed else None
        if every:
            specs = (*specs, *filter(None, (self.finder(), reader)))
        else:
            if self._search is not None:
                specs = self._search.deferred(specs) if deferred else self._search.shown(specs)
            specs = specs if reader is None else (*specs, reader)
        return self._profiles.specs(specs)

    def finder(self) -> ToolSpec | None:
        """Return the tool that finds tools; None without `search`, and where the policy denies it."""
        return self._built_in_spec(None if self._search is None else self._search.tool())

    def reader(self) -> ToolSpec | None:
        """Return the tool that reads large results; None where there are none, and where the policy denies it."""
        may_issue = self.results.issued or self.crib.options["max_result_chars"] is not None
        return self._built_in_spec(self.results.reader() if may_issue else None)

    def _built_in_spec(self, tool: AnyTool | None) -> ToolSpec | None:
        return None if tool is None or self._hides(tool.spec) else tool.spec

    # Life

    @at_home
    async def start(self) -> None:
        """Make ready. Starting twice changes nothing. After `stop` it begins again, unless its crib is stopped."""
        if self._state == "stopped":
            self.crib.reopen() if self._owns_crib else self.crib.require_open()
            self._opened.clear()
            self.lifespan.reopen()
            self.crib.add_view(self)
            self._set_state("new")
        await self._start()
        try:
            await self.crib.settle_sources()
        except SetupError:
            await self._give_up_start()
            raise

    async def enter(self) -> None:
        """Start for one of several users, unless it runs. The last to `leave` stops what the first has started.

        For the runs of frameworks, which do not know of one another. Raises what the start raises.
        """
        permit = await self._turn.acquire()  # runs may overlap: one may enter while the last one leaves
        try:
            is_started = self.is_started
            await self.start()
            self._is_users = self._is_users or not is_started
            self._users += 1
        finally:
            self._turn.release(permit)

    async def leave(self) -> None:
        """Stop what `enter` has started, once all have left, unless `async with` has entered it meanwhile."""
        self._users -= 1
        await asyncio.shield(self._stop_if_left())  # a run that is cancelled has left all the same

    async def _stop_if_left(self) -> None:
        permit = await self._turn.acquire()
        try:
            if not self._users and self._is_users:
                self._is_users = False
                if not self._is_entered:
                    await self.stop()
        finally:
            self._turn.release(permit)

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
        self._forget()
        try:
            await self._close_session()
        finally:
            await self.lifespan.stop()
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
        self._forget()
        await self._close_session()
        if self._owns_crib:
            await self.crib.close_resources()
        if self._state == "started":
            if self._owns_crib:
                await self.crib.reset()
            await self.lifespan.reset()
            await self._check_available()

    @at_home
    async def save_state(self) -> dict[str, Any]:
        """Return the state of the sources as JSON data with a version, for `load_state`, also in another process.

        It starts the workbench if need be, since sources may bring state with them. A workbench of a crib has the state
        of what was opened for its caller; the state of what is shared is the crib's to save. Raises ToolcribError for
        state that would not survive, and SetupError for two sources with one `state_key`, and after `stop`.
        """
        self._require_open()
        await self.start()
        return await save_state(self._lives())

    @at_home
    async def load_state(self, saved: Mapping[str, Any]) -> None:
        """Continue from what `save_state` returned: every source named in it gets its state, or none does.

        Sources that are not named in it stay as they are. Raises SetupError for anything that is not such a state, for
        another version, for sources that are not here, and for state that does not fit.
        """
        states = states_in(saved)
        self._require_open()
        await self.start()
        idle = {source.state_key: source for source in self._idle_sources()}
        require_known(states, [*by_key(self._lives()), *idle], by_key(self.crib.lifespan.lives))
        for key, source in idle.items():
            if key in states:
                await self._run_source(source)
        await load_state(self._lives(), states, describe=self.crib.describe)

    def __repr__(self) -> str:
        return f"<Workbench of {len(self.registry)} tools for {self.caller.principal}>"

    # For the crib

    def invalidate(self) -> None:
        """Forget which tools are ready to be called."""
        self._ready.clear()

    def ended(self) -> None:
        """Forget what was started, and has ended with its event loop."""
        self.invalidate()
        if self._state == "started":
            self._set_state("new")
        self.lifespan.end()
        self._opening.clear()
        if self._session is not None:
            self._session.abandon()
            self._session = None

    async def _run_source(self, source: Any) -> Any:
        """Wait until *source* runs for this caller. Returns what it has opened for them, None where it is shared."""
        if hasattr(source, "start") and (self.crib.is_own(source) or isinstance(source, ObjectSource)):
            await self.crib.lifespan.run(source)
        if not hasattr(source, "open"):
            return None
        while (entry := self._opened.get(id(source))) is None:
            await self._opening.setdefault(id(source), SharedTask()).run(partial(self._open, source))
        try:
            await self.lifespan.run(entry[1])
        except Exception:
            if self._opened.get(id(source)) is entry and not self.lifespan.is_tried(entry[1]):
                del self._opened[id(source)]  # the next call opens another
            raise
        return entry[1]

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

    @at_home
    async def _run_unlisted(self, call: Call, tool: AnyTool) -> Result[Any]:
        """Return the whole result of *call* of *tool*: a large one gets no handle."""
        self._require_open()

        async def resolve(_: Call) -> AnyTool:
            await self._start()
            return tool

        return await run(call, replace(self._runtime, ready={}, resolve=resolve, handles=None))

    @at_home
    async def run_task(self, call: Call, task: TaskRun, events: EventStream) -> Result[Any]:
        """Return how a run of *task* ends. No deadline but the tool's own is around it, and no host asks at once."""
        self._require_open()
        store: Any = Patient(self._runtime.pending.store)
        pending = replace(self._runtime.pending, store=store, ask=None, within=TASK_LIFE)
        threads: Any = Patient(self._runtime.threads)
        runtime = replace(self._runtime, timeout_s=None, pending=pending, threads=threads, task_id=call.id)
        return await run(call, runtime, events, task)

    async def count(self, method: str, work: Callable[[], Awaitable[R]]) -> R:
        """Return the value of *work*, a list for the caller, which counts in the limits. Raises ToolError `limited`."""
        limited: Any = self._runtime.middleware[-1]
        value: R = await limited(Unlisted("other", method, "", _nothing), Call(method), self.caller, work)
        return value

    def _for_profile(self, profile: str) -> tuple["Workbench", Runtime]:
        caller, ask = replace(self.caller, profile=profile), self._runtime.pending.ask
        bench = Workbench(self.crib, caller=caller, ask=ask, variables=self._runtime.variables)
        # They are of one principal and thread, so they read each other's large results.
        bench.results = bench._runtime.handles = self.results
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
                        await self._run_source(source)
        except Exception:
            await self._give_up_start()
            raise
        if self._state != "new":  # another call has started or stopped it meanwhile
            await self._start()
            return
        self._set_state("started")
        await self._check_available()

    @at_home
    async def _give_up_start(self) -> None:
        self.invalidate()
        if self._state == "started":
            self._set_state("new")
        await self.lifespan.stop(for_good=False)
        if self._owns_crib:
            await self.crib.stop(for_good=False)

    def _lives(self) -> list[SourceLife]:
        return [*(self.crib.lifespan.lives if self._owns_crib else ()), *self.lifespan.lives]

    def _call_of(self, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        if isinstance(tool, str):
            tool = _call_by_name(str(tool), args, kwargs)
        if isinstance(tool, Call):
            if tool.idempotency_key is not None and self._runtime.ledger is None:
                raise SetupError("An idempotency key needs a database: Workbench([...], store=...), or Crib's store=.")
            return tool
        fn = getattr(tool, "fn", tool)
        if (own_tool := next((own for own in self.registry if own is tool or own.fn == fn), None)) is not None:
            return Call(own_tool.spec.name, own_tool.arguments(*args, **kwargs))
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

    # From the name in a call to a tool that is ready

    async def _resolve(self, call: Call) -> AnyTool:
        """Return the tool of *call*, ready to be called. Raises ToolError."""
        try:
            return await self._find(call.tool)
        except ToolcribError as error:
            reason = redacted(self.crib.describe(error), self.redaction)
            _log.error("Tool '%s' is not ready: %s", call.tool, reason)
            raise ToolError(
                f"Tool '{call.tool}' is not available now: what it needs could not be started. Try again later.",
                "unavailable",
            ) from None

    async def _find(self, name: str) -> AnyTool:
        await self._start()
        lifespan = self.crib.lifespan
        tool: Any = self.registry.find(name) or self._built_in(name)
        if tool is None:
            await lifespan.settle()  # a source that is not required may have it
            tool = self.registry.find(name)
        if tool is None:
            await self._refuse_unknown(name)
        if tool.available is not None and not await self._is_available(tool):
            raise ToolError(f"Tool '{name}' is not available to you now.", "unavailable")
        ready: AnyTool = tool if tool.source is None else await self._ready_of(tool)
        # One that was changed meanwhile is found anew by the next call.
        if tool.available is None and (self.registry.find(name) is tool or self._built_in(name) is tool):
            self._ready[name] = ready
        return ready

    async def _refuse_unknown(self, name: str) -> NoReturn:
        """Raise ToolError for a *name* that no tool has: `limited` where there are too many of these calls."""
        try:
            await self.count("tools/call", _nothing)
        except ToolError as error:
            details = {**error.details, "unknown_tool": True}
            raise ToolError(error.message, error.code, retry=error.retry, details=details) from None
        if down := self.crib.lifespan.unlisted():
            from ..schema import display_name  # brings pydantic

            raise ToolError(
                f"There is no tool '{display_name(name)}' now, and {', '.join(map(name_of, down))} is not available, "
                "which may have it. Try again later.",
                "unavailable",
            )
        raise ToolError(unknown(name, [spec.name for spec in self.specs()]), "unknown_tool")

    def _built_in(self, name: str) -> AnyTool | None:
        """Return the tool called *name* of those that every caller has: one reads results, and one finds tools."""
        return self.results.reader(name) or (None if self._search is None else self._search.tool(name))

    async def _ready_of(self, tool: Any) -> AnyTool:
        """Return *tool*, whose source runs."""
        instance = await self._run_source(tool.source)
        if instance is None:
            return tool  # type: ignore[no-any-return]
        own = next((offer for offer in map(as_tool, offered_by(instance)) if offer.origin == tool.origin), None)
        if own is None:
            raise SetupError(f"The source {name_of(tool.source)} has no tool '{tool.origin}' for this caller.")
        return tool.bound_to(own)  # type: ignore[no-any-return]

    async def _open(self, source: Any) -> None:
        try:
            instance = source.open(self.caller)
            instance = await instance if isinstance(instance, Awaitable) else instance
            self._opened[id(source)] = (source, instance)
            if listen := getattr(instance, "on_change", None):
                listen(self.invalidate)
        except Exception as error:
            raise SetupError(
                f"The source {name_of(source)} could not be opened: {self.crib.describe(error)}"
            ) from error

    def _idle_sources(self) -> list[Any]:
        """Return sources with tools here that are this workbench's own to start, and do not run."""
        sources = {id(tool.source): tool.source for tool in self.registry if hasattr(tool.source, "state_key")}
        return [
            source
            for source in sources.values()
            if (id(source) not in self._opened if hasattr(source, "open") else self._owns_crib)
            and not self.crib.lifespan.runs(source)
        ]

    def _is_in_use(self, opened: Any) -> bool:
        source = next((source for source, own in self._opened.values() if own is opened), None)
        return any(tool.source is source for tool in self.registry)

    def _source_changed(self, _source: Any, _reason: str | None) -> None:
        self.invalidate()

    # Which tools the caller may see

    def _visible(self) -> Sequence[ToolSpec]:
        """Return what the tools available to the caller promise, in order, also of those that a search has to find.

        Without those that the policy denies them wholly.
        """
        specs = self._permitted(self.registry.specs())
        hidden_names = {tool.spec.name for tool in self.registry.conditional() if not self._looks_available(tool)}
        return tuple(spec for spec in specs if spec.name not in hidden_names) if hidden_names else specs

    def _permitted(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return *specs*, all tools, without those that the policy hides from the caller."""
        if getattr(self.crib.options["policy"], "hides", None) is None:
            return specs
        if self._allowed is None or self._allowed[0] != specs:
            self._allowed = specs, tuple(spec for spec in specs if not self._hides(spec))
        return self._allowed[1]

    def _hides(self, spec: ToolSpec) -> bool:
        hides = getattr(self.crib.options["policy"], "hides", None)
        return hides is not None and hides(spec, self.caller)

    async def _check_available(self) -> None:
        await asyncio.gather(
            *(
                self._settled(tool, answer)
                for tool in self.registry.conditional()
                if not isinstance(answer := self._answer_of(tool), bool)
            )
        )

    async def _is_available(self, tool: AnyTool) -> bool:
        answer = self._answer_of(tool)
        return answer if isinstance(answer, bool) else await self._settled(tool, answer)

    async def _settled(self, tool: AnyTool, answer: Awaitable[bool]) -> bool:
        """Return *answer*, and note it. One that does not come is False, and holds back the other tools no longer."""
        try:
            verdict = bool(await within(PATIENCE_S, answer, tool.spec.name))
        except Exception as error:
            self._log_unknown(tool, error)
            verdict = False
        self._availability[tool.spec.name] = verdict
        return verdict

    def _looks_available(self, tool: AnyTool) -> bool:
        answer = self._answer_of(tool)
        if isinstance(answer, bool):
            return answer
        if asyncio.iscoroutine(answer):
            answer.close()
        if tool.spec.name not in self._availability:
            sync.run(self._is_available(tool))
        return self._availability.get(tool.spec.name, False)

    def _answer_of(self, tool: AnyTool) -> bool | Awaitable[bool]:
        assert tool.available is not None
        try:
            answer = tool.available(self.caller)
        except Exception as error:
            self._log_unknown(tool, error)
            return False
        return answer if hasattr(type(answer), "__await__") else bool(answer)

    def _log_unknown(self, tool: AnyTool, error: Exception) -> None:
        label = f"The availability check of '{tool.spec.name}' failed; treating it as unavailable"
        log_failure(label, error, self.redaction)

    def _forget(self) -> None:
        """Forget large results, and what was found."""
        self.results.forget()
        if self._search is not None:
            self._search.forget()


def _call_by_name(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    try:
        if len(args) > 1:
            raise TypeError
        return Call(name, *args, **kwargs)
    except TypeError:
        raise TypeError(
            f"The arguments of {name!r} are one mapping, or JSON text: call({name!r}, {{...}}). "
            "Positional and keyword arguments are for a tool that is passed as its function."
        ) from None


def _records_starts(recorder: Any) -> bool:
    return getattr(type(recorder), "started", None) not in (None, Recorder.started)


async def _nothing(*_: object) -> None: ...


async def _call_each(
    make: Callable[[Call], Awaitable[Result[Any]]], calls: Sequence[Call], limit: int, *, stop_on_error: bool
) -> list[Result[Any]]:
    """Return the results of *calls*, in their order, made at most *limit* at a time.

    With *stop_on_error* the first error cancels the calls that have not ended: their result is `cancelled`.
    """
    results: list[Result[Any] | None] = [None] * len(calls)
    waiting = iter(enumerate(calls))
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        for index, call in waiting:
            result = results[index] = await make(call)
            if stop_on_error and result.error is not None:
                # No exception: until Python 3.13 a task group leaves with its caller the cancellation that follows one.
                list(waiting)
                for task in tasks:
                    if task is not asyncio.current_task():
                        task.cancel()

    if limit == 1:
        await work()
    else:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(work()) for _ in range(min(limit, len(calls)))]
    error = ToolError("This call was not finished, because another call failed before it.", "cancelled")
    return [results[index] or error_result(call, error, datetime.now(UTC)) for index, call in enumerate(calls)]


def _require_sources(sources: Any, *, of: str) -> None:
    """Raise SetupError, naming *of* (the constructor), for anything but a list of sources."""
    if isinstance(sources, str) or callable(sources) or not isinstance(sources, Iterable):
        raise SetupError(f"{of} takes a list of sources: {of}([add]).")
