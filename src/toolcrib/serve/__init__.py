"""Tools over a socket or a pipe. Needs the extra `toolcrib[serve]`: importing this without it raises SetupError."""

from ..core import SetupError

try:
    from .authorization import callback_app
    from .callers import Identify, local_caller
    from .http import serve_http
    from .mcp import server
    from .stdio import serve_stdio
except ModuleNotFoundError as missing:
    package = (missing.name or "").partition(".")[0]
    if package == "toolcrib":
        raise
    raise SetupError(
        f"Serving tools needs the package '{package}', which is missing: pip install 'toolcrib[serve]'"
    ) from missing

__all__ = ["Identify", "callback_app", "local_caller", "serve_http", "serve_stdio", "server"]
