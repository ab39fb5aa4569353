"""Work that a thread or an event loop has done on another event loop, and waits for.

The wait ends in any case. A loop that has stopped reports nothing, so whoever waits looks at it now and then; and a
loop that stands still until the work has ended is never waited for.
"""

import asyncio
import threading
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Generic, TypeVar

from .errors import ToolError
from .semaphore import standing_still, waiting_for
from .threads import waiting

T = TypeVar("T")

_LOOK_S = 0.05
_PATIENCE_S = 1.0
"""How long a loop may stand still: between two runs, and until it begins what can be done elsewhere too."""

_blocked: set[asyncio.AbstractEventLoop] = set()


class LoopEnded(ToolError):
    """An event loop has ended, and with it the work that it was given."""

    def __init__(self) -> None:
        super().__init__("The event loop that ran this has ended. What had been done by then is done.", "lost")


class NotBegun(Exception):
    """An event loop does not begin the work, which can be given to another one."""


@contextmanager
def blocking(loop: asyncio.AbstractEventLoop | None) -> Generator[None]:
    """The block keeps *loop*, the one of this thread, from going on."""
    if loop is None:
        yield
        return
    token = standing_still.set((*standing_still.get(), loop))
    _blocked.add(loop)
    try:
        yield
    finally:
        _blocked.discard(loop)
        standing_still.reset(token)


def is_blocked(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether *loop* stands still inside of `blocking`."""
    return loop in _blocked


def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], *, or_elsewhere: bool = False) -> T:
    """The value of *work*, run on *loop*, which runs in another thread than this one.

    Raises LoopEnded where the loop ends first. With *or_elsewhere*, raises NotBegun where the loop has not begun it,
    and cannot for now.
    """
    handed = _Handed(loop, work)
    try:
        with waiting(), waiting_for(loop):
            while True:
                with suppress(TimeoutError):
                    return handed.value.result(_LOOK_S)
                if handed.value.done():
                    return handed.value.result()
                handed.look(or_elsewhere=or_elsewhere)
    except NotBegun:
        raise
    except BaseException:
        handed.give_up()
        raise


async def await_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """The value of *work*, run on *loop*. Raises LoopEnded where that loop ends first, or waits for this one."""
    if loop is asyncio.get_running_loop():
        return await work
    if loop in standing_still.get() or not loop.is_running():
        work.close()
        raise LoopEnded
    handed = _Handed(loop, work)
    value = asyncio.wrap_future(handed.value)
    try:
        with waiting_for(loop):
            while not value.done():
                await asyncio.wait({value}, timeout=_LOOK_S)
                if not value.done():
                    handed.look()
            return value.result()
    except BaseException:
        value.cancel()
        handed.give_up()
        raise


class _Handed(Generic[T]):
    """*work*, given to *loop*, and its `value` when it has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self.value: Future[T] = Future()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._turn = threading.Lock()  # taken once: by the loop that begins, or by whoever does not wait for it
        self._due = monotonic() + _PATIENCE_S
        with suppress(RuntimeError):  # closed: the first look sees it
            loop.call_soon_threadsafe(self._begin)

    def look(self, *, or_elsewhere: bool = False) -> None:
        """Raises LoopEnded, and with *or_elsewhere* NotBegun, where it is of no use to wait longer."""
        is_running, now = self._loop.is_running(), monotonic()
        if is_running and self._task is not None:
            self._due = now + _PATIENCE_S
        is_ended = self._loop.is_closed() or (not is_running and now > self._due)
        is_late = or_elsewhere and (now > self._due or self._loop in _blocked)
        if (is_ended or is_late) and or_elsewhere and self._turn.acquire(blocking=False):
            raise NotBegun
        if is_ended:
            raise LoopEnded

    def give_up(self) -> None:
        """Cancel the work, also where the loop goes on only later."""
        if self._turn.acquire(blocking=False):
            self._work.close()
        elif self._task is not None and not self._task.done():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _begin(self) -> None:
        if self._turn.acquire(blocking=False):
            self._task = self._loop.create_task(self._work)
            self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if self.value.done():
            return
        if task.cancelled():
            self.value.set_exception(LoopEnded())
        elif (error := task.exception()) is not None:
            self.value.set_exception(error)
        else:
            self.value.set_result(task.result())
