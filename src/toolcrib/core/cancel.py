"""How a call ends early: cancelled from anywhere (another task, a thread, a signal handler), or at its deadline."""

import asyncio
import logging
import threading
from asyncio import Future
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from math import inf
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger("toolcrib")


class CancellationToken:
    """Cancels a call, from any thread, once and for all.

    Callbacks run in the thread that cancels, outside any lock, so they may use the token; one that raises is logged
    and the others run.
    """

    __slots__ = ("_callbacks", "_cancelled", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: dict[object, Callable[[], object]] = {}

    def cancel(self) -> None:
        """Cancel. A second time changes nothing."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = list(self._callbacks.values()), {}
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _log.exception("A callback of a CancellationToken failed")

    def is_cancelled(self) -> bool:
        return self._cancelled

    def add_callback(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call *callback* when the token is cancelled; now, if it is already. Returns a function that removes it."""
        key = object()
        with self._lock:
            cancelled = self._cancelled
            if not cancelled:
                self._callbacks[key] = callback
        if cancelled:
            callback()

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    def link_future(self, future: "Future[T]") -> "Future[T]":
        """Cancel *future* (an asyncio Future or Task) with the token; the link ends when it is done. Returns it."""
        if self._cancelled:
            future.cancel()
            return future
        remove = self.add_callback(from_any_thread(future.cancel, future.get_loop()))
        future.add_done_callback(lambda _: remove())
        return future

    def __repr__(self) -> str:
        return f"<CancellationToken {'cancelled' if self._cancelled else 'live'}>"


def from_any_thread(
    callback: Callable[..., object], loop: asyncio.AbstractEventLoop | None = None
) -> Callable[..., bool]:
    """Return a function that calls *callback* on *loop*, or the running one, from any thread.

    It returns False, and does nothing, once the loop is closed.
    """
    loop = loop or asyncio.get_running_loop()

    def post(*arguments: Any) -> bool:
        try:
            loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            return False
        return True

    return post


class Deadline:
    """*limit_s* seconds from now, and never later than *outer*, the deadline of the call that this one is a part of.

    Limits of several kinds (the tool's, the workbench's, the call's) are given as the smallest of them.
    """

    __slots__ = ("_outer", "own_due")

    def __init__(self, limit_s: float | None, outer: "Deadline | None" = None) -> None:
        self.own_due = inf if limit_s is None else monotonic() + limit_s
        """The moment by its own limit alone."""
        self._outer = outer

    @property
    def due(self) -> float:
        """The moment, on the clock of `time.monotonic()`; infinity while a deadline without an outer one is paused."""
        return self.own_due if self._outer is None else min(self.own_due, self._outer.due)

    @property
    def left_s(self) -> float:
        """How many seconds are left; negative when it has passed."""
        return self.due - monotonic()

    @property
    def at(self) -> datetime | None:
        """The moment as an aware datetime in UTC; None while it is paused."""
        left_s = self.left_s
        return None if left_s == inf else datetime.now(UTC) + timedelta(seconds=left_s)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Time that does not count, such as starting a worker process. The outer deadline goes on."""
        left_s, self.own_due = self.own_due - monotonic(), inf
        try:
            yield
        finally:
            self.own_due = left_s + monotonic()


current_deadline: ContextVar[Deadline | None] = ContextVar("toolcrib_deadline", default=None)
"""The deadline of the running call: what it calls has no more time than it has itself."""

current_client: ContextVar[Any] = ContextVar("toolcrib_client", default=None)
"""The client that waits for the running call, as the door by which it came knows it; None where it does not."""

current_caller: ContextVar[Any] = ContextVar("toolcrib_caller", default=None)
"""The Caller of a read: for resources and prompts, a source gets no Context."""


def create_lasting_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Return a task for what outlives the running call, and so has neither its deadline nor its client."""
    context = copy_context()
    context.run(current_deadline.set, None)
    context.run(current_client.set, None)
    return asyncio.create_task(work, context=context)
