"""What runs of the sources of a crib or a workbench: in order at the start, in reverse at the stop, again when lost.

Required sources start all or none. Any other one starts on its own: it costs its own tools, and no others.
"""

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..core import SetupError, Source
from ..machinery import create_lasting_task, from_any_thread

_log = logging.getLogger("toolcrib")

# An event loop does not keep its tasks: what runs for a workbench that was dropped would be collected, never stopped.
_running: "set[SourceLife]" = set()

PATIENCE_S = 5.0
"""How long a start, or a call of a tool, waits for a source that is not required."""
START_S = 60.0
"""How long one attempt to start it may take."""
_LONGEST_PAUSE_S = 60.0


class SharedTask:
    """Does something once for all who ask for it at the same time.

    It goes on as long as a caller waits: it is cancelled when the last of them is.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._waiters = 0
        self._is_cancelled = False

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait until *work*, or what was begun before it, is done. Raises what that raises."""
        if self._task is None or self._task.done():
            self._task = create_lasting_task(_awaited(work))
            self._waiters, self._is_cancelled = 0, False
        task = self._task
        self._waiters += 1
        try:
            await asyncio.wait({task})
        finally:
            self._waiters -= 1
            if not self._waiters and not task.done():
                await self.cancel()
        if task.cancelled():
            raise SetupError("The start was cancelled.")
        task.result()

    async def cancel(self) -> None:
        """Cancel what is being done, if anything is, and wait until it has ended."""
        task = self._task
        if task is None or task.done():
            return
        if not self._is_cancelled:
            self._is_cancelled = True
            task.cancel()  # once: a second time, it would not wait for what it is stopping
        await asyncio.wait({task})


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


class Lifespan:
    """The sources that run for a crib or a workbench.

    *describe* is the text of an error. *in_use* is whether any tool of a source is still there. *changed* is called
    with a source when it has started later than the others, or is lost, with the reason.
    """

    def __init__(
        self,
        *,
        describe: Callable[[BaseException], str],
        in_use: Callable[[Any], bool],
        changed: Callable[[Any, str | None], None],
    ) -> None:
        self._describe = describe
        self._in_use = in_use
        self._changed = changed
        self._lives: dict[int, SourceLife] = {}  # by source, in order of their start
        self._whole = SharedTask()
        self._starts: dict[int, SharedTask] = {}
        self._retries: dict[int, _Retry] = {}
        self._left: list[SourceLife] = []  # of an event loop that has ended
        self._is_closed = False

    @property
    def lives(self) -> "list[SourceLife]":
        """What runs, in order of its start, without objects of which no tool is left."""
        return [life for life in self._lives.values() if self._in_use(life.source)]

    async def start(self, sources: Sequence[Any], then: Callable[[], None]) -> None:
        """Start *sources*, and call *then*, once for all who ask at the same time.

        Where a required one fails, or *then*, those before it are stopped. Raises SetupError, naming the source.
        """

        if not sources:
            then()
            return

        async def start() -> None:
            try:
                for source in sources:
                    if getattr(source, "required", True):
                        await self._begin(source)
                then()
            except BaseException:
                await self._stop_all()
                raise
            for source in sources:
                if not getattr(source, "required", True):
                    self._try(source)

        await self._whole.run(start)

    async def settle(self) -> None:
        """Wait for the first attempt of each source that is not required, but not for long."""
        attempts = [retry.first for retry in self._retries.values() if not retry.first.done()]
        if attempts:
            await asyncio.wait(attempts, timeout=PATIENCE_S)

    async def run(self, source: Any) -> None:
        """Wait until *source* runs. Raises SetupError: at once where it has failed, and is being tried again."""
        if id(source) in self._lives and not self._is_closed:
            return
        if not getattr(source, "required", True) and id(source) not in self._retries and not self._is_closed:
            self._try(source)
        retry = self._retries.get(id(source))
        if retry is None:
            await self._starts.setdefault(id(source), SharedTask()).run(partial(self._begin, source))
        else:
            await self.settle()
            retry = self._retries.get(id(source), retry)
            if id(source) not in self._lives:
                raise SetupError(f"The source {name_of(source)} is not available: {retry.reason}")
        self._require_open(source)

    async def stop(self, *, for_good: bool = True) -> None:
        """Stop what runs, in reverse. What fails to stop is logged, and the others are stopped."""
        self._is_closed = for_good
        await self._whole.cancel()
        for start in list(self._starts.values()):
            await start.cancel()
        while self._retries:
            _, retry = self._retries.popitem()
            await _cancel(retry.task)
            if retry.lost is not None:
                await _stop_lost(retry.lost)
        await self._stop_all()

    def reopen(self) -> None:
        """Let sources be started again after `stop`."""
        self._is_closed = False

    def end(self) -> None:
        """Forget what ran on an event loop that has ended. What was not stopped there, the next start stops first."""
        self._left += self._lives.values()
        for tasks in (self._lives, self._starts, self._retries):
            tasks.clear()
        self._whole = SharedTask()

    async def reset(self) -> None:
        """Reset what runs. Raises SetupError, naming what could not be; the others are reset."""
        failures: list[tuple[str, Exception]] = []
        for life in list(self._lives.values()):
            if (reset := getattr(life.source, "reset", None)) is not None:
                try:
                    await value_of(reset)
                except Exception as error:
                    failures.append((life.name, error))
        if failures:
            names, first = ", ".join(name for name, _ in failures), failures[0][1]
            raise SetupError(f"The source {names} could not be reset: {self._describe(first)}") from first

    def is_tried(self, source: Any) -> bool:
        """Return whether *source* does not run, and is tried again."""
        return id(source) in self._retries

    def unlisted(self) -> list[Any]:
        """Return the sources that do not run, and whose tools are known only when they do."""
        return [retry.source for retry in self._retries.values() if getattr(retry.source, "listed_at_start", False)]

    def runs(self, source: Any) -> bool:
        return id(source) in self._lives

    # Inside

    async def _begin(self, source: Any, limit_s: float | None = None) -> None:
        self._require_open(source)
        if id(source) in self._lives:
            return
        while self._left:
            await self._left.pop().end()
        # First, since it may hold what this one needs.
        for unused in [life for life in self._lives.values() if not self._in_use(life.source)]:
            del self._lives[id(unused.source)]
            await unused.stop()
        life = SourceLife(source, name_of(source), describe=self._describe, on_lost=self._lost)
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                await life.start()
        except Exception as error:
            cause = TimeoutError(f"it took longer than {limit_s:g} s") if limit.expired() else error
            raise _NotStarted(life.name, self._describe(cause)) from error
        self._lives[id(source)] = life  # a stop of this lifespan waits for it from here on
        if self._is_closed:
            await life.stop()
            self._lives.pop(id(source), None)

    def _try(self, source: Any, lost: "SourceLife | None" = None) -> None:
        """Start *source* in a task of its own, again and again until it runs."""
        retry = self._retries[id(source)] = _Retry(source, lost)
        retry.task = create_lasting_task(self._keep_trying(source, retry))

    async def _keep_trying(self, source: Any, retry: "_Retry") -> None:
        pause_s: float = getattr(source, "restart_after_s", 1.0)
        if retry.lost is not None:
            await _stop_lost(retry.lost)
            retry.lost = None
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - it protects nothing
        while True:
            impatience = retry.task.get_loop().call_later(PATIENCE_S, self._report_slow, source, retry)
            try:
                await self._begin(source, START_S)
            except Exception as error:
                retry.reason = error.reason if isinstance(error, _NotStarted) else self._describe(error)
                _log.warning("%s; it is tried again in %.1f s", self._describe(error).rstrip("."), pause_s)
                self._changed(source, retry.reason)
            else:
                self._retries.pop(id(source), None)
                self._changed(source, None)
                return
            finally:
                impatience.cancel()
                retry.settle()
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _report_slow(self, source: Any, retry: "_Retry") -> None:
        """Report that its start takes longer than callers wait for it."""
        retry.reason = "it has not started yet"
        _log.warning("The source %s has not started yet", name_of(source))
        self._changed(source, retry.reason)
        retry.settle()

    def _lost(self, life: "SourceLife") -> None:
        """Start *life* again: on its loop, it has reported that it died."""
        if self._lives.get(id(life.source)) is life and not self._is_closed:
            del self._lives[id(life.source)]
            _log.warning("The source %s was lost and is started again", life.name)
            self._try(life.source, lost=life)
            self._changed(life.source, self._retries[id(life.source)].reason)

    async def _stop_all(self) -> None:
        while self._lives:
            _, life = self._lives.popitem()
            await life.stop()

    def _require_open(self, source: Any) -> None:
        if self._is_closed:
            raise SetupError(f"The source {name_of(source)} was stopped with its workbench.")


class _NotStarted(SetupError):
    """The source *name* could not be started. *reason* is why, without the name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"The source {name} could not be started: {reason}")
        self.reason = reason


class _Retry:
    """The attempts to start *source*, once *lost*, its life until now, is stopped.

    `first` is done when callers need not wait for the first of them any more, `reason` is why the last has failed.
    """

    task: asyncio.Task[None]

    def __init__(self, source: Any, lost: "SourceLife | None") -> None:
        self.source = source
        self.lost = lost
        self.reason = "it is still starting" if lost is None else "it was lost"
        self.first: asyncio.Future[None] = asyncio.Future()

    def settle(self) -> None:
        if not self.first.done():
            self.first.set_result(None)


class SourceLife:
    """One source, from its start to its stop, in a task of its own.

    One task, because what holds a cancel scope or a task group (most clients do) may only be left by the task that
    entered it. *on_lost* is called where the source reports that it died.
    """

    def __init__(
        self,
        source: Any,
        name: str,
        *,
        describe: Callable[[BaseException], str],
        on_lost: Callable[["SourceLife"], None],
    ) -> None:
        self.source = source
        self.name = name
        self._report_lost = from_any_thread(lambda: on_lost(self))
        self._describe = describe
        self._started: asyncio.Future[None] = asyncio.Future()
        self._closing = asyncio.Event()
        self._is_stopped = False
        self._task = create_lasting_task(self._live())
        _running.add(self)
        self._task.add_done_callback(self._done)

    async def start(self) -> None:
        """Wait until it is started. Raises what its `start` raises. Cancelled, it leaves nothing running."""
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise

    async def stop(self) -> None:
        """Stop it. Where that fails, it is logged."""
        self._closing.set()
        await asyncio.wait({self._task})

    async def end(self) -> None:
        """Stop it on another event loop than the one that it was started on, and which has ended."""
        _running.discard(self)
        await self._stop()

    async def abandon(self) -> None:
        """End a stop that does not end."""
        _log.warning("The source %s has not stopped within %g s; its stop is cancelled", self.name, PATIENCE_S)
        await _cancel(self._task)

    async def _live(self) -> None:
        try:
            await value_of(self.source.start)
        except BaseException as error:
            if self._started.done():
                raise
            if isinstance(error, asyncio.CancelledError) and not self._task.cancelling():
                error = RuntimeError("its start was cancelled from inside")  # by a cancel scope of its own
            if isinstance(error, SystemExit):
                error = RuntimeError("its start called sys.exit")  # which ends no event loop
            if isinstance(error, Exception):
                self._started.set_exception(error)
                self._started.exception()  # retrieved, also when no caller waits any more
                return
            self._started.cancel()
            raise
        if not self._started.done():
            self._started.set_result(None)
        listen = getattr(self.source, "on_lost", None)
        unlink = None if listen is None else listen(self._report_lost)
        try:
            await self._closing.wait()
        except asyncio.CancelledError:
            await self._stop()  # the loop ends
            raise
        finally:
            if unlink is not None:
                unlink()
        await self._stop()

    def _done(self, _: asyncio.Task[None]) -> None:
        _running.discard(self)
        self._started.cancel()  # where it was cancelled before it began

    async def _stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        try:
            await value_of(self.source.stop)
        except (Exception, SystemExit) as error:
            _log.error("The source %s failed to stop: %s", self.name, self._describe(error))


def name_of(source: Any) -> str:
    """Return the name of *source*. Nothing of what is in an object: there may be secrets in it."""
    is_ours = type(source).__module__.startswith("toolcrib.")
    if is_ours and isinstance(name := getattr(source, "name", None), str):
        return name
    is_named = any("__str__" in vars(base) for base in type(source).__mro__[:-1])
    if is_named and (is_ours or isinstance(source, str | Path) or Source in type(source).__mro__):
        return str(source)
    return getattr(source, "__name__", type(source).__name__)


async def _stop_lost(life: SourceLife) -> None:
    """Stop what is lost, which may not answer any more."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await life.stop()
            return
    await life.abandon()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def value_of(work: Callable[[], Any]) -> Any:
    """Return the value of *work*, plain or async."""
    value = work()
    return await value if inspect.isawaitable(value) else value


def unique(sources: Iterable[Any]) -> list[Any]:
    """Return *sources*, each once, in order."""
    return list({id(source): source for source in sources}.values())
