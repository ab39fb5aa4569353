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
