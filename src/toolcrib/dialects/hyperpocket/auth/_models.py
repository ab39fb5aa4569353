"""The contexts, requests and responses of a provider's handlers, made of what the catalogue and `names.toml` have."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, Field, ValidationError, create_model, field_validator

from ._catalogue import entry_of, environment_names, members_of, names_of, read_members
from .context import AuthContext
from .schema import AuthenticateRequest, AuthenticateResponse

if TYPE_CHECKING:
    from ....auth.catalogue import HandlerName

_TYPES: Mapping[str, Any] = {"str": str, "int": int, "bool": bool, "dict": dict[str, Any]}
_SECRETS = frozenset(("access_token", "refresh_token", "id_token", "signature", "client_secret"))
_PACKAGE = __package__ or ""


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
    """What a grant by OAuth 2.0 has beside the others."""

    response: ClassVar[type[BaseModel] | None] = None

    refresh_token: str | None = Field(default=None, description="refresh token", repr=False)

    @field_validator("detail", mode="before", check_fields=False)
    @classmethod
    def _read_answer(cls, detail: Any) -> Any:
        """*detail* as it was before it was JSON, where it is a response."""
        if isinstance(detail, dict) and cls.response and detail.keys() <= cls.response.model_fields.keys():
            with suppress(ValidationError):
                return cls.response.model_validate(detail)
        return detail


@dataclass(frozen=True, slots=True)
class Models:
    """The classes of one handler."""

    context: type[CatalogueContext]
    kind_context: type[CatalogueContext]
    request: type[AuthenticateRequest]
    response: type[AuthenticateResponse]
    from_response: str

    def grant(self, response: AuthenticateResponse) -> CatalogueContext:
        """The context of *response*."""
        made: CatalogueContext = getattr(self.kind_context, self.from_response)(response)
        return made


@cache
def models_of(provider: str, kind: "HandlerName") -> Models:
    """The classes of the handler *kind* of *provider*."""
    names = names_of(provider, kind)
    place = f"{_PACKAGE}.{provider}.{names.module}"
    context = context_of_provider(provider)
    request: Any = create_model(
        names.request, __base__=AuthenticateRequest, __module__=f"{place}_schema", **_request_fields(kind)
    )
    response = _response(provider, kind, names.response, f"{place}_schema")
    bases = (context, OAuth2Fields) if kind == "oauth2" else (context,)
    made: Any = create_model(names.kind_context, __base__=bases, __module__=f"{place}_context")
    made.environment, made.kind, made.response = environment_names(provider, kind), kind, response
    title, from_response = entry_of(provider).title, _FROM[kind]

    def from_answer(cls: Any, response: Any) -> Any:
        return from_response(cls, response, provider, title)

    from_answer.__name__ = names.from_response
    setattr(made, names.from_response, classmethod(from_answer))
    return Models(context, made, request, response, names.from_response)


@cache
def context_of_provider(provider: str) -> type[CatalogueContext]:
    """The class of all contexts of *provider*."""
    kind = entry_of(provider).handler(None)[0]
    place = f"{_PACKAGE}.{provider}.context"
    made: Any = create_model(names_of(provider, kind).context, __base__=CatalogueContext, __module__=place)
    made.environment = environment_names(provider, kind)
    return made  # type: ignore[no-any-return]


def read_answer(response: type[BaseModel], answer: Mapping[str, Any]) -> BaseModel:
    """*answer* as a *response*, also where a member is missing, or is of another type than it should be."""
    try:
        return response.model_validate(answer)
    except ValidationError:
        return response.model_construct(**answer)


def password_in(basic: str) -> str:
    """The password in what HTTP Basic sends. Empty for another text."""
    try:
        return b64decode(basic, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _request_fields(kind: "HandlerName") -> dict[str, Any]:
    return {"client_id": (str, ...), "client_secret": (str, Field(repr=False))} if kind == "oauth2" else {}


def _response(provider: str, kind: "HandlerName", name: str, place: str) -> type[AuthenticateResponse]:
    if kind == "keypair":
        text: str = ", ".join(f"{name.lower()}: str" for name in environment_names(provider, kind))
        members: Mapping[str, str] = {}
    elif kind == "oauth2":
        text, members = members_of(provider)
    else:
        text, members = "access_token: str", {}
    nested = {
        member: create_model(member, __module__=place, **_fields(fields, _TYPES)) for member, fields in members.items()
    }
    made: Any = create_model(
        name, __base__=AuthenticateResponse, __module__=place, **_fields(text, {**_TYPES, **nested})
    )
    for member, model in nested.items():
        setattr(made, member, model)
    return made  # type: ignore[no-any-return]


def _fields(text: str, types: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, (kind, is_optional) in read_members(text).items():
        default = None if is_optional else ...
        is_secret = name in _SECRETS or name.endswith(("_key", "_secret"))
        fields[name] = (types[kind] | None if is_optional else types[kind], Field(default, repr=not is_secret))
    return fields


# From a response to a context


def _from_oauth2(cls: Any, response: Any, provider: str, title: str) -> Any:
    oauth2 = entry_of(provider).oauth2
    member = getattr(response, oauth2.token_member, None) if oauth2 and oauth2.token_member else None
    token: Any = member if getattr(member, "access_token", None) else response
    lives_s = getattr(token, "expires_in", None)
    return cls(
        access_token=token.access_token,
        refresh_token=getattr(token, "refresh_token", None),
        description=f"{title} OAuth2 Context logged in",
        expires_at=datetime.now(UTC) + timedelta(seconds=lives_s) if lives_s else None,
        detail=response,
    )


def _from_token(cls: Any, response: Any, provider: str, title: str) -> Any:
    return cls(access_token=response.access_token, description=f"{title} Token Context logged in", expires_at=None)


def _from_basic(cls: Any, response: Any, provider: str, title: str) -> Any:
    given = response.access_token
    # As it is sent (RFC 7617); a colon is in no Base64.
    written = b64encode(given.encode()).decode() if ":" in given else given
    return cls(access_token=written, description=f"{title} Basic Auth Context logged in", expires_at=None)


def _from_keypair(cls: Any, response: Any, provider: str, title: str) -> Any:
    detail = {name: getattr(response, name.lower()) for name in cls.environment}
    return cls(access_token="", description=f"{title} Keypair Context logged in", expires_at=None, detail=detail)


_FROM = {"oauth2": _from_oauth2, "token": _from_token, "basic": _from_basic, "keypair": _from_keypair}
