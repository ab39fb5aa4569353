"""The whole server of a crib as one ASGI application: MCP, the HTTP API, health, and the pages of authorizations.

It starts with the lifespan of its server, or where it is mounted in another application, which does not pass that on,
with the first request; then it ends with the event loop.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette._utils import get_route_path
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..machinery import log_failure, redacted_data
from ..workbench import Crib, Role
from .access.authentication import PUBLIC, Authentication
from .access.authorization import authorization_routes, name_pages
from .access.callers import CALLER, DEFAULT_WORKBENCHES, Callers, Identify, local_caller
from .access.hosts import Guarded, Hosts, refuse
from .api.admin import source_states
from .api.routes import api_routes
from .calls import recorded_routes
from .mcp.app import ApprovalApp
from .mcp.server import McpServer
from .problems import Refused, http_problem, problem, refused, unexpected
from .wire import encoded_path

if TYPE_CHECKING:
    from .console import Console

GRACE_S = 10.0
"""How long calls may go on when the application is stopped."""
END_TIMEOUT_S = 1
"""The bound of each last step of a stop: the calls that were cancelled, then the answers on their way."""

_log = logging.getLogger("toolcrib")


def asgi_app(
    crib: Crib,
    identify: Identify = local_caller,
    *,
    path: str = "/mcp",
    base_url: str | None = None,
    allowed_hosts: Sequence[str] = (),
    routes: Sequence[BaseRoute] = (),
    grace_s: float = GRACE_S,
    workbenches: int = DEFAULT_WORKBENCHES,
    asks: bool = True,
    console: bool = False,
    roles: Sequence[Role] = (),
    name: str = "toolcrib",
    version: str | None = None,
) -> "Application":
    """Return the ASGI application that serves *crib*: MCP at *path*, `/api`, `/livez`, `/readyz`, and *routes*.

    For any ASGI server, or mounted: `app.mount("/crib", asgi_app(crib))`. It starts *crib*, and stops it at the end:
    calls that run then have *grace_s* seconds, and are cancelled. Each request runs for the Caller that *identify*
    returns for its headers, and is refused where it raises. With a broker, it has the pages of authorizations, with a
    call log `/api/calls`, and with Metrics `/metrics`. *base_url* is the public address of this application.
    At most so many *workbenches* of callers are open, and a tenth of them of one principal. Unless it
    *asks*, clients of 2025-11-25 and before are asked nothing, as where their answers may come to another process.

    With *console*, it has pages for people at `/`; that needs a store. *routes* at the same paths win. *roles* open
    more to their members than their own calls and keys.

    Requests for other hosts than loopback, that of *base_url* and *allowed_hosts*, as in the `Host` header
    (`"crib.example:8642"`; `:*` for any port), and from web pages of other origins, are refused (DNS rebinding).
    """
    # A public name without identification would let every computer in.
    public = [] if base_url is None or identify is local_caller else [urlsplit(base_url).netloc]
    hosts = Hosts([*allowed_hosts, *public])
    callers = Callers(crib, identify, workbenches, roles)
    return Application(callers, path, base_url, hosts, routes, grace_s, asks, console, name, version)


class Application:
    """What `asgi_app` returns. `lifespan()` is for hosts that run it themselves, as an async context manager."""

    def __init__(
        self,
        callers: Callers,
        path: str,
        base_url: str | None,
        hosts: Hosts,
        routes: Sequence[BaseRoute],
        grace_s: float,
        asks: bool,
        has_console: bool,
        name: str,
        version: str | None,
    ) -> None:
        self._crib = crib = callers.crib
        identify = callers.identify
        self._hosts = hosts
        self._path = path
        self._grace_s = grace_s
        self._asks = asks
        self._new_server = partial(McpServer, callers, name, version)
        self._mcp: ASGIApp | None = None
        self._living: asyncio.Task[None] | None = None
        self._starting: asyncio.Event | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        pages = () if crib.options["broker"] is None else authorization_routes(crib, identify)
        if base_url is not None:
            name_pages(crib, base_url)
        health = [Route("/livez", _alive), Route("/readyz", self._ready)]
        self._web = Starlette(
            routes=[*api_routes(callers), *recorded_routes(crib, identify, callers.may), *health, *routes, *pages],
            exception_handlers={Refused: refused, HTTPException: http_problem, Exception: unexpected},
            lifespan=lambda _: self.lifespan(),
        )
        self._entered = Authentication(self._enter, identify, base_url=base_url, path=path, public=PUBLIC)
        self._console: Console | None = None
        self._app = ApprovalApp(base_url) if has_console else None
        if has_console:
            from .console import Console as Pages  # its templates need Jinja

            self._console = Pages(callers, self._enter, path=path, base_url=base_url, routes=routes)
        self._web.router.redirect_slashes = False  # it would lead to whatever host the request names

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Start the crib, and stop it at the end. Raises SetupError."""
        # Hosts are not checked there: that is done here, for all.
        mcp_server = self._new_server()
        mcp_server.handlers.app = self._app
        sessions = mcp_server.sessions(can_ask=self._asks)
        starting = self._starting = self._starting or asyncio.Event()
        try:
            async with self._crib, mcp_server.handlers.running(), sessions.run():
                self._mcp, self._is_stopping = mcp_server.stateless(sessions), False
                starting.set()
                try:
                    yield
                finally:
                    self._is_stopping = True
                    await self._end_calls()
        finally:
            starting.set()
            self._starting = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._web(scope, receive, send)
        elif (refusal := self._hosts.refusal(scope)) is not None:
            await refuse(refusal, scope, receive, send)
        elif self._console is not None and self._console.takes(scope):
            await self._console(scope, receive, send)
        else:
            await self._entered(scope, receive, send)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = get_route_path(scope)
        if path != "/livez" and self._mcp is None and not self._is_stopping:
            await self._start()
        if (self._is_stopping or self._mcp is None) and path not in ("/livez", "/readyz"):
            await refuse(_stopping(), scope, receive, send)
        elif scope.get("method") == "POST" and not _listens(scope):
            await self._answer_work(path, scope, receive, send)
        else:
            await self._answer(path, scope, receive, send)

    async def _answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        if path == self._path and self._mcp is not None and scope["type"] == "http":
            await self._mcp(scope, receive, send)
            return
        if path.startswith("/api/tools/"):
            scope = {**scope, "path": scope.get("root_path", "") + encoded_path(scope)}
        await self._web(scope, receive, send)

    async def _answer_work(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what a stop waits for, and cancels when it takes too long."""
        task = asyncio.current_task()
        assert task is not None
        is_begun = False

        async def note(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        self._running.add(task)
        try:
            await self._answer(path, scope, receive, note)
        except asyncio.CancelledError:
            if not self._is_stopping or is_begun:
                raise
            task.uncancel()
            detail = "The server was stopped before this was done: it was cancelled."
            await problem(503, "Cancelled", detail, code="cancelled", retry="later")(scope, receive, send)
        finally:
            self._running.discard(task)

    async def _end_calls(self) -> None:
        """Wait until no call runs, and no task: what is not over in time, or when this is cancelled, is cancelled."""
        try:
            draining = asyncio.create_task(self._crib.drain(self._grace_s))
            await asyncio.wait({draining, *self._running}, timeout=self._grace_s)
        finally:
            if late := set(self._running):
                _log.warning("%d calls did not end within %g s, and are cancelled", len(late), self._grace_s)
                for task in late:
                    task.cancel()
                await asyncio.wait(late, timeout=END_TIMEOUT_S)

    # Mounted in another application

    async def _start(self) -> None:
        """Wait until the application runs, or could not be started."""
        if self._starting is None:
            self._starting = asyncio.Event()
            self._living = asyncio.create_task(self._live())
        await self._starting.wait()

    async def _live(self) -> None:
        try:
            async with self.lifespan():
                await asyncio.Event().wait()  # the end of the event loop cancels this task
        except Exception as error:
            log_failure("The application could not be started, or has failed", error, self._crib.redaction)

    # Health

    async def _ready(self, request: Request) -> Response:
        """Return whether requests are answered, and for callers which sources run. Reasons are in the log."""
        is_ready = self._mcp is not None and not self._is_stopping
        return _readiness(self._crib, is_ready=is_ready, is_detailed=CALLER in request.scope)


class Health:
    """The application of a crib that runs tasks and serves no tools: `/livez`, `/readyz`, and with Metrics `/metrics`.

    For this computer alone.
    """

    def __init__(self, crib: Crib, grace_s: float) -> None:
        self._crib = crib
        self._grace_s = grace_s
        self._is_ready = False
        metrics = [route for route in recorded_routes(crib, local_caller) if route.path == "/metrics"]
        self._web = Guarded(Starlette(routes=[Route("/livez", _alive), Route("/readyz", self._ready), *metrics]))

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Start the crib, and drain and stop it at the end. Raises SetupError."""
        async with self._crib:
            self._is_ready = True
            try:
                yield
            finally:
                self._is_ready = False
                await self._crib.drain(self._grace_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._web(scope, receive, send)

    async def _ready(self, _: Request) -> Response:
        return _readiness(self._crib, is_ready=self._is_ready, is_detailed=True)


def _readiness(crib: Crib, *, is_ready: bool, is_detailed: bool) -> Response:
    state: dict[str, Any] = {"status": "ready" if is_ready else "not ready"}
    if is_detailed:
        sources = [{"name": source["name"], "state": source["state"]} for source in source_states(crib)]
        state |= {"tools": len(crib.registry), "sources": redacted_data(sources, crib.redaction)}
        if crib.unclaimed_tasks:
            state["unclaimed_tasks"] = crib.unclaimed_tasks
    return JSONResponse(state, 200 if is_ready else 503)


async def _alive(_: Request) -> Response:
    return JSONResponse({"status": "alive"})


def _stopping() -> Response:
    return problem(503, "Not running", "The server is stopping, or could not start. Try again later.", retry_after_s=1)


def _listens(scope: Scope) -> bool:
    """Return whether this is a stream of notices, which lasts until one side ends it."""
    return (b"mcp-method", b"subscriptions/listen") in scope["headers"]
