"""The console as an ASGI application in front of that of a crib: it knows browsers by a cookie, and renders answers.

What it lets in has a Caller in its scope, as what `Authentication` lets in. It goes by the same routes from there.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from secrets import token_urlsafe
from urllib.parse import unquote

from starlette._utils import get_route_path
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core import SetupError, StoreError, ToolcribError
from ..access.authentication import rechecked
from ..access.callers import CALLER, AuthenticationError, Callers, require_local
from ..access.throttle import TooManyTries
from ..wire import encoded_path, header
from .login import CALLBACK, Login
from .sessions import Sessions
from .views import approvals, calls, home, operation, tools
from .visit import STATIC, Answer, Page, Problem, Visit, is_own_request, render

_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' data: blob:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types htmx"
)
PAGES = (*home.PAGES, *approvals.PAGES, *tools.PAGES, *calls.PAGES, *operation.PAGES)
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class Console:
    """The pages of a crib, under the root path of *inner*, its application, which serves MCP at *path*.

    Paths of *routes* are left to those.

    *base_url* is the public address of the server, else that which a request names. Raises SetupError where there is
    no store for its sessions.
    """

    def __init__(
        self,
        callers: Callers,
        inner: ASGIApp,
        *,
        path: str = "/mcp",
        base_url: str | None = None,
        routes: Sequence[BaseRoute] = (),
    ) -> None:
        store = callers.crib.database
        if store is None:
            raise SetupError("The console needs a store for its sessions: url in [store], --store, or Crib(store=...).")
        self._callers = callers
        self._inner = inner
        self._path = path
        self._base_url = None if base_url is None else base_url.rstrip("/")
        self._routes = routes
        self._sessions = Sessions(store)
        self._login = Login(callers.identify, self._sessions)
        self._rooms = {page.path.split("/")[1] for page in PAGES} | {"login", "logout", "static", "console"}

    def takes(self, scope: Scope) -> bool:
        """Return whether the request of *scope* is for a page of the console."""
        if scope["type"] != "http" or any(route.matches(scope)[0] is not Match.NONE for route in self._routes):
            return False
        first = get_route_path(scope).split("/")[1:2]
        return bool(first) and first[0].removesuffix(".json") in self._rooms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        nonce = token_urlsafe(16)
        request = Request(scope, receive)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = _POLICY.format(nonce=nonce)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"  # with "no-referrer", a form would have the origin "null"
                headers["Cross-Origin-Opener-Policy"] = headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        base_url = self._base_url or f"{request.url.scheme}://{header(scope, b'host')}{scope.get('root_path', '')}"
        visit = Visit(request, nonce, base_url.rstrip("/"), self._callers, self._inner, self._path)
        try:
            answer = await self._answer(visit)
        except Problem as problem:
            answer = render(visit, "problem.html", problem.status, problem=problem)
        is_known = visit.session is not None
        sending = rechecked(send_guarded, partial(self._is_let_in, visit)) if is_known else send_guarded
        await answer(scope, receive, sending)

    async def _answer(self, visit: Visit) -> Answer:
        scope, path = visit.request.scope, encoded_path(visit.request.scope)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if path.startswith("/static/"):
            return _static(path.removeprefix("/static/"))
        if method == "POST" and not is_own_request(visit):
            raise Problem(403, "Not from this page", "This was not sent by a page of this console. Open it again.")
        with _refusals():
            require_local(scope, self._callers.identify)
            if path == "/login":
                return await self._login.answer(visit)
            if path == CALLBACK:
                return await self._login.come_back(visit)
            visit.session = await self._login.session(visit)
        if visit.session is None:
            return await self._login.enter(visit)
        scope[CALLER] = visit.session.caller
        if method == "POST":
            await visit.read_own_form()
            if path == "/logout":
                return await self._login.end(visit)
        return await self._page(visit, method, path)

    async def _page(self, visit: Visit, method: str, path: str) -> Answer:
        if method == "GET" and path.endswith(".json"):
            page, names = _find(method, path.removesuffix(".json"))
            if page is not None and page.api is not None:
                return visit.passed_on("GET", page.api.format(*names))
        page, names = _find(method, path)
        if page is not None:
            return await page.handler(visit, *names)
        raise Problem(404, "Not found", "There is no such page.")

    async def _is_let_in(self, visit: Visit) -> bool:
        """Return whether a stream that is still sent goes on."""
        try:
            return await self._login.session(visit) is not None
        except ToolcribError as error:
            return isinstance(error, StoreError)


@contextmanager
def _refusals() -> Generator[None]:
    """Raise Problem where the block finds that a browser is not let in."""
    try:
        yield
    except AuthenticationError as refused:
        raise Problem(refused.status, "Not let in", str(refused)) from None
    except TooManyTries as tries:
        detail = f"Too many wrong keys or logins came from this address. Try again in {tries.wait_s} seconds."
        raise Problem(429, "Too many tries", detail) from None
    except StoreError as error:
        raise Problem(503, "Not available", str(error)) from None


def _find(method: str, path: str) -> tuple[Page | None, Sequence[str]]:
    """Return the page at *path*, in percent-encoding, with the parts of the path that are not fixed."""
    for page in PAGES:
        match = re.fullmatch(page.path.replace("*", "([^/]+)"), path)
        if match is not None and page.method == method:
            return page, match.groups()
    return None, ()


def _static(name: str) -> Response:
    files = {file.name: file for file in STATIC.iterdir()}
    file = files.get(unquote(name))
    if file is None or file.suffix not in _TYPES:
        raise Problem(404, "Not found", "There is no such file.")
    return FileResponse(file, media_type=_TYPES[file.suffix], headers={"Cache-Control": "public, max-age=3600"})
