"""`tool.toml`: what the author of a tool in a folder says of it, and what it needs.

What it names is a wish: a tool gets what the operator's `Grant` gives it. Nothing here runs or loads a tool.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from ..core import Auth, Hints, LoadError, Secret, ToolAuth, ToolSpec
from ..schema import display_name
from ..schema.declared import Strict, mistakes_in
from ..schema.toml import line_at, lines_of, parse_toml
from .content import MAX_TEXT_BYTES, bytes_of

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
        auth: Auth = self.requirements or None
        return ToolSpec(
            self.name,
            self.description,
            parameters,
            title=self.title,
            hints=Hints(
                read_only=self.read_only,
                destructive=self.destructive,
                idempotent=self.idempotent,
                open_world=self.open_world,
            ),
            auth=auth,
            tags=frozenset(self.tags),
            version=self.version,
            examples=tuple(self.examples),
            timeout_s=self.timeout_s,
        )


def read_manifest(folder: Path) -> Manifest:
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


def parameters_of(manifest: Manifest, folder: Path) -> Any:
    """Return the JSON Schema of its arguments, from the file that it names or as it has it. Raises LoadError."""
    if not isinstance(manifest.parameters, str):
        return manifest.parameters
    file = file_in(folder, manifest.parameters)
    try:
        return json.loads(bytes_of(file, MAX_TEXT_BYTES))
    except (ValueError, RecursionError):
        raise LoadError(f"{file} is not valid JSON.") from None


def file_in(folder: Path, name: str) -> Path:
    """Return the file *name* in *folder*, a resolved path, and nowhere else. Raises LoadError."""
    path = None if "\0" in name else (folder / name).resolve()
    if path is None or not path.is_relative_to(folder):
        raise LoadError(f"{folder / MANIFEST} names a file that is not in its folder: '{display_name(name)}'.")
    return path
