"""What goes between the SDK and a server, message by message, bounded: a server must not make us hold ever more.

A request of the server is a task here until it is answered, so only so many are taken at a time. Pages of lists are
repaired on their way. That a call was given up is sent in the background: the SDK would hold its caller for that long.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Self

import anyio
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from .lists import LISTS, List

MAX_UNANSWERED = 50
"""How many requests a server may have here at once."""
_CANCEL_TIMEOUT_S = 5.0

_log = logging.getLogger("toolcrib.mcp")


@contextmanager
def bounded(streams: tuple[Any, Any], on_given_up: Callable[[RequestId], None] = lambda _: None) -> Generator[Any]:
    """Wrap *streams* of a transport, what the SDK reads and what it writes to.

    *on_given_up* is called with the id of a request of ours whose answer is not awaited any more.
    """
    unanswered: set[RequestId] = set()
    lists: dict[RequestId, tuple[List[Any, Any], str]] = {}
    incoming = _Incoming(streams[0], unanswered, lists)
    outgoing = _Outgoing(streams[1], unanswered, lists)
    outgoing.on_given_up = on_given_up
    try:
        yield incoming, outgoing
    finally:
        for task in outgoing.cancelling:
            task.cancel()


class _Stream:
    """A stream around *inner*.

    *unanswered* are the requests of the server; *lists* our own for lists, each with the version of the protocol.
    """

    def __init__(
        self, inner: Any, unanswered: set[RequestId], lists: dict[RequestId, tuple[List[Any, Any], str]]
    ) -> None:
        self._inner, self._unanswered, self._lists = inner, unanswered, lists
        self.cancelling: set[asyncio.Task[None]] = set()
        self.on_given_up: Callable[[RequestId], None] = lambda _: None

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._inner.__aexit__(*raised)


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
        match message:
            case JSONRPCResponse() if (of := self._lists.pop(coerce_request_id(message.id), None)) is not None:
                message.result = of[0].repaired(message.result, of[1])
            case JSONRPCError(id=int() | str() as request_id):
                self._lists.pop(coerce_request_id(request_id), None)
            case JSONRPCRequest():
                if message.id in self._unanswered or len(self._unanswered) >= MAX_UNANSWERED:
                    _log.debug("A request of an MCP server is not answered: too many are open, or one with its id is")
                    return False
                self._unanswered.add(message.id)
            case JSONRPCNotification(method="notifications/cancelled"):
                if (cancelled_id := as_request_id((message.params or {}).get("requestId"))) is not None:
                    self._unanswered.discard(cancelled_id)
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

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        match message:
            case JSONRPCRequest():
                if (of := LISTS.get(message.method)) is not None:
                    headers = getattr(item.metadata, "headers", None) or {}
                    version = headers.get(MCP_PROTOCOL_VERSION_HEADER, LATEST_HANDSHAKE_VERSION)
                    self._lists[message.id] = of, version
                await self._inner.send(item)
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": int() | str() as given_up}):
                self.on_given_up(given_up)
                self._lists.pop(given_up, None)
                task = asyncio.ensure_future(self._send_soon(item))
                self.cancelling.add(task)
                task.add_done_callback(self.cancelling.discard)
                await asyncio.sleep(0)  # mostly, it is sent now, before what comes next
            case JSONRPCResponse() | JSONRPCError():
                try:
                    await self._inner.send(item)
                finally:
                    if message.id is not None:
                        self._unanswered.discard(message.id)
            case _:
                await self._inner.send(item)

    async def _send_soon(self, item: SessionMessage) -> None:
        with suppress(TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with asyncio.timeout(_CANCEL_TIMEOUT_S):
                await self._inner.send(item)
