"""The one way from sync code to async: an event loop of our own, in a thread of its own.

It works from plain code, from a thread, and from inside a running loop, which is blocked meanwhile and never
re-entered.
"""

import asyncio
import functools
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], *, home: asyncio.AbstractEventLoop | None = None) -> T:
    """The value of *work*, run on *home* if that loop runs in another thread, else on the loop of our own.

    Ctrl-C cancels the work, waits for it to end, and is raised.
    """
    here = _running_here()
    if home is not None and home is not here and home.is_running():
        return _wait(work, home)
    # A tool may come here again from that loop: one level deeper, so that it does not wait for itself.
    level = getattr(threading.current_thread(), "toolcrib_level", -1) + 1 if here is not None else 0
    return _wait(work, _loop(os.getpid(), level))


def _running_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wait(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
        raise


@functools.cache
def _loop(process: int, level: int) -> asyncio.AbstractEventLoop:
    # By process: a thread does not survive a fork.
    loop = asyncio.new_event_loop()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    thread = threading.Thread(target=serve, name=f"toolcrib-sync-{level}", daemon=True)
    thread.toolcrib_level = level  # type: ignore[attr-defined]
    thread.start()
    return loop
