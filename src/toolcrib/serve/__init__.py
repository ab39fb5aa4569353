"""Tools over a socket or a pipe. Needs the extra `toolcrib[serve]`: importing this without it raises SetupError."""

from typing import TYPE_CHECKING

from ..machinery import defer_package, lazy_names, raise_missing_extra

try:
    for _package in ("starlette", "mcp", "mcp.server", "uvicorn"):
        defer_package(_package)
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "Serving tools needs", "serve")

if TYPE_CHECKING:
    from .access.authentication import Authentication, Authenticator
    from .access.authorization import callback_app
    from .access.callers import AuthenticationError, Identify, local_caller
    from .app import Application, asgi_app
    from .calls import call_routes, metrics_route
    from .http import serve_http
    from .mcp.client import Form, Roots, Sample, ask_client, client_can, close_stream
    from .mcp.server import server
    from .problems import problem
    from .stdio import serve_stdio

__all__ = [
    "Application",
    "Authentication",
    "AuthenticationError",
    "Authenticator",
    "Form",
    "Identify",
    "Roots",
    "Sample",
    "asgi_app",
    "ask_client",
    "call_routes",
    "callback_app",
    "client_can",
    "close_stream",
    "local_caller",
    "metrics_route",
    "problem",
    "serve_http",
    "serve_stdio",
    "server",
]

# A server over stdio needs no HTTP, and programs that only define tools for a server need neither.
__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Authentication", "Authenticator"), ".access.authentication"),
        **dict.fromkeys(("AuthenticationError", "Identify", "local_caller"), ".access.callers"),
        **dict.fromkeys(("Application", "asgi_app"), ".app"),
        **dict.fromkeys(("call_routes", "metrics_route"), ".calls"),
        **dict.fromkeys(("Form", "Roots", "Sample", "ask_client", "client_can", "close_stream"), ".mcp.client"),
        "callback_app": ".access.authorization",
        "problem": ".problems",
        "serve_http": ".http",
        "serve_stdio": ".stdio",
        "server": ".mcp.server",
    },
)
