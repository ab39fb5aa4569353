"""Ctrl-C and SIGTERM: what runs is cancelled, one line is written, the terminal is left as it was.

The first signal cancels. A second one, or `grace_s` seconds, end the process, whatever still runs: without that, a tool
that blocks the event loop, or a thread that nothing can stop, would hold the terminal.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from .terminal import is_terminal

if sys.platform != "win32":
    import termios

T = TypeVar("T")

DEFAULT_GRACE_S = 2.0
_FLUSH_TIMEOUT_S = 0.2
_START_THRESHOLD = 50_000
"""So rarely garbage is collected until a loop runs: what modules define is none, and a look at it takes a while."""
_MESSAGES = {signal.SIGINT: "Cancelled.", signal.SIGTERM: "Terminated."}


class Interrupted(BaseException):
    """The end of a command by a signal. Its message has been written."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


class Interrupts:
    """The signals of one run of the command. `grace_s` is how long cancelled work may take to end, in seconds."""

    def __init__(self) -> None:
        self.grace_s = DEFAULT_GRACE_S
        self.messages = dict(_MESSAGES)
        """What is written at the end, by signal."""
        self._terminal = _terminal()
        self._number = 0  # of the first signal that was not answered by `first_sigint_to`
        self._cancel: Callable[[], object] | None = None
        self._on_sigint: Callable[[], bool] | None = None
        self._awake = ExitStack()
        self._thresholds = gc.get_threshold()

    @contextmanager
    def handled(self) -> Generator[None]:
        """Handle signals inside. One that the parent process ignores (nohup, a background job) stays ignored."""
        gc.set_threshold(_START_THRESHOLD)
        numbers = [number for number in _MESSAGES if signal.getsignal(number) is not signal.SIG_IGN]
        handlers = {number: signal.signal(number, self._handle) for number in numbers}
        report, sys.unraisablehook = sys.unraisablehook, self._end_if_swallowed
        try:
            with _wake_main_thread():
                yield
        finally:
            gc.set_threshold(*self._thresholds)
            if not self._number:  # else the way out may still be cut short by another signal
                sys.unraisablehook = report
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def wake_here(self) -> None:
        """Handle signals at once in a process that was forked inside `handled`, until it ends."""
        self._awake.enter_context(_wake_main_thread())

    @property
    def came(self) -> bool:
        """Return whether there was a signal. Its message is the last that is written."""
        return self._number > 0

    def run(self, work: Coroutine[Any, Any, T], *, serves: bool = False) -> T:
        """Run *work* on an event loop of its own and return its value. A signal cancels it, and raises Interrupted.

        What *serves* runs on uvloop, where it is installed: it is not on Windows. There a signal that comes just before
        a tool blocks the loop is handled when that ends, as uvloop has the file that `_wake_main_thread` listens at.
        """
        gc.set_threshold(*self._thresholds)
        new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
        if serves:
            with suppress(ImportError):
                import uvloop

                new_loop = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=new_loop) as runner:
            loop = runner.get_loop()
            task = loop.create_task(work)
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            try:
                return loop.run_until_complete(task)
            finally:
                self._cancel = None
                if self._number:
                    raise Interrupted(self._number)

    @contextmanager
    def first_sigint_to(self, answer: Callable[[], bool]) -> Generator[None]:
        """Let Ctrl-C call *answer* first, inside: if it returns True, the command goes on.

        It is called wherever the main thread is, so it must take no lock.
        """
        self._on_sigint = answer
        try:
            yield
        finally:
            self._on_sigint = None

    def leave_within(self, seconds: float, status: int) -> None:
        """End the process with *status* in *seconds*, if it has not ended by then."""

        def leave() -> None:
            time.sleep(seconds)
            self._leave(status)

        threading.Thread(target=leave, name="toolcrib-leave", daemon=True).start()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._number:
            self._leave(128 + number)
        if number == signal.SIGINT and self._on_sigint is not None and self._on_sigint():
            return
        self._number = number
        # Written past the buffers of `sys.stderr`, which the interrupted code may be holding.
        line_break = "\n" if is_terminal(2) else ""  # the terminal shows ^C where the cursor is
        with suppress(OSError):
            os.write(2, f"{line_break}{self.messages[signal.Signals(number)]}\n".encode())
        self.restore_terminal()
        self.leave_within(self.grace_s, 128 + number)
        if self._cancel is None:
            raise Interrupted(number)
        self._cancel()

    def _end_if_swallowed(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """End the process where a signal was handled in a callback of the interpreter, which lets no exception out.

        The machinery of imports has such callbacks. The command would go on until `grace_s` are over.
        """
        if isinstance(unraisable.exc_value, Interrupted):
            self._leave(unraisable.exc_value.status)
        sys.__unraisablehook__(unraisable)

    def _leave(self, status: int) -> None:
        self.restore_terminal()
        os._exit(status)

    def restore_terminal(self) -> None:
        """Let the terminal be as it was at the start: a tool may have hidden what is typed."""
        if sys.platform != "win32" and self._terminal is not None and _terminal() != self._terminal:
            with suppress(OSError, termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._terminal)


@contextmanager
def _wake_main_thread() -> Generator[None]:
    """Interrupt the main thread inside, shortly after each signal.

    Python runs its handlers in the main thread, between two instructions. A signal that comes just before a system
    call that blocks (a sleep, the wait of an event loop) would be handled when that ends.
    """
    if sys.platform == "win32":
        yield
        return
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wake() -> None:
        while number := os.read(reader, 1):
            if number[0] in _MESSAGES:
                time.sleep(0.05)
                signal.pthread_kill(main_thread, signal.SIGURG)
        os.close(reader)

    handler = signal.signal(signal.SIGURG, lambda *_: None)  # one that is ignored would interrupt nothing
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=wake, name="toolcrib-signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)  # ends the thread
        signal.signal(signal.SIGURG, handler)


def end_threads(status: int) -> int:
    """Return *status*; or end the process with it, where the work of a tool still runs in a thread.

    An interpreter that ends while such a thread is writing aborts, with a long message.
    """
    if any(thread.daemon for thread in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            flush = threading.Thread(target=stream.flush, daemon=True)
            flush.start()
            flush.join(_FLUSH_TIMEOUT_S)  # a tool that is writing may hold the stream for good
        os._exit(status)
    return status


def _terminal() -> list[Any] | None:
    """Return the settings of the terminal on standard input, None where there is none."""
    if sys.platform == "win32" or not is_terminal(0):
        return None
    try:
        return termios.tcgetattr(0)
    except (OSError, termios.error):
        return None
