"""Event loops in other threads: work that is handed over to one, callbacks for one, values that belong to one.

The wait for work always ends: a loop that has ended, or that does not begin the work in time, is noticed here.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

from ..core import ToolError
from .threads import waiting

T = TypeVar("T")

LOOK_INTERVAL_S = 0.1
BEGIN_TIMEOUT_S = 10.0
"""How long a loop may take to begin what is handed over to it."""

blocked_loops: ContextVar[tuple[asyncio.AbstractEventLoop, ...]] = ContextVar("toolcrib_blocked_loops", default=())
"""The event loops that stand still until the running call has ended, since a sync call on them waits for it."""


_LOG_IF_PENDING = "_log_destroy_pending"
"""An attribute of tasks: whether asyncio logs that one is dropped before its end."""


class LoopEnded(ToolError):
    """An event loop has ended, and with it the work that it was given."""

    def __init__(self) -> None:
        super().__init__("The event loop that ran this has ended. What had been done by then is done.", "lost")


class NeverBegun(LoopEnded):
    """An event loop has ended before it began the work, which another one may do."""


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
    handover = Handed(loop, lambda: work)
    try:
        return handover.wait()
    finally:
        if handover.is_void:
            work.close()


def run_here() -> tuple[asyncio.AbstractEventLoop, Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Return the running loop, and what runs work on it from other threads."""
    loop = asyncio.get_running_loop()
    return loop, partial(run_on, loop)


def from_any_thread(callback: Callable[..., object]) -> Callable[..., None]:
    """Return a function that calls *callback* on the running loop, from any thread; once that is closed, not at all."""
    loop = asyncio.get_running_loop()

    def post(*arguments: Any) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(callback, *arguments)

    return post


class PerLoop(Generic[T]):
    """A value for each event loop that uses one, such as connections, which fail on another loop.

    *make* makes it, and *drop* ends that of a loop which is closed.
    """

    def __init__(self, make: Callable[[], T], drop: Callable[[T], object] = lambda _: None) -> None:
        self._make = make
        self._drop = drop
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """Return the value of the running loop, made at the first call."""
        loop = asyncio.get_running_loop()
        if loop not in self._values:
            self._drop_closed()
            self._values[loop] = self._make()
        return self._values[loop]

    def pop(self) -> T | None:
        """Return the value of the running loop, for the caller to end; None where there is none."""
        self._drop_closed()
        return self._values.pop(asyncio.get_running_loop(), None)

    def call_each(self, method: Callable[[T], object]) -> None:
        """Call *method* with each value on its loop. From any thread."""
        self._drop_closed()
        for loop, value in list(self._values.items()):
            with suppress(RuntimeError):  # it has just been closed
                loop.call_soon_threadsafe(method, value)

    def _drop_closed(self) -> None:
        for loop in [key for key in self._values if key.is_closed()]:
            self._drop(self._values.pop(loop))


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
        if self._loop in blocked_loops.get():
            raise ToolError(
                "This call would have to run on an event loop that waits for it in a sync call. Await that call.",
                "conflict",
            )
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
        except asyncio.CancelledError:  # with its loop, or by `_give_up`
            future.set_exception(LoopEnded())
            raise
        except NeverBegun:  # what this work has handed over in its turn
            future.set_exception(LoopEnded())
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def _value(self) -> T:
        if self.is_void:
            raise NeverBegun
        return self._future.result()

    def _require_alive(self) -> None:
        """Raise LoopEnded where the loop has ended, and ToolError where it does not begin the work."""
        is_running = self._loop.is_running()
        if self._future.done() or (is_running and monotonic() <= self._due):
            return
        if self._future.cancel() and is_running:
            raise ToolError(
                f"The event loop that would run this has been busy for {BEGIN_TIMEOUT_S:g} s. Nothing has run. "
                "Try again later.",
                "unavailable",
            )
        if self._coroutine is not None and self.is_void and self._loop.is_closed():
            self._coroutine.close()
        if not is_running and not self._future.done():
            raise LoopEnded

    def _give_up(self) -> None:
        """Cancel the work where it still runs, and never begin it where it does not."""
        if not self._future.done() and not self._future.cancel() and self._task is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._task.cancel)
