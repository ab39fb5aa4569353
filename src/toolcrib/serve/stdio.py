"""MCP over standard input and output, which belong to the protocol while it is served.

What tools and their children print goes to standard error instead, and they find standard input empty.
"""

import asyncio
import os
import select
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import BinaryIO

from ..core import Caller
from ..machinery import in_thread
from ..workbench import Crib
from .mcp.server import server

_MAX_READ_AHEAD = 2
"""How many lines are read before the server takes them."""
_MAX_UNSENT = 100
"""How many messages wait for a client that does not read, before what sends them waits."""
_LAST_WRITES_TIMEOUT_S = 5.0


async def serve_stdio(
    crib: Crib, caller: Caller | None = None, *, name: str = "toolcrib", version: str | None = None
) -> None:
    """Serve the tools of *crib*, for *caller*, to the client at the other end, until it closes the pipe.

    Starts *crib*, and stops it at the end.
    """
    mcp_server = server(crib, lambda _: caller or Caller(), name=name, version=version)
    with _standard_input() as stdin, _standard_output() as stdout:
        async with crib, mcp_server.handlers.running():
            unsent: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_UNSENT)
            writing = asyncio.create_task(_write(unsent, stdout))
            serving = asyncio.create_task(mcp_server.pipe(unsent.put).serve(_lines(stdin)))
            try:
                await asyncio.wait([serving, writing], return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    serving.result()
                    async with asyncio.timeout(_LAST_WRITES_TIMEOUT_S):
                        await unsent.put(None)
                        await writing
            except TimeoutError:
                pass  # the client does not read what it asked for
            finally:
                serving.cancel()
                writing.cancel()
                await asyncio.wait([serving, writing])


async def _write(unsent: "asyncio.Queue[bytes | None]", stdout: int) -> None:
    """Write messages until there is None, or the client has gone."""
    has_room = _room_check(stdout)
    while (message := await unsent.get()) is not None:
        try:
            if has_room(message):
                _write_line(stdout, message)
            else:
                await in_thread(partial(_write_line, stdout, message), is_cleanup=True)
        except OSError:
            return  # it has gone without closing its end of the other pipe first


def _room_check(stdout: int) -> Callable[[bytes], bool]:
    """Return what tells whether a message can be written without waiting for the client to read."""
    if sys.platform == "win32":
        return lambda _: False
    ready = select.poll()
    ready.register(stdout, select.POLLOUT)
    # A pipe that is ready takes so many bytes at once (POSIX.1-2017, write).
    return lambda message: len(message) < select.PIPE_BUF and ready.poll(0) == [(stdout, select.POLLOUT)]


def _write_line(stdout: int, message: bytes) -> None:
    line = memoryview(message + b"\n")
    while line:
        line = line[os.write(stdout, line) :]


@contextmanager
def _standard_input() -> Generator[BinaryIO]:
    """Take standard input for us alone."""
    stdin_copy, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:
        # Never closed: a thread may still wait on it.
        yield os.fdopen(stdin_copy, "rb", closefd=False)
    finally:
        os.dup2(stdin_copy, 0)


@contextmanager
def _standard_output() -> Generator[int]:
    """Take standard output for us alone: what is printed goes to standard error."""
    stdout = sys.stdout
    stdout.flush()
    stdout_copy = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield stdout_copy  # never closed: a thread may still write to it
    finally:
        stdout.flush()  # of others, who kept it
        os.dup2(stdout_copy, 1)


async def _lines(stdin: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the lines. They are read in a thread: a read that waits must not hold up Ctrl-C until the next line."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(_MAX_READ_AHEAD)

    def read() -> None:
        line = b"\n"
        while line:
            line = stdin.readline()
            room.acquire()
            try:
                loop.call_soon_threadsafe(queue.put_nowait, line)
            except RuntimeError:  # the loop has ended
                return

    # A daemon: a read that never returns must not keep the process from ending.
    threading.Thread(target=read, name="toolcrib-stdin", daemon=True).start()
    while line := await queue.get():
        room.release()
        yield line.decode(errors="replace").encode()
