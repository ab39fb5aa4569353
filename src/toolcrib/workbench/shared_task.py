"""What several ask for at the same time is done once."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial

from ..core import SetupError, create_lasting_task


class SharedTask:
    """Does something once for all who ask for it at the same time, on any event loop.

    It goes on as long as somebody waits: it is cancelled when the last of them is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: _Shared | None = None

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Until *work*, or what was begun before it, is done. Raises what that raises."""
        with self._lock:
            shared = self._current
            if shared is None:
                shared = self._current = _Shared()
                shared.task = create_lasting_task(_awaited(work))
                # Not in the task itself: one that is cancelled before it begins never gets to report its end.
                shared.task.add_done_callback(partial(self._done, shared))
            shared.waiters += 1
        is_last = False
        try:
            done = asyncio.wrap_future(shared.done)
            done.add_done_callback(_retrieve)  # also when nobody waits any more
            await asyncio.shield(done)
        finally:
            with self._lock:
                shared.waiters -= 1
                is_last = not shared.waiters
            if is_last and not shared.done.done():
                await shared.cancel()

    async def cancel(self) -> None:
        """Cancel what is being done, if anything is, and wait until it has ended."""
        with self._lock:
            shared = self._current
        if shared is not None:
            await shared.cancel()

    def _done(self, shared: "_Shared", task: asyncio.Task[None]) -> None:
        with self._lock:
            self._current = None
        if task.cancelled():
            shared.done.set_exception(SetupError("The start was cancelled."))
        elif (error := task.exception()) is not None:
            shared.done.set_exception(error)
        else:
            shared.done.set_result(None)


class _Shared:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.done: Future[None] = Future()
        self.task: asyncio.Task[None] | None = None
        self.waiters = 0
        self._is_cancelled = False

    async def cancel(self) -> None:
        assert self.task is not None
        if self.loop is asyncio.get_running_loop():
            if not self._is_cancelled:
                self._is_cancelled = True
                self.task.cancel()  # once: a second time, it would not wait for what it is stopping
            await asyncio.wait({self.task})
        elif self.loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.cancel(), self.loop))


def _retrieve(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
