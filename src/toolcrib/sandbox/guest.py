"""What a worker process runs WebAssembly tools with. Runs in the worker, not in the host."""

import hashlib
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core import Context, LoadError, ToolError, raise_missing_extra

try:
    from .modules import Ended, InputOverLimit, OutputOverLimit, ProgramLimits, Programs, Trapped
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "WebAssembly tools need", "sandbox")


_MOST_ENVIRONMENT_CHARS = 128 * 1024


class GuestPrograms:
    """Loads the modules of a worker process, each compiled once; *in_host*, those that the host runs itself."""

    def __init__(self, *, in_host: bool = False) -> None:
        self._programs = Programs(own_signals=not in_host, pools=in_host)

    def load(self, where: Mapping[str, Any], name: str) -> Callable[[str, Context], Awaitable[dict[str, Any]]]:
        """Return what runs the module at *where*: its arguments as JSON on standard input → what it wrote.

        Raises LoadError for what cannot run here, and where the file is not what the host has read.
        """
        code = Path(where["file"]).read_bytes()
        if hashlib.sha256(code).hexdigest() != where["sha256"]:
            raise LoadError(f"Its file has changed since the host loaded it ({where['file']}). Load it again.")
        program = self._programs.compile(code, [tuple(mount) for mount in where["mounts"]])
        limits = ProgramLimits(**where["limits"])

        async def run(arguments: str, context: Context) -> dict[str, Any]:
            environment = environment_of(name, where["variables"], context)
            with tool_errors(name, limits):
                ended = await program.run(arguments.encode(), environment, limits)
            return text_of(ended, name, context)

        return run


@contextmanager
def tool_errors(name: str, limits: ProgramLimits) -> Generator[None]:
    """Raise what stops a guest in the block as the ToolError of the tool *name*: `too_large` or `trapped`."""
    try:
        yield
    except InputOverLimit:
        raise ToolError(
            f"The arguments of '{name}' are larger than {limits.input_bytes} bytes, its limit.", "too_large"
        ) from None
    except OutputOverLimit:
        raise ToolError(
            f"Tool '{name}' wrote more than {limits.output_bytes} bytes. Ask for less.", "too_large"
        ) from None
    except Trapped as trapped:
        reason = f"Tool '{name}' was stopped: {trapped}."
        raise ToolError(reason + quoted(trapped.error_output), "trapped") from None


def text_of(ended: Ended, name: str, context: Context) -> dict[str, Any]:
    """Return what a program has written, for the host.

    Raises ToolError for a status other than 0, and for other than text.
    """
    if ended.status:
        reason = f"Tool '{name}' ended with status {ended.status}."
        raise ToolError(reason + quoted(ended.error_output))
    for line in ended.error_output.decode(errors="replace").splitlines():
        context.log.info("%s", line)
    try:
        return {"text": ended.output.decode()}
    except UnicodeDecodeError:
        raise ToolError(f"Tool '{name}' wrote what is not UTF-8 text.", "invalid_result") from None


def environment_of(name: str, variables: list[str], context: Context) -> dict[str, str]:
    """Return the *variables* of the host that the tool names, and its credentials:

    `NAME` of a secret, `PROVIDER_TOKEN`.
    """
    found: dict[str, str] = {}
    for variable in variables:
        if variable not in context.variables:
            raise ToolError(
                f"Tool '{name}' needs the variable '{variable}', which the host does not give.", "unavailable"
            )
        found[variable] = str(context.variables[variable])
    for credential in context.credentials.values():
        is_named = credential.kind == "secret"
        key = credential.provider if is_named else f"{credential.provider.upper().replace('-', '_')}_TOKEN"
        found[key] = credential.secret
    if any("\0" in text for text in found.values()):
        raise ToolError(f"A variable of tool '{name}' has a NUL, which no environment can hold.", "unavailable")
    if sum(len(key) + len(text) for key, text in found.items()) > _MOST_ENVIRONMENT_CHARS:
        raise ToolError(f"The variables of tool '{name}' are larger than 128 KiB together.", "unavailable")
    return found


def quoted(error_output: bytes) -> str:
    """Return what a program wrote to standard error, as the end of a message."""
    text = error_output.decode(errors="replace").strip()
    return f" It wrote: {text[-2000:]}" if text else ""
