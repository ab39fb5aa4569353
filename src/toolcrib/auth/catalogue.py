"""The providers of credentials: data, read from TOML. Ours are in `providers.toml`; a user's file adds and overrides.

A provider is a table. Each way to its credentials is a table in it: `oauth2`, `token`, `basic`, `keypair`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib import resources
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator

from ..core import SetupError, ToolcribError
from ..machinery import text_digest
from ..net import Guard
from ..schema import closest_match, did_you_mean, display_name
from ..schema.declared import Keys, Strict, mistakes_in
from ..schema.toml import line_at, lines_of, parse_toml

HandlerName = Literal["oauth2", "token", "basic", "keypair"]
HANDLERS: tuple[HandlerName, ...] = ("oauth2", "token", "basic", "keypair")

ENDPOINTS = ("token_url", "authorize_url", "device_url", "revoke_url", "issuer")
_PUBLISHED = {
    "token_url": "token_endpoint",
    "authorize_url": "authorization_endpoint",
    "device_url": "device_authorization_endpoint",
    "revoke_url": "revocation_endpoint",
}
CLIENT_KEYS = ("client_id", "client_secret", "redirect_uri", "private_key")
SERVER_KEYS = ("grant", "issuer", "idp")
"""What `[auth."mcp:URL"]` takes beside CLIENT_KEYS."""
GrantKind = Literal["authorization_code", "client_credentials", "identity_assertion"]
AUTH_METHODS = {"client_secret_basic": "basic", "client_secret_post": "post", "none": "none"}
METHOD_NAMES = {ours: name for name, ours in AUTH_METHODS.items()}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SEGMENT = re.compile(rf"{_NAME.pattern}|server\.[0-9a-f]{{32}}")
_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_LINE = re.compile(r" \(at line (\d+), column \d+\)")


class OAuth2(Strict):
    """How a provider's OAuth 2.0 endpoints differ from one another (RFC 6749, 7009, 7636, 8628, 9207)."""

    token_url: str | None = Field(
        default=None, description="The token endpoint. `{name}` stands for a setting of the provider."
    )
    authorize_url: str | None = Field(default=None, description="The authorization endpoint.")
    device_url: str | None = Field(default=None, description="The device authorization endpoint (RFC 8628).")
    revoke_url: str | None = Field(default=None, description="The revocation endpoint (RFC 7009).")
    issuer: str | None = Field(
        default=None,
        description="What `iss` in a callback must be (RFC 9207). Without `token_url`, what it publishes is used.",
    )
    resource: str | None = Field(
        default=None, description="What tokens are for, where that is sent with each request (RFC 8707)."
    )
    iss_required: bool = Field(default=False, description="Whether each callback has `iss`.")
    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code", description="Whether a person grants access, or the token is the program's own."
    )
    id_token: bool = Field(
        default=False, description="Whether what a login gives is the ID token: for MCP servers with this `idp`."
    )
    scope_parameter: str = Field(default="scope", description="The name under which scopes are sent.")
    scope_separator: Literal[" ", ","] = Field(default=" ", description="What stands between scopes.")
    scoped: bool = Field(default=True, description="Whether a grant has scopes that are asked for.")
    offline_scope: str | None = Field(default=None, description="The scope without which no refresh token is given.")
    implied_scopes: dict[str, list[str]] = Field(
        default_factory=dict[str, list[str]],
        description="For a scope that is answered, those that are granted with it, or that it is another name of.",
    )
    client_auth: Literal["post", "basic", "none"] = Field(
        default="post", description="How the client authenticates: in the body, by HTTP Basic, or not at all."
    )
    body: Literal["form", "json"] = Field(default="form", description="How a token request is written.")
    headers: dict[str, str] = Field(default_factory=dict[str, str], description="More headers of token requests.")
    pkce: bool = Field(default=True, description="Whether PKCE (S256) is sent.")
    parameters: dict[str, str] = Field(
        default_factory=dict[str, str], description="More parameters of the authorization URL."
    )
    error_status_ok: bool = Field(default=False, description="Whether an error comes with status 200 and `ok: false`.")
    ended_errors: list[str] = Field(
        default_factory=list[str], description="Errors that mean that a grant has ended, beside `invalid_grant`."
    )
    token_member: str | None = Field(default=None, description="The member of the answer that the token is in.")
    token_types: list[str] = Field(
        default_factory=lambda: ["bearer"],
        description="The `token_type` of tokens that are sent as bearer tokens; with none, it may be any.",
    )
    keep: list[str] = Field(
        default_factory=list[str], description="Members of the answer for tools, and for `{name}` in hosts."
    )
    refresh: Literal["kept", "rotated", "none"] = Field(
        default="kept",
        description="Whether a refresh token can be used again, is replaced by each, or is not given.",
    )
    lifetime_s: float | None = Field(
        default=None,
        gt=0,
        lt=1e9,
        description="How long a token that can be refreshed lives, where the answer does not say.",
    )
    revoke: Literal["token", "access_token", "named", "bearer", "delete"] = Field(
        default="token",
        description="What `revoke_url` is sent: the refresh token else the access token (RFC 7009), the access token, "
        "either under its own name, each as a bearer token, or DELETE with the access token and HTTP Basic.",
    )

    @field_validator(*ENDPOINTS)
    @classmethod
    def _is_safe(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith("{"):  # then it is checked once it is filled
            require_endpoint(url)
        return url

    @model_validator(mode="after")
    def _has_endpoints(self) -> "OAuth2":
        if self.token_url is None and self.issuer is None:
            raise ValueError("expected 'token_url', or 'issuer' where its endpoints are discovered")
        is_asked = self.grant == "authorization_code" and self.token_url is not None
        if is_asked and self.authorize_url is None and self.device_url is None:
            raise ValueError("expected 'authorize_url' or 'device_url', where a person grants access")
        return self


class Key(Strict):
    """One secret text, and how it is sent."""

    header: str = Field(default="Authorization", description="The header that it is sent in.")
    prefix: str = Field(default="Bearer ", description="What comes before it there.")


class Basic(Strict):
    """A user name and a password, for HTTP Basic (RFC 7617)."""


class KeyPair(Strict):
    """A key and its secret, with which the tool signs by itself."""


Handler = OAuth2 | Key | Basic | KeyPair


class Provider(Strict):
    """One provider of credentials."""

    title: str = Field(description="Its name, for people.")
    source: str | None = Field(default=None, description="The address of its documentation on this.")
    checked: date | None = Field(
        default=None, description="On which day this was compared with its documentation; `false` if it was not."
    )
    hosts: list[str] = Field(
        default_factory=list[str],
        description="Where its credentials may be sent: a host, `*.example.com`, or a template.",
    )
    environment: list[str] = Field(
        default_factory=list[str], description="The usual names of variables that have them."
    )
    settings: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="What `{name}` in its URLs and hosts stands for: keys of `[auth.PROVIDER]`, each with what it is.",
    )
    default: HandlerName | None = Field(default=None, description="The handler that is used where none is named.")
    recommended_scopes: list[str] = Field(
        default_factory=list[str], description="The scopes that are asked for where a tool names none."
    )
    supported: bool = Field(default=False, description="Whether its flow is run in the tests, against an imitation.")
    oauth2: OAuth2 | None = Field(default=None, description="By OAuth 2.0.")
    token: Key | None = Field(default=None, description="By a token or key that a person gives.")
    basic: Basic | None = Field(default=None, description="By a user name and password.")
    keypair: KeyPair | None = Field(default=None, description="By a key and its secret.")

    @field_validator("checked", mode="before")
    @classmethod
    def _is_day(cls, day: Any) -> Any:
        return None if day is False else day

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, hosts: list[str]) -> list[str]:
        try:
            Guard(hosts=[_TEMPLATE.sub("name", host) for host in hosts])
        except SetupError as error:
            raise ValueError(str(error).rstrip(".")) from None
        return hosts

    @model_validator(mode="after")
    def _is_complete(self) -> "Provider":
        if not self.handlers:
            raise ValueError(f"expected a table for a way to its credentials: {', '.join(HANDLERS)}")
        if self.default is not None and self.default not in self.handlers:
            raise ValueError("its default handler has no table")
        urls = [] if self.oauth2 is None else [getattr(self.oauth2, name) or "" for name in ENDPOINTS]
        self._require_known(urls, ["client_id"])
        self._require_known(self.hosts, [] if self.oauth2 is None else self.oauth2.keep)
        return self

    def _require_known(self, templates: Iterable[str], also: Iterable[str]) -> None:
        names = [*self.settings, *also]
        for name in (name for template in templates for name in _TEMPLATE.findall(template)):
            if name not in names:
                hint = did_you_mean(closest_match(name, names))
                raise ValueError(f"there is no setting '{display_name(name)}'.{hint} Declare it in 'settings'")

    @property
    def handlers(self) -> dict[HandlerName, Handler]:
        return {name: table for name in HANDLERS if (table := getattr(self, name)) is not None}

    def handler(self, name: str | None) -> tuple[HandlerName, Handler]:
        """Return the handler *name*, or the default one. Raises LookupError with the names of those that there are."""
        handlers = self.handlers
        handler_name: Any = name or self.default or next(iter(handlers))
        if handler_name not in handlers:
            raise LookupError(", ".join(handlers))
        return handler_name, handlers[handler_name]


@dataclass(frozen=True, slots=True)
class Client:
    """What a provider knows this program as. *parameters* fill the templates in its URLs, such as `domain_url`.

    *redirect_uri* is the address that is registered there, where it is not the one that a broker has for this provider.
    *private_key*, a PEM or a JWK, signs what takes the place of *secret* (RFC 7523). For an MCP server, *grant* is how
    its tokens are got, *issuer* the only authorization server that this client is used at, and *idp* the provider whose
    ID tokens speak for the callers.
    """

    id: str
    secret: str = field(default="", repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    redirect_uri: str | None = None
    private_key: str = field(default="", repr=False)
    grant: GrantKind = "authorization_code"
    issuer: str | None = None
    idp: str | None = None

    @classmethod
    def from_settings(cls, table: Mapping[str, str]) -> "Client":
        """Return the client in a table `[auth.PROVIDER]`: CLIENT_KEYS, SERVER_KEYS, and the parameters."""
        rest = {key: value for key, value in table.items() if key not in CLIENT_KEYS}
        names = ("redirect_uri", "private_key", *SERVER_KEYS)
        own: dict[str, Any] = {key: table[key] for key in names if key in table}
        return cls(table.get("client_id", ""), table.get("client_secret", ""), rest, **own)

    @property
    def proof(self) -> str:
        """What it proves by that it is this client; empty for a public one."""
        return self.private_key or self.secret

    def require_server(self, name: str) -> None:
        """Raise SetupError where what it says of the MCP server *name* is not complete."""
        needs = {"client_id": self.id, "client_secret (or private_key)": self.proof, "issuer": self.issuer}
        if self.grant not in (kinds := get_args(GrantKind)):  # as a file may have it
            hint = did_you_mean(closest_match(self.grant, kinds))
            raise SetupError(f"[auth.\"{name}\"]: there is no grant '{display_name(self.grant)}'.{hint}")
        if self.grant == "authorization_code":
            return
        if self.grant == "identity_assertion":
            needs["idp"] = self.idp
        if absent := [key for key, value in needs.items() if not value]:
            raise SetupError(f'[auth."{name}"] with grant = "{self.grant}" needs {" and ".join(absent)}.')


def callback_segment(provider: str) -> str:
    """Return the last part of the address that people come back to from *provider*: its name, else a digest of that."""
    if _SEGMENT.fullmatch(provider):
        return provider
    return f"server.{text_digest(provider)[:32]}"  # with a dot, which no name has


def absent_settings(provider: Provider, oauth2: OAuth2, client: Client | None) -> list[str]:
    """Return the keys of `[auth.PROVIDER]` that *oauth2* of *provider* needs, and *client* has not."""
    absent = ["client_id"] if client is None or not client.id else []
    if (client is None or not client.proof) and oauth2.client_auth != "none":
        absent.append("client_secret")
    parameters = {} if client is None else client.parameters
    return absent + sorted(set(provider.settings) - set(parameters))


@cache
def builtin_catalogue() -> Mapping[str, Provider]:
    """Return the providers that come with the package."""
    name = "providers.toml"
    return read_catalogue(resources.files("toolcrib.auth").joinpath(name).read_text("utf-8"), name)


def load_catalogue(file: Path | None = None) -> Mapping[str, Provider]:
    """Return the providers of the package, and over them those of *file*: a table there replaces one of the same name.

    Raises SetupError, with file and line, for what is not as it should be.
    """
    if file is None:
        return builtin_catalogue()
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SetupError(f"The catalogue {file} cannot be read: {reason}.") from None
    return {**builtin_catalogue(), **read_catalogue(text, str(file))}


def read_catalogue(text: str, place: str) -> Mapping[str, Provider]:
    """Return the providers in *text*, TOML with a table for each. *place* is where it is from, for errors."""
    text = text.replace("\r\n", "\n")
    try:
        data = parse_toml(text)
    except ValueError as error:
        at = _LINE.search(str(error))
        reason = _LINE.sub("", str(error))
        line = f":{at[1]}" if at else ""
        raise SetupError(f"{place}{line}: This is not valid TOML: {reason}.") from None
    providers: dict[str, Provider] = {}
    problems = [problem for name, table in data.items() for problem in _read(name, table, providers)]
    if problems:
        lines = lines_of(text)
        raise SetupError("\n".join(f"{place}:{line_at(lines, keys)}: {message}" for keys, message in problems))
    return providers


def _read(name: str, table: Any, providers: dict[str, Provider]) -> list[tuple[Keys, str]]:
    """Put the provider *name* into *found*. Returns what is wrong instead, each with its place."""
    if not _NAME.fullmatch(name):
        return [((name,), f"'{display_name(name)}' is not a name: letters, digits, '-' and '_'.")]
    if not isinstance(table, dict):
        return [((name,), f"Expected a table: [{name}].")]
    table = {"title": name, **table}
    try:
        providers[name] = Provider.model_validate(table)
    except ValidationError as error:
        mistakes = mistakes_in(Provider, table, error, header=f"{name}.")
        # What a whole table lacks is worded as if it were the arguments of a call.
        of_call, of_table = "the arguments: ", f"[{name}]: "
        return [((name, *mistake.keys), mistake.message.replace(of_call, of_table, 1)) for mistake in mistakes]
    return []


def require_endpoint(url: str) -> None:
    """Raise ValueError unless *url* is one that a secret can be sent to: by https, or on this computer."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_printed = url.isprintable() and " " not in url  # others are dropped by some who read it, and not by all
        is_safe = is_printed and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))
    except ValueError:
        host, is_safe = "", False
    if not (host and is_safe):
        raise ValueError("expected a URL that begins with https:// (http:// only for this computer)")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def filled(template: str, *values: Mapping[str, str]) -> str:
    """Return *template* with `{name}` replaced from *values*. Raises ToolcribError naming what is missing."""
    for mapping in values:
        for name, value in mapping.items():
            template = template.replace(f"{{{name}}}", value)
    if "{" in template:
        raise ToolcribError(template.partition("{")[2].partition("}")[0])
    return template


# What an issuer's document says of its endpoints (OpenID Connect Discovery 1.0, RFC 8414). Nothing is fetched here.


def document_urls(issuer: str) -> list[str]:
    """Return where the document of *issuer* may be, in the order in which it is looked for."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    well_known = f"{parts.scheme}://{parts.netloc}/.well-known"
    return list(
        dict.fromkeys(
            (
                f"{well_known}/oauth-authorization-server{path}",
                f"{well_known}/openid-configuration{path}",
                f"{parts.scheme}://{parts.netloc}{path}/.well-known/openid-configuration",
            )
        )
    )


def auth_methods(document: Mapping[str, Any]) -> list[str]:
    """Return how a client may authenticate by *document*: without a word on it, by HTTP Basic (RFC 8414, 2)."""
    supported = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    return [ours for name, ours in AUTH_METHODS.items() if isinstance(supported, list) and name in supported]


def with_document(table: OAuth2, document: Mapping[str, Any], issuer: str) -> OAuth2:
    """Return *table* with what *document* adds; what is written in the table stays.

    Raises ValueError for the document of another issuer (RFC 8414, 3.3), and for one that is not as it should be.
    """
    if document.get("issuer") != issuer:
        raise ValueError("it belongs to another issuer")
    endpoints: dict[str, Any] = {
        name: document[key] for name, key in _PUBLISHED.items() if document.get(key) is not None
    }
    if supported := auth_methods(document):
        endpoints["client_auth"] = supported[0]
    endpoints["iss_required"] = document.get("authorization_response_iss_parameter_supported") is True
    if "token_url" not in endpoints:
        raise ValueError("it has no token endpoint")
    return OAuth2.model_validate({**endpoints, **table.model_dump(exclude_unset=True), "issuer": issuer})
