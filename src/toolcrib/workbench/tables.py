"""What `toolcrib.toml` may contain: its tables, the options that are plain values, and the variables for single values.

`[[rule]]`, `[[limit]]` and `[[retry]]` are declared by the classes Rule, Limit and Retries.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_origin

from pydantic import Field, create_model
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource, SettingsConfigDict

from ..call import Retries
from ..core import Do
from ..schema.declared import Strict, fields_of, model_from_name, schema_of
from ..tools import Permissions
from .limits import Limit
from .options import DEFAULTS, FileOptions, Seconds
from .rules import Hint, Names, Rule
from .views import filtered, prefixed, renamed

Globs = str | list[str]

_PATHS = frozenset({"toolcrib_store_url", "toolcrib_store_key", "toolcrib_providers"})


_allowed: Any = {name: info for name, info in fields_of(Permissions).items() if name != "trusted"}


class Allowed(create_model("Allowed", __base__=Strict, **_allowed)):  # type: ignore[misc]
    """What the tools of a source may have, where they run in the sandbox."""


class SourceTable(Strict):
    """A source of tools. Filters and renames take the tools' own names; the prefix comes last."""

    where: str = Field(
        alias="from",
        description="A .py or .wasm file or a folder of tools, relative to this file; a git address; 'package.module' "
        "or 'package.module:name'.",
    )
    required: bool = Field(
        default=True, description="Whether nothing runs if it cannot be loaded; if false, only its tools are missing."
    )
    trusted: bool = Field(
        default=False,
        description="Whether its tools get whatever their 'tool.toml' names, and its Python runs if it is from "
        "outside.",
    )
    allow: Allowed = Field(
        default_factory=Allowed, description="What its tools may have, where they run in the sandbox."
    )
    tools: Globs | None = Field(
        default=None, description="Only these: patterns of tool names, as in 'db_*'. A name without * ? [ must exist."
    )
    without: Globs | None = Field(default=None, description="All but these: patterns of tool names.")
    tags: Globs | None = Field(default=None, description="Only tools that have one of these tags.")
    hint: Hint | None = Field(default=None, description="Only tools that have this hint.")
    rename: dict[str, str | list[str]] | None = Field(
        default=None, description="Other names: old = 'new', or old = ['new', 'its description']."
    )
    prefix: str | None = Field(default=None, min_length=1, description="Put before each name, as in 'gh_'.")

    def permissions(self, folder: Path) -> Permissions:
        """What its tools may have; mounts are relative to *folder*. Raises SetupError."""
        allowed = {name: getattr(self.allow, name) for name in self.allow.model_fields_set}
        mounts = {name: folder / Path(path).expanduser() for name, path in allowed.pop("mounts", {}).items()}
        return Permissions(trusted=self.trusted, mounts=mounts, **allowed)

    def view(self, source: Any) -> Any:
        """*source* filtered, then renamed, then prefixed."""
        patterns = [self.tools] if isinstance(self.tools, str) else self.tools or ()
        if patterns or self.without or self.tags or self.hint:
            source = filtered(source, *patterns, without=self.without or (), tags=self.tags or (), hint=self.hint)
        if self.rename:
            names: Any = self.rename  # `renamed` checks the lists
            source = renamed(source, names)
        return prefixed(source, self.prefix) if self.prefix else source


class DeadlineTable(Strict):
    """How long calls of some tools may take, in place of the tools' own limits. The first that matches applies."""

    tools: Names = Field(default="*", description="Globs of tool names, one or several, as in 'db_*'.")
    timeout_s: Seconds = Field(description="In seconds.")


class PolicyTable(Strict):
    """What the rules leave open."""

    default: Do = Field(default="allow", description="What to do with calls that no rule matches.")


class ServerTable(Strict):
    """Where `toolcrib serve` listens."""

    host: str = Field(default="127.0.0.1", description="A loopback address.")
    port: int = Field(default=8642, ge=0, le=65535, description="The port; 0 takes any free one.")
    public_base_url: str | None = Field(
        default=None,
        description="The address by which browsers reach it, where that is another one: 'https://tools.example.com'.",
    )


class StoreTable(Strict):
    """The database for grants, for what waits, and for large results."""

    url: str | None = Field(
        default=None,
        description="The path of an SQLite file, or 'postgresql://USER@HOST/NAME'. '${env:NAME}' is replaced.",
        repr=False,
    )
    key: str | None = Field(default=None, description="The file with the keys that seal it.")


class NetTable(Strict):
    """What may be reached over HTTP for credentials."""

    allow: list[str] = Field(
        default_factory=list[str], description="Hosts and networks that may be reached although they are private."
    )


class File(create_model("Options", __base__=BaseSettings, **fields_of(FileOptions, DEFAULTS))):  # type: ignore[misc]
    """Settings of toolcrib: where tools come from, and how they may be called."""

    model_config = SettingsConfigDict(
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        env_prefix="TOOLCRIB_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
    )

    secrets: list[str] = Field(
        default_factory=list[str],
        description="References to texts that are redacted everywhere: '${env:NAME}', '${file:PATH}'.",
    )
    source: list[SourceTable] = Field(default_factory=list[SourceTable], description="Where tools come from.")
    rule: list[model_from_name(Rule)] = Field(default_factory=list, description="Which calls may run.")  # type: ignore[valid-type]
    policy: PolicyTable = Field(default_factory=PolicyTable, description="What the rules leave open.")
    limit: list[model_from_name(Limit)] = Field(  # type: ignore[valid-type]
        default_factory=list, description="How many calls run at a time, and how often."
    )
    retry: list[model_from_name(Retries)] = Field(  # type: ignore[valid-type]
        default_factory=list, description="Which failed calls are made again."
    )
    deadline: list[DeadlineTable] = Field(
        default_factory=list[DeadlineTable], description="How long calls of some tools may take."
    )
    variables: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="What tools find in Context.variables. '${env:NAME}' and '${file:PATH}' in their texts are "
        "replaced, and what they resolve to is redacted everywhere.",
        repr=False,
    )
    auth: dict[str, dict[str, str]] = Field(
        default_factory=dict[str, dict[str, str]],
        description="By provider: client_id, client_secret, and what else its table in the catalogue needs. "
        "'${env:NAME}' and '${file:PATH}' are replaced.",
        repr=False,
    )
    secret: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="The operator's secrets for tools, by name, as references: '${env:NAME}', '${file:PATH}'.",
        repr=False,
    )
    providers: str | None = Field(
        default=None, description="A file with more providers of credentials, relative to this file."
    )
    store: StoreTable = Field(default_factory=StoreTable, description="The database.")
    net: NetTable = Field(default_factory=NetTable, description="What may be reached over HTTP for credentials.")
    server: ServerTable = Field(default_factory=ServerTable, description="Where `toolcrib serve` listens.")


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the file. The one that is shipped for editors is this, written to a file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "toolcrib.toml", **schema_of(File)}


@cache
def variables() -> dict[str, tuple[str, ...]]:
    """The variables that set one value, with the keys of the value in the file."""
    found: dict[str, tuple[str, ...]] = {name: (name,) for name in (*FileOptions.__annotations__, "providers")}
    for name, info in File.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Strict):
            values = info.annotation.model_fields.items()
            found |= {f"{name}_{key}": (name, key) for key, value in values if get_origin(value.annotation) is not list}
    return {f"TOOLCRIB_{name.upper()}": keys for name, keys in found.items()}


class Environment(EnvSettingsSource):
    """The variables that set one value, of any environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {name.lower(): environ[name].strip() for name in variables() if environ.get(name, "").strip()}
        for name in _PATHS & self._environ.keys():
            # Unlike those in the file, they are relative to the current folder.
            if "://" not in (path := self._environ[name]) and not path.startswith("${"):
                self._environ[name] = str(Path(path).expanduser().absolute())
        super().__init__(File)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._environ


class Document(InitSettingsSource):
    """What stands in the file, with its keys as they are written."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(File, {})
        self.init_kwargs = data
