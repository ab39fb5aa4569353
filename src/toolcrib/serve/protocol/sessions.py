"""The older era over Streamable HTTP, a raw ASGI application: sessions, and streams that can be taken up again.

| what comes | what goes |
|---|---|
| a POST without a session | a session and its id, where it is `initialize`; else 400 |
| a POST with a request | its answer: JSON, or a stream where something is sent before it, or it takes long |
| a POST with a notice or a reply | 202 |
| a GET | the stream of notices: one of a session, else 409 |
| a GET with `Last-Event-ID` | what came after that event on its stream, and what comes |
| a DELETE | the end of the session |
| any of them, with a session that is not there or another principal's | 404 |

A client that leaves does not cancel its request: it comes back for the answer. What it missed is kept for a minute, and
bounded over all sessions; who has the most loses their oldest.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any
from uuid import uuid4

import mcp_types as wire
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...core import Redaction
from ...machinery import Shares
from ..access.callers import CALLER
from ..wire import header
from . import core
from .connection import Answer, Connection, outcome
from .reply import Reply, accepts, read_post, until_gone
from .session import Cancelled, Event, Initialized, Session
from .session import Reply as ClientReply

_KEPT_S = 60.0
_MAX_BYTES = 4 * 1024**2
_EVENT_BYTES = 2 * 1024
"""What an event counts beside its message, so that there are at most 2,000."""
_MAX_MESSAGE_BYTES = 1024**2
_RETRY_MS = 1000
_MAX_SESSIONS, _MAX_OF_PRINCIPAL = 10_000, 1000
_IDLE_TIMEOUT_S = 1800.0
_SWEEP_INTERVAL_S = 60.0
_DEFAULT_VERSION = "2025-03-26"
"""What a request without a session speaks that names no version."""
_REQUEST_CANCELLED = -32800


class Sessions:
    """Answers the older era by *answer*, and has *greet* told when a client has shaken hands.

    There are at most 10,000 sessions, and 1,000 of one principal: with one more, the oldest ends that is idle, their
    own or of who has the most. One that is idle for half an hour ends. Without *keeps_sessions* each request stands
    alone.
    """

    def __init__(
        self,
        answer: Answer,
        greet: Callable[[core.Exchange], Awaitable[Any]],
        redaction: Redaction | None,
        *,
        keeps_sessions: bool = True,
    ) -> None:
        self.answer = answer
        self.greet = greet
        self.redaction = redaction
        self._keeps_sessions = keeps_sessions
        self._memory = EventMemory()
        self._sessions: Shares[str, HttpSession] = Shares()

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """End idle sessions while the block runs, and all of them after it."""
        sweeping = asyncio.create_task(self._sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            await asyncio.wait([sweeping])
            for session in [*self._sessions]:
                await self._end(session)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL_S)
            oldest_s = monotonic() - _IDLE_TIMEOUT_S
            for session in [session for session in self._sessions if session.used_at_s < oldest_s]:
                if session.is_idle:
                    await self._end(session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = None if (caller := scope.get(CALLER)) is None else caller.principal
        session_id, method = header(scope, b"mcp-session-id"), scope["method"]
        session = self._sessions.get(session_id) if session_id and self._keeps_sessions else None
        if session_id and self._keeps_sessions and (session is None or session.owner != owner):
            await _refuse(send, 404, "Session not found")
        elif method == "POST":
            await self._post(session, owner, scope, receive, send)
        elif method not in ("GET", "DELETE") or not self._keeps_sessions:
            await _refuse(send, 405, "Method Not Allowed", (b"allow", b"GET, POST, DELETE"))
        elif session is None:
            await _refuse(send, 400, "Bad Request: Missing session ID")
        elif method == "DELETE":
            await self._end(session)
            await Response(status_code=200, headers={"Mcp-Session-Id": session_id})(scope, receive, send)
        elif not accepts(header(scope, b"accept"), b"text/event-stream"):
            await _refuse(send, 406, "Not Acceptable: Client must accept text/event-stream")
        else:
            await session.get(header(scope, b"last-event-id"), receive, send)

    async def _post(
        self, session: "HttpSession | None", owner: Hashable, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if (body := await read_post(scope, receive, send)) is None:
            return
        if not header(scope, b"content-type").lower().startswith("application/json"):
            await _refuse(send, 400, "Invalid Content-Type header")
            return
        accept = header(scope, b"accept")
        if not (accepts(accept, b"application/json") and accepts(accept, b"text/event-stream")):
            await _refuse(send, 406, "Not Acceptable: Client must accept both application/json and text/event-stream")
            return
        state = self._state(scope) if session is None else session.state
        event = state.receive(body)
        if isinstance(event, core.Refusal) and event.error.code in (wire.PARSE_ERROR, wire.INVALID_REQUEST):
            await Reply(send).end(400, core.error(event.request_id, event.error))
        elif session is not None:
            await session.post(event, scope, receive, send)
        elif not self._keeps_sessions:
            await self._alone(state, owner, event, scope, receive, send)
        elif not isinstance(event, core.Request) or event.method != "initialize":
            await _refuse(send, 400, "Bad Request: Missing session ID")
        else:
            await self._begin(state, owner, event, scope, receive, send)

    def _state(self, scope: Scope) -> Session:
        if self._keeps_sessions:
            return Session()
        return Session("open", header(scope, core.VERSION.encode()) or _DEFAULT_VERSION)

    async def _begin(
        self, state: Session, owner: Hashable, event: core.Request, scope: Scope, receive: Receive, send: Send
    ) -> None:
        is_full = self._sessions.count(owner) >= _MAX_OF_PRINCIPAL
        if is_full or len(self._sessions) >= _MAX_SESSIONS:
            oldest = self._sessions.drop(lambda other: other.is_idle, of=owner if is_full else None)
            if oldest is None:
                await _refuse(send, 503, "Too many open sessions")
                return
            await oldest.close()
        session = HttpSession(self, uuid4().hex, owner, state, self._memory)
        self._sessions.put(session.id, session, owner)
        try:
            await session.post(event, scope, receive, send)
        finally:
            if state.state != "open" and session.is_idle:
                await self._end(session)

    async def _alone(
        self, state: Session, owner: Hashable, event: Any, scope: Scope, receive: Receive, send: Send
    ) -> None:
        session = HttpSession(self, "", owner, state, self._memory)
        try:
            await session.post(event, scope, receive, send)
        finally:
            await session.close()

    async def _end(self, session: "HttpSession") -> None:
        if self._sessions.get(session.id) is session:
            self._sessions.pop(session.id)
        await session.close()


class HttpSession:
    """One session of *owner*; without *session_id*, one request that stands alone, whose client cannot be asked."""

    def __init__(self, of: Sessions, session_id: str, owner: Hashable, state: Session, memory: "EventMemory") -> None:
        self.id = session_id
        self.owner = owner
        self.state = state
        self.used_at_s = monotonic()
        self.events: dict[int, _Event] = {}
        self.memory = memory
        self._of = of
        self._headers = [(b"mcp-session-id", session_id.encode())] if session_id else []
        self._open = 0
        self._last_number = 0
        self._notices: Stream | None = None
        self._streams: dict[wire.RequestId, Stream] = {}
        self._requests: dict[wire.RequestId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connection = Connection(state, self._notify, can_ask=bool(session_id))

    @property
    def is_idle(self) -> bool:
        return not self._open and not self._tasks

    def next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    # What comes

    async def post(
        self, event: Event | core.Refusal | bytes | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer the POST whose message is *event*."""
        reply, self.used_at_s = Reply(send, self._headers), monotonic()
        match event:
            case core.Request() as request:
                await self._answer(request, reply, scope, receive)
                return
            case core.Refusal() as refused:
                await reply.end(200, core.error(refused.request_id, refused.error))
                return
            case bytes() as answer:
                await reply.end(200, answer)
                return
            case Cancelled(request_id):
                await self._cancel(request_id)
            case Initialized():
                notice = core.Request(0, "notifications/initialized", {}, self.state.version, None)
                await outcome(self._of.greet, self._exchange(notice, self._notify, scope), self._of.redaction)
            case ClientReply(own_id, client_answer):
                self._connection.take(own_id, client_answer)
            case None:
                pass
        await Response(status_code=202, headers={"Mcp-Session-Id": self.id} if self.id else None)(scope, receive, send)

    async def get(self, last: str, receive: Receive, send: Send) -> None:
        """Answer a GET: with the stream of notices, or with that of the event *last*, from there on."""
        event = self.events.get(int(last)) if last.isdecimal() and len(last) < 16 else None
        if not last and self._notices is not None and self._notices.reply is not None:
            await _refuse(send, 409, "Conflict: Only one SSE stream is allowed per session", *self._headers)
            return
        reply = Reply(send, self._headers)
        await reply.begin()
        if last and event is None:
            await reply.close()
            return
        if event is None:
            self._notices = self._notices or Stream(self)
            stream = self._notices
        else:
            stream = event.stream
            await stream.send_again(reply, event.number)
        if stream.is_ended:
            await reply.close()
        else:
            await self._hold(stream, reply, receive)

    async def _answer(self, request: core.Request, reply: Reply, scope: Scope, receive: Receive) -> None:
        stream = self._streams[request.id] = Stream(self)
        exchange = self._exchange(request, stream.write, scope)
        if can_resume := bool(self.id) and request.version >= LATEST_HANDSHAKE_VERSION:
            exchange.close_sse_stream = stream.let_go
        stream.reply = reply
        self._requests[request.id] = self._start(self._respond(request, exchange, stream))
        await self._hold(stream, reply, receive, stream.prime if can_resume else None)

    async def _respond(self, request: core.Request, exchange: core.Exchange, stream: "Stream") -> None:
        result = await outcome(self._of.answer, exchange, self._of.redaction)
        message = self.state.answer(request, result)
        if message is not None:
            del self._requests[request.id]
            await self._end_stream(request.id, message)

    async def _cancel(self, request_id: wire.RequestId) -> None:
        self._requests.pop(request_id).cancel()
        # On this wire a stream ends with an answer only, and so does one that is taken up again.
        error = wire.ErrorData(code=_REQUEST_CANCELLED, message="Request cancelled")
        await self._end_stream(request_id, core.error(request_id, error))

    async def _end_stream(self, request_id: wire.RequestId, answer: bytes) -> None:
        await self._streams.pop(request_id).end(answer)

    async def _hold(self, stream: "Stream", reply: Reply, receive: Receive, slow: Any = None) -> None:
        """Have *stream* sent to *reply* until it has ended, or its client leaves or comes back elsewhere."""
        self._open += 1
        if stream.reply is not reply:
            stream.reply, before = reply, stream.reply
            if before is not None:
                await before.close()
        try:
            await until_gone(reply.ended, receive, reply, slow)
        finally:
            if stream.reply is reply:
                stream.reply = None
            self._open -= 1
            self.used_at_s = monotonic()

    # What goes

    def _exchange(self, request: core.Request, notify: Any, scope: Scope) -> core.Exchange:
        return core.Exchange.of(request, notify, HTTPConnection(scope), self._connection)

    async def _notify(self, message: bytes) -> None:
        if self._notices is not None:
            await self._notices.write(message)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End all that runs for this session, and its streams."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for stream in [*self._streams.values(), *([] if self._notices is None else [self._notices])]:
            if stream.reply is not None:
                await (stream.reply.close() if stream.reply.is_stream else _gone(stream.reply))
        await self._connection.close()
        for event in [*self.events.values()]:
            self.memory.remove(event)


class Stream:
    """What a session sends of one request, or its notices: to *reply*, where its client is there."""

    def __init__(self, session: HttpSession) -> None:
        self.reply: Reply | None = None
        self.is_ended = False
        self._session = session

    async def write(self, message: bytes) -> None:
        if not self.is_ended:
            event = self._keep(message)
            if self.reply is not None:
                await self.reply.send_event(message, event.number)

    async def end(self, answer: bytes) -> None:
        """Send the *answer*, the last that is sent. It is kept where the client has a place to go on from."""
        self.is_ended = True
        if self.reply is not None and not self.reply.is_stream:
            await self.reply.end(200, answer)
            return
        event = self._keep(answer if len(answer) <= _MAX_MESSAGE_BYTES else _lost(answer))
        if self.reply is not None:
            await self.reply.end(200, answer, event.number)

    async def prime(self) -> None:
        """Send an event without a message, for a client that loses the stream before anything comes."""
        if self.reply is not None and not self.reply.is_stream:
            await self.reply.prime(self._keep(b"").number, _RETRY_MS)

    async def let_go(self) -> None:
        """End the reply, for the client to come back for what comes."""
        await self.prime()
        reply, self.reply = self.reply, None
        if reply is not None:
            await reply.close()

    async def send_again(self, reply: Reply, position: int) -> None:
        """Send what is kept after *position*."""
        while later := [
            event for event in self._session.events.values() if event.stream is self and event.number > position
        ]:
            for event in later:
                position = event.number
                if event.message:
                    await reply.send_event(event.message, event.number)

    def _keep(self, message: bytes) -> "_Event":
        session = self._session
        content = message if len(message) <= _MAX_MESSAGE_BYTES else b""
        event = _Event(session.next_number(), self, content, monotonic(), session)
        if session.id:
            session.events[event.number] = event
            session.memory.add(event)
        return event


@dataclass(frozen=True, slots=True, eq=False)
class _Event:
    number: int
    stream: Stream
    message: bytes
    kept_at_s: float
    session: HttpSession


class EventMemory:
    """What can be sent again, of all sessions, oldest first."""

    def __init__(self) -> None:
        self._events: Shares[_Event, _Event] = Shares()

    def add(self, event: _Event) -> None:
        oldest_s = event.kept_at_s - _KEPT_S
        self._events.put(event, event, event.session.owner, len(event.message) + _EVENT_BYTES)
        while (oldest := next(iter(self._events))).kept_at_s < oldest_s:
            self.remove(oldest)
        while self._events.size > _MAX_BYTES and (excess := self._events.drop()) is not None:
            del excess.session.events[excess.number]

    def remove(self, event: _Event) -> None:
        del self._events.pop(event).session.events[event.number]


def _lost(answer: bytes) -> bytes:
    reason = "The stream of this request was lost, and the answer was too large to be kept."
    request_id = core.parsed(answer)["id"]
    return core.error(request_id, wire.ErrorData(code=wire.INTERNAL_ERROR, message=reason))


async def _gone(reply: Reply) -> None:
    await reply.end(404, core.error(None, wire.ErrorData(code=wire.INVALID_REQUEST, message="Session not found")))


async def _refuse(send: Send, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
    error = wire.ErrorData(code=wire.INVALID_REQUEST, message=message)
    await Reply(send, headers).end(status, core.error(None, error))
