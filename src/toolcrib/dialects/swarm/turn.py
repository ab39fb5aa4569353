"""What an agent does with the tool calls of one turn: first all are validated, then they run one after another.

One workbench checks the arguments and runs the validation, another one runs the calls. So a refusal, a deadline, a
failure and a cancellation are those of the core, with its messages.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core import (
    Call,
    Caller,
    CancellationToken,
    Context,
    NameConflictError,
    Redaction,
    Result,
    SetupError,
    Text,
    ToolError,
)
from ...machinery import AtDeadline
from ...record import Redactor
from ...schema import returns_awaitable
from ...tools import Tool, from_work
from ...workbench import Workbench
from .definitions import agent_tool
from .interfaces import EventKind, Execution, IToolCall, IToolCallFunction, Outcome, ToolEvent
from .tool import TYPES, AgentTool, ToolCall, awaited

DEFAULT_TIMEOUT_S = 60.0

_log = logging.getLogger("toolcrib")


async def resolve_tools(
    client_id: str, agent_name: str, tools: Iterable[Any], *, timeout_s: float | None = None
) -> list[AgentTool]:
    """Return the *tools* that are available to this client and agent, in order, for a model and for `execute_tools`.

    They are resolved concurrently. Of several whose functions have the same name, the first is returned. Raises what
    the factory of a function raises, SetupError where one takes longer than *timeout_s* seconds, and NameConflictError
    where two tools have one name in the swarm.
    """
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise SetupError("tools is a list: of IAgentTools, dictionaries, or the names of tools that were added.")
    read = [agent_tool(candidate) for candidate in tools]
    by_tool_name: dict[str, AgentTool] = {}
    for candidate in read:
        if by_tool_name.setdefault(candidate.tool_name, candidate) != candidate:
            raise NameConflictError(
                f"Two tools are named '{candidate.tool_name}' in the swarm. Give each a name of its own."
            )
    available = await asyncio.gather(*(_resolved(candidate, client_id, agent_name, timeout_s) for candidate in read))
    by_name: dict[str, AgentTool] = {}
    for tool in available:
        if tool is not None and (first := by_name.setdefault(tool.spec.name, tool)) is not tool:
            _log.warning(
                "The tools '%s' and '%s' have functions of the same name '%s'; the first one is used.",
                first.tool_name,
                tool.tool_name,
                tool.spec.name,
            )
    return list(by_name.values())


async def _resolved(tool: AgentTool, client_id: str, agent_name: str, timeout_s: float | None) -> AgentTool | None:
    if tool.is_available is not None:
        try:
            async with asyncio.timeout(timeout_s):
                if not await awaited(tool.is_available(client_id, agent_name, tool.tool_name)):
                    return None
        except Exception:
            _log.exception("is_available of '%s' failed, so the tool is not available", tool.tool_name)
            return None
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await tool.resolved(client_id, agent_name)
    except TimeoutError:
        if not limit.expired():
            raise
        raise SetupError(f"The function of tool '{tool.tool_name}' was not returned within {timeout_s:g} s.") from None


async def execute_tools(
    client_id: str,
    agent_name: str,
    tool_calls: Iterable[IToolCall | Mapping[str, Any]],
    tools: Iterable[Any],
    *,
    call_reason: str = "",
    max_tool_calls: int | None = None,
    abort: CancellationToken | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    secrets: Iterable[str] = (),
    show_errors: bool = False,
) -> Execution:
    """Run the *tool_calls* of one turn as the agent does, and return what happened.

    *tools* are IAgentTools, dictionaries, or names of tools that were added. First every call, in order, goes through
    its schema, `on_validate`, `validate` and `on_before_call`; if one is refused, or its tool does not exist, none
    runs. Then they run in order, each when the one before it has committed its output or returned. When one fails,
    those that have not started are skipped.

    - *call_reason*: the model's text beside its calls.
    - *max_tool_calls*: how many are run, the last ones; the others are reported as dropped. None runs all.
    - *abort*: to be cancelled to give up on the turn: what runs is cancelled, and the rest is skipped.
    - *timeout_s*: the longest that each call, validation and callback may take, in seconds.
    - *secrets*, *show_errors*: those of a Workbench.

    Raises SetupError for malformed tool calls, DefinitionError for what cannot be a tool, and what the factory of a
    function raises. What a tool does never raises.
    """
    if not timeout_s > 0:
        raise SetupError("timeout_s is a number of seconds above 0.")
    if max_tool_calls is not None and max_tool_calls < 0:
        raise SetupError("max_tool_calls is how many calls are run: 0 or more, or None for all.")
    calls = _with_ids(tool_calls)
    by_name = {tool.spec.name: tool for tool in await resolve_tools(client_id, agent_name, tools, timeout_s=timeout_s)}
    texts = tuple(secrets)
    turn = _Turn(
        client_id,
        agent_name,
        calls,
        calls if max_tool_calls is None else calls[len(calls) - min(max_tool_calls, len(calls)) :],
        call_reason,
        abort or CancellationToken(),
        timeout_s,
        {"secrets": texts, "show_errors": show_errors},
        Redactor(texts) if texts else None,
    )
    if turn.is_well_formed() and await turn.accept_all(by_name):
        await turn.run_all()
    return turn.execution()


@dataclass(slots=True)
class _Turn:
    """One turn under way. *calls* are those of *all_calls* that are run. `status` is the outcome so far."""

    client_id: str
    agent_name: str
    all_calls: tuple[IToolCall, ...]
    calls: tuple[IToolCall, ...]
    call_reason: str
    abort: CancellationToken
    timeout_s: float
    options: Mapping[str, Any]
    redaction: Redaction | None
    status: Outcome = "success"
    reason: str = ""
    events: list[ToolEvent] = field(default_factory=list[ToolEvent])
    results: dict[str, Result[Any]] = field(default_factory=dict[str, Result[Any]])
    calls_by_id: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])

    def is_well_formed(self) -> bool:
        """Refuse calls that share an id, or are of an unknown type. Drop those above the limit."""
        for tool_id, number in Counter(map(_id, self.all_calls)).items():
            if number > 1:
                self._refuse(tool_id, f"{number} calls have the id '{tool_id}'. Give each its own.", "conflict")
        for call in self.all_calls:
            if (kind := call.get("type", "function")) not in TYPES:
                types = ", ".join(map(repr, TYPES))
                message = f"{kind!r} is not a type of tool. The types are: {types}."
                self._refuse(_id(call), message, "invalid_arguments")
        if self.status != "success":
            return False
        for call in self.all_calls[: len(self.all_calls) - len(self.calls)]:
            message = f"This call was dropped: at most {len(self.calls)} calls of a turn are run, the last ones."
            self._end(_id(call), "dropped", ToolError(f"{message} Ask for it again.", "limited"))
        return True

    def _refuse(self, tool_id: str, message: str, code: str) -> None:
        self.status = "refused"
        self.reason = self.reason or f"because the call '{tool_id}' was refused"
        self._end(tool_id, "refused", ToolError(message, code))

    async def accept_all(self, tools: Mapping[str, AgentTool]) -> bool:
        """Return whether all calls are accepted."""
        accepting = [from_work(tool.spec, self._accept, home=__name__) for tool in tools.values()]
        async with Workbench(accepting, caller=Caller(self.client_id), **self.options) as bench:
            for number, call in enumerate(self.calls, 1):
                if self._is_aborted():
                    return False
                tool_id, function = _id(call), call["function"]
                if function["name"] in tools:
                    self.calls_by_id[tool_id] = ToolCall(
                        tools[function["name"]],
                        tool_id,
                        self.client_id,
                        self.agent_name,
                        self.calls,
                        self.call_reason,
                        is_last=number == len(self.calls),
                        timeout_s=self.timeout_s,
                        on_event=self._event,
                        on_stop=self._stop,
                        redaction=self.redaction,
                        previous=next(reversed(self.calls_by_id.values()), None),
                    )
                result = await bench.call(self._call(tool_id))
                if result.error is not None:
                    if not self._is_aborted():
                        self._refuse(tool_id, result.error.message, result.error.code)
                        self.results[tool_id] = result
                    return False
                await self.calls_by_id[tool_id].observe_call("on_before_call")
        return True

    async def _accept(self, arguments: dict[str, Any], context: Context) -> None:
        await self.calls_by_id[context.call.id].accept(arguments)

    async def run_all(self) -> None:
        """Run the accepted calls, each when the one before has an output."""
        tools = {call.tool.spec.name: call.tool for call in self.calls_by_id.values()}
        running = [self._running(tool) for tool in tools.values()]
        # Results are not shortened: a model could not read the rest.
        bench = Workbench(running, caller=Caller(self.client_id), max_result_chars=None, **self.options)
        async with bench, asyncio.TaskGroup() as group:
            try:
                for call in self.calls_by_id.values():
                    if self.status != "success" or self._is_aborted():
                        break
                    self._event("call", call.tool_id)
                    job = group.create_task(self._run(call, bench))
                    committed = group.create_task(call.committed.wait())
                    await asyncio.wait({job, committed}, return_when=asyncio.FIRST_COMPLETED)
                    committed.cancel()
            finally:
                for call in self.calls_by_id.values():
                    call.release()  # no other will begin

    def _running(self, tool: AgentTool) -> Tool[..., Any]:
        async def run(_: dict[str, Any], context: Context) -> Any:
            return await self.calls_by_id[context.call.id].run(context)

        at_deadline: AtDeadline = "cancelled" if returns_awaitable(tool.call) else "left_running"
        return from_work(tool.spec, run, home=__name__, at_deadline=at_deadline)

    async def _run(self, call: ToolCall, bench: Workbench) -> None:
        try:
            with call.under_way():
                result = await bench.call(self._call(call.tool_id))
        except ToolError as error:
            result = self._failed(call.tool_id, error)
        finally:
            call.release_previous()  # also where it ended before its tool was called
        self.results[call.tool_id] = result
        if result.error is None:
            self._event("return", call.tool_id)
            await call.observe_call("on_after_call")
            return
        if not self._is_aborted():
            self.status = "error"
            self.reason = self.reason or f"because the call '{call.tool_id}' failed"
        self._event("error", call.tool_id, result.error.message)
        await call.observe_call("on_call_error", call.exception or result.error)

    def execution(self) -> Execution:
        """Return what happened. Calls without a result were skipped."""
        for call in self.all_calls:
            if _id(call) not in self.results:
                self._end(_id(call), "skipped", ToolError(f"This call was not run, {self.reason}.", "cancelled"))
        results = {_id(call): self.results[_id(call)] for call in self.all_calls}
        outputs: dict[str, str] = {}
        for tool_id, result in results.items():
            output = self.calls_by_id[tool_id].output if tool_id in self.calls_by_id else None
            if output is not None or result.error is None:
                outputs[tool_id] = result.text if output is None else output
        return Execution(self.status, self.calls, tuple(self.events), outputs, results)

    def _function(self, tool_id: str) -> IToolCallFunction:
        return next(call["function"] for call in self.all_calls if _id(call) == tool_id)

    def _call(self, tool_id: str) -> Call:
        function = self._function(tool_id)
        return Call(function["name"], function.get("arguments"), tool_id, self.timeout_s, self.abort)

    def _is_aborted(self) -> bool:
        if self.abort.is_cancelled() and self.status == "success":
            self.status, self.reason = "aborted", "because the turn was aborted"
        return self.status == "aborted"

    def _stop(self) -> None:
        if self.status == "success":
            self.status, self.reason = "aborted", "because a tool has stopped the tools of the turn"

    def _event(self, kind: EventKind, tool_id: str, detail: str = "") -> None:
        self.events.append(ToolEvent(kind, tool_id, self._function(tool_id)["name"], detail))

    def _end(self, tool_id: str, kind: EventKind, error: ToolError) -> None:
        """Record that a call has ended before it started."""
        self._event(kind, tool_id, error.message)
        self.results[tool_id] = self._failed(tool_id, error)

    def _failed(self, tool_id: str, error: ToolError) -> Result[Any]:
        return Result(None, (Text(error.message),), error, call_id=tool_id, tool=self._function(tool_id)["name"])


def _with_ids(tool_calls: Any) -> tuple[IToolCall, ...]:
    """Return the calls, each with an id. Raises SetupError for what is not a list of tool calls."""
    if isinstance(tool_calls, Mapping | str) or not isinstance(tool_calls, Iterable):
        raise SetupError("tool_calls is a list of tool calls.")
    calls: list[Any] = []
    for call in tool_calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise SetupError(
                'A tool call is {"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}.'
            )
        calls.append({**call, "id": str(call.get("id") or Call("").id)})
    return tuple(calls)


def _id(call: IToolCall) -> str:
    return call.get("id", "")
