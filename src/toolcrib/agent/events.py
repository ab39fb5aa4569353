"""The events of a run, on their way to its reader. A slow reader holds back the run."""

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


class EventSink(Protocol):
    """Takes the events of a run."""

    async def put(self, event: RunEvent, /) -> None: ...


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
