"""What an agent does with the tool calls of one turn: first all are validated, then they run one after another.

A workbench checks the arguments and runs the validation, another one runs the calls: so what is refused, runs out of
time, fails or is cancelled is so in the core's way and words.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core import Call, Caller, CancellationToken, Context, Redaction, Result, SetupError, Text, ToolError
from ...record import Redactor
from ...schema import gives_awaitable
from ...tools import Tool, given
from ...workbench import Workbench
from .commits import CallUnderWay
from .execution import EventKind, Execution, Outcome, ToolEvent
from .native import CONTEXT
from .reading import TYPES, AgentTool
from .resolving import resolve_tools
from .words import IToolCall

TIMEOUT_S = 60.0


async def execute_tools(
    client_id: str,
    agent_name: str,
    tool_calls: Iterable[IToolCall | Mapping[str, Any]],
    tools: Iterable[Any],
    *,
    call_reason: str = "",
    max_tool_calls: int | None = None,
    abort: CancellationToken | None = None,
    timeout_s: float = TIMEOUT_S,
    secrets: Iterable[str] = (),
    show_errors: bool = False,
) -> Execution:
    """Do what the agent does with the *tool_calls* of one turn, and say what happened.

    *tools* are IAgentTools, dictionaries, or names of tools that were added. First every call, in order, goes through
    its schema, `on_validate`, `validate` and `on_before_call`; where one is refused, or is of no tool that is here,
    none runs. Then they run in order, each when the one before it has committed its output or returned. When one fails,
    those that have not begun are skipped.

    - *call_reason*: what the model said beside its calls.
    - *max_tool_calls*: how many are run, the last ones; the others are reported as dropped. None runs all.
    - *abort*: cancelled by whoever gives up on the turn: what runs is cancelled, and the rest is skipped.
    - *timeout_s*: the longest that each call, validation and callback may take, in seconds.
    - *secrets*, *show_errors*: as of a Workbench.

    Raises SetupError for tool calls that are none, DefinitionError for tools that can be none, and what the factory of
    a function raises. What a tool does never raises.
    """
    if not timeout_s > 0:
        raise SetupError("timeout_s is a number of seconds above 0.")
    if max_tool_calls is not None and max_tool_calls < 0:
        raise SetupError("max_tool_calls is how many calls are run: 0 or more, or None for all.")
    options: dict[str, Any] = {"secrets": tuple(secrets), "show_errors": show_errors}
    redaction = Redactor(options["secrets"]) if options["secrets"] else None
    turn = _Turn(client_id, agent_name, call_reason, abort or CancellationToken(), timeout_s, redaction)
    turn.calls = _with_ids(tool_calls)
    resolved = await resolve_tools(client_id, agent_name, tools, timeout_s=timeout_s)
    return await turn.run({tool.spec.name: tool for tool in resolved}, max_tool_calls, options)


@dataclass(slots=True)
class _Turn:
    """One turn under way. `status` is what it comes to, as far as that is known."""

    client_id: str
    agent_name: str
    call_reason: str
    abort: CancellationToken
    timeout_s: float
    redaction: Redaction | None
    calls: tuple[IToolCall, ...] = ()
    status: Outcome = "success"
    reason: str = ""
    events: list[ToolEvent] = field(default_factory=list[ToolEvent])
    results: dict[str, Result[Any]] = field(default_factory=dict[str, Result[Any]])
    names: dict[str, str] = field(default_factory=dict[str, str])
    under_way: dict[str, CallUnderWay] = field(default_factory=dict[str, CallUnderWay])

    async def run(
        self, tools: Mapping[str, AgentTool], max_tool_calls: int | None, options: Mapping[str, Any]
    ) -> Execution:
        every = self.calls
        self.names = {_id(call): call["function"]["name"] for call in every}
        keep = len(every) if max_tool_calls is None else max_tool_calls
        dropped, self.calls = every[: max(0, len(every) - keep)], every[max(0, len(every) - keep) :]
        if self._refuses_form(every):
            return self._execution(every)
        for call in dropped:
            said = f"This call was dropped: at most {keep} of a turn are run, the last ones. Ask for it again."
            self._ended(_id(call), "dropped", ToolError(said, "limited"))
        if await self._all_accepted(tools, options):
            await self._all_called(options)
        return self._execution(every)

    def _refuses_form(self, every: Sequence[IToolCall]) -> bool:
        """Whether the calls cannot be told apart, or are of no type that there is."""
        for tool_id, number in Counter(map(_id, every)).items():
            if number > 1:
                self._refuse(tool_id, f"{number} calls have the id '{tool_id}'. Give each its own.", "conflict")
        for call in every:
            if (kind := call.get("type", "function")) not in TYPES:
                said = f"{kind!r} is no type of tool. The types are: {', '.join(map(repr, TYPES))}."
                self._refuse(_id(call), said, "invalid_arguments")
        return self.status != "success"

    def _refuse(self, tool_id: str, said: str, code: str) -> None:
        self.status = "refused"
        self.reason = self.reason or f"because the call '{tool_id}' was refused"
        self._ended(tool_id, "refused", ToolError(said, code))

    # First all are validated

    async def _all_accepted(self, tools: Mapping[str, AgentTool], options: Mapping[str, Any]) -> bool:
        accepting = [given(tool.spec, self._accept, context=CONTEXT) for tool in tools.values()]
        async with Workbench(accepting, caller=Caller(self.client_id), **options) as bench:
            for number, call in enumerate(self.calls, 1):
                if self._is_aborted():
                    return False
                tool_id, name = _id(call), call["function"]["name"]
                if name in tools:
                    self._begin(tools[name], tool_id, is_last=number == len(self.calls))
                result = await bench.call(self._call(tool_id, call["function"].get("arguments")))
                if result.error is not None:
                    if self._is_aborted():
                        return False
                    self._refuse(tool_id, result.error.message, result.error.code)
                    self.results[tool_id] = result
                    return False
                self.under_way[tool_id].repairs = result.repairs
                await self.under_way[tool_id].observe_call("on_before_call")
        return True

    def _begin(self, tool: AgentTool, tool_id: str, *, is_last: bool) -> None:
        self.under_way[tool_id] = CallUnderWay(
            tool,
            tool_id=tool_id,
            client_id=self.client_id,
            agent_name=self.agent_name,
            tool_calls=self.calls,
            call_reason=self.call_reason,
            is_last=is_last,
            timeout_s=self.timeout_s,
            happened=self._happened,
            redaction=self.redaction,
        )

    async def _accept(self, **arguments: Any) -> None:
        context: Context = arguments.pop(CONTEXT)
        await self.under_way[context.call.id].accept(arguments)

    # Then they run, one after another

    async def _all_called(self, options: Mapping[str, Any]) -> None:
        used = {call.tool.spec.name: call.tool for call in self.under_way.values()}
        calling = [self._calling(tool) for tool in used.values()]
        # Of a result there is no preview here: nobody could read on from it.
        bench = Workbench(calling, caller=Caller(self.client_id), max_result_chars=None, **options)
        async with bench, asyncio.TaskGroup() as group:
            for call in self.under_way.values():
                if self.status != "success" or self._is_aborted():
                    break
                self._happened("call", call.tool_id)
                ended = group.create_task(self._one_called(call, bench))
                committed = group.create_task(call.committed.wait())
                await asyncio.wait({ended, committed}, return_when=asyncio.FIRST_COMPLETED)
                committed.cancel()

    def _calling(self, tool: AgentTool) -> Tool[..., Any]:
        async def call_async(**arguments: Any) -> Any:
            call, dto = self._begun(arguments)
            return await call.ended(call.tool.call(dto))

        def call_sync(**arguments: Any) -> Any:
            call, dto = self._begun(arguments)
            with call.noticing():
                value = call.tool.call(dto)
            return call.ended(value) if inspect.isawaitable(value) else call.given(value)

        in_thread = not gives_awaitable(tool.call)
        return given(
            tool.spec,
            call_sync if in_thread else call_async,
            check=lambda name: _checked,
            runs="sync" if in_thread else "async",
            context=CONTEXT,
        )

    def _begun(self, arguments: Mapping[str, Any]) -> tuple[CallUnderWay, Any]:
        context: Context = arguments[CONTEXT]
        call = self.under_way[context.call.id]
        return call, call.dto(context.cancellation)

    async def _one_called(self, call: CallUnderWay, bench: Workbench) -> None:
        try:
            with call:
                result = await bench.call(self._call(call.tool_id, call.params))
                result.repairs = call.repairs
        except ToolError as error:
            result = Result(None, (Text(error.message),), error, call_id=call.tool_id, tool=call.tool.spec.name)
        self.results[call.tool_id] = result
        if result.error is None:
            self._happened("return", call.tool_id)
            await call.observe_call("on_after_call")
            return
        if not self._is_aborted():
            self.status = "error"
            self.reason = self.reason or f"because the call '{call.tool_id}' failed"
        self._happened("error", call.tool_id, result.error.message)
        await call.observe_call("on_call_error", call.raised or result.error)

    # What is common to both

    def _call(self, tool_id: str, arguments: Any) -> Call:
        return Call(self.names[tool_id], arguments, tool_id, self.timeout_s, self.abort)

    def _is_aborted(self) -> bool:
        if self.abort.is_cancelled() and self.status == "success":
            self.status, self.reason = "aborted", "because the turn was aborted"
        return self.status == "aborted"

    def _happened(self, kind: EventKind, tool_id: str, detail: str = "") -> None:
        self.events.append(ToolEvent(kind, tool_id, self.names[tool_id], detail))

    def _ended(self, tool_id: str, kind: EventKind, error: ToolError) -> None:
        """Say that a call has ended before it began."""
        self._happened(kind, tool_id, error.message)
        self.results[tool_id] = Result(None, (Text(error.message),), error, call_id=tool_id, tool=self.names[tool_id])

    def _execution(self, every: Sequence[IToolCall]) -> Execution:
        for call in every:
            if _id(call) not in self.results:
                error = ToolError(f"This call was not run, {self.reason}.", "cancelled")
                self._ended(_id(call), "skipped", error)
        results = {_id(call): self.results[_id(call)] for call in every}
        outputs: dict[str, str] = {}
        for tool_id, result in results.items():
            output = self.under_way[tool_id].output if tool_id in self.under_way else None
            if output is not None or result.error is None:
                outputs[tool_id] = result.text if output is None else output
        return Execution(self.status, self.calls, tuple(self.events), outputs, results)


def _checked(arguments: Any, repair: bool, /) -> tuple[dict[str, Any], tuple[()]]:
    """The check of arguments that have been checked."""
    return dict(arguments), ()


def _with_ids(tool_calls: Any) -> tuple[IToolCall, ...]:
    """The calls, each with an id. Raises SetupError for what is none."""
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
