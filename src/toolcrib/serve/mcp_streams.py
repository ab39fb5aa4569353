"""The streams of the older era, for clients that lose one and come back: what they missed is sent again.

Each session has events of its own: the names of streams are a client's ids of requests, and the same in many sessions.
What is kept is bounded over all sessions; the one that has the most loses its oldest.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    EventCallback,
    EventMessage,
    EventStore,
    StreamableHTTPServerTransport,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from ..machinery import Shares
from .messages import REQUEST_ID
from .sdk import event_store_of, has_requests
from .wire import header

_KEPT_S = 60.0
_MAX_BYTES = 4 * 1024**2
_EVENT_BYTES = 2 * 1024
"""What an event counts beside its message, so that there are at most 2,000."""
_MAX_MESSAGE_BYTES = 1024**2
_RETRY_MS = 1000
_MAX_SESSIONS, _MAX_OF_PRINCIPAL = 10_000, 1000


class Sessions(StreamableHTTPSessionManager):
    """The SDK's sessions over HTTP, whose streams can be taken up again: at most 10,000, and 1,000 of one principal.

    With one more, the oldest ends that has no request: their own, or of who has the most. Of two
    requests with the same id at once, the second is refused.
    """

    def __init__(self, app: Any, **options: Any) -> None:
        self._memory = EventMemory()
        self._requestor: str | None = None
        super().__init__(app, retry_interval=_RETRY_MS, max_sessions=None, **options)

    @property
    def event_store(self) -> EventStore:
        """A new one each time: the SDK reads it once for each session."""
        return SessionEvents(self._memory, self._requestor)

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None: ...

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = scope.get(REQUEST_ID)
        events = None if request_id is None else self._events_of(scope)
        if events is None:
            await super().handle_request(scope, receive, send)
        elif (stream := str(request_id)) in events.unanswered or stream == GET_STREAM_KEY:
            error = ErrorData(code=INVALID_REQUEST, message="A request with this id has not been answered yet.")
            answer = JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
            await JSONResponse(answer.model_dump(mode="json"), 400)(scope, receive, send)
        else:

            async def watched(message: Message) -> None:
                if message.get("status", 200) >= 400:
                    events.unanswered.discard(stream)
                await send(message)

            events.unanswered.add(stream)
            await super().handle_request(scope, receive, watched)

    def _events_of(self, scope: Scope) -> "SessionEvents | None":
        """Return the events of the session that a request names, if it is of its owner."""
        session = header(scope, b"mcp-session-id")
        transport = self._server_instances.get(session)
        if transport is None or self._session_owners.get(session) != _owner(scope):
            return None
        events = event_store_of(transport)
        return events if isinstance(events, SessionEvents) else None

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        self._requestor = _name_of(requestor)
        counts = Counter(_name_of(self._session_owners.get(session)) for session in self._server_instances)
        if counts[self._requestor] >= _MAX_OF_PRINCIPAL:
            counts = Counter({self._requestor: 1})
        elif len(self._server_instances) < _MAX_SESSIONS:
            return super()._admit_session(requestor)
        # Of who has the most first, and of these the oldest.
        order = sorted(self._server_instances, key=lambda session: -counts[_name_of(self._session_owners.get(session))])
        for session in order:
            transport = self._server_instances[session]
            if counts[_name_of(self._session_owners.get(session))] and _is_idle(transport):
                assert transport.idle_scope is not None
                transport.idle_scope.cancel()
                return super()._admit_session(requestor)
        return None


def _owner(scope: Scope) -> AuthorizationContext | None:
    user = scope.get("user")
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None


def _name_of(requestor: AuthorizationContext | None) -> str | None:
    return None if requestor is None else requestor["client_id"]


def _is_idle(transport: StreamableHTTPServerTransport) -> bool:
    scope = transport.idle_scope
    return scope is not None and not scope.cancel_called and not has_requests(transport)


@dataclass(frozen=True, slots=True, eq=False)
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
        self._events: Shares[_Event, _Event] = Shares()

    def add(self, event: _Event) -> None:
        oldest_s = event.kept_at_s - _KEPT_S
        self._events.put(event, event, event.session.owner, len(event.message) + _EVENT_BYTES)
        while (oldest := next(iter(self._events))).kept_at_s < oldest_s:
            self._forget(self._events.pop(oldest))
        while self._events.size > _MAX_BYTES and (dropped := self._events.drop()) is not None:
            self._forget(dropped)

    def _forget(self, event: _Event) -> None:
        del event.session.events[event.number]


class SessionEvents(EventStore):
    """The events of one session, which is *owner*'s. The id of an event is its number in the session."""

    def __init__(self, memory: EventMemory, owner: Hashable = None) -> None:
        self.owner = owner
        self.events: dict[int, _Event] = {}
        self.unanswered: set[str] = set()
        """The streams of requests that have no answer yet."""
        self._memory = memory
        self._numbers = count(1)
        self._added = asyncio.Event()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        is_answer = stream_id != GET_STREAM_KEY and isinstance(message, JSONRPCResponse | JSONRPCError)
        if is_answer:
            self.unanswered.discard(stream_id)
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
        position, is_answered = last.number, last.is_answer
        while not is_answered:
            arrival = self._added
            for event in [
                later for later in self.events.values() if later.stream == last.stream and later.number > position
            ]:
                position = event.number
                if event.message:
                    message = jsonrpc_message_adapter.validate_json(event.message, by_name=False)
                    await send_callback(EventMessage(message, str(event.number)))
                is_answered = event.is_answer
            if last.stream == GET_STREAM_KEY:
                return last.stream
            if not is_answered:
                await arrival.wait()
        return None


def _written(message: JSONRPCMessage | None) -> bytes:
    if message is None:
        return b""
    frame = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    if len(frame) > _MAX_MESSAGE_BYTES and isinstance(message, JSONRPCResponse | JSONRPCError):
        reason = "The stream of this request was lost, and the answer was too large to be kept."
        error = JSONRPCError(jsonrpc="2.0", id=message.id, error=ErrorData(code=INTERNAL_ERROR, message=reason))
        return error.model_dump_json(by_alias=True, exclude_unset=True).encode()
    return frame if len(frame) <= _MAX_MESSAGE_BYTES else b""
