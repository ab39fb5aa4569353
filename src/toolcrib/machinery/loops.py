"""Threads and event loops, and the ways between them: sync work in threads, work that is handed over to a loop.

Sync work runs in a bounded pool of daemon threads, because a function that never returns must not keep the process from
ending. A call that is answered while its thread still works holds its permits until the thread has ended.
The wait for work on another loop always ends: a loop that has ended, or that does not begin the work in time, is
noticed here.
"""

import asyncio
import functools
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

from ..core import ToolError
from ..core.cancel import from_any_thread
from .semaphore import release_permits, share_permits
from .shares import share

T = TypeVar("T")

MAX_THREADS = 32
"""How many threads work at a time. Each further principal with work adds one."""
MAX_PARKED = 512
"""How many more may be left by their callers or wait for other calls. A principal has at most half of these."""
LONG_CHARS = 32 * 1024
"""Longer texts and values are read, searched and written in a thread, so that other calls get their turn."""
LOOK_INTERVAL_S = 0.1
BEGIN_TIMEOUT_S = 10.0
"""How long a loop may take to begin what is handed over to it."""

_LOG_IF_PENDING = "_log_destroy_pending"
"""An attribute of tasks: whether asyncio logs that one is dropped before its end."""


def call_later(seconds: float, work: Callable[[], object]) -> asyncio.TimerHandle:
    """Call *work* in so many *seconds*, on the loop that runs here, unless the timer is cancelled."""
    return asyncio.get_running_loop().call_later(seconds, work)


# Sync work in threads


class Escaped(Exception):
    """Wraps an exception that must not travel through an event loop: SystemExit, StopIteration and the like."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


def in_thread(work: Callable[[], T], *, principal: str = "", is_cleanup: bool = False) -> Awaitable[T]:
    """Start *work* in a worker thread under this task's context variables. Returns its value, to be awaited at once.

    The work is for *principal*. Of work that waits for a thread, that of the principal with the fewest is next.

    Raises what *work* raises; `Escaped` in place of what an event loop cannot carry; ToolError `limited` where too many
    threads are occupied for ever, but not for what *is_cleanup*, and `unavailable` where the system starts no thread.
    Cancelling the wait does not stop the work, and what the call holds is held until the work has ended.
    """
    return _threads(os.getpid()).begin(work, principal, is_cleanup=is_cleanup)


async def in_thread_if_long(work: Callable[[], T], data: Any) -> T:
    """Return the value of *work*, done in a thread where *data* is long."""
    return await in_thread(work) if is_long(data) else work()


def is_long(data: Any) -> bool:
    """Return whether *data*, text or JSON values, has more than `LONG_CHARS`. No more of it is looked at."""
    room = LONG_CHARS
    parts: list[Any] = [data] if type(data) is not dict or len(data) > 1000 else [*data, *data.values()]
    for part in parts:
        kind = type(part)
        if kind is str or kind is bytes:
            room -= len(part)
        elif kind is dict:
            room -= 8 * len(part)
            if room >= 0:
                parts += (*part, *part.values())
        elif kind is list or kind is tuple:
            room -= 4 * len(part) + 1
            if room >= 0:
                parts += part
        elif kind is int:
            room -= part.bit_length() >> 2
        else:
            continue
        if room < 0:
            return True
    return False


@contextmanager
def waiting() -> Generator[None]:
    """Wait in the block for other calls. If this is a worker thread, another may work in its place meanwhile."""
    job: _Job | None = getattr(_this_thread, "job", None)
    if job is None:
        yield
        return
    job.pool.park(job, 1)
    try:
        yield
    finally:
        job.pool.park(job, -1)


_this_thread = threading.local()
"""The `job` of a worker thread, and the `mailbox` of a thread with an event loop."""


class _Mailbox:
    """Finished jobs on their way to one event loop, in batches: waking a loop costs more than most of the work."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[_Job, Any, BaseException | None]] = deque()
        self._is_awake = False
        self._wake = from_any_thread(self._deliver)

    def post(self, job: "_Job", value: Any, error: BaseException | None) -> None:
        self._arrived.append((job, value, error))
        if not self._is_awake:
            self._is_awake = True
            self._wake()

    def _deliver(self) -> None:
        # First, so that whatever is posted from here on wakes the loop again.
        self._is_awake = False
        while self._arrived:
            job, value, error = self._arrived.popleft()
            if job.done():
                continue
            if error is None:
                job.set_result(value)
            else:
                job.set_exception(error)


class _Job(asyncio.Future[Any]):
    """Work, and its value, for the task that waits for it.

    One object and no coroutine: where thousands of calls wait at once, most of what a call costs is the memory that it
    holds meanwhile, which the garbage collector goes through again and again.
    """

    __slots__ = ("context", "is_abandoned", "is_running", "mailbox", "permits", "pool", "share", "work")

    share: "_Share"

    def __init__(self, work: Callable[[], Any], pool: "_Threads", mailbox: _Mailbox) -> None:
        super().__init__(loop=mailbox.loop)
        self.context = copy_context()
        self.work = work
        self.pool = pool
        self.mailbox = mailbox
        self.permits = share_permits()
        self.is_running = self.is_abandoned = False

    def cancel(self, msg: Any = None) -> bool:
        """Note that the waiting task has been cancelled."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self.pool.abandon(self)
        return is_cancelled

    def run(self) -> tuple[Any, BaseException | None]:
        """Return the value of the work, or the error that it has raised."""
        try:
            return self.context.run(self.work), None
        except (StopIteration, StopAsyncIteration) as error:
            return None, Escaped(error)
        except Exception as error:
            return None, error
        except BaseException as error:
            return None, Escaped(error)


class _Share:
    """What one principal has of the threads: work that waits and that runs, and threads that are parked."""

    __slots__ = ("jobs", "parked", "principal", "unfinished")

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.jobs: deque[_Job] = deque()
        self.unfinished = self.parked = 0

    @property
    def running(self) -> int:
        return self.unfinished - len(self.jobs)


class _Threads:
    """At most *size* threads that work, started as they are needed.

    A thread is parked while its caller has given up, so that work that never returns does not exhaust the pool, or
    while it waits for another call, which may need a thread itself. For each parked thread there may be one more, and
    for each principal but one, so that no principal waits for the work of others.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._shares: dict[str, _Share] = {}  # of principals with unfinished work
        self._idle: list[threading.Lock] = []  # each is what a thread waits for; the last that worked works next
        self._lock = threading.Lock()
        self._alive = self._unfinished = self._parked = 0

    def begin(self, work: Callable[[], T], principal: str, *, is_cleanup: bool) -> Awaitable[T]:
        parked = 0 if (own := self._shares.get(principal)) is None else own.parked
        if parked >= share(MAX_PARKED, self._parked - parked) and not is_cleanup:
            raise ToolError(
                f"{parked or self._parked} calls have never returned, or wait for calls that they have made, and no "
                "thread is left for this one. Try again when they have ended.",
                "limited",
            )
        loop = asyncio.get_running_loop()
        mailbox: _Mailbox | None = getattr(_this_thread, "mailbox", None)
        if mailbox is None or mailbox.loop is not loop:  # the loop that this thread ran before has ended
            mailbox = _this_thread.mailbox = _Mailbox(loop)
        job = _Job(work, self, mailbox)
        with self._lock:
            job.share = self._shares.setdefault(principal, _Share(principal))
            job.share.jobs.append(job)
            job.share.unfinished += 1
            self._unfinished += 1
            idle = self._idle.pop() if self._idle else None
            if idle is None:
                self._grow()
        if idle is not None:
            idle.release()
        return job

    def abandon(self, job: _Job) -> None:
        """Note that no task waits for *job* any more. Work that has not begun never begins."""
        permits: Any = ()
        with self._lock:
            if job.is_running:
                job.is_abandoned = True
                self._park(job, 1)
            else:
                permits, job.permits = job.permits, ()
        release_permits(permits)

    def park(self, job: _Job, number: int) -> None:
        """Note that *number* more threads of the principal of *job* wait for others."""
        with self._lock:
            self._park(job, number)

    # With the lock held

    def _park(self, job: _Job, number: int) -> None:
        job.share.parked += number
        self._parked += number
        self._grow()

    @property
    def _most(self) -> int:
        return self._size + self._parked + max(0, min(len(self._shares) - 1, MAX_PARKED))

    def _grow(self) -> None:
        if self._alive < min(self._unfinished, self._most):
            try:
                threading.Thread(target=self._serve, name=f"toolcrib-{self._alive + 1}", daemon=True).start()
            except RuntimeError:
                self._refuse()
            else:
                self._alive += 1

    def _refuse(self) -> None:
        """End what waits for a thread, where the system starts none and those that there are wait themselves."""
        while self._alive <= self._parked and (job := self._next()) is not None:
            self._end(job)
            permits, job.permits = job.permits, ()
            release_permits(permits)
            # What is for no principal may be to read, or to store, what the work of the call has returned.
            effect = " Nothing has run." if job.share.principal else ""
            message = f"The system starts no thread for this call.{effect} Try again later."
            job.mailbox.post(job, None, ToolError(message, "unavailable"))

    def _next(self) -> _Job | None:
        """Return the work that is next: of the principal who has the fewest threads."""
        waiting = [share for share in self._shares.values() if share.jobs]
        return min(waiting, key=lambda of: of.running).jobs.popleft() if waiting else None

    def _end(self, job: _Job) -> None:
        self._unfinished -= 1
        job.share.unfinished -= 1
        if not job.share.unfinished:
            del self._shares[job.share.principal]

    def _serve(self) -> None:
        wake = threading.Lock()
        wake.acquire()
        is_needed = True
        while is_needed:
            with self._lock:
                job = self._next()
                if job is None:
                    self._idle.append(wake)
                else:
                    job.is_running = not job.cancelled()
            if job is None:
                wake.acquire()
                continue
            _this_thread.job = job
            value, error = job.run() if job.is_running else (None, None)
            _this_thread.job = None
            with self._lock:
                job.is_running = False
                self._parked -= job.is_abandoned
                job.share.parked -= job.is_abandoned
                self._end(job)
                is_needed = self._alive <= self._most
                self._alive -= not is_needed
                permits, job.permits = job.permits, ()
            release_permits(permits)
            job.mailbox.post(job, value, error)
            del job, value, error  # not kept alive while waiting for the next job


@functools.cache
def _threads(process: int) -> _Threads:
    # By process: threads do not survive a fork, and the child needs its own.
    return _Threads(MAX_THREADS)


# Work on another event loop


class LoopEnded(ToolError):
    """An event loop has ended, and with it the work that it was given."""

    def __init__(self) -> None:
        super().__init__("The event loop that ran this has ended. What had been done by then is done.", "lost")


class NeverBegun(LoopEnded):
    """An event loop has ended before it began the work, which another one may do."""


def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Return the value of *work*, run on *loop*, which runs in another thread than this one.

    Raises LoopEnded where the loop ends first, and ToolError where the work cannot begin.
    """
    handover = Handed(loop, lambda: work)
    try:
        return handover.wait()
    finally:
        if handover.is_void:
            work.close()


def run_here() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Return what runs work on the running loop, from other threads."""
    return partial(run_on, asyncio.get_running_loop())


class Handed(Generic[T]):
    """Work that is given to a loop: a task there, under a copy of this context.

    Its future is pending until the first step of the task, then running. A caller that waits no longer cancels it while
    it is pending; so does the task where *may_begin* says no on the loop: the work `is_void` then, and never begins.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        begin: Callable[[], Coroutine[Any, Any, T]],
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self._loop = loop
        self._may_begin = may_begin
        self._begin = begin
        self._due = monotonic() + BEGIN_TIMEOUT_S
        self._coroutine: Coroutine[Any, Any, None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._future: Future[T] = Future()

    @property
    def is_void(self) -> bool:
        return self._future.cancelled()

    def wait(self) -> T:
        """Return the value, for sync code.

        Raises NeverBegun or LoopEnded where the loop ends first, and ToolError where the work cannot begin.
        """
        try:
            self._start()
            with waiting():
                while not self._future.done():
                    wait([self._future], LOOK_INTERVAL_S)
                    self._require_alive()
            return self._value()
        finally:
            self._give_up()

    async def value(self) -> T:
        """Return the value. Raises as `wait` does."""
        arrived = asyncio.Event()
        wake = from_any_thread(arrived.set)
        try:
            self._start()
            self._future.add_done_callback(lambda _: wake())
            while not self._future.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_INTERVAL_S):
                        await arrived.wait()
                self._require_alive()
            return self._value()
        finally:
            self._give_up()

    def _start(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._create_task)
        except RuntimeError:  # it is closed
            raise NeverBegun from None

    def _create_task(self) -> None:
        # A task that is made in the last round of its loop is never stepped. Nothing is lost then, and nothing logged.
        self._coroutine = self._run()
        self._task = self._loop.create_task(self._coroutine)
        setattr(self._task, _LOG_IF_PENDING, False)
        self._task.add_done_callback(lambda _: self._future.cancel())  # where it was cancelled before its first step

    async def _run(self) -> None:
        # By itself, and not by a callback of the task, which may come after the last round of the loop.
        future = self._future
        if not self._may_begin():
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        setattr(self._task, _LOG_IF_PENDING, True)
        try:
            future.set_result(await self._begin())
        except (asyncio.CancelledError, NeverBegun) as error:
            # With its loop, or by `_give_up`; or what this work has handed over in its turn never began.
            future.set_exception(LoopEnded())
            if isinstance(error, asyncio.CancelledError):
                raise
        except BaseException as error:
            future.set_exception(error)
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):  # others are for who waits alone
                raise

    def _value(self) -> T:
        if self.is_void:
            raise NeverBegun
        return self._future.result()

    def _require_alive(self) -> None:
        """Raise LoopEnded where the loop has ended, and ToolError where it does not begin the work."""
        if self._future.done():
            return
        if self._loop.is_running():
            if monotonic() > self._due and self._future.cancel():
                raise ToolError(
                    f"The event loop that would run this has been busy for {BEGIN_TIMEOUT_S:g} s. Nothing has run. "
                    "Try again later.",
                    "unavailable",
                )
        elif self._future.cancel():  # it never began
            if self._coroutine is not None and self._loop.is_closed():
                self._coroutine.close()
        elif not self._future.done():
            raise LoopEnded

    def _give_up(self) -> None:
        """Cancel the work where it still runs, and never begin it where it does not."""
        if not self._future.done() and not self._future.cancel() and self._task is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._task.cancel)


class PerLoop(Generic[T]):
    """A value for each event loop that uses one, made by *make*, such as connections, which fail on another loop."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """Return the value of the running loop, made at the first call."""
        loop = asyncio.get_running_loop()
        if loop not in self._values:
            self._values = {key: value for key, value in self._values.items() if not key.is_closed()}
            self._values[loop] = self._make()
        return self._values[loop]

    def pop(self) -> T | None:
        """Return the value of the running loop, for the caller to end; None where there is none."""
        return self._values.pop(asyncio.get_running_loop(), None)
