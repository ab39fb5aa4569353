"""What programs in a worker have in common: an environment, limits, standard streams, and how they end.

A program gets its arguments as JSON on standard input, and writes its result to standard output. It runs beside the
event loop, in a thread or in a process of its own.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from ..core import Context, ToolError

_PIECE_BYTES = 2**16
MAX_ENVIRONMENT_CHARS = 128 * 1024
MAX_QUOTED_CHARS = 2000

RunProgram = Callable[[str, Context], Awaitable[dict[str, Any]]]
"""Runs a program with arguments as JSON text. Returns its value as JSON data, for the host."""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """What one run may use, in bytes: memory, standard input and output, and how much of standard error is kept."""

    memory_bytes: int = 64 * 1024**2
    input_bytes: int = 4 * 1024**2
    output_bytes: int = 8 * 1024**2
    error_bytes: int = 16 * 1024


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what it wrote.

    *stopped* is why it was stopped, such as "it divided by zero". *exception* is the last line of the traceback of a
    program in Python. *is_over* says that it wrote more than its limit.
    """

    status: int
    output: bytes
    error_output: bytes
    stopped: str = ""
    exception: str = ""
    is_over: bool = False


def environment_of(name: str, variables: Sequence[str], context: Context) -> dict[str, str]:
    """Return the environment of the program of the tool *name*: the *variables* of the host, and its credentials.

    A secret is there by its name, and the token of a provider as `PROVIDER_TOKEN`. Raises ToolError.
    """
    environment: dict[str, str] = {}
    for variable in variables:
        if variable not in context.variables:
            raise ToolError(
                f"Tool '{name}' needs the variable '{variable}', which the host does not give.", "unavailable"
            )
        environment[variable] = str(context.variables[variable])
    for credential in context.credentials.values():
        is_named = credential.kind == "secret"
        key = credential.provider if is_named else f"{credential.provider.upper().replace('-', '_')}_TOKEN"
        environment[key] = credential.secret
    if any("\0" in text for text in environment.values()):
        raise ToolError(f"A variable of tool '{name}' has a NUL, which no environment can hold.", "unavailable")
    if sum(len(key) + len(text) for key, text in environment.items()) > MAX_ENVIRONMENT_CHARS:
        raise ToolError(f"The variables of tool '{name}' are larger than 128 KiB together.", "unavailable")
    return environment


def value_of(ended: Ended, name: str, limits: ProgramLimits, context: Context) -> dict[str, Any]:
    """Return what the program of the tool *name* has written; what it wrote to standard error goes to its log.

    Raises ToolError for a program that did not end with status 0, and for other than text.
    """
    text = ended.error_output.decode(errors="replace").strip()
    wrote = f" It wrote: {text[-MAX_QUOTED_CHARS:]}" if text else ""
    if ended.is_over:
        raise ToolError(f"Tool '{name}' wrote more than {limits.output_bytes} bytes. Ask for less.", "too_large")
    if ended.exception:
        context.log.error("%s", text)  # the model gets the last line
        if ended.exception.startswith("MemoryError"):
            reason = f"it needed more than the {limits.memory_bytes // 1024**2} MiB of memory that it may have"
            raise ToolError(f"Tool '{name}' was stopped: {reason}.", "trapped")
        raise ToolError(f"Tool '{name}' failed: {ended.exception}")
    if ended.stopped:
        raise ToolError(f"Tool '{name}' was stopped: {ended.stopped}.{wrote}", "trapped")
    if ended.status:
        raise ToolError(f"Tool '{name}' ended with status {ended.status}.{wrote}")
    for line in ended.error_output.decode(errors="replace").splitlines():
        context.log.info("%s", line)
    try:
        return {"text": ended.output.decode()}
    except UnicodeDecodeError:
        raise ToolError(f"Tool '{name}' wrote what is not UTF-8 text.", "invalid_result") from None


class Streams:
    """The pipes of one run: feeds *data* to the program, and collects what it writes.

    *stop* is called once where the program writes more than its limit; `is_over` is then true. Of standard error the
    last bytes are kept, since the end of a traceback says what went wrong.
    """

    def __init__(self, data: bytes, limits: ProgramLimits, *, stop: Callable[[], None]) -> None:
        self.output = bytearray()
        self.error_output = bytearray()
        self.is_over = False
        self._data = memoryview(data)
        self._limits = limits
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        input_end, self._feed = os.pipe()
        self._out, output_end = os.pipe()
        self._err, error_end = os.pipe()
        self.ends = [input_end, output_end, error_end]
        """What the program has as its standard input, output and error."""

    def __enter__(self) -> Self:
        for end in (self._feed, self._out, self._err):
            os.set_blocking(end, False)
        self._loop.add_reader(self._out, self._read_output)
        self._loop.add_reader(self._err, self._read_error)
        self._loop.add_writer(self._feed, self._write_input)
        self._write_input()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_ends()
        self._close_input()
        for end in (self._out, self._err):
            self._loop.remove_reader(end)
            os.close(end)

    def close_ends(self) -> None:
        """Close the program's ends here, once it has ends of its own."""
        while self.ends:
            os.close(self.ends.pop())

    def finish(self, status: int, *, stopped: str = "", exception: str = "") -> Ended:
        """Read what is left in the pipes of a program that has ended. Returns how it ended."""
        self.close_ends()
        while self._read_output():
            pass
        while self._read_error():
            pass
        return Ended(status, bytes(self.output), bytes(self.error_output), stopped, exception, self.is_over)

    def _write_input(self) -> None:
        try:
            while self._data:
                self._data = self._data[os.write(self._feed, self._data[:_PIECE_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the program does not read it
            pass
        self._close_input()

    def _close_input(self) -> None:
        if self._feed >= 0:
            self._loop.remove_writer(self._feed)
            os.close(self._feed)
            self._feed = -1

    def _read_output(self) -> bool:
        """Read a piece of the output. Returns whether there may be more."""
        piece = self._read(self._out)
        if not self.is_over:
            self.output += piece
            if len(self.output) > self._limits.output_bytes:
                self.is_over = True
                self._stop()
        return bool(piece)

    def _read_error(self) -> bool:
        piece = self._read(self._err)
        self.error_output += piece
        del self.error_output[: len(self.error_output) - self._limits.error_bytes]
        return bool(piece)

    def _read(self, end: int) -> bytes:
        try:
            piece = os.read(end, _PIECE_BYTES)
        except BlockingIOError:
            return b""
        if not piece:
            self._loop.remove_reader(end)
        return piece
