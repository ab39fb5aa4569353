"""The handlers of the providers of the catalogue: by OAuth 2.0, and by what a person enters."""

from collections.abc import Mapping, MutableMapping
from functools import cache, partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from ....core import SetupError
from ..config.settings import config
from ..futures import CallbackCode, FutureStore
from ._catalogue import catalogue, entry_of, is_scoped_kind, names_of, recommended_scopes
from ._models import Models, models_of, read_answer
from .context import AuthContext
from .handler import AuthHandlerInterface
from .provider import AuthProvider
from .schema import AuthenticateRequest

if TYPE_CHECKING:
    from ....auth import Flow, Grant, OAuth2
    from ....auth.catalogue import HandlerName

_TEXT = "User needs to authenticate using the following URL: "


class CatalogueHandler(AuthHandlerInterface):
    """A handler of a provider of the catalogue: of *key*, by *kind*."""

    key: ClassVar[str]
    kind: ClassVar["HandlerName"]

    @property
    def _models(self) -> Models:
        return models_of(self.key, self.kind)

    def _begin(self, future_uid: str, thread_id: str, profile: str, path: str, **more: str) -> dict[str, Any]:
        """What the future of this grant has to know: asked again, what it knows already."""
        redirect_uri = config().callback_url(f"auth/{self.key}/{path}")
        known = {"redirect_uri": redirect_uri, "thread_id": thread_id, "profile": profile, **more}
        return FutureStore.create_future(future_uid, data=known).data


class EnteredHandler(CatalogueHandler):
    """A token, a user name and password, or a key and its secret, which a person enters."""

    def make_request(self, auth_scopes: list[str] | None = None, **kwargs: Any) -> AuthenticateRequest:
        return self._models.request()

    def prepare(
        self, auth_req: AuthenticateRequest, thread_id: str, profile: str, future_uid: str, *args: Any, **kwargs: Any
    ) -> str:
        title, path = entry_of(self.key).title, f"{names_of(self.key, self.kind).module}/callback"
        self._begin(future_uid, thread_id, profile, path, form=self.kind, title=title)
        return f"{_TEXT}{config().callback_url('auth/token')}?state={future_uid}"

    async def authenticate(
        self, auth_req: AuthenticateRequest, future_uid: str, *args: Any, **kwargs: Any
    ) -> AuthContext:
        given = await _future(future_uid).future
        if self.kind == "keypair":
            names = self._models.response.model_fields
            parts = given if isinstance(given, Mapping) else dict(zip(names, str(given).split(":", 1), strict=False))
            if len(parts) != len(names):
                raise ValueError(f"A key pair for {entry_of(self.key).title} has the form key:secret.")
            given = parts
        else:
            given = {"access_token": given}
        return self._models.grant(self._models.response.model_validate(given))

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
        made: Any = self._models.request
        return made(  # type: ignore[no-any-return]
            auth_scopes=list(auth_scopes or ()), client_id=client.client_id, client_secret=client.client_secret
        )

    def prepare(
        self, auth_req: AuthenticateRequest, thread_id: str, profile: str, future_uid: str, *args: Any, **kwargs: Any
    ) -> str:
        flow = self._flow(auth_req)
        table = _known_table(flow)
        data = self._begin(future_uid, thread_id, profile, "oauth2/callback", code_verifier=token_urlsafe(48))
        url = flow.url_of(
            table,
            redirect_uri=data["redirect_uri"],
            scopes=self._scopes(auth_req, table),
            state=future_uid,
            verifier=data["code_verifier"],
        )
        return f"{_TEXT}{url}"

    async def discover(self, auth_req: AuthenticateRequest) -> None:
        """Fetch where the provider's endpoints are, if the catalogue has its issuer in place of them."""
        await self._flow(auth_req).table()

    async def authenticate(
        self, auth_req: AuthenticateRequest, future_uid: str, *args: Any, **kwargs: Any
    ) -> AuthContext:
        begun = _future(future_uid)
        code = await begun.future
        answers: list[Mapping[str, Any]] = []
        flow = self._flow(auth_req, answers)
        if isinstance(code, CallbackCode):
            await flow.require_issuer(code.query.get("iss"))
        grant = await flow.exchange_code(
            str(code),
            redirect_uri=begun.data.get("redirect_uri", ""),
            verifier=begun.data.get("code_verifier", ""),
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
        known: Any = context.detail or {}
        if isinstance(known, BaseModel):
            known = known.model_dump(exclude_unset=True, warnings=False)
        return self._context(grant, {**known, **answers[-1]})

    def _context(self, grant: "Grant", answer: Mapping[str, Any]) -> AuthContext:
        tokens = {"access_token": grant.access_token, "refresh_token": grant.refresh_token}
        if isinstance(scopes := answer.get("scope"), list):
            answer = {**answer, "scope": " ".join(map(str, scopes))}
        oauth2 = entry_of(self.key).oauth2
        member = (oauth2.token_member if oauth2 is not None else None) or ""
        inner = answer.get(member)
        if isinstance(inner, Mapping) and inner.get("access_token"):
            # A refresh is answered without the member.
            new = {name: answer[name] for name in ("expires_in",) if answer.get(name) is not None}
            answer = {**answer, member: {**inner, **new, **tokens}}
        else:
            answer = {**answer, **tokens}
        context = self._models.grant(read_answer(self._models.response, answer))  # type: ignore[arg-type]
        return context.model_copy(update={**tokens, "expires_at": grant.expires_at})

    def _scopes(self, auth_req: AuthenticateRequest, table: "OAuth2") -> list[str]:
        """The scopes that are asked for: without any, those of the catalogue, as nothing could be done with none."""
        scopes = list(auth_req.auth_scopes or entry_of(self.key).recommended_scopes)
        return [*scopes, *([table.offline_scope] if table.offline_scope and table.offline_scope not in scopes else [])]

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
            # A tool is given the token as text: of what type it is, is for the tool to know.
            oauth2.model_copy(update={"token_types": []}),
            Client(request.client_id, request.client_secret, {key: str(value) for key, value in parameters.items()}),
            partial(client, allow=config().net.allow, timeout_s=20.0, max_bytes=1024 * 1024),
            _documents(oauth2.issuer),
            None if answers is None else answers.append,
        )


def _future(uid: str) -> Any:
    if (begun := FutureStore.get_future(uid)) is None:
        raise RuntimeError("This grant is not known here, or has expired. Prepare it again.")
    return begun


@cache
def _documents(issuer: str | None) -> MutableMapping[str, "OAuth2"]:
    """What was discovered of *issuer*, by provider."""
    return {}


def _known_table(flow: "Flow") -> "OAuth2":
    """The table of *flow* with its endpoints. Where they have yet to be fetched, this waits for them."""
    table = flow.oauth2 if flow.oauth2.token_url is not None else flow.discovered.get(flow.name)
    if table is None:
        from ....workbench.sync import run

        table = run(flow.table())
    return table


@cache
def handler_class(provider: str, kind: "HandlerName") -> type[CatalogueHandler]:
    """The handler *kind* of *provider*."""
    names = names_of(provider, kind)
    how = {"oauth2": "OAuth2", "token": "a token", "basic": "Basic Auth", "keypair": "a key pair"}[kind]
    attributes = {
        "__module__": f"{__package__}.{provider}.{names.module}_handler",
        "__doc__": f"{entry_of(provider).title}, by {how}.",
        "key": provider,
        "kind": kind,
        "provider": staticmethod(lambda: AuthProvider.get_auth_provider(provider)),
        "provider_default": staticmethod(lambda: entry_of(provider).handler(None)[0] == kind),
        "recommended_scopes": staticmethod(lambda: _recommended(provider) if kind == "oauth2" else set[str]()),
        "name": names.handler_name,
        "description": f"This handler is used to authenticate users of {entry_of(provider).title} using {how}.",
        "scoped": is_scoped_kind(provider, kind),
    }
    made: Any = type(names.handler, (OAuth2Handler if kind == "oauth2" else EnteredHandler,), attributes)
    return made  # type: ignore[no-any-return]


def _recommended(provider: str) -> set[str]:
    settings = getattr(config().auth, provider)
    return recommended_scopes(provider) if settings is None or settings.use_recommended_scope else set()


def handler_classes() -> list[type[CatalogueHandler]]:
    """The handlers of all providers of the catalogue."""
    return [handler_class(provider, kind) for provider, entry in catalogue().items() for kind in entry.handlers]
