"""What programs in a worker have in common: an environment, limits, standard streams, and how they end.

A program gets its arguments as JSON on standard input, and writes its result to standard output.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import Context, ToolError

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

    *reason* is why it was stopped, such as "it divided by zero". *exception* is the last line of the traceback of a
    program in Python. *is_over* says that it wrote more than its limit.
    """

    status: int
    output: bytes
    error_output: bytes
    reason: str = ""
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
    if ended.reason:
        raise ToolError(f"Tool '{name}' was stopped: {ended.reason}.{wrote}", "trapped")
    if ended.status:
        raise ToolError(f"Tool '{name}' ended with status {ended.status}.{wrote}")
    for line in ended.error_output.decode(errors="replace").splitlines():
        context.log.info("%s", line)
    try:
        return {"text": ended.output.decode()}
    except UnicodeDecodeError:
        raise ToolError(f"Tool '{name}' wrote what is not UTF-8 text.", "invalid_result") from None


class ProgramOutput:
    """What one run writes. *stop* is called once where its output is over the limit, and the rest is dropped.

    Of standard error the last bytes are kept, since the end of a traceback says what went wrong.
    """

    def __init__(self, limits: ProgramLimits, *, stop: Callable[[], None]) -> None:
        self._limits = limits
        self._stop = stop
        self._output = bytearray()
        self._error_output = bytearray()
        self._is_over = False

    def write(self, piece: bytes) -> None:
        if self._is_over:
            return
        self._output += piece
        if len(self._output) > self._limits.output_bytes:
            self._is_over = True
            self._stop()

    def write_error(self, piece: bytes) -> None:
        self._error_output += piece
        del self._error_output[: len(self._error_output) - self._limits.error_bytes]

    def end(self, status: int = 0, *, reason: str = "", exception: str = "") -> Ended:
        """Return how the run ended."""
        return Ended(status, bytes(self._output), bytes(self._error_output), reason, exception, self._is_over)
