"""Ctrl-C and SIGTERM: what runs is cancelled, one line is said, the terminal is left as it was.

The first signal asks; whatever has not ended `GRACE_S` later, or at a second signal, ends with the process. Without
that, a tool that blocks the event loop, or a thread that nobody can stop, would hold the terminal.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

if sys.platform != "win32":
    import termios

T = TypeVar("T")
Handler = Callable[[int, FrameType | None], Any]

GRACE_S = 2.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAID = {signal.SIGINT: "Cancelled.", signal.SIGTERM: "Terminated."}


class Interrupted(BaseException):
    """A signal ended the command. By then it has been said."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


class Interrupts:
    """Answers signals while it is entered."""

    def __init__(self) -> None:
        self._terminal = _terminal()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # A signal that whoever started us ignores (nohup, a job in the background) stays ignored.
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._raise)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, Interrupted):
            return  # the way out may still be cut short by another signal
        self._answer_with(self._before)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The value of *work*, run on an event loop of its own. A signal cancels it, and raises Interrupted."""
        caught: list[int] = []
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(work)

            def cancel(number: int, frame: FrameType | None) -> None:
                caught.append(number)
                self._first(number)
                loop.call_soon_threadsafe(task.cancel)

            with self._handling(cancel):
                try:
                    return loop.run_until_complete(task)
                finally:
                    if caught:
                        raise Interrupted(caught[0])

    def leave_within(self, seconds: float, status: int) -> None:
        """End the process with *status* in *seconds*, if it has not ended by then."""

        def leave() -> None:
            time.sleep(seconds)
            self._leave(status)

        threading.Thread(target=leave, name="toolcrib-leave", daemon=True).start()

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self._first(number)
        raise Interrupted(number)

    def _first(self, number: int) -> None:
        self._answer_with(dict.fromkeys(self._before, self._at_once))
        # Written past the buffers of `sys.stderr`, which whatever was interrupted may be holding.
        line_break = "\n" if _is_terminal(2) else ""  # the terminal shows ^C where the cursor is
        with contextlib.suppress(OSError):
            os.write(2, f"{line_break}{_SAID[signal.Signals(number)]}\n".encode())
        self._restore_terminal()
        self.leave_within(GRACE_S, 128 + number)

    def _at_once(self, number: int, frame: FrameType | None) -> None:
        self._leave(128 + number)

    def _leave(self, status: int) -> None:
        self._restore_terminal()
        os._exit(status)

    def _restore_terminal(self) -> None:
        if sys.platform != "win32" and self._terminal is not None and _terminal() != self._terminal:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._terminal)

    def _answer_with(self, handlers: dict[int, Any]) -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def _handling(self, handler: Handler) -> Generator[None]:
        before = {number: signal.signal(number, handler) for number in self._before}
        try:
            yield
        finally:
            if all(signal.getsignal(number) is handler for number in before):
                self._answer_with(before)


def _terminal() -> list[Any] | None:
    """The settings of the terminal on standard input, None where there is none."""
    if sys.platform == "win32" or not _is_terminal(0):
        return None
    try:
        return termios.tcgetattr(0)
    except (OSError, termios.error):
        return None


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
