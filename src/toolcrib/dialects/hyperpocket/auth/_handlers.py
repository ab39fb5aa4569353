"""The handlers of the catalogue's providers, by OAuth 2.0 and by what a person enters, and the modules they are in.

They, and their contexts, requests and responses, are made of `providers.toml` and `names.toml` on first use; importing
this reads neither.
"""

import sys
import tomllib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib import resources
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from secrets import token_urlsafe
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, Field, ValidationError, create_model, field_validator

from ....core import Credential, SetupError
from ..config import config, module_name, providers_in
from ..futures import CallbackCode, FutureStore
from .handler import AuthContext, AuthenticateRequest, AuthenticateResponse, AuthHandlerInterface
from .provider import AuthProvider

if TYPE_CHECKING:
    from ....auth import Flow, Grant, OAuth2, Provider

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
_TEXT = "User needs to authenticate using the following URL: "
_PACKAGE = f"{__package__}."

_discovered: dict[str, MutableMapping[str, "OAuth2"]] = {}
"""The endpoints that issuers have published, by issuer and by provider."""

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


# The handlers


class CatalogueHandler(AuthHandlerInterface):
    """A handler of a provider of the catalogue: of *key*, by *kind*."""

    key: ClassVar[str]
    kind: ClassVar[str]

    @property
    def _models(self) -> Models:
        return models_of(self.key, self.kind)

    def _begin(self, future_uid: str, thread_id: str, profile: str, path: str, **more: str) -> dict[str, Any]:
        """Return the data of the grant's future, which the first request creates."""
        redirect_uri = config().callback_url(f"auth/{self.key}/{path}")
        data = {"redirect_uri": redirect_uri, "thread_id": thread_id, "profile": profile, **more}
        return FutureStore.create_future(future_uid, data=data).data


class EnteredHandler(CatalogueHandler):
    """A token, a user name and password, or a key and its secret, which a person enters."""

    def make_request(self, auth_scopes: list[str] | None = None, **kwargs: Any) -> AuthenticateRequest:
        return self._models.request()

    def prepare(
        self, auth_req: AuthenticateRequest, thread_id: str, profile: str, future_uid: str, *args: Any, **kwargs: Any
    ) -> str:
        path, title = f"{names_of(self.key, self.kind)['module']}/callback", entry_of(self.key).title
        self._begin(future_uid, thread_id, profile, path, form=self.kind, title=title)
        return f"{_TEXT}{config().callback_url('auth/token')}?state={future_uid}"

    async def authenticate(
        self, auth_req: AuthenticateRequest, future_uid: str, *args: Any, **kwargs: Any
    ) -> AuthContext:
        answer = await _future(future_uid).future
        names = list(self._models.response.model_fields)
        if not isinstance(answer, Mapping):
            texts = str(answer).split(":", 1) if self.kind == "keypair" else [answer]
            answer = dict(zip(names, texts, strict=False))
        if len(answer) != len(names):
            raise ValueError(f"A key pair for {entry_of(self.key).title} has the form key:secret.")
        return self._models.grant(self._models.response.model_validate(answer))

    async def refresh(
        self, auth_req: AuthenticateRequest, context: AuthContext, *args: Any, **kwargs: Any
    ) -> AuthContext:
        raise RuntimeError(f"What was entered for {entry_of(self.key).title} cannot be refreshed: enter it again.")


class OAuth2Handler(CatalogueHandler):
    """A grant by OAuth 2.0, by the flow of Toolcrib: with PKCE, and with what this provider does differently."""

    def make_request(self, auth_scopes: list[str] | None = None, **kwargs: Any) -> AuthenticateRequest:
        client = getattr(config().auth, self.key)
        if client is None:
            raise SetupError(
                f"'{self.key}' is not configured: [auth.{self.key}] in settings.toml needs client_id and client_secret."
            )
        values: Any = {"client_id": client.client_id, "client_secret": client.client_secret}
        return self._models.request(auth_scopes=list(auth_scopes or ()), **values)

    async def discover(self, auth_req: AuthenticateRequest) -> None:
        """Fetch the provider's endpoints, where the catalogue has its issuer in place of them."""
        await self._flow(auth_req).table()

    def prepare(
        self, auth_req: AuthenticateRequest, thread_id: str, profile: str, future_uid: str, *args: Any, **kwargs: Any
    ) -> str:
        flow = self._flow(auth_req)
        table = flow.discovered.get(flow.name, flow.oauth2)
        # Without any scope a grant is of no use: then those of the catalogue are asked for.
        scopes = list(auth_req.auth_scopes or entry_of(self.key).recommended_scopes)
        if table.offline_scope and table.offline_scope not in scopes:
            scopes.append(table.offline_scope)
        data = self._begin(future_uid, thread_id, profile, "oauth2/callback", code_verifier=token_urlsafe(48))
        redirect_uri, verifier = data["redirect_uri"], data["code_verifier"]
        url = flow.url_of(table, redirect_uri=redirect_uri, scopes=scopes, state=future_uid, verifier=verifier)
        return f"{_TEXT}{url}"

    async def authenticate(
        self, auth_req: AuthenticateRequest, future_uid: str, *args: Any, **kwargs: Any
    ) -> AuthContext:
        entry = _future(future_uid)
        code = await entry.future
        answers: list[Mapping[str, Any]] = []
        flow = self._flow(auth_req, answers)
        if isinstance(code, CallbackCode):
            await flow.require_issuer(code.query.get("iss"))
        grant = await flow.exchange_code(
            str(code),
            redirect_uri=entry.data.get("redirect_uri", ""),
            verifier=entry.data.get("code_verifier", ""),
            scopes=auth_req.auth_scopes or (),
        )
        return self._context(grant, answers[-1])

    async def refresh(
        self, auth_req: AuthenticateRequest, context: AuthContext, *args: Any, **kwargs: Any
    ) -> AuthContext:
        from ....auth import Grant

        answers: list[Mapping[str, Any]] = []
        old = Grant(context.access_token, getattr(context, "refresh_token", None), auth_req.auth_scopes or ())
        grant = await self._flow(auth_req, answers).refresh(old)
        detail: Any = context.detail or {}
        if isinstance(detail, BaseModel):
            detail = detail.model_dump(exclude_unset=True, warnings=False)
        return self._context(grant, {**detail, **answers[-1]})

    def _context(self, grant: "Grant", answer: Mapping[str, Any]) -> AuthContext:
        """Return the context of *grant*, whose detail is *answer* as the provider's response."""
        tokens = {"access_token": grant.access_token, "refresh_token": grant.refresh_token}
        if isinstance(scopes := answer.get("scope"), list):
            answer = {**answer, "scope": " ".join(map(str, scopes))}
        oauth2 = entry_of(self.key).oauth2
        member = (oauth2 and oauth2.token_member) or ""
        inner = answer.get(member)
        if isinstance(inner, Mapping) and inner.get("access_token"):
            # The answer to a refresh has no such member, so that of the grant stays, with the new tokens.
            lifetime = {"expires_in": answer["expires_in"]} if answer.get("expires_in") is not None else {}
            answer = {**answer, member: {**inner, **lifetime, **tokens}}
        else:
            answer = {**answer, **tokens}
        try:
            response: BaseModel = self._models.response.model_validate(answer)
        except ValidationError:  # a provider may leave members out
            response = self._models.response.model_construct(**answer)
        return self._models.grant(response).model_copy(update={**tokens, "expires_at": grant.expires_at})

    def _flow(self, auth_req: AuthenticateRequest, answers: list[Mapping[str, Any]] | None = None) -> "Flow":
        from ....auth import Client, Flow
        from ....net import client

        oauth2 = entry_of(self.key).oauth2
        assert oauth2 is not None
        settings = getattr(config().auth, self.key)
        parameters = {} if settings is None else settings.model_extra or {}
        request: Any = auth_req if hasattr(auth_req, "client_id") else self.make_request(auth_req.auth_scopes)
        return Flow(
            self.key,
            # Tools take the token as text, whatever its type is.
            oauth2.model_copy(update={"token_types": []}),
            Client(request.client_id, request.client_secret, {key: str(value) for key, value in parameters.items()}),
            partial(client, allow=config().net.allow),
            _discovered.setdefault(oauth2.issuer or "", {}),
            None if answers is None else answers.append,
        )


def _future(uid: str) -> Any:
    if (entry := FutureStore.get_future(uid)) is None:
        raise RuntimeError("This grant is not known here, or has expired. Prepare it again.")
    return entry


@cache
def handler_class(provider: str, kind: str) -> type[CatalogueHandler]:
    """Return the handler *kind* of *provider*."""
    names, title = names_of(provider, kind), entry_of(provider).title
    means = {"oauth2": "OAuth2", "token": "a token", "basic": "Basic Auth", "keypair": "a key pair"}[kind]

    def recommended_scopes() -> set[str]:
        settings = getattr(config().auth, provider)
        is_wanted = kind == "oauth2" and (settings is None or settings.use_recommended_scope)
        return set(own_table(provider).get("scopes", ())) if is_wanted else set()

    attributes = {
        "__module__": f"{_PACKAGE}{provider}.{names['module']}_handler",
        "__doc__": f"{title}, by {means}.",
        "key": provider,
        "kind": kind,
        "provider": staticmethod(lambda: AuthProvider.get_auth_provider(provider)),
        "provider_default": staticmethod(lambda: default_kind(provider) == kind),
        "recommended_scopes": staticmethod(recommended_scopes),
        "name": names["name"],
        "description": f"This handler is used to authenticate users of {title} using {means}.",
        "scoped": is_scoped_kind(provider, kind),
    }
    handler: Any = type(names["handler"], (OAuth2Handler if kind == "oauth2" else EnteredHandler,), attributes)
    return handler  # type: ignore[no-any-return]


def handlers_of_catalogue() -> list[tuple[str, str]]:
    """Return the provider and the kind of each handler of the catalogue."""
    return [(provider, kind) for provider, entry in catalogue().items() for kind in entry.handlers]


class ProviderModules(MetaPathFinder, Loader):
    """Makes `auth.PROVIDER` and its `context`, `KIND_handler`, `KIND_context` and `KIND_schema` when imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        provider, _, module = fullname.removeprefix(_PACKAGE).partition(".")
        is_ours = fullname.startswith(_PACKAGE) and not provider.startswith("_") and provider in catalogue()
        if not is_ours or (module and not _classes_in(provider, module)):
            return None
        return ModuleSpec(fullname, self, is_package=not module)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        provider, _, name = module.__name__.removeprefix(_PACKAGE).partition(".")
        module.__doc__ = f"hyperpocket's classes for {entry_of(provider).title}."
        for kind in _classes_in(provider, name):
            setattr(module, kind.__name__, kind)


def _classes_in(provider: str, module: str) -> list[type]:
    """Return the classes in *module* of *provider*, which is empty where hyperpocket has no such module."""
    if module == "context":
        return [context_of_provider(provider)]
    prefix, _, part = module.rpartition("_")
    for kind in entry_of(provider).handlers:
        if prefix == KINDS[kind][0]:
            models = models_of(provider, kind)
            classes: dict[str, list[type]] = {
                "handler": [handler_class(provider, kind)],
                "context": [models.context],
                "schema": [models.request, models.response],
            }
            return classes.get(part, [])
    return []


# After the finders of files: a real file goes before what is made here.
sys.meta_path.append(ProviderModules())
