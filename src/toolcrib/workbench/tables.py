"""What `toolcrib.toml` may contain: its tables, the options that are plain values, and the variables for single values.

`[[rule]]`, `[[limit]]` and `[[retry]]` are declared by the classes Rule, Limit and Retry.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_origin

from pydantic import Field, create_model
from pydantic_settings import EnvSettingsSource, SettingsConfigDict

from ..call import Retry
from ..core import SetupError
from ..machinery import Do
from ..schema.declared import Strict, fields_of, model_from_name, schema_of
from ..tools import Permissions
from ..tools.remote import MCPSource, is_remote
from .limits import Limit
from .options import DEFAULTS, FileOptions, Seconds
from .rules import Hint, Names, Rule
from .views import filtered, prefixed, renamed

Globs = str | list[str]

_PATHS = frozenset({"toolcrib_store_url", "toolcrib_store_key", "toolcrib_providers"})


_grants: Any = {name: info for name, info in fields_of(Permissions).items() if name != "trusted"}


class Allowed(create_model("Allowed", __base__=Strict, **_grants)):  # type: ignore[misc]
    """What the tools of a source may have, where they run in the sandbox."""


class OpenAPITable(Strict):
    """How an OpenAPI document is read, where a source is one."""

    server: str | None = Field(default=None, description="Where requests go, in place of the servers it names.")
    variables: dict[str, str] = Field(default_factory=dict[str, str], description="The variables of its servers.")
    auth: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="The credentials of its security schemes, by name: 'PROVIDER', 'secret:NAME' or 'none'.",
    )
    methods: list[str] | None = Field(default=None, description="Only operations of these methods: GET, POST, ...")
    external_refs: bool = Field(
        default=False, description="Whether references may lead to files in its folder, or at its origin."
    )
    output_schemas: bool = Field(
        default=True, description="Whether results are promised, and checked, as the document has them."
    )


class SourceTable(Strict):
    """A source of tools. Filters and renames take the tools' own names; the prefix comes last."""

    where: str = Field(
        alias="from",
        default="",
        description="A .py or .wasm file, a folder of tools or an OpenAPI document, relative to this file; a git "
        "address; 'openapi:URL'; the URL of an MCP server, 'mcp:COMMAND', or a client's .json file with 'mcpServers'; "
        "'package.module' or 'package.module:name'.",
    )
    command: list[str] = Field(
        default_factory=list[str], description="In place of 'from': the command that starts an MCP server, by words."
    )
    url: str = Field(default="", description="In place of 'from': the URL of an MCP server.")
    headers: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="What is sent to 'url' with each request. '${env:NAME}' and '${file:PATH}' are replaced.",
        repr=False,
    )
    env: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="The variables of 'command', beside PATH, HOME and the like. '${env:NAME}' and '${file:PATH}' are "
        "replaced.",
        repr=False,
    )
    required: bool = Field(
        default=True,
        description="Whether nothing runs if it cannot be loaded; if false, only its tools are missing. Of MCP "
        "servers, the default is false.",
    )
    trusted: bool = Field(
        default=False,
        description="Whether its tools get whatever their 'tool.toml' names, and its Python runs if it is from "
        "outside.",
    )
    allow: Allowed = Field(
        default_factory=Allowed, description="What its tools may have, where they run in the sandbox."
    )
    openapi: OpenAPITable = Field(
        default_factory=OpenAPITable, description="How it is read, where it is an OpenAPI document."
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

    def is_required(self, source: str | MCPSource) -> bool:
        """Return what `required` says; where it says nothing, whether the tools of *source* are known without
        connecting.
        """
        return self.required and ("required" in self.model_fields_set or not is_remote(source))

    @property
    def written(self) -> str | MCPSource:
        """What is to be loaded, as it is written: references are not resolved. Raises SetupError."""
        if sum(map(bool, (self.where, self.command, self.url))) != 1:
            raise SetupError("A [[source]] has one of 'from', 'command' and 'url'.")
        if (self.headers and not self.url) or (self.env and not self.command):
            raise SetupError("In a [[source]], 'headers' are for a 'url', and 'env' is for a 'command'.")
        if self.where:
            return self.where
        return MCPSource(command=self.command, url=self.url, headers=self.headers, env=self.env)

    def permissions(self, folder: Path) -> Permissions:
        """Return what its tools may have; mounts are relative to *folder*. Raises SetupError."""
        grants = {name: getattr(self.allow, name) for name in self.allow.model_fields_set}
        mounts = {name: folder / Path(path).expanduser() for name, path in grants.pop("mounts", {}).items()}
        return Permissions(trusted=self.trusted, mounts=mounts, **grants)

    def openapi_options(self) -> dict[str, Any]:
        """Return the options of `openapi_source` that are set here."""
        return {name: getattr(self.openapi, name) for name in self.openapi.model_fields_set}

    def view(self, source: Any) -> Any:
        """Return *source* filtered, then renamed, then prefixed."""
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
    """Where `toolcrib serve` listens, and who may enter."""

    host: str = Field(
        default="127.0.0.1", description="The address; with 'keys' or 'issuer', any, else a loopback one."
    )
    port: int = Field(default=8642, ge=0, le=65535, description="The port; 0 takes any free one.")
    public_base_url: str | None = Field(
        default=None,
        description="The address by which browsers reach it, where that is another one: 'https://tools.example.com'.",
    )
    allowed_hosts: list[str] = Field(
        default_factory=list[str],
        description="More names by which clients reach it, as in the header 'Host': 'tools.example.com'.",
    )
    keys: bool = Field(default=False, description="Whether clients enter with keys: `toolcrib keys add NAME`.")
    issuer: str | None = Field(
        default=None, description="Clients enter with access tokens of this issuer: 'https://id.example.com'."
    )
    audience: str | None = Field(
        default=None, description="What tokens must be for; by default '/mcp' at 'public_base_url'."
    )
    scopes: list[str] = Field(default_factory=list[str], description="The scopes that a token must have, all of them.")
    groups_claim: str = Field(default="groups", description="The claim of tokens that lists the groups of a caller.")
    grace_s: float = Field(
        default=10.0,
        ge=0,
        description="How long calls that run may go on when it is stopped, in seconds; then they are cancelled.",
    )


class StoreTable(Strict):
    """The database for grants, for what waits, and for large results."""

    url: str | None = Field(
        default=None,
        description="The path of an SQLite file, or 'postgresql://USER@HOST/NAME'. '${env:NAME}' is replaced.",
        repr=False,
    )
    key: str | None = Field(default=None, description="The file with the keys that seal it.")


class CallsTable(Strict):
    """The record of calls: in the store, as spans, and as figures."""

    enabled: bool = Field(default=True, description="Whether calls are recorded in the store, where there is one.")
    content: bool = Field(
        default=False, description="Whether arguments and results are recorded too, bounded, and sealed in the store."
    )
    commit_start: bool = Field(
        default=True, description="Whether the start of a call that is not read-only is written before its work."
    )
    max_age_s: Seconds = Field(default=2_592_000.0, description="How long calls are kept, in seconds.")
    max_bytes: int = Field(default=268_435_456, gt=0, description="How much room they may take all together.")
    spans: bool = Field(default=False, description="Whether each call is an OpenTelemetry span.")
    metrics: bool = Field(default=False, description="Whether calls are counted for Prometheus.")


class LogTable(Strict):
    """The log of `toolcrib serve` and `dev`, on standard error."""

    format: Literal["text", "json"] = Field(
        default="text", description="Lines for people (`text`), or one line of JSON for each entry (`json`)."
    )
    calls: bool | None = Field(
        default=None, description="Whether there is a line for each call; by default with `toolcrib dev` only."
    )


class NetTable(Strict):
    """What may be reached over HTTP for credentials."""

    allow: list[str] = Field(
        default_factory=list[str], description="Hosts and networks that may be reached although they are private."
    )


class File(create_model("Options", __base__=Strict, **fields_of(FileOptions, DEFAULTS))):  # type: ignore[misc]
    """Settings of toolcrib: where tools come from, and how they may be called."""

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
    retry: list[model_from_name(Retry)] = Field(  # type: ignore[valid-type]
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
    calls: CallsTable = Field(default_factory=CallsTable, description="The record of calls.")
    log: LogTable = Field(default_factory=LogTable, description="The log of `toolcrib serve` and `dev`.")
    net: NetTable = Field(default_factory=NetTable, description="What may be reached over HTTP for credentials.")
    server: ServerTable = Field(
        default_factory=ServerTable, description="Where `toolcrib serve` listens, and who may enter."
    )


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of the file. The one that is shipped for editors is this, written to a file."""
    file_schema = schema_of(File)
    table = {
        **file_schema["$defs"]["SourceTable"],
        "oneOf": [{"required": [key]} for key in ("from", "command", "url")],
    }
    file_schema = {**file_schema, "$defs": {**file_schema["$defs"], "SourceTable": table}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "toolcrib.toml", **file_schema}


@cache
def variables() -> dict[str, tuple[str, ...]]:
    """Return the variables that set one value, with the keys of the value in the file."""
    keys_by_name: dict[str, tuple[str, ...]] = {name: (name,) for name in (*FileOptions.__annotations__, "providers")}
    for name, info in File.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Strict):
            values = info.annotation.model_fields.items()
            keys_by_name |= {
                f"{name}_{key}": (name, key) for key, value in values if get_origin(value.annotation) is not list
            }
    return {f"TOOLCRIB_{name.upper()}": keys for name, keys in keys_by_name.items()}


class _Variables(File):
    """The same settings, with how variables name them."""

    model_config = SettingsConfigDict(env_prefix="TOOLCRIB_", env_nested_delimiter="_", env_nested_max_split=1)


class Environment(EnvSettingsSource):
    """The variables that set one value, of any environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {name.lower(): environ[name].strip() for name in variables() if environ.get(name, "").strip()}
        for name in _PATHS & self._environ.keys():
            # Unlike those in the file, they are relative to the current folder.
            if "://" not in (path := self._environ[name]) and not path.startswith("${"):
                self._environ[name] = str(Path(path).expanduser().absolute())
        fields: Any = _Variables
        super().__init__(fields)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._environ
