"""One client in this process: a pipe whose ends are the streams of the official SDK's client."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types as wire
from mcp.shared.message import SessionMessage

from .connection import Write
from .pipe import Pipe


@asynccontextmanager
async def in_memory(pipe: Callable[[Write], Pipe]) -> AsyncGenerator[tuple[Any, Any]]:
    """Serve a client that reads and writes the two streams, by *pipe*, while the block runs."""
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
