"""Ctrl-C and SIGTERM: what runs is cancelled, one line is written, the terminal is left as it was.

The first signal cancels; whatever has not ended `grace_s` later, or at a second signal, ends with the process. Without
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

from .terminal import is_terminal

if sys.platform != "win32":
    import termios

T = TypeVar("T")
Handler = Callable[[int, FrameType | None], Any]

GRACE_S = 2.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MESSAGES = {signal.SIGINT: "Cancelled.", signal.SIGTERM: "Terminated."}


class Interrupted(BaseException):
    """A signal ended the command. Its message has been written."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


class Interrupts:
    """Handles signals while it is entered. `grace_s` is how long what was cancelled may take to end, in seconds."""

    def __init__(self) -> None:
        self.grace_s = GRACE_S
        self._terminal = _terminal()
        self._before: dict[int, Any] = {}
        self._seen = 0
        self._answered = 0
        self._on_first_sigint: Callable[[], bool] | None = None
        self._woken_by: int | None = None

    def __enter__(self) -> Self:
        # A signal that whoever started us ignores (nohup, a job in the background) stays ignored.
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._raise)
        if self._before and sys.platform != "win32":
            self._wake_main()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, Interrupted):
            return  # the way out may still be cut short by another signal
        self._answer_with(self._before)
        if self._woken_by is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._woken_by)

    @property
    def came(self) -> bool:
        """Whether there was a signal. Its message is the last that is written."""
        return self._seen > 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on an event loop of its own, and return its value. A signal cancels it, and raises Interrupted."""
        caught: list[int] = []
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(work)

            def cancel(number: int, frame: FrameType | None) -> None:
                if number == signal.SIGINT and self._on_first_sigint is not None and self._on_first_sigint():
                    self._answered += 1
                    return
                caught.append(number)
                self._first(number)
                loop.call_soon_threadsafe(task.cancel)

            with self._handling(cancel):
                try:
                    return loop.run_until_complete(task)
                finally:
                    if caught:
                        raise Interrupted(caught[0])

    @contextlib.contextmanager
    def first_sigint_to(self, answer: Callable[[], bool]) -> Generator[None]:
        """Inside, Ctrl-C during `run` calls *answer* first: if it returns True, the command goes on.

        It is called wherever the main thread is, so it must take no lock.
        """
        self._on_first_sigint = answer
        try:
            yield
        finally:
            self._on_first_sigint = None

    def leave_within(self, seconds: float, status: int) -> None:
        """End the process with *status* in *seconds*, if it has not ended by then."""

        def leave() -> None:
            time.sleep(seconds)
            self._leave(status)

        threading.Thread(target=leave, name="toolcrib-leave", daemon=True).start()

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self._first(number)
        raise Interrupted(number)

    def _wake_main(self) -> None:
        """Let no signal wait until the main thread comes back by itself.

        Python answers a signal between two steps of the main thread. One that comes just before a step that blocks, as
        `time.sleep` does, would be answered after it. So another thread looks after it, and interrupts that step.
        """
        arrived, woken_by = os.pipe()
        self._woken_by = woken_by
        os.set_blocking(woken_by, False)
        signal.set_wakeup_fd(woken_by, warn_on_full_buffer=False)
        # It means nothing to anybody. What it does is end the system call that the main thread is in.
        signal.signal(signal.SIGURG, lambda number, frame: None)
        main = threading.main_thread().ident
        assert main is not None

        def wake() -> None:
            answered = 0
            with os.fdopen(arrived, "rb", buffering=0) as signals:
                while number := signals.read(1):
                    if number[0] not in self._before:
                        continue
                    answered += 1
                    for _ in range(50):
                        time.sleep(0.02)
                        if self._answered >= answered:
                            break
                        signal.pthread_kill(main, signal.SIGURG)

        threading.Thread(target=wake, name="toolcrib-signals", daemon=True).start()

    def _first(self, number: int) -> None:
        self._seen += 1
        self._answered += 1
        self._answer_with(dict.fromkeys(self._before, self._at_once))
        # Written past the buffers of `sys.stderr`, which whatever was interrupted may be holding.
        line_break = "\n" if is_terminal(2) else ""  # the terminal shows ^C where the cursor is
        with contextlib.suppress(OSError):
            os.write(2, f"{line_break}{_MESSAGES[signal.Signals(number)]}\n".encode())
        self._restore_terminal()
        self.leave_within(self.grace_s, 128 + number)

    def _at_once(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1
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
    if sys.platform == "win32" or not is_terminal(0):
        return None
    try:
        return termios.tcgetattr(0)
    except (OSError, termios.error):
        return None
