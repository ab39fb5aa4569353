"""Both eras over a pipe: messages come one after another, and answers go as they are ready.

Each request is answered in a task of its own, which `notifications/cancelled` ends. The end of what comes ends all.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import mcp_types as wire

from ...core import Redaction
from . import core
from .connection import Answer, Connection, Write, outcome
from .messages import Refusal, read_soon
from .session import Cancelled, Initialized, Reply, Session, Stray

_NO_JSON = "This line is not valid JSON. A message is one line of UTF-8."
_CLOSED = wire.ErrorData(code=wire.CONNECTION_CLOSED, message="Connection closed")


class Pipe:
    """One client, which is sent what *write* takes. *greet* is told when it has shaken hands."""

    def __init__(
        self,
        answer: Answer,
        greet: Callable[[core.Exchange], Awaitable[Any]],
        write: Write,
        redaction: Redaction | None,
    ) -> None:
        self._answer = answer
        self._greet = greet
        self._write = write
        self._redaction = redaction
        self._session = Session()
        self._connection = Connection(self._session, write)
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: dict[wire.RequestId, asyncio.Task[None]] = {}

    async def serve(self, messages: AsyncIterable[bytes]) -> None:
        """Answer *messages* until they end, or this is cancelled."""
        try:
            async for message in messages:
                await self._receive(message)
            for request in [*self._session.requests.values()]:
                await self._send(self._session.answer(request, _CLOSED))
        finally:
            tasks = [*self._tasks]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await self._connection.close()

    async def _receive(self, message: bytes) -> None:
        try:
            event = self._session.receive(await read_soon(message))
        except Refusal as refused:
            is_json = refused.error.code != wire.PARSE_ERROR
            event = refused if is_json else Refusal(wire.PARSE_ERROR, _NO_JSON)
        match event:
            case core.Request() as request:
                task = self._requests[request.id] = self._start(self._respond(request))
                if request.method == "initialize":  # what comes after it is of the version that it settles
                    await asyncio.wait([task])
            case Cancelled(request_id):
                self._requests.pop(request_id).cancel()
            case Initialized():
                notice = core.Request(0, "notifications/initialized", {}, self._session.version, None)
                self._start(self._welcome(self._exchange(notice)))
            case Reply(own_id, answer):
                self._connection.take(own_id, answer)
            case Stray():
                pass
            case Refusal() as refusal:
                await self._write(core.error(refusal.request_id, refusal.error))
            case answer:
                await self._send(answer)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _respond(self, request: core.Request) -> None:
        result = await outcome(self._answer, self._exchange(request), self._redaction)
        message = self._session.answer(request, result)
        if message is not None:
            del self._requests[request.id]
            await self._write(message)

    async def _welcome(self, notice: core.Exchange) -> None:
        await outcome(self._greet, notice, self._redaction)

    def _exchange(self, request: core.Request) -> core.Exchange:
        connection = None if self._session.state == "stateless" else self._connection
        return core.Exchange.of(request, self._write, None, connection)

    async def _send(self, message: bytes | None) -> None:
        if message is not None:
            await self._write(message)


@asynccontextmanager
async def in_memory(pipe: Callable[[Write], Pipe]) -> AsyncGenerator[tuple[Any, Any]]:
    """Serve a client in this process, by *pipe*, while the block runs: the official SDK's, which reads and writes the
    two streams.
    """
    import anyio  # here, as what serves over HTTP and pipes needs neither
    from mcp.shared.message import SessionMessage

    to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)

    async def write(message: bytes) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the client has gone
            await to_client.send(SessionMessage(wire.jsonrpc_message_adapter.validate_json(message, by_name=False)))

    async def messages() -> AsyncGenerator[bytes]:
        async for item in from_client:
            yield item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()

    serving = asyncio.create_task(pipe(write).serve(messages()))
    try:
        yield incoming, outgoing
    finally:
        outgoing.close()
        incoming.close()
        try:
            await serving
        finally:
            to_client.close()
            from_client.close()
