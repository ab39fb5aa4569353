"""Settings: `toolcrib.toml`, or `[tool.toolcrib]` in `pyproject.toml`, with TOOLCRIB_ variables, which override it.

First what the file may contain: its tables, the options that are plain values, and the variables for single values.
`[[rule]]`, `[[limit]]` and `[[retry]]` are declared by the classes Rule, Limit and Retry. Then how it is read. A secret
is in the environment or in a file of its own, and the settings refer to it. What a reference resolves to is redacted
wherever it would be shown. No error here quotes a value.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_origin

from pydantic import BaseModel, Field, ValidationError, create_model

from ..call import Retry
from ..core import LoadError, SetupError, ToolcribError, ToolSpec
from ..machinery import MIN_SECRET_CHARS, Do, compile_globs
from ..record import Redactor
from ..schema.declared import Keys, Strict, fields_of, mistakes_in, model_from_name, schema_of
from ..schema.describe import closest_match, did_you_mean, display_path
from ..schema.toml import lines_of, parse_toml
from ..tools.git import DOCUMENT, DOCUMENTS, is_git_address, parse_git_address
from ..tools.mcp.targets import shown_words
from ..tools.permissions import NOTHING_GRANTED, Permissions
from ..tools.remote import MCPSource, is_remote, placed
from .limits import Limit
from .options import DEFAULTS, FileOptions, Seconds, TaskLimits
from .rules import Hint, Names, Role, Rule, Rules, unknown_of_limit
from .views import filtered, labelled, only_named, prefixed, renamed

NAME = "toolcrib.toml"
PROJECT = "pyproject.toml"
SCHEMA = Path(__file__).with_name("settings.schema.json")
"""The JSON Schema of the file, for editors."""

_CONFIG = "TOOLCRIB_CONFIG"
SOURCES = "TOOLCRIB_SOURCES"
_WITH_REFERENCES = ("variables", "secrets", "auth", "secret", "store", "tasks", "pending")
"""Tables whose texts may refer to secrets; so may `headers` and `env` of a source."""
_SECRETS = (("tasks", "webhook_secret"), ("pending", "webhook_secret"), ("server", "client_secret"))
"""Texts that are secrets of the server itself. The variables that override them are the secrets."""
_PATHS = frozenset({("store", "url"), ("store", "key"), ("providers",)})
"""Texts that are paths, unless they are URLs."""
# Never from a file: read where AutoGen configurations are loaded, and where a store is opened.
_OTHERS = ("TOOLCRIB_ALLOW_SOURCE_CODE", "TOOLCRIB_KEY")
_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<what>[^{}]*)(?P<end>\}?)")
_AT = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

T = TypeVar("T")
Globs = str | list[str]

# What the file may contain

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
    name: str = Field(
        default="",
        max_length=100,
        description="What an MCP server is called in its questions and errors; else its host, its program, or its name "
        "in a client's file.",
    )
    sampling: bool = Field(
        default=False, description="Whether an MCP server may ask the model of the client whose call it answers."
    )
    roots: bool = Field(
        default=False, description="Whether an MCP server may ask that client which folders its user works in."
    )
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
        default=None,
        description="Only these: patterns of tool names, as in 'db_*'. A name without * ? [ must exist. [] for none.",
    )
    without: Globs | None = Field(
        default=None, description="All but these: patterns of tool names. A name without * ? [ must exist."
    )
    tags: Names | None = Field(default=None, description="Only tools that have one of these tags.")
    hint: Hint | None = Field(default=None, description="Only tools that have this hint.")
    resources: Globs | None = Field(
        default=None, description="Only resources at these URIs: patterns, as in 'docs://*'; [] for none."
    )
    prompts: Globs | None = Field(default=None, description="Only prompts of these names: patterns; [] for none.")
    rename: dict[str, str | list[str]] | None = Field(
        default=None, description="Other names: old = 'new', or old = ['new', 'its description']."
    )
    prefix: str | None = Field(default=None, min_length=1, description="Put before each name, as in 'gh_'.")
    labels: list[str] = Field(
        default_factory=list[str],
        description="Where its results come from, as in ['untrusted']: rules ask which labels a thread has seen.",
    )

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

    def only(self) -> dict[str, re.Pattern[str]]:
        """Return patterns of what is offered beside tools, by kind. Raises SetupError."""
        named = {"resource": self.resources, "prompt": self.prompts}
        return {
            kind: compile_globs(globs, of=f"{kind}s", tool=False) if globs else re.compile("(?!)")
            for kind, globs in named.items()
            if globs is not None
        }

    def server_options(self) -> dict[str, Any]:
        """Return the fields of an MCPSource that are set here, whichever way the server is written."""
        return {name: getattr(self, name) for name in ("name", "sampling", "roots") if name in self.model_fields_set}

    def openapi_options(self) -> dict[str, Any]:
        """Return the options of `openapi_source` that are set here."""
        return {name: getattr(self.openapi, name) for name in self.openapi.model_fields_set}

    def view(self, source: Any) -> Any:
        """Return *source* filtered, then renamed, then prefixed, with its labels."""
        view = self._named(source)
        return labelled(view, *self.labels) if self.labels else view

    def _named(self, source: Any) -> Any:
        if self.tools == []:
            return only_named(source, ())
        patterns = [self.tools] if isinstance(self.tools, str) else self.tools or ()
        if any((patterns, self.without, self.tags, self.hint)):
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
    mark_untrusted: bool = Field(
        default=False,
        description="Whether models are shown results with the label 'untrusted' between random delimiters, as data.",
    )


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
    client_id: str | None = Field(
        default=None,
        description="What the issuer knows this server as, so that people log in to the console there. They come back "
        "to '/console/callback'.",
    )
    client_secret: str | None = Field(
        default=None,
        description="The secret of that client, if it has one, as a reference: '${env:NAME}', '${file:PATH}'.",
        repr=False,
    )
    grace_s: float = Field(
        default=10.0,
        ge=0,
        description="How long calls that run may go on when it is stopped, in seconds; then they are cancelled.",
    )
    console: bool = Field(default=True, description="Whether it has pages for people at '/'.")
    workbenches: int = Field(
        default=1000,
        ge=1,
        description="How many callers it has a workbench open for, each with its upstream sessions and state; a tenth "
        "of one principal.",
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
    required: bool = Field(
        default=False,
        description="Whether a call that is not read-only is refused where its start cannot be written, and its end is "
        "written before its result is returned.",
    )
    durable: Literal["full", "normal"] = Field(
        default="full",
        description="Whether what is written survives a loss of power (`full`), or the end of the process (`normal`).",
    )
    keep_keys_s: Seconds = Field(default=604_800.0, description="How long idempotency keys are known, in seconds.")
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


class WebhookTable(Strict):
    """What is announced: that tasks have ended, or that a call waits for a person."""

    webhook: str | None = Field(
        default=None, description="The URL that gets the messages. '${env:NAME}' is replaced.", repr=False
    )
    webhook_secret: str | None = Field(
        default=None,
        description="What signs them, as a reference: '${env:NAME}', '${file:PATH}'. 'whsec_' and bytes in base64.",
        repr=False,
    )


class TasksTable(WebhookTable):
    """Tasks: how many run at a time, and who learns that they have ended."""

    concurrency: int = Field(
        default=TaskLimits().concurrency,
        ge=0,
        description="How many run in a process at a time. 0 leaves them to `toolcrib worker`.",
    )
    per_principal: int | None = Field(
        default=None, ge=1, description="How many of one principal run at a time, in all processes with the store."
    )


class NetTable(Strict):
    """What may be reached over HTTP for credentials and webhooks."""

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
    role: list[model_from_name(Role)] = Field(  # type: ignore[valid-type]
        default_factory=list, description="Who may see and change more than what is their own."
    )
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
    tasks: TasksTable = Field(default_factory=TasksTable, description="How many tasks run, and who learns their end.")
    pending: WebhookTable = Field(
        default_factory=WebhookTable, description="Who learns that calls wait for an approval or an input."
    )
    log: LogTable = Field(default_factory=LogTable, description="The log of `toolcrib serve` and `dev`.")
    net: NetTable = Field(
        default_factory=NetTable, description="What may be reached over HTTP for credentials and webhooks."
    )
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


# How it is read


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One thing wrong with the settings. *place* is the file, with its *line* where there is one, or a variable."""

    place: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class SettingsError(SetupError):
    """Settings that cannot be used. *problems* are all that were found."""

    def __init__(self, problems: Sequence[SettingsProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source of tools as it was *written*, and the *source* that `load` takes for it.

    *place* is where it is written, if that is in the settings; *view* applies its filters and names.
    """

    written: str
    source: str | MCPSource
    place: str | None = None
    line: int | None = None
    view: Callable[[Any], Any] = lambda source: source
    required: bool = True
    permissions: Permissions = NOTHING_GRANTED
    openapi: Mapping[str, Any] = field(default_factory=dict[str, Any])
    only: Mapping[str, re.Pattern[str]] = field(default_factory=dict[str, re.Pattern[str]])
    server: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def shown(self) -> str:
        """How messages call it: by its name, else as it is written, without the secrets of a command."""
        return self.server.get("name") or shown_words(self.written.split(" "))

    def granted(self, source: Any) -> Any:
        """Return *source*, this one as it is loaded now, with its permissions and options. Raises LoadError and
        SetupError.
        """
        if self.openapi and isinstance(source, str):
            from ..tools import openapi_source

            source = openapi_source(source, permissions=self.permissions, **self.openapi)
        return self.permissions.to(source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Valid settings. Secrets may be in their *values*, so the repr does not show them.

    *written* is what stands in the file, with its references; *secrets* are what these resolve to; *lines* are the
    lines of its keys.
    """

    file: Path | None = None
    sources: tuple[NamedSource, ...] = ()
    values: File = field(default_factory=File.model_construct, repr=False)
    rules: Rules = field(default_factory=lambda: Rules(()), repr=False)
    roles: tuple[Role, ...] = ()
    limits: tuple[Limit, ...] = ()
    retries: tuple[Retry, ...] = ()
    webhooks: Mapping[Any, Any] = field(default_factory=dict[Any, Any])
    secrets: tuple[str, ...] = field(default=(), repr=False)
    written: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    lines: Mapping[Keys, int] = field(default_factory=dict[Keys, int], repr=False)

    def options(self, unless_set: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """Return the options for a Crib or Workbench: *options* that are not None, else these settings, else
        *unless_set*.
        """
        values = self.values
        own_options = {name: value for name, value in options.items() if value is not None}
        options_set = {
            name: getattr(values, name) for name in FileOptions.__annotations__ if name in values.model_fields_set
        }
        if options_set.get("max_result_chars") == 0:
            options_set["max_result_chars"] = None
        options_set |= {
            "limits": self.limits,
            "retries": self.retries,
            # Without a policy there is nothing to ask, which is faster.
            "policy": self.rules if values.rule or values.policy != PolicyTable() else None,
            "variables": values.variables,
            "secrets": self.secrets,
            "tasks": TaskLimits(concurrency=values.tasks.concurrency, per_principal=values.tasks.per_principal),
        }
        return {**(unless_set or {}), **options_set, **own_options}

    def for_some(self) -> "Settings":
        """Return the same settings for some of their sources: what a rule or limit names may be missing."""
        limits = tuple(replace(limit, optional=True) for limit in self.limits)
        return replace(self, rules=self.rules.all_optional(), limits=limits)

    def unknown_names(self, specs: Sequence[ToolSpec]) -> Iterator[tuple[str, int, str]]:
        """Yield each rule and limit that names what none of *specs* has: its table, its number there, and what."""
        names = [spec.name for spec in specs]
        unknown = {
            "rule": [rule.unknown(specs) for rule in self.rules],
            "limit": [unknown_of_limit(limit, names) for limit in self.limits],
        }
        for key, sentences in unknown.items():
            yield from ((key, number, sentence) for number, sentence in enumerate(sentences) if sentence)

    def path(self, written: str | None) -> str | None:
        """Return the path *written* in the file, which is relative to its folder; URLs stay."""
        if written is None or "://" in written or self.file is None:
            return written
        return str(self.file.parent / Path(written).expanduser())

    def redact(self, text: str) -> str:
        """Return *text* without the secrets."""
        return Redactor(self.secrets).redact(text) if self.secrets else text

    def place(self, *keys: str | int) -> tuple[str, int | None]:
        """Return the file, and the line of the value under *keys*, or of the table that it is in."""
        return place_in(self.file, self.lines, keys)


def find_settings(config: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file of settings: *config*, else TOOLCRIB_CONFIG, else the nearest one here or in a folder above.

    In a folder it is `toolcrib.toml`, else a `pyproject.toml` with a table `[tool.toolcrib]`. A file above that belongs
    to another user is passed over: settings name code that is run.

    Raises LoadError for a file that is named and does not exist.
    """
    if path_given := config or (Path(environ[_CONFIG]) if environ.get(_CONFIG) else None):
        if not path_given.is_file():
            raise LoadError(f"There is no file {path_given}{'' if config else f', which {_CONFIG} names'}.")
        return path_given
    try:
        folder_here = Path.cwd()
    except FileNotFoundError:  # it was removed meanwhile
        return None
    for folder in (folder_here, *folder_here.parents):
        for name in (NAME, PROJECT):
            if _has_settings(file := folder / name, folder_here):
                return Path(os.path.relpath(file))
    return None


def _has_settings(file: Path, here: Path) -> bool:
    """Return whether *file* has settings for programs *here*."""
    is_ours = file.is_file() and (file.parent == here or _is_own(file))
    return is_ours and (file.name == NAME or _has_table(file))


def _is_own(file: Path) -> bool:
    return not hasattr(os, "getuid") or file.stat().st_uid in (os.getuid(), 0)


def _has_table(file: Path) -> bool:
    text = ""
    try:
        text = file.read_text("utf-8-sig")
        return "toolcrib" in text and "toolcrib" in parse_toml(text).get("tool", {})
    except (OSError, ValueError):
        # Settings with a mistake must not count as none: their rules would not apply. Reading them reports it.
        return "[tool.toolcrib" in text


def read_settings(file: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in *file* (None for no file) and in the variables of *environ* that begin with TOOLCRIB_.

    Paths in the file are relative to its folder; paths in variables to the current one. Raises SettingsError, and
    LoadError for a file that cannot be read.
    """
    return _Reader(file, environ).settings()


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[SettingsProblem]:
    """Return the variables that look like settings and are not."""
    names = [_CONFIG, SOURCES, *_OTHERS, *variables()]
    return [
        SettingsProblem(name, f"There is no setting of this name.{did_you_mean(closest_match(name, names))}")
        for name in sorted(environ)
        if name.startswith("TOOLCRIB_") and name not in names
    ]


class _Reader:
    """Reads one file. Problems are collected, so that all are reported at once."""

    def __init__(self, file: Path | None, environ: Mapping[str, str]) -> None:
        self._file = file
        self._folder = Path() if file is None else file.parent
        self._environ = environ
        self._problems: list[SettingsProblem] = []
        self._secrets: dict[str, None] = {}
        self._header = "tool.toolcrib." if file is not None and file.name == PROJECT else ""
        self._lines: dict[Keys, int] = {}

    def settings(self) -> Settings:
        data = {} if self._file is None else self._parse(self._file)
        values = self._validate(self._resolve(_merged(data, self._of_variables()), ()))
        sources = self._environment_sources()
        settings: Settings | None = None
        if values is not None:
            settings = Settings(
                file=self._file,
                sources=self._sources(values) if sources is None else sources,
                values=values,
                rules=Rules(
                    self._make("rule", values.rule, Rule),
                    default=values.policy.default,
                    mark_untrusted=values.policy.mark_untrusted,
                ),
                roles=tuple(self._make("role", values.role, Role)),
                limits=tuple(self._make("limit", values.limit, Limit)),
                retries=tuple(self._make("retry", values.retry, Retry)),
                webhooks=dict(self._webhooks(values)),
                secrets=tuple(self._secrets),
                written=data,
                lines=self._lines,
            )
        if self._problems or settings is None:
            raise SettingsError(sorted(self._problems, key=lambda problem: problem.line or 0))
        return settings

    def _of_variables(self) -> Mapping[str, Any]:
        """Return what variables set, as it would be in the file."""
        texts = {keys: text for name, keys in variables().items() if (text := self._environ.get(name, "").strip())}
        if not texts:
            return {}
        from pydantic_settings import EnvSettingsSource  # here: it takes a while, and most set none

        for keys in _PATHS & texts.keys():
            # Unlike those in the file, they are relative to the current folder.
            if "://" not in (path := texts[keys]) and not path.startswith("${"):
                texts[keys] = str(Path(path).expanduser().absolute())
        model: Any = File
        source = EnvSettingsSource(model, env_prefix="", env_nested_delimiter=".")
        source.env_vars = {".".join(keys): text for keys, text in texts.items()}
        return source()

    def _parse(self, file: Path) -> dict[str, Any]:
        data: Any
        data, self._lines = read_toml(file)
        if self._header:
            data = data.get("tool", {}).get("toolcrib")
            self._lines = {keys[2:]: at for keys, at in self._lines.items() if keys[:2] == ("tool", "toolcrib")}
            if not isinstance(data, dict):
                raise LoadError(f"{file} has no table [tool.toolcrib].")
        return data  # type: ignore[no-any-return]

    def _validate(self, data: dict[str, Any]) -> File | None:
        set_by = {name: keys for name, keys in variables().items() if self._environ.get(name)}
        try:
            values: File = File.model_validate(data)
            return values
        except ValidationError as error:
            for mistake in mistakes_in(File, data, error, header=self._header):
                keys = mistake.keys
                if variable := next((name for name, path in set_by.items() if path == keys[: len(path)]), None):
                    self._problems.append(SettingsProblem(variable, f"Expected {mistake.expected}."))
                elif keys[0] == "source" and len(keys) <= 2:
                    self._add(keys, 'Each source is a table: [[source]], and below it from = "tools.py".')
                else:
                    self._add(keys, mistake.message)
            return None

    def _environment_sources(self) -> tuple[NamedSource, ...] | None:
        if not (words := self._environ.get(SOURCES, "").strip()):
            return None
        try:
            return tuple(NamedSource(word, word, SOURCES) for word in shlex.split(words))
        except ValueError:
            self._problems.append(SettingsProblem(SOURCES, "A quote in it is never closed."))
            return ()

    def _sources(self, values: File) -> tuple[NamedSource, ...]:
        sources: list[NamedSource] = []
        for number, table in enumerate(values.source):
            place, line = place_in(self._file, self._lines, ("source", number))
            try:
                table.view([])  # finds what is wrong whatever the tools are
                permissions = table.permissions(self._folder)
                source = self._server(table.written, values) or _path_or_module(table.where, self._folder)
                if (server := table.server_options()) and not is_remote(source):
                    raise SetupError(f"In a [[source]], '{next(iter(server))}' is for an MCP server.")
            except ToolcribError as error:
                self._add(("source", number), str(error))
            else:
                sources.append(
                    NamedSource(
                        str(table.written),
                        source,
                        place,
                        line,
                        table.view,
                        table.is_required(source),
                        permissions,
                        table.openapi_options(),
                        table.only(),
                        server,
                    )
                )
        return tuple(sources)

    def _server(self, written: str | MCPSource, values: File) -> MCPSource | None:
        if not isinstance(written, MCPSource):
            return None
        return replace(written, folder=str(self._folder), allow=values.net.allow)

    def _webhooks(self, values: File) -> Iterator[tuple[str, Any]]:
        for key, table in {"tasks": values.tasks, "pending": values.pending}.items():
            if table.model_fields_set - {"concurrency", "per_principal"}:
                try:
                    from ..store import Webhook

                    more = (values.server.public_base_url, tuple(values.net.allow))
                    yield key, Webhook(table.webhook or "", table.webhook_secret or "", *more)
                except SetupError as error:
                    self._add((key,), f"'webhook' and 'webhook_secret' in [{key}]: {error}")

    def _make(self, name: str, rows: Sequence[BaseModel], make: Callable[..., T]) -> list[T]:
        """Return what *make* makes of the keys of each row."""
        values: list[T] = []
        for number, row in enumerate(rows):
            try:
                values.append(make(**{key: getattr(row, key) for key in row.model_fields_set}))
            except ToolcribError as error:
                self._add((name, number), str(error))
        return values

    def _resolve(self, value: Any, keys: Keys) -> Any:
        """Return *value*, which stands under *keys*, with what its references resolve to, and note the secrets."""
        if isinstance(value, dict):
            return {key: self._resolve(inner, (*keys, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._resolve(inner, (*keys, index)) for index, inner in enumerate(value)]
        return self._resolve_text(value, keys) if isinstance(value, str) else value

    def _resolve_text(self, value: str, keys: Keys) -> str:
        if keys in _SECRETS and value == self._environ.get(f"TOOLCRIB_{keys[0]}_{keys[1]}".upper(), "").strip():
            self._secrets[value] = None  # the variable that overrides the file is a place for the secret itself
            return value
        whole = _REFERENCE.fullmatch(value)
        if _is_secret(keys) and (whole is None or whole["escaped"]):
            self._add(
                keys,
                f"{display_path(keys)} is not a reference. The secret itself must not be in this file: write "
                "'${env:NAME}' or '${file:PATH}'.",
            )
        elif _may_refer(keys):
            return _REFERENCE.sub(lambda found: "${" if found["escaped"] else self._secret(found, keys), value)
        elif "${" in value:
            places = ", ".join(_WITH_REFERENCES)
            self._add(keys, f"{display_path(keys)}: references like '${{env:NAME}}' work in {places} only.")
        return value

    def _secret(self, found: re.Match[str], keys: Keys) -> str:
        kind, _, name = found["what"].partition(":")
        try:
            if not found["end"] or not (_NAME.fullmatch(name) if kind == "env" else kind == "file" and name):
                raise ValueError(
                    "the '${' in it does not begin a reference. Write '${env:NAME}' or '${file:PATH}'; '$${' stands "
                    "for '${' itself."
                )
            secret = self._variable(name) if kind == "env" else self._content(self._folder / Path(name).expanduser())
            if len(secret) < MIN_SECRET_CHARS:
                raise ValueError(
                    f"what '${{{kind}:{name}}}' resolves to is too short to be redacted: it would be found in ordinary "
                    f"words. A secret has at least {MIN_SECRET_CHARS} characters. If it is not a secret, write it here."
                )
        except ValueError as problem:
            self._add(keys, f"{display_path(keys)}: {problem}")
            return ""
        self._secrets[secret] = None
        return secret

    def _variable(self, name: str) -> str:
        if not (secret := self._environ.get(name, "")):
            raise ValueError(f"the variable {name} is {'empty' if name in self._environ else 'not set'}.")
        return secret

    def _content(self, file: Path) -> str:
        try:
            secret = file.read_bytes().decode("utf-8-sig").rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ValueError(f"the file {file} cannot be read: {reason}.") from None
        if not secret:
            raise ValueError(f"the file {file} is empty.")
        return secret

    def _add(self, keys: Keys, message: str) -> None:
        place, line = place_in(self._file, self._lines, keys)
        self._problems.append(SettingsProblem(place, message, line))


def _is_secret(keys: Keys) -> bool:
    """Return whether the text under *keys* is a secret, of which the file has only a reference."""
    is_of_client = keys[0] == "auth" and keys[2:] in (("client_secret",), ("private_key",))
    return is_of_client or keys[0] in ("secret", "secrets") or keys in _SECRETS


def _may_refer(keys: Keys) -> bool:
    """Return whether references in the text under *keys* are resolved."""
    is_of_source = keys[0] == "source" and keys[2:3] in (("headers",), ("env",))
    return is_of_source or keys[0] in _WITH_REFERENCES or keys in _SECRETS


def read_toml(file: Path) -> tuple[dict[str, Any], dict[Keys, int]]:
    """Return the data in *file*, and the lines of its keys. Raises SettingsError, and LoadError where it is no text."""
    try:
        text = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise LoadError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise LoadError(f"{file} is not UTF-8 text (at byte {error.start + 1}).") from None
    try:
        return parse_toml(text), lines_of(text)
    except ValueError as error:
        raise SettingsError([_syntax_problem(file, text, str(error))]) from None


def _syntax_problem(file: Path, text: str, reason: str) -> SettingsProblem:
    """Return the problem with TOML that does not parse; *reason* ends with the place, as `tomllib` writes it."""
    at = _AT.search(reason)
    if at is None:
        return SettingsProblem(str(file), f"This is not valid TOML: {reason}.")
    line = int(at["line"] or text.count("\n") + 1)
    column = f", column {at['column']}" if at["column"] else ""
    return SettingsProblem(f"{file}:{line}", f"This is not valid TOML{column}: {reason[: at.start()]}.", line)


def place_in(file: Path | None, lines: Mapping[Keys, int], keys: Keys) -> tuple[str, int | None]:
    """Return the place of the value under *keys*, or of the table that it is in, and its line."""
    for length in range(len(keys), 0, -1):
        if (line := lines.get(keys[:length])) is not None:
            return f"{file}:{line}", line
    return str(file), None


def _merged(data: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(data)
    for key, value in over.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return result


def _path_or_module(source: str, folder: Path) -> str:
    """Return *source* as a path from *folder*, as a git address, as a server, or as the name of a module."""
    if is_git_address(source):
        return str(parse_git_address(source).beside(folder))
    if (folder / source).suffix in DOCUMENTS and (folder / source).is_file():
        return str(folder / source)  # of servers, or an OpenAPI document
    if is_remote(source):
        return placed(source, folder)
    if source.startswith(DOCUMENT):
        where = source.removeprefix(DOCUMENT)
        return source if "://" in where else f"{DOCUMENT}{folder / Path(where).expanduser()}"
    path = folder / Path(source).expanduser()
    return str(path) if _is_path(source) or path.exists() else source


def _is_path(source: str) -> bool:
    return "/" in source or os.sep in source or source.endswith(".py") or ".py:" in source
