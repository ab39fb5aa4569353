"""One run of a guest: what it may use, what it has written, and how it is stopped."""

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

_LEAVE_S = 2.0
"""How long the end of the program waits for guests that were stopped."""


C = TypeVar("C", bound="Closable")


class Run:
    """The standard streams of a run, and whether it has to end.

    At most *output_bytes* of output are taken, and *error_bytes* of standard error are kept. *interrupt* has running
    guests look whether they have to end.
    """

    def __init__(self, data: bytes, *, output_bytes: int, error_bytes: int, interrupt: Callable[[], None]) -> None:
        self._output_bytes = output_bytes
        self._error_bytes = error_bytes
        self.output = bytearray()
        self.error_output = bytearray()
        self.is_over = False
        self.stopped = threading.Event()
        self.ended = threading.Event()
        self._data = memoryview(data)
        self._interrupt = interrupt
        _running.add(self)

    def stop(self) -> None:
        """End the guest: where it computes at its next step, and where it sleeps at once. From any thread."""
        self.stopped.set()
        self._interrupt()

    def read(self, size: int) -> memoryview:
        """Read up to *size* bytes of the input; none at its end."""
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    def write(self, data: bytes) -> None:
        """Add output. Beyond the limit, stop the guest."""
        self.output += data
        if len(self.output) > self._output_bytes:
            self.is_over = True
            self.stop()

    @property
    def room(self) -> int:
        """How much of the output is worth reading: what is left, and one byte that shows that there is more."""
        return self._output_bytes - len(self.output) + 1

    def write_error(self, data: bytes) -> None:
        """Add to standard error: the first of it says what went wrong, and the rest is dropped."""
        self.error_output += data[: self.error_room]

    @property
    def error_room(self) -> int:
        return self._error_bytes - len(self.error_output)


class Closable(Protocol):
    """What has to be let go of before the interpreter ends."""

    def close(self) -> None: ...


_running: "weakref.WeakSet[Run]" = weakref.WeakSet()
_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()


def close_at_exit(managed: C) -> C:
    """Return *managed*, an object of the engine, closed at the end of the program: later it could not be any more."""
    _open.add(managed)
    return managed


@atexit.register
def _leave() -> None:
    # A guest that called back into an interpreter that has ended would abort the process.
    for run in list(_running):
        if not run.ended.is_set():
            run.stop()
            run.ended.wait(_LEAVE_S)
    for managed in list(_open):
        managed.close()
