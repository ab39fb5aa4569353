"""MCP over Streamable HTTP, for clients on this computer.

By default nobody is asked who they are. So nobody else gets in unless the host allows it, and no web page does.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from ipaddress import ip_address

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from ..core import SetupError
from ..workbench import Crib
from .authorization import authorization_routes
from .callers import Identify, local_caller
from .mcp import server

_LOOPBACK = ("127.0.0.1:*", "localhost:*", "[::1]:*")
# For calls that still run when serving ends; then they are cancelled.
_GRACE_S = 1


async def serve_http(
    crib: Crib,
    identify: Identify = local_caller,
    *,
    host: str = "127.0.0.1",
    port: int = 8642,
    path: str = "/mcp",
    allowed_hosts: Sequence[str] = (),
    ready: Callable[[str], None] | None = None,
    name: str = "toolcrib",
    version: str | None = None,
) -> None:
    """Serve the tools of *crib* until the task is cancelled, as `asyncio.run` does at Ctrl-C.

    Starts *crib*, and stops it at the end. Each request runs for the Caller that *identify* returns for its headers.
    Port 0 takes any free one. *ready* is called with the URL as soon as clients can connect.

    With a broker, it has the pages of authorizations, too. There, *identify* is given what the browser sends, such as a
    cookie of your login, and nobody completes what another principal has begun.

    Unless *identify* refuses it, any client that reaches the port may call the tools. So another *host* than loopback
    is refused without *allowed_hosts*, the names by which clients reach it, as in the `Host` header:
    `["crib.example:8642"]`.
    Requests for other names, and from web pages of other origins, are refused (DNS rebinding).

    Raises SetupError where the address cannot be listened on.
    """
    if not _is_loopback(host) and not allowed_hosts:
        raise SetupError(
            f"Serving on {host} lets anybody who reaches this computer call these tools. To allow it, name the "
            f"hosts by which clients reach it: allowed_hosts=['name:{port}']. Otherwise serve on 127.0.0.1."
        )
    hosts = [*_LOOPBACK, *allowed_hosts]
    app = server(crib, identify, name=name, version=version).streamable_http_app(
        streamable_http_path=path,
        transport_security=TransportSecuritySettings(
            allowed_hosts=hosts,
            allowed_origins=[f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")],
        ),
    )
    with _listening(host, port) as listener:
        base_url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        if crib.options["broker"] is not None:
            app.routes.extend(authorization_routes(crib, base_url, identify))
            app.router.redirect_slashes = False  # it would lead to whatever host the request names
        async with crib, _serving(app, listener) as serving:
            if ready is not None:
                ready(f"{base_url}{path}")
            await asyncio.shield(serving)


@asynccontextmanager
async def _serving(app: Starlette, listener: socket.socket) -> AsyncGenerator[asyncio.Task[None]]:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # A request is only ever cancelled when serving ends, which is no error to log.
        with suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    web = _Web(
        uvicorn.Config(answer, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=_GRACE_S)
    )
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    try:
        # Ended by us and not by uvicorn, which would wait for streams that clients of the older era keep open.
        async with app.router.lifespan_context(app):
            yield serving
    finally:
        web.should_exit = True
        await serving


class _Web(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # signals are the host's, who cancels our task


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise SetupError(
            f"Cannot listen on {host}, port {port}: {error}. Choose another port; 0 takes any free one."
        ) from None
    # Connections inherit it. Without it, the body of an answer waits 40 ms for the client to acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    return listener
