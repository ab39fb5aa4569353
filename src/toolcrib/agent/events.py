"""What a run says, on its way to whoever streams it. A slow reader holds back the run, not the memory."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any

from ..core import Call, Event, Result
from ..formats import Written


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call that the model asked for begins."""

    call: Call


@dataclass(frozen=True, slots=True)
class CallEvent:
    """What a call says while it runs: `Progress` or `Emitted`."""

    call: Call
    event: Event


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call has ended, in whatever way."""

    call: Call
    result: Result[Any]


RunEvent = Written | CallBegun | CallEvent | CallEnded

_WAITING = 16
"""How many events may wait for the reader."""


class Events:
    """The events of one run, in order, on one event loop."""

    def __init__(self) -> None:
        self._queue: deque[RunEvent] = deque()
        self._ended = False
        self._news = asyncio.Event()
        self._space = asyncio.Event()

    async def put(self, event: RunEvent) -> None:
        while len(self._queue) >= _WAITING and not self._ended:
            self._space.clear()
            await self._space.wait()
        self._queue.append(event)
        self._news.set()

    def end(self, _: object = None) -> None:
        self._ended = True
        self._news.set()
        self._space.set()

    def __aiter__(self) -> "Events":
        return self

    async def __anext__(self) -> RunEvent:
        while True:
            if self._queue:
                self._space.set()
                return self._queue.popleft()
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
