"""Starting and stopping: one source from start to stop, and starting once for all who ask for it at the same time."""

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from ..core import SetupError

_log = logging.getLogger("toolcrib")

# An event loop does not keep its tasks: what runs for a workbench that was dropped would be collected, never stopped.
_lives: "set[Life]" = set()


class Life:
    """One source, from its start to its stop: in a task of its own, on the event loop on which it was begun.

    One task, because what holds a cancel scope or a task group (most clients do) may only be left by the task that
    entered it. *on_end* is called where it ends with its loop, and nobody had it stopped.
    """

    def __init__(self, source: Any, name: str, on_end: Callable[["Life"], None]) -> None:
        self.source = source
        self.name = name
        self.loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._started: asyncio.Future[None] = self.loop.create_future()
        self._closing = asyncio.Event()
        self._stopped = False
        self._task = self.loop.create_task(self._live())
        _lives.add(self)
        self._task.add_done_callback(self._ended)

    async def start(self) -> None:
        """Until it is started. Raises what its `start` raises. Cancelled, it leaves nothing running."""
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise

    async def stop(self) -> None:
        """Until it is stopped. Where that fails, it is logged."""
        if self.loop is asyncio.get_running_loop():
            self._closing.set()
            await asyncio.wait({self._task})
        elif self.loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.stop(), self.loop))
        else:
            await self._stop()  # nobody is there to do it where it was started

    async def on_loop(self, work: Callable[[], Any]) -> Any:
        """The value of *work*, plain or async, where the source runs."""
        if self.loop is not asyncio.get_running_loop() and self.loop.is_running():
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_value(work), self.loop))
        return await _value(work)

    async def _live(self) -> None:
        try:
            await _value(self.source.start)
        except BaseException as error:
            if self._started.done():
                raise
            if isinstance(error, Exception):
                self._started.set_exception(error)
                self._started.exception()  # seen, also when nobody waits any more
                return
            self._started.cancel()
            raise
        if not self._started.done():
            self._started.set_result(None)
        try:
            await self._closing.wait()
        except asyncio.CancelledError:
            # The loop ends. What is given up now is started again where it is needed next.
            if not self._stopped:
                await self._stop()
                self._on_end(self)
            raise
        await self._stop()

    def _ended(self, _: asyncio.Task[None]) -> None:
        _lives.discard(self)
        self._started.cancel()  # where it was cancelled before it began

    async def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        try:
            await _value(self.source.stop)
        except Exception:
            _log.exception("The source %s failed to stop", self.name)


class Once:
    """Does something once for all who ask for it at the same time, on any event loop.

    It goes on as long as somebody waits: it is cancelled when the last of them gives up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._going: _Going | None = None

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Until *work*, or what was begun before it, is done. Raises what that raises."""
        with self._lock:
            going = self._going
            if going is None:
                going = self._going = _Going()
                going.task = going.loop.create_task(_done(work))
                # Not in the task itself: one that is cancelled before it begins never gets to say that it ended.
                going.task.add_done_callback(partial(self._ended, going))
            going.waiters += 1
        is_last = False
        try:
            done = asyncio.wrap_future(going.done)
            done.add_done_callback(_seen)  # also when nobody waits any more
            await asyncio.shield(done)
        finally:
            with self._lock:
                going.waiters -= 1
                is_last = not going.waiters
            if is_last and not going.done.done():
                await going.give_up()

    async def give_up(self) -> None:
        """Cancel what is being done, if anything is, and wait until it has ended."""
        with self._lock:
            going = self._going
        if going is not None:
            await going.give_up()

    def _ended(self, going: "_Going", task: asyncio.Task[None]) -> None:
        with self._lock:
            self._going = None
        if task.cancelled():
            going.done.set_exception(SetupError("The start was given up."))
        elif (error := task.exception()) is not None:
            going.done.set_exception(error)
        else:
            going.done.set_result(None)


class _Going:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.done: Future[None] = Future()
        self.task: asyncio.Task[None] | None = None
        self.waiters = 0
        self.is_given_up = False

    async def give_up(self) -> None:
        assert self.task is not None
        if self.loop is asyncio.get_running_loop():
            if not self.is_given_up:
                self.is_given_up = True
                self.task.cancel()  # once: a second time, it would not wait for what it is stopping
            await asyncio.wait({self.task})
        elif self.loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.give_up(), self.loop))


def _seen(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()


async def _done(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _value(work: Callable[[], Any]) -> Any:
    value = work()
    return await value if inspect.isawaitable(value) else value
