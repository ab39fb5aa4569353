"""One open session with an MCP server, in a task of its own, by the official SDK: both eras of the protocol.

The task is its own because the SDK cancels the task that has opened a session when the session breaks.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any, TypeVar

import mcp_types as wire
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from ..core import Context, LoadError, Suspended, ToolError, create_lasting_task
from .mcp_transports import HTTP_FAILED, Address, Command, LastWords, http, process

R = TypeVar("R", bound=wire.Result)

_CALL_RESULT: TypeAdapter[wire.CallToolResult | wire.InputRequiredResult] = TypeAdapter(
    wire.CallToolResult | wire.InputRequiredResult
)
_MOST_ROUNDS = 10
_MOST_PAGES = 200
_LONGEST_QUESTION = 2000
_LISTEN_AGAIN_S = (1.0, 5.0, 30.0)

_log = logging.getLogger("toolcrib.mcp")


class NeedsLogin(LoadError):
    """The server wants to know who asks: its answer was *status* 401 or 403, with a *challenge* (RFC 9728)."""

    def __init__(self, message: str, status: int, challenge: str) -> None:
        super().__init__(message)
        self.status = status
        self.challenge = challenge


class Session:
    """An open session with *target*. *on_lost* is called when it breaks, *on_change* when its lists have changed.

    *authorization* are the headers of each request beside those of the target. All methods raise ToolError.
    """

    def __init__(
        self,
        target: Command | Address,
        *,
        on_lost: Callable[[], None],
        on_change: Callable[[], None],
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
        self._running: list[_Running] = []
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
        if self._task is not None and not self._task.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(10.0):
                    await asyncio.wait({self._task})
            self._task.cancel()
            await asyncio.wait({self._task})

    @property
    def capabilities(self) -> wire.ServerCapabilities:
        return self._open.server_capabilities

    async def tools(self) -> list[wire.Tool]:
        """Its tools, from all pages."""
        return await self._pages(self._open.session.list_tools, lambda page: page.tools)

    async def resources(self) -> list[wire.Resource]:
        return await self._pages(self._open.session.list_resources, lambda page: page.resources)

    async def resource_templates(self) -> list[wire.ResourceTemplate]:
        return await self._pages(self._open.session.list_resource_templates, lambda page: page.resource_templates)

    async def prompts(self) -> list[wire.Prompt]:
        return await self._pages(self._open.session.list_prompts, lambda page: page.prompts)

    async def read_resource(self, uri: str) -> wire.ReadResourceResult:
        return await self._asked(self._open.read_resource(uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> wire.GetPromptResult:
        return await self._asked(self._open.get_prompt(name, dict(arguments)))

    async def call(self, name: str, arguments: dict[str, Any], context: Context) -> wire.CallToolResult:
        """The result of a call. What the server asks meanwhile, the caller is asked."""
        running = _Running(context, str(self._target))
        self._running.append(running)
        try:
            result = await self._call(name, arguments, running)
        except ToolError:
            running.require_answers()
            raise
        finally:
            self._running.remove(running)
        running.require_answers()
        return result

    async def _call(self, name: str, arguments: dict[str, Any], running: "_Running") -> wire.CallToolResult:
        responses: dict[str, Any] | None = None
        state: str | None = None
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
                raise ToolError(f"'{self}' did not answer as MCP says.", "invalid_result") from None
            if isinstance(result, wire.CallToolResult):
                return result
            requests = result.input_requests or {}
            responses = {key: await running.answer(key, asked) for key, asked in requests.items()}
            state = result.request_state
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
                    listening = asyncio.ensure_future(self._listen(client))
                    try:
                        await self._closing.wait()
                    finally:
                        self._client = None
                        listening.cancel()
                        await asyncio.wait({listening})
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
        words = f" Its last words: {self._last_words.line}" if self._last_words.line else ""
        if isinstance(error, MCPError):
            if self._refusal is not None:
                return NeedsLogin(f"{self} needs a login.", *self._refusal)
            reason = "it ended" if error.code == wire.CONNECTION_CLOSED else shown(error.message)
            return LoadError(f"{self} could not be connected to: {reason}.{words}")
        if isinstance(error, FileNotFoundError | PermissionError) and isinstance(self._target, Command):
            return LoadError(f"{self} could not be started: there is no command '{self._target.command[0]}'.")
        return LoadError(f"{self} could not be connected to: {type(error).__name__}.{words}")

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
            case _ if error.code == HTTP_FAILED:
                self._on_lost()
                return ToolError(f"'{self}' is not available: {message}.", "unavailable")
            case wire.INVALID_REQUEST if error.message == "Session terminated":
                self._on_lost()
                return ToolError(f"'{self}' has ended the session. Try again.", "unavailable")
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
            raise ToolError(f"'{self}' did not answer as MCP says.", "invalid_result") from None

    async def _pages(self, list_page: Callable[..., Awaitable[Any]], items: Callable[[Any], list[Any]]) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._asked(list_page(params=wire.PaginatedRequestParams(cursor=cursor)))
            found += items(page)
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ToolError(f"The list of '{self}' has more than {_MOST_PAGES} pages.", "too_large")

    # What the server says by itself

    async def _listen(self, client: Client) -> None:
        """Of a server of the newer era: follow its lists. Where it offers nothing of the kind, this ends."""
        tools = self.capabilities.tools
        if tools is None or not tools.list_changed:
            return
        failures = 0
        while not self._closing.is_set():
            try:
                async with client.listen(
                    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
                ) as events:
                    if failures:
                        self._on_change()  # what was missed meanwhile
                    failures = 0
                    async for _ in events:
                        self._on_change()
            except ListenNotSupportedError:
                return
            except (MCPError, SubscriptionLost, ToolError):
                pass
            failures += 1
            await asyncio.sleep(_LISTEN_AGAIN_S[min(failures, len(_LISTEN_AGAIN_S)) - 1])

    async def _message(self, message: Any) -> None:
        if isinstance(message, wire.ToolListChangedNotification):
            self._on_change()

    async def _elicited(
        self, context: ClientRequestContext, params: wire.ElicitRequestParams
    ) -> wire.ElicitResult | wire.ErrorData:
        """Of the older era: the server does not say which call it asks for, so there must be one only."""
        if len(self._running) != 1:
            reason = "This question cannot be attributed: several calls run, or none."
            return wire.ErrorData(code=wire.INVALID_REQUEST, message=reason)
        return await self._running[0].elicited(params)


class Refused(ToolError):
    """The server refused who asked: with *status* 401 or 403, and its *challenge* (RFC 6750, RFC 9728)."""

    def __init__(self, server: str, status: int, challenge: str) -> None:
        reason = "the credentials are not valid there" if status == 401 else "more has to be granted"
        super().__init__(f"'{server}' refused the call: {reason}.", "unauthorized")
        self.status = status
        self.challenge = challenge


class _Running:
    """A call that runs, and what its caller is asked meanwhile."""

    def __init__(self, context: Context, server: str) -> None:
        self._context = context
        self._server = server
        self._questions = 0
        self._pending: Suspended | None = None
        self._error: ToolError | None = None
        self.has_listed = self.has_visited = False

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._context.progress(progress, total, None if message is None else shown(message, 200))

    async def answer(self, key: str, asked: wire.InputRequest) -> wire.ElicitResult:
        """Of the newer era: the answer to what a result asks for. Raises Suspended where nobody is there."""
        if not isinstance(asked, wire.ElicitRequest):
            raise ToolError(f"'{self._server}' asks for what is not offered: {shown(asked.method)}.", "failed")
        return await self._ask(key, asked.params)

    async def elicited(self, params: wire.ElicitRequestParams) -> wire.ElicitResult:
        """Of the older era: the answer while the server waits. Where nobody is there, the call ends waiting."""
        self._questions += 1
        try:
            return await self._ask(str(self._questions), params)
        except Suspended as suspended:
            self._pending = suspended
        except ToolError as error:
            self._error = error
        return wire.ElicitResult(action="cancel")

    def require_answers(self) -> None:
        """Raise what a question of this call ended with."""
        if self._pending is not None:
            raise self._pending
        if self._error is not None:
            raise self._error

    async def visit(self, data: Any) -> None:
        """Have the caller open the addresses that a server needs them to have been at (error -32042)."""
        elicitations = data.get("elicitations") if isinstance(data, dict) else None
        for number, each in enumerate(elicitations if isinstance(elicitations, list) else ()):
            try:
                params = wire.ElicitRequestURLParams.model_validate(each)
            except ValidationError:
                continue
            answer = await self._ask(f"url-{number}", params)
            if answer.action != "accept":
                raise ToolError(f"What '{self._server}' needs was declined.", "denied")

    async def _ask(self, key: str, params: wire.ElicitRequestParams) -> wire.ElicitResult:
        message = f"{self._server} asks: {shown(params.message, _LONGEST_QUESTION)}"
        schema: Any
        if isinstance(params, wire.ElicitRequestURLParams):
            if not params.url.startswith(("https://", "http://")) or not params.url.isprintable():
                raise ToolError(f"'{self._server}' names an address that is not one of the web.", "failed")
            message, schema = f"{message}\nOpen this address: {params.url}", {"type": "object", "properties": {}}
        else:
            schema = params.requested_schema
        try:
            value: Any = await self._context.ask(f"mcp:{key}"[:200], schema, message)
        except ToolError as error:
            if error.code != "denied":
                raise
            return wire.ElicitResult(action="decline")
        if isinstance(params, wire.ElicitRequestURLParams):
            return wire.ElicitResult(action="accept")
        properties = schema.get("properties", {})
        defaults = {name: of["default"] for name, of in properties.items() if "default" in of}
        return wire.ElicitResult(action="accept", content={**defaults, **value})


def shown(text: str, most: int = 500) -> str:
    """*text* of a server, on few lines and without what is not printed."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text[:most]).strip().rstrip(".")
