"""A call of an MCP server while it runs: its progress, and what the server asks the caller meanwhile."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from math import isfinite
from typing import Any
from urllib.parse import urlsplit

import mcp_types as wire
from pydantic import ValidationError

from ...core import Caller, Context, DefinitionError, ToolError
from ...machinery import Suspended, create_lasting_task

MAX_QUESTIONS = 20
"""How many a server may ask of one call at once, and how often."""
_MAX_TEXT, _MAX_FORM, _MAX_KEY = 2000, 64 * 1024, 150
_GIVEN_UP_S = 60.0
"""How long a server that does not answer may still work, and ask, for what was given up."""


class RunningCall:
    """A call that runs, and what its caller is asked meanwhile."""

    def __init__(self, context: Context, server: str) -> None:
        self.caller = context.caller
        self._context = context
        self._server = server
        self._questions = 0
        self._pending: Suspended | None = None
        self._error: ToolError | None = None
        self.has_listed = self.has_visited = False

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if isfinite(progress):  # others are not JSON
            total = total if total is not None and isfinite(total) else None
            self._context.progress(progress, total, None if message is None else one_line(message, 200))

    async def answer(self, key: str, question: wire.InputRequest) -> wire.ElicitResult:
        """Return the answer to what a result of the newer era asks for. Raises Suspended where it comes later."""
        if not isinstance(question, wire.ElicitRequest) or len(key) > _MAX_KEY:
            raise self._failure("asks for what is not offered")
        return await self._ask(key, question.params)

    async def elicited(self, params: wire.ElicitRequestParams) -> wire.ElicitResult:
        """Return the answer of the older era, for which the server waits. Where it comes later, the call ends so."""
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
        for number, item in enumerate(elicitations[:MAX_QUESTIONS] if isinstance(elicitations, list) else ()):
            try:
                params = wire.ElicitRequestURLParams.model_validate(item)
            except ValidationError:
                continue
            if (await self._ask(f"url-{number}", params)).action != "accept":
                raise ToolError(f"What '{self._server}' needs was declined.", "denied")

    async def _ask(self, key: str, params: wire.ElicitRequestParams) -> wire.ElicitResult:
        message = f"{self._server} asks: {one_line(params.message, _MAX_TEXT)}"
        schema: Any = {"type": "object", "properties": {}}
        if isinstance(params, wire.ElicitRequestURLParams):
            if not _is_web_address(params.url):
                raise self._failure("names an address that is not one of the web")
            message = f"{message}\nOpen this address: {params.url}"
        else:
            schema = params.requested_schema
        properties: Any = schema.get("properties", {})
        is_form = isinstance(properties, dict) and all(isinstance(member, dict) for member in properties.values())
        if not is_form or len(json.dumps(schema)) > _MAX_FORM:
            raise self._failure("asks for what no form can ask for")
        try:
            value: Any = await self._context.ask(f"mcp:{key}", schema, message)
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
    """Return whether a person can be sent to *url*: a name before the host would look like the host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    return is_web and url.isprintable() and " " not in url and len(url) <= _MAX_TEXT


class RunningCalls:
    """What runs in one session. Over HTTP a question of the older era comes on the stream of its request.

    Elsewhere a server does not say for which call it asks: it is for the only one that runs, if no call of another
    caller was given up that the server may still work on. *has_read* returns when the server has read what it was sent
    before; official SDKs ask nothing for a call whose cancellation they have read.
    """

    def __init__(self, has_read: Callable[[], Awaitable[object]]) -> None:
        self._has_read = has_read
        self._running: list[_Entry] = []
        self._given_up: list[_Entry] = []
        self._confirming: asyncio.Task[None] | None = None

    @contextmanager
    def run(self, caller: Caller | None, call: RunningCall | None = None) -> Generator[None]:
        """Note what *caller* has run in the block: a *call*, or a resource or prompt, whose reader cannot be asked."""
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
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text[:limit]).strip().rstrip(".")
