"""The events of a run, on their way to whoever streams it. A slow reader holds back the run."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from ..core import Call, Event, Result
from ..formats import TextDelta


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call of the model starts."""

    call: Call


@dataclass(frozen=True, slots=True)
class CallEvent:
    """An event of a running call: `Progress` or `Emitted`."""

    call: Call
    event: Event


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call has ended, whether it succeeded or not."""

    call: Call
    result: Result[Any]


RunEvent = TextDelta | CallStarted | CallEvent | CallFinished

_MAX_WAITING = 16
"""How many events may wait for the reader."""


class EventSink(Protocol):
    """Takes the events of a run."""

    async def put(self, event: RunEvent, /) -> None: ...


class EventQueue:
    """The events of one run, in order, on one event loop."""

    def __init__(self) -> None:
        self._queue: deque[RunEvent] = deque()
        self._ended = False
        self._changed = asyncio.Event()
        self._space = asyncio.Event()

    async def put(self, event: RunEvent, /) -> None:
        while len(self._queue) >= _MAX_WAITING and not self._ended:
            self._space.clear()
            await self._space.wait()
        self._queue.append(event)
        self._changed.set()

    def end(self, _: object = None) -> None:
        self._ended = True
        self._changed.set()
        self._space.set()

    def __aiter__(self) -> "EventQueue":
        return self

    async def __anext__(self) -> RunEvent:
        while True:
            if self._queue:
                self._space.set()
                return self._queue.popleft()
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()


class ResumedEvents:
    """The events of calls that are made again, perhaps several times: each call starts once and ends once."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._started: set[str] = set()
        self._pending: dict[str, CallFinished] = {}

    async def put(self, event: RunEvent, /) -> None:
        match event:
            case CallStarted(call) if call.id in self._started:
                return
            case CallStarted(call):
                self._started.add(call.id)
            case CallFinished(call, result):
                if result.pending is not None:  # it may be made again, once it is answered
                    self._pending[call.id] = event
                    return
                self._pending.pop(call.id, None)
            case _:
                pass
        await self._events.put(event)

    async def finish(self) -> None:
        """Report the calls that still wait."""
        for event in self._pending.values():
            await self._events.put(event)
