"""One open session with an MCP server, in a task of its own, by the official SDK: both eras of the protocol.

The task is its own because the SDK cancels the task that has opened a session when the session breaks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote

import mcp_types as wire
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from ...core import Context, LoadError, ToolError
from ...machinery import Semaphore, create_lasting_task, current_caller
from .questions import MAX_QUESTIONS, RunningCall, RunningCalls, one_line
from .streams import TOOLS, List, Malformed
from .targets import MAX_BYTES, Target
from .tools import HANDLE, READER, WHOLE
from .transports import HTTP_FAILED, MAX_CONNECTIONS, StderrTail, http, process

R = TypeVar("R")

_CALL_RESULT: TypeAdapter[wire.CallToolResult | wire.InputRequiredResult] = TypeAdapter(
    wire.CallToolResult | wire.InputRequiredResult
)
_LIST_TIMEOUT_S = 60.0
_STEP_TIMEOUT_S = 10.0
"""How long a server may take to begin to report updates, and to end."""
_PART_BYTES = 1024 * 1024
_MAX_PARTS = MAX_BYTES // _PART_BYTES + 1
_LISTEN_INTERVALS_S = (1.0, 5.0, 30.0)

_FAILURES: Mapping[int | str, tuple[str, str]] = {
    wire.CONNECTION_CLOSED: ("lost", "The session with '{0}' ended before it answered."),
    wire.REQUEST_TIMEOUT: ("timeout", "'{0}' did not answer in time."),
    wire.UNSUPPORTED_PROTOCOL_VERSION: ("unavailable", "'{0}' speaks another version now. Try again."),
    wire.PARSE_ERROR: ("invalid_result", "'{0}' did not answer as MCP requires."),
    wire.MISSING_REQUIRED_CLIENT_CAPABILITY: ("unavailable", "'{0}' needs a client that can do more: {1}"),
    wire.INVALID_PARAMS: ("invalid_arguments", "'{0}' refused the arguments: {1}"),
    "busy": ("limited", "'{0}' takes no more requests now."),
    "answered": ("unavailable", "'{0}' is not available: {1}."),
    "unreachable": ("unavailable", "'{0}' is not available: {1}."),
    "terminated": ("unavailable", "'{0}' has ended the session. Try again."),
}
"""By the code of an error, or how HTTP failed: the code and the text that a model reads."""
_LOST = ("unreachable", "terminated", wire.UNSUPPORTED_PROTOCOL_VERSION)
_CHANGES: Mapping[type[Any], ServerEvent] = {
    wire.ToolListChangedNotification: ToolsListChanged(),
    wire.ResourceListChangedNotification: ResourcesListChanged(),
    wire.PromptListChangedNotification: PromptsListChanged(),
}

_log = logging.getLogger("toolcrib.mcp")


class Refused(ToolError):
    """The server refused who asked: with *status* 401 or 403, and its *challenge* (RFC 6750, RFC 9728)."""

    def __init__(self, server: str, status: int, challenge: str) -> None:
        reason = "the credentials are not valid there" if status == 401 else "more has to be granted"
        super().__init__(f"'{server}' refused the call: {reason}.", "unauthorized")
        self.status = status
        self.challenge = challenge


class Session:
    """An open session with *target*. *on_lost* is called when it breaks, *on_change* with what has changed there.

    *authorization* are the headers of each request beside those of the target. All methods raise ToolError.
    """

    def __init__(
        self,
        target: Target,
        *,
        on_lost: Callable[[], None],
        on_change: Callable[[ServerEvent], None],
        authorization: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._target = target
        self._on_lost = on_lost
        self._on_change = on_change
        self._authorization = authorization
        self._client: Client | None = None
        self._closing = asyncio.Event()
        self._stderr = StderrTail()
        self._refusal: tuple[int, str] | None = None
        turns = Semaphore(MAX_CONNECTIONS, spare=MAX_CONNECTIONS) if target.url else Semaphore()
        self._running = RunningCalls(self._ping, turns)
        self._followed: frozenset[str] = frozenset()
        self._listening: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return self._target.shown_name

    # Its life

    async def open(self) -> None:
        """Wait until it is open. Raises Refused, and LoadError with what failed."""
        is_open: asyncio.Future[None] = asyncio.Future()
        self._task = create_lasting_task(self._live(is_open))
        try:
            await asyncio.shield(is_open)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        self._closing.set()
        if self._task is None:
            return
        if self._client is None:
            self._task.cancel()  # it is still being opened: nothing there waits for the end
        await asyncio.wait({self._task}, timeout=_STEP_TIMEOUT_S)
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _live(self, opened: "asyncio.Future[None]") -> None:
        """Hold the session open until `close`, or until it breaks."""
        try:
            async with self._new_client() as client:
                self._client = client
                opened.set_result(None)
                self._listen_to_lists(client)
                try:
                    await self._closing.wait()
                finally:
                    self._client = None
                    for task in self._listening:
                        task.cancel()
                    await asyncio.gather(*self._listening, return_exceptions=True)
        except BaseException as error:
            if not opened.done():
                opened.set_exception(self._open_error(error))
                opened.exception()  # retrieved, also when no caller waits any more
            elif not self._closing.is_set():
                _log.warning("The session with '%s' broke: %s", self, type(error).__name__)
            if isinstance(error, asyncio.CancelledError) and self._closing.is_set():
                raise
        if not self._closing.is_set():
            self._on_lost()

    def _new_client(self) -> Client:
        if self._target.command:
            streams = process(self._target, self._note_end, self._stderr)
        else:
            streams = http(self._target, self._authorization, self._note_refusal)
        return Client(
            streams,
            mode="auto",
            cache=None,
            elicitation_callback=partial(self._asked, wire.ElicitRequest),
            sampling_callback=partial(self._asked, wire.CreateMessageRequest) if self._target.sampling else None,
            list_roots_callback=partial(self._asked, wire.ListRootsRequest) if self._target.roots else None,
            message_handler=self._receive,
            client_info=wire.Implementation(name="toolcrib", version=version("toolcrib")),
        )

    def _note_refusal(self, status: int, challenge: str) -> None:
        self._refusal = status, challenge

    def _note_end(self) -> None:
        """Report the end of a process that writes no more."""
        if self._client is not None and not self._closing.is_set():
            self._on_lost()

    def _open_error(self, error: BaseException) -> LoadError | Refused:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        words = f" It last wrote: {self._stderr.line}" if self._stderr.line else ""
        if isinstance(error, MCPError):
            if self._refusal is not None:
                return Refused(str(self), *self._refusal)
            reason = "it ended" if _has_ended(error) else one_line(error.message)
            return LoadError(f"{reason}.{words}")
        if isinstance(error, FileNotFoundError | PermissionError) and self._target.command:
            return LoadError(f"there is no command '{self._target.command[0]}'.")
        return LoadError(f"it cannot be connected to ({type(error).__name__}).{words}")

    # Requests

    @property
    def _open(self) -> Client:
        if self._client is None:
            raise ToolError(f"The session with '{self}' is not open.", "unavailable")
        return self._client

    @property
    def capabilities(self) -> wire.ServerCapabilities:
        return self._open.server_capabilities

    async def tools(self) -> list[wire.Tool | Malformed]:
        """Return its tools, from all pages; one more than it may have at most."""
        items = [] if self.capabilities.tools is None else await self._list(TOOLS)
        # Results of another Toolcrib are read whole.
        return [item for item in items if isinstance(item, Malformed) or READER not in (item.meta or {})]

    async def offered(self, of: List) -> list[Any]:
        """Return the well-formed items of a list of resources, templates or prompts."""
        items = await self._list(of)
        for item in items:
            if isinstance(item, Malformed):
                _log.warning("Not passed on: what '%s' lists as '%s': %s", self, item.name, item.reason)
        return [item for item in items if not isinstance(item, Malformed)]

    async def read_resource(self, uri: str) -> wire.ReadResourceResult:
        async with self._running.run(current_caller.get()):
            return await self._answer(self._open.read_resource(uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> wire.GetPromptResult:
        async with self._running.run(current_caller.get()):
            return await self._answer(self._open.get_prompt(name, dict(arguments)))

    async def call(self, name: str, arguments: dict[str, Any], context: Context) -> wire.CallToolResult:
        """Return the result of a call. What the server asks meanwhile, the caller is asked."""
        running = RunningCall(context, self._target)
        try:
            async with self._running.run(context.caller, running):
                result = await self._call(name, arguments, running)
        except ToolError:
            running.require_answers()
            raise
        running.require_answers()
        handle = (result.meta or {}).get(HANDLE)
        return result if handle is None else await self._whole(result, handle, context)

    async def _whole(self, result: wire.CallToolResult, handle: Any, context: Context) -> wire.CallToolResult:
        """Return all of *result*, the preview of what another Toolcrib has stored; as it is if that cannot be read."""
        text = ""
        uri: Any = f"toolcrib://results/{quote(str(handle), safe='')}?limit={_PART_BYTES}"
        try:
            for _ in range(_MAX_PARTS):
                async with self._running.run(context.caller):
                    (part,) = (await self._answer(self._open.read_resource(uri))).contents
                if not isinstance(part, wire.TextResourceContents) or len(text) + len(part.text) > MAX_BYTES:
                    return result
                text, uri = text + part.text, (part.meta or {}).get("toolcrib/next")
                if uri is None:
                    break
            else:
                return result
        except (ToolError, ValueError) as error:
            _log.warning("A result of '%s' could not be read whole: %s", self, type(error).__name__)
            return result
        blocks = [block for block in result.content if not isinstance(block, wire.TextContent | wire.ResourceLink)]
        content = [wire.TextContent(text=text), *blocks]
        return result.model_copy(update={"content": content, "structured_content": None, "meta": {WHOLE: True}})

    async def _call(self, name: str, arguments: dict[str, Any], running: RunningCall) -> wire.CallToolResult:
        responses: dict[str, Any] | None = None
        state: str | None = None
        asked_before = 0
        for _ in range(MAX_QUESTIONS):
            params = wire.CallToolRequestParams(
                name=name, arguments=arguments, input_responses=responses, request_state=state
            )
            try:
                # Not by the SDK's `call_tool`: it would check the result with patterns that never come to an end.
                result = await self._open.session.send_request(
                    wire.CallToolRequest(params=params), _CALL_RESULT, progress_callback=running.progress
                )
            except MCPError as error:
                await self._mend(error, running, is_first=state is None)
                continue
            except ValidationError:
                raise self._failure(MCPError(wire.PARSE_ERROR, "")) from None
            if isinstance(result, wire.CallToolResult):
                return result
            requests = result.input_requests or {}
            # A name that was used before is another question now.
            responses = {key: await running.answer(f"{asked_before}:{key}", of) for key, of in requests.items()}
            state, asked_before = result.request_state, asked_before + 1
        raise ToolError(f"'{self}' asks again and again, and never answers.", "failed")

    async def _mend(self, error: MCPError, running: RunningCall, *, is_first: bool) -> None:
        """Do what *error* needs done before the call is made again. Raises ToolError where nothing helps, or did."""
        if error.code == wire.HEADER_MISMATCH and is_first and not running.has_listed:
            running.has_listed = True
            await self.tools()  # its schema says which arguments are sent as headers
        elif error.code == wire.URL_ELICITATION_REQUIRED and not running.has_visited:
            running.has_visited = True
            await running.visit(error.error.data)
        else:
            if error.code == wire.MISSING_REQUIRED_CLIENT_CAPABILITY:
                running.note_lacking(error.error.data)
            raise self._failure(error) from None

    async def _list(self, of: List) -> list[Any]:
        ask = getattr(self._open.session, f"list_{of.name}")
        try:
            async with asyncio.timeout(_LIST_TIMEOUT_S):
                return await self._answer(of.read(lambda page: ask(params=page)))
        except TimeoutError:
            raise ToolError(f"'{self}' did not list what it has in time.", "timeout") from None

    async def _answer(self, request: Awaitable[R]) -> R:
        try:
            return await request
        except MCPError as error:
            raise self._failure(error) from None
        except ValidationError:
            raise self._failure(MCPError(wire.PARSE_ERROR, "")) from None

    def _failure(self, error: MCPError) -> ToolError:
        """Return what a request failed by, for the model."""
        key: int | str = error.code
        data = error.error.data
        if error.code == HTTP_FAILED:
            if data["status"] in (401, 403):
                return Refused(str(self), data["status"], data["challenge"])
            key = "busy" if data["status"] == 429 else "answered" if "answered" in data else "unreachable"
        elif error.code == wire.INVALID_REQUEST and error.message == "Session terminated":
            key = "terminated"
        elif key == wire.CONNECTION_CLOSED and not _has_ended(error):
            key = "refused"
        code, text = _FAILURES.get(key, ("failed", "'{0}' failed: {1}"))
        if key in _LOST:
            self._on_lost()
        return ToolError(text.format(self, one_line(error.message)), code)

    # What the server says by itself

    async def follow(self, uris: frozenset[str]) -> None:
        """Call `on_change` from now on when a resource at one of *uris* is updated, if the server reports that."""
        client, before = self._open, self._followed
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            last, self._following = self._following, None
            if uris:
                reports = asyncio.Event()
                self._following = self._start_listening(client, [ResourceUpdated(uri) for uri in sorted(uris)], reports)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_STEP_TIMEOUT_S):
                        await reports.wait()
            if last is not None:
                last.cancel()  # only now, so that nothing is missed between
        elif (capability := self.capabilities.resources) is not None and capability.subscribe:
            for uri in before - uris:
                self._followed -= {uri}
                end = wire.UnsubscribeRequest(params=wire.UnsubscribeRequestParams(uri=uri))
                await self._answer(client.session.send_request(end, wire.EmptyResult))
            for uri in uris - before:
                start = wire.SubscribeRequest(params=wire.SubscribeRequestParams(uri=uri))
                await self._answer(client.session.send_request(start, wire.EmptyResult))
                self._followed |= {uri}

    def _listen_to_lists(self, client: Client) -> None:
        """Follow the lists of a server of the newer era, those that it says it reports."""
        of = self.capabilities
        lists = (
            (of.tools, ToolsListChanged()),
            (of.resources, ResourcesListChanged()),
            (of.prompts, PromptsListChanged()),
        )
        events: list[ServerEvent] = [event for capability, event in lists if capability and capability.list_changed]
        if events and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._start_listening(client, events, asyncio.Event())

    def _start_listening(self, client: Client, to: Sequence[ServerEvent], opened: asyncio.Event) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._listen(client, to, opened))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        return task

    async def _listen(self, client: Client, to: Sequence[ServerEvent], opened: asyncio.Event) -> None:
        failures = 0
        while not self._closing.is_set():
            start_s = monotonic()
            try:
                async with client.listen(
                    tools_list_changed=ToolsListChanged() in to,
                    prompts_list_changed=PromptsListChanged() in to,
                    resources_list_changed=ResourcesListChanged() in to,
                    resource_subscriptions=[event.uri for event in to if isinstance(event, ResourceUpdated)],
                ) as events:
                    for event in to if failures else ():
                        self._on_change(event)  # what was missed meanwhile
                    opened.set()
                    async for event in events:
                        self._on_change(event)
            except ListenNotSupportedError:
                return
            except (MCPError, SubscriptionLost, ToolError):
                pass
            finally:
                opened.set()
            failures = 1 if monotonic() - start_s > _LISTEN_INTERVALS_S[-1] else failures + 1
            await asyncio.sleep(_LISTEN_INTERVALS_S[min(failures, len(_LISTEN_INTERVALS_S)) - 1])

    async def _receive(self, message: Any) -> None:
        if (change := _CHANGES.get(type(message))) is not None:
            self._on_change(change)
        elif isinstance(message, wire.ResourceUpdatedNotification):
            self._on_change(ResourceUpdated(str(message.params.uri)))

    async def _ping(self) -> None:
        """Return when the server has read what it was sent before. It asks only results in the newer era."""
        if (client := self._client) is not None and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await client.session.send_ping()

    async def _asked(self, kind: Callable[..., Any], context: ClientRequestContext, params: Any = None) -> Any:
        """Answer a question of the older era, or one of a resource or a prompt: of *kind*, with *params*."""
        if (running := self._running.asking()) is None:
            reason = "This question cannot be attributed: several calls run, or none, or one of another was given up."
            return wire.ErrorData(code=wire.INVALID_REQUEST, message=reason)
        return await running.asked(kind(params=params))


def _has_ended(error: MCPError) -> bool:
    """Return whether the SDK (2.3.0) says that a session or stream ended: servers use its code for errors of theirs."""
    return error.code == wire.CONNECTION_CLOSED and error.message.startswith(("Connection closed", "SSE stream"))
