"""The bounds of a connection before its caller is known: how many there are, and how long a request may take.

They stand above both of uvicorn's HTTP protocols, that of httptools where it is installed and that of h11. Each answer
leaves in one write.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as HTTPProtocol
else:
    HTTPProtocol = AutoHTTPProtocol

try:
    import resource
except ImportError:  # Windows, where a socket takes no file
    resource = None  # type: ignore[assignment]


def _max_connections() -> int:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else -1
    return min(4_096, files // 2) if files > 0 else 4_096  # below zero there is no limit


MAX_CONNECTIONS = _max_connections()
"""Of one process: at most half of the files that it may open. Half of them are from one address at most."""
HEAD_TIMEOUT_S = 10
"""From the first byte of a request, or the connection before it, to the end of its headers."""
REQUEST_TIMEOUT_S = 60
"""From its first byte to the end of its body."""
MAX_HEAD_BYTES = 65_536
IDLE_TIMEOUT_S = 150
"""How long connections are kept for the next request: longer than proxies keep theirs (nginx 60 s, Caddy 2 min).

One that is closed at the moment in which a proxy uses it again is a 502 to its client.
"""
_TICKS = 10
"""How many of uvicorn's ticks, ten in a second, are between two looks for requests that take too long."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 10\r\nconnection: close\r\n"
    b"content-type: text/plain\r\ncontent-length: 37\r\n\r\nThis server has too many connections.\n"
)


class _CorkedTransport:
    """Wraps *transport* to send the head of an answer together with what follows in the same round of the loop.

    That is one system call less for each answer: uvicorn writes the head by itself.
    """

    __slots__ = ("_call_soon", "_head", "_transport")

    def __init__(self, transport: asyncio.Transport, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._transport = transport
        self._call_soon = call_soon
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Hold *data* until the next write, or the next round of the loop."""
        if self._head:
            self._transport.write(self._head + data)
            self._head = b""
        else:
            self._head = data
            self._call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""


class Connection(HTTPProtocol):
    """A connection that is one of a bounded number, and whose requests come in time."""

    begun_at: float
    """When the connection or the first byte of a later request came, on the monotonic clock."""
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take up the connection, or answer 503 where there are too many."""
        super().connection_made(cast(asyncio.Transport, _CorkedTransport(transport, self.loop.call_soon)))
        self.begun_at = monotonic()
        if self._is_one_too_many():
            transport.write(_BUSY)
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request. One whose headers are too long is answered 400."""
        if self.transport.is_closing():
            return
        if self.timeout_keep_alive_task is not None:
            self.begun_at = monotonic()
        before: Any = self.cycle
        is_body = before is not None and before.more_body
        super().data_received(data)
        self._head_bytes = 0 if is_body or self.cycle is not before else self._head_bytes + len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers of this request are too long.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection at once, and not only when it would have been idle for too long."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def is_late(self, now: float) -> bool:
        """Return whether a part of a request is awaited for too long."""
        if self.timeout_keep_alive_task is not None:
            return False
        cycle: Any = self.cycle
        waited_s = now - self.begun_at
        if cycle is None or cycle.response_complete:
            return waited_s > HEAD_TIMEOUT_S
        return bool(cycle.more_body) and waited_s > REQUEST_TIMEOUT_S

    def _is_one_too_many(self) -> bool:
        count, share = len(self.connections), MAX_CONNECTIONS // 2
        if not share < count <= MAX_CONNECTIONS or self.client is None:
            return count > MAX_CONNECTIONS
        address = self.client[0]
        clients = (other.client for other in self.connections if isinstance(other, Connection))
        return sum(client is not None and client[0] == address for client in clients) > share


class Web(uvicorn.Server):
    """uvicorn with such connections, which leaves signals to its host."""

    def __init__(self, app: Any, *, grace_s: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                # A client can write anything about where it comes from: wrong keys count for the address that connects.
                proxy_headers=False,
                timeout_keep_alive=IDLE_TIMEOUT_S,
                timeout_graceful_shutdown=grace_s,
            )
        )

    async def on_tick(self, counter: int) -> bool:
        """Close connections whose requests are late."""
        if counter % _TICKS == 0:
            now = monotonic()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection) and connection.is_late(now):
                    connection.transport.abort()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the host, who cancels the task."""
        yield
