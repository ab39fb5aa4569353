"""The host's side: a warm pool of worker processes, each stopped with all that came of it.

A worker serves one call at a time and is used again while it behaves. Nothing here uses asyncio's transports: a pool
whose event loop has ended without `close` must still be stoppable, and silent.
"""

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

from . import guard
from .wire import LIMIT_BYTES, READ_BYTES, Frames, TooLarge, pack

Sink = Callable[[bytes], None]

_LOOK_INTERVAL_S = 0.005
"""How often is looked whether a worker is gone."""
_END_TIMEOUT_S = 2.0
"""How long that may take before the host kills what its guard has left."""


class WorkerGone(Exception):
    """The worker ended, or broke the rules of the channel. Its text completes the sentence "its worker ..."."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker may use.

    - `memory_bytes`: its address space, and that of each process it starts (RLIMIT_AS); None for no limit.
    - `output_bytes`: the size of one answer, or of one piece that it emits.
    - `start_s`: how long it may take to start, and to import a tool, in seconds.
    """

    memory_bytes: int | None = 2 * 1024**3
    output_bytes: int = LIMIT_BYTES
    start_s: float = 60.0


class Worker:
    """One worker process, on one event loop. Made by `Workers`.

    `pid` is its guard's: the root of all that came of it. `known` and `used_by` are for the caller to note what
    it has loaded, and whose calls it has run. What it and its children print goes to `sink`, a plain function.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes]", sock: socket.socket, output: io.FileIO, limits: Limits
    ) -> None:
        self.pid = process.pid
        self.known: set[Any] = set()
        self.used_by: dict[Any, Any] = {}
        self.sink: Sink = _nowhere
        self._process = process
        self._sock = sock
        self._output = output
        self._limits = limits
        self._frames = Frames(limit_bytes=limits.output_bytes)
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        # The loop must not keep a worker alive that everybody else has forgotten.
        self._loop.add_reader(output, _read_output, _weakly(self))
        self.abandon = weakref.finalize(self, _end, process, sock, output, self._loop)
        """Ends the worker at once, without its event loop. Happens by itself when the worker is collected."""

    @property
    def alive(self) -> bool:
        """Whether it has not hung up."""
        try:
            return self._sock.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def send(self, message: Mapping[str, Any]) -> None:
        """Raise WorkerGone, and wire.TooLarge for a message over the limit of what can be sent."""
        frame = pack(message)
        try:
            await self._loop.sock_sendall(self._sock, frame)
        except OSError:
            raise WorkerGone(await self._epitaph()) from None

    async def receive(self) -> dict[str, Any]:
        """Return the next message of the worker. Raises WorkerGone."""
        try:
            while (message := self._frames.take()) is None:
                data = await self._loop.sock_recv(self._sock, READ_BYTES)
                if not data:
                    raise WorkerGone(await self._epitaph())
                self._frames.feed(data)
        except OSError:
            raise WorkerGone(await self._epitaph()) from None
        except TooLarge as error:
            raise WorkerGone(f"sent {error.size_bytes} bytes at once; the limit is {error.limit_bytes}") from None
        except (ValueError, RecursionError) as error:
            raise WorkerGone(f"sent what is not a message ({type(error).__name__})") from None
        return message

    def read_output(self) -> None:
        """Hand on what has been printed up to now: a pipe holds less than is read at once."""
        if self._output.closed:
            return
        data = self._output.read(READ_BYTES)
        if data:
            self.sink(data)
        elif data == b"":
            self._loop.remove_reader(self._output)

    def kill(self) -> None:
        """End the worker and every process that came of it, without waiting for it: see `ended`."""
        self._stopping = True
        self._process.terminate()  # the guard's business; it does nothing else

    async def ended(self) -> None:
        """Wait until the worker and what came of it are gone."""
        if not await self._ended():
            self.insist()
            await self._ended()

    @property
    def gone(self) -> bool:
        return self._process.poll() is not None

    def insist(self) -> None:
        """Kill what has not ended: its guard was stopped, or is starved."""
        if not self.gone:
            guard.kill_tree(self.pid)

    async def _ended(self) -> bool:
        due = monotonic() + _END_TIMEOUT_S
        while not self.gone and monotonic() < due:  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(_LOOK_INTERVAL_S)
        return self.gone

    async def _epitaph(self) -> str:
        if self._stopping:
            return "was stopped"
        # The guard hangs up last, when everything else is gone.
        if not await self._ended():
            return "closed its channel"
        code: int = self._process.returncode
        if code >= 0:
            return f"exited with status {code}"
        names = (number.name for number in signal.Signals if number == -code)
        return f"was ended by {next(names, f'signal {-code}')}"  # some have no name


class Workers:
    """A pool of workers that run *target* (`module:function`, given a `child.Channel`), on one event loop.

    At most *size* serve at once; more wait for their turn. Workers are started when first needed, and kept.
    """

    def __init__(self, target: str, *, size: int | None = None, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._target = target
        self._turns = asyncio.Semaphore(size or max(2, os.cpu_count() or 2))
        self._idle: deque[Worker] = deque()
        self._busy: set[Worker] = set()
        self._outdated: set[Worker] = set()
        self._ending: set[Worker] = set()
        self._closed = False

    async def enter(self) -> None:
        """Wait for a turn. With a turn, `take` one worker at a time, and in the end `leave`."""
        await self._turns.acquire()

    def leave(self) -> None:
        """Give up one's turn."""
        self._turns.release()

    def take(self, tool: Any = None) -> Worker:
        """Return a worker of one's own until `give_back`: one that knows *tool*, or another, or a new one if none is
        idle.
        """
        if self._closed:
            raise WorkerGone("was stopped")
        # The one that was used last is the likeliest to be in the processor's caches.
        newest = [*reversed(self._idle)]
        for worker in sorted(newest, key=lambda each: tool not in each.known):
            self._idle.remove(worker)
            if worker.alive:
                break
            self._stop(worker)
        else:
            worker = self._start()
        self._busy.add(worker)
        return worker

    def give_back(self, worker: Worker, *, sound: bool) -> None:
        """Give *worker* back. Keep it if it is *sound*; else end it with all that came of it."""
        self._busy.discard(worker)
        worker.read_output()
        if sound and not self._closed and worker not in self._outdated:
            self._idle.append(worker)
        else:
            self._outdated.discard(worker)
            self._stop(worker)

    def forget(self) -> None:
        """End the idle workers now, and the others when they are given back: what they have imported has changed."""
        self._outdated |= self._busy
        while self._idle:
            self._stop(self._idle.popleft())

    async def close(self) -> None:
        """End every worker, also those that are serving, and wait until all are gone."""
        self._closed = True
        while self._idle:
            self._stop(self._idle.popleft())
        for worker in self._busy:
            worker.kill()
        # Those that serve are given back by their callers.
        await asyncio.gather(*(worker.ended() for worker in (*self._ending, *self._busy)))

    def abandon(self) -> None:
        """Close when the event loop has ended: wait for the processes and for nothing else."""
        self._closed = True
        for worker in (*self._idle, *self._busy, *self._ending):
            worker.abandon()

    def _stop(self, worker: Worker) -> None:
        worker.kill()
        self._ending.add(worker)
        self._bury(worker, monotonic() + _END_TIMEOUT_S)

    def _bury(self, worker: Worker, due: float) -> None:
        """Let go of *worker* when it is gone. Looks again by a timer: a task could outlive the event loop."""
        if worker.gone or self._closed:
            self._ending.discard(worker)
            worker.abandon()
        else:
            if monotonic() > due:
                worker.insist()
                due = inf
            asyncio.get_running_loop().call_later(_LOOK_INTERVAL_S, self._bury, worker, due)

    def _start(self) -> Worker:
        host_end, worker_end = socket.socketpair()
        host_end.setblocking(False)
        output, print_to = os.pipe()
        os.set_blocking(output, False)
        output_file = io.FileIO(output)
        settings = {
            "target": self._target,
            "channel": worker_end.fileno(),
            "host": os.getpid(),
            "path": [str(path) for path in sys.path],
            "memory_bytes": self.limits.memory_bytes,
            "output_bytes": self.limits.output_bytes,
        }
        try:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, guard.__file__, json.dumps(settings)],
                pass_fds=[worker_end.fileno()],
                stdin=subprocess.DEVNULL,
                # Standard output may be a protocol of the host's, and what is printed may hold secrets.
                stdout=print_to,
                stderr=print_to,
                start_new_session=True,  # a Ctrl-C at the terminal is for the host
            )
        except BaseException:
            host_end.close()
            output_file.close()
            raise
        finally:
            worker_end.close()
            os.close(print_to)
        return Worker(process, host_end, output_file, self.limits)


def _nowhere(_: bytes) -> None: ...


def _weakly(worker: Worker) -> weakref.ref[Worker]:
    return weakref.ref(worker)


def _read_output(worker: weakref.ref[Worker]) -> None:
    if (living := worker()) is not None:
        living.read_output()


def _end(
    process: "subprocess.Popen[bytes]", sock: socket.socket, output: io.FileIO, loop: asyncio.AbstractEventLoop
) -> None:
    """End a worker for good: at the end of the program and from the garbage collector too."""
    sock.close()  # the guard sees it
    if not output.closed:
        if loop.is_closed():
            output.close()
        else:
            loop.call_soon_threadsafe(_stop_reading, output, loop)
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        guard.kill_tree(process.pid)
        process.wait(_END_TIMEOUT_S)


def _stop_reading(output: io.FileIO, loop: asyncio.AbstractEventLoop) -> None:
    loop.remove_reader(output)
    output.close()
