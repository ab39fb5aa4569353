"""Cancelling a call from anywhere: another task, a thread, a signal handler."""

import logging
import threading
from asyncio import Future
from collections.abc import Callable
from typing import TypeVar

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
        loop = future.get_loop()

        def cancel() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(future.cancel)

        if self._cancelled:
            future.cancel()
            return future
        remove = self.add_callback(cancel)
        future.add_done_callback(lambda _: remove())
        return future

    def __repr__(self) -> str:
        return f"<CancellationToken {'cancelled' if self._cancelled else 'live'}>"
