"""An MCP server as a process that is started here, message by message, each bounded.

The SDK's own `stdio_client` (2.3.0) has no bound on a line, and leaves a request waiting whose answer it cannot read.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter

from .streams import bounded
from .targets import MAX_BYTES, Target

_GRACE_TIMEOUT_S = 2.0
_LOCALE = ("LANG", "LC_ALL", "TMPDIR")

_log = logging.getLogger("toolcrib.mcp")


class StderrTail:
    """The last line that a process wrote to its standard error; all of it goes to the log `toolcrib.mcp`."""

    line = ""

    def add(self, line: str) -> None:
        self.line = "".join(c for c in line if c.isprintable()).strip()[:300] or self.line


@asynccontextmanager
async def process(target: Target, on_end: Callable[[], None], tail: StderrTail) -> AsyncGenerator[tuple[Any, Any]]:
    """Start a process and yield its streams; with the block, it and its group end.

    *on_end* is called when it writes no more.
    """
    child = await anyio.open_process(
        [*target.command],
        env={**get_default_environment(), **{n: os.environ[n] for n in _LOCALE if n in os.environ}, **target.env},
        cwd=target.folder,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    inbox, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    stdin, stdout, stderr = child.stdin, BufferedByteReceiveStream(child.stdout), child.stderr

    async def read() -> None:
        try:
            async with inbox:
                while True:
                    line = await stdout.receive_until(b"\n", MAX_BYTES)
                    if (message := _message(line)) is not None:
                        await inbox.send(SessionMessage(message))
        except anyio.DelimiterNotFound:
            _log.warning("A message of an MCP server is longer than %d bytes: the session ends", MAX_BYTES)
        except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        on_end()

    async def write() -> None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with to_send:
                async for item in to_send:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await stdin.send(text.encode() + b"\n")

    async def log() -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for chunk in stderr:
                for line in chunk.decode(errors="replace").splitlines():
                    tail.add(line)
                    _log.debug("%s: %s", target.label, line[:2000])

    tasks = [asyncio.ensure_future(work()) for work in (read, write, log)]
    try:
        yield bounded((messages, outgoing))
    finally:
        outgoing.close()
        messages.close()
        try:
            with anyio.CancelScope(shield=True):
                await _end(child)
        finally:
            for task in tasks:
                task.cancel()


def _message(line: bytes) -> JSONRPCMessage | None:
    """Return the message in *line*; None for what is not one, such as what a server prints to the wrong stream.

    An answer that cannot be read is an error, so that no call waits for it.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        if line.strip():
            _log.warning("A line of an MCP server is not a message, and is skipped: %.200r", line)
        if (request_id := _answered(line)) is None:
            return None
        error = ErrorData(code=PARSE_ERROR, message="The answer could not be read.")
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _answered(line: bytes) -> int | None:
    """Return the id of our request that *line*, which is not a message, was to answer; None where it is none."""
    try:
        answer: Any = json.loads(line)  # here, texts with half of a character are read
    except (ValueError, RecursionError):
        return None
    is_answer = isinstance(answer, dict) and answer.get("jsonrpc") == "2.0" and "method" not in answer
    return answer["id"] if is_answer and type(answer.get("id")) is int else None


async def _end(child: anyio.abc.Process) -> None:
    """Close its input, and end what does not end then: the process, and whatever it has started."""
    assert child.stdin is not None
    try:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await child.stdin.aclose()
        for number in (None, signal.SIGTERM):
            if number is not None:
                _kill(child, number)
            with anyio.move_on_after(_GRACE_TIMEOUT_S):
                # `wait` would also wait for the pipes, which a grandchild may hold.
                while child.returncode is None:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                break
    finally:  # also where this task is cancelled by asyncio, which a shield does not hold
        _kill(child, signal.SIGKILL)
        with suppress(OSError):
            # asyncio has no other way to let go of pipes that stay open.
            transport = getattr(getattr(child, "_process", None), "_transport", None)
            if transport is not None:
                transport.close()
    with anyio.move_on_after(_GRACE_TIMEOUT_S):
        while child.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(0.001)


def _kill(child: anyio.abc.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
