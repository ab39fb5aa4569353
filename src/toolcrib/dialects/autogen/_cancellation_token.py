"""AutoGen's CancellationToken: the core's, whose links act at once where they can."""

import asyncio
import concurrent.futures
from typing import Any, TypeVar

from ...core import CancellationToken as CoreToken

F = TypeVar("F", bound="asyncio.Future[Any] | concurrent.futures.Future[Any]")


class CancellationToken(CoreToken):
    """Cancels the calls it was handed to. A `Call(cancellation=...)` takes it as it is.

    It may be used from any thread and from its own callbacks; a callback that raises does not keep the others from
    running; the link to a future goes when the future is done.
    """

    def link_future(self, future: F) -> F:
        """Cancel *future* with the token; at once, if it is cancelled already. Gives it back.

        A future of a loop that runs in another thread is cancelled by that loop, as soon as it gets to it.
        """
        if isinstance(future, concurrent.futures.Future):
            remove = self.add_callback(future.cancel)
            future.add_done_callback(lambda _: remove())
            return future
        if not asyncio.isfuture(future):
            raise TypeError(
                f"link_future takes a Future or a Task, not a {type(future).__name__}. "
                "Of a coroutine, make one with asyncio.ensure_future(...)."
            )
        loop = future.get_loop()

        def here() -> bool:
            """Whether this thread may touch the future: its loop runs here, or nowhere."""
            try:
                return asyncio.get_running_loop() is loop
            except RuntimeError:
                return not loop.is_running()

        def cancel() -> None:
            if loop.is_closed():
                return  # nobody waits for it any more
            if here():
                future.cancel()
            else:
                loop.call_soon_threadsafe(future.cancel)

        remove = self.add_callback(cancel)
        if self.is_cancelled():
            return future
        if here():
            future.add_done_callback(lambda _: remove())
        else:
            loop.call_soon_threadsafe(future.add_done_callback, lambda _: remove())
        return future
