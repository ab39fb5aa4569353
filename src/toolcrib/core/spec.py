"""What a tool promises, and the credentials that it needs and gets. Data: nothing here runs."""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

from .errors import SetupError


@dataclass(frozen=True, slots=True)
class Hints:
    """What a tool declares about its effects, in the terms of MCP's tool annotations. None where it declares nothing.

    Hints come from the tool's author: where the author is not trusted, neither are they.
    """

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    long_running: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolAuth:
    """Which provider's credentials a tool needs, by which handler, with which scopes.

    *handler* None means the provider's default one. *scopes* are the provider's own names.
    """

    provider: str
    handler: str | None = None
    scopes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.scopes, str):
            raise SetupError('Scopes are a list: ToolAuth("github", scopes=["repo"]).')
        object.__setattr__(self, "scopes", tuple(self.scopes or ()))

    def to_dict(self) -> dict[str, Any]:
        return {"provider": self.provider, "handler": self.handler, "scopes": list(self.scopes)}


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that a tool needs, by its *name*: the caller's own, or else the one that the operator gave for all."""

    name: str

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise SetupError('A secret has a name, as in Secret("OPENWEATHER_KEY").')

    def to_dict(self) -> dict[str, Any]:
        return {"secret": self.name}


Requirement = ToolAuth | Secret
Auth = Requirement | Sequence[Requirement] | None


@dataclass(frozen=True, slots=True)
class Credential:
    """What a tool authenticates with at one provider. `secret` stays out of the repr, and is redacted everywhere else.

    `provider` is the name of the provider, or of the `Secret`. `kind` is how it is used: `bearer` (RFC 6750), `key`
    (any other header), `basic` (RFC 7617; the secret is `user:password`), `keypair` (`key:secret`, with which the tool
    signs by itself) or `secret`. `detail` is what the provider said beside a token, such as Salesforce's
    `instance_url`. *hosts* are where `Context.http` sends it, in *header*, after *prefix*; nowhere without them. Those
    with a private address must be in *allow* too. *refused* is to be called where the provider does not accept it.
    """

    provider: str
    secret: str = field(repr=False)
    kind: str = "bearer"
    scopes: Sequence[str] = ()
    expires_at: datetime | None = None
    detail: Mapping[str, str] = field(default_factory=dict[str, str])
    hosts: Sequence[str] = ()
    allow: Sequence[str] = ()
    header: str = "Authorization"
    prefix: str = "Bearer "
    refused: Callable[[], Awaitable[None]] | None = field(default=None, repr=False, compare=False)

    @property
    def header_value(self) -> str:
        """What is sent in `header`."""
        return self.prefix + (b64encode(self.secret.encode()).decode() if self.kind == "basic" else self.secret)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts in it that are redacted. A user name alone is not one."""
        if self.kind not in ("basic", "keypair"):
            return (self.secret,)
        parts = self.secret.partition(":")
        return (self.secret, parts[2]) if self.kind == "basic" else (self.secret, parts[0], parts[2])


Kind = Literal["tool", "resource", "prompt", "other"]


@dataclass(frozen=True)
class ToolSpec:
    """What a tool promises to its callers.

    `input_schema` and `output_schema` are JSON Schema 2020-12; the input's root is an object, and an output schema of
    None promises nothing. `strict` asks model providers for their strict mode. `examples` are arguments that work.
    `names` are groups of names that a call may use for one member, at any depth: a field's own name and its aliases.
    `icons` are as MCP has them: `{"src": ...}`, and `mimeType` and `sizes` where these are known.
    `deferred`: a model is not shown it until it searches, where its provider can do that.
    `once`: an agent gives each request of a model an idempotency key of its own.
    `kind`: what is called. A resource that is read is a call of 'resources/read URI', a prompt that is filled in one of
    'prompts/get NAME': no model is shown these, and policies, limits and records see them as calls.
    `labels` say where its results come from, as in `untrusted`: they go with each result, and rules ask for them.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    title: str | None = None
    hints: Hints = field(default_factory=Hints)
    auth: Auth = None
    tags: frozenset[str] = frozenset()
    version: str | None = None
    examples: Sequence[Mapping[str, Any]] = ()
    strict: bool | None = None
    timeout_s: float | None = None
    names: Sequence[frozenset[str]] = ()
    icons: Sequence[Mapping[str, Any]] = ()
    deferred: bool = False
    once: bool = False
    kind: Kind = "tool"
    labels: AbstractSet[str] = frozenset()

    @classmethod
    def with_later(cls, later: "Callable[[], tuple[str, Mapping[str, Any]]]", **members: Any) -> "ToolSpec":
        """Return a spec of *members*. *later* makes its description and input schema when one is first looked at."""
        spec = object.__new__(cls)
        spec.__dict__.update(_DEFAULTS, **members, _later=later)
        return spec

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """What `auth` asks for, one after the other."""
        auth = self.auth
        return () if auth is None else (auth,) if isinstance(auth, Requirement) else tuple(auth)

    def defaults(self) -> dict[str, Any]:
        """Return the default values of arguments, by name, as far as the input schema has them."""
        properties = self.input_schema.get("properties", {})
        return {name: of["default"] for name, of in properties.items() if isinstance(of, Mapping) and "default" in of}

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as JSON data, without empty members."""
        hints = {name: value for name in Hints.__slots__ if (value := getattr(self.hints, name)) is not None}
        data: dict[str, Any] = {name: getattr(self, name) for name in _MEMBERS}
        data |= {
            "input_schema": dict(self.input_schema),
            "output_schema": None if self.output_schema is None else dict(self.output_schema),
            "hints": hints,
            "auth": self.auth and _auth_data(self.requirements),
            "tags": sorted(self.tags),
            "examples": [*map(dict, self.examples)],
            "icons": [*map(dict, self.icons)],
            "labels": sorted(self.labels),
        }
        return {name: value for name, value in data.items() if value or (value is not None and name not in _NOT_EMPTY)}


_MEMBERS = (
    *("name", "title", "description", "input_schema", "output_schema", "hints", "auth", "tags", "version", "examples"),
    *("strict", "timeout_s", "icons", "deferred", "labels"),
)
"""The members of a spec as JSON data, in their order."""
_NOT_EMPTY = {"hints", "tags", "examples", "icons", "deferred", "labels"}
"""Those that are left out where they are empty. Of the others, only None is."""


def _auth_data(requirements: Sequence[Requirement]) -> Any:
    data = [requirement.to_dict() for requirement in requirements]
    return data[0] if len(data) == 1 else data


class _Later:
    """A member of a ToolSpec that is made at the first look: one that is there already is found before this."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, spec: ToolSpec | None, _: type[ToolSpec]) -> Any:
        if spec is None:
            raise AttributeError(self._name)
        description, input_schema = spec.__dict__["_later"]()
        spec.__dict__.update(description=description, input_schema=input_schema)
        return spec.__dict__[self._name]


for _name in ("description", "input_schema"):
    setattr(ToolSpec, _name, _Later(_name))
_DEFAULTS = {member.name: member.default for member in fields(ToolSpec) if member.default is not MISSING}
