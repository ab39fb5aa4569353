"""What goes between the SDK and a server, message by message, bounded: a server must not make us hold ever more.

A request of the server is a task here until it is answered, so only so many are taken at a time. That a call was given
up is sent in the background: whoever gave it up has no time to wait for it. Pages of lists are repaired on their way.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from .mcp_lists import LISTS, List

_MOST_UNANSWERED = 50
"""How many requests a server may have here at once."""
_CANCEL_S = 5.0

_log = logging.getLogger("toolcrib.mcp")


@contextmanager
def bounded(streams: tuple[Any, Any], on_given_up: Callable[[RequestId], None] = lambda _: None) -> Generator[Any]:
    """*streams* of a transport, for the SDK: what it reads, and what it writes to.

    *on_given_up* is called with the id of a request of ours for whose answer nobody waits any more.
    """
    received, to_send = streams
    state = _State()
    outgoing = _Outgoing(to_send, state, on_given_up)
    try:
        yield _Incoming(received, state), outgoing
    finally:
        outgoing.end()


class _State:
    def __init__(self) -> None:
        self.unanswered: set[RequestId] = set()
        """The requests of the server."""
        self.lists: dict[RequestId, tuple[List[Any, Any], str]] = {}
        """Our own for lists, and in which version of the protocol they are asked for."""


class _Stream:
    def __init__(self, inner: Any, state: _State) -> None:
        self._inner = inner
        self._state = state

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        left: bool | None = await self._inner.__aexit__(kind, raised, trace)
        return left


class _Incoming(_Stream):
    """What the server says. Of more requests than can be open at once, and of two with one id, it gets no answer."""

    @property
    def last_context(self) -> Any:
        """In which context the last message was sent, where the transport knows."""
        return getattr(self._inner, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while True:
            item = await self._inner.__anext__()
            if not isinstance(item, SessionMessage) or self._is_taken(item.message):
                return item

    def _is_taken(self, message: JSONRPCMessage) -> bool:
        unanswered, lists = self._state.unanswered, self._state.lists
        match message:
            case JSONRPCResponse() if lists and (asked := lists.pop(coerce_request_id(message.id), None)) is not None:
                message.result = asked[0].repaired(message.result, asked[1])
            case JSONRPCError(id=int() | str() as request_id):
                lists.pop(coerce_request_id(request_id), None)
            case JSONRPCRequest():
                if message.id in unanswered or len(unanswered) >= _MOST_UNANSWERED:
                    _log.debug("A request of an MCP server is not answered: too many are open, or one with its id is")
                    return False
                unanswered.add(message.id)
            case JSONRPCNotification(method="notifications/cancelled"):
                if (ended := as_request_id((message.params or {}).get("requestId"))) is not None:
                    unanswered.discard(ended)
            case _:
                pass
        return True

    async def receive(self) -> Any:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class _Outgoing(_Stream):
    """What is sent to the server."""

    def __init__(self, inner: Any, state: _State, on_given_up: Callable[[RequestId], None]) -> None:
        super().__init__(inner, state)
        self._on_given_up = on_given_up
        self._cancelling: set[asyncio.Task[None]] = set()

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        match message:
            case JSONRPCRequest():
                if (of := LISTS.get(message.method)) is not None:
                    headers = getattr(item.metadata, "headers", None) or {}
                    version = headers.get(MCP_PROTOCOL_VERSION_HEADER, LATEST_HANDSHAKE_VERSION)
                    self._state.lists[message.id] = of, version
                await self._inner.send(item)
            case JSONRPCNotification(method="notifications/cancelled"):
                assert message.params is not None
                await self._cancel(item, message.params["requestId"])
            case JSONRPCNotification():
                await self._inner.send(item)
            case JSONRPCResponse() | JSONRPCError():
                try:
                    await self._inner.send(item)
                finally:
                    if message.id is not None:
                        self._state.unanswered.discard(message.id)

    async def _cancel(self, item: SessionMessage, request_id: RequestId) -> None:
        self._on_given_up(request_id)
        self._state.lists.pop(request_id, None)
        task = asyncio.ensure_future(self._send_soon(item))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)
        await asyncio.sleep(0)  # mostly, it is sent now, before what comes next

    async def _send_soon(self, item: SessionMessage) -> None:
        with suppress(TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with asyncio.timeout(_CANCEL_S):
                await self._inner.send(item)

    def end(self) -> None:
        for task in self._cancelling:
            task.cancel()
