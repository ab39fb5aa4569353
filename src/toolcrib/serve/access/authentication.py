"""Who may enter: one ASGI middleware that identifies each request once, and refuses unknown callers.

What it knows goes to the application, as a Caller in the scope. Neither a key nor a token is logged.
"""

import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from starlette._utils import get_route_path
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core import Caller, SetupError, StoreError
from ...workbench.credentials import CALLBACK_PATH, CLIENT_PATH, FORM_PATH
from ..problems import problem
from ..wire import header
from .callers import (
    CALLER,
    AuthenticationError,
    Identify,
    identified,
    local_caller,
    log_unidentified,
    require_local,
    single_headers,
    thread_of,
)
from .hosts import refuse
from .throttle import Throttle, TooManyTries

if TYPE_CHECKING:
    from ...store import Store
    from ...workbench.settings import Settings
    from .keys import AccessKeys
    from .tokens import AccessTokens

METADATA = "/.well-known/oauth-protected-resource"
READY = "/readyz"
"""Open to everybody who shows no key; its application sees whether there is a Caller."""
PUBLIC = frozenset({"/livez", READY, CALLBACK_PATH, FORM_PATH, f"{CALLBACK_PATH}/*", f"{CLIENT_PATH}/*"})
"""What the server of a crib has open to everybody: health, and the pages of browsers, which a secret state protects.

The last part of a path may be `*`, for any one."""

_UNQUOTABLE = re.compile(r"[^\x20-\x7e]")
_MAX_TOKEN_CHARS = 16 * 1024
_RETRY_INTERVAL_S = 30.0

_log = logging.getLogger("toolcrib.serve")


class Authenticator:
    """Identifies requests by the bearer keys of *keys*, the tokens of each of *tokens*, or both. Is an `Identify`.

    The thread is the MCP session, else the header `Toolcrib-Thread`, else `default`. Raises SetupError for neither.
    """

    def __init__(self, keys: "AccessKeys | None" = None, tokens: "Iterable[AccessTokens]" = ()) -> None:
        self.keys = keys
        self.issuers: Mapping[str, AccessTokens] = {issuer.issuer: issuer for issuer in tokens}
        if keys is None and not self.issuers:
            raise SetupError("An Authenticator needs keys, or the tokens of an issuer.")

    async def __call__(self, headers: Mapping[str, str]) -> Caller:
        authorization = headers.get("authorization")
        if authorization is None:
            raise AuthenticationError("This needs a key or a token, in the header 'Authorization: Bearer ...'.", None)
        scheme, _, secret = authorization.partition(" ")
        secret = secret.strip(" ")
        if scheme.lower() != "bearer" or not secret or " " in secret or not secret.isascii():
            raise AuthenticationError("The header 'Authorization' has the form 'Bearer KEY'.", "invalid_request")
        if len(secret) > _MAX_TOKEN_CHARS:
            raise AuthenticationError(f"A key or token has at most {_MAX_TOKEN_CHARS} characters.", "invalid_request")
        caller = await self._caller(secret)
        return Caller(caller.principal, thread=thread_of(headers), groups=caller.groups, claims=caller.claims)

    async def _caller(self, secret: str) -> Caller:
        if secret.startswith("toolcrib_") or not self.issuers:
            key = None if self.keys is None else await self.keys.find(secret)
            if key is None:
                raise AuthenticationError("There is no such key, or it has expired or was revoked.")
            return key.caller
        if len(self.issuers) == 1:
            (only,) = self.issuers.values()
            return await only.caller(secret)
        from .tokens import issuer_of

        if (by := self.issuers.get(issuer_of(secret))) is None:
            raise AuthenticationError("This token comes from an issuer that is not known here.")
        return await by.caller(secret)

    def __repr__(self) -> str:
        return f"<Authenticator of {'keys' if self.keys else 'no keys'}, {len(self.issuers)} issuers>"


def configured_identify(settings: "Settings", store: "Store | None") -> Identify:
    """Return who may enter as `[server]` of *settings* has it; the keys are in *store*. Raises SetupError."""
    at = settings.values.server
    if at.issuer is None and (at.audience or at.scopes or at.client_id):
        raise SetupError("'audience', 'scopes' and 'client_id' in [server] are of an 'issuer', which is not set.")
    tokens = [] if at.issuer is None else [_configured_tokens(settings, at.issuer)]
    if not at.keys:
        return Authenticator(tokens=tokens) if tokens else local_caller
    if store is None:
        raise SetupError("'keys' needs the store that they are in: pip install 'toolcrib[serve]'")
    from .keys import AccessKeys

    return Authenticator(AccessKeys(store), tokens)


def _configured_tokens(settings: "Settings", issuer: str) -> "AccessTokens":
    from ...auth import Client
    from .tokens import AccessTokens

    at = settings.values.server
    audience = at.audience or (at.public_base_url and f"{at.public_base_url.rstrip('/')}/mcp")
    if not audience:
        raise SetupError(
            "'issuer' needs what its tokens are for: set 'audience' in [server], or 'public_base_url', whose "
            "'/mcp' it then is."
        )
    return AccessTokens(
        issuer,
        audience,
        scopes=at.scopes,
        groups_claim=at.groups_claim,
        claims={name for rule in settings.rules for name in rule.claims},
        allow=settings.values.net.allow,
        client=Client(at.client_id, at.client_secret or "") if at.client_id else None,
    )


class Authentication:
    """*app*, which gets only requests for whose headers *identify* returns a Caller, and that in their scope.

    Others are answered with 401 and a challenge, 403 where scopes are missing, 429 where too many wrong keys came from
    their address, and 503 while no caller can be identified; a WebSocket is closed. Where *identify* is `local_caller`,
    every request that is not known to come from this computer is answered with 403. A stream that stays open is
    identified again as it goes on, and ends where that fails. Only the paths in *public* are open to everybody. With
    tokens of issuers, it answers for RFC 9728: *base_url* is the public address of the server, else that which a
    request names, and *path* where its MCP endpoint is.
    """

    def __init__(
        self,
        app: ASGIApp,
        identify: Identify,
        *,
        base_url: str | None = None,
        path: str = "/mcp",
        public: Collection[str] = (),
    ) -> None:
        self._app = app
        self._identify = identify
        self._public = frozenset(public)
        self._public_folders = frozenset(of.removesuffix("/*") for of in self._public if of.endswith("/*"))
        self._base_url = None if base_url is None else base_url.rstrip("/")
        self._path = path
        self._issuers = identify.issuers if isinstance(identify, Authenticator) else {}
        whole_path = f"{urlsplit(base_url or '').path.rstrip('/')}{path}"  # as RFC 9728, 3.1 inserts the document's
        self._documents = {METADATA, f"{METADATA}{path}", f"{METADATA}{whole_path}"} if self._issuers else set[str]()
        self._throttle = Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            path = get_route_path(scope)
            if self._is_open(path, scope):
                await self._app(scope, receive, send)
                return
            if path in self._documents:
                await self._metadata(scope)(scope, receive, send)
                return
        try:
            caller = await self._admitted(scope)
        except AuthenticationError as refused:
            await refuse(self._refusal(refused, scope), scope, receive, send)
        except TooManyTries as tries:
            await refuse(_too_many(tries.wait_s), scope, receive, send)
        else:
            scope = {**scope, CALLER: caller}
            await self._app(scope, receive, rechecked(send, partial(self._is_let_in, scope, caller)))

    def _is_open(self, path: str, scope: Scope) -> bool:
        """Return whether everybody may send a request for *path*."""
        folder, _, name = path.rpartition("/")
        if path not in self._public and (name == "" or folder not in self._public_folders):
            return False
        return path != READY or (header(scope, b"authorization") == "" and self._identify is not local_caller)

    async def _admitted(self, scope: Scope) -> Caller:
        """Return who makes a request. Raises AuthenticationError, and TooManyTries."""
        require_local(scope, self._identify)
        key = header(scope, b"authorization")
        if not key:
            return await self._caller(scope)
        address = (scope.get("client") or ("",))[0]
        return await self._throttle.admit(key, address, partial(self._caller, scope))

    async def _caller(self, scope: Scope) -> Caller:
        try:
            return await identified(self._identify, single_headers(scope))
        except AuthenticationError:
            raise
        except StoreError as error:
            _log.error("No caller can be identified now: %s", error)
            raise AuthenticationError("No caller can be identified now. Try again later.", None, status=503) from None
        except Exception as error:
            log_unidentified(error)
            raise AuthenticationError("The caller of this request could not be identified.") from None

    async def _is_let_in(self, scope: Scope, caller: Caller) -> bool:
        try:
            return await self._caller(scope) == caller
        except AuthenticationError as refused:
            return refused.status == 503

    def _refusal(self, refused: AuthenticationError, scope: Scope) -> Response:
        _log.info("A request was refused: %s", refused)
        answer = problem(refused.status, _TITLES.get(refused.status, "Refused"), str(refused))
        if refused.status in (401, 403):
            answer.headers["WWW-Authenticate"] = self._challenge(refused, scope)
        if refused.status == 503:
            answer.headers["Retry-After"] = "5"
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _base(self, scope: Scope) -> str:
        """Return the public address of this application, which may be mounted in another one."""
        path = quote(scope.get("root_path", "").rstrip("/"))
        return self._base_url or f"{scope.get('scheme', 'http')}://{_host(scope)}{path}"

    def _challenge(self, refused: AuthenticationError, scope: Scope) -> str:
        parts = {"realm": "toolcrib"}
        if self._issuers:
            parts["resource_metadata"] = f"{self._base(scope)}{METADATA}{self._path}"
            scopes = refused.scopes or [scope for issuer in self._issuers.values() for scope in issuer.scopes]
            if scopes:
                parts["scope"] = " ".join(scopes)
        if refused.error is not None:
            parts |= {"error": refused.error, "error_description": str(refused)}
        return "Bearer " + ", ".join(f'{name}="{_quotable(value)}"' for name, value in parts.items())

    def _metadata(self, scope: Scope) -> JSONResponse:
        scopes = {scope: None for issuer in self._issuers.values() for scope in issuer.scopes}
        document = {
            "resource": f"{self._base(scope)}{self._path}",
            "authorization_servers": [*self._issuers],
            **({"scopes_supported": [*scopes]} if scopes else {}),
            "bearer_methods_supported": ["header"],
        }
        return JSONResponse(document, headers={"Cache-Control": "no-store", "Access-Control-Allow-Origin": "*"})


def rechecked(send: Send, is_let_in: Callable[[], Awaitable[bool]]) -> Send:
    """Return *send*, which ends an answer that goes on where its caller *is_let_in* no more."""
    checked_at_s, has_ended = time.monotonic(), False

    async def send_checked(message: Message) -> None:
        nonlocal checked_at_s, has_ended
        if has_ended:
            return
        if time.monotonic() - checked_at_s > _RETRY_INTERVAL_S:
            has_ended = not await is_let_in()
            checked_at_s = time.monotonic()
            if has_ended:
                _log.info("An answer was ended, since its caller is not let in any more")
                if message["type"] == "http.response.start":
                    await send({"type": "http.response.start", "status": 401, "headers": []})
                is_socket = message["type"].startswith("websocket.")
                message = _CLOSED if is_socket else {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    return send_checked


_CLOSED: Message = {"type": "websocket.close", "code": 1008}
_TITLES = {400: "Bad request", 401: "Not authenticated", 403: "Not authorized", 503: "Not available"}


def _too_many(wait_s: int) -> Response:
    _log.info("A request was refused: too many wrong keys came from its address")
    detail = f"Too many wrong keys came from this address. Try again in {wait_s} seconds, with the right one."
    answer = problem(429, "Too many wrong keys", detail, retry_after_s=wait_s)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _quotable(text: str) -> str:
    """Return *text* within the quotes of a header, in the characters that RFC 6750 allows there."""
    return _UNQUOTABLE.sub("?", text.replace('"', "'").replace("\\", "/"))


def _host(scope: Scope) -> str:
    host = header(scope, b"host")
    parts = urlsplit(f"//{host}")
    return host if host.isascii() and parts.netloc == host and not {*host} & {*'"\\<> @'} else "localhost"
