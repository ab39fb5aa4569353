"""Programs in a worker: what all have of environment, limits and standard streams, how they end, and native ones.

A program gets its arguments as JSON on standard input, and writes its result to standard output.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core import Context, LoadError, ToolError
from . import source_imports
from .folders import folder_digest, folder_stamp

MAX_QUOTED_CHARS = 2000
# What a program needs to find its own things, and no more of the host's environment.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_GUEST = str(Path(__file__).parent / "python")
_TRACEBACK = b"Traceback (most recent call last):\n"
_LEFT_OPEN_S = 0.2
"""How long the pipes of a program that has ended are read, where a process that it has left holds them open."""

RunProgram = Callable[[str, Context], Awaitable[dict[str, Any]]]
"""Runs a program with arguments as JSON text. Returns its value as JSON data, for the host."""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """What one run may use, in bytes: memory, standard output, and how much of standard error is kept."""

    memory_bytes: int = 64 * 1024**2
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


class ProgramFolder:
    """The folder at *where*, whose content is what the host has read. Raises LoadError where it is not."""

    def __init__(self, where: Mapping[str, Any]) -> None:
        self.path = Path(where["folder"])
        self._sha256 = where["sha256"]
        self._stamp = folder_stamp(self.path)
        if folder_digest(self.path) != self._sha256:
            raise LoadError(f"Its folder has changed since the host loaded it ({self.path}). Load it again.")

    def require_unchanged(self, name: str) -> None:
        """Raise ToolError where the folder, of the tool *name*, is not what it was."""
        if folder_stamp(self.path) != self._stamp and folder_digest(self.path) != self._sha256:
            raise ToolError(f"The folder of tool '{name}' has changed since it was loaded.", "unavailable")


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


class NativePrograms:
    """Loads folders of Python that the host trusts, which an interpreter of their own environment runs.

    A program has the permissions of the worker process, which are those of the host; its variables are those that it
    was given.
    """

    def load(self, where: Mapping[str, Any], name: str) -> RunProgram:
        """Return what runs the program in the folder at *where*.

        Raises LoadError where the folder is not what the host has read.
        """
        folder, limits = ProgramFolder(where), ProgramLimits(**where["limits"])

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            folder.require_unchanged(name)
            environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
            environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": _GUEST}
            environment |= environment_of(name, where["variables"], context)
            command = (where["python"], source_imports.__file__, str(folder.path / where["program"]))
            end = await _run(command, arguments.encode(), limits, cwd=folder.path, env=environment)
            if end.status > 0 and _TRACEBACK in end.error_output:
                last = end.error_output.decode(errors="replace").rstrip().splitlines()[-1]
                end = replace(end, exception=last[:500])
            return value_of(end, name, limits, context)

        return run


async def _run(command: Sequence[str], data: bytes, limits: ProgramLimits, **options: Any) -> Ended:
    loop = asyncio.get_running_loop()
    transport, process = await loop.subprocess_exec(lambda: _Process(limits), *command, **options)
    try:
        standard_input: Any = transport.get_pipe_transport(0)
        standard_input.write(data)
        standard_input.write_eof()
        await process.ended
    finally:
        transport.close()  # it kills what has not ended
    status = transport.get_returncode() or 0
    return process.output.end(status, reason=f"it was ended by signal {-status}" if status < 0 else "")


class _Process(asyncio.SubprocessProtocol):
    """A program: what it writes, and when it has `ended` and all of that is read."""

    def __init__(self, limits: ProgramLimits) -> None:
        self.output = ProgramOutput(limits, stop=self._kill)
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.output.write if fd == 1 else self.output.write_error)(data)

    def process_exited(self) -> None:
        # What it has started may hold its pipes open for ever.
        asyncio.get_running_loop().call_later(_LEFT_OPEN_S, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _kill(self) -> None:
        self._transport.kill()
