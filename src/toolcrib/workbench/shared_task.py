"""What several ask for at the same time is done once."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from ..core import LoopEnded, SetupError, await_on, create_lasting_task


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
        try:
            await await_on(shared.loop, shared.ended())
            shared.done.result()
        except LoopEnded:
            if shared.loop.is_running():
                raise SetupError("It is being started on an event loop that waits for this call.") from None
            with self._lock:
                if self._current is shared:
                    self._current = None
            raise SetupError("The event loop on which it was being started has ended.") from None
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
            if self._current is shared:
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

    async def ended(self) -> None:
        assert self.task is not None
        await asyncio.wait({self.task})

    async def cancel(self) -> None:
        with suppress(LoopEnded):
            await await_on(self.loop, self._cancel())

    async def _cancel(self) -> None:
        assert self.task is not None
        if not self._is_cancelled:
            self._is_cancelled = True
            self.task.cancel()  # once: a second time, it would not wait for what it is stopping
        await self.ended()


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
