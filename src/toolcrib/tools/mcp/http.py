"""An MCP server over HTTP, by the SDK's transport. Each request is bounded, and one that fails ends no other.

The SDK (2.3.0) ends the session for all callers where a request raises, asks for a stream again as fast as a server
likes, and in the older era keeps the connection of a call that was given up.
"""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakValueDictionary

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import RequestId

from ...core import ToolError
from ...net import Guard
from ...net.client import GuardedTransport
from .streams import bounded
from .targets import MAX_BYTES, Target

HTTP_FAILED = -(2**31 + secrets.randbits(62))
"""The code of our own errors for requests that HTTP did not bring to the server, or that it refused.

No server knows it, so none can send it.
"""

MAX_CONNECTIONS = 200
"""How many calls and reads are sent at a time, and as many more of principals who have none; as many lists and streams.
"""
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
        elif (own := _REQUEST.match(request.content)) is not None:
            self._note(own[1], exchange)
        elif _INITIALIZED not in request.content:
            within_s = _ACCEPT_TIMEOUT_S
        try:
            async with exchange.limit(within_s):
                response = await self._inner.handle_async_request(request)
        except (httpx2.TransportError, OSError) as error:  # of which TimeoutError is one
            reason = error.message if isinstance(error, ToolError) else f"it cannot be reached ({type(error).__name__})"
            return _failed(request, 503, reason)
        if request.method == "POST" and _is_refusal(response):
            return await self._refused(request, response)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, exchange)
        return response

    def _note(self, key: bytes, exchange: _Exchange) -> None:
        """Note that *exchange* is that of our request with the id *key*, which may have been given up before."""
        exchange.is_request = True
        self._requests[key] = exchange
        if key in self._given_up:
            self._given_up.remove(key)
            exchange.give_up()

    async def _refused(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        status, challenge = response.status_code, response.headers.get("www-authenticate", "")[:2000]
        await response.aclose()
        if status in _REFUSED:
            self._on_refused(status, challenge)
        return _failed(request, status, f"it answered with status {status}", challenge=challenge, answered="yes")

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


def _is_refusal(response: httpx2.Response) -> bool:
    is_json = response.headers.get("content-type", "").lower().startswith("application/json")  # it may say more
    return response.status_code in _REFUSED or (response.status_code in _BUSY and not is_json)


def _failed(request: httpx2.Request, status: int, reason: str, **data: str) -> httpx2.Response:
    error = {"code": HTTP_FAILED, "message": reason, "data": {"status": status, **data}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=body, request=request)
