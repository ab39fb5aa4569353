"""Programs for the sandbox as tools: a `.wasm` file, or a folder with a `tool.toml` that describes one.

A module is a program for WASI preview 1. It gets its arguments as JSON on standard input, writes its result to standard
output, and has no files and no network. Each call runs in a worker process, which is ended at the deadline.
"""

import functools
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..core import DefinitionError, LoadError, Overrides, ToolcribError, Work, finished
from ..sandbox import Codec, GuestProcesses, GuestWork, ProcessWork
from .from_schema import from_schema
from .function import Tool
from .manifest import MANIFEST, Manifest, bytes_of, file_in, parameters_of, read_manifest
from .modules import LoadProblem
from .permissions import NotGranted, Permissions, mounted, require
from .python_folder import SANDBOXED, EnvironmentWork, PythonProgram, python_program

_MODULE, _COMPONENT = b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"
_MOST_CODE_BYTES = 32 * 1024**2


def wasm_tools(paths: Sequence[Path], permissions: Permissions) -> tuple[list[Tool[..., Any]], list[LoadProblem]]:
    """The tools of *paths*, with what *permissions* gives them, and a problem for each that cannot be one.

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


def _tool_of(path: Path, permissions: Permissions) -> Tool[..., Any]:
    """The tool in *path*: a `.wasm` file, or a folder with a `tool.toml`. Raises LoadError with file and line."""
    if not path.is_dir():
        name = path.stem.replace(".", "_").replace(" ", "_")
        file = path.resolve()
        return _made(Manifest(name=name, description="", file=path.name), file.parent, file, permissions)
    folder = path.resolve()
    manifest = read_manifest(folder)
    try:
        require(permissions, manifest)
        return _made(manifest, folder, file_in(folder, manifest.program), permissions)
    except (DefinitionError, NotGranted) as error:
        raise LoadError(f"{folder / MANIFEST}: {error}") from None


class GuestCodec:
    """How the calls of a module get to a worker and back: its file, arguments as JSON text, and what it wrote."""

    def __init__(self, where: Mapping[str, Any], loader: str = "toolcrib.sandbox.guest:GuestPrograms") -> None:
        self.where = where
        self.loader = loader
        self.key = json.dumps(where, sort_keys=True)

    def write_arguments(self, arguments: Mapping[str, Any]) -> str:
        return json.dumps(arguments)

    def read_value(self, data: Mapping[str, Any]) -> Any:
        """An object or a list where that was written, else the text."""
        text: str = data["text"].strip()
        if text[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                return _DECODER.decode(text)
        return text

    def override_references(self, overrides: Overrides, tool: str) -> list[tuple[str, str]]:
        return []


def _made(manifest: Manifest, folder: Path, file: Path, permissions: Permissions) -> Tool[..., Any]:
    """The tool that *manifest* describes, of the program in *file*. Raises LoadError and DefinitionError."""
    _require_system(file)
    if manifest.language == "node":
        raise LoadError(f"{file} is a program for Node, which the sandbox does not have. Build it as a component.")
    code = bytes_of(file, _MOST_CODE_BYTES)
    limits = {
        "memory_bytes": manifest.memory_mb * 1024**2,
        "input_bytes": manifest.input_mb * 1024**2,
        "output_bytes": manifest.output_mb * 1024**2,
    }
    mounts = mounted(permissions, manifest)
    network = {"hosts": manifest.hosts, "private_hosts": list(permissions.private_hosts)}
    if manifest.runtime == "python":
        program = python_program(
            folder,
            file.relative_to(folder).as_posix(),
            limits=limits,
            variables=manifest.variables,
            mounts=mounts,
            trusted=permissions.trusted,
            **network,
        )
        return _of_python(manifest, folder, program)
    digest = hashlib.sha256(code).hexdigest()
    where = {
        "file": str(file),
        "sha256": digest,
        "limits": limits,
        "variables": manifest.variables,
        "mounts": mounts,
    }
    if code.startswith(_COMPONENT):
        return sandboxed(manifest, folder, digest, GuestCodec({**where, **network}, SANDBOXED))
    if not code.startswith(_MODULE):
        raise LoadError(f"{file} is not a WebAssembly module: it does not begin as one does.")
    if manifest.hosts:
        raise LoadError("A module has no network: 'hosts' are for components and Python.")
    tool = sandboxed(manifest, folder, digest, GuestCodec(where))
    # With folders not: opening what is in one may block for ever, and only the end of a process ends that.
    if permissions.in_process and not manifest.mounts:
        tool.work = GuestWork(GuestCodec(where))
    return tool


def _of_python(manifest: Manifest, folder: Path, program: PythonProgram) -> Tool[..., Any]:
    codec = GuestCodec(program.where, program.loader)
    tool = sandboxed(manifest, folder, program.digest, codec)
    if program.environment is not None:
        tool.work, tool.isolation = EnvironmentWork(program.environment, ProcessWork(codec)), "process"
    return tool


class _TextCodec(GuestCodec):
    """The result is the text that the program wrote, also where that is JSON."""

    def read_value(self, data: Mapping[str, Any]) -> str:
        return str(data["text"]).rstrip("\n")


def program_work(
    folder: Path, program: str, *, digest: str, limits: Mapping[str, int], variables: Sequence[str], trusted: bool
) -> Work:
    """Return the work of the Python *program* in *folder*, without a network, whose result is the text that it writes.

    Raises LoadError for what cannot run, and where the folder's content no longer has *digest*.
    """
    parts = python_program(
        folder, program, limits=limits, variables=variables, hosts=[], private_hosts=[], trusted=trusted
    )
    if parts.digest != digest:
        raise LoadError("its folder has changed since it was loaded. Load it again.")
    work = ProcessWork(_TextCodec(parts.where, parts.loader), GuestProcesses)
    return work if parts.environment is None else EnvironmentWork(parts.environment, work)


def sandboxed(manifest: Manifest, folder: Path, digest: str, codec: Codec) -> Tool[..., Any]:
    """The tool that *manifest* in *folder* describes, run by way of *codec*; *digest* is that of its program."""
    spec = manifest.spec(parameters_of(manifest, folder))
    tool = from_schema(spec, functools.partial(_run_nowhere_else, manifest.name, digest))
    tool.work = ProcessWork(codec, GuestProcesses)
    tool.requires = manifest.needs
    tool.needs_context, tool.at_deadline, tool.isolation = True, "killed", "wasm"
    for number, example in enumerate(spec.examples, 1):
        try:
            finished(tool.check, example, False)
        except Exception as error:
            raise DefinitionError(f"example {number} is not a call that works: {error}") from None
    return tool


def _require_system(file: Path) -> None:
    if sys.platform == "win32":
        raise LoadError(f"{file} is a WebAssembly tool, and these need POSIX: they run in worker processes.")
    for package in ("wasmtime", "platformdirs"):
        if find_spec(package) is None:
            raise LoadError(
                f"{file} is a WebAssembly tool, which needs the package '{package}': pip install 'toolcrib[sandbox]'."
            )


def _run_nowhere_else(name: str, digest: str, /, **_: Any) -> Any:
    raise TypeError(f"'{name}' runs in the sandbox ({digest[:8]}): call it by a workbench.")


def _refuse_constant(_: str) -> Any:
    raise ValueError


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
