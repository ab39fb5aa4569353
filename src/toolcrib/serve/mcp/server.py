"""A crib as an MCP server: it answers the requests of identified callers, and notifies of changes.

The wire is in `protocol`, the shapes of tools and results in `formats.mcp`.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Literal, cast

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from mcp_types.methods import is_input_required
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import to_json

from ...call import UNTRUSTED, marked
from ...core import Call, CancellationToken, Pending, Progress, Result, Text, Tool, ToolError, ToolSpec
from ...formats import mcp as form
from ...machinery import is_long
from ...workbench import Crib, UnknownTaskError, Workbench
from ...workbench.results import READERS
from ...workbench.search import FINDERS
from ..access.callers import Callers, Identify, local_caller, log_unidentified, require_key_for
from ..protocol.connection import Write
from ..protocol.core import Encoded, Exchange, params_of, shaped, unknown_method
from ..protocol.pipe import Pipe, in_memory
from ..wire import header
from . import resources as offered
from .app import URI as APP_URI
from .app import ApprovalApp
from .changes import Changes, following
from .pending import State, instructions, settled
from .request import MAX_NOTICE_CHARS, ClientRequest, pass_on_logs, set_level
from .tasks import EXTENSION, TaskMethods, TaskParams, UpdateParams

if TYPE_CHECKING:
    from mcp.server.request_state import RequestStateBoundary
    from starlette.applications import Starlette
    from starlette.types import ASGIApp

    from ..protocol.http import Stateless
    from ..protocol.sessions import Sessions

_Input = wire.CallToolRequestParams | wire.ReadResourceRequestParams | wire.GetPromptRequestParams

_TTL_MS = 5000
"""How long a list may be taken as it was read. Clients that listen are notified of changes before."""
_COUNTED = frozenset(
    (
        *("initialize", "server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"),
        *("completion/complete", "subscriptions/listen"),
    )
)
_MAX_PAGES = 16
_COMPLETE = {"resultType": "complete"}
_KEY = "toolcrib/idempotencyKey"
_OLD = ("2024-11-05", "2025-03-26")
_CAPABILITIES = wire.ServerCapabilities(
    tools=wire.ToolsCapability(list_changed=True),
    resources=wire.ResourcesCapability(subscribe=True, list_changed=True),
    prompts=wire.PromptsCapability(list_changed=True),
    completions=wire.CompletionsCapability(),
    logging=wire.LoggingCapability(),
)


def server(
    crib: Crib, identify: Identify = local_caller, *, name: str = "toolcrib", version: str | None = None
) -> "McpServer":
    """Return an MCP server of *crib*, which is started at the first call, and is for the caller to stop.

    It has the tools, the resources and prompts of `crib.resources`, `crib.prompts` and of sources that offer them, and
    large results as resources. Each request runs for the Caller that *identify* returns for its HTTP headers; a request
    for which it raises is refused. What waits for a person is asked of the client, if it can. Clients are notified when
    a list changes, while the server runs.

    Results are as `toolcrib.formats.mcp.call_result` makes them. *version* is Toolcrib's own unless given.
    """
    return McpServer(Callers(crib, identify), name, version)


class _Handlers:
    """What answers requests."""

    def __init__(self, crib: Crib, callers: Callers) -> None:
        self._crib = crib
        self.callers = callers
        self._scope: Literal["public", "private"] = "public" if callers.identify is local_caller else "private"
        """Who may share a list that was read."""
        self.redaction = crib.redaction
        self.tasks = TaskMethods(crib, self._call_result)
        self.changes: Changes | None = None
        self.app: ApprovalApp | None = None
        self._pages: dict[
            tuple[Any, ...], tuple[Encoded, Sequence[ToolSpec]]
        ] = {}  # with the specs, whose ids they are
        self._headed: dict[str, tuple[Mapping[str, Any], bool]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Changes]:
        """Notify of changes while the block runs."""
        for spec in self._crib.registry.specs():
            _ = spec.input_schema  # made when it is first read: before a client waits for the list
        async with following(self.callers) as self.changes:
            yield self.changes

    def methods(self) -> dict[str, tuple[type[Any], Any]]:
        """Return what answers which method, and the model of its params."""
        return {
            "tools/list": (wire.PaginatedRequestParams, self.list_tools),
            "tools/call": (wire.CallToolRequestParams, self.call_tool),
            "resources/list": (wire.PaginatedRequestParams, self.list_resources),
            "resources/templates/list": (wire.PaginatedRequestParams, self.list_resource_templates),
            "resources/read": (wire.ReadResourceRequestParams, self.read_resource),
            "resources/subscribe": (wire.SubscribeRequestParams, self.subscribe),
            "resources/unsubscribe": (wire.UnsubscribeRequestParams, self.unsubscribe),
            "prompts/list": (wire.PaginatedRequestParams, self.list_prompts),
            "prompts/get": (wire.GetPromptRequestParams, self.get_prompt),
            "completion/complete": (wire.CompleteRequestParams, self.complete),
            "subscriptions/listen": (wire.SubscriptionsListenRequestParams, self.listen),
            "tasks/get": (TaskParams, partial(self._of_task, self.tasks.get)),
            "tasks/update": (UpdateParams, partial(self._of_task, self.tasks.update)),
            "tasks/cancel": (TaskParams, partial(self._of_task, self.tasks.cancel)),
            "logging/setLevel": (wire.SetLevelRequestParams, set_level),
        }

    # Tools

    async def list_tools(self, context: Exchange, params: wire.PaginatedRequestParams | None) -> dict[str, Any]:
        bench = await self._bench(context)
        specs, cursor = offered.page(bench.specs(), _cursor(params), lambda spec: spec.name)
        # Under their own names, whatever these are: MCP advises which to use, and forbids none.
        return self._list("tools", self.definitions(specs, self._with_app(context, bench, specs)), cursor)

    def _with_app(self, context: Exchange, bench: Workbench, specs: Sequence[ToolSpec]) -> Collection[str]:
        """Return the names of the tools beside which the client shows the app for approvals."""
        is_shown = self.app is not None and ApprovalApp.is_shown_by(context)
        return ApprovalApp.names(specs, self._crib.options["policy"], bench.caller) if is_shown else ()

    def definitions(self, specs: Sequence[ToolSpec], with_app: Collection[str] = ()) -> Encoded:
        """Return the definitions of *specs*, the same list for all callers who may see the same tools."""
        key = (self._crib.marks, with_app, *map(id, specs))
        entry = self._pages.pop(key, None)
        if entry is None:
            entry = Encoded(self._definition(spec, with_app=spec.name in with_app) for spec in specs), specs
            if len(self._pages) >= _MAX_PAGES:
                del self._pages[next(iter(self._pages))]
        self._pages[key] = entry  # last: the first goes that was not used for longest
        return entry[0]

    def _definition(self, spec: ToolSpec, *, with_app: bool) -> dict[str, Any]:
        stores = self._crib.options["max_result_chars"] is not None
        definition = form.tool_definition(self._promised(spec), stores_results=stores)
        if with_app:
            definition["_meta"] = {"ui": {"resourceUri": APP_URI}}
        elif spec.name in READERS and self._crib.registry.find(spec.name) is None:
            # By this another Toolcrib knows the tool that reads results: it offers its own.
            definition["_meta"] = {form.READER: True}
        return definition

    async def call_tool(
        self, context: Exchange, params: wire.CallToolRequestParams
    ) -> dict[str, Any] | wire.InputRequiredResult:
        request, state = await self._request(context, params)
        async with request:
            bench = request.bench
            key = _idempotency_key(bench, params)
            # Before the call: a tool may be replaced while it runs.
            tool = self._crib.registry.find(params.name)
            call: Callable[[], Awaitable[Result[Any]]] = partial(_called, bench, context, params, key)
            if tool is not None and tool.is_task:
                call = self.tasks.awaited(call, context, bench, state, tool)
            result = await settled(request, self._crib, call, state)
            if isinstance(result, wire.InputRequiredResult):
                return result
        if "handle" in result.metadata or result.tool in FINDERS:
            # With the first handle may come the tool that reads results, and with a search what it found.
            context.lifespan_context.check()
        if result.error is not None:
            _require_capabilities(request, result.error)
        call_result = self._call_result(result, tool)
        if result.pending is not None:
            if (answer := await self.tasks.created(context, bench, result.pending)) is not None:
                return answer
            text = self._instructions(result, result.pending, "" if key is not None else state.task)
            call_result["content"] = [{"type": "text", "text": text}]
            self._show_app(call_result, result.pending, context)
        if context.protocol_version in _OLD:
            call_result["content"] = _without_links(call_result["content"])
        return call_result | _COMPLETE

    def _show_app(self, call_result: dict[str, Any], pending: Pending, context: Exchange) -> None:
        """Give *call_result* what the app shows of *pending*, an approval, where the client shows apps."""
        if self.app is not None and pending.kind == "approval" and ApprovalApp.is_shown_by(context):
            shown = {"toolcrib/approval": self.app.data(pending, context)}
            call_result["_meta"] = call_result.get("_meta", {}) | shown

    def _call_result(self, result: Result[Any], tool: Tool | None) -> dict[str, Any]:
        """Return *result* of a call of *tool*. Raises MCPError where that is an error of the protocol."""
        if result.error is not None and result.error.code == "unknown_tool":
            # A protocol error, and not a result with `isError`: so the specification has it for unknown tools, in each
            # of its revisions (server/tools, "Error Handling"). A model would read its message, with the nearest name.
            raise offered.error_of(result.error, {})
        return form.call_result(result, None if tool is None else self._promised(tool.spec).output_schema)

    async def _of_task(self, method: Any, context: Exchange, params: TaskParams) -> dict[str, Any]:
        answer: dict[str, Any] = await method(context, await self._bench(context), params)
        return answer

    # Resources

    async def list_resources(self, context: Exchange, params: wire.PaginatedRequestParams | None) -> dict[str, Any]:
        bench = await self._bench(context)
        items, cursor = offered.page(await bench.offers.resources(), _cursor(params), lambda item: item.uri)
        return self._list("resources", map(offered.resource, items), cursor)

    async def list_resource_templates(
        self, context: Exchange, params: wire.PaginatedRequestParams | None
    ) -> dict[str, Any]:
        bench = await self._bench(context)
        templates = await bench.offers.resource_templates()
        items, cursor = offered.page(templates, _cursor(params), lambda item: item.uri_template)
        return self._list("resourceTemplates", map(offered.resource_template, items), cursor)

    async def read_resource(self, context: Exchange, params: wire.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        if self.app is not None and uri == APP_URI:
            return self.app.contents()
        request, state = await self._request(context, params)
        async with request:
            result = await settled(request, self._crib, lambda: request.bench.offers.read(uri), state)
            return self._read(request, result, {"uri": uri}, offered.contents)

    async def subscribe(self, context: Exchange, params: wire.SubscribeRequestParams) -> wire.EmptyResult:
        bench = await self._bench(context)
        uri = str(params.uri)
        result = await context.lifespan_context.subscribe(context.connection, bench, uri)
        if result is not None and result.status != "success":
            raise self._error(result, {"uri": uri})
        return wire.EmptyResult()

    async def unsubscribe(self, context: Exchange, params: wire.UnsubscribeRequestParams) -> wire.EmptyResult:
        bench = await self._bench(context)
        await context.lifespan_context.unsubscribe(context.connection, bench, str(params.uri))
        return wire.EmptyResult()

    # Prompts

    async def list_prompts(self, context: Exchange, params: wire.PaginatedRequestParams | None) -> dict[str, Any]:
        bench = await self._bench(context)
        items, cursor = offered.page(await bench.offers.prompts(), _cursor(params), lambda item: item.name)
        return self._list("prompts", map(offered.prompt, items), cursor)

    async def get_prompt(self, context: Exchange, params: wire.GetPromptRequestParams) -> Any:
        name, arguments = params.name, params.arguments or {}
        request, state = await self._request(context, params)
        async with request:
            result = await settled(request, self._crib, lambda: request.bench.offers.get_prompt(name, arguments), state)
            return self._read(request, result, {"name": name}, offered.messages)

    async def complete(self, context: Exchange, params: wire.CompleteRequestParams) -> wire.CompleteResult:
        return offered.complete(await self._bench(context), params)

    def headed_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool some of whose arguments stand in headers (`x-mcp-header`), else None."""
        if (tool := self._crib.registry.find(name)) is None:
            return None
        schema, is_headed = self._headed.get(name, (None, False))
        if schema is not tool.spec.input_schema:
            schema = tool.spec.input_schema
            is_headed = '"x-mcp-header"' in json.dumps(schema, default=str)
            self._headed[name] = schema, is_headed
        return schema if is_headed else None

    # Changes

    async def listen(
        self, context: Exchange, params: wire.SubscriptionsListenRequestParams
    ) -> wire.SubscriptionsListenResult:
        bench = await self._bench(context)
        changes: Changes = context.lifespan_context
        async with self.tasks.watched(context, params, bench) as exchange:
            return await changes.listen(exchange, params, bench)

    async def initialized(self, context: Exchange) -> None:
        context.lifespan_context.add(context.connection, (await self._bench(context)).caller)

    # Inside

    async def counted(self, ctx: Exchange, call_next: Callable[[Exchange], Awaitable[Any]]) -> Any:
        """Answer a request for a list, or for a new session, as it counts in the limits. Raises MCPError."""
        if ctx.method not in _COUNTED or not self._crib.limiter.limits:
            return await call_next(ctx)
        bench = await self._bench(ctx)
        try:
            return await bench.count(ctx.method, lambda: call_next(ctx))
        except ToolError as error:
            raise offered.error_of(error, {}) from None

    async def _bench(self, context: Exchange) -> Workbench:
        """Return the workbench of the caller of this request."""
        try:
            return await self.callers.workbench(context.request)
        except Exception as error:
            log_unidentified(error)
            raise MCPError(wire.INVALID_REQUEST, "The caller of this request could not be identified.") from None

    async def _request(self, context: Exchange, params: _Input) -> tuple[ClientRequest, State]:
        """Return the request, to be open for a block, and its state."""
        bench = await self._bench(context)
        state = State.read(params.request_state, bench.caller)
        responses = {**state.answers, **(params.input_responses or {})}
        return ClientRequest(context, bench, responses), state

    def _read(
        self,
        request: ClientRequest,
        result: Result[Any] | wire.InputRequiredResult,
        data: Mapping[str, Any],
        answer: Callable[[Sequence[Any]], Mapping[str, Any]],
    ) -> Any:
        """Return *answer* of what was read, or what the client is asked first. Raises MCPError with *data*."""
        if isinstance(result, wire.InputRequiredResult):
            return result
        if result.error is not None:
            _require_capabilities(request, result.error)
        if result.status != "success":
            raise self._error(result, data)
        return {**answer(result.value), **_COMPLETE}

    def _error(self, result: Result[Any], data: Mapping[str, Any]) -> MCPError:
        """Return the error of what was not read; of what waits, with the id to answer."""
        if (pending := result.pending) is not None:
            data = {**data, "toolcrib/pending": {"id": pending.id, "kind": pending.kind}}
            return MCPError(wire.INTERNAL_ERROR, self._instructions(result, pending), data)
        assert result.error is not None
        return offered.error_of(result.error, data)

    def _instructions(self, result: Result[Any], pending: Pending, task: str = "") -> str:
        """Return what a model is told of *result*, which waits: an untrusted tool may have asked the question."""
        shown = replace(result, content=(Text(instructions(pending, self._crib, task)),))
        return form.encodable((marked(shown) if self._crib.marks else shown).text)

    def _promised(self, spec: ToolSpec) -> ToolSpec:
        """Return *spec* as it is kept: what is marked as data is no longer as an output schema has it."""
        is_marked = self._crib.marks and UNTRUSTED in spec.labels
        return replace(spec, output_schema=None) if is_marked else spec

    def _list(self, name: str, items: Iterable[Any], cursor: str | None) -> dict[str, Any]:
        page: dict[str, Any] = {
            name: items if isinstance(items, Encoded) else [*items],
            "ttlMs": _TTL_MS,
            "cacheScope": self._scope,
            **_COMPLETE,
        }
        return page if cursor is None else page | {"nextCursor": cursor}


class McpServer:
    """What `server` returns: a transport of the official SDK's client, in memory, `Client(server(crib))`.

    `streamable_http_app()` is an ASGI application.
    """

    def __init__(self, callers: Callers, name: str, version: str | None) -> None:
        from ... import __version__

        pass_on_logs()
        self.handlers = _Handlers(callers.crib, callers)
        self._identify = callers.identify
        self._info = wire.Implementation(name=name, version=version or __version__)
        self._stamp = self._info.model_dump(by_alias=True, mode="json", exclude_none=True)
        self._methods = self.handlers.methods() | {
            "initialize": (wire.InitializeRequestParams, self._initialize),
            "server/discover": (wire.RequestParams, self._discover),
        }
        self._clients: dict[Any, list[AsyncExitStack]] = {}

    async def answer(self, exchange: Exchange, changes: Changes | None = None) -> Mapping[str, Any]:
        """Return the result of a request, in the shape of its version.

        Raises MCPError, and ValidationError for its params.
        """
        exchange.lifespan_context = changes or self.handlers.changes
        handled: Any = partial(self.handlers.counted, call_next=self._handled)
        if (exchange.params or {}).get("requestState") is None:
            result = await handled(exchange)
            if not is_input_required(result):
                return cast(Mapping[str, Any], result)
            handled = partial(_returned, result)
        return cast(Mapping[str, Any], await self._seal(cast(Any, exchange), handled))

    @cached_property
    def _seal(self) -> "RequestStateBoundary":
        from .sealing import sealing

        return sealing(self.handlers.callers.crib, self._info.name)

    async def _handled(self, context: Any) -> dict[str, Any]:
        model, handler = self._methods.get(context.method, (wire.RequestParams, None))
        params = params_of(context, model)
        if handler is None:
            raise unknown_method(context.method)
        try:
            result = await handler(context, params)
        except UnknownTaskError:
            raise MCPError(wire.INVALID_PARAMS, "There is no task with this id. Its result may have expired.") from None
        try:
            return shaped(context.method, context.protocol_version, result, self._stamp)
        except ValidationError as error:
            raise RuntimeError(f"The handler of {context.method} returned an invalid result.") from error

    async def _initialize(self, context: Exchange, _: wire.InitializeRequestParams) -> wire.InitializeResult:
        version = context.protocol_version
        return wire.InitializeResult(protocol_version=version, capabilities=_CAPABILITIES, server_info=self._info)

    async def _discover(self, _: Exchange, __: wire.RequestParams) -> wire.DiscoverResult:
        extensions = {} if self.handlers.callers.crib.database is None else {EXTENSION: dict[str, Any]()}
        capabilities = _CAPABILITIES.model_copy(update={"extensions": extensions or None})
        return wire.DiscoverResult(supported_versions=list(MODERN_PROTOCOL_VERSIONS), capabilities=capabilities)

    async def greet(self, exchange: Exchange, changes: Changes | None = None) -> None:
        """Notify a client of the older era of changes, from now on."""
        exchange.lifespan_context = changes or self.handlers.changes
        await self.handlers.initialized(exchange)

    def pipe(self, write: Write, changes: Changes | None = None) -> Pipe:
        """Return what answers one client at the other end of a pipe, which is sent what *write* takes."""
        answer, greet = partial(self.answer, changes=changes), partial(self.greet, changes=changes)
        return Pipe(answer, greet, write, self.handlers.redaction)

    # Over HTTP, and in memory: imported here, for a server over stdio has neither

    def sessions(self, *, can_ask: bool = True) -> "Sessions":
        """Return what answers the older era over HTTP."""
        from ..protocol.sessions import ProcessKeys, Sessions

        store = self.handlers.callers.crib.database
        keys = ProcessKeys() if store is None else store.keys
        return Sessions(self.answer, self.greet, self.handlers.redaction, keys, can_ask=can_ask)

    def stateless(self, app: "ASGIApp") -> "Stateless":
        """Return *app* behind one that answers the stateless era."""
        from ..protocol.http import Stateless

        return Stateless(app, self.answer, self.handlers.headed_schema, self.handlers.redaction)

    def streamable_http_app(self, *, streamable_http_path: str = "/mcp") -> "Starlette":
        """Return an ASGI application of this server alone, for requests by names of this computer."""
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.routing import Route

        from ..access.authentication import Authentication
        from ..access.hosts import Guarded

        sessions = self.sessions()

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncGenerator[None]:
            async with self.handlers.running(), sessions.run():
                yield

        # Callers are known before the session of a request is looked up, which is of the principal that began it.
        entered = Middleware(Authentication, identify=self._identify, path=streamable_http_path)
        routes = [Route(streamable_http_path, self.stateless(sessions))]
        return Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Guarded), entered])

    async def __aenter__(self) -> tuple[Any, Any]:
        stack = AsyncExitStack()
        changes = await stack.enter_async_context(following(self.handlers.callers))
        streams = await stack.enter_async_context(in_memory(partial(self.pipe, changes=changes)))
        self._clients.setdefault(asyncio.current_task(), []).append(stack)
        return streams

    async def __aexit__(self, *error: Any) -> None:
        stacks = self._clients[asyncio.current_task()]
        stack = stacks.pop()
        if not stacks:
            del self._clients[asyncio.current_task()]
        await stack.aclose()


async def _returned(result: Any, _: object) -> Any:
    return result


def _called(
    bench: Workbench, context: Exchange, params: wire.CallToolRequestParams, key: str | None
) -> Awaitable[Result[Any]]:
    # A call over a pipe has a task of its own, by its token: who cancels that one keeps no answer back.
    own_task = CancellationToken() if context.request is None else None
    trace = _traceparent(context)
    arguments = params.arguments if context.exact_arguments is None else context.exact_arguments
    if type(arguments) is dict and not is_long(arguments):  # as text, once: the check and the record each need it
        with suppress(ValueError):  # half of a character, which the check refuses
            arguments = to_json(arguments).decode()
    call = Call(params.name, arguments, cancellation=own_task, traceparent=trace, idempotency_key=key)
    is_streamed = context.meta.get("progress_token") is not None
    return _streamed(bench, call, context) if is_streamed else bench.call(call)


async def _streamed(bench: Workbench, call: Call, context: Exchange) -> Result[Any]:
    """Return the result of *call*, whose progress is reported meanwhile.

    What it emits is sent as the message of a progress notification, which has to be further than the one before.
    """
    done, total = -inf, None
    async with aclosing(bench.stream(call)) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, Result):
                return event
            if isinstance(event, Progress):
                progress, total, message = event.done, event.total, event.message
            else:
                progress = nextafter(done, inf) if done > -inf else 0.0
                message = "\n".join(part.text for part in event.content)
            if progress > done:
                done = progress
                text = None if message is None else form.encodable(message[:MAX_NOTICE_CHARS])
                await context.session.report_progress(done, total, text)
    raise asyncio.CancelledError  # a stream ends with a result


def _without_links(blocks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in blocks if block["type"] != "resource_link"]


def _require_capabilities(request: ClientRequest, error: ToolError) -> None:
    """Raise MCPError where *error* is that the client of *request* lacks a capability."""
    if request.missing and request.is_modern:
        data = {"requiredCapabilities": request.missing}
        raise MCPError(wire.MISSING_REQUIRED_CLIENT_CAPABILITY, form.encodable(error.message), data)


def _traceparent(context: Exchange) -> str | None:
    """Return the trace that a call is a part of: as its `_meta` says, else the header of its request."""
    traceparent: Any = context.meta.get("traceparent")
    if not traceparent and context.request is not None:
        traceparent = header(context.request.scope, b"traceparent")
    return traceparent if isinstance(traceparent, str) and traceparent else None


def _idempotency_key(bench: Workbench, params: wire.CallToolRequestParams) -> str | None:
    """Return the idempotency key in the `_meta` of a call; None where there is none. Raises MCPError."""
    meta: Mapping[str, Any] = params.meta or {}
    try:
        return require_key_for(bench, meta[_KEY]) if _KEY in meta else None
    except ToolError as error:
        data = {"toolcrib/error": form.error_data(error)}
        raise MCPError(wire.INVALID_PARAMS, error.message, data) from None


def _cursor(params: wire.PaginatedRequestParams | None) -> str | None:
    return None if params is None else params.cursor
