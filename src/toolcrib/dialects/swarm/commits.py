"""A call of a tool under way: what its functions are told, and the output that it may commit before it ends."""

import asyncio
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from ...core import CancellationToken, Redaction, Repair, ToolError
from ...schema import write_any
from .reading import AgentTool, awaited
from .words import AbortSignal, IToolCall, IToolCallDto, IToolValidateDto

_log = logging.getLogger("toolcrib")

# Whoever commits knows the call by these three, and has nothing else of it: so the calls under way are the program's.
_under_way: "dict[tuple[str, str, str], CallUnderWay]" = {}


class CallUnderWay:
    """One call. Entered, it takes commits, from any thread. *happened* is told of what happens to it.

    *redaction* strikes secrets out of what is committed, and out of the log.
    """

    def __init__(
        self,
        tool: AgentTool,
        *,
        tool_id: str,
        client_id: str,
        agent_name: str,
        tool_calls: Sequence[IToolCall],
        call_reason: str,
        is_last: bool,
        timeout_s: float | None,
        happened: Callable[[Any, str, str], object],
        redaction: Redaction | None = None,
    ) -> None:
        self.tool = tool
        self.tool_id = tool_id
        self.client_id = client_id
        self.agent_name = agent_name
        self.tool_calls = tool_calls
        self.call_reason = call_reason
        self.is_last = is_last
        self.timeout_s = timeout_s
        self.happened = happened
        self.redaction = redaction
        self.params: dict[str, Any] = {}
        self.output: str | None = None
        self.committed = asyncio.Event()
        self.raised: Exception | None = None
        self.repairs: tuple[Repair, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    @property
    def _key(self) -> tuple[str, str, str]:
        return self.client_id, self.agent_name, self.tool_id

    def __enter__(self) -> Self:
        if _under_way.setdefault(self._key, self) is not self:
            raise ToolError(
                f"A call with the id '{self.tool_id}' is under way for this client and agent. Give each its own id.",
                "conflict",
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _under_way.pop(self._key, None)

    def commit(self, content: Any) -> bool:
        text = self._struck(content if isinstance(content, str) else write_any(self.tool.spec.name, content))
        with self._lock:
            if self.output is not None:
                _log.warning("The call '%s' has an output; the one committed after it does not count.", self.tool_id)
                return False
            self.output = text
        self.happened("commit", self.tool_id, "")
        self._loop.call_soon_threadsafe(self.committed.set)
        return True

    def given(self, returned: Any) -> Any:
        """What the call gives: what was committed, or else what it *returned*."""
        return returned if self.output is None else self.output

    async def ended(self, running: Awaitable[Any]) -> Any:
        """What the call gives, when it is no longer *running*."""
        with self.noticing():
            return self.given(await running)

    @contextmanager
    def noticing(self) -> Generator[None]:
        """Keep what the tool raises, for its observers: what a Result tells of it is for models."""
        try:
            yield
        except Exception as error:
            self.raised = error
            raise

    async def accept(self, params: dict[str, Any]) -> None:
        """Have *params*, which are what the schema says, validated. Raises ToolError for a no."""
        self.params = params
        await self.observe("on_validate", self.client_id, self.agent_name, params)
        self.happened("validate", self.tool_id, "")
        if self.tool.validate is None:
            return
        dto = IToolValidateDto(self.client_id, self.agent_name, self.tool_calls, params)
        if not await awaited(self.tool.validate(self._as_written(dto))):
            raise ToolError(f"Tool '{self.tool.spec.name}' does not accept these arguments.", "invalid_arguments")

    def dto(self, cancellation: CancellationToken) -> Any:
        """What `call` is given, with keys in the spelling of its tool."""
        signal = AbortSignal()
        cancellation.add_callback(signal.cancel)
        return self._as_written(
            IToolCallDto(
                tool_id=self.tool_id,
                client_id=self.client_id,
                agent_name=self.agent_name,
                tool_name=self.tool.tool_name,
                params=self.params,
                tool_calls=self.tool_calls,
                abort_signal=signal,
                call_reason=self.call_reason,
                is_last=self.is_last,
            )
        )

    def _as_written(self, dto: Any) -> Any:
        return {_camel(key): value for key, value in dto.items()} if self.tool.is_camel else dto

    async def observe_call(self, name: Any, *error: Exception) -> None:
        """Tell the observer *name* of this call."""
        await self.observe(name, self.tool_id, self.client_id, self.agent_name, self.params, *error)

    async def observe(self, name: Any, *arguments: Any) -> None:
        self.happened(name, self.tool_id, "")
        callback = self.tool.callbacks.get(name)
        if callback is None:
            return
        try:
            async with asyncio.timeout(self.timeout_s):
                await awaited(callback(*arguments))
        except Exception:
            trace = self._struck(traceback.format_exc())
            _log.error("The callback %s of '%s' failed, which changes nothing:\n%s", name, self.tool.tool_name, trace)

    def _struck(self, text: str) -> str:
        return text if self.redaction is None else self.redaction.strike(text)


async def commit_tool_output(tool_id: str, content: Any, client_id: str, agent_name: str) -> bool:
    """Make *content* the output of a call that is under way: the next call of its turn begins. Whether it counts.

    What is no text becomes JSON. It counts once, and only while the call is under way; else it is logged.
    """
    call = _under_way.get((client_id, agent_name, tool_id))
    if call is not None:
        return call.commit(content)
    ids = [each for client, agent, each in list(_under_way) if (client, agent) == (client_id, agent_name)]
    _log.warning(
        "An output for the call '%s' does not count: it is not under way for this client and agent '%s'. Those that "
        "are: %s.",
        tool_id,
        agent_name,
        ", ".join(map(repr, ids)) or "none",
    )
    return False


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
