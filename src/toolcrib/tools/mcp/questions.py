"""A call of an MCP server while it runs: its progress, and what the server asks the caller meanwhile."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast
from urllib.parse import urlsplit

import mcp_types as wire
from pydantic import ValidationError

from ...core import Caller, Context, DefinitionError, ToolError
from ...machinery import ApprovalPort, Semaphore, Suspended, create_lasting_task, escaped
from .targets import Target

MAX_QUESTIONS = 20
"""How many a server may ask of one call."""
RELAYED = ("sampling", "roots")
"""The capabilities that a server has only by the operator's leave: what is asked is not of a person."""
_REFUSALS = {"denied": -1, "unavailable": wire.METHOD_NOT_FOUND, "failed": wire.INVALID_PARAMS}
_MAX_TEXT, _MAX_FORM, _MAX_KEY = 2000, 64 * 1024, 150
_GIVEN_UP_S = 60.0
"""How long a server that does not answer may still work, and ask, for what was given up."""


class RunningCall:
    """A call that runs, and what its caller is asked meanwhile."""

    def __init__(self, context: Context, target: Target) -> None:
        self._context = context
        self._port = cast(ApprovalPort, context.port)
        self._target, self._server = target, target.shown_name
        self._questions = 0
        self._asked: Counter[str] = Counter()
        self._pending: Suspended | None = None
        self._error: ToolError | None = None
        self.has_listed = self.has_visited = False

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if isfinite(progress):  # others are not JSON
            total = total if total is not None and isfinite(total) else None
            self._context.progress(progress, total, None if message is None else one_line(message, 200))

    @property
    def withheld(self) -> Sequence[str]:
        """Return those of `RELAYED` that the client of this call lacks: all, where there is no client."""
        client = self._port.client
        return [name for name in RELAYED if client is None or not client.can(name)]

    def note_lacking(self, data: Any) -> None:
        """Note for the client what a server of the newer era needs it to be capable of (error -32021)."""
        needs = data.get("requiredCapabilities") if isinstance(data, dict) else None
        if self._port.client is not None and isinstance(needs, dict):
            self._port.client.missing |= {name: {} for name in RELAYED if name in needs}

    async def answer(self, key: str, question: wire.InputRequest) -> wire.InputResponse:
        """Return the answer to what a server asks. Raises ToolError, and Suspended where it comes later."""
        self._questions += 1
        if len(key) > _MAX_KEY or self._questions > MAX_QUESTIONS:
            raise self._failure(f"asks more than {MAX_QUESTIONS} questions of one call, or by too long a name")
        match question:
            case wire.ElicitRequest():
                return await self._ask(key, question.params)
            case wire.CreateMessageRequest() if self._target.sampling:
                answer = await self._relay("sampling", key, self._sampling(question.params))
                return wire.CreateMessageResult.model_validate(answer)
            case wire.ListRootsRequest() if self._target.roots:
                answer = await self._relay("roots", key, wire.ListRootsRequest())
                return wire.ListRootsResult.model_validate(answer)
            case _:
                raise self._failure("asks for what is not offered")

    async def asked(self, question: wire.InputRequest) -> wire.InputResponse | wire.ErrorData:
        """Return the answer of the older era, for which the server waits. Where it comes later, the call ends so."""
        # By kind: a server asks for folders whenever it likes, and the next run must find the answers to the others.
        self._asked[question.method] += 1
        try:
            return await self.answer(f"{question.method} {self._asked[question.method]}", question)
        except Suspended as suspended:
            self._pending = suspended
        except ToolError as error:
            if not isinstance(question, wire.ElicitRequest):
                code = _REFUSALS.get(error.code, wire.INTERNAL_ERROR)
                return wire.ErrorData(code=code, message=error.message)
            self._error = error
        if isinstance(question, wire.ElicitRequest):
            return wire.ElicitResult(action="cancel")
        return wire.ErrorData(code=_REFUSALS["denied"], message="The client is asked; the call is made again then.")

    def require_answers(self) -> None:
        """Raise what a question of this call ended with."""
        if self._pending is not None:
            raise self._pending
        if self._error is not None:
            raise self._error

    async def visit(self, data: Any) -> None:
        """Have the caller open the addresses that a server needs them to have been at (error -32042)."""
        elicitations = data.get("elicitations") if isinstance(data, dict) else None
        for number, item in enumerate(elicitations[:MAX_QUESTIONS] if isinstance(elicitations, list) else ()):
            try:
                params = wire.ElicitRequestURLParams.model_validate(item)
            except ValidationError:
                continue
            if (await self._ask(f"url-{number}", params)).action != "accept":
                raise ToolError(f"What '{self._server}' needs was declined.", "denied")

    async def _relay(self, capability: str, key: str, question: wire.InputRequest) -> dict[str, Any]:
        if capability in self.withheld:
            if self._port.client is not None:
                self._port.client.missing[capability] = {}
            raise ToolError(f"'{self._server}' needs a client that has the capability '{capability}'.", "unavailable")
        answer: dict[str, Any] = await self._port.client.relay(f"mcp:{key}", self._server, question)
        if len(json.dumps(answer)) > _MAX_FORM:
            raise self._failure("was answered by the client with more than may be passed on")
        return answer

    def _sampling(self, params: wire.CreateMessageRequestParams) -> wire.CreateMessageRequest:
        """Return *params* as they are passed on: they name the source, and have nothing that is not seen."""
        messages = [
            wire.SamplingMessage(role=message.role, content=_seen(block))
            for message in params.messages
            for block in message.content_as_list
            if isinstance(block, wire.TextContent | wire.ImageContent | wire.AudioContent)
        ]
        count = sum(len(message.content_as_list) for message in params.messages)
        source = f"The MCP server '{self._server}' asks this, and not the user."
        passed = wire.CreateMessageRequestParams(
            messages=messages,
            system_prompt=f"{source}\n{_printed(params.system_prompt or '')}".strip(),
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            stop_sequences=params.stop_sequences,
            model_preferences=params.model_preferences,
        )
        if params.tools or len(messages) != count or len(passed.model_dump_json()) > _MAX_FORM:
            raise self._failure("asks a model for what is not passed on: tools, or more than 64 KiB")
        return wire.CreateMessageRequest(params=passed)

    async def _ask(self, key: str, params: wire.ElicitRequestParams) -> wire.ElicitResult:
        message, url = f"{self._server} asks: {one_line(params.message, _MAX_TEXT)}", None
        schema: Any = {"type": "object", "properties": {}}
        if isinstance(params, wire.ElicitRequestURLParams):
            if not _is_web_address(url := params.url):
                raise self._failure("names an address that is not one of the web")
            text = one_line(params.message.replace("\n", " "), _MAX_TEXT)
            host = urlsplit(url).hostname
            message = f"{self._server} asks to open a page at {host}: {text}\nOpen this address: {url}"
        else:
            schema = params.requested_schema
        properties: Any = schema.get("properties", {})
        is_form = isinstance(properties, dict) and all(isinstance(member, dict) for member in properties.values())
        if not is_form or len(json.dumps(schema)) > _MAX_FORM:
            raise self._failure("asks for what no form can ask for")
        try:
            value: Any = await self._port.ask(f"mcp:{key}", schema, message, url=url)
        except DefinitionError:
            raise self._failure("asks for what no form can ask for") from None
        except ToolError as error:
            if error.code != "denied":
                raise
            return wire.ElicitResult(action="decline")
        if isinstance(params, wire.ElicitRequestURLParams):
            return wire.ElicitResult(action="accept")
        defaults = {name: member["default"] for name, member in properties.items() if "default" in member}
        return wire.ElicitResult(action="accept", content={**defaults, **value})

    def _failure(self, what: str) -> ToolError:
        return ToolError(f"'{self._server}' {what}.", "failed")


def _is_web_address(url: str) -> bool:
    """Return whether a person can be sent to *url*: a name before the host would look like the host, and so would
    other letters, and what browsers read as a slash.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    return is_web and url.isascii() and url.isprintable() and not {" ", "\\"} & {*url} and len(url) <= _MAX_TEXT


class RunningCalls:
    """What runs in one session. Over HTTP a question of the older era comes on the stream of its request.

    Elsewhere a server does not say for which call it asks: it is for the only one that runs, if no call of another
    caller was given up that the server may still work on. *has_read* returns when the server has read what it was sent
    before; official SDKs ask nothing for a call whose cancellation they have read. *turns* are what principals share.
    """

    def __init__(self, has_read: Callable[[], Awaitable[object]], turns: Semaphore) -> None:
        self._has_read, self._turns = has_read, turns
        self._running: list[_Entry] = []
        self._given_up: list[_Entry] = []
        self._confirming: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def run(self, caller: Caller | None, call: RunningCall | None = None) -> AsyncGenerator[None]:
        """Note what *caller* has run in the block: a *call*, or a resource or prompt, whose reader cannot be asked."""
        permit = await self._turns.acquire(principal="" if caller is None else caller.principal)
        entry = _Entry(caller, call)
        self._running.append(entry)
        token = _current.set(entry)
        try:
            yield
        except asyncio.CancelledError:
            self._given_up.append(entry)
            if self._confirming is None or self._confirming.done():
                self._confirming = create_lasting_task(self._confirm())
            raise
        finally:
            _current.reset(token)
            self._running.remove(entry)
            self._turns.release(permit)

    def asking(self) -> RunningCall | None:
        """Return the call for which the server asks now; None where that is not known, or cannot be asked."""
        if (entry := _current.get()) is None and len(self._running) == 1:
            (entry,) = self._running
            if any(other.caller != entry.caller for other in self._given_up):
                return None
        return entry.call if entry is not None and entry in self._running else None

    async def _confirm(self) -> None:
        while self._given_up:
            count = len(self._given_up)
            with suppress(Exception):
                async with asyncio.timeout(_GIVEN_UP_S):
                    await self._has_read()
            del self._given_up[:count]


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    caller: Caller | None
    call: RunningCall | None


_current: ContextVar[_Entry | None] = ContextVar("toolcrib_mcp_request", default=None)
"""What a request is sent for. The SDK keeps it over HTTP for what comes on the stream of its answer."""


def one_line(text: str, limit: int = 500) -> str:
    """Return *text* of a server, on few lines and without what is not printed."""
    return _printed(text[:limit]).strip().rstrip(".")


def _printed(text: str) -> str:
    return escaped("".join(c if c.isprintable() or c == "\n" else " " for c in text), invisible=True)


def _seen(block: Any) -> Any:
    return wire.TextContent(text=_printed(block.text)) if isinstance(block, wire.TextContent) else block


def withheld() -> Sequence[str]:
    """Return the capabilities that the client of the request that is sent now does not have."""
    entry = _current.get()
    return RELAYED if entry is None or entry.call is None else entry.call.withheld
