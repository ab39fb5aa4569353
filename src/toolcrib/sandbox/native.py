"""What a worker process runs folders of Python with that the host trusts: an interpreter of their own environment.

A program has the permissions of the worker process, which are those of the host; its variables are those it was given.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core import Context, LoadError
from .folders import folder_digest
from .programs import ProgramLimits, RunProgram, Streams, environment_of, value_of

# What a program needs to find its own things, and no more of the host's environment.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_GUEST = str(Path(__file__).parent / "python")
_TRACEBACK = b"Traceback (most recent call last):\n"


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
            process: asyncio.subprocess.Process | None = None

            def stop() -> None:
                if process is not None and process.returncode is None:
                    process.kill()

            with Streams(arguments.encode(), limits, stop=stop) as streams:
                command = (where["python"], str(folder / where["program"]))
                stdin, stdout, stderr = streams.ends
                try:
                    process = await asyncio.create_subprocess_exec(
                        *command, cwd=folder, env=environment, stdin=stdin, stdout=stdout, stderr=stderr
                    )
                    streams.close_ends()
                    status = await process.wait()
                finally:
                    stop()
                end = streams.finish(status, stopped=f"it was ended by signal {-status}" if status < 0 else "")
            if status > 0 and _TRACEBACK in end.error_output:
                last = end.error_output.decode(errors="replace").rstrip().splitlines()[-1]
                end = replace(end, exception=last[:500])
            return value_of(end, name, limits, context)

        return run
