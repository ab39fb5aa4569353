"""Where sync work runs: a bounded pool of daemon threads, whose results wake the event loop in batches.

Daemon threads, because a function that never returns must not keep the process from ending. In batches, because a
wake-up of the loop costs more than most of the work that is waited for.
"""

import asyncio
import contextvars
import functools
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_SIZE = 32


class Escaped(Exception):
    """Stands for an exception that must not travel through an event loop: SystemExit, StopIteration and their like."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


async def in_thread(work: Callable[[], T]) -> T:
    """The value of *work*, run in a worker thread under this task's context variables.

    Raises what *work* raises; `Escaped` in place of what an event loop cannot carry. Cancelling the wait does not stop
    the work.
    """
    value: T = await _threads(os.getpid()).run(work)
    return value


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


class _Threads:
    """At most *size* threads, started as they are needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: queue.SimpleQueue[tuple[contextvars.Context, Callable[[], Any], _Mailbox, asyncio.Future[Any]]] = (
            queue.SimpleQueue()
        )
        self._mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._started = 0
        self._busy = 0

    async def run(self, work: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        mailbox = self._mailboxes.get(loop)
        if mailbox is None:
            with self._lock:
                mailbox = self._mailboxes.setdefault(loop, _Mailbox(loop))
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._busy += 1
            start = self._busy > self._started and self._started < self._size
            self._started += start
        if start:
            threading.Thread(target=self._serve, name=f"toolcrib-{self._started}", daemon=True).start()
        self._jobs.put((contextvars.copy_context(), work, mailbox, future))
        return await future

    def _serve(self) -> None:
        while True:
            context, work, mailbox, future = self._jobs.get()
            value: Any = None
            error: BaseException | None = None
            # A call that was cancelled before its turn is not begun.
            if not future.cancelled():
                try:
                    value = context.run(work)
                except (StopIteration, StopAsyncIteration) as raised:
                    error = Escaped(raised)
                except Exception as raised:
                    error = raised
                except BaseException as raised:
                    error = Escaped(raised)
            with self._lock:
                self._busy -= 1
            mailbox.post(future, value, error)
            del context, work, future, value, error  # not kept alive while waiting for the next job


@functools.cache
def _threads(process: int) -> _Threads:
    # By process: threads do not survive a fork, and the child needs its own.
    return _Threads(_SIZE)
