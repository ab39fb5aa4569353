"""A blocking request of an SDK in a thread of its own: its values as they come, and a way to cancel it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

_here = threading.local()


class ThreadedRequest:
    """The values that *request* yields, one by one, without blocking the event loop.

        async with ThreadedRequest(request) as values:
            async for value in values: ...

    Leaving the block before the end closes the connection: *request* then ends with an error, which is ignored.
    """

    def __init__(self, request: Callable[[], Iterator[Any]]) -> None:
        self._request = request
        self._values: asyncio.Queue[tuple[Literal["value", "end", "error"], Any]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._cancelled = False

    async def __aenter__(self) -> "ThreadedRequest":
        threading.Thread(target=self._work, name="toolcrib-model", daemon=True).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def __aiter__(self) -> "ThreadedRequest":
        return self

    async def __anext__(self) -> Any:
        kind, value = await self._values.get()
        if kind == "error":
            raise value
        if kind == "end":
            raise StopAsyncIteration
        return value

    def cancel(self) -> None:
        """Close the connection, if there is one. The thread that reads from it wakes up and ends."""
        with self._lock:
            self._cancelled = True
            if self._socket is not None:
                with suppress(OSError):  # it may have ended by itself
                    self._socket.shutdown(socket.SHUT_RDWR)

    def set_socket(self, connected: socket.socket | None) -> None:
        """The request uses this socket; None before it is known. Ends the thread of a request that was cancelled."""
        with self._lock:
            if self._cancelled:
                raise _Cancelled
            self._socket = connected

    def _work(self) -> None:
        _here.request = self
        try:
            for value in self._request():
                self._put("value", value)
                if self._cancelled:
                    return
            self._done()
            self._put("end", None)
        except Exception as error:
            self._done()
            self._put("error", error)
        except _Cancelled:
            pass

    def _done(self) -> None:
        with self._lock:
            self._socket = None  # another request may use it by now

    def _put(self, kind: Literal["value", "end", "error"], value: Any) -> None:
        with suppress(RuntimeError):  # the loop may be closed
            self._loop.call_soon_threadsafe(self._values.put_nowait, (kind, value))


class _Cancelled(BaseException):
    """Ends a cancelled request before it is sent. Not an Exception: SDKs retry after those."""


def interruptible(client: Any) -> Any:
    """*client*, one of boto3's, whose requests report their socket to the `ThreadedRequest` in which they run.

    boto3 has no API for this. Should its internals change, a cancelled request runs on until it is answered, and its
    answer is dropped.
    """
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    pools = getattr(session, "_pool_classes_by_scheme", None)
    if isinstance(pools, dict):
        for scheme, pool in pools.items():
            pools[scheme] = type(pool.__name__, (pool,), {"ConnectionCls": _reporting(pool.ConnectionCls)})
    return client


def _reporting(connection: Any) -> Any:
    def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        current = getattr(_here, "request", None)
        if not isinstance(current, ThreadedRequest):
            return connection.request(self, *args, **kwargs)
        current.set_socket(None)
        sent = connection.request(self, *args, **kwargs)
        current.set_socket(self.sock)  # now: a connection drops its socket at the head of its last answer
        return sent

    return type(connection.__name__, (connection,), {"request": request})
