"""Start sources in order, stop them in reverse, and start again those that die.

Required sources start all or none. Any other one starts on its own: it costs its own tools, and no others. Their saved
state is JSON data with a version, by source; it loads all or nothing.
"""

import asyncio
import inspect
import json
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..core import SetupError, Source
from ..machinery import call_later, create_lasting_task, from_any_thread

_log = logging.getLogger("toolcrib")

# An event loop does not keep its tasks: what runs for a workbench that was dropped would be collected, never stopped.
_running: set[asyncio.Task[None]] = set()

PATIENCE_S = 5.0
"""How long a start, or a call of a tool, waits for a source that is not required."""
START_TIMEOUT_S = 60.0
"""How long one attempt to start it may take, and the longest pause before the next."""

STATE_VERSION = 1


class SharedTask:
    """Does something once for all who ask for it at the same time.

    It goes on as long as a caller waits: it is cancelled when the last of them is.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._waiters = 0
        self._is_cancelled = False

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait until *work*, or what was begun before it, is done. Raises what that raises."""
        if self._task is None or self._task.done():
            self._task = create_lasting_task(work())
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


class Lifespan:
    """The sources that run for a crib or a workbench.

    *describe* is the text of an error. *in_use* is whether any tool of a source is still there. *changed* is called
    with a source when it has started later than the others, or does not run, with the reason.
    """

    def __init__(
        self,
        *,
        describe: Callable[[BaseException], str],
        in_use: Callable[[Any], bool],
        changed: Callable[[Any, str | None], None],
    ) -> None:
        self.describe = describe
        self.changed = changed
        self._in_use = in_use
        self._lives: dict[int, SourceLife] = {}  # by source, in order of their start
        self._whole = SharedTask()
        self._starts: dict[int, SharedTask] = {}
        self._left: list[SourceLife] = []  # of an event loop that has ended
        self._is_closed = False
        self.patience_s = PATIENCE_S

    @property
    def lives(self) -> "list[SourceLife]":
        """What runs, in order of its start, without objects of which no tool is left."""
        return [life for life in self._lives.values() if life.is_running and self._in_use(life.source)]

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
        attempts = [life.attempt for life in self._lives.values() if not life.attempt.done()]
        if attempts:
            await asyncio.wait(attempts, timeout=self.patience_s)

    async def run(self, source: Any) -> None:
        """Wait until *source* runs. Raises SetupError: at once where it has failed, and is being tried again."""
        self._require_open(source)
        life = self._lives.get(id(source))
        if life is None and not getattr(source, "required", True):
            life = self._try(source)
        if life is None:
            await self._starts.setdefault(id(source), SharedTask()).run(partial(self._begin, source))
        elif not life.is_running:
            await self.settle()
            if not life.is_running:
                raise SetupError(f"The source {life.name} is not available: {life.reason}")
        self._require_open(source)

    async def stop(self, *, for_good: bool = True) -> None:
        """Stop what runs, in reverse. What fails to stop is logged, and the others are stopped."""
        self._is_closed = for_good
        await self._whole.cancel()
        for start in list(self._starts.values()):
            await start.cancel()
        await self._stop_all()

    def reopen(self) -> None:
        """Let sources be started again after `stop`."""
        self._is_closed = False

    def end(self) -> None:
        """Forget what ran on an event loop that has ended. What was not stopped there, the next start stops first."""
        self._left += (life for life in self._lives.values() if life.is_running)
        self._lives.clear()
        self._starts.clear()
        self._whole = SharedTask()

    async def reset(self) -> None:
        """Reset what runs. Raises SetupError, naming what could not be; the others are reset."""
        failures: list[tuple[str, Exception]] = []
        for life in [life for life in self._lives.values() if life.is_running]:
            if (reset := getattr(life.source, "reset", None)) is not None:
                try:
                    await value_of(reset)
                except Exception as error:
                    failures.append((life.name, error))
        if failures:
            names, first = ", ".join(name for name, _ in failures), failures[0][1]
            raise SetupError(f"The source {names} could not be reset: {self.describe(first)}") from first

    def is_tried(self, source: Any) -> bool:
        """Return whether *source* does not run, and is tried again."""
        return id(source) in self._lives and not self.runs(source)

    def unlisted(self) -> list[Any]:
        """Return the sources that do not run, and whose tools are known only when they do."""
        idle = [life.source for life in self._lives.values() if not life.is_running]
        return [source for source in idle if getattr(source, "listed_at_start", False)]

    def runs(self, source: Any) -> bool:
        life = self._lives.get(id(source))
        return life is not None and life.is_running

    async def make_ready(self) -> None:
        """Stop what nothing uses before another source starts: it may hold what this one needs."""
        while self._left:
            await self._left.pop().end()
        unused = [life for life in self._lives.values() if life.is_running and not self._in_use(life.source)]
        for life in unused:
            del self._lives[id(life.source)]
            await life.stop()

    # Inside

    async def _begin(self, source: Any) -> None:
        """Start *source*, which is required: once, and without it nothing runs."""
        self._require_open(source)
        if id(source) in self._lives:
            return
        life = SourceLife(source, self)
        await life.start()
        self._lives[id(source)] = life  # a stop of this lifespan waits for it from here on
        if self._is_closed:
            await life.stop()
            self._lives.pop(id(source), None)

    def _try(self, source: Any) -> "SourceLife":
        life = self._lives[id(source)] = SourceLife(source, self)
        life.keep_trying()
        return life

    async def _stop_all(self) -> None:
        while self._lives:
            _, life = self._lives.popitem()
            await life.stop()

    def _require_open(self, source: Any) -> None:
        if self._is_closed:
            raise SetupError(f"The source {name_of(source)} was stopped with its workbench.")


class SourceLife:
    """One source, from its first start to its last stop: it is started, or runs, or is tried again after a pause.

    Each start and the stop after it are one task, because what holds a cancel scope or a task group (most clients do)
    may only be left by the task that entered it. What is not required, or was lost, has a second task, which tries.
    """

    def __init__(self, source: Any, lifespan: Lifespan) -> None:
        self.source = source
        self.name = name_of(source)
        self.is_running = False
        self.reason = "it is still starting"
        """Why it does not run."""
        self.attempt: asyncio.Future[None] = asyncio.Future()
        """Done when callers need not wait any more: it runs, or has failed, or takes long."""
        self._lifespan = lifespan
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._trying: asyncio.Task[None] | None = None

    async def start(self, timeout_s: float | None = None) -> None:
        """Start it once. Raises SetupError. Cancelled, it leaves nothing running."""
        await self._lifespan.make_ready()
        outcome: asyncio.Future[None] = asyncio.Future()
        self._closing = asyncio.Event()
        task = self._task = create_lasting_task(self._live(outcome, self._closing))
        _running.add(task)
        task.add_done_callback(_running.discard)
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                try:
                    await asyncio.shield(outcome)
                except asyncio.CancelledError:
                    await _cancel(task)
                    raise
        except Exception as error:
            cause = TimeoutError(f"it took longer than {timeout_s:g} s") if limit.expired() else error
            self.reason = self._lifespan.describe(cause)
            raise SetupError(f"The source {self.name} could not be started: {self.reason}") from error
        self.is_running = True
        self._settle()

    def keep_trying(self) -> None:
        """Start it in a task of its own, again and again until it runs."""
        self._trying = create_lasting_task(self._keep_trying())

    async def stop(self) -> None:
        """Stop it. Where that fails, it is logged."""
        if self._trying is not None:
            await _cancel(self._trying)
            self._settle()
        # What was lost may not answer any more.
        await self._close(None if self.is_running else PATIENCE_S)

    async def end(self) -> None:
        """Stop it on another event loop than the one that it was started on, and which has ended."""
        if self._task is not None and not self._task.done():  # else it was cancelled with its loop, and stopped
            _running.discard(self._task)
            await self._stop()

    async def _keep_trying(self) -> None:
        pause_s: float = getattr(self.source, "restart_after_s", 1.0)
        if self._task is not None:  # it was lost
            await self._close(PATIENCE_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - it protects nothing
        while not self.is_running:
            impatience = call_later(self._lifespan.patience_s, self._report_slow)
            try:
                await self.start(START_TIMEOUT_S)
            except Exception as error:
                text = self._lifespan.describe(error)
                _log.warning("%s; it is tried again in %.1f s", text.rstrip("."), pause_s)
                self._lifespan.changed(self.source, self.reason)
            finally:
                impatience.cancel()
                self._settle()
            if not self.is_running:
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
                pause_s = min(2 * pause_s, START_TIMEOUT_S)
        self._trying = None
        self._lifespan.changed(self.source, None)

    def _settle(self) -> None:
        if not self.attempt.done():
            self.attempt.set_result(None)

    def _report_slow(self) -> None:
        """Report that its start takes longer than callers wait for it."""
        self.reason = "it has not started yet"
        _log.warning("The source %s has not started yet", self.name)
        self._lifespan.changed(self.source, self.reason)
        self._settle()

    def _lost(self) -> None:
        """Start it again: on its loop, it has reported that it died."""
        if self.is_running and not self._closing.is_set():
            self.is_running, self.reason, self.attempt = False, "it was lost", asyncio.Future()
            _log.warning("The source %s was lost and is started again", self.name)
            self.keep_trying()
            self._lifespan.changed(self.source, self.reason)

    async def _live(self, started: asyncio.Future[None], closing: asyncio.Event) -> None:
        try:
            await value_of(self.source.start)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling():
                error = RuntimeError("its start was cancelled from inside")  # by a cancel scope of its own
            if isinstance(error, SystemExit):
                error = RuntimeError("its start called sys.exit")  # which ends no event loop
            if not isinstance(error, Exception):
                started.cancel()
                raise
            if not started.done():
                started.set_exception(error)
                started.exception()  # retrieved, also when no caller waits any more
            return
        if not started.done():
            started.set_result(None)
        listen = getattr(self.source, "on_lost", None)
        unlink = None if listen is None else listen(from_any_thread(self._lost))
        try:
            await closing.wait()
        finally:  # also where the loop ends
            if unlink is not None:
                unlink()
            await self._stop()

    async def _stop(self) -> None:
        try:
            await value_of(self.source.stop)
        except (Exception, SystemExit) as error:
            _log.error("The source %s failed to stop: %s", self.name, self._lifespan.describe(error))

    async def _close(self, timeout_s: float | None) -> None:
        """Have its task stop the source, and cancel a stop that takes longer than *timeout_s*."""
        if self._task is None:
            return
        self._closing.set()
        await asyncio.wait({self._task}, timeout=timeout_s)
        if not self._task.done():
            _log.warning("The source %s has not stopped within %g s; its stop is cancelled", self.name, timeout_s)
            await _cancel(self._task)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def value_of(work: Callable[[], Any]) -> Any:
    """Return the value of *work*, plain or async."""
    value = work()
    return await value if inspect.isawaitable(value) else value


def name_of(source: Any) -> str:
    """Return the name of *source*. Nothing of what is in an object: there may be secrets in it."""
    is_ours = type(source).__module__.startswith("toolcrib.")
    if is_ours and isinstance(name := getattr(source, "name", None), str):
        return name
    is_named = any("__str__" in vars(base) for base in type(source).__mro__[:-1])
    if is_named and (is_ours or isinstance(source, str | Path) or Source in type(source).__mro__):
        return str(source)
    return getattr(source, "__name__", type(source).__name__)


# The saved state of sources


async def save_state(lives: Iterable[SourceLife]) -> dict[str, Any]:
    """Return the state of each source that has one, as JSON data. Raises ToolcribError."""
    states: dict[str, Any] = {}
    for key, life in by_key(lives).items():
        state = await value_of(life.source.save_state)
        if state is not None:
            states[key] = _as_json(state, f"The state of {life.name}")
    return {"version": STATE_VERSION, "sources": states}


async def load_state(
    lives: Iterable[SourceLife], states: Mapping[str, Any], *, describe: Callable[[BaseException], str]
) -> None:
    """Give each source named in *states* its state: all of them, or none. Raises SetupError."""
    keyed = by_key(lives)

    def misfit(key: str, error: Exception) -> SetupError:
        return SetupError(f"The state of '{key}' cannot be loaded, so none is: {describe(error)}")

    for key, state in states.items():
        # What can be checked without changing anything is checked before anything is changed.
        if (check := getattr(keyed[key].source, "check_state", None)) is not None:
            try:
                check(state)
            except Exception as error:
                raise misfit(key, error) from error
    done: list[tuple[SourceLife, Any]] = []
    for key, state in states.items():
        life = keyed[key]
        try:
            before = await value_of(life.source.save_state)
            await value_of(partial(life.source.load_state, state))
        except BaseException as error:
            for earlier, state_before in reversed(done):
                await _restore(earlier, state_before)
            if not isinstance(error, Exception):
                raise
            raise misfit(key, error) from error
        done.append((life, before))


def by_key(lives: Iterable[SourceLife]) -> dict[str, SourceLife]:
    """Return what runs and may have state, by the names it is saved under. Raises SetupError for two of one name."""
    lives_by_key: dict[str, SourceLife] = {}
    for life in lives:
        if not hasattr(life.source, "load_state") or not hasattr(life.source, "save_state"):
            continue
        key = getattr(life.source, "state_key", None) or type(life.source).__name__
        if key in lives_by_key:
            raise SetupError(
                f"Two sources save their state under one name, '{key}'. Give one of them another with state_key."
            )
        lives_by_key[key] = life
    return lives_by_key


def states_in(state: Any) -> Mapping[str, Any]:
    """Return the states of sources in what `save_state` returned. Raises SetupError for anything else."""
    if not isinstance(state, Mapping):
        hint = " Read it first: json.loads(text)." if isinstance(state, str | bytes) else ""
        raise SetupError(f"A saved state is the mapping that save_state returned, not {type(state).__name__}.{hint}")
    version, sources = state.get("version"), state.get("sources")
    if version != STATE_VERSION:
        number = version if isinstance(version, int) else "none"
        raise SetupError(
            f"The state is of version {number}, and version {STATE_VERSION} is read here. Load it with the release of "
            "Toolcrib that saved it."
        )
    if not isinstance(sources, Mapping):
        raise SetupError("The sources of a saved state are a mapping from their names to their states.")
    return sources


def require_known(states: Mapping[str, Any], known: Sequence[str], shared: Collection[str] = ()) -> None:
    """Raise SetupError for state of a source that is not here: not *known*, or of those *shared* by all callers."""
    from ..schema import closest_match, did_you_mean, display_name

    for key in states:
        if key not in known:
            if key in shared:
                raise SetupError(
                    f"The state of '{key}' is shared by all callers, so the crib loads it: crib.load_state."
                )
            hint = did_you_mean(closest_match(str(key), known))
            list_hint = f" There are: {', '.join(known)}." if known else " No source here has any."
            raise SetupError(f"There is state of '{display_name(str(key))}', and no such source here.{hint}{list_hint}")


def _as_json(value: Any, label: str) -> Any:
    """Return *value* as JSON data of its own. Raises SetupError where it is not JSON."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise SetupError(f"{label} is not JSON data: {error}.") from None


async def _restore(life: SourceLife, state: Any) -> None:
    try:
        if state is not None:
            await value_of(partial(life.source.load_state, state))
    except Exception:
        _log.exception("The earlier state of the source %s could not be restored", life.name)
