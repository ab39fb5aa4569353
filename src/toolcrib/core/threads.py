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

from .errors import ToolError
from .semaphore import Permit, release_permits, share_permits

T = TypeVar("T")

_SIZE = 32
_SPARE = 64
_NESTED = 256
_CHECKS = 2
"""How many threads finish checks. They wait for nothing else, so checks go on where every other thread is taken."""


class Escaped(Exception):
    """Wraps an exception that must not travel through an event loop: SystemExit, StopIteration and the like."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class Postponed(Exception):
    """Raised by a check that would hold the event loop for long. *work* is the rest of it, for `finish_in_thread`.

    *work* is given what says whether to stop, which it asks now and then.
    """

    def __init__(self, work: Callable[[Callable[[], bool]], Any]) -> None:
        super().__init__("the check of these arguments takes long")
        self.work = work


def postpone(work: Callable[[Callable[[], bool]], T]) -> T:
    """Raise Postponed with *work* where an event loop runs; elsewhere, return its value."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work(lambda: False)
    raise Postponed(work) from None


def finish_in_thread(postponed: Postponed, is_cancelled: Callable[[], bool]) -> Awaitable[Any]:
    """The value of the rest of a check, run in a thread. To be awaited at once."""
    work = functools.partial(postponed.work, is_cancelled)
    postponed.__traceback__ = None
    del postponed.work  # the arguments are in both, and errors keep their contexts
    return _checking_threads(os.getpid()).begin(work, is_cleanup=False)


def finished(check: Callable[..., T], *arguments: Any) -> T:
    """The value of *check*, however long that holds the event loop."""
    try:
        return check(*arguments)
    except Postponed as postponed:
        value: T = postponed.work(lambda: False)
        return value


def in_thread(work: Callable[[], T], *, is_cleanup: bool = False) -> Awaitable[T]:
    """The value of *work*, run in a worker thread under this task's context variables. To be awaited at once.

    Raises what *work* raises; `Escaped` in place of what an event loop cannot carry; ToolError `limited` where too many
    threads are occupied for ever, but not for what *is_cleanup*. Cancelling the wait does not stop
    the work, and what the call holds is held until the work has ended.
    """
    permits = share_permits()
    return _holding(work, permits, is_cleanup) if permits else _threads(os.getpid()).begin(work, is_cleanup)


@contextmanager
def waiting() -> Generator[None]:
    """In the block, this thread waits for others. If it is a worker thread, another may work in its place."""
    pool = getattr(_this_thread, "pool", None)
    if pool is None:
        yield
        return
    pool.change_nested(1)
    try:
        yield
    finally:
        pool.change_nested(-1)


_this_thread = threading.local()


async def _holding(work: Callable[[], T], permits: tuple[Permit, ...], is_cleanup: bool) -> T:
    begun = threading.Lock()  # taken once: by the thread that begins, or by the call that ends before it could

    def held() -> T:
        if not begun.acquire(blocking=False):
            raise RuntimeError("the call has ended before its work began")
        try:
            return work()
        finally:
            release_permits(permits)

    try:
        return await _threads(os.getpid()).begin(held, is_cleanup)
    finally:
        if begun.acquire(blocking=False):
            release_permits(permits)


class _Mailbox:
    """Finished work on its way to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._arrived: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._awake = False

    def post(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._arrived.append((future, value, error))
        if not self._awake:
            self._awake = True
            loop = self._loop()
            try:
                if loop is not None:
                    loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._arrived.clear()  # the loop is closed: nobody waits any more

    def _deliver(self) -> None:
        # First, so that whatever is posted from here on wakes the loop again.
        self._awake = False
        while self._arrived:
            future, value, error = self._arrived.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)


class _Job(asyncio.Future[Any]):
    """Work, and its value, for the task that waits for it.

    One object and no coroutine: where thousands of calls wait at once, most of what a call costs is the memory that it
    holds meanwhile, which the garbage collector goes through again and again.
    """

    __slots__ = ("abandoned", "context", "mailbox", "pool", "running", "work")

    def __init__(
        self, work: Callable[[], Any], pool: "_Threads", mailbox: _Mailbox, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)
        self.context = contextvars.copy_context()
        self.work = work
        self.pool = pool
        self.mailbox = mailbox
        self.running = self.abandoned = False

    def cancel(self, msg: Any = None) -> bool:
        """The waiting task has been cancelled."""
        cancelled = super().cancel(msg)
        if cancelled:
            self.pool.abandon(self)
        return cancelled


class _Threads:
    """At most *size* threads that somebody waits for, started as they are needed.

    A thread whose caller has given up is not counted, so that work that never returns does not exhaust the pool; there
    may be *spare* of those, and then no more work is begun. Nor is one that waits for what needs threads itself; there
    may be *nested* of those.
    """

    def __init__(self, size: int, spare: int, nested: int) -> None:
        self._size = size
        self._spare = spare
        self._most_nested = nested
        self._jobs: deque[_Job] = deque()
        self._idle: list[threading.Lock] = []  # each is what a thread waits for
        self._mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._alive = 0
        self._waiting = 0
        self._abandoned = 0
        self._nested = 0

    def begin(self, work: Callable[[], T], is_cleanup: bool) -> Awaitable[T]:
        loop = asyncio.get_running_loop()
        mailbox = self._mailboxes.get(loop)
        if mailbox is None:
            mailbox = self._open_mailbox(loop)
        with self._lock:
            if self._abandoned >= self._spare and not is_cleanup:
                raise ToolError(
                    f"{self._abandoned} calls have never returned, and no thread is left for this one. "
                    "Try again when they have ended.",
                    "limited",
                )
            if self._nested >= self._most_nested and not is_cleanup:
                raise ToolError(
                    f"{self._nested} calls wait for calls that they have made, and no thread is left for this one.",
                    "limited",
                )
            job = _Job(work, self, mailbox, loop)
            self._jobs.append(job)
            self._waiting += 1
            idle = self._idle.pop() if self._idle else None
            if idle is None:
                self._grow()
        if idle is not None:
            idle.release()
        return job

    def _open_mailbox(self, loop: asyncio.AbstractEventLoop) -> _Mailbox:
        with self._lock:
            for closed in [each for each in self._mailboxes if each.is_closed()]:
                del self._mailboxes[closed]  # what it never took refers to its loop, and would keep both
            return self._mailboxes.setdefault(loop, _Mailbox(loop))

    def abandon(self, job: _Job) -> None:
        """Nobody waits for *job* any more."""
        with self._lock:
            if job.running:
                job.abandoned = True
                self._abandoned += 1
                self._grow()

    def change_nested(self, number: int) -> None:
        """*number* more threads wait for others."""
        with self._lock:
            self._nested += number
            self._grow()

    def _grow(self) -> None:
        if self._alive < min(self._waiting, self._size + self._abandoned + self._nested):
            self._alive += 1
            threading.Thread(target=self._serve, name=f"toolcrib-{self._alive}", daemon=True).start()

    def _serve(self) -> None:
        _this_thread.pool = self
        called = threading.Lock()
        called.acquire()
        while True:
            with self._lock:
                job = self._jobs.popleft() if self._jobs else None
                if job is None:
                    self._idle.append(called)
                else:
                    # A call that was cancelled before its turn is not begun.
                    job.running = not job.cancelled()
            if job is None:
                called.acquire()
                continue
            value: Any = None
            error: BaseException | None = None
            if job.running:
                try:
                    value = job.context.run(job.work)
                except (StopIteration, StopAsyncIteration) as raised:
                    error = Escaped(raised)
                except Exception as raised:
                    error = raised
                except BaseException as raised:
                    error = Escaped(raised)
            with self._lock:
                job.running = False
                self._waiting -= 1
                self._abandoned -= job.abandoned
                leave = self._alive > self._size + self._abandoned + self._nested
                self._alive -= leave
            job.mailbox.post(job, value, error)
            del job, value, error  # not kept alive while waiting for the next job
            if leave:
                return


@functools.cache
def _checking_threads(process: int) -> _Threads:
    return _Threads(_CHECKS, _SPARE, _NESTED)


@functools.cache
def _threads(process: int) -> _Threads:
    # By process: threads do not survive a fork, and the child needs its own.
    return _Threads(_SIZE, _SPARE, _NESTED)
