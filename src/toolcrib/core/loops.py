"""Handing work over to an event loop that runs in another thread, and waiting for its value.

The wait always ends: a loop that has ended, or that does not begin the work in time, is noticed here.
"""

import asyncio
import threading
from collections.abc import Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic
from typing import Any, Generic, TypeVar

from .errors import ToolError
from .threads import waiting

T = TypeVar("T")

LOOK_INTERVAL_S = 0.1
BEGIN_TIMEOUT_S = 10.0
"""How long a loop may take to begin what is handed over to it."""

blocked_loops: ContextVar[tuple[asyncio.AbstractEventLoop, ...]] = ContextVar("toolcrib_blocked_loops", default=())
"""The event loops that stand still until the running call has ended, since a sync call on them waits for it."""


class LoopEnded(ToolError):
    """An event loop has ended, and with it the work that it was given."""

    def __init__(self) -> None:
        super().__init__("The event loop that ran this has ended. What had been done by then is done.", "lost")


@contextmanager
def blocking(loop: asyncio.AbstractEventLoop | None) -> Generator[None]:
    """Note that the block keeps *loop*, the one of this thread, from running."""
    token = blocked_loops.set(blocked_loops.get() if loop is None else (*blocked_loops.get(), loop))
    try:
        yield
    finally:
        blocked_loops.reset(token)


def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Return the value of *work*, run on *loop*, which runs in another thread than this one.

    Raises LoopEnded where the loop ends first, and ToolError where the work cannot begin.
    """
    handed = _Handed(loop, work)
    try:
        future = handed.start()
        with waiting():
            while True:
                try:
                    return future.result(LOOK_INTERVAL_S)
                except TimeoutError:
                    if future.done():
                        raise  # its own
                    handed.require_alive()
    except BaseException as error:
        raise handed.give_up(error) from None


async def await_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Return the value of *work*, run on *loop*. Raises as `run_on` does."""
    if loop is asyncio.get_running_loop():
        return await work
    handed = _Handed(loop, work)
    try:
        value = asyncio.wrap_future(handed.start())
        while not value.done():
            await asyncio.wait({value}, timeout=LOOK_INTERVAL_S)
            if not value.done():
                handed.require_alive()
        if value.cancelled():
            raise LoopEnded
        return value.result()
    except BaseException as error:
        raise handed.give_up(error) from None


class _Handed(Generic[T]):
    """Work that is given to a loop: a task there, under a copy of this context."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._turn = threading.Lock()  # taken once: by the loop that begins, or by the caller that waits no longer
        self._due = monotonic() + BEGIN_TIMEOUT_S
        self._task: asyncio.Task[Any] | None = None
        self._future: Future[T] | None = None
        if loop in blocked_loops.get():
            work.close()
            raise ToolError(
                "This call would have to run on an event loop that waits for it in a sync call. Await that call.",
                "conflict",
            )

    def start(self) -> Future[T]:
        """Hand the work over. Returns the future of its value. Raises LoopEnded where the loop is closed."""
        coroutine = self._begin()
        try:
            # Ctrl-C may come before this returns, when the work has begun already: `give_up` knows its task then.
            self._future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # it is closed
            coroutine.close()
            self._work.close()
            raise LoopEnded from None
        return self._future

    def require_alive(self) -> None:
        """Raise LoopEnded where the loop has ended, and ToolError where it does not begin the work."""
        is_running = self._loop.is_running()
        if not is_running and (self._turn.locked() or self._loop.is_closed()):
            raise LoopEnded
        if monotonic() > self._due and self._turn.acquire(blocking=False):
            raise ToolError(
                f"The event loop that would run this has been {'busy' if is_running else 'stopped'} for "
                f"{BEGIN_TIMEOUT_S:g} s. Nothing has run. Try again later.",
                "unavailable",
            )

    def give_up(self, error: BaseException) -> BaseException:
        """Cancel the work where it still runs. Returns what to raise in place of *error*."""
        has_begun, future = not self._turn.acquire(blocking=False), self._future
        if future is None:
            if has_begun and self._task is not None:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._task.cancel)
        elif not future.done():
            future.cancel()
        elif isinstance(error, CancelledError) and future.cancelled():
            return LoopEnded()
        return error

    async def _begin(self) -> T:
        if not self._turn.acquire(blocking=False):
            self._work.close()
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self._work
