"""Programs for the sandbox as tools: a `.wasm` file, or a folder with a `tool.toml` that describes one.

    module       a program for WASI preview 1: it has no network
    component    one for WASI preview 2, with the hosts that it was granted
    Python       a folder, in the Python of the sandbox; one that cannot run there, where it is trusted, in a virtual
                 environment of its own

A program gets its arguments as JSON on standard input, and writes its result to standard output. Each call runs in a
worker process, which is ended at the deadline. Nothing of a folder is imported here: what cannot run in the sandbox is
found by looking at it.
"""

import hashlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pydantic_core

from ..core import Context, DefinitionError, LoadError, SetupError, ToolcribError, ToolError
from ..machinery import Overrides, Work
from ..sandbox import MAX_BYTES, Codec, ProcessWork, folder_digest, guest_processes, native_code_in
from ..sandbox.python_build import Environment, environment_for
from .content import bytes_of
from .definition import require_examples
from .function import Tool, from_schema, stand_in
from .manifest import MANIFEST, Manifest, file_in, parameters_of, read_manifest
from .modules import LoadProblem
from .permissions import NotGranted, Permissions, mounted, require

_MODULE, _COMPONENT = b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"
# What a worker runs a program by.
_GUEST = "toolcrib.sandbox.guests:GuestPrograms"
_NATIVE = "toolcrib.sandbox.programs:NativePrograms"

_log = logging.getLogger("toolcrib")


def wasm_tools(paths: Sequence[Path], permissions: Permissions) -> tuple[list[Tool[..., Any]], list[LoadProblem]]:
    """Return the tools of *paths*, with what *permissions* gives them, and a problem for each that cannot be one.

    Raises LoadError where none is left.
    """
    tools: list[Tool[..., Any]] = []
    problems: list[LoadProblem] = []
    for path in paths:
        try:
            tools.append(_tool_of(path, permissions))
        except ToolcribError as error:
            problems.append(LoadProblem(str(path), str(error)))
    if not tools:
        raise LoadError("\n".join(problem.reason for problem in problems))
    return tools, problems


def program_work(
    folder: Path, program: str, *, digest: str, limits: Mapping[str, int], variables: Sequence[str], trusted: bool
) -> Work:
    """Return the work of the Python *program* in *folder*, without a network, whose result is the text that it writes.

    Raises LoadError for what cannot run, and where the folder's content no longer has *digest*.
    """
    where = {"program": program, "limits": limits, "variables": list(variables), "hosts": [], "private_hosts": []}
    where, environment = _python(folder, {**where, "mounts": []}, trusted=trusted)
    if where["sha256"] != digest:
        raise LoadError("its folder has changed since it was loaded. Load it again.")
    if environment is None:
        return ProcessWork(_TextCodec(where), guest_processes)
    return _in_environment(environment, ProcessWork(_TextCodec(where, _NATIVE)))


class GuestCodec:
    """How the calls of a program get to a worker and back: its file, arguments as JSON text, and what it wrote."""

    def __init__(self, where: Mapping[str, Any], loader: str = _GUEST) -> None:
        self.where = where
        self.loader = loader
        self.key = json.dumps(where, sort_keys=True)

    def write_arguments(self, arguments: Mapping[str, Any]) -> str:
        return json.dumps(arguments)

    def read_value(self, data: Mapping[str, Any]) -> Any:
        """Return an object or a list where that was written, else the text."""
        text: str = data["text"].strip()
        if text[:1] in ("{", "["):
            with suppress(ValueError):
                return pydantic_core.from_json(text, allow_inf_nan=False)
        return text

    def override_references(self, overrides: Overrides, tool: str) -> list[tuple[str, str]]:
        return []


class _TextCodec(GuestCodec):
    """The result is the text that the program wrote, also where that is JSON."""

    def read_value(self, data: Mapping[str, Any]) -> str:
        return str(data["text"]).rstrip("\n")


# Tools


def _tool_of(path: Path, permissions: Permissions) -> Tool[..., Any]:
    """Return the tool in *path*: a `.wasm` file, or a folder with a `tool.toml`. Raises LoadError."""
    if not path.is_dir():
        name = path.stem.replace(".", "_").replace(" ", "_")
        file = path.resolve()
        return _program_tool(Manifest(name=name, description="", file=path.name), file.parent, file, permissions)
    folder = path.resolve()
    manifest = read_manifest(folder)
    try:
        require(permissions, manifest)
        return _program_tool(manifest, folder, file_in(folder, manifest.program), permissions)
    except (DefinitionError, NotGranted) as error:
        raise LoadError(f"{folder / MANIFEST}: {error}") from None


def _program_tool(manifest: Manifest, folder: Path, file: Path, permissions: Permissions) -> Tool[..., Any]:
    """Return the tool that *manifest* describes, of the program in *file*. Raises LoadError and DefinitionError."""
    _require_system(file)
    if manifest.language == "node":
        raise LoadError(f"{file} is a program for Node, which the sandbox does not have. Build it as a component.")
    code = bytes_of(file, MAX_BYTES)
    where: dict[str, Any] = {
        "limits": {"memory_bytes": manifest.memory_mb * 1024**2, "output_bytes": manifest.output_mb * 1024**2},
        "variables": manifest.variables,
        "mounts": mounted(permissions, manifest),
    }
    network = {"hosts": manifest.hosts, "private_hosts": list(permissions.private_hosts)}
    if manifest.runtime == "python":
        where |= {"program": file.relative_to(folder).as_posix(), **network}
        where, environment = _python(folder, where, trusted=permissions.trusted)
        codec = GuestCodec(where, _GUEST if environment is None else _NATIVE)
        tool = _sandboxed(manifest, folder, where["sha256"], codec)
        if environment is not None:
            tool.work, tool.isolation = _in_environment(environment, ProcessWork(codec)), "process"
        return tool
    where |= {"file": str(file), "sha256": hashlib.sha256(code).hexdigest()}
    if code.startswith(_COMPONENT):
        return _sandboxed(manifest, folder, where["sha256"], GuestCodec({**where, **network}))
    if not code.startswith(_MODULE):
        raise LoadError(f"{file} is not a WebAssembly module: it does not begin as one does.")
    if manifest.hosts:
        raise LoadError("A module has no network: 'hosts' are for components and Python.")
    return _sandboxed(manifest, folder, where["sha256"], GuestCodec(where))


def _sandboxed(manifest: Manifest, folder: Path, digest: str, codec: Codec) -> Tool[..., Any]:
    """Return the tool that *manifest* in *folder* describes, run by *codec*; *digest* is that of its program."""
    spec = manifest.spec(parameters_of(manifest, folder))
    tool = from_schema(spec, stand_in(manifest.name, digest))
    tool.work = ProcessWork(codec, guest_processes)
    tool.requires = manifest.needs
    tool.needs_context, tool.at_deadline, tool.isolation = True, "killed", "wasm"
    require_examples(spec, tool.check, f"Tool '{manifest.name}'")
    return tool


def _require_system(file: Path) -> None:
    if sys.platform == "win32":
        raise LoadError(f"{file} is a WebAssembly tool, and these need POSIX: they run in worker processes.")
    for package in ("wasmtime", "platformdirs"):
        if find_spec(package) is None:
            raise LoadError(
                f"{file} is a WebAssembly tool, which needs the package '{package}': pip install 'toolcrib[sandbox]'."
            )


# Folders of Python


def _python(folder: Path, where: Mapping[str, Any], *, trusted: bool) -> tuple[dict[str, Any], Environment | None]:
    """Return how a worker runs the folder of Python *where*, and the environment outside of the sandbox, if needed.

    Raises LoadError for what cannot run.
    """
    if any(path == "/tool" for path, _, _ in where["mounts"]):
        raise LoadError("Its own folder is /tool, so no mount of it can have the name 'tool'.")
    where = {**where, "folder": str(folder), "sha256": folder_digest(folder)}
    reason = _reason_against(folder)
    if reason is None:
        return where, None
    if not trusted:
        raise LoadError(
            f"{reason} That does not run in the sandbox. If you trust its source, write 'trusted = true' in its "
            "[[source]], or in a program Permissions(trusted=True).to(source): it then runs with your permissions."
        )
    if where["mounts"]:
        raise LoadError(f"{reason} Outside of the sandbox nothing is mounted: it cannot have 'mounts'.")
    environment = environment_for(folder)
    return {**where, "python": str(environment.python)}, environment


def _reason_against(folder: Path) -> str | None:
    """Return why *folder* cannot run in the sandbox; None where it can."""
    if (name := native_code_in(folder)) is not None:
        return f"It has native code ({name})."
    requirements = environment_for(folder).requirements
    if requirements and not (folder / "vendor").is_dir():
        return (
            f"It needs packages that are not in it ({', '.join(requirements[:3])}). Pure Python packages can be put "
            "into its folder 'vendor'."
        )
    return None


def _in_environment(environment: Environment, work: ProcessWork) -> Work:
    """Return *work*, of a program whose environment the first call makes, beside its deadline."""

    async def run(arguments: dict[str, Any], context: Context) -> Any:
        name = context.call.tool
        try:
            with context.deadline.paused() if context.deadline is not None else nullcontext():
                await environment.ready(lambda step: context.progress(0, message=step))
        except SetupError as error:
            _log.error("The virtual environment of tool '%s' cannot be made: %s", name, error)
            raise ToolError(
                f"The virtual environment of tool '{name}' cannot be made. The detail is in the log.", "unavailable"
            ) from None
        return await work(arguments, context)

    return run
