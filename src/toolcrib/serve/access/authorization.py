"""The web application of authorizations: what providers send people back to, and a form for keys and secrets.

It has no session of its own. A page is found by a state that cannot be guessed and is used once; `identify` binds it
to the caller that the host knows to be at the browser. Where browsers do not say whose they are, a code does, which is
shown where the authorization was asked for: a link alone, sent to another person, leads to nothing (RFC 9700, 4.7). The
browser in which it was entered keeps a cookie, without which no provider's answer is taken.
"""

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from html import escape
from secrets import token_urlsafe
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ...core import Caller, SetupError, ToolcribError, ToolError
from ...machinery import escaped, log_failure
from ...workbench import Crib
from ...workbench.credentials import CALLBACK_PATH, CLIENT_PATH, FORM_PATH
from ..problems import problem
from ..wire import TooLarge, read_body
from .authentication import Authenticator
from .callers import AuthenticationError, Identify, identified, local_caller, log_unidentified, single_headers
from .hosts import is_loopback
from .throttle import Throttle, TooManyTries

if TYPE_CHECKING:
    from ...auth import Authorization, CredentialBroker

_COOKIE = "toolcrib_form"
_MAX_FORM_BYTES = 64 * 1024
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    # The state is in the address. With "no-referrer", the form of a browser would have the origin "null".
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1>{body}</body></html>
"""
_FORM = """{texts}<form method="post"><input type="hidden" name="token" value="{token}">
{fields}<p><button>{button}</button></p></form>"""
_FIELD = """<p><label>{label} <input type="{kind}" name="{name}" autocomplete="off" required autofocus></label></p>
"""
_ASKED = """<p>It is for <strong>{principal}</strong>, whose tools will use it. Go on only if you asked for this
yourself: enter the code that is shown where you asked. If another person sent you this address or the code, close this
page, or they will use your account.</p>"""
_DONE = "<p>You can close this window, and go on.</p>"

_Page = Callable[[Request], Awaitable[Response]]


def callback_app(crib: Crib, identify: Identify | None = None) -> Starlette:
    """Return an ASGI application with `/auth/callback/PROVIDER` and `/auth/secret`, for the CredentialBroker of *crib*.

    Under `/auth/client.json/` it describes this program to servers that take an address there as the id of a client.
    To be mounted at the root of an application, after its other routes: `app.mount("/", callback_app(crib))`. With
    *identify*, as of `server`, only the principal who has begun an authorization completes it; give it wherever
    several people use the crib. With `browser_codes` of the broker, the code of an authorization is asked for.
    """
    pages = _Pages(crib, identify)
    app = Starlette(
        routes=[
            _route(f"{CALLBACK_PATH}/{{provider}}", pages.callback, "GET"),
            _route(CALLBACK_PATH, pages.callback, "GET"),  # for a provider with a `redirect_uri` of its own
            _route(FORM_PATH, pages.form, "GET"),
            _route(FORM_PATH, pages.submit, "POST"),
            Route(f"{CLIENT_PATH}/{{provider}}", pages.client),
        ]
    )
    app.router.redirect_slashes = False  # it would lead to whatever host the request names
    return app


def authorization_routes(crib: Crib, identify: Identify) -> Sequence[BaseRoute]:
    """Return the routes of `callback_app` for a server. None for a broker of another kind, which has pages of its own.

    Who calls is also who must be at the browser, but where all are the one person at this computer. A browser sends no
    key or token, so where callers have these, they are shown a code to enter.
    """
    if not crib.credentials.has_broker:
        return ()
    if isinstance(identify, Authenticator):
        broker = crib.credentials.broker
        broker.browser_codes = True
        if broker.redirect_uri is not None and broker.redirect_uri.endswith(CALLBACK_PATH):
            broker.form_uri = broker.form_uri or f"{broker.redirect_uri.removesuffix(CALLBACK_PATH)}{FORM_PATH}"
    at_browser = None if identify is local_caller or isinstance(identify, Authenticator) else identify
    return callback_app(crib, at_browser).routes


def name_pages(crib: Crib, base_url: str) -> None:
    """Have the broker of *crib* send people to the pages of a server at *base_url*, unless it has an address."""
    base_url = base_url.rstrip("/")
    parts = urlsplit(base_url)

    def name(broker: "CredentialBroker") -> None:
        broker.redirect_uri = broker.redirect_uri or f"{base_url}{CALLBACK_PATH}"
        broker.form_uri = broker.form_uri or f"{base_url}{FORM_PATH}"
        if parts.scheme == "https" and not is_loopback(parts.hostname or ""):  # others could not read it
            broker.client_document_url = broker.client_document_url or f"{base_url}{CLIENT_PATH}/{{provider}}"

    if crib.credentials.has_broker:
        crib.credentials.configure(name)


class _Refused(ToolcribError):
    """A page that says no: *title*, the text, and the status."""

    def __init__(self, title: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.title = title
        self.status = status


class _Pages:
    def __init__(self, crib: Crib, identify: Identify | None) -> None:
        self._crib = crib
        self._identify = identify
        self._tries = Throttle()

    async def callback(self, request: Request) -> Response:
        caller = await self._caller(request)
        if self._broker.browser_codes:
            question = await self._broker.find(request.query_params.get("state", ""), caller=caller)
            mark = request.cookies.get(self._cookie_of(question, request), "")
            if not hmac.compare_digest(mark.encode(), question.browser_mark.encode()):
                text = "The code was not entered in this browser. Open the address that is shown where you asked."
                raise _Refused("Not granted", text, 403)
        # Not `request.url`, which is made of the header `Host`; and of the query what was read of it above.
        url = f"{quote(request.scope['path'])}?{urlencode(request.query_params)}"
        await self._crib.complete(url, caller=caller)
        return _page("Granted", _DONE)

    async def form(self, request: Request) -> Response:
        question = await self._found(request)
        token, has_secret = token_urlsafe(32), question.owner.handler != "oauth2"
        text, label = self._words(question)
        texts, fields = f"<p>{escape(text)}</p>", ""
        if self._broker.browser_codes:
            principal = escaped(question.owner.principal, invisible=True)
            texts += _ASKED.format(principal=escape(principal))
            fields += _FIELD.format(label="Code", kind="text", name="code")
        if has_secret:
            fields += _FIELD.format(label=escape(label), kind="password", name="secret")
        title, button = ("A secret is needed", "Save") if has_secret else ("Access is needed", "Continue")
        response = _page(title, _FORM.format(texts=texts, fields=fields, token=token, button=button))
        path, secure = request.scope["path"], self._is_secure(request)
        response.set_cookie(_COOKIE, token, path=path, httponly=True, samesite="strict", secure=secure)
        return response

    async def submit(self, request: Request) -> Response:
        from ...auth import Grant

        question = await self._found(request)
        fields = await _fields(request)
        token, expected = fields.get("token", ""), request.cookies.get(_COOKIE, "")
        if not expected or not hmac.compare_digest(token.encode(), expected.encode()):
            raise _Refused(
                "Not saved", "This form was opened in another browser, or has expired. Open the address again.", 403
            )
        if self._broker.browser_codes:
            await self._require_code(question, fields.get("code", ""))
        if question.owner.handler == "oauth2":
            return self._continued(question, request)
        secret = fields.get("secret", "").strip()
        if not secret:
            raise _Refused("Not saved", "Nothing was entered. Go back, and try again.")
        _, label = self._words(question)
        if question.owner.handler in ("basic", "keypair") and ":" not in secret:
            raise _Refused("Not saved", f"It has the form {label}, with a colon between them. Go back, and try again.")
        try:
            Grant(secret).require_usable(question.owner.handler)
        except SetupError as error:
            raise _Refused("Not saved", str(error)) from None
        await self._crib.credentials.save(question.owner, Grant(secret), asked=question)
        return _page("Saved", _DONE)

    async def _require_code(self, question: "Authorization", text: str) -> None:
        code = re.sub("[^A-Z]", "", text.upper())
        try:
            async with self._tries.trying(question.id):
                if not hmac.compare_digest(code, question.code.replace("-", "")):
                    raise AuthenticationError(
                        "This is not the code that is shown where you asked. Go back for another."
                    )
        except AuthenticationError as error:
            raise _Refused("Not granted", str(error), 403) from None
        except TooManyTries as tries:
            text = f"Too many wrong codes were entered. Try again in {tries.wait_s} seconds."
            raise _Refused("Not granted", text, 429) from None

    def _continued(self, question: "Authorization", request: Request) -> Response:
        """Return a page with the way to the provider: a redirect after a form would be held to `form-action`."""
        title = escape(self._title(question))
        response = _page("Continue", f'<p><a href="{escape(question.url)}">Continue to {title}</a></p>')
        name, secure = self._cookie_of(question, request), self._is_secure(request)
        response.set_cookie(name, question.browser_mark, 600, httponly=True, samesite="lax", secure=secure)
        return response

    def _cookie_of(self, question: "Authorization", request: Request) -> str:
        """Return the name of the cookie for *question*; over https, one that no other host can set."""
        return f"{'__Host-' if self._is_secure(request) else ''}toolcrib_{question.id}"

    def _is_secure(self, request: Request) -> bool:
        # Behind a proxy, it is the public address that tells how the browser came here.
        return "https" in (request.scope["scheme"], (self._broker.form_uri or "").partition(":")[0])

    async def client(self, request: Request) -> Response:
        try:
            document = self._broker.client_document(request.path_params["provider"])
        except SetupError:
            return problem(
                404, "Not found", "This server has no client document, since it has no public https address."
            )
        return JSONResponse(document, headers={"Cache-Control": "max-age=3600"})

    @property
    def _broker(self) -> "CredentialBroker":
        return self._crib.credentials.broker

    async def _found(self, request: Request) -> "Authorization":
        question = await self._broker.find(request.query_params.get("state", ""), caller=await self._caller(request))
        if question.owner.handler == "oauth2" and not self._broker.browser_codes:
            raise _Refused("Not found", "This is granted at the provider, and not here.", 404)
        return question

    async def _caller(self, request: Request) -> Caller | None:
        if self._identify is None:
            return None
        try:
            return await identified(self._identify, single_headers(request.scope))
        except Exception as error:
            log_unidentified(error, "No caller could be identified at a browser")
            raise _Refused("Not logged in", "This browser is not logged in here. Log in first.", 401) from None

    def _title(self, question: "Authorization") -> str:
        entry = self._broker.providers.get(question.owner.provider)
        return question.owner.provider if entry is None else entry.title

    def _words(self, found: "Authorization") -> tuple[str, str]:
        name, title = found.owner.provider, self._title(found)
        match found.owner.handler:
            case "oauth2":
                return f"Tools ask for access to your account at {title}.", ""
            case "basic":
                return f"Tools need your user name and password for {title}.", "user:password"
            case "keypair":
                return f"Tools need your key and its secret for {title}.", "key:secret"
            case "secret":
                return f"Tools need the secret {name}.", name
            case _:
                return f"Tools need your key for {title}.", "Key"


def _route(path: str, page: _Page, method: str) -> Route:
    route = Route(path, _with_errors(page), methods=[method])
    # Not HEAD, which comes with GET: what only looks whether an address works must not use it up.
    route.methods = {method}
    return route


def _with_errors(page: _Page) -> _Page:
    """Return *page*, whose errors are pages: those that are for the person who came, with their text."""

    @wraps(page)
    async def answer(request: Request) -> Response:
        from ...auth import CallbackError

        try:
            return await page(request)
        except _Refused as refused:
            return _error_page(refused.title, str(refused), refused.status)
        except CallbackError as error:
            return _error_page("Not granted", str(error), 403 if error.reason == "foreign" else 400)
        except (ToolcribError, ToolError) as error:
            log_failure("An authorization could not be completed", error, None)
            return _error_page("Not granted", "This cannot be completed now. Try again later.", 503)

    return answer


async def _fields(request: Request) -> Mapping[str, str]:
    try:
        body = await read_body(request.receive, _MAX_FORM_BYTES)
        return {name: values[-1] for name, values in parse_qs(body.decode()).items()}
    except TooLarge:
        raise _Refused("Not saved", "That is too large.", 413) from None
    except (ValueError, EOFError):
        raise _Refused("Not saved", "That is not a form.") from None


def _error_page(title: str, text: str, status: int) -> Response:
    return _page(title, f"<p>{escape(text)}</p>", status)


def _page(title: str, body: str, status: int = 200) -> Response:
    return HTMLResponse(_PAGE.format(title=escape(title), body=body), status, _HEADERS)
