"""A call of an MCP server while it runs: its progress, and what the server asks the caller meanwhile."""

from math import isfinite
from typing import Any

import mcp_types as wire
from pydantic import ValidationError

from ..core import Context, Suspended, ToolError

_LONGEST_QUESTION = 2000
MOST_QUESTIONS = 20
"""How many a server may ask of one call at once."""


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
            if not params.url.startswith(("https://", "http://")) or not params.url.isprintable():
                raise ToolError(f"'{self._server}' names an address that is not one of the web.", "failed")
            message, schema = f"{message}\nOpen this address: {params.url}", {"type": "object", "properties": {}}
        else:
            schema = params.requested_schema
            properties = schema.get("properties", properties)
            if not isinstance(properties, dict) or not all(isinstance(of, dict) for of in properties.values()):
                raise ToolError(f"'{self._server}' asks for what no form can ask for.", "failed")
        try:
            value: Any = await self._context.ask(f"mcp:{key}"[:200], schema, message)
        except ToolError as error:
            if error.code != "denied":
                raise
            return wire.ElicitResult(action="decline")
        if isinstance(params, wire.ElicitRequestURLParams):
            return wire.ElicitResult(action="accept")
        defaults = {name: of["default"] for name, of in properties.items() if "default" in of}
        return wire.ElicitResult(action="accept", content={**defaults, **value})


def shown(text: str, most: int = 500) -> str:
    """*text* of a server, on few lines and without what is not printed."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text[:most]).strip().rstrip(".")
