"""What a running call reports, on its way to whoever streams it. A slow reader slows down the tool."""

import asyncio
from collections import deque

from ..core import Emitted, Event, Progress

_WAITING = 16
"""How many emitted pieces may wait for the reader."""


class EventStream:
    """Events of one call, in order, on one event loop. Of progress only the newest is kept."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._emitted: deque[Emitted] = deque()
        self._progress: Progress | None = None
        self._ended = False
        self._news = asyncio.Event()
        self._space = asyncio.Event()

    async def put(self, emitted: Emitted) -> None:
        while len(self._emitted) >= _WAITING and not self._ended:
            self._space.clear()
            await self._space.wait()
        self._emitted.append(emitted)
        self._news.set()

    def progress(self, progress: Progress) -> None:
        self._progress = progress
        self._news.set()

    def end(self, _: object = None) -> None:
        self._ended = True
        self._news.set()
        self._space.set()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Event:
        while True:
            # Progress first: what was emitted after it may say that the work has gone on.
            if self._progress is not None:
                progress, self._progress = self._progress, None
                return progress
            if self._emitted:
                self._space.set()
                return self._emitted.popleft()
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
