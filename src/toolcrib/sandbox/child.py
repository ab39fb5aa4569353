"""The worker's side: take the channel, set the limits, and hand over to the function that serves it.

Runs in a process of its own, below a guard, in a new interpreter.
"""

import asyncio
import contextlib
import faulthandler
import importlib
import io
import os
import resource
import select
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from .wire import READ_BYTES, Frames, pack


class Channel:
    """The worker's end of the pipe to its host. `settings` are those of the host."""

    def __init__(self, sock: socket.socket, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._sock = sock
        self._limit_bytes: int = settings["output_bytes"]
        self._sending = threading.Lock()

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages of the host, until it hangs up."""
        loop = asyncio.get_running_loop()
        frames = Frames()
        while True:
            while (message := frames.take()) is not None:
                yield message
            data = await loop.sock_recv(self._sock, READ_BYTES)
            if not data:
                return
            frames.feed(data)

    def send(self, message: Mapping[str, Any]) -> None:
        """Say something to the host, from any thread. Blocks while the host is slow to read. Raises wire.TooLarge."""
        frame = memoryview(pack(message, limit_bytes=self._limit_bytes))
        with self._sending:
            while frame:
                try:
                    frame = frame[self._sock.send(frame) :]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self._sock, select.POLLOUT)
                    poll.poll()


Serve = Callable[[Channel], Coroutine[Any, Any, None]]


def main(settings: Mapping[str, Any]) -> None:
    """Serve as a worker until the host hangs up."""
    sock = socket.socket(fileno=settings["channel"])
    sock.setblocking(False)
    os.set_inheritable(sock.fileno(), False)  # what a tool starts must not hold the channel open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    faulthandler.enable()
    if settings["memory_bytes"]:
        _limit(resource.RLIMIT_AS, settings["memory_bytes"])
    with contextlib.suppress(OSError):
        # Where the whole machine runs out of memory, a worker is to go before its host.
        Path("/proc/self/oom_score_adj").write_text("500")
    module, _, name = settings["target"].partition(":")
    serve: Serve = getattr(importlib.import_module(module), name)
    asyncio.run(serve(Channel(sock, settings)))
    # Threads of a tool that never return would keep the process from ending by itself.
    os._exit(0)


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def children_left() -> bool:
    """Return whether anything that was started here still runs, adopted orphans too. Buries what has ended."""
    if not hasattr(os, "waitid"):
        return False
    while True:
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is None:
                return True
        except ChildProcessError:
            return False
