"""What a worker process runs folders of Python with that the host trusts: an interpreter of their own environment.

A program has the permissions of the worker process, which are those of the host; its variables are those it was given.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ..core import Context, LoadError, ToolError
from .folders import folder_digest
from .guest import environment_of, quoted, text_of
from .modules import Ended, ProgramLimits

_PIECE_BYTES = 2**16
# What a program needs to find its own things, and no more of the host's environment.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_GUEST = str(Path(__file__).parent / "python")


class NativePrograms:
    """Loads the programs of a worker process."""

    def load(self, where: Mapping[str, Any], name: str) -> Callable[[str, Context], Awaitable[dict[str, Any]]]:
        """Return what runs the program in the folder at *where*: JSON on standard input → what it wrote.

        Raises LoadError where the folder is not what the host has read.
        """
        folder = Path(where["folder"])
        if folder_digest(folder) != where["sha256"]:
            raise LoadError(f"Its folder has changed since the host loaded it ({folder}). Load it again.")
        limits = ProgramLimits(**where["limits"])

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
            given = environment_of(name, where["variables"], context)
            process = await asyncio.create_subprocess_exec(
                where["python"],
                str(folder / where["program"]),
                cwd=folder,
                env={**kept, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": _GUEST, **given},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert process.stderr is not None
            try:
                output, error_output, _ = await asyncio.gather(
                    _output(process, limits), _last_of(process.stderr, limits), _feed(process, arguments)
                )
                status = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
            if len(output) > limits.output_bytes:
                raise ToolError(
                    f"Tool '{name}' wrote more than {limits.output_bytes} bytes. Ask for less.", "too_large"
                )
            if status < 0:
                raise ToolError(f"Tool '{name}' was ended by signal {-status}." + quoted(error_output), "trapped")
            text = error_output.decode(errors="replace").rstrip()
            if status and "Traceback (most recent call last):\n" in text:
                context.log.error("%s", text)
                raise ToolError(f"Tool '{name}' failed: {text.splitlines()[-1][:500]}")
            return text_of(Ended(status, output, error_output), name, context)

        return run


async def _feed(process: asyncio.subprocess.Process, arguments: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it does not read them
        process.stdin.write(arguments.encode())
        await process.stdin.drain()
    process.stdin.close()


async def _output(process: asyncio.subprocess.Process, limits: ProgramLimits) -> bytes:
    """Return what it writes to standard output; where that is over the limit, it is ended."""
    assert process.stdout is not None
    written = bytearray()
    while piece := await process.stdout.read(_PIECE_BYTES):
        if len(written) <= limits.output_bytes:
            written += piece
            if len(written) > limits.output_bytes:
                process.kill()
    return bytes(written)


async def _last_of(stream: asyncio.StreamReader, limits: ProgramLimits) -> bytes:
    written = bytearray()
    while piece := await stream.read(_PIECE_BYTES):
        written += piece
        # A traceback's last lines say what went wrong.
        del written[: len(written) - limits.error_bytes]
    return bytes(written)
