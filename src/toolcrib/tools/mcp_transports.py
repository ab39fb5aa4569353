"""How an MCP server is reached, and one that is a process started here. Over HTTP, see `mcp_http.py`."""

import asyncio
import json
import logging
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter

from .mcp_names import in_table, in_url, in_words, shown_url, shown_words
from .mcp_wire import bounded

MOST_BYTES = 16 * 1024**2
"""How long one message, or one response, may be."""

_GRACE_S = 2.0
LONGEST_LINE = 2000

_log = logging.getLogger("toolcrib.mcp")


@dataclass(frozen=True, slots=True)
class Command:
    """A *command* that speaks MCP over its standard input and output. It gets *env*, and little of ours."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    folder: str | None = None

    @property
    def secrets(self) -> Sequence[str]:
        """What is not shown of it, and goes to no model."""
        return [*in_words(self.command), *in_table(self.env)]

    def __str__(self) -> str:
        return shown_words(self.command)


@dataclass(frozen=True, slots=True)
class Address:
    """A *url* of Streamable HTTP, the *headers* of each request, and what may be reached besides public addresses."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    allow: Sequence[str] = ()

    @property
    def has_credentials(self) -> bool:
        """Whether its headers say who asks: then it is the same for all callers."""
        return any(name.lower() == "authorization" for name in self.headers)

    @property
    def secrets(self) -> Sequence[str]:
        """What is not shown of it, and goes to no model."""
        return [*in_url(self.url), *in_table(self.headers)]

    def __str__(self) -> str:
        return shown_url(self.url)


class LastWords:
    """The last line that a process wrote to its standard error; all of it goes to the log `toolcrib.mcp`."""

    line = ""

    def add(self, line: str) -> None:
        self.line = "".join(c for c in line if c.isprintable()).strip()[:300] or self.line


@asynccontextmanager
async def process(
    target: Command, on_end: Callable[[], None], last_words: LastWords
) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of a process. *on_end* is called when it writes no more. With the block, it and its children end."""
    child = await asyncio.create_subprocess_exec(
        *target.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**get_default_environment(), **_LOCALE, **target.env},
        cwd=target.folder,
        limit=MOST_BYTES,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    received, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    stdin, stdout, stderr = child.stdin, child.stdout, child.stderr

    async def read() -> None:
        try:
            async with received:
                async for line in _lines(stdout):
                    if (message := _message(line)) is not None:
                        await received.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, _TooLong):
            pass
        on_end()

    async def write() -> None:
        with suppress(OSError, anyio.ClosedResourceError):
            async with to_send:
                async for message in to_send:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(text.encode() + b"\n")
                    await stdin.drain()

    async def log() -> None:
        while chunk := await stderr.read(64 * 1024):
            for line in chunk.decode(errors="replace").splitlines():
                last_words.add(line)
                _log.debug("%s: %s", target, line[:LONGEST_LINE])

    tasks = [asyncio.ensure_future(work()) for work in (read, write, log)]
    try:
        with bounded((messages, outgoing)) as streams:
            yield streams
    finally:
        outgoing.close()
        messages.close()
        with anyio.CancelScope(shield=True):
            await _end(child)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            _log.warning("A message of an MCP server is longer than %d bytes: the session ends", MOST_BYTES)
            raise _TooLong from None
        yield line


class _TooLong(Exception): ...


def _message(line: bytes) -> JSONRPCMessage | None:
    """The message in *line*; None for what is not one, such as what a server prints to the wrong stream.

    An answer that cannot be read is an error, so that nobody waits for it.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        if line.strip():
            _log.warning("A line of an MCP server is not a message, and is skipped: %.200r", line)
        if (answered := _answered(line)) is None:
            return None
        error = ErrorData(code=PARSE_ERROR, message="The answer could not be read.")
        return JSONRPCError(jsonrpc="2.0", id=answered, error=error)


def _answered(line: bytes) -> int | None:
    """The id of our request that *line*, which is not a message, was to answer; None where it is none."""
    try:
        # Texts with half of a character, and numbers with thousands of digits, are read here.
        answer: Any = json.loads(line, parse_int=lambda digits: int(digits[:20]))
    except RecursionError:
        found = _DEEP.match(line.strip())
        return None if found is None else int(found["first"] or found["last"])
    except ValueError:
        return None
    is_answer = isinstance(answer, dict) and answer.get("jsonrpc") == "2.0" and "method" not in answer
    return answer["id"] if is_answer and type(answer.get("id")) is int else None


_ID = rb'"jsonrpc":\s*"2.0",\s*"id":\s*(?P<%b>\d{1,15})'
_DEEP = re.compile(
    rb'\{\s*(?:%b\s*,\s*"(?:result|error)"|"(?:result|error)".*%b\s*\}$)' % (_ID % b"first", _ID % b"last"), re.S
)
"""An answer that is nested too deeply to be read, as the SDKs write one."""


async def _end(child: asyncio.subprocess.Process) -> None:
    """Close its input, and end what does not end then: the process, and whatever it has started."""
    assert child.stdin is not None
    child.stdin.close()
    transport = getattr(child, "_transport", None)  # asyncio has no other way to let go of pipes that stay open
    try:
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    while child.returncode is None:  # noqa: ASYNC110 - `wait` would also wait for the pipes, which a grandchild may hold
                        await asyncio.sleep(0.01)
                    break
    finally:  # also where what waits here is cancelled
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        try:
            await _reaped(child)
        finally:
            if transport is not None:
                transport.close()
    if transport is not None:
        with suppress(OSError):
            await child.stdin.wait_closed()
        await asyncio.sleep(0)  # the other pipes are closed by then, also where the event loop ends with this


async def _reaped(child: asyncio.subprocess.Process) -> None:
    """Wait until it is known how the killed *child* ended, which takes no time; a cancellation comes after that."""
    cancelled: asyncio.CancelledError | None = None
    due_s = monotonic() + _GRACE_S
    while child.returncode is None and monotonic() < due_s:
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


_LOCALE = {name: value for name in ("LANG", "LC_ALL", "TMPDIR") if (value := os.environ.get(name))}
