"""WebAssembly modules as tools: a `.wasm` file, or a folder with a `tool.toml` that describes it.

A module is a program for WASI preview 1. It gets its arguments as JSON on standard input, writes its result to standard
output, and has no files and no network. Each call runs in a worker process, which is ended at the deadline.
"""

import functools
import hashlib
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from ..core import (
    Auth,
    DefinitionError,
    Hints,
    LoadError,
    Overrides,
    Secret,
    ToolAuth,
    ToolcribError,
    ToolSpec,
    finished,
)
from ..sandbox import GuestProcesses, ProcessWork
from ..schema import display_name
from ..schema.declared import Strict, mistakes_in
from ..schema.toml_lines import line_at, lines_of
from .from_schema import from_schema
from .function import Tool
from .modules import LoadProblem

MANIFEST = "tool.toml"
_MODULE, _COMPONENT = b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"
_MOST_CODE_BYTES = 32 * 1024**2
_MOST_MANIFEST_BYTES = 1024**2
_TIMEOUT_S = 30.0
_ANYTHING: Mapping[str, Any] = {"type": "object"}

Mebibytes = Annotated[int, Field(ge=1, le=4096)]


class Needed(Strict):
    """One requirement: the grant of a provider, or a named secret."""

    provider: str | None = None
    scopes: list[str] = Field(default_factory=list[str])
    secret: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "Needed":
        if (self.provider is None) == (self.secret is None) or (self.scopes and self.provider is None):
            raise ValueError("expected 'provider', with 'scopes' where it has them, or 'secret'")
        return self

    @property
    def requirement(self) -> ToolAuth | Secret:
        if self.provider is not None:
            return ToolAuth(self.provider, scopes=self.scopes)
        assert self.secret is not None
        return Secret(self.secret)


class Manifest(Strict):
    """What `tool.toml` says of a tool."""

    name: str = Field(description="What models call it by.")
    description: str = Field(description="What it does, for models.")
    file: str = Field(description="The module, beside this file.")
    title: str | None = Field(default=None, description="What people call it by.")
    parameters: dict[str, Any] | str = Field(
        default_factory=lambda: dict(_ANYTHING),
        description="The JSON Schema of its arguments, as a table or the name of a file beside this one.",
    )
    variables: list[str] = Field(default_factory=list[str], description="The host's variables in its environment.")
    auth: list[Needed] = Field(default_factory=list[Needed], description="The credentials in its environment.")
    memory_mb: Mebibytes = Field(default=64, description="How much memory it may have, in MiB.")
    output_mb: Mebibytes = Field(default=8, description="How much it may write to standard output, in MiB.")
    timeout_s: float = Field(default=_TIMEOUT_S, gt=0, description="How long a call may take, in seconds.")
    read_only: bool | None = Field(default=None, description="Hint of its effects, as in MCP.")
    destructive: bool | None = Field(default=None, description="Hint of its effects, as in MCP.")
    idempotent: bool | None = Field(default=None, description="Hint of its effects, as in MCP.")
    open_world: bool | None = Field(default=None, description="Hint of its effects, as in MCP.")
    tags: list[str] = Field(default_factory=list[str], description="For those who choose among tools.")
    version: str | None = Field(default=None, description="The version of the tool.")
    examples: list[dict[str, Any]] = Field(
        default_factory=list[dict[str, Any]], description="Arguments that work; checked when it is loaded."
    )


def wasm_tools(paths: Sequence[Path]) -> tuple[list[Tool[..., Any]], list[LoadProblem]]:
    """The tools of *paths*, and a problem for each that cannot be one. Raises LoadError where none is left."""
    tools: list[Tool[..., Any]] = []
    problems: list[LoadProblem] = []
    for path in paths:
        try:
            tools.append(_tool_of(path))
        except ToolcribError as error:
            problems.append(LoadProblem(str(path), str(error)))
    if not tools:
        raise LoadError("\n".join(problem.reason for problem in problems))
    return tools, problems


def _tool_of(path: Path) -> Tool[..., Any]:
    """The tool in *path*: a `.wasm` file, or a folder with a `tool.toml`. Raises LoadError with file and line."""
    if path.is_dir():
        return _from_manifest(path.resolve())
    name = path.stem.replace(".", "_").replace(" ", "_")
    return _made(Manifest(name=name, description="", file=path.name), path.resolve(), _ANYTHING)


class GuestCodec:
    """How the calls of a module get to a worker and back: its file, arguments as JSON text, and what it wrote."""

    loader = "toolcrib.sandbox.guest:GuestPrograms"

    def __init__(self, where: Mapping[str, Any]) -> None:
        self.where = where
        self.key = json.dumps(where, sort_keys=True)

    def write_arguments(self, arguments: Mapping[str, Any]) -> str:
        return json.dumps(arguments)

    def read_value(self, data: Mapping[str, Any]) -> Any:
        """An object or a list where that was written, else the text."""
        text: str = data["text"].strip()
        if text[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                return json.loads(text, parse_constant=_refuse_constant)
        return text

    def override_references(self, overrides: Overrides, tool: str) -> list[tuple[str, str]]:
        return []


def _from_manifest(folder: Path) -> Tool[..., Any]:
    file = folder / MANIFEST
    manifest = _read_manifest(file)
    parameters = manifest.parameters
    if isinstance(parameters, str):
        beside = _beside(folder, parameters, file)
        try:
            parameters = json.loads(_bytes_of(beside, _MOST_MANIFEST_BYTES))
        except (ValueError, RecursionError):
            raise LoadError(f"{beside} is not valid JSON.") from None
    try:
        return _made(manifest, _beside(folder, manifest.file, file), parameters)
    except DefinitionError as error:
        raise LoadError(f"{file}: {error}") from None


def _made(manifest: Manifest, file: Path, parameters: Any) -> Tool[..., Any]:
    _require_system(file)
    code = _bytes_of(file, _MOST_CODE_BYTES)
    if code.startswith(_COMPONENT):
        raise LoadError(f"{file} is a WebAssembly component. Build it as a module, for WASI preview 1.")
    if not code.startswith(_MODULE):
        raise LoadError(f"{file} is not a WebAssembly module: it does not begin as one does.")
    auth: Auth = [one.requirement for one in manifest.auth] or None
    spec = ToolSpec(
        manifest.name,
        manifest.description,
        parameters,
        title=manifest.title,
        hints=Hints(
            read_only=manifest.read_only,
            destructive=manifest.destructive,
            idempotent=manifest.idempotent,
            open_world=manifest.open_world,
        ),
        auth=auth,
        tags=frozenset(manifest.tags),
        version=manifest.version,
        examples=tuple(manifest.examples),
        timeout_s=manifest.timeout_s,
    )
    digest = hashlib.sha256(code).hexdigest()
    limits = {"memory_bytes": manifest.memory_mb * 1024**2, "output_bytes": manifest.output_mb * 1024**2}
    where = {"file": str(file), "sha256": digest, "limits": limits, "variables": manifest.variables}
    tool = from_schema(spec, functools.partial(_run_nowhere_else, manifest.name, digest))
    tool.work = ProcessWork(GuestCodec(where), GuestProcesses)
    tool.needs_context, tool.at_deadline, tool.isolation = True, "killed", "wasm"
    for number, example in enumerate(spec.examples, 1):
        try:
            finished(tool.check, example, False)
        except Exception as error:
            raise DefinitionError(f"example {number} is not a call that works: {error}") from None
    return tool


def _read_manifest(file: Path) -> Manifest:
    try:
        text = _bytes_of(file, _MOST_MANIFEST_BYTES).decode("utf-8-sig").replace("\r\n", "\n")
        data = tomllib.loads(text)
    except RecursionError:
        raise LoadError(f"{file} is not valid TOML: it is nested too deeply.") from None
    except ValueError as error:
        raise LoadError(f"{file} is not valid TOML: {error}.") from None
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        lines = lines_of(text)
        mistakes = mistakes_in(Manifest, data, error)
        raise LoadError("\n".join(f"{file}:{line_at(lines, each.keys)}: {each.message}" for each in mistakes)) from None


def _beside(folder: Path, name: str, file: Path) -> Path:
    """The file *name* in *folder*, and nowhere else."""
    found = None if "\0" in name else (folder / name).resolve()
    if found is None or not found.is_relative_to(folder):
        raise LoadError(f"{file} names a file that is not in its folder: '{display_name(name)}'.")
    return found


def _bytes_of(file: Path, most_bytes: int) -> bytes:
    try:
        if not file.is_file():
            raise LoadError(f"There is no file {file}.")
        with file.open("rb") as opened:
            content = opened.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it has no valid name'}."
        ) from None
    if len(content) > most_bytes:
        raise LoadError(f"{file} is larger than {most_bytes // 1024**2} MiB, which is the limit.")
    return content


def _require_system(file: Path) -> None:
    if sys.platform == "win32":
        raise LoadError(f"{file} is a WebAssembly tool, and these need POSIX: they run in worker processes.")
    for package in ("wasmtime", "platformdirs"):
        if find_spec(package) is None:
            raise LoadError(
                f"{file} is a WebAssembly tool, which needs the package '{package}': pip install 'toolcrib[sandbox]'."
            )


def _run_nowhere_else(name: str, digest: str, /, **_: Any) -> Any:
    raise TypeError(f"'{name}' is a WebAssembly module ({digest[:8]}): call it by a workbench.")


def _refuse_constant(_: str) -> Any:
    raise ValueError
