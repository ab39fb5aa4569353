"""Runs a coroutine within a deadline, in the task that waits for it, and lets go of it when it will not end.

A task of its own would be simpler and three times as slow: most tools end without ever suspending, and then there is
nothing to do here. So the coroutine is driven by hand. While it behaves it runs in the waiting task; when the deadline
has passed it is cancelled; when it goes on all the same, what is left of it moves to a task of its own, and the answer
is given.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine, Generator
from time import monotonic
from typing import Any

from ..core import CancellationToken, ToolError
from . import watchdog
from .keep import put_back

_log = logging.getLogger("toolcrib")

# What a tool calls has no more time than the tool itself.
deadline: contextvars.ContextVar[float | None] = contextvars.ContextVar("toolcrib_deadline_s", default=None)

_GRACE_S = 0.1
"""How long cancelled work may take to end before it is left to itself."""

_left_behind: set[asyncio.Task[Any]] = set()


class Bounded:
    """`await Bounded(...)`: the value of *work*, or ToolError `timeout` or `cancelled`.

    *given_up* is the caller's token. *cancellation* is the call's own: it is cancelled with the call, for what cannot
    be cancelled from outside. *still_running* where the work goes on in spite of its cancellation, as in a thread.
    """

    __slots__ = ("_cancellation", "_deadline_s", "_given_up", "_still_running", "_tool", "_work")

    def __init__(
        self,
        work: Coroutine[Any, Any, Any],
        *,
        tool: str,
        deadline_s: float | None,
        given_up: CancellationToken | None,
        cancellation: CancellationToken,
        still_running: bool,
    ) -> None:
        self._work = work
        self._tool = tool
        self._deadline_s = deadline_s
        self._given_up = given_up
        self._cancellation = cancellation
        self._still_running = still_running

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._given_up is not None and self._given_up.is_cancelled():
            self._work.close()
            self._still_running = False  # it never began
            raise self._error(ended=True)
        watched = None if self._deadline_s is None else watchdog.watch(self._tool, self._deadline_s)
        # Here and not in the work, which may be left behind and then never come to the end that would reset it.
        before = deadline.set(self._deadline_s)
        try:
            waiting = self._work.send(None)
        except StopIteration as ended:
            return ended.value
        else:
            return (yield from self._suspended(waiting))
        finally:
            put_back(deadline, before)
            if watched is not None:
                watchdog.release(watched)

    def _suspended(self, waiting: Any) -> Generator[Any, Any, Any]:
        """From the first suspension on there are timers, and a cancellation to tell from other people's."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        others = task.cancelling()
        ours = seen = 0

        def cancel() -> None:
            nonlocal ours
            ours += 1
            task.cancel()

        timer: asyncio.TimerHandle | None = None
        if self._deadline_s is not None:
            timer = loop.call_later(self._deadline_s - monotonic(), cancel)
        unlink: Callable[[], None] | None = None
        if self._given_up is not None:
            unlink = self._given_up.add_callback(lambda: loop.call_soon_threadsafe(cancel))
        late = alone = False
        try:
            while True:
                try:
                    sent = yield waiting
                except BaseException as thrown:
                    # What was waited for has failed, or somebody else cancels (a timeout inside the tool does): that
                    # is between them and the work.
                    if ours > seen and isinstance(thrown, asyncio.CancelledError):
                        seen = ours
                        if late:
                            alone = self._let_go(thrown, loop)
                            break
                        late = True
                        self._cancellation.cancel()
                        if timer is not None:
                            timer.cancel()
                        timer = loop.call_later(_GRACE_S, cancel)
                    waiting = self._work.throw(thrown)
                else:
                    waiting = self._work.send(sent)
        except StopIteration as ended:
            if not late:
                return ended.value
        except BaseException as raised:
            if not late:
                if isinstance(raised, asyncio.CancelledError):
                    self._cancellation.cancel()
                raise
        finally:
            if timer is not None:
                timer.cancel()
            if unlink is not None:
                unlink()
            for _ in range(ours):
                task.uncancel()
        if task.cancelling() > others:
            raise asyncio.CancelledError
        raise self._error(ended=not alone)

    def _let_go(self, cancelled: asyncio.CancelledError, loop: asyncio.AbstractEventLoop) -> bool:
        """Cancel the work once more; whether it still goes on, which it then does alone."""
        try:
            waiting = self._work.throw(cancelled)
        except BaseException:
            return False
        _log.warning("Tool '%s' was cancelled and goes on all the same", self._tool)
        task = loop.create_task(_alone(self._work, waiting))
        _left_behind.add(task)
        task.add_done_callback(_forget)
        return True

    def _error(self, *, ended: bool) -> ToolError:
        still = "" if ended and not self._still_running else " Its work may still be running."
        if self._given_up is not None and self._given_up.is_cancelled():
            return ToolError(f"Tool '{self._tool}' was cancelled.{still}", "cancelled")
        return ToolError(
            f"Tool '{self._tool}' did not answer in time.{still} Ask for less, or try again later.", "timeout"
        )


class _Rest:
    """What is left of a coroutine that was stepped by hand, and waits for *waiting*."""

    def __init__(self, work: Coroutine[Any, Any, Any], waiting: Any) -> None:
        self._work = work
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._waiting
        try:
            while True:
                try:
                    sent = yield waiting
                except BaseException as thrown:
                    waiting = self._work.throw(thrown)
                else:
                    waiting = self._work.send(sent)
        except StopIteration as ended:
            return ended.value


async def _alone(work: Coroutine[Any, Any, Any], waiting: Any) -> Any:
    return await _Rest(work, waiting)


def _forget(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # seen: nobody waits for it any more
