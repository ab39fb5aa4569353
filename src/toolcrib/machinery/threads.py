"""Where sync work runs: a bounded pool of daemon threads, whose results wake the event loop in batches.

Daemon threads, because a function that never returns must not keep the process from ending. In batches, because a
wake-up of the loop costs more than most of the work that is waited for. A call that is answered while its thread still
works holds its permits until the thread has ended.
"""

import asyncio
import contextvars
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..core import ToolError
from .semaphore import release_permits, share_permits

T = TypeVar("T")

MAX_THREADS = 32
"""How many threads work at a time."""
MAX_PARKED = 256
"""How many more there may be whose callers have given up, or which wait for other calls."""


class Escaped(Exception):
    """Wraps an exception that must not travel through an event loop: SystemExit, StopIteration and the like."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


def in_thread(work: Callable[[], T], *, is_cleanup: bool = False) -> Awaitable[T]:
    """Start *work* in a worker thread under this task's context variables. Returns its value, to be awaited at once.

    Raises what *work* raises; `Escaped` in place of what an event loop cannot carry; ToolError `limited` where too many
    threads are occupied for ever, but not for what *is_cleanup*. Cancelling the wait does not stop
    the work, and what the call holds is held until the work has ended.
    """
    return _threads(os.getpid()).begin(work, is_cleanup=is_cleanup)


@contextmanager
def waiting() -> Generator[None]:
    """Wait in the block for other calls. If this is a worker thread, another may work in its place meanwhile."""
    pool: _Threads | None = getattr(_this_thread, "pool", None)
    if pool is None:
        yield
        return
    pool.park(1)
    try:
        yield
    finally:
        pool.park(-1)


_this_thread = threading.local()
"""The `pool` of a worker thread, and the `mailbox` of a thread with an event loop."""


class _Mailbox:
    """Finished jobs on their way to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self._arrived: deque[tuple[_Job, Any, BaseException | None]] = deque()
        self._is_awake = False

    def post(self, job: "_Job", value: Any, error: BaseException | None) -> None:
        self._arrived.append((job, value, error))
        if not self._is_awake:
            self._is_awake = True
            loop = self.loop()
            try:
                if loop is not None:
                    loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._arrived.clear()  # the loop is closed, so no task waits any more

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

    __slots__ = ("context", "is_abandoned", "is_running", "mailbox", "permits", "pool", "work")

    def __init__(
        self, work: Callable[[], Any], pool: "_Threads", mailbox: _Mailbox, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)
        self.context = contextvars.copy_context()
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


class _Threads:
    """At most *size* threads that work, started as they are needed.

    A thread is parked while its caller has given up, so that work that never returns does not exhaust the pool, or
    while it waits for another call, which may need a thread itself. For each parked thread there may be one more.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: deque[_Job] = deque()
        self._idle: list[threading.Lock] = []  # each is what a thread waits for
        self._lock = threading.Lock()
        self._alive = self._unfinished = self._parked = 0

    def begin(self, work: Callable[[], T], *, is_cleanup: bool) -> Awaitable[T]:
        loop = asyncio.get_running_loop()
        mailbox: _Mailbox | None = getattr(_this_thread, "mailbox", None)
        if mailbox is None or mailbox.loop() is not loop:  # the loop that this thread ran before has ended
            mailbox = _this_thread.mailbox = _Mailbox(loop)
        if self._parked >= MAX_PARKED and not is_cleanup:
            raise ToolError(
                f"{self._parked} calls have never returned, or wait for calls that they have made, and no thread is "
                "left for this one. Try again when they have ended.",
                "limited",
            )
        job = _Job(work, self, mailbox, loop)
        with self._lock:
            self._jobs.append(job)
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
                self._parked += 1
                self._grow()
            else:
                permits, job.permits = job.permits, ()
        release_permits(permits)

    def park(self, number: int) -> None:
        """Note that *number* more threads wait for others."""
        with self._lock:
            self._parked += number
            self._grow()

    def _grow(self) -> None:
        if self._alive < min(self._unfinished, self._size + self._parked):
            self._alive += 1
            threading.Thread(target=self._serve, name=f"toolcrib-{self._alive}", daemon=True).start()

    def _serve(self) -> None:
        _this_thread.pool = self
        wake = threading.Lock()
        wake.acquire()
        is_needed = True
        while is_needed:
            with self._lock:
                job = self._jobs.popleft() if self._jobs else None
                if job is None:
                    self._idle.append(wake)
                else:
                    job.is_running = not job.cancelled()
            if job is None:
                wake.acquire()
                continue
            value, error = job.run() if job.is_running else (None, None)
            with self._lock:
                job.is_running = False
                self._unfinished -= 1
                self._parked -= job.is_abandoned
                is_needed = self._alive <= self._size + self._parked
                self._alive -= not is_needed
                permits, job.permits = job.permits, ()
            release_permits(permits)
            job.mailbox.post(job, value, error)
            del job, value, error  # not kept alive while waiting for the next job


@functools.cache
def _threads(process: int) -> _Threads:
    # By process: threads do not survive a fork, and the child needs its own.
    return _Threads(MAX_THREADS)
