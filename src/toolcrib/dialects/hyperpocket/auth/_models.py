"""The catalogue's providers, hyperpocket's names for their classes, and their contexts, requests and responses.

All of it is made of `providers.toml` and `names.toml` on first use; importing this reads neither.
"""

import tomllib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, Field, ValidationError, create_model, field_validator

from ....core import Credential, SetupError
from ..config import config, module_name, providers_in
from .handler import AuthContext, AuthenticateRequest, AuthenticateResponse
from .provider import AuthProvider

if TYPE_CHECKING:
    from ....auth import Provider

KINDS: Mapping[str, tuple[str, str, str, str]] = {
    "oauth2": ("oauth2", "OAuth2", "OAuth2", "OAuth2"),
    "token": ("token", "Token", "Token", "Token"),
    "basic": ("basicauth", "Basic", "BasicAuth", "Basic Auth"),
    "keypair": ("keypair", "Keypair", "Keypair", "Keypair"),
}
"""By the handler of the catalogue: the beginning of its modules, the infix of its classes and of its schemas, a title.

For example `basicauth_handler`, `LinkedinBasicAuthHandler`, `LinkedinBasicAuthRequest`.
"""

_TYPES: Mapping[str, Any] = {"str": str, "int": int, "bool": bool, "dict": dict[str, Any]}
_ANSWER = {
    "access_token": "str",
    "token_type": "str?",
    "expires_in": "int?",
    "refresh_token": "str?",
    "scope": "str?",
}
_SECRETS = frozenset(("access_token", "refresh_token", "id_token", "signature", "client_secret"))


# The catalogue


def catalogue() -> Mapping[str, "Provider"]:
    """Return the providers of the package, and those of the file that `providers` in the settings names."""
    return providers_in(config().providers)


def entry_of(name: str) -> "Provider":
    """Return the table of the provider *name*. Raises SetupError."""
    if (entry := catalogue().get(name)) is None:
        raise SetupError(f"There is no provider '{name}' in the catalogue any more.")
    return entry


def default_kind(provider: str) -> str:
    """Return the handler that is used where a tool names none."""
    return entry_of(provider).handler(None)[0]


@cache
def names_of(provider: str, kind: str) -> Mapping[str, str]:
    """Return hyperpocket's names for the handler *kind* of *provider*: of its module, itself, and its classes."""
    module, infix, schema, _ = KINDS[kind]
    own = {**own_table(provider), **own_table(provider).get(kind, {})}
    prefix = own.get("prefix") or "".join(part.capitalize() for part in provider.split("_"))
    names = {
        "module": module,
        "name": f"{provider.replace('_', '-')}-{module}",
        "context": f"{prefix}AuthContext",
        "kind_context": f"{prefix}{infix}AuthContext",
        "handler": f"{prefix}{infix}AuthHandler",
        "request": f"{prefix}{schema}Request",
        "response": f"{prefix}{schema}Response",
        "from_response": f"from_{provider}_{module}_response",
    }
    return {key: own.get(key, name) for key, name in names.items()}


def own_table(provider: str) -> Mapping[str, Any]:
    """Return what `names.toml` has for *provider*."""
    table: Mapping[str, Any] = _tables().get(provider, {})
    return table


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(resources.files(__package__ or "").joinpath("names.toml").read_text("utf-8"))


def is_scoped_kind(provider: str, kind: str) -> bool:
    """Check whether the handler *kind* of *provider* takes scopes."""
    oauth2 = entry_of(provider).oauth2
    return kind == "oauth2" and oauth2 is not None and bool(own_table(provider).get("scoped", oauth2.scoped))


def kind_of(provider: str, handler_name: str | None) -> str | None:
    """Return the catalogue's handler for *handler_name*, or the default one. None where the catalogue has none."""
    if (entry := catalogue().get(provider)) is None:
        return None
    if handler_name is None:
        return default_kind(provider)
    return next((kind for kind in entry.handlers if names_of(provider, kind)["name"] == handler_name), None)


def core_handler(auth_provider: AuthProvider, auth_handler: str | None) -> str | None:
    """Return the catalogue's handler for *auth_handler*: `oauth2` for `slack-oauth2`; None for the default one."""
    return None if auth_handler is None else kind_of(auth_provider.value, auth_handler)


def is_scoped(auth_provider: AuthProvider, auth_handler: str | None = None) -> bool | None:
    """Check whether that handler, or else the default one, takes scopes. None where the catalogue does not have it."""
    kind = kind_of(auth_provider.value, auth_handler)
    return None if kind is None else is_scoped_kind(auth_provider.value, kind)


def environment_names(provider: str, kind: str) -> tuple[str, ...]:
    """Return the variables in which a tool finds the credentials: one, or a key and its secret."""
    names, prefix = entry_of(provider).environment, provider.upper()
    if kind == "keypair":
        return tuple(names[:2]) if len(names) > 1 else (f"{prefix}_API_KEY", f"{prefix}_API_SECRET")
    suffix = "BASIC_AUTH" if kind == "basic" else "TOKEN"
    own = [name for name in names if name.endswith("BASIC_AUTH") == (kind == "basic")]
    return (own[0] if own else f"{prefix}_{suffix}",)


# The classes of a handler


class CatalogueContext(AuthContext):
    """A grant of a provider of the catalogue. *environment* are the variables in which a tool finds it."""

    environment: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, str]:
        if len(self.environment) == 1:
            return {self.environment[0]: self.access_token}
        return {name: self.detail[name] for name in self.environment if self.detail}

    def to_profiled_dict(self, profile: str) -> dict[str, str]:
        return {f"{profile.upper()}_{name}": value for name, value in self.to_dict().items()}


class OAuth2Fields(BaseModel):
    """The further field of a grant by OAuth 2.0, and its detail as a *response*, also when it was JSON before."""

    response: ClassVar[type[BaseModel] | None] = None

    refresh_token: str | None = Field(default=None, description="refresh token", repr=False)

    @field_validator("detail", mode="before", check_fields=False)
    @classmethod
    def _read_answer(cls, detail: Any) -> Any:
        if isinstance(detail, dict) and cls.response and detail.keys() <= cls.response.model_fields.keys():
            with suppress(ValidationError):
                return cls.response.model_validate(detail)
        return detail


@dataclass(frozen=True, slots=True)
class Models:
    """The classes of one handler. *grant* makes a context of a response."""

    context: type[CatalogueContext]
    request: type[AuthenticateRequest]
    response: type[AuthenticateResponse]
    grant: Callable[[Any], CatalogueContext]


@cache
def models_of(provider: str, kind: str) -> Models:
    """Return the classes of the handler *kind* of *provider*."""
    names, environment = names_of(provider, kind), environment_names(provider, kind)
    place = f"{__package__}.{provider}.{names['module']}"
    request: Any = create_model(
        names["request"],
        __base__=AuthenticateRequest,
        __module__=f"{place}_schema",
        **_fields({"client_id": "str", "client_secret": "str"} if kind == "oauth2" else {}, ""),
    )
    members: Mapping[str, Any] = {"access_token": "str"}
    if kind == "oauth2":
        members = own_table(provider).get("answer", _ANSWER)
    elif kind == "keypair":
        members = {name.lower(): "str" for name in environment}
    response: Any = create_model(
        names["response"],
        __base__=AuthenticateResponse,
        __module__=f"{place}_schema",
        **_fields(members, f"{place}_schema"),
    )
    for name, member in members.items():
        if isinstance(member, dict):  # `SlackOAuth2Response.AuthedUser`
            setattr(response, _title(name), response.model_fields[name].annotation.__args__[0])
    bases: Any = (context_of_provider(provider), *([OAuth2Fields] if kind == "oauth2" else []))
    context: Any = create_model(names["kind_context"], __base__=bases, __module__=f"{place}_context")
    context.environment, context.kind, context.response = environment, kind, response

    def from_response(cls: Any, response: Any) -> Any:
        return cls(**_granted(provider, kind, response))

    setattr(context, names["from_response"], classmethod(from_response))
    return Models(context, request, response, getattr(context, names["from_response"]))


@cache
def context_of_provider(provider: str) -> type[CatalogueContext]:
    """Return the base class of all contexts of *provider*."""
    kind = default_kind(provider)
    name, place = names_of(provider, kind)["context"], f"{__package__}.{provider}.context"
    context: Any = create_model(name, __base__=CatalogueContext, __module__=place)
    context.environment = environment_names(provider, kind)
    return context  # type: ignore[no-any-return]


def _fields(members: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the fields of *members*, as `names.toml` has them, for `create_model`."""
    fields: dict[str, Any] = {}
    for name, member in members.items():
        if isinstance(member, dict):
            kind: Any = create_model(_title(name), __module__=place, **_fields(member, place))
            is_optional = True
        else:
            kind, is_optional = _TYPES[member.rstrip("?")], member.endswith("?")
        is_secret = name in _SECRETS or name.endswith(("_key", "_secret"))
        field: Any = Field(default=None if is_optional else ..., repr=not is_secret)
        fields[name] = (kind | None if is_optional else kind, field)
    return fields


def _title(name: str) -> str:
    return name.title().replace("_", "")


# From a response to a context


def _granted(provider: str, kind: str, response: Any) -> dict[str, Any]:
    """Return the values of the context of *response*."""
    entry = entry_of(provider)
    values = {"description": f"{entry.title} {KINDS[kind][3]} Context logged in", "expires_at": None}
    if kind == "keypair":
        detail = {name: getattr(response, name.lower()) for name in environment_names(provider, kind)}
        return {**values, "access_token": "", "detail": detail}
    if kind == "token":
        return {**values, "access_token": response.access_token}
    if kind == "basic":
        text = response.access_token
        # As HTTP sends it (RFC 7617). There is no colon in Base64, so text without one is encoded already.
        return {**values, "access_token": b64encode(text.encode()).decode() if ":" in text else text}
    member = getattr(response, (entry.oauth2 and entry.oauth2.token_member) or "", None)
    token: Any = member if getattr(member, "access_token", None) else response
    lifetime_s = getattr(token, "expires_in", None)
    return {
        **values,
        "access_token": token.access_token,
        "refresh_token": getattr(token, "refresh_token", None),
        "expires_at": datetime.now(UTC) + timedelta(seconds=lifetime_s) if lifetime_s else None,
        "detail": response,
    }


def environment_of(credential: Credential, handler: str | None = None) -> tuple[str, ...]:
    """Return the variables for a credential of one of Toolcrib's brokers, by *handler*, under either name."""
    provider = module_name(credential.provider)
    if credential.kind in ("basic", "keypair"):
        handler = credential.kind
    kind = handler if handler in KINDS else kind_of(provider, handler)
    return environment_names(provider, kind or default_kind(provider))


def secrets_of(context: AuthContext) -> tuple[str, ...]:
    """Return the texts of *context* to redact: its tokens, what tools are given of it, and the password in that."""
    texts = [context.access_token, getattr(context, "refresh_token", None), *context.to_dict().values()]
    if isinstance(context, CatalogueContext) and context.kind == "basic":
        with suppress(ValueError):
            texts.append(b64decode(context.access_token, validate=True).decode().partition(":")[2])
    return tuple(dict.fromkeys(text for text in texts if isinstance(text, str) and text))
