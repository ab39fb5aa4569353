"""What is used of the official SDK that it does not call public: all of it, and nothing else, is named here.

None of these members has a public counterpart. Where a release of the SDK has one no longer, no server is made, and the
error names it.
"""

import inspect
from importlib.metadata import version
from typing import Any

from mcp.server.session import ServerSession
from mcp.server.streamable_http import EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from ..core import SetupError
from .protocol.connection import Connection
from .protocol.core import Exchange
from .protocol.session import Session

MEMBERS: tuple[tuple[type[Any], str], ...] = (
    (ServerSession, "_connection"),
    (StreamableHTTPServerTransport, "_event_store"),
    (StreamableHTTPServerTransport, "_requests_in_flight"),
    (StreamableHTTPSessionManager, "_server_instances"),
    (StreamableHTTPSessionManager, "_session_owners"),
    (StreamableHTTPSessionManager, "_admit_session"),
)
"""The last three are of the class that `mcp_streams.Sessions` extends."""


def require_members() -> None:
    """Raise SetupError where the SDK lacks one of MEMBERS: a method, or what its instances are made with."""
    for of, name in MEMBERS:
        begin = inspect.unwrap(of.__init__)
        # Another library's, around that of the SDK, does not show what that makes.
        if not hasattr(of, name) and begin.__module__ == of.__module__ and name not in begin.__code__.co_names:
            raise SetupError(
                f"The MCP SDK {version('mcp')} has no '{of.__name__}.{name}', which a server needs. Install a version "
                "that Toolcrib was tested with: pip install 'toolcrib[serve]'."
            )


def connection_of(context: Any) -> Connection:
    """Return the connection that the request of *context* came by."""
    if isinstance(context, Exchange):
        return context.connection  # type: ignore[no-any-return]
    sdk = context.session._connection
    if (connection := sdk.state.get(_KEY)) is None:
        connection = sdk.state[_KEY] = Connection(Session(), None)  # type: ignore[arg-type]
        connection.send_notification = context.session.send_notification  # type: ignore[method-assign]
        sdk.exit_stack.push_async_callback(connection.close)
    return connection  # type: ignore[no-any-return]


_KEY = "toolcrib/connection"


def event_store_of(transport: StreamableHTTPServerTransport) -> EventStore | None:
    return transport._event_store  # pyright: ignore[reportPrivateUsage]


def has_requests(transport: StreamableHTTPServerTransport) -> bool:
    """Return whether any request of this session is answered now."""
    return bool(transport._requests_in_flight)  # pyright: ignore[reportPrivateUsage]
