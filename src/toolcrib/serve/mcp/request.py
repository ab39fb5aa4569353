"""One request of an MCP client, while it is answered: what the client can be asked, and is sent meanwhile.

Tools find it by a context variable, so that it reaches whatever they call, also in threads.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from ...core import Pending, ToolError
from ...machinery import Suspended, current_client, from_any_thread, redacted, redacted_data
from ...workbench import Workbench
from ..protocol.core import Exchange

ResultT = TypeVar("ResultT", bound=BaseModel)

RESULTS: Mapping[type[Any], type[wire.ElicitResult | wire.CreateMessageResult | wire.ListRootsResult]] = {
    wire.ElicitRequest: wire.ElicitResult,
    wire.CreateMessageRequest: wire.CreateMessageResult,
    wire.ListRootsRequest: wire.ListRootsResult,
}
MAX_NOTICE_CHARS = 2000
"""How much of what a tool says of its progress a client is sent."""
REFUSED = -1
"""The code by which a client says that its user refuses (client/sampling, "Error Handling")."""
_TIMEOUT_S = 600.0
_MAX_LINES = 1000
_LEVELS: Mapping[wire.LoggingLevel, int] = {
    "debug": 10,
    "info": 20,
    "notice": 25,
    "warning": 30,
    "error": 40,
    "critical": 50,
    "alert": 60,
    "emergency": 70,
}


class ClientRequest:
    """A request for *bench*, with the *responses* that came with it, by the names of what was asked (2026-07-28).

    It is open for a block, in which whatever runs finds it by `current_request`.
    `questions` are those that it ends with, for the client to answer before it makes the request again; `missing` is
    what the client would have to be capable of; `was_dismissed` where its person will not answer now.
    """

    def __init__(
        self, context: Exchange, bench: Workbench, responses: Mapping[str, wire.InputResponse] | None = None
    ) -> None:
        self.session: Any = context.session
        self._connection = context.connection
        self.bench = bench
        self.responses = responses or {}
        self.is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.questions: dict[str, wire.InputRequest] = {}
        self.missing: dict[str, Any] = {}
        self.was_dismissed = False
        self.is_open = True
        self.close_stream = context.close_sse_stream
        self._wake_soon = from_any_thread(ClientRequest._wake)  # with `self` it would keep itself alive
        # Of 2026-07-28 a client that names no level in its request is sent nothing.
        self._wanted: Any = context.meta.get(wire.LOG_LEVEL_META_KEY) if self.is_modern else None
        self._lines: deque[tuple[wire.LoggingLevel, str, str]] = deque(maxlen=_MAX_LINES)
        self._sending = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        self._before = current_client.set(self)

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self.is_open = False
            current_client.reset(self._before)

    @property
    def capabilities(self) -> wire.ClientCapabilities:
        return self.session.client_capabilities or wire.ClientCapabilities()

    @property
    def can_be_asked(self) -> bool:
        """Whether questions reach the client at all."""
        return self.is_modern or self.session.can_send_request

    @property
    def shows_forms(self) -> bool:
        elicitation = self.capabilities.elicitation
        # Before there were modes, forms were all there was.
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)

    @property
    def opens_urls(self) -> bool:
        elicitation = self.capabilities.elicitation
        return elicitation is not None and elicitation.url is not None

    def can(self, capability: str) -> bool:
        """Return whether the client has *capability*, and can be asked now."""
        return self.is_open and self.can_be_asked and getattr(self.capabilities, capability, None) is not None

    async def ask(self, questions: Mapping[str, wire.InputRequest]) -> dict[str, Any]:
        """Return the client's answers to *questions*, by their names. Raises ToolError, and Suspended where they come
        with the next request.
        """
        if self.is_modern:
            answers: dict[str, Any] = {name: self.responses.get(name) for name in questions}
            if open_ones := {name: questions[name] for name, answer in answers.items() if answer is None}:
                self.questions |= open_ones
                raise Suspended(self._pending())
        else:
            answers = dict(zip(questions, await self._ask_now(questions.values()), strict=True))
        for name, question in questions.items():
            if not isinstance(answers[name], RESULTS[type(question)]):
                raise ToolError(f"The client's answer to '{name}' is not what it was asked for.", "invalid_result")
        return answers

    async def _ask_now(self, questions: Iterable[wire.InputRequest]) -> Sequence[Any]:
        """Return the answers of a client of the older era to *questions*. Raises ToolError."""
        replies = (self.send(question, RESULTS[type(question)], timeout_s=_TIMEOUT_S) for question in questions)
        try:
            return await asyncio.gather(*replies)
        except MCPError as error:
            reason = f"The client did not answer: {error.message[:500]}"
            raise ToolError(reason, "denied" if error.code == REFUSED else "unavailable") from None
        except ValidationError:
            raise ToolError("The client's answer is not what it was asked for.", "invalid_result") from None

    async def relay(self, key: str, server: str, question: wire.InputRequest) -> dict[str, Any]:
        """Return the client's answer to what the MCP *server* behind this one asks of it: a call of its own, which
        rules, limits, redaction and the log see. Raises ToolError and Suspended.
        """
        params: Any = question.model_dump(mode="json", by_alias=True, exclude_none=True).get("params", {})
        request = type(question).model_validate({"params": redacted_data(params, self.bench.offers.redaction)})

        async def work(_: Mapping[str, Any]) -> Any:
            answer = (await self.ask({key: request}))[key]
            return answer.model_dump(mode="json", by_alias=True, exclude_none=True)

        result = await self.bench.offers.relay(question.method, server, params, work)
        if result.pending is not None:
            raise Suspended(result.pending)
        value: dict[str, Any] = result.unwrap()
        return value

    def _pending(self) -> Pending:
        caller = self.bench.caller
        return Pending(
            id="",
            kind="input",
            message="The client is asked.",
            digest="",
            tool="",
            principal=caller.principal,
            thread=caller.thread,
            expires_at=datetime.now(UTC) + timedelta(seconds=_TIMEOUT_S),
        )

    async def send(self, question: wire.InputRequest, result: type[ResultT], *, timeout_s: float) -> ResultT:
        """Return the answer to *question* of a client of the older era, on the stream of this request.

        Raises MCPError.
        """
        reply: ResultT = await self.session.send_request(question, result, timeout_s)
        return reply

    # What tools log

    def log(self, record: logging.LogRecord) -> None:
        """Send *record* to the client, if it wants that. From any thread."""
        levels: list[wire.LoggingLevel] = [name for name, number in _LEVELS.items() if number <= record.levelno]
        level = levels[-1] if levels else "debug"
        least = self._wanted if self.is_modern else self._connection.level
        if least not in _LEVELS or _LEVELS[level] < _LEVELS[least]:
            return
        text = redacted(record.getMessage(), self.bench.offers.redaction)
        self._lines.append((level, record.name.removeprefix("toolcrib.tool."), text))
        self._wake_soon(self)

    async def flush(self) -> None:
        """Send what was logged and has not been sent yet, before the answer."""
        async with self._sending:
            while self._lines:
                level, logger, text = self._lines.popleft()
                params = wire.LoggingMessageNotificationParams(level=level, logger=logger, data=text)
                await self.session.send_notification(wire.LoggingMessageNotification(params=params))

    def _wake(self) -> None:
        if self._lines and not self._tasks:
            task = asyncio.create_task(self._flush_now())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _flush_now(self) -> None:
        try:
            await self.flush()
        except Exception:
            logging.getLogger("toolcrib").debug("A client could not be sent what a tool logged", exc_info=True)


def current_request() -> ClientRequest | None:
    """Return the request that is answered now; None where there is none, and in what has outlived it."""
    request = current_client.get()
    return request if isinstance(request, ClientRequest) and request.is_open else None


class _ToClient(logging.Handler):
    """Passes what a tool logs on to the client whose request it runs for."""

    def emit(self, record: logging.LogRecord) -> None:
        # What a worker process prints is not known to be of the call that runs now.
        if (request := current_request()) is not None and record.module != "printed":
            try:
                request.log(record)
            except Exception:
                self.handleError(record)


_to_client = _ToClient()


def pass_on_logs() -> None:
    """Pass on what tools log to the clients that call them, from now on."""
    logging.getLogger("toolcrib.tool").addHandler(_to_client)


async def set_level(context: Exchange, params: wire.SetLevelRequestParams) -> wire.EmptyResult:
    """Answer `logging/setLevel`, of the older era: which lines its connection is sent."""
    context.connection.level = params.level
    return wire.EmptyResult()
