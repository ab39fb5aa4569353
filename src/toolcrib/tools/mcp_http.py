"""An MCP server over HTTP, by the SDK's transport. Each request is bounded, and one that fails ends no other.

What a server never answers, streams that it never ends, and answers that are to be fetched again and again would each
hold a connection of all callers for as long as it likes: they are given up here.
"""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from time import monotonic
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import RequestId

from ..core import ToolError
from ..net import Guard
from ..net.client import GuardedTransport
from .mcp_transports import LONGEST_LINE, MOST_BYTES, Address
from .mcp_wire import bounded

HTTP_FAILED = -(2**31 + secrets.randbits(62))
"""The code of our own errors for requests that HTTP did not bring to the server, or that it refused.

No server knows it, so none can send it.
"""

_FOREVER_S = 10 * 365 * 86_400.0
_MOST_CONNECTIONS = 200
_MOST_GIVEN_UP = 1000
_ACCEPTED_S = 10.0
"""How long a server may take to accept what it has no answer to give to."""
_MOST_RESUMED = 200
"""How often the answer to one request is fetched again, where its stream ended before."""
_BUSY = (429, 502, 503, 504)
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


@asynccontextmanager
async def http(
    target: Address, authorization: Callable[[], Mapping[str, str]], on_refused: Callable[[int, str], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of a server over HTTP, each request with what *authorization* returns then.

    *on_refused* is called with the status 401 or 403 and its challenge: to try the other era, the SDK passes over it.
    """
    guard = Guard(allow=target.allow)
    guarded = GuardedTransport(guard, MOST_BYTES, _FOREVER_S, max_connections=_MOST_CONNECTIONS)
    transport = _Answering(guarded, target, authorization, on_refused)
    async with (
        httpx2.AsyncClient(transport=transport, trust_env=False, timeout=httpx2.Timeout(None, connect=10.0)) as http,
        streamable_http_client(target.url, http_client=http, max_sse_event_size=MOST_BYTES) as streams,
    ):
        with bounded(streams, transport.give_up) as both:
            yield both


class _Exchange:
    """One task of the SDK's: a request of ours until its answer is here, or a stream of what the server says itself."""

    def __init__(self, request_id: bytes = b"") -> None:
        self.request_id = request_id
        self._is_given_up = False
        self._limit: asyncio.Timeout | None = None
        self._resumed = 0
        self._next_due = 0.0

    def limit(self, within_s: float | None = None) -> asyncio.Timeout:
        """The bound of the next step, which `give_up` ends."""
        self._limit = asyncio.timeout(0 if self._is_given_up else within_s)
        return self._limit

    def give_up(self) -> None:
        """Nobody waits for the answer any more."""
        self._is_given_up = True
        if self._limit is not None:
            with suppress(RuntimeError):  # that step has ended, and the next one will not begin
                self._limit.reschedule(0)

    async def resume(self) -> None:
        """Before a stream is asked for again: later each time, whatever the server says. Raises StreamError."""
        self._resumed += 1
        if self._is_given_up or (self.request_id and self._resumed > _MOST_RESUMED):
            raise httpx2.StreamError("The answer is not fetched again.")
        await asyncio.sleep(self._next_due - monotonic())
        self._next_due = monotonic() + min(_PAUSE_S * self._resumed, _LONGEST_PAUSE_S)


_exchange: ContextVar[_Exchange | None] = ContextVar("toolcrib_mcp_exchange", default=None)


class _Answering(httpx2.AsyncBaseTransport):
    """Answers itself with a JSON-RPC error where a request fails: raised, it would end the session for all."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        target: Address,
        authorization: Callable[[], Mapping[str, str]],
        on_refused: Callable[[int, str], None],
    ) -> None:
        self._on_refused = on_refused
        self._inner = inner
        self._target = target
        self._authorization = authorization
        self._open: dict[bytes, _Exchange] = {}
        """The requests that have no answer yet, by their ids."""
        self._given_up: set[bytes] = set()
        """Of those that have not come here yet."""
        self._one_way: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers.update({**self._target.headers, **self._authorization()})
        if request.method == "GET":
            return await self._resumed(request)
        if request.method == "POST" and (found := _REQUEST.match(request.content)) is not None:
            exchange = self._open[found[1]] = _Exchange(found[1])
            if found[1] in self._given_up:
                exchange.give_up()
            _exchange.set(exchange)
            return await self._sent(request, exchange)
        if request.method != "POST" or _INITIALIZED in request.content:
            return await self._sent(request, _Exchange(), _ACCEPTED_S)
        # What has no answer is sent meanwhile: the SDK sends nothing else until it is accepted.
        if len(self._one_way) < _MOST_CONNECTIONS // 2:
            task = asyncio.ensure_future(self._accepted(request))
            self._one_way.add(task)
            task.add_done_callback(self._one_way.discard)
        return httpx2.Response(202, request=request)

    async def _accepted(self, request: httpx2.Request) -> None:
        response = await self._sent(request, _Exchange(), _ACCEPTED_S)
        await response.aclose()

    async def _resumed(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _exchange.get()
        if exchange is None:
            _exchange.set(exchange := _Exchange())
        await exchange.resume()
        return await self._sent(request, exchange)

    async def _sent(
        self, request: httpx2.Request, exchange: _Exchange, within_s: float | None = None
    ) -> httpx2.Response:
        try:
            async with exchange.limit(within_s):
                response = await self._inner.handle_async_request(request)
        except (httpx2.TransportError, OSError) as error:  # of which TimeoutError is one
            self._ended(exchange)
            reason = error.message if isinstance(error, ToolError) else f"it cannot be reached ({type(error).__name__})"
            return _failed(request, 503, reason)
        except asyncio.CancelledError:
            self._ended(exchange)
            raise
        if response.status_code in (401, 403) and request.method == "POST":
            challenge = response.headers.get("www-authenticate", "")[:LONGEST_LINE]
            await response.aclose()
            self._ended(exchange)
            self._on_refused(response.status_code, challenge)
            reason = f"it answered with status {response.status_code}"
            return _failed(request, response.status_code, reason, challenge=challenge)
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")  # it may say more
        if response.status_code in _BUSY and exchange.request_id and not is_json:
            await response.aclose()
            self._ended(exchange)
            reason = f"it answered with status {response.status_code}"
            return _failed(request, response.status_code, reason, answered="yes")
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        response.stream = _Body(stream, exchange, self._ended)
        return response

    def _ended(self, exchange: _Exchange) -> None:
        if self._open.get(exchange.request_id) is exchange:
            del self._open[exchange.request_id]

    def give_up(self, request_id: RequestId) -> None:
        """Nobody waits for the answer to this request: its connection is for others, in the older era, too."""
        key = json.dumps(request_id).encode()
        if (exchange := self._open.get(key)) is not None:
            exchange.give_up()
            return
        if len(self._given_up) >= _MOST_GIVEN_UP:
            self._given_up.clear()
        self._given_up.add(key)

    async def aclose(self) -> None:
        for task in self._one_way:
            task.cancel()
        await asyncio.gather(*self._one_way, return_exceptions=True)
        await self._inner.aclose()


class _Body(httpx2.AsyncByteStream):
    """A body whose failure the SDK takes for one of this response."""

    def __init__(
        self, stream: httpx2.AsyncByteStream, exchange: _Exchange, on_end: Callable[[_Exchange], None]
    ) -> None:
        self._stream = stream
        self._exchange = exchange
        self._on_end = on_end

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
        self._on_end(self._exchange)
        await self._stream.aclose()


def _failed(request: httpx2.Request, status: int, reason: str, **data: str) -> httpx2.Response:
    error = {"code": HTTP_FAILED, "message": reason, "data": {"status": status, **data}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=body, request=request)


_REQUEST = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d+|"[^"]*"),"method":"')
"""A message that is answered, as the SDK writes it."""
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"'
"""Before this is accepted, a server takes nothing else."""
