"""An `httpx2` client whose connections, redirects, responses and time a Guard bounds.

The check is where the connection is made: each name is looked up once, its addresses are checked, and one of those is
connected to. So neither a redirect nor a name that changes its address in between gets past it.
"""

import asyncio
import os
import re
import ssl
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, cast

import httpcore2
import httpx2

from ..core import Credential, SetupError
from .addresses import Guard, GuardError, Resolve

_STATE = "toolcrib.net"
_CONNECT_TIMEOUT_S = 10.0  # to each address of a name
# What a request to another origin keeps. Anything else may be a credential: so may be headers that are not known.
_HARMLESS = frozenset(("host", "accept", "accept-encoding", "accept-language", "user-agent", "connection"))


def client(
    *,
    hosts: Iterable[str] | None = None,
    allow: Iterable[str] = (),
    max_bytes: int = 10 * 1024 * 1024,
    timeout_s: float = 30.0,
    resolve: Resolve | None = None,
    proxy: str | None = None,
    verify: ssl.SSLContext | bool = True,
    **options: Any,
) -> httpx2.AsyncClient:
    """Return an `httpx2.AsyncClient` that reaches only what `Guard(hosts=, allow=, resolve=)` lets it.

    A response has at most *max_bytes*, also when it is decompressed, and a request takes at most *timeout_s* with its
    redirects and its response. A redirect to another origin gets no header of the request but what names the content
    that is accepted, and none with a body is followed there. Proxies are used only where *proxy* is given; it looks
    names up again. *options* are those of `httpx2.AsyncClient` that do not concern transport.
    """
    guard = Guard(hosts=hosts, allow=allow, resolve=resolve)
    transport = GuardedTransport(guard, max_bytes, timeout_s, proxy, verify)
    if "mounts" in options:
        raise SetupError("net.client takes no 'mounts': they would go past the guard.")
    # All in all, there is *timeout_s*.
    options = {"timeout": httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S), **options}
    return httpx2.AsyncClient(transport=transport, trust_env=False, **options)


def authorized(credential: Credential) -> httpx2.AsyncClient:
    """Return a guarded client that sends *credential* to its hosts, and refuses every other host.

    Raises SetupError for a credential that is not sent in a header, or whose provider has no hosts.
    """
    if credential.kind in ("keypair", "secret") or not credential.hosts:
        raise SetupError(
            f"Nothing says where and how the credentials of '{credential.provider}' are sent. Use the secret itself: "
            f"ctx.credentials['{credential.provider}'].secret"
        )

    def authenticate(request: httpx2.Request) -> httpx2.Request:
        request.headers[credential.header] = credential.header_value
        return request

    return client(hosts=credential.hosts, allow=credential.allow, auth=authenticate)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The transport of `client`, for libraries with their own. At most *max_connections* are open at a time."""

    def __init__(
        self,
        guard: Guard,
        max_bytes: int,
        timeout_s: float,
        proxy: str | None = None,
        verify: ssl.SSLContext | bool = True,
        max_connections: int = 10,
    ) -> None:
        self._guard = guard
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._has_proxy = proxy is not None
        files = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        context = verify if isinstance(verify, ssl.SSLContext) else _context(verify, files)
        # One for each scheme: by http, only what is allowed by name or network may be connected to.
        self._by_scheme = {
            scheme: _Connections(guard, scheme, context, proxy, max_connections) for scheme in ("http", "https")
        }

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        origin = (request.url.scheme, request.url.raw_host, request.url.port)
        earlier, first_origin, until = request.extensions.get(_STATE) or (None, origin, 0.0)
        if earlier is None or earlier is request:
            first_origin, until = origin, time.monotonic() + self._timeout_s
        if origin != first_origin:
            first_origin = None  # and is not trusted on its way back
            _strip(request)
        request.extensions[_STATE] = (request, first_origin, until)
        self._guard.check(request.url)
        if "accept-encoding" in request.headers:
            request.headers["accept-encoding"] = "gzip"
        async with _deadline(until):
            if self._has_proxy:
                await _addresses(self._guard, request.url.host, request.url.port or 0, request.url.scheme)
            response = await self._by_scheme[request.url.scheme].handle_async_request(request)
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        try:
            response.stream = _Bounded(stream, _decoder(response), self._max_bytes, until)
        except GuardError:
            await stream.aclose()
            raise
        return response

    async def aclose(self) -> None:
        for transport in self._by_scheme.values():
            await transport.aclose()


@cache
def _context(verify: bool, _: tuple[str | None, str | None]) -> ssl.SSLContext:
    """Return the TLS settings of all clients: reading the certificates of the system takes 20 ms."""
    return httpx2.create_ssl_context(verify=verify)


class _Connections(httpx2.AsyncHTTPTransport):
    def __init__(
        self, guard: Guard, scheme: str, context: ssl.SSLContext, proxy: str | None, max_connections: int
    ) -> None:
        super().__init__(verify=context, proxy=proxy)
        if proxy is None:
            # httpx2 has no option for the network that its connections use; its pool has.
            network = _Network(guard, scheme)
            self._pool = httpcore2.AsyncConnectionPool(
                context, max_connections=max_connections, keepalive_expiry=5, network_backend=network
            )


async def _addresses(guard: Guard, host: str, port: int, scheme: str) -> Sequence[str]:
    try:
        return await guard.addresses(host, port, scheme)
    except (OSError, UnicodeError):
        raise httpx2.ConnectError(f"'{host}' has no address.") from None


def _strip(request: httpx2.Request) -> None:
    """Take from a request to another origin what is not for it."""
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        raise GuardError(f"A redirect would send the body of the request on to '{request.url.host}'.")
    for name in set(request.headers) - _HARMLESS:
        del request.headers[name]


class _Network(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that the guard has checked. TLS still asks for the certificate of the name."""

    def __init__(self, guard: Guard, scheme: str) -> None:
        self._guard = guard
        self._scheme = scheme
        self._network: Any = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the pool calls it
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception = httpx2.ConnectError(f"'{host}' has no address.")
        for address in await _addresses(self._guard, host, port, self._scheme):
            try:
                stream = await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
                return cast(httpcore2.AsyncNetworkStream, stream)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@asynccontextmanager
async def _deadline(until: float) -> AsyncGenerator[None]:
    """Raise GuardError `timeout` where the block does not end until *until*, on the monotonic clock."""
    limit = asyncio.timeout(max(0.0, until - time.monotonic()))
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise GuardError("The server took too long to answer.", "timeout") from None


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, decompressed here, since a few bytes can become many."""

    def __init__(self, stream: httpx2.AsyncByteStream, decoder: Any, max_bytes: int, until: float) -> None:
        self._stream = stream
        self._decoder = decoder
        self._max_bytes = max_bytes
        self._until = until

    async def __aiter__(self) -> AsyncIterator[bytes]:
        raw_size = size = 0
        chunks = aiter(self._stream)
        while True:
            async with _deadline(self._until):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            raw_size += len(chunk)
            chunk = self._decoded(chunk, self._max_bytes - size + 1)
            size += len(chunk)
            if max(size, raw_size) > self._max_bytes:
                raise GuardError(f"The response has more than {self._max_bytes} bytes.", "too_large")
            yield chunk
        if self._decoder is not None and raw_size and not self._decoder.eof:
            raise httpx2.DecodingError("The compressed response is not complete.")

    def _decoded(self, chunk: bytes, room: int) -> bytes:
        if self._decoder is None:
            return chunk
        try:
            piece: bytes = self._decoder.decompress(chunk, room)
        except zlib.error:
            raise httpx2.DecodingError("The response is not valid gzip.") from None
        if self._decoder.unused_data:
            raise httpx2.DecodingError("Something follows the compressed response.")
        return piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _decoder(response: httpx2.Response) -> Any:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return None
    if encoding not in ("gzip", "x-gzip"):
        raise GuardError(f"The response is compressed by '{encoding[:20]}', which was not asked for.", "too_large")
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)
    return zlib.decompressobj(31)


_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))')
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
_MAX_SCOPES = 50


def challenge_of(header: str) -> dict[str, str]:
    """Return the parameters of a challenge of the scheme Bearer."""
    return {name.lower(): in_quotes or plain for name, in_quotes, plain in _PARAMETER.findall(header[:4000])}


def scopes_in(text: Any) -> tuple[str, ...]:
    """Return the scopes in *text*, or in a list, as a server has written them: those that can be sent."""
    words = text.split() if isinstance(text, str) else text if isinstance(text, list) else []
    return tuple(word for word in words if isinstance(word, str) and _SCOPE.fullmatch(word))[:_MAX_SCOPES]
