"""Tools over a socket or a pipe. Needs the extra `toolcrib[serve]`: importing this without it raises SetupError."""

from ..machinery import raise_missing_extra

try:
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
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "Serving tools needs", "serve")

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
