"""The same server as the official SDK answers it: what ours is compared with."""

from functools import partial
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions

from toolcrib import Crib
from toolcrib.serve import local_caller, server
from toolcrib.serve.mcp.sealing import sealing
from toolcrib.serve.mcp.server import McpServer
from toolcrib.serve.protocol.connection import Connection
from toolcrib.serve.protocol.core import Exchange
from toolcrib.serve.protocol.session import Session

NAME = "crib"


def both(crib: Crib) -> tuple[McpServer, Server[Any]]:
    """Our server of *crib*, and the SDK's with the same handlers."""
    own = server(crib, local_caller, name=NAME, version="1")
    sdk = _Sdk(
        NAME,
        version="1",
        lifespan=lambda _: own.handlers.running(),
        get_tool_input_schema=lambda tool: (
            getattr(crib.registry.find(tool), "spec", None) and crib.registry.find(tool).spec.input_schema
        ),  # type: ignore[union-attr]
    )
    for method, (model, handler) in own.handlers.methods().items():
        sdk.add_request_handler(method, model, partial(_answer, handler))
    sdk.middleware.append(sealing(crib, NAME))
    return own, sdk


class _Sdk(Server[Any]):
    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(True, True, True), *args, **kwargs)


async def _answer(handler: Any, context: ServerRequestContext[Any, Any], params: Any) -> Any:
    session: Any = context.session
    state = session._connection.state
    connection = state.setdefault("connection", Connection(Session(), cast(Any, None)))
    exchange = Exchange(
        context.method,
        context.params or {},
        cast(Any, context.request_id),
        context.protocol_version,
        cast(Any, context.meta or {}),
        session,
        context.request,
        connection,
        context.lifespan_context,
    )
    return await handler(exchange, params)
