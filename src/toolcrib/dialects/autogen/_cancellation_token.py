"""AutoGen's CancellationToken: the core's, which cancels a linked future at once where it can."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, TypeVar

from ...core import CancellationToken as CoreToken

F = TypeVar("F", bound="asyncio.Future[Any] | concurrent.futures.Future[Any]")


class CancellationToken(CoreToken):
    """Cancels the calls that it was passed to. A `Call(cancellation=...)` takes it as it is.

    It may be used from any thread and from its own callbacks. A callback that raises does not keep the others from
    running. The link to a future ends when the future is done.
    """

    def link_future(self, future: F) -> F:
        """Cancel *future* with the token; at once, if the token is cancelled already. Returns *future*.

        A future of a loop that runs in another thread is cancelled by that loop, as soon as it gets to it.
        """
        if isinstance(future, concurrent.futures.Future):
            remove = self.add_callback(future.cancel)
            future.add_done_callback(lambda _: remove())
            return future
        if not asyncio.isfuture(future):
            raise TypeError(
                f"link_future takes a Future or a Task, not a {type(future).__name__}. "
                "Make one of a coroutine with asyncio.ensure_future(...)."
            )
        loop = future.get_loop()

        def in_loop(act: Callable[..., object], *args: Any) -> None:
            """Call *act* now if the loop runs in this thread or nowhere, else in the loop."""
            try:
                here = asyncio.get_running_loop() is loop
            except RuntimeError:
                here = not loop.is_running()
            if here:
                act(*args)
            else:
                loop.call_soon_threadsafe(act, *args)

        def cancel() -> None:
            if not loop.is_closed():
                in_loop(future.cancel)

        remove = self.add_callback(cancel)
        if not self.is_cancelled():
            in_loop(future.add_done_callback, lambda _: remove())
        return future
