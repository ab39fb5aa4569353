"""One open session with an MCP server, in a task of its own, by the official SDK: both eras of the protocol.

The task is its own because the SDK cancels the task that has opened a session when the session breaks.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from time import monotonic
from typing import Any, TypeVar

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

from ..core import Context, LoadError, ToolError, create_lasting_task
from .mcp_http import HTTP_FAILED, http
from .mcp_lists import PROMPTS, RESOURCES, TEMPLATES, TOOLS, ItemT, Malformed
from .mcp_running import MOST_QUESTIONS, RunningCall, RunningCalls, shown
from .mcp_transports import Address, Command, LastWords, process

R = TypeVar("R")

_CALL_RESULT: TypeAdapter[wire.CallToolResult | wire.InputRequiredResult] = TypeAdapter(
    wire.CallToolResult | wire.InputRequiredResult
)
_MOST_ROUNDS = 10
_OPENED_S = 10.0
_LISTED_S = 60.0
_LISTEN_AGAIN_S = (1.0, 5.0, 30.0)

_log = logging.getLogger("toolcrib.mcp")


class NeedsLogin(LoadError):
    """The server wants to know who asks: its answer was *status* 401 or 403, with a *challenge* (RFC 9728)."""

    def __init__(self, message: str, status: int, challenge: str) -> None:
        super().__init__(message)
        self.status = status
        self.challenge = challenge


class Session:
    """An open session with *target*. *on_lost* is called when it breaks, *on_change* with what has changed there.

    *authorization* are the headers of each request beside those of the target. All methods raise ToolError.
    """

    def __init__(
        self,
        target: Command | Address,
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
        self._last_words = LastWords()
        self._refusal: tuple[int, str] | None = None
        self._running = RunningCalls()
        self._followed: frozenset[str] = frozenset()
        self._listening: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Until it is open. Raises NeedsLogin, and LoadError with what failed."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = create_lasting_task(self._live(opened))
        try:
            await asyncio.shield(opened)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None and self._client is None:
            self._task.cancel()  # it is still being opened: nothing there waits for the end
        if self._task is not None and not self._task.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(10.0):
                    await asyncio.wait({self._task})
            self._task.cancel()
            await asyncio.wait({self._task})

    @property
    def capabilities(self) -> wire.ServerCapabilities:
        return self._open.server_capabilities

    async def tools(self) -> list[wire.Tool | Malformed]:
        """Its tools, from all pages; one more than it may have at most."""
        return await self._listed(TOOLS.read(lambda page: self._open.session.list_tools(params=page)))

    async def resources(self) -> list[wire.Resource]:
        read = RESOURCES.read(lambda page: self._open.session.list_resources(params=page))
        return self._well_formed(await self._listed(read))

    async def resource_templates(self) -> list[wire.ResourceTemplate]:
        read = TEMPLATES.read(lambda page: self._open.session.list_resource_templates(params=page))
        return self._well_formed(await self._listed(read))

    async def prompts(self) -> list[wire.Prompt]:
        read = PROMPTS.read(lambda page: self._open.session.list_prompts(params=page))
        return self._well_formed(await self._listed(read))

    async def read_resource(self, uri: str) -> wire.ReadResourceResult:
        with self._running.other():
            return await self._asked(self._open.read_resource(uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> wire.GetPromptResult:
        with self._running.other():
            return await self._asked(self._open.get_prompt(name, dict(arguments)))

    async def call(self, name: str, arguments: dict[str, Any], context: Context) -> wire.CallToolResult:
        """The result of a call. What the server asks meanwhile, the caller is asked."""
        running = RunningCall(context, str(self._target))
        try:
            with self._running.call(running):
                result = await self._call(name, arguments, running)
        except ToolError:
            running.require_answers()
            raise
        running.require_answers()
        return result

    async def _call(self, name: str, arguments: dict[str, Any], running: RunningCall) -> wire.CallToolResult:
        responses: dict[str, Any] | None = None
        state: str | None = None
        asked_before = 0
        for _ in range(_MOST_ROUNDS):
            params = wire.CallToolRequestParams(
                name=name, arguments=arguments, input_responses=responses, request_state=state
            )
            request = wire.CallToolRequest(params=params)
            try:
                # Not by the SDK's `call_tool`: it would check the result with patterns that never come to an end.
                result = await self._open.session.send_request(
                    request, _CALL_RESULT, progress_callback=running.progress
                )
            except MCPError as error:
                if error.code == wire.HEADER_MISMATCH and state is None and not running.has_listed:
                    running.has_listed = True
                    await self.tools()  # its schema says which arguments are sent as headers
                    continue
                if error.code == wire.URL_ELICITATION_REQUIRED and not running.has_visited:
                    running.has_visited = True
                    await running.visit(error.error.data)
                    continue
                raise self._failure(error) from None
            except ValidationError:
                raise ToolError(f"'{self}' did not answer as MCP requires.", "invalid_result") from None
            if isinstance(result, wire.CallToolResult):
                return result
            requests = result.input_requests or {}
            if len(requests) > MOST_QUESTIONS:
                raise ToolError(f"'{self}' asks more than {MOST_QUESTIONS} questions at once.", "failed")
            # A name that was used before is another question now.
            responses = {key: await running.answer(f"{asked_before}:{key}", one) for key, one in requests.items()}
            state, asked_before = result.request_state, asked_before + 1
        raise ToolError(f"'{self}' asks again and again, and never answers.", "failed")

    def __str__(self) -> str:
        return str(self._target)

    # Inside

    @property
    def _open(self) -> Client:
        if self._client is None:
            raise ToolError(f"The session with '{self}' is not open.", "unavailable")
        return self._client

    async def _live(self, opened: "asyncio.Future[None]") -> None:
        try:
            async with self._streams() as streams:
                client = Client(
                    streams,
                    mode="auto",
                    cache=None,
                    elicitation_callback=self._elicited,
                    message_handler=self._message,
                    client_info=wire.Implementation(name="toolcrib", version=version("toolcrib")),
                )
                async with client:
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
                opened.set_exception(self._problem(error))
                opened.exception()  # retrieved, also when nobody waits any more
            elif not self._closing.is_set():
                _log.warning("The session with '%s' broke: %s", self, type(error).__name__)
            if isinstance(error, asyncio.CancelledError) and self._closing.is_set():
                raise
        if not self._closing.is_set():
            self._on_lost()

    @asynccontextmanager
    async def _streams(self) -> AsyncGenerator[Any]:
        """A transport for the SDK, which enters and leaves it itself."""
        if isinstance(self._target, Command):
            yield process(self._target, self._on_end, self._last_words)
        else:
            yield http(self._target, self._authorization, self._note_refusal)

    def _note_refusal(self, status: int, challenge: str) -> None:
        self._refusal = status, challenge

    def _on_end(self) -> None:
        """The process writes no more."""
        if self._client is not None and not self._closing.is_set():
            self._on_lost()

    def _problem(self, error: BaseException) -> LoadError:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        words = f" It last wrote: {self._last_words.line}" if self._last_words.line else ""
        if isinstance(error, MCPError):
            if self._refusal is not None:
                return NeedsLogin("it needs a login", *self._refusal)
            reason = "it ended" if error.code == wire.CONNECTION_CLOSED else shown(error.message)
            return LoadError(f"{reason}.{words}")
        if isinstance(error, FileNotFoundError | PermissionError) and isinstance(self._target, Command):
            return LoadError(f"there is no command '{self._target.command[0]}'.")
        return LoadError(f"it cannot be connected to ({type(error).__name__}).{words}")

    def _failure(self, error: MCPError) -> ToolError:
        """What a request failed by, for the model."""
        data, message = error.error.data, shown(error.message)
        match error.code:
            case wire.CONNECTION_CLOSED:
                return ToolError(f"The session with '{self}' ended before it answered.", "lost")
            case wire.REQUEST_TIMEOUT:
                return ToolError(f"'{self}' did not answer in time.", "timeout")
            case _ if error.code == HTTP_FAILED and data["status"] in (401, 403):
                return Refused(str(self), data["status"], data["challenge"])
            case _ if error.code == HTTP_FAILED and data["status"] == 429:
                return ToolError(f"'{self}' takes no more requests now.", "limited")
            case _ if error.code == HTTP_FAILED:
                if "answered" not in data:
                    self._on_lost()
                return ToolError(f"'{self}' is not available: {message}.", "unavailable")
            case wire.INVALID_REQUEST if error.message == "Session terminated":
                self._on_lost()
                return ToolError(f"'{self}' has ended the session. Try again.", "unavailable")
            case wire.UNSUPPORTED_PROTOCOL_VERSION:
                self._on_lost()
                return ToolError(f"'{self}' speaks another version now. Try again.", "unavailable")
            case wire.PARSE_ERROR:
                return ToolError(f"'{self}' did not answer as MCP requires.", "invalid_result")
            case wire.INVALID_PARAMS:
                return ToolError(f"'{self}' refused the arguments: {message}", "invalid_arguments")
            case _:
                return ToolError(f"'{self}' failed: {message}", "failed")

    async def _asked(self, request: Awaitable[R]) -> R:
        try:
            return await request
        except MCPError as error:
            raise self._failure(error) from None
        except ValidationError:
            raise ToolError(f"'{self}' did not answer as MCP requires.", "invalid_result") from None

    async def _listed(self, read: Awaitable[R]) -> R:
        try:
            async with asyncio.timeout(_LISTED_S):
                return await self._asked(read)
        except TimeoutError:
            raise ToolError(f"'{self}' did not list what it has in time.", "timeout") from None

    def _well_formed(self, listed: Sequence[ItemT | Malformed]) -> list[ItemT]:
        for each in listed:
            if isinstance(each, Malformed):
                _log.warning("Not passed on: what '%s' lists as '%s': %s", self, each.name, each.reason)
        return [each for each in listed if not isinstance(each, Malformed)]

    # What the server says by itself

    async def follow(self, uris: frozenset[str]) -> None:
        """From now on, call `on_change` when a resource at one of *uris* is updated, if the server reports that."""
        client, before = self._open, self._followed
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            last, self._following = self._following, None
            if uris:
                opened = asyncio.Event()
                self._following = self._start_listening(client, [ResourceUpdated(uri) for uri in sorted(uris)], opened)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_OPENED_S):
                        await opened.wait()
            if last is not None:
                last.cancel()  # only now, so that nothing is missed between
        elif (offered := self.capabilities.resources) is not None and offered.subscribe:
            for uri in before - uris:
                self._followed -= {uri}
                await self._asked(client.session.send_request(_unsubscribe(uri), wire.EmptyResult))
            for uri in uris - before:
                await self._asked(client.session.send_request(_subscribe(uri), wire.EmptyResult))
                self._followed |= {uri}

    def _listen_to_lists(self, client: Client) -> None:
        """Of a server of the newer era: follow its lists, those that it says it reports."""
        of = self.capabilities
        reported: list[ServerEvent] = []
        reported += [ToolsListChanged()] if of.tools and of.tools.list_changed else []
        reported += [ResourcesListChanged()] if of.resources and of.resources.list_changed else []
        reported += [PromptsListChanged()] if of.prompts and of.prompts.list_changed else []
        if reported and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._start_listening(client, reported, asyncio.Event())

    def _start_listening(self, client: Client, to: Sequence[ServerEvent], opened: asyncio.Event) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._listen(client, to, opened))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        return task

    async def _listen(self, client: Client, to: Sequence[ServerEvent], opened: asyncio.Event) -> None:
        failures = 0
        while not self._closing.is_set():
            begun = monotonic()
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
            failures = 1 if monotonic() - begun > _LISTEN_AGAIN_S[-1] else failures + 1
            await asyncio.sleep(_LISTEN_AGAIN_S[min(failures, len(_LISTEN_AGAIN_S)) - 1])

    async def _message(self, message: Any) -> None:
        match message:
            case wire.ToolListChangedNotification():
                self._on_change(ToolsListChanged())
            case wire.ResourceListChangedNotification():
                self._on_change(ResourcesListChanged())
            case wire.PromptListChangedNotification():
                self._on_change(PromptsListChanged())
            case wire.ResourceUpdatedNotification(params=params):
                self._on_change(ResourceUpdated(str(params.uri)))
            case _:
                pass

    async def _elicited(
        self, context: ClientRequestContext, params: wire.ElicitRequestParams
    ) -> wire.ElicitResult | wire.ErrorData:
        """Of the older era, and where a resource or a prompt asks something."""
        if (running := self._running.asked()) is None:
            reason = "This question cannot be attributed: several calls run, or none, or one of another was given up."
            return wire.ErrorData(code=wire.INVALID_REQUEST, message=reason)
        return await running.elicited(params)


def _subscribe(uri: str) -> wire.SubscribeRequest:
    return wire.SubscribeRequest(params=wire.SubscribeRequestParams(uri=uri))


def _unsubscribe(uri: str) -> wire.UnsubscribeRequest:
    return wire.UnsubscribeRequest(params=wire.UnsubscribeRequestParams(uri=uri))


class Refused(ToolError):
    """The server refused who asked: with *status* 401 or 403, and its *challenge* (RFC 6750, RFC 9728)."""

    def __init__(self, server: str, status: int, challenge: str) -> None:
        reason = "the credentials are not valid there" if status == 401 else "more has to be granted"
        super().__init__(f"'{server}' refused the call: {reason}.", "unauthorized")
        self.status = status
        self.challenge = challenge
