"""Folders of Python as programs: in the Python of the sandbox or, where the host trusts them, in an environment.

Nothing of such a folder is imported here. What cannot run in the sandbox is found by looking at it, and refused with
the reason, unless its source is trusted.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import Context, LoadError, SetupError, ToolError
from ..sandbox import ProcessWork
from ..sandbox.environments import Environment, environment_for
from ..sandbox.folders import folder_digest, native_code_in

_log = logging.getLogger("toolcrib")

SANDBOXED = "toolcrib.sandbox.guest_components:GuestComponents"
_NATIVE = "toolcrib.sandbox.native:NativePrograms"


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """How a worker runs a folder: by its *loader*, from *where*. With an *environment*, not in the sandbox."""

    loader: str
    where: Mapping[str, Any]
    digest: str
    environment: Environment | None = None


def python_program(
    folder: Path,
    program: str,
    *,
    limits: Mapping[str, int],
    variables: Sequence[str],
    hosts: Sequence[str],
    private_hosts: Sequence[str],
    mounts: Sequence[tuple[str, str, bool]] = (),
    trusted: bool,
) -> PythonProgram:
    """How the file *program* in *folder*, a resolved path, runs. Raises LoadError for what cannot run."""
    if any(path == "/tool" for path, _, _ in mounts):
        raise LoadError("Its own folder is /tool, so no mount of it can have the name 'tool'.")
    digest = folder_digest(folder)
    where: dict[str, Any] = {
        "folder": str(folder),
        "program": program,
        "sha256": digest,
        "limits": limits,
        "variables": list(variables),
        "hosts": list(hosts),
        "private_hosts": list(private_hosts),
        "mounts": list(mounts),
    }
    reason = _reason_against(folder)
    if reason is None:
        return PythonProgram(SANDBOXED, where, digest)
    if not trusted:
        raise LoadError(
            f"{reason} That does not run in the sandbox. If you trust its source, write 'trusted = true' in its "
            "[[source]], or in a program Permissions(trusted=True).to(source): it then runs with your permissions."
        )
    if mounts:
        raise LoadError(f"{reason} Outside of the sandbox nothing is mounted: it cannot have 'mounts'.")
    environment = environment_for(folder)
    return PythonProgram(_NATIVE, {**where, "python": str(environment.python)}, digest, environment)


class EnvironmentWork:
    """The work of a program that has an environment of its own, which the first call makes.

    That does not count toward the deadline.
    """

    def __init__(self, environment: Environment, work: ProcessWork) -> None:
        self._environment = environment
        self._work = work

    async def __call__(self, arguments: dict[str, Any], context: Context) -> Any:
        if context.deadline is None:
            await self._prepare(context)
        else:
            with context.deadline.paused():
                await self._prepare(context)
        return await self._work(arguments, context)

    async def _prepare(self, context: Context) -> None:
        try:
            await self._environment.ready(lambda step: context.progress(0, message=step))
        except SetupError as error:
            name = context.call.tool
            _log.error("The virtual environment of tool '%s' cannot be made: %s", name, error)
            raise ToolError(
                f"The virtual environment of tool '{name}' cannot be made. The detail is in the log.", "unavailable"
            ) from None


def _reason_against(folder: Path) -> str | None:
    """Why *folder* cannot run in the sandbox; None where it can."""
    if (name := native_code_in(folder)) is not None:
        return f"It has native code ({name})."
    requirements = environment_for(folder).requirements
    if requirements and not (folder / "vendor").is_dir():
        return (
            f"It needs packages that are not in it ({', '.join(requirements[:3])}). Pure Python packages can be put "
            "into its folder 'vendor'."
        )
    return None
