"""The handlers of the catalogue's providers, by OAuth 2.0 and by what a person enters, and the modules they are in."""

import sys
from collections.abc import Mapping, MutableMapping, Sequence
from functools import cache, partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from secrets import token_urlsafe
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ValidationError

from ....core import SetupError
from ..config import config
from ..futures import CallbackCode, FutureStore
from ._models import (
    KINDS,
    Models,
    catalogue,
    context_of_provider,
    default_kind,
    entry_of,
    is_scoped_kind,
    models_of,
    names_of,
    own_table,
)
from .handler import AuthContext, AuthenticateRequest, AuthHandlerInterface
from .provider import AuthProvider

if TYPE_CHECKING:
    from ....auth import Flow, Grant, OAuth2

_TEXT = "User needs to authenticate using the following URL: "
_TIMEOUT_S = 20.0
_MAX_ANSWER_BYTES = 1024 * 1024
_PACKAGE = f"{__package__}."

_discovered: dict[str, MutableMapping[str, "OAuth2"]] = {}
"""The endpoints that issuers have published, by issuer and by provider."""


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
            partial(client, allow=config().net.allow, timeout_s=_TIMEOUT_S, max_bytes=_MAX_ANSWER_BYTES),
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
