"""AutoGen's CancellationToken: the core's, which cancels a linked future at once where it can."""

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ...core import CancellationToken as CoreToken

F = TypeVar("F", bound="asyncio.Future[Any] | concurrent.futures.Future[Any] | Coroutine[Any, Any, Any]")


class CancellationToken(CoreToken):
    """Cancels the calls that it was passed to. A `Call(cancellation=...)` takes it as it is.

    It may be used from any thread and from its own callbacks. A callback that raises does not keep the others from
    running. The link to a future ends when the future is done.
    """

    def link_future(self, future: F) -> F:
        """Cancel *future* with the token; at once, if the token is cancelled already. Returns *future*.

        A future of an event loop in another thread is cancelled on that loop. A coroutine, which only the task that
        awaits it could cancel, is returned as it is.
        """
        if isinstance(future, concurrent.futures.Future):
            remove = self.add_callback(future.cancel)
            future.add_done_callback(lambda _: remove())
            return future
        if inspect.iscoroutine(future):
            return future
        if not asyncio.isfuture(future):
            raise TypeError(f"link_future takes a Future, a Task or a coroutine, not a {type(future).__name__}.")
        loop, cancel = future.get_loop(), future.cancel
        remove = self.add_callback(lambda: None if loop.is_closed() else _act_in(loop, cancel))
        if not self.is_cancelled():
            _act_in(loop, future.add_done_callback, lambda _: remove())
        return future


def _act_in(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *args: Any) -> None:
    """Call *act* now if *loop* runs in this thread or nowhere, else in the loop."""
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = not loop.is_running()
    if is_here:
        act(*args)
    else:
        loop.call_soon_threadsafe(act, *args)
