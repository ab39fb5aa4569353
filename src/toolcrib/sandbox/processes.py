"""The host's side: warm worker processes, each ended with all that came of it.

A worker serves one call at a time and is used again while it behaves. Nothing here uses asyncio's transports, and an
idle worker belongs to no event loop: it can be ended, in silence, when all of them have ended.
"""

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Self

from ..machinery import Semaphore
from . import guard
from .wire import LIMIT_BYTES, READ_BYTES, Frames, TooLarge, pack

Sink = Callable[[bytes], None]

_TARGET = "toolcrib.sandbox.worker:serve"
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


class Processes:
    """A pool of worker processes, at most *size* of them serving at a time: the number of processors, and 2 at least.

    More wait for a permit of `turns`, with which each takes one worker at a time; up to *size* more serve, of owners
    who have none. Workers are started when they are needed, and *size* are kept. They run *target*, `module:function`,
    which is given a `worker.Channel`.

    A worker serves one owner, for what a call changes in its process (threads, builtins, folder, environment) stays
    there; *shared* ones serve all, since they run nothing but guests.
    """

    def __init__(
        self, *, size: int | None = None, limits: Limits | None = None, target: str = _TARGET, shared: bool = False
    ) -> None:
        self.limits = limits or Limits()
        self._size = size or max(2, os.cpu_count() or 2)
        self.turns = Semaphore(self._size, spare=self._size)
        self._target = target
        self._is_shared = shared
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._ending: set[Worker] = set()
        self._lock = threading.Lock()  # held while one becomes idle or busy: `forget` may come from any thread
        self.closings = 0
        """How often it was closed: a call that waited for its turn meanwhile is not served afterwards."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def take(
        self, tool: Any = None, *, owner: str | None = None, new: bool = False, closings: int | None = None
    ) -> "Worker":
        """Return a worker of one's own until `give_back`: one that knows *tool*, or another of *owner*, or a *new* one.

        Raises WorkerGone where *closings*, as it was when the call came, is not what it is now.
        """
        if closings not in (None, self.closings):
            raise WorkerGone("was stopped")
        owner = None if self._is_shared else owner
        with self._lock:
            worker = None if new else self._take_idle(tool, owner)
            worker = worker or self._start()
            worker.owner = owner
            self._busy.add(worker)
        return worker

    def _take_idle(self, tool: Any, owner: str | None) -> "Worker | None":
        while own := [worker for worker in self._idle if worker.owner == owner]:
            # Of several, the one that was used last is the likeliest to be in the processor's caches.
            worker = next((worker for worker in reversed(own) if tool in worker.known), own[-1])
            self._idle.remove(worker)
            if worker.alive:
                return worker
            self._end(worker)
        return None

    def give_back(self, worker: "Worker", *, sound: bool) -> None:
        """Give *worker* back. Keep it if it is *sound*; else end it with all that came of it."""
        worker.mute()
        with self._lock:
            self._busy.discard(worker)
            if sound and not worker.is_outdated:
                self._idle.append(worker)
                if len(self._idle) > self._size:
                    self._end(self._idle.pop(0))
            else:
                self._end(worker)

    def forget(self) -> None:
        """End the idle workers now, and the others when they are given back: what they have imported has changed.

        From any thread.
        """
        with self._lock:
            for worker in self._busy:
                worker.is_outdated = True
            while self._idle:
                self._end(self._idle.pop())

    async def close(self) -> None:
        """End every worker with everything it started, and wait until they are gone. A later call starts new ones."""
        self.closings += 1
        self.forget()
        for worker in tuple(self._busy):
            worker.kill()
        # Those that serve are given back by their callers.
        await asyncio.gather(*(worker.ended() for worker in (*self._ending, *self._busy)))

    def _end(self, worker: "Worker") -> None:
        """End *worker* in a thread: its guard may take a while, and no event loop need be there."""

        def end() -> None:
            try:
                worker.abandon()
            finally:
                self._ending.discard(worker)

        worker.kill()
        self._ending.add(worker)
        try:
            threading.Thread(target=end, name="toolcrib-worker-end", daemon=True).start()
        except RuntimeError:  # the interpreter is ending
            end()

    def _start(self) -> "Worker":
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


def guest_processes() -> Processes:
    """Return worker processes for WebAssembly, which share none with other tools. Each run has its own instance.

    Each module has a limit of its own. Their address space has none: a memory of theirs reserves much, and uses little.
    """
    return Processes(limits=Limits(memory_bytes=None), shared=True)


class Worker:
    """One worker process. Made by `Processes`.

    `pid` is its guard's: the root of all that came of it. `known` and `used_by` are for the caller to note what
    it has loaded, and whose calls it has run. It serves `owner` alone.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes]", sock: socket.socket, output: io.FileIO, limits: Limits
    ) -> None:
        self.pid = process.pid
        self.known: set[Any] = set()
        self.used_by: dict[Any, Any] = {}
        self.owner: str | None = None
        self.is_outdated = False
        self._process = process
        self._sock = sock
        self._output = output
        self._limits = limits
        self._frames = Frames(limit_bytes=limits.output_bytes)
        self._sink: Sink | None = None
        self._stop_listening: Callable[[], object] = lambda: None
        self._is_stopping = False
        self.abandon = weakref.finalize(self, _end, process, sock, output)
        """Ends the worker at once, and waits for that. Happens by itself when the worker is collected."""

    @property
    def alive(self) -> bool:
        """Whether it has not hung up."""
        try:
            return self._sock.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def gone(self) -> bool:
        return self._process.poll() is not None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Raise WorkerGone, and wire.TooLarge for a message over the limit of what can be sent."""
        frame = pack(message)
        try:
            await asyncio.get_running_loop().sock_sendall(self._sock, frame)
        except OSError:
            raise WorkerGone(await self._epitaph()) from None

    async def receive(self) -> dict[str, Any]:
        """Return the next message of the worker. Raises WorkerGone."""
        try:
            while (message := self._frames.take()) is None:
                data = await asyncio.get_running_loop().sock_recv(self._sock, READ_BYTES)
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

    def listen(self, sink: Sink) -> None:
        """Hand what it and its children print to *sink*, on the running event loop, until it is given back."""
        self._sink, self._stop_listening = sink, watch(self._output, self._read_output)

    def mute(self) -> None:
        """Hand on what was printed up to now, and nothing more."""
        if self._sink is not None:
            self._read_output()
            self._sink = None
            self._stop_listening()

    def _read_output(self) -> None:
        assert self._sink is not None
        data = None if self._output.closed else self._output.read(READ_BYTES)  # a pipe holds less
        if data:
            self._sink(data)
        elif data == b"":
            self._stop_listening()

    def kill(self) -> None:
        """End the worker and every process that came of it, without waiting for it: see `ended`."""
        self._is_stopping = True
        self._process.terminate()  # the guard's business; it does nothing else

    def kill_after(self, seconds: float) -> asyncio.TimerHandle:
        """Kill it in so many *seconds*, unless the handle that this returns is cancelled."""
        return asyncio.get_running_loop().call_later(seconds, self.kill)

    async def ended(self) -> None:
        """Wait until the worker and what came of it are gone. What does not end in time is killed."""
        due = monotonic() + _END_TIMEOUT_S
        while not self.gone:  # nothing reports it
            if monotonic() > due:
                guard.kill_tree(self.pid)
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def _epitaph(self) -> str:
        if self._is_stopping:
            return "was stopped"
        await self.ended()  # the guard hangs up last, when everything else is gone
        code: int = self._process.returncode
        if code >= 0:
            return f"exited with status {code}"
        names = (number.name for number in signal.Signals if number == -code)
        return f"was ended by {next(names, f'signal {-code}')}"  # some have no name


def watch(file: io.FileIO | int, read: Callable[[], object]) -> Callable[[], object]:
    """Call *read* on the running event loop whenever *file* has something to read. Return what ends that."""
    loop = asyncio.get_running_loop()
    loop.add_reader(file, read)
    return lambda: loop.is_closed() or loop.remove_reader(file)


def _end(process: "subprocess.Popen[bytes]", sock: socket.socket, output: io.FileIO) -> None:
    """End a worker for good: at the end of the program and from the garbage collector too."""
    sock.close()  # the guard sees it
    output.close()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        guard.kill_tree(process.pid)
        process.wait(_END_TIMEOUT_S)
