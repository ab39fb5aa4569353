"""What a client is sent over HTTP in answer to one request: one JSON message, or a stream of events."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...machinery import call_later
from ...schema.json_text import LIMIT_BYTES
from ..wire import TooLarge, header, read_body

_PING_INTERVAL_S = 15.0
_QUICK_S = 0.05
"""Requests that are answered in this time are not watched for whether their client leaves: most are."""
_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class Reply:
    """What a client is sent: one JSON message, or as soon as anything is sent before it, a stream.

    `ended` is done when that is over. *headers* are of either.
    """

    def __init__(self, send: Send, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.ended: asyncio.Future[None] = asyncio.Future()
        self.is_stream = False
        self._send = send
        self._headers = headers
        self._sending = asyncio.Lock()

    async def begin(self) -> None:
        """Begin the stream, where that is not done."""
        async with self._sending:
            await self._begin()

    async def send_event(self, message: bytes, number: int | None = None) -> None:
        await self.write(_event(message, number))

    async def ping(self) -> None:
        await self.write(b": ping\r\n\r\n")

    async def prime(self, number: int, retry_ms: int) -> None:
        """Send the *number* from which a client that loses the stream goes on, after so many milliseconds."""
        await self.write(b"id: %d\r\nretry: %d\r\ndata: \r\n\r\n" % (number, retry_ms))

    async def end(self, status: int, message: bytes, number: int | None = None) -> None:
        async with self._sending:
            if self.is_stream:
                message = _event(message, number)
            else:
                kind = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(message))]
                await self._start(status, kind)
            await self._finish(message)

    async def end_as(self, answer: Response) -> None:
        """Send *answer*, where no stream has begun."""
        async with self._sending:
            await self._start(answer.status_code, answer.raw_headers)
            await self._finish(bytes(answer.body))

    async def close(self) -> None:
        """End the stream without an answer."""
        async with self._sending:
            await self._begin()
            await self._finish(b"")

    async def write(self, frame: bytes) -> None:
        async with self._sending:
            if not self.ended.done():
                await self._begin()
                await self._send({"type": "http.response.body", "body": frame, "more_body": True})

    async def _begin(self) -> None:
        if not self.is_stream:
            self.is_stream = True
            await self._start(200, _STREAM)

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self._headers]})

    async def _finish(self, body: bytes) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
            await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _event(message: bytes, number: int | None) -> bytes:
    place = b"" if number is None else b"id: %d\r\n" % number
    return b"%bevent: message\r\ndata: %b\r\n\r\n" % (place, message)


async def until_gone(
    work: Awaitable[object],
    receive: Receive,
    ping: Callable[[], Awaitable[None]] | None = None,
    *,
    slow: Callable[[], Awaitable[None]] | None = None,
    is_cancelled: bool = True,
) -> None:
    """Wait until *work*, which answers a request, is done, or its client leaves: then *work* is cancelled.

    The client is pinged meanwhile, and where it takes long, *slow* is called first. Unless it *is_cancelled*, the work
    goes on.
    """
    task, watching, is_gone = asyncio.current_task(), None, False
    assert task is not None

    def begin() -> None:
        nonlocal watching
        watching = asyncio.create_task(watch())

    async def watch() -> None:
        nonlocal is_gone
        leaving = asyncio.create_task(_left(receive))
        try:
            if slow is not None:
                await slow()
            while not (await asyncio.wait((leaving,), timeout=_PING_INTERVAL_S))[0]:
                if ping is not None:
                    await ping()
        except OSError:
            pass  # what is sent does not arrive: so says a server whose client has left (ASGI 2.4)
        finally:
            leaving.cancel()
        if is_cancelled:
            is_gone = True
            task.cancel()

    # In this task, and watched by another one only where it takes long: a task costs more than most answers.
    timer = call_later(_QUICK_S, begin)
    try:
        await work
    except asyncio.CancelledError:
        if not is_gone:
            raise
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()
        if is_gone:
            task.uncancel()


async def _left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_post(scope: Scope, receive: Receive, send: Send) -> bytes | None:
    """Return the message of a POST; None where it was answered already, or its client has left."""
    size = header(scope, b"content-length")
    try:
        if size.isdecimal() and int(size) > LIMIT_BYTES:
            raise TooLarge
        return await read_body(receive, LIMIT_BYTES)
    except TooLarge:
        await Response("Request body too large", 413)(scope, receive, send)
        return None
    except EOFError:
        return None  # the rest of the message never comes


@lru_cache(maxsize=64)
def accepts(accept: str, media_type: bytes) -> bool:
    whole = media_type.decode()
    kinds = {kind.partition(";")[0].strip().lower() for kind in accept.split(",")}
    return not kinds.isdisjoint(("*/*", whole, f"{whole.partition('/')[0]}/*"))
