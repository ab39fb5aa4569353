"""The streams of the older era, for clients that lose one and come back: what they missed is sent again.

Each session has events of its own: the names of streams are a client's ids of requests, and the same in many sessions.
What is kept is bounded over all sessions; the oldest goes first.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

_KEPT_S = 60.0
_MOST_BYTES = 4 * 1024**2
_MOST_EVENTS = 2_000
_LARGEST_BYTES = 1024**2
_RETRY_MS = 1000


class Sessions(StreamableHTTPSessionManager):
    """The SDK's sessions over HTTP, whose streams can be taken up again."""

    def __init__(self, app: Any, **options: Any) -> None:
        self._memory = EventMemory()
        super().__init__(app, retry_interval=_RETRY_MS, **options)

    @property
    def event_store(self) -> EventStore:
        """A new one each time: the SDK reads it once for each session."""
        return SessionEvents(self._memory)

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None: ...


@dataclass(frozen=True, slots=True)
class _Event:
    number: int
    stream: str
    message: bytes
    is_answer: bool
    kept_at_s: float
    session: "SessionEvents"


class EventMemory:
    """What can be sent again, of all sessions, oldest first."""

    def __init__(self) -> None:
        self._events: deque[_Event] = deque()
        self._bytes = 0

    def add(self, event: _Event) -> None:
        self._events.append(event)
        self._bytes += len(event.message)
        oldest_s = event.kept_at_s - _KEPT_S
        while self._bytes > _MOST_BYTES or len(self._events) > _MOST_EVENTS or self._events[0].kept_at_s < oldest_s:
            gone = self._events.popleft()
            self._bytes -= len(gone.message)
            del gone.session.events[gone.number]


class SessionEvents(EventStore):
    """The events of one session. The id of an event is its number in the session."""

    def __init__(self, memory: EventMemory) -> None:
        self.events: dict[int, _Event] = {}
        self._memory = memory
        self._numbers = count(1)
        self._added = asyncio.Event()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        is_answer = stream_id != GET_STREAM_KEY and isinstance(message, JSONRPCResponse | JSONRPCError)
        event = _Event(next(self._numbers), stream_id, _written(message), is_answer, monotonic(), self)
        self.events[event.number] = event
        self._memory.add(event)
        self._added.set()
        self._added = asyncio.Event()
        return str(event.number)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after *last_event_id* on its stream: of a request, until it is answered.

        The SDK would go on itself where this returns the stream, and lose what comes between: that is for notices.
        """
        last = self.events.get(int(last_event_id)) if last_event_id.isdecimal() and len(last_event_id) < 16 else None
        if last is None:
            return None
        sent, is_answered = last.number, last.is_answer
        while not is_answered:
            added = self._added
            for event in [each for each in self.events.values() if each.stream == last.stream and each.number > sent]:
                sent = event.number
                if event.message:
                    message = jsonrpc_message_adapter.validate_json(event.message, by_name=False)
                    await send_callback(EventMessage(message, str(event.number)))
                is_answered = event.is_answer
            if last.stream == GET_STREAM_KEY:
                return last.stream
            if not is_answered:
                await added.wait()
        return None


def _written(message: JSONRPCMessage | None) -> bytes:
    if message is None:
        return b""
    written = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    if len(written) > _LARGEST_BYTES and isinstance(message, JSONRPCResponse | JSONRPCError):
        reason = "The stream of this request was lost, and the answer was too large to be kept."
        lost = JSONRPCError(jsonrpc="2.0", id=message.id, error=ErrorData(code=INTERNAL_ERROR, message=reason))
        return lost.model_dump_json(by_alias=True, exclude_unset=True).encode()
    return written if len(written) <= _LARGEST_BYTES else b""
