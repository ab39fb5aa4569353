"""The application of a crib on a socket: for clients on this computer, or for those that `identify` knows.

By default callers are not identified: then only this computer gets in, and no web page does.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from ..core import SetupError
from ..workbench import Crib, Role
from .access.authorization import name_pages
from .access.callers import DEFAULT_WORKBENCHES, Identify, local_caller
from .access.hosts import is_loopback
from .app import END_TIMEOUT_S, GRACE_S, Application, Health, asgi_app
from .connections import Web

_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""By which address a server on all addresses is reached from its own computer: "all" is none to connect to."""


async def serve_http(
    crib: Crib,
    identify: Identify = local_caller,
    *,
    host: str = "127.0.0.1",
    port: int = 8642,
    listener: socket.socket | None = None,
    path: str = "/mcp",
    base_url: str | None = None,
    allowed_hosts: Sequence[str] = (),
    routes: Sequence[BaseRoute] = (),
    grace_s: float = GRACE_S,
    workbenches: int = DEFAULT_WORKBENCHES,
    asks: bool = True,
    console: bool = False,
    roles: Sequence[Role] = (),
    ready: Callable[[str], None] | None = None,
    name: str = "toolcrib",
    version: str | None = None,
) -> None:
    """Serve the tools of *crib* until the task is cancelled, as `asyncio.run` does at Ctrl-C.

    Serves what `asgi_app` returns, MCP at *path*. Starts *crib*, and stops it at the end; calls that run then have
    *grace_s* seconds. Each request runs for the Caller that *identify* returns for its headers. At most so many
    *workbenches* of callers are open. Port 0 takes any free one. *ready* is called with the URL of MCP as soon as
    clients can connect.

    With a broker, it has the pages of authorizations, too. There, *identify* is given what the browser sends, such as a
    cookie of your login, and only the principal who has begun an authorization completes it. (An
    Authenticator is not asked there, since browsers send no keys.)

    *listener* is a socket that listens already, as where several processes share one: then *host* is only shown. Where
    they do, a request may come to any of them, so the server *asks* clients of 2025-11-25 and before nothing.

    Without *identify*, any client that reaches the port may call the tools. So then another *host* than loopback is
    refused, and so are *allowed_hosts*, the names by which others reach it, as in the `Host` header:
    `["crib.example:8642"]`. That of *base_url*, its public address, is one of them. Requests for other names, and from
    web pages of other origins, are refused (DNS rebinding).

    Raises SetupError where the address cannot be listened on.
    """
    address = host if listener is None else listener.getsockname()[0]
    if identify is local_caller and not all(map(is_loopback, (address, *map(_name, allowed_hosts)))):
        raise SetupError(
            f"Serving {f'on {address}' if not allowed_hosts else 'under these names'} lets every computer that "
            "reaches this one call these tools. Identify who calls, by keys or the tokens of an issuer. Otherwise "
            "serve on 127.0.0.1."
        )
    with listening(host, port) if listener is None else listener as listener:
        own_url = url_of(host, listener)
        app = asgi_app(
            crib,
            identify,
            path=path,
            base_url=base_url,
            allowed_hosts=allowed_hosts,
            routes=routes,
            grace_s=grace_s,
            workbenches=workbenches,
            asks=asks,
            console=console,
            roles=roles,
            name=name,
            version=version,
        )
        name_pages(crib, base_url or own_url)
        async with _serving(app, listener) as serving:
            if ready is not None:
                ready(f"{own_url}{path}")
            await asyncio.shield(serving)


async def serve_health(
    crib: Crib, *, port: int, grace_s: float = GRACE_S, ready: Callable[[str], None] | None = None
) -> None:
    """Start *crib*, which runs tasks, and answer `Health` on loopback until the task is cancelled."""
    with listening("127.0.0.1", port) as listener:
        async with _serving(Health(crib, grace_s), listener) as serving:
            if ready is not None:
                ready(f"http://127.0.0.1:{listener.getsockname()[1]}")
            await asyncio.shield(serving)


@asynccontextmanager
async def _serving(app: Application | Health, listener: socket.socket) -> AsyncGenerator[asyncio.Task[None]]:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # A request is only ever cancelled when serving ends, which is no error to log.
        with suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    web = Web(answer, grace_s=END_TIMEOUT_S)
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    try:
        # Ended by us and not by uvicorn, which would wait for streams that clients of the older era keep open.
        async with app.lifespan():
            yield serving
    finally:
        web.should_exit = True
        await serving


def _name(host: str) -> str:
    """Return the name in *host*, which may have a port."""
    return urlsplit(f"//{host.removesuffix(':*')}").hostname or host


def url_of(host: str, listener: socket.socket) -> str:
    """Return the address of a server on *host* and *listener*, as its own computer reaches it."""
    address = _LOOPBACK_OF.get(host, host)
    return f"http://{f'[{address}]' if ':' in address else address}:{listener.getsockname()[1]}"


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there. Raises SetupError."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise SetupError(
            f"Cannot listen on {host}, port {port}: {error}. Choose another port; 0 takes any free one."
        ) from None
    # Connections inherit it. Without it, the body of an answer waits 40 ms for the client to acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    return listener
