"""One connection while it lasts: what a client of the older era has set and follows, and what it is asked.

Also the answer to one request, which is the same over any transport.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from mcp_types import methods
from pydantic import BaseModel

from ...core import Redaction
from ...machinery import log_failure
from . import core
from .session import Session

Write = Callable[[bytes], Awaitable[None]]
Answer = Callable[[core.Exchange], Awaitable[Any]]
"""Returns the result of a request, in its shape. Raises what `core.error_of` knows, and anything else for a mistake."""


class Connection:
    """A client of the older era. *write* sends it what belongs to no request of its own.

    Where it cannot be asked, its answers would come to another process.
    """

    __slots__ = (
        *("_given_up", "_replies", "_write"),
        *("can_ask", "closing", "followed", "level", "session"),
    )

    def __init__(self, session: Session, write: Write, *, can_ask: bool = True) -> None:
        self.session = session
        self.can_ask = can_ask
        self.level: wire.LoggingLevel = "info"
        self.followed: dict[str, None] = {}
        self.closing: dict[str, Callable[[], Awaitable[None]]] = {}
        """What is run when it ends, by who wants that."""
        self._write = write
        self._replies: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._given_up: dict[asyncio.Future[None], None] = {}

    async def send_notification(self, notice: BaseModel) -> None:
        await self._write(core.notice_of(notice))

    async def ask(self, question: wire.InputRequest, timeout_s: float, write: Write) -> Mapping[str, Any]:
        """Return the client's result of *question*, which *write* sends. Raises MCPError, and ValidationError."""
        data = question.model_dump(by_alias=True, mode="json", exclude_none=True)
        own_id, message = self.session.ask(data["method"], data.get("params"))
        reply = self._replies[own_id] = asyncio.Future()
        try:
            await write(message)
            async with asyncio.timeout(timeout_s):
                result: Any = await reply
        except TimeoutError:
            raise MCPError(wire.REQUEST_TIMEOUT, f"Request {data['method']!r} timed out") from None
        finally:
            del self._replies[own_id]
            notice = self.session.give_up(own_id, "It is not waited for any more.")
            if notice is not None:
                task = asyncio.ensure_future(write(notice))  # this one may be cancelled
                self._given_up[task] = None
                task.add_done_callback(self._given_up.pop)
        methods.validate_client_result(data["method"], self.session.version, result)
        return cast(Mapping[str, Any], result)

    def take(self, own_id: int, answer: Mapping[str, Any] | wire.ErrorData) -> None:
        """Hand over the client's *answer* to who asked."""
        reply = self._replies.get(own_id)
        if reply is None or reply.done():
            return
        if isinstance(answer, wire.ErrorData):
            reply.set_exception(MCPError.from_error_data(answer))
        else:
            reply.set_result(answer)

    async def close(self) -> None:
        while self.closing:
            await self.closing.popitem()[1]()


async def outcome(answer: Answer, exchange: core.Exchange, redaction: Redaction | None) -> Any:
    """Return the result of *exchange*, or ErrorData."""
    try:
        return await answer(exchange)
    except Exception as failure:
        error = core.error_of(failure)
        if error is None:
            log_failure(f"A request of MCP, {exchange.method[:100]!r}, has failed", failure, redaction)
            error = wire.ErrorData(code=wire.INTERNAL_ERROR, message="Internal server error")
        return error
