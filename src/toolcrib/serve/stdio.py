"""MCP over standard input and output, which belong to the protocol while it is served.

What tools and their children print goes to standard error instead, and they find standard input empty. Standard output
is diverted by the SDK. Standard input is read here: the SDK's read cannot be given up, so that Ctrl-C would wait for
the client's next line.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, BinaryIO, cast

import anyio
import mcp_types as wire
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ..core import Caller
from ..workbench import Crib
from .mcp import server
from .messages import read as read_message


async def serve_stdio(
    crib: Crib, caller: Caller | None = None, *, name: str = "toolcrib", version: str | None = None
) -> None:
    """Serve the tools of *crib*, for *caller*, to the client at the other end, until it closes the pipe.

    Starts *crib*, and stops it at the end.
    """
    mcp_server = server(crib, lambda _: caller or Caller(), name=name, version=version)
    try:
        with _standard_input() as stdin:
            async with (
                crib,
                stdio_server(stdin=cast(Any, _lines(stdin))) as (incoming, outgoing),
            ):
                with _prints_to_stderr():
                    await mcp_server.run(
                        _Messages(incoming, outgoing), outgoing, mcp_server.create_initialization_options()
                    )
    except* BrokenPipeError:
        pass  # the client has gone, without closing its end of the pipe first


@contextmanager
def _standard_input() -> Generator[BinaryIO]:
    """Take standard input for us alone."""
    stdin_copy, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:
        # Never closed: a thread may still wait on it.
        yield os.fdopen(stdin_copy, "rb", closefd=False)
    finally:
        os.dup2(stdin_copy, 0)


@contextmanager
def _prints_to_stderr() -> Generator[None]:
    # The SDK diverts the descriptor. What Python holds back in its buffer would come out when that is over, after the
    # last message: so it is written at once, and what was held back before and by others at the end.
    stdout = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        stdout.flush()


async def _lines(stdin: BinaryIO) -> AsyncIterator[str]:
    """Yield the lines for the SDK. In the place of one that is refused here comes its answer, marked as no JSON."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str] = asyncio.Queue()
    room = threading.Semaphore(_MAX_READ_AHEAD)

    def read() -> None:
        line = b"\n"
        while line:
            line = stdin.readline()
            message, answer = read_message(line.decode(errors="replace").encode())
            text = message.decode()
            if answer is not None:
                text = f"{_ANSWER}{answer.model_dump_json(by_alias=True)}\n"
            room.acquire()
            try:
                loop.call_soon_threadsafe(queue.put_nowait, text)
            except RuntimeError:  # the loop has ended
                return

    # A daemon: a read that never returns must not keep the process from ending.
    threading.Thread(target=read, name="toolcrib-stdin", daemon=True).start()
    while text := await queue.get():
        room.release()
        yield text


_MAX_READ_AHEAD = 2
"""How many lines are read before the server takes them."""
_ANSWER = "\0"
"""Begins a line that is an answer. A line of the client with this character is refused."""


class _Messages:
    """*incoming*, as a server reads it. A line that is not a message is answered here: the SDK drops it silently."""

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self) -> SessionMessage:
        while isinstance(item := await self._incoming.receive(), Exception):
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await self._outgoing.send(SessionMessage(_refusal(item)))
        return cast(SessionMessage, item)

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def __aiter__(self) -> "_Messages":
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "_Messages":
        return self

    async def __aexit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        await self.aclose()


def _refusal(problem: Exception) -> wire.JSONRPCError:
    # JSON-RPC 2.0 §5.1: the id is null where it is not known.
    if isinstance(problem, ValidationError) and str(line := problem.errors()[0]["input"]).startswith(_ANSWER):
        return wire.JSONRPCError.model_validate_json(str(line)[1:])
    if isinstance(problem, ValidationError) and problem.errors()[0]["type"] != "json_invalid":
        error = wire.ErrorData(code=wire.INVALID_REQUEST, message="This line is not a JSON-RPC 2.0 message.")
    else:
        error = wire.ErrorData(
            code=wire.PARSE_ERROR, message="This line is not valid JSON. A message is one line of UTF-8."
        )
    return wire.JSONRPCError(jsonrpc="2.0", id=None, error=error)
