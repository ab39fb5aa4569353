"""A workbench as an MCP server: it is asked for its tools and calls, and tells of changes.

There is no wire here, as the SDK has it, and no shape of a tool or a result: those are in `formats.mcp`.
"""

from collections.abc import Mapping
from typing import Any

import mcp_types as wire
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError

from ..core import Call, ToolError, UnknownToolError
from ..formats import mcp as form
from ..workbench import Workbench
from .changes import Changes, following

_Context = ServerRequestContext[Changes, Any]


def server(bench: Workbench, *, name: str = "toolcrib", version: str | None = None) -> Server[Any]:
    """An MCP server of the tools of *bench*, which is started at the first call, and is for the caller to stop.

    Clients are told when the list of tools changes, while the server runs.

    Results are as `toolcrib.formats.mcp.result_of` makes them. *version* is Toolcrib's own unless given.
    """
    from .. import __version__

    async def list_tools(_: _Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        # Under their own names, whatever these are: MCP advises which to use, and forbids none.
        return wire.ListToolsResult(tools=[wire.Tool.model_validate(form.definition(spec)) for spec in bench.specs()])

    async def call_tool(context: _Context, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        # Before the call: a tool may be replaced while it runs.
        spec = bench.registry.get(params.name).spec if params.name in bench.registry else None
        result = await bench.call(Call(params.name, params.arguments))
        whole = result.content
        if "handle" in result.metadata:
            context.lifespan_context.look()  # with the first handle comes the tool that reads results
            whole = await bench.kept(result.metadata["handle"])
        if result.error is not None and result.error.code == "unknown_tool":
            raise _unknown(result.error)
        promised = None if spec is None else spec.output_schema
        return wire.CallToolResult.model_validate(form.result_of(result, promised, whole=whole))

    def input_schema(tool: str) -> Mapping[str, Any] | None:
        try:
            return bench.registry.get(tool).spec.input_schema
        except UnknownToolError:
            return None

    async def listen(
        context: _Context, params: wire.SubscriptionsListenRequestParams
    ) -> wire.SubscriptionsListenResult:
        return await context.lifespan_context.listen(context, params)

    async def greet(context: _Context, _: wire.NotificationParams) -> None:
        context.lifespan_context.greet(context.session)

    made = _Server(
        name,
        version=version or __version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # Without it the SDK lists every tool at every call of 2026-07-28 over HTTP.
        get_tool_input_schema=input_schema,
        on_subscriptions_listen=listen,
        lifespan=lambda _: following(bench),
    )
    made.add_notification_handler("notifications/initialized", wire.NotificationParams, greet)
    return made


class _Server(Server[Changes]):
    # Over HTTP, nobody else is asked what a client of the older era is told at the handshake.
    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(told, *args, **kwargs)


def _unknown(error: ToolError) -> MCPError:
    # A protocol error, and no result with `isError`: so the specification wants it of unknown tools, in each of its
    # revisions (server/tools, "Error Handling"). Its message is what a model would be told, with the nearest name.
    return MCPError(wire.INVALID_PARAMS, form.sendable(error.message), {"toolcrib/error": form.code(error)})
