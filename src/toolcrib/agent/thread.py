"""A request of an SDK that only waits, in a thread of its own: its pieces as they come, and a way to hang up."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

_here = threading.local()


class InThread:
    """What *ask* yields, one by one, without holding up the event loop.

        async with InThread(ask) as pieces:
            async for piece in pieces: ...

    Leaving the block before the end hangs up: *ask* then ends with an error, which nobody sees.
    """

    def __init__(self, ask: Callable[[], Iterator[Any]]) -> None:
        self._ask = ask
        self._pieces: asyncio.Queue[tuple[Literal["piece", "end", "error"], Any]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._hung_up = False

    async def __aenter__(self) -> "InThread":
        threading.Thread(target=self._work, name="toolcrib-model", daemon=True).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hang_up()

    def __aiter__(self) -> "InThread":
        return self

    async def __anext__(self) -> Any:
        kind, value = await self._pieces.get()
        if kind == "error":
            raise value
        if kind == "end":
            raise StopAsyncIteration
        return value

    def hang_up(self) -> None:
        """End the connection, if there is one. The thread that reads from it wakes up and ends."""
        with self._lock:
            self._hung_up = True
            if self._line is not None:
                with suppress(OSError):  # it may have ended by itself
                    self._line.shutdown(socket.SHUT_RDWR)

    def goes_over(self, line: socket.socket | None) -> None:
        """This request goes over *line*; None before it is known. Ends the thread where nobody waits any more."""
        with self._lock:
            if self._hung_up:
                raise _HungUp
            self._line = line

    def _work(self) -> None:
        _here.request = self
        try:
            for piece in self._ask():
                self._tell("piece", piece)
                if self._hung_up:
                    return
            self._done()
            self._tell("end", None)
        except Exception as error:
            self._done()
            self._tell("error", error)
        except _HungUp:
            pass

    def _done(self) -> None:
        with self._lock:
            self._line = None  # it may serve another request by now

    def _tell(self, kind: Literal["piece", "end", "error"], value: Any) -> None:
        with suppress(RuntimeError):  # once the loop is closed, nobody waits
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, (kind, value))


class _HungUp(BaseException):
    """Ends a request that nobody waits for before it is sent. No Exception: SDKs try again after those."""


def closable(client: Any) -> Any:
    """*client*, one of boto3's, whose requests tell the `InThread` in which they run their socket.

    boto3 has no word for this. Where its insides are not as they are known here, a request that is given up runs on
    until it is answered, and its answer is dropped.
    """
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    pools = getattr(session, "_pool_classes_by_scheme", None)
    if isinstance(pools, dict):
        for scheme, pool in pools.items():
            pools[scheme] = type(pool.__name__, (pool,), {"ConnectionCls": _telling(pool.ConnectionCls)})
    return client


def _telling(connection: Any) -> Any:
    def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        asking = getattr(_here, "request", None)
        if not isinstance(asking, InThread):
            return connection.request(self, *args, **kwargs)
        asking.goes_over(None)
        sent = connection.request(self, *args, **kwargs)
        asking.goes_over(self.sock)  # now, as a connection forgets its socket with the head of the last answer on it
        return sent

    return type(connection.__name__, (connection,), {"request": request})
