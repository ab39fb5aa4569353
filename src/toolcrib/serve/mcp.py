"""A crib as an MCP server: it lists its tools and runs calls for whoever is identified, and notifies of changes.

There is no wire here, as the SDK has it, and no shape of a tool or a result: those are in `formats.mcp`.
"""

import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as wire
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette

from ..core import Call, ToolError
from ..formats import mcp as form
from ..workbench import Crib, Workbench
from .callers import Callers, Identify, local_caller
from .changes import Changes, following
from .messages import ExactMessages, arguments_of

_Context = ServerRequestContext[Changes, Any]

_log = logging.getLogger("toolcrib")


def server(
    crib: Crib, identify: Identify = local_caller, *, name: str = "toolcrib", version: str | None = None
) -> Server[Any]:
    """An MCP server of the tools of *crib*, which is started at the first call, and is for the caller to stop.

    Each request runs for the Caller that *identify* returns for its HTTP headers; a request for which it raises is
    refused. Clients are notified when the list of tools changes, while the server runs.

    Results are as `toolcrib.formats.mcp.call_result` makes them. *version* is Toolcrib's own unless given.
    """
    from .. import __version__

    callers = Callers(crib, identify)

    async def list_tools(context: _Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        bench = await _bench(callers, context)
        # Under their own names, whatever these are: MCP advises which to use, and forbids none.
        return wire.ListToolsResult(
            tools=[wire.Tool.model_validate(form.tool_definition(spec)) for spec in bench.specs()]
        )

    async def call_tool(context: _Context, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        bench = await _bench(callers, context)
        # Before the call: a tool may be replaced while it runs.
        tool = crib.registry.find(params.name)
        result = await bench.call(Call(params.name, arguments_of(params)))
        if "handle" in result.metadata:
            context.lifespan_context.check()  # with the first handle comes the tool that reads results
        if result.error is not None and result.error.code == "unknown_tool":
            raise _unknown(result.error)
        output_schema = None if tool is None else tool.spec.output_schema
        return wire.CallToolResult.model_validate(form.call_result(result, output_schema))

    def input_schema(name: str) -> Mapping[str, Any] | None:
        tool = crib.registry.find(name)
        return None if tool is None else tool.spec.input_schema

    async def listen(
        context: _Context, params: wire.SubscriptionsListenRequestParams
    ) -> wire.SubscriptionsListenResult:
        await _bench(callers, context)
        return await context.lifespan_context.listen(context, params)

    async def initialized(context: _Context, _: wire.NotificationParams) -> None:
        context.lifespan_context.add(context.session)

    made = _Server(
        name,
        version=version or __version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # Without it the SDK lists every tool at every call of 2026-07-28 over HTTP.
        get_tool_input_schema=input_schema,
        on_subscriptions_listen=listen,
        lifespan=lambda _: following(callers),
    )
    made.add_notification_handler("notifications/initialized", wire.NotificationParams, initialized)
    return made


class _Server(Server[Changes]):
    # Over HTTP, the options of the handshake of the older era cannot be set otherwise.
    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, *args, **kwargs)

    def streamable_http_app(self, *args: Any, **kwargs: Any) -> Starlette:
        app = super().streamable_http_app(*args, **kwargs)
        app.add_middleware(ExactMessages)
        return app


async def _bench(callers: Callers, context: _Context) -> Workbench:
    try:
        return await callers.workbench(getattr(context.request, "headers", None))
    except Exception:
        _log.exception("A request could not be identified")
        raise MCPError(wire.INVALID_REQUEST, "The caller of this request could not be identified.") from None


def _unknown(error: ToolError) -> MCPError:
    # A protocol error, and not a result with `isError`: so the specification has it for unknown tools, in each of its
    # revisions (server/tools, "Error Handling"). Its message is what a model would read, with the nearest name.
    return MCPError(wire.INVALID_PARAMS, form.encodable(error.message), {"toolcrib/error": form.error_data(error)})
