"""A call of an MCP server while it runs: its progress, and what the server asks the caller meanwhile."""

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from math import isfinite
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import mcp_types as wire
from pydantic import ValidationError

from ..core import Caller, Context, DefinitionError, Suspended, ToolError

MOST_QUESTIONS = 20
"""How many a server may ask of one call at once."""
_LONGEST_QUESTION, _LONGEST_ADDRESS, _LONGEST_FORM, _LONGEST_KEY = 2000, 2000, 64 * 1024, 150
_GIVEN_UP_S = 60.0
"""How long a server may still work, and ask, for what was given up."""


class RunningCall:
    """A call that runs, and what its caller is asked meanwhile."""

    def __init__(self, context: Context, server: str) -> None:
        self._context = context
        self.caller = context.caller
        self._server = server
        self._questions = 0
        self._pending: Suspended | None = None
        self._error: ToolError | None = None
        self.has_listed = self.has_visited = False

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if isfinite(progress):  # others are not JSON
            total = total if total is not None and isfinite(total) else None
            self._context.progress(progress, total, None if message is None else shown(message, 200))

    async def answer(self, key: str, asked: wire.InputRequest) -> wire.ElicitResult:
        """Of the newer era: the answer to what a result asks for. Raises Suspended where nobody is there."""
        if not isinstance(asked, wire.ElicitRequest):
            raise ToolError(f"'{self._server}' asks for what is not offered: {shown(asked.method)}.", "failed")
        if len(key) > _LONGEST_KEY:
            raise ToolError(f"'{self._server}' asks a question whose name is too long.", "failed")
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
        for number, each in enumerate(elicitations[:MOST_QUESTIONS] if isinstance(elicitations, list) else ()):
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
        properties: Any = {}
        if isinstance(params, wire.ElicitRequestURLParams):
            message = f"{message}\nOpen this address: {self._address(params.url)}"
            schema = {"type": "object", "properties": {}}
        else:
            schema = params.requested_schema
            properties = schema.get("properties", properties)
            is_form = isinstance(properties, dict) and all(isinstance(of, dict) for of in properties.values())
            if not is_form or len(json.dumps(schema)) > _LONGEST_FORM:
                raise self._no_form()
        try:
            value: Any = await self._context.ask(f"mcp:{key}", schema, message)
        except DefinitionError:
            raise self._no_form() from None
        except ToolError as error:
            if error.code != "denied":
                raise
            return wire.ElicitResult(action="decline")
        if isinstance(params, wire.ElicitRequestURLParams):
            return wire.ElicitResult(action="accept")
        defaults = {name: of["default"] for name, of in properties.items() if "default" in of}
        return wire.ElicitResult(action="accept", content={**defaults, **value})

    def _address(self, url: str) -> str:
        """*url*, which a person can be sent to. Raises ToolError: a name before the host would look like the host."""
        try:
            parts = urlsplit(url)
            is_plain = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        except ValueError:
            is_plain = False
        if not is_plain or not url.isprintable() or " " in url or len(url) > _LONGEST_ADDRESS:
            raise ToolError(f"'{self._server}' names an address that is not one of the web.", "failed")
        return url

    def _no_form(self) -> ToolError:
        return ToolError(f"'{self._server}' asks for what no form can ask for.", "failed")


class RunningCalls:
    """What runs in one session. A server of the older era does not say for which call it asks something."""

    def __init__(self) -> None:
        self._calls: list[RunningCall] = []
        self._others = 0
        self._given_up: dict[Caller | None, float] = {}
        """Whose requests were given up, and until when the server may still work on them, and ask."""

    @contextmanager
    def call(self, running: RunningCall) -> Generator[None]:
        self._calls.append(running)
        try:
            yield
        except asyncio.CancelledError:
            self._give_up(running.caller)
            raise
        finally:
            self._calls.remove(running)

    @contextmanager
    def other(self) -> Generator[None]:
        """What runs in the block is asked by somebody who cannot be asked anything, such as a resource."""
        self._others += 1
        try:
            yield
        except asyncio.CancelledError:
            self._give_up(None)
            raise
        finally:
            self._others -= 1

    def asked(self) -> RunningCall | None:
        """The call for which the server asks: None where it is not the only one, and it may be for another caller."""
        now = monotonic()
        if len(self._calls) != 1 or self._others:
            return None
        (running,) = self._calls
        is_other = any(until > now and who != running.caller for who, until in self._given_up.items())
        return None if is_other else running

    def _give_up(self, caller: Caller | None) -> None:
        now = monotonic()
        self._given_up = {who: until for who, until in self._given_up.items() if until > now}
        self._given_up[caller] = now + _GIVEN_UP_S


def shown(text: str, most: int = 500) -> str:
    """*text* of a server, on few lines and without what is not printed."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text[:most]).strip().rstrip(".")
