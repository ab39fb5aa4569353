"""The reports of work in the background, on their way to a reader. A slow reader slows the work down."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, Self, TypeVar

from ..core import Event, Progress

E = TypeVar("E")
R = TypeVar("R")

_MAX_WAITING = 16
"""How many events may wait for the reader."""


class EventQueue(Generic[E]):
    """Events in order, on one event loop."""

    def __init__(self) -> None:
        self._queue: deque[E] = deque()
        self._ended = False
        self.count = 0
        """How many were put here."""
        self._changed = asyncio.Event()
        self._space = asyncio.Event()

    async def put(self, event: E, /) -> None:
        while len(self._queue) >= _MAX_WAITING and not self._ended:
            self._space.clear()
            await self._space.wait()
        self._queue.append(event)
        self.count += 1
        self._changed.set()

    def add(self, event: E, /) -> None:
        """Put *event* without waiting. It is dropped where too many wait."""
        if len(self._queue) < _MAX_WAITING:
            self._queue.append(event)
            self._changed.set()

    def end(self, _: object = None) -> None:
        self._ended = True
        self._changed.set()
        self._space.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        while (event := self._next()) is None:
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return event

    def _next(self) -> E | None:
        if not self._queue:
            return None
        self._space.set()
        return self._queue.popleft()


class EventStream(EventQueue[Event]):
    """The events of one call. Of progress only the newest is kept, which never waits."""

    def __init__(self) -> None:
        super().__init__()
        self._progress: Progress | None = None

    def progress(self, progress: Progress) -> None:
        self._progress = progress
        self._changed.set()

    def _next(self) -> Event | None:
        # Progress first: what was emitted after it may say that the work has gone on.
        if self._progress is not None:
            progress, self._progress = self._progress, None
            return progress
        return super()._next()


async def streamed(events: EventQueue[E], run: Callable[[], Awaitable[R]]) -> AsyncGenerator[E | R]:
    """Yield what *run* puts into *events* while it runs, and last its value. Closing the iterator cancels *run*."""
    task = asyncio.ensure_future(run())
    task.add_done_callback(events.end)
    try:
        async for event in events:
            yield event
        yield await task
    finally:
        if not task.done():
            events.end()
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
