"""What a worker process runs folders of Python with that the host trusts: an interpreter of their own environment.

A program has the permissions of the worker process, which are those of the host; its variables are those it was given.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core import Context, LoadError
from .folders import folder_digest
from .programs import Ended, ProgramLimits, ProgramOutput, RunProgram, environment_of, value_of

# What a program needs to find its own things, and no more of the host's environment.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_GUEST = str(Path(__file__).parent / "python")
_TRACEBACK = b"Traceback (most recent call last):\n"
_LEFT_OPEN_S = 0.2
"""How long the pipes of a program that has ended are read, where a process that it has left holds them open."""


class NativePrograms:
    """Loads the programs of a worker process."""

    def load(self, where: Mapping[str, Any], name: str) -> RunProgram:
        """Return what runs the program in the folder at *where*.

        Raises LoadError where the folder is not what the host has read.
        """
        folder = Path(where["folder"])
        if folder_digest(folder) != where["sha256"]:
            raise LoadError(f"Its folder has changed since the host loaded it ({folder}). Load it again.")
        limits = ProgramLimits(**where["limits"])

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
            environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": _GUEST}
            environment |= environment_of(name, where["variables"], context)
            command = (where["python"], str(folder / where["program"]))
            end = await _run(command, arguments.encode(), limits, cwd=folder, env=environment)
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
