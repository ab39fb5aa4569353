"""A workbench as an MCP server: specs as MCP's tools, results as MCP's results. There is no wire here: the SDK has it.

One server serves both eras of the protocol. Where they differ, the older is kept to: through 2025-11-25 the root of an
output schema, and of structured content, is an object. Any other value goes under the key `result`.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import mcp_types as wire
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from pydantic_core import from_json

from ..core import Audio, Call, Content, Data, File, Hints, Image, Result, Text, ToolError, ToolSpec, UnknownToolError
from ..schema import admits
from ..workbench import Workbench
from .changes import Changes, following

_Context = ServerRequestContext[Changes, Any]


def server(bench: Workbench, *, name: str = "toolcrib", version: str | None = None) -> Server[Any]:
    """An MCP server of the tools of *bench*, which is started at the first call, and is for the caller to stop.

    Clients are told when the list of tools changes, while the server runs.

    What became of a call beside its content is in the result's `_meta`, for programs: `toolcrib/repairs`, a list of
    `{"path", "from", "to"}`, `toolcrib/error`, `{"code", "retry"}`, `toolcrib/pending`, `{"id", "kind"}`, and
    `toolcrib/handle` of a large result. *version* is Toolcrib's own unless given.
    """
    from .. import __version__

    async def list_tools(_: _Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        return wire.ListToolsResult(tools=[_tool(spec) for spec in bench.specs()])

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
        return _answer(params.name, None if spec is None else spec.output_schema, result, whole)

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


def _tool(spec: ToolSpec) -> wire.Tool:
    return wire.Tool(
        name=spec.name,
        title=spec.title,
        description=spec.description or None,
        input_schema=dict(spec.input_schema),
        output_schema=None if spec.output_schema is None else _rooted(spec.output_schema),
        annotations=_annotations(spec.hints),
    )


def _annotations(hints: Hints) -> wire.ToolAnnotations | None:
    said = wire.ToolAnnotations(
        read_only_hint=hints.read_only,
        destructive_hint=hints.destructive,
        idempotent_hint=hints.idempotent,
        open_world_hint=hints.open_world,
    )
    return None if said == wire.ToolAnnotations() else said


def _is_rooted(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _rooted(schema: Mapping[str, Any]) -> dict[str, Any]:
    if _is_rooted(schema):
        return dict(schema)
    inner = dict(schema)
    # References point into "$defs" of the root, so these stay there.
    shared = {"$defs": inner.pop("$defs")} if "$defs" in inner else {}
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], **shared}


def _answer(
    tool: str, promised: Mapping[str, Any] | None, result: Result[Any], whole: tuple[Content, ...]
) -> wire.CallToolResult:
    """*result* as MCP has it: its content for the model; structured, for the program, the *whole* of a large one."""
    content, error = list(_blocks(result.content, result.call_id)), result.error
    structured: dict[str, Any] | None = None
    if result.pending is not None:
        # For MCP it has not succeeded, and a tool that promises structured content may only leave it out of an error.
        return wire.CallToolResult(content=content, is_error=True, _meta=_meta(result, None))
    if error is None and promised is not None:
        try:
            structured = _structured(promised, whole)
        except ValueError:
            # A tool that promises structured content has to give it, so this one has failed, as far as MCP goes. What
            # it did is done, though, and what may be shown of its result is shown.
            error = ToolError(
                f"What tool '{tool}' returned cannot be given in the form that it promises, perhaps because "
                "secrets were struck out of it. What may be shown of it follows.",
                "invalid_result",
            )
            content.insert(0, wire.TextContent(text=error.message))
    return wire.CallToolResult(
        content=content, structured_content=structured, is_error=error is not None, _meta=_meta(result, error)
    )


def _structured(schema: Mapping[str, Any], content: tuple[Content, ...]) -> dict[str, Any]:
    """The structured content, made of what may be shown. Raises ValueError where that is not what *schema* says."""
    value: Any
    match content:
        case (Data() as data,):
            value = from_json(data.json, allow_inf_nan=False)
        case (Text(text),):
            value = _sendable(text)
        case _:
            raise ValueError
    if not admits(schema, value):
        raise ValueError
    return value if _is_rooted(schema) else {"result": value}


def _blocks(content: tuple[Content, ...], call_id: str) -> Iterable[wire.ContentBlock]:
    for number, part in enumerate(content):
        match part:
            case Text() | Data():
                yield wire.TextContent(text=_sendable(part.text))
            case Image():
                yield wire.ImageContent(data=part.base64, mime_type=_sendable(part.media_type))
            case Audio():
                yield wire.AudioContent(data=part.base64, mime_type=_sendable(part.media_type))
            case File():
                uri = f"toolcrib:{call_id}/{number}/{quote(_sendable(part.name or 'file'), safe='')}"
                blob = wire.BlobResourceContents(uri=uri, mime_type=_sendable(part.media_type), blob=part.base64)
                yield wire.EmbeddedResource(resource=blob)


def _sendable(text: str) -> str:
    # Half a surrogate pair, as in the name of a file that is not UTF-8, cannot be sent; the SDK would end with it.
    return text.encode(errors="replace").decode()


def _meta(result: Result[Any], error: ToolError | None) -> dict[str, Any] | None:
    meta: dict[str, Any] = {}
    if result.repairs:
        meta["toolcrib/repairs"] = [{"path": r.path, "from": r.from_kind, "to": r.to_kind} for r in result.repairs]
    if error is not None:
        meta["toolcrib/error"] = _code(error)
    if result.pending is not None:
        meta["toolcrib/pending"] = {"id": result.pending.id, "kind": result.pending.kind}
    if "handle" in result.metadata:
        meta["toolcrib/handle"] = result.metadata["handle"]
    return meta or None


def _unknown(error: ToolError) -> MCPError:
    # A protocol error, and no result with `isError`: so the specification wants it of unknown tools, in each of its
    # revisions (server/tools, "Error Handling"). Its message is what a model would be told, with the nearest name.
    return MCPError(wire.INVALID_PARAMS, _sendable(error.message), {"toolcrib/error": _code(error)})


def _code(error: ToolError) -> dict[str, str]:
    return {"code": error.code, "retry": error.retry}
