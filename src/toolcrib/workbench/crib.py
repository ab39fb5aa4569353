"""A crib: sources, stores, limits and policies for the program's life, and a workbench for each caller."""

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time
from types import TracebackType
from typing import Any, Self

from ..call import Provided, Retries
from ..core import (
    RESULT_CHARS,
    Around,
    Asker,
    Caller,
    MayAnswer,
    Pending,
    PendingStore,
    Policy,
    Recorder,
    ResultStore,
    SetupError,
)
from ..tools import LoadProblem
from . import door
from .limits import Limit, Limiter
from .pendings import MemoryPendings
from .processes import Processes
from .registry import Registry
from .workbench import Workbench, close_each

_log = logging.getLogger("toolcrib")


class Crib:
    """Tools for the life of a program, handed out by caller: `crib.workbench(Caller("alice"))`.

    What it takes, and what it raises, is what a Workbench takes, the caller excepted. Its workbenches share the
    registry, the sources, what waits, the large results, the counts of limits and the worker processes; a workbench is
    made in the same time for any number of tools.

    Sources are started once for all, with the crib or the first of its workbenches. A source that is a class is made
    anew for each workbench, when a tool of it is first called, so that each caller has its state for themselves. What
    `Depends` gives with the scope `program` is opened once for the crib on each event loop.

    `async with` and `with` start and stop it. `stop` stops the workbenches that were made of it, which then refuse
    calls; closes what was opened for the program; and stops the sources, in reverse.
    """

    def __init__(
        self,
        sources: Iterable[Any] | Registry = (),
        *,
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
        from .results import MemoryResults  # brings pydantic: with the first crib, and not with the package

        if isinstance(sources, str) or callable(sources) or not isinstance(sources, Iterable):
            raise SetupError("Crib takes a list of sources: Crib([add]).")
        self._processes = processes or Processes()
        self._own_processes = processes is None
        # Nobody calls through this one: it is what all workbenches have in common.
        self._common = Workbench(
            sources,
            repair=repair,
            timeout_s=timeout_s,
            limits=limits if isinstance(limits, Limiter) else Limiter(limits),
            retries=retries,
            around=around,
            policy=policy,
            secrets=secrets,
            recorder=recorder,
            overrides=overrides,
            variables=variables,
            show_errors=show_errors,
            max_result_chars=max_result_chars,
            results=MemoryResults() if results is None else results,
            ask=ask,
            may_answer=may_answer,
            pendings=MemoryPendings() if pendings is None else pendings,
            pending_s=pending_s,
            processes=self._processes,
            clock=clock,
        )
        held = self._common._held  # pyright: ignore[reportPrivateUsage]
        held.makes = False
        held.on_end = self._ended
        self._overrides = overrides or {}
        self._lock = threading.Lock()
        self._made: weakref.WeakSet[Workbench] = weakref.WeakSet()
        self._busy: dict[Workbench, None] = {}  # in order: those that have something to close
        self._programs: dict[asyncio.AbstractEventLoop, Provided] = {}
        self._is_stopped = False

    @property
    def registry(self) -> Registry:
        return self._common.registry

    @property
    def problems(self) -> list[LoadProblem]:
        """What of the sources could not be loaded, and what change of theirs could not be made."""
        return self._common.problems

    def workbench(
        self, caller: Caller | None = None, *, ask: Asker | None = None, variables: Mapping[str, Any] | None = None
    ) -> Workbench:
        """A workbench for *caller*, to be stopped when their session ends. Raises SetupError after `stop`.

        *ask* asks the person of this session; *variables* are added to those of the crib.
        """
        self.require_open()
        given: object = caller
        if given is not None and not isinstance(given, Caller):
            kind = type(given).__name__
            raise SetupError(f'A workbench is for a Caller, as in crib.workbench(Caller("alice")), not {kind}.')
        made = self._common._for(  # pyright: ignore[reportPrivateUsage]
            self, caller or Caller(), ask=ask, variables=variables
        )
        with self._lock:
            self._made.add(made)
        return made

    async def answer(self, pending_id: str, answer: Any, *, by: str) -> Pending:
        """Answer what a call of any of the workbenches waits for. See `Workbench.answer`."""
        return await self._common.answer(pending_id, answer, by=by)

    async def pendings(self) -> Sequence[Pending]:
        """What waits for an answer, the oldest first, of all callers."""
        return await self._common.pendings()

    # Life

    async def start(self) -> None:
        """Start the sources. Starting twice changes nothing. Raises SetupError after `stop`, and for what fails.

        Where one fails, those started before it are stopped, and the next start begins anew.
        """
        self.require_open()
        await self._common.start()

    async def stop(self) -> None:
        """Stop the workbenches, the newest first; close what was opened for the program; stop the sources."""
        self._is_stopped = True
        with self._lock:
            idle = [bench for bench in self._made if bench not in self._busy]
            busy = list(self._busy)
        for bench in (*idle, *reversed(busy)):
            try:
                await bench.stop()
            except Exception:
                _log.exception("The workbench of '%s' failed to stop", bench.caller.principal)
        await close_each(self._programs)
        await self._common.stop()
        if self._own_processes:
            await self._processes.close()

    async def reset(self) -> None:
        """Back to the state right after `start`, for the sources and what was opened for the program.

        The workbenches keep what is their own. Raises SetupError, naming the sources that could not be reset.
        """
        self.require_open()
        await close_each(self._programs)
        await self._common.reset()

    async def save_state(self) -> dict[str, Any]:
        """The state of the shared sources. See `Workbench.save_state`."""
        return await self._common.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Give the shared sources their state back. See `Workbench.load_state`."""
        await self._common.load_state(state)

    async def __aenter__(self) -> Self:
        await self._common.__aenter__()
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
        home = self._common._home  # pyright: ignore[reportPrivateUsage]
        door.run(self.stop(), home=home)

    def __repr__(self) -> str:
        return f"<Crib of {len(self.registry)} tools>"

    def _ended(self) -> None:
        with self._lock:
            made = list(self._made)
        for bench in (self._common, *made):
            bench.ended()

    # For its workbenches

    def require_open(self) -> None:
        """Raises SetupError after `stop`."""
        if self._is_stopped:
            raise SetupError("The crib is stopped, and its workbenches with it. Make a new Crib.")

    def program(self) -> Provided:
        """What was opened for the program on the running event loop."""
        loop = asyncio.get_running_loop()
        program = self._programs.get(loop)
        if program is None:
            self.require_open()
            program = self._programs[loop] = Provided("program", overrides=self._overrides)
        return program

    def keep(self, bench: Workbench) -> None:
        """*bench* has something to close, so it is not forgotten before it is stopped."""
        with self._lock:
            self._busy[bench] = None

    def let_go(self, bench: Workbench) -> None:
        with self._lock:
            self._busy.pop(bench, None)
            self._made.discard(bench)
