"""The older era over Streamable HTTP, a raw ASGI application: sessions, and streams that can be taken up again.

| what comes | what goes |
|---|---|
| a POST without a session | a session and its id, where it is `initialize`; else 400 |
| a POST with a request | its answer: JSON, or a stream where something is sent before it, or it takes long |
| a POST with a notice or a reply | 202 |
| a GET | the stream of notices: one of a session, else 409 |
| a GET with `Last-Event-ID` | what came after that event on its stream, and what comes |
| a DELETE | the end of the session |
| any of them, with the id of a session that has ended here, is too old, not ours or another principal's | 404 |

The id of a session is what it is, sealed: who began it, when, and what the client said of itself. So another process
with the same key, or this one after a start, makes the session of its id. What a session is asked, follows and missed
is of one process: the numbers of questions and events begin by chance, so they are no other process's.

A client that leaves does not cancel its request: it comes back for the answer. What it missed is kept for a minute, and
bounded over all sessions; who has the most loses their oldest.
"""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Hashable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from hmac import compare_digest, digest
from secrets import randbits, token_bytes
from time import monotonic, time
from typing import Any
from uuid import uuid4

import mcp_types as wire
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic_core import from_json
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...core import Redaction, StoreError
from ...machinery import Shares, text_digest
from ..access.callers import CALLER
from ..wire import header, to_bytes
from . import core
from .connection import Answer, Connection, outcome
from .messages import Refusal, read_soon
from .reply import Reply, accepts, read_post, until_gone
from .session import Cancelled, Event, Initialized, Session, Stray, capabilities_of
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
_MAX_AGE_S = 7 * 86400.0
"""How long after its handshake a session is made again of its id."""
_REQUEST_CANCELLED = -32800
_BINDING = "mcp session"
_STRAY = (
    "This process has not asked what this answers, so the answer does not count. Where several processes serve, the "
    "balancer has to send a client to the same one, for its answers to arrive."
)


class Sessions:
    """Answers the older era by *answer*, and has *greet* told when a client has shaken hands.

    There are at most 10,000 sessions, and 1,000 of one principal: with one more, the oldest ends that is idle, their
    own or of who has the most. One that is idle for half an hour ends. Its id makes it again, unless its client has
    ended it. *keys*, those of a store, seal the ids; unless *can_ask*, clients are not asked, since their answers may
    come to another process.
    """

    def __init__(
        self,
        answer: Answer,
        greet: Callable[[core.Exchange], Awaitable[Any]],
        redaction: Redaction | None,
        keys: Any,
        *,
        can_ask: bool = True,
    ) -> None:
        self.answer = answer
        self.greet = greet
        self.redaction = redaction
        self.can_ask = can_ask
        self.memory = EventMemory()
        self._keys = keys
        self._sessions: Shares[str, HttpSession] = Shares()
        self._ended: Shares[str, bool] = Shares()

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
        session_id = header(scope, b"mcp-session-id")
        session = self._sessions.get(session_id) or self._opened(session_id, owner) if session_id else None
        if session is None or session.owner != owner:
            if session_id:
                await _refuse(send, 404, "Session not found")
            else:
                await self._answer(None, owner, scope, receive, send)
            return
        with session.used():
            if self._sessions.get(session_id) is session or await self._admit(session):
                await self._answer(session, owner, scope, receive, send)
            else:
                await _refuse(send, 503, "Too many open sessions")

    async def _answer(
        self, session: "HttpSession | None", owner: Hashable, scope: Scope, receive: Receive, send: Send
    ) -> None:
        method = scope["method"]
        if method == "POST":
            await self._post(session, owner, scope, receive, send)
        elif method not in ("GET", "DELETE"):
            await _refuse(send, 405, "Method Not Allowed", (b"allow", b"GET, POST, DELETE"))
        elif session is None:
            await _refuse(send, 400, "Bad Request: Missing session ID")
        elif method == "DELETE":
            self._ended.put(session.id.partition(".")[0], True, owner)
            if len(self._ended) > _MAX_SESSIONS:
                self._ended.drop()
            await self._end(session)
            await Response(status_code=200, headers={"Mcp-Session-Id": session.id})(scope, receive, send)
        elif not accepts(header(scope, b"accept"), b"text/event-stream"):
            await _refuse(send, 406, "Not Acceptable: Client must accept text/event-stream")
        else:
            await session.get(header(scope, b"last-event-id"), scope, receive, send)

    async def _post(
        self, session: "HttpSession | None", owner: Hashable, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if (body := await read_post(scope, receive, send)) is None:
            return
        if (refusal := _header_refusal(scope)) is not None:
            await _refuse(send, *refusal)
            return
        state = _new_state() if session is None else session.state
        event = await _event_of(state, body)
        if isinstance(event, Refusal) and event.error.code in (wire.PARSE_ERROR, wire.INVALID_REQUEST):
            await Reply(send).end(400, core.error(event.request_id, event.error))
        elif session is not None:
            if self._sessions.get(session.id) is session:
                await session.post(event, scope, receive, send)
            else:
                await _refuse(send, 404, "Session not found")  # it has ended meanwhile
        elif not isinstance(event, core.Request) or event.method != "initialize":
            await _refuse(send, 400, "Bad Request: Missing session ID")
        else:
            await self._begin(state, owner, event, scope, send)

    async def _begin(self, state: Session, owner: Hashable, request: core.Request, scope: Scope, send: Send) -> None:
        exchange = core.Exchange.of(request, _sent_nowhere, HTTPConnection(scope))
        message = state.answer(request, await outcome(self.answer, exchange, self.redaction))
        assert message is not None  # it cannot have been cancelled yet
        headers: list[tuple[bytes, bytes]] = []
        if state.state == "open":
            session = HttpSession(self, self._sealed(state, owner), owner, state)
            if not await self._admit(session):
                await _refuse(send, 503, "Too many open sessions")
                return
            headers = session.headers
        await Reply(send, headers).end(200, message)

    def _sealed(self, state: Session, owner: Hashable) -> str:
        name = uuid4().hex
        capabilities = state.capabilities.model_dump(mode="json", by_alias=True, exclude_none=True)
        content = [name, _digest(owner), int(time()), state.version, capabilities]
        return f"{name}.{urlsafe_b64encode(self._keys.seal(to_bytes(content), _BINDING)).decode()}"

    def _opened(self, session_id: str, owner: Hashable) -> "HttpSession | None":
        """Return the session that *session_id* makes; None where there is none for *owner*."""
        name, _, sealed = session_id.partition(".")
        try:
            envelope = urlsafe_b64decode(sealed)
            if urlsafe_b64encode(envelope).decode() != sealed:
                return None  # decoding overlooks some changes
            content = from_json(self._keys.unseal(envelope, _BINDING))
        except (StoreError, ValueError):
            return None
        own_name, who, begun_at_s, version, capabilities = content
        has_ended = time() - begun_at_s > _MAX_AGE_S or self._ended.get(name)
        if has_ended or (own_name, who) != (name, _digest(owner)):
            return None
        state = _new_state()
        state.state, state.version, state.capabilities = "open", version, capabilities_of(capabilities)
        return HttpSession(self, session_id, owner, state)

    async def _admit(self, session: "HttpSession") -> bool:
        """Hold *session*, for which another may end. Returns whether there is room."""
        is_full = self._sessions.count(session.owner) >= _MAX_OF_PRINCIPAL
        oldest = None
        if is_full or len(self._sessions) >= _MAX_SESSIONS:
            oldest = self._sessions.drop(lambda other: other.is_idle, of=session.owner if is_full else None)
            if oldest is None:
                return False
        self._sessions.put(session.id, session, session.owner)
        if oldest is not None:
            await oldest.close()
        return True

    async def _end(self, session: "HttpSession") -> None:
        if self._sessions.get(session.id) is session:
            self._sessions.pop(session.id)
        await session.close()


class ProcessKeys:
    """What signs the ids of sessions where there is no store: a key of this process."""

    def __init__(self) -> None:
        self._key = token_bytes(32)

    def seal(self, data: bytes, _: str) -> bytes:
        return digest(self._key, data, "sha256") + data

    def unseal(self, envelope: bytes, _: str) -> bytes:
        mac, data = envelope[:32], envelope[32:]
        if not compare_digest(mac, digest(self._key, data, "sha256")):
            raise StoreError("This was not signed by this process.")
        return data


class HttpSession:
    """One session of *owner*."""

    __slots__ = (
        *("_connection", "_notices", "_of", "_open", "_streams", "_tasks"),
        *("__weakref__", "events", "id", "owner", "state", "used_at_s"),
    )

    def __init__(self, of: Sessions, session_id: str, owner: Hashable, state: Session) -> None:
        self.id = session_id
        self.owner = owner
        self.state = state
        self.used_at_s = monotonic()
        self.events: dict[int, _Event] = {}
        self._of = of
        self._open = 0
        self._notices: Stream | None = None
        self._streams: dict[wire.RequestId, Stream] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._connection = Connection(state, self._notify, can_ask=of.can_ask)

    @property
    def is_idle(self) -> bool:
        return not self._open and not self._tasks

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"mcp-session-id", self.id.encode())]

    @property
    def memory(self) -> "EventMemory":
        return self._of.memory

    @contextmanager
    def used(self) -> Generator[None]:
        """Note that a request uses the session while the block runs."""
        self._open, self.used_at_s = self._open + 1, monotonic()
        try:
            yield
        finally:
            self._open, self.used_at_s = self._open - 1, monotonic()

    # What comes

    async def post(self, event: Event | Refusal | bytes | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the POST whose message is *event*."""
        reply = Reply(send, self.headers)
        match event:
            case core.Request() as request:
                await self._answer(request, reply, scope, receive)
                return
            case Refusal() as refused:
                await reply.end(200, core.error(refused.request_id, refused.error))
                return
            case bytes() as answer:
                await reply.end(200, answer)
                return
            case Cancelled(request_id):
                await self._cancel(request_id)
            case Initialized():
                await self._greet(scope)
            case ClientReply(own_id, client_answer):
                self._connection.take(own_id, client_answer)
            case Stray():
                await _refuse(send, 400, _STRAY, *self.headers)
                return
            case None:
                pass
        await Response(status_code=202, headers={"Mcp-Session-Id": self.id})(scope, receive, send)

    async def _greet(self, scope: Scope) -> None:
        notice = core.Request(0, "notifications/initialized", {}, self.state.version, None)
        exchange = self._exchange(notice, self._notify, scope)
        await asyncio.wait([self._start(outcome(self._of.greet, exchange, self._of.redaction))])

    async def get(self, last: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a GET: with the stream of notices, or with that of the event *last*, from there on."""
        if last:
            await self._go_on(last, Reply(send, self.headers), receive)
            return
        if self._notices is None:
            self._notices = Stream(self)
            await self._greet(scope)  # what said that it has shaken hands may have come to another process
        elif self._notices.reply is not None:
            await _refuse(send, 409, "Conflict: Only one SSE stream is allowed per session", *self.headers)
            return
        reply = Reply(send, self.headers)
        await reply.begin()
        await self._hold(self._notices, reply, receive)

    async def _go_on(self, last: str, reply: Reply, receive: Receive) -> None:
        """Send to *reply* what came after the event *last* on its stream, and what comes."""
        event = self.events.get(int(last)) if last.isdecimal() and len(last) < 16 else None
        await reply.begin()
        if event is not None:
            await event.stream.send_again(reply, event.number)
        if event is None or event.stream.is_ended:
            await reply.close()
        else:
            await self._hold(event.stream, reply, receive)

    async def _answer(self, request: core.Request, reply: Reply, scope: Scope, receive: Receive) -> None:
        stream = self._streams[request.id] = Stream(self)
        exchange = self._exchange(request, stream.write, scope)
        if can_resume := request.version >= LATEST_HANDSHAKE_VERSION:
            exchange.close_sse_stream = stream.let_go
        stream.reply = reply
        stream.task = self._start(self._respond(request, exchange, stream))
        await self._hold(stream, reply, receive, stream.prime if can_resume else None)

    async def _respond(self, request: core.Request, exchange: core.Exchange, stream: "Stream") -> None:
        result = await outcome(self._of.answer, exchange, self._of.redaction)
        message = self.state.answer(request, result)
        if message is not None:
            await self._streams.pop(request.id).end(message)

    async def _cancel(self, request_id: wire.RequestId) -> None:
        stream = self._streams.pop(request_id)
        if stream.task is not None:
            stream.task.cancel()
        # On this wire a stream ends with an answer only, and so does one that is taken up again.
        await stream.end(core.error(request_id, wire.ErrorData(code=_REQUEST_CANCELLED, message="Request cancelled")))

    async def _hold(self, stream: "Stream", reply: Reply, receive: Receive, slow: Any = None) -> None:
        """Have *stream* sent to *reply* until it has ended, or its client leaves or comes back elsewhere."""
        if stream.reply is not reply:
            stream.reply, before = reply, stream.reply
            if before is not None:
                await before.close()
        try:
            await until_gone(reply.ended, receive, reply.ping, slow=slow)
        finally:
            if stream.reply is reply:
                stream.reply = None

    # What goes

    def _exchange(self, request: core.Request, notify: Any, scope: Scope) -> core.Exchange:
        return core.Exchange.of(request, notify, HTTPConnection(scope), self._connection)

    async def _notify(self, message: bytes) -> None:
        if self._notices is not None:
            await self._notices.write(message)

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
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

    __slots__ = ("_session", "is_ended", "reply", "task")

    def __init__(self, session: HttpSession) -> None:
        self.reply: Reply | None = None
        self.task: asyncio.Task[None] | None = None
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
        number = session.state.next_number()
        content = message if len(message) <= _MAX_MESSAGE_BYTES else b""
        event = session.events[number] = _Event(number, self, content, monotonic(), session)
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


def _new_state() -> Session:
    return Session(last_number=randbits(49))  # an event's number has 15 digits, and JavaScript reads 16


def _digest(owner: Hashable) -> str:
    return text_digest(repr(owner))


async def _event_of(state: Session, body: bytes) -> Event | Refusal | bytes | None:
    try:
        return state.receive(await read_soon(body))
    except Refusal as refused:
        return refused


def _header_refusal(scope: Scope) -> tuple[int, str] | None:
    """Return the status and the reason to refuse a POST by its headers; None where these are in order."""
    if not header(scope, b"content-type").lower().startswith("application/json"):
        return 400, "Invalid Content-Type header"
    accept = header(scope, b"accept")
    if not (accepts(accept, b"application/json") and accepts(accept, b"text/event-stream")):
        return 406, "Not Acceptable: Client must accept both application/json and text/event-stream"
    return None


async def _sent_nowhere(_: bytes) -> None: ...


def _lost(answer: bytes) -> bytes:
    reason = "The stream of this request was lost, and the answer was too large to be kept."
    request_id = from_json(answer)["id"]
    return core.error(request_id, wire.ErrorData(code=wire.INTERNAL_ERROR, message=reason))


async def _gone(reply: Reply) -> None:
    await reply.end(404, core.error(None, wire.ErrorData(code=wire.INVALID_REQUEST, message="Session not found")))


async def _refuse(send: Send, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
    error = wire.ErrorData(code=wire.INVALID_REQUEST, message=message)
    await Reply(send, headers).end(status, core.error(None, error))
