"""Programs for the sandbox as tools: a `.wasm` file, or a folder with a `tool.toml` that describes one.

    module       a program for WASI preview 1: it has no network
    component    one for WASI preview 2, with the hosts that it was granted
    Python       a folder, in the Python of the sandbox; one that cannot run there, where it is trusted, in a virtual
                 environment of its own

A program gets its arguments as JSON on standard input, and writes its result to standard output. Each call runs in a
worker process, which is ended at the deadline. What a `tool.toml` names is a wish: the tool is loaded only if the
operator's `Permissions` give all of it. Nothing of a folder is imported here: what cannot run in the sandbox is found
by looking at it.
"""

import hashlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic_core
from pydantic import Field, JsonValue, ValidationError, model_validator

from ..core import (
    Context,
    DefinitionError,
    Hints,
    LoadError,
    Secret,
    SetupError,
    ToolAuth,
    ToolcribError,
    ToolError,
    ToolSpec,
)
from ..machinery import Overrides, Work
from ..sandbox import MAX_BYTES, Codec, ProcessWork, folder_digest, guest_processes, native_code_in
from ..sandbox.python_build import Environment, environment_for
from ..schema import display_name
from ..schema.declared import Strict, mistakes_in
from ..schema.toml import line_at, lines_of, parse_toml
from .content import MAX_TEXT_BYTES, bytes_of
from .definition import require_examples
from .function import Tool, from_schema, stand_in
from .modules import LoadProblem
from .permissions import Permissions

_MODULE, _COMPONENT = b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"
# What a worker runs a program by.
_GUEST = "toolcrib.sandbox.guests:GuestPrograms"
_NATIVE = "toolcrib.sandbox.programs:NativePrograms"

_log = logging.getLogger("toolcrib")

# `tool.toml`: what the author of a tool in a folder says of it, and what it needs

MANIFEST = "tool.toml"
MEMORY_MB, OUTPUT_MB, TIMEOUT_S = 64, 8, 30.0
"""What a tool may have of memory, output and time without a grant."""
_ANYTHING: Mapping[str, Any] = {"type": "object"}

Mebibytes = Annotated[int, Field(ge=1, le=4096)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
MountName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


class Needed(Strict):
    """One requirement: the grant of a provider, or a named secret."""

    provider: str | None = None
    scopes: list[str] = Field(default_factory=list[str])
    secret: Variable | None = None

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


class Mount(Strict):
    """A folder of the host that the tool sees as `/NAME`."""

    name: MountName = Field(description="What the tool and the operator call it.")
    read_only: bool = Field(default=True, description="Whether the tool only reads it.")


class Manifest(Strict):
    """What `tool.toml` says of a tool."""

    name: str = Field(description="The name that models see.")
    description: str = Field(description="What it does, for models.")
    runtime: Literal["wasm", "python"] = Field(default="wasm", description="What runs it.")
    language: str | None = Field(default=None, description="What it is written in.")
    file: str | None = Field(
        default=None, description="The program, beside this file: 'tool.wasm', or 'main.py' for Python, by default."
    )
    title: str | None = Field(default=None, description="The name that people see.")
    parameters: dict[str, JsonValue] | str = Field(
        default_factory=lambda: dict(_ANYTHING),
        description="The JSON Schema of its arguments, as a table or the name of a file beside this one.",
    )
    variables: list[Variable] = Field(
        default_factory=list[Variable], description="The host's variables in its environment."
    )
    auth: list[Needed] = Field(default_factory=list[Needed], description="The credentials in its environment.")
    hosts: list[str] = Field(default_factory=list[str], description="The hosts that it reaches: 'api.example.com'.")
    mounts: list[Mount] = Field(default_factory=list[Mount], description="The folders that it reads or writes.")
    memory_mb: Mebibytes = Field(default=MEMORY_MB, description="How much memory it may have, in MiB.")
    output_mb: Mebibytes = Field(default=OUTPUT_MB, description="How much it may write to standard output, in MiB.")
    timeout_s: float = Field(default=TIMEOUT_S, gt=0, description="How long a call may take, in seconds.")
    read_only: bool | None = Field(default=None, description="Hint of its effects, as in MCP.")
    destructive: bool | None = Field(default=None, description="Hint of its effects, as in MCP.")
    idempotent: bool | None = Field(default=None, description="Hint of its effects, as in MCP.")
    open_world: bool | None = Field(default=None, description="Hint of its effects, as in MCP.")
    tags: list[str] = Field(default_factory=list[str], description="For those who choose among tools.")
    version: str | None = Field(default=None, description="The version of the tool.")
    examples: list[dict[str, JsonValue]] = Field(
        default_factory=list[dict[str, JsonValue]], description="Arguments that work; checked when it is loaded."
    )

    @property
    def program(self) -> str:
        """The name of the file that is run."""
        return self.file or {"wasm": "tool.wasm", "python": "main.py"}[self.runtime]

    @property
    def requirements(self) -> list[ToolAuth | Secret]:
        return [entry.requirement for entry in self.auth]

    @property
    def secrets(self) -> list[str]:
        return [entry.secret for entry in self.auth if entry.secret is not None]

    @property
    def providers(self) -> list[str]:
        return [entry.provider for entry in self.auth if entry.provider is not None]

    @property
    def needs(self) -> dict[str, Any]:
        """What it needs beside credentials, as JSON data."""
        names = ("runtime", "variables", "hosts", "mounts", "memory_mb", "output_mb", "timeout_s")
        return self.model_dump(include=set(names))

    def spec(self, parameters: Any) -> ToolSpec:
        """Return what the tool promises. *parameters* are its JSON Schema. Raises DefinitionError."""
        return ToolSpec(
            self.name,
            self.description,
            parameters,
            title=self.title,
            hints=Hints(**self.model_dump(include={"read_only", "destructive", "idempotent", "open_world"})),
            auth=self.requirements or None,
            tags=frozenset(self.tags),
            version=self.version,
            examples=tuple(self.examples),
            timeout_s=self.timeout_s,
        )


def _read_manifest(folder: Path) -> Manifest:
    """Return the manifest in *folder*. Raises LoadError, with the line of each mistake."""
    file = folder / MANIFEST
    try:
        text = bytes_of(file, MAX_TEXT_BYTES).decode("utf-8-sig").replace("\r\n", "\n")
        data = parse_toml(text)
    except ValueError as error:
        raise LoadError(f"{file} is not valid TOML: {error}.") from None
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        lines = lines_of(text)
        mistakes = mistakes_in(Manifest, data, error)
        raise LoadError(
            "\n".join(f"{file}:{line_at(lines, mistake.keys)}: {mistake.message}" for mistake in mistakes)
        ) from None


def _parameters_of(manifest: Manifest, folder: Path) -> Any:
    """Return the JSON Schema of its arguments, from the file that it names or as it has it. Raises LoadError."""
    if not isinstance(manifest.parameters, str):
        return manifest.parameters
    file = _file_in(folder, manifest.parameters)
    try:
        return json.loads(bytes_of(file, MAX_TEXT_BYTES))
    except (ValueError, RecursionError):
        raise LoadError(f"{file} is not valid JSON.") from None


def _file_in(folder: Path, name: str) -> Path:
    """Return the file *name* in *folder*, a resolved path, and nowhere else. Raises LoadError."""
    path = None if "\0" in name else (folder / name).resolve()
    if path is None or not path.is_relative_to(folder):
        raise LoadError(f"{folder / MANIFEST} names a file that is not in its folder: '{display_name(name)}'.")
    return path


# What the operator grants of it


def _require_granted(permissions: Permissions, manifest: Manifest, place: Path) -> None:
    """Raise LoadError, naming the setting, for whatever *manifest*, at *place*, needs and *permissions* do not give."""
    if missing := list(_missing(permissions, manifest)):
        needs = ", ".join(need for need, _ in missing)
        settings: dict[str, list[str]] = {}
        for _, (key, value) in missing:
            settings.setdefault(key, []).append(value)
        allow = ", ".join(_setting(key, values) for key, values in settings.items())
        raise LoadError(
            f"{place}: It needs what was not granted: {needs}. If it should have that, write in its [[source]] of "
            f"toolcrib.toml: allow = {{ {allow} }}; or in a program: Permissions(...).to(source)."
        )


def _mounted(permissions: Permissions, manifest: Manifest) -> list[tuple[str, str, bool]]:
    """Return of each mount of *manifest* its path in the tool, the host's folder, and whether it may be written.

    Raises LoadError where there is no such folder.
    """
    mounts: list[tuple[str, str, bool]] = []
    for mount in manifest.mounts:
        # Resolved first: what is given to a guest follows a link in the path itself.
        folder = Path(permissions.mounts[mount.name]).expanduser().resolve()
        if not folder.is_dir():
            raise LoadError(f"The mount '{mount.name}' is not a folder: {folder}.")
        mounts.append((f"/{mount.name}", str(folder), not mount.read_only))
    return mounts


def _missing(permissions: Permissions, manifest: Manifest) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what *manifest* needs and does not get, with the setting that would give it."""
    for mount in manifest.mounts:
        if mount.name not in permissions.mounts:
            yield f"the folder '{mount.name}'", ("mounts", mount.name)
        if not mount.read_only and mount.name not in permissions.writable:
            yield f"to write in '{mount.name}'", ("writable", mount.name)
    if not permissions.trusted:
        yield from _missing_names(permissions, manifest)
        yield from _missing_amounts(permissions, manifest)


def _missing_names(permissions: Permissions, manifest: Manifest) -> Iterator[tuple[str, tuple[str, str]]]:
    labels = {"hosts": "the host", "variables": "the variable", "secrets": "the secret", "providers": "a token of"}
    for key, label in labels.items():
        grants: Sequence[str] = getattr(permissions, key)
        for name in getattr(manifest, key):
            if name not in grants and not (key == "hosts" and any(_covers(pattern, name) for pattern in grants)):
                yield f"{label} {name}", (key, name)


def _covers(granted: str, host: str) -> bool:
    return granted.startswith("*.") and host.endswith(granted[1:])


def _missing_amounts(permissions: Permissions, manifest: Manifest) -> Iterator[tuple[str, tuple[str, str]]]:
    for key, unit in {"memory_mb": "MiB of memory", "output_mb": "MiB of output", "timeout_s": "seconds"}.items():
        amount, usual = getattr(manifest, key), type(manifest).model_fields[key].default
        if amount > max(usual, getattr(permissions, key) or 0):
            yield f"{amount:g} {unit}", (key, f"{amount:g}")


def _setting(key: str, values: Sequence[str]) -> str:
    """Return the *values* of the setting *key*, as TOML."""
    match key:
        case "mounts":
            return "mounts = { " + ", ".join(f'{value} = "PATH"' for value in values) + " }"
        case "memory_mb" | "output_mb" | "timeout_s":
            return f"{key} = {values[0]}"
        case _:
            return f"{key} = [" + ", ".join(f'"{value}"' for value in values) + "]"


# Tools


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


def _tool_of(path: Path, permissions: Permissions) -> Tool[..., Any]:
    """Return the tool in *path*: a `.wasm` file, or a folder with a `tool.toml`. Raises LoadError."""
    if not path.is_dir():
        name = path.stem.replace(".", "_").replace(" ", "_")
        file = path.resolve()
        return _program_tool(Manifest(name=name, description="", file=path.name), file.parent, file, permissions)
    folder = path.resolve()
    manifest = _read_manifest(folder)
    _require_granted(permissions, manifest, folder / MANIFEST)
    try:
        return _program_tool(manifest, folder, _file_in(folder, manifest.program), permissions)
    except DefinitionError as error:
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
        "mounts": _mounted(permissions, manifest),
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
    spec = manifest.spec(_parameters_of(manifest, folder))
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
