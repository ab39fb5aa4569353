"""What goes between the SDK and a server, message by message, bounded: a server must not make us hold ever more.

A request of the server is a task here until it is answered, so only so many are taken at a time. That a call was given
up is sent in the background: whoever gave it up has no time to wait for it.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, RequestId

StreamT = TypeVar("StreamT", bound=AbstractAsyncContextManager[Any])

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
    unanswered: set[RequestId] = set()
    outgoing = _Outgoing(to_send, unanswered, on_given_up)
    try:
        yield _Incoming(received, unanswered), outgoing
    finally:
        outgoing.end()


class _Stream(Generic[StreamT]):
    def __init__(self, inner: StreamT, unanswered: set[RequestId]) -> None:
        self._inner: Any = inner
        self._unanswered = unanswered

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


class _Incoming(_Stream[Any]):
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
            message = item.message if isinstance(item, SessionMessage) else None
            if isinstance(message, JSONRPCRequest):
                if message.id in self._unanswered or len(self._unanswered) >= _MOST_UNANSWERED:
                    _log.debug("A request of an MCP server is not answered: too many are open, or one with its id is")
                    continue
                self._unanswered.add(message.id)
            elif isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
                with suppress(TypeError):  # what is no id
                    self._unanswered.discard((message.params or {}).get("requestId"))
            return item

    async def receive(self) -> Any:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class _Outgoing(_Stream[Any]):
    """What is sent to the server."""

    def __init__(self, inner: Any, unanswered: set[RequestId], on_given_up: Callable[[RequestId], None]) -> None:
        super().__init__(inner, unanswered)
        self._on_given_up = on_given_up
        self._cancelling: set[asyncio.Task[None]] = set()

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest):
            await self._inner.send(item)
        elif not isinstance(message, JSONRPCNotification):
            try:
                await self._inner.send(item)
            finally:
                self._unanswered.discard(message.id)
        elif message.method == _CANCELLED:
            assert message.params is not None
            self._on_given_up(message.params["requestId"])
            task = asyncio.ensure_future(self._send_soon(item))
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)
            await asyncio.sleep(0)  # mostly, it is sent now, before what comes next
        else:
            await self._inner.send(item)

    async def _send_soon(self, item: SessionMessage) -> None:
        with suppress(TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with asyncio.timeout(_CANCEL_S):
                await self._inner.send(item)

    def end(self) -> None:
        for task in self._cancelling:
            task.cancel()


_CANCELLED = "notifications/cancelled"
