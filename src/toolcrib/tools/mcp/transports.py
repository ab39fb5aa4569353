"""The two ways to an MCP server, a process that is started here and HTTP. Each message and each request is bounded.

The SDK's own `stdio_client` (2.3.0) has no bound on a line, and leaves a request waiting whose answer it cannot read.
Over HTTP, it ends the session for all callers where a request raises, asks for a stream again as fast as a server
likes, and in the older era keeps the connection of a call that was given up.
"""

import asyncio
import json
import logging
import os
import re
import secrets
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
import httpx2
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, RequestId, jsonrpc_message_adapter

from ...core import ToolError
from ...net import Guard
from ...net.client import GuardedTransport
from .streams import bounded
from .targets import MAX_BYTES, Target

HTTP_FAILED = -(2**31 + secrets.randbits(62))
"""The code of our errors for what HTTP did not bring to the server, or it refused. No server knows it, to send it."""

MAX_CONNECTIONS = 200
"""How many calls and reads are sent at a time, as many more of principals who have none, and as many lists, streams."""
_ACCEPT_TIMEOUT_S = 2.0
"""How long a server may take to accept what it has no answer to give to; the SDK sends nothing else meanwhile."""
MAX_RESUMED = 200
"""How often the answer to one request is fetched again, where its stream ended before."""
_RESUME_INTERVAL_S, _MAX_RESUME_INTERVAL_S = 0.1, 5.0
_REFUSED = (401, 403)
_BUSY = (429, 502, 503, 504)
_REQUEST = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d+|"[^"]*"),"method":"')
"""A message that is answered, as the SDK writes it."""
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"'
"""Before this is accepted, a server takes nothing else."""
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
        if not await _wait_for_end(child):
            _kill(child, signal.SIGTERM)
            await _wait_for_end(child)
    finally:  # also where this task is cancelled by asyncio, which a shield does not hold
        _kill(child, signal.SIGKILL)
        with suppress(OSError):
            # asyncio has no other way to let go of pipes that stay open.
            transport = getattr(getattr(child, "_process", None), "_transport", None)
            if transport is not None:
                transport.close()
    await _wait_for_end(child)


async def _wait_for_end(child: anyio.abc.Process) -> bool:
    """Wait a while for the end of *child*, but not of its pipes as `wait` does, and return whether it came."""
    with anyio.move_on_after(_GRACE_TIMEOUT_S):
        while child.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    return child.returncode is not None


def _kill(child: anyio.abc.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


@asynccontextmanager
async def http(
    target: Target, authorization: Callable[[], Mapping[str, str]], on_refused: Callable[[int, str], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the streams of a server over HTTP, each request with what *authorization* returns then.

    *on_refused* is called with the status 401 or 403 and its challenge: to try the other era, the SDK passes over it.
    """
    guarded = GuardedTransport(
        Guard(allow=(urlsplit(target.url).hostname or "", *target.allow)),
        MAX_BYTES,
        inf,
        max_connections=3 * MAX_CONNECTIONS,
    )
    transport = _Transport(guarded, lambda: {**target.headers, **authorization()}, on_refused)
    async with (
        httpx2.AsyncClient(transport=transport, trust_env=False, timeout=httpx2.Timeout(None, connect=10.0)) as client,
        streamable_http_client(target.url, http_client=client, max_sse_event_size=MAX_BYTES) as streams,
    ):
        yield bounded(streams, transport.give_up)


class _Exchange:
    """One task of the SDK's: a request of ours until its answer is here, or a stream of what the server says itself."""

    def __init__(self) -> None:
        self.is_request = False
        self._is_given_up = False
        self._limit: asyncio.Timeout | None = None
        self._resumed = -1

    def limit(self, within_s: float | None = None) -> asyncio.Timeout:
        """Return the bound of the next step, which `give_up` ends."""
        self._limit = asyncio.timeout(0 if self._is_given_up else within_s)
        return self._limit

    def give_up(self) -> None:
        """End the step that runs: the answer is not awaited any more."""
        self._is_given_up = True
        if self._limit is not None:
            with suppress(RuntimeError):  # that step has ended, and the next one will not begin
                self._limit.reschedule(0)

    async def pause(self) -> None:
        """Wait before a stream is asked for again: longer each time, whatever the server says. Raises StreamError."""
        self._resumed += 1
        if self._is_given_up or (self.is_request and self._resumed >= MAX_RESUMED):
            raise httpx2.StreamError("The answer is not fetched again.")
        await asyncio.sleep(min(_RESUME_INTERVAL_S * self._resumed, _MAX_RESUME_INTERVAL_S))


class _Transport(httpx2.AsyncBaseTransport):
    """Answers itself with a JSON-RPC error where a request fails: raised, it would end the session for all."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        headers: Callable[[], Mapping[str, str]],
        on_refused: Callable[[int, str], None],
    ) -> None:
        self._inner, self._headers, self._on_refused = inner, headers, on_refused
        self._exchanges: WeakKeyDictionary[asyncio.Task[Any], _Exchange] = WeakKeyDictionary()
        self._requests: WeakValueDictionary[bytes, _Exchange] = WeakValueDictionary()
        """Those of our requests, by their ids."""
        self._given_up: set[bytes] = set()
        """The ids of requests that were given up before the SDK came to send them."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers.update(self._headers())
        task = asyncio.current_task()
        assert task is not None
        exchange = self._exchanges.setdefault(task, _Exchange())
        within_s: float | None = None
        if request.method == "GET":
            await exchange.pause()
        elif request.method == "POST" and (own := _REQUEST.match(request.content)) is not None:
            exchange.is_request = True
            self._requests[own[1]] = exchange
            if own[1] in self._given_up:
                self._given_up.remove(own[1])
                exchange.give_up()
        elif _INITIALIZED not in request.content:
            within_s = _ACCEPT_TIMEOUT_S
        try:
            async with exchange.limit(within_s):
                response = await self._inner.handle_async_request(request)
        except (httpx2.TransportError, OSError) as error:  # of which TimeoutError is one
            reason = error.message if isinstance(error, ToolError) else f"it cannot be reached ({type(error).__name__})"
            return _failed(request, 503, reason)
        status = response.status_code
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")  # it may say more
        if request.method == "POST" and (status in _REFUSED or (status in _BUSY and not is_json)):
            challenge = response.headers.get("www-authenticate", "")[:2000]
            await response.aclose()
            if status in _REFUSED:
                self._on_refused(status, challenge)
            return _failed(request, status, f"it answered with status {status}", challenge=challenge, answered="yes")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, exchange)
        return response

    def give_up(self, request_id: RequestId) -> None:
        """End the request whose answer is not awaited any more: its connection is for others, in the older era, too."""
        key = json.dumps(request_id).encode()
        if (exchange := self._requests.get(key)) is not None:
            exchange.give_up()
        else:
            self._given_up.add(key)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Body(httpx2.AsyncByteStream):
    """A body whose failure the SDK takes for one of this response."""

    def __init__(self, stream: httpx2.AsyncByteStream, exchange: _Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._stream)
        try:
            while True:
                async with self._exchange.limit():
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk
        except (httpx2.TransportError, OSError) as error:
            reason = error.message if isinstance(error, ToolError) else type(error).__name__
            raise httpx2.StreamError(f"The response ended early: {reason}") from None

    async def aclose(self) -> None:
        await self._stream.aclose()


def _failed(request: httpx2.Request, status: int, reason: str, **data: str) -> httpx2.Response:
    error = {"code": HTTP_FAILED, "message": reason, "data": {"status": status, **data}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=body, request=request)
