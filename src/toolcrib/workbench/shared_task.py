"""What several ask for at the same time is done once."""

import asyncio
from collections.abc import Awaitable, Callable

from ..core import SetupError, create_lasting_task


class SharedTask:
    """Does something once for all who ask for it at the same time.

    It goes on as long as a caller waits: it is cancelled when the last of them is.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._waiters = 0
        self._is_cancelled = False

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait until *work*, or what was begun before it, is done. Raises what that raises."""
        if self._task is None or self._task.done():
            self._task = create_lasting_task(_awaited(work))
            self._waiters, self._is_cancelled = 0, False
        task = self._task
        self._waiters += 1
        try:
            await asyncio.wait({task})
        finally:
            self._waiters -= 1
            if not self._waiters and not task.done():
                await self.cancel()
        if task.cancelled():
            raise SetupError("The start was cancelled.")
        task.result()

    async def cancel(self) -> None:
        """Cancel what is being done, if anything is, and wait until it has ended."""
        task = self._task
        if task is None or task.done():
            return
        if not self._is_cancelled:
            self._is_cancelled = True
            task.cancel()  # once: a second time, it would not wait for what it is stopping
        await asyncio.wait({task})


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
