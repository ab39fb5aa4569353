"""A tool of an agent, one call of it under way, and the output that the call may commit before it ends."""

import asyncio
import inspect
import logging
import threading
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...core import Caller, Context, DefinitionError, Redaction, ToolError, ToolSpec
from ...machinery import Escaped, from_any_thread, in_thread
from ...schema import require_schema, returns_awaitable, serialize_any
from ...tools import Tool, from_work, require_name
from ...workbench import sync
from .interfaces import AbortSignal, CallbackName, IToolCall, IToolCallDto, IToolValidateDto

TYPES = ("function",)

_log = logging.getLogger("toolcrib")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """A tool in one form, whichever way it was written. With *is_camel*, its functions take camelCase keys.

    *function* is a factory until the tool is resolved for an agent, *agent_name*.
    """

    tool_name: str
    function: Mapping[str, Any] | Callable[..., Any]
    call: Callable[..., Any]
    validate: Callable[..., Any] | None = None
    is_available: Callable[..., Any] | None = None
    callbacks: Mapping[str, Callable[..., Any]]
    doc_note: str | None = None
    is_camel: bool = False
    agent_name: str = "default"
    type: str = "function"

    async def resolved(self, client_id: str, agent_name: str) -> "AgentTool":
        """Return the tool with its *function* for this client and agent. Raises what a factory raises."""
        if isinstance(self.function, Mapping):
            return self if self.agent_name == agent_name else replace(self, agent_name=agent_name)
        function = await awaited(self.function(client_id, agent_name))
        return replace(self, function=require_function(function, self.tool_name), agent_name=agent_name)

    def to_dict(self) -> dict[str, Any]:
        """Return the description for a model: the original's ITool."""
        return {"type": self.type, "function": dict(self._function())}

    @property
    def spec(self) -> ToolSpec:
        function = self._function()
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        return ToolSpec(function["name"], function.get("description") or "", schema)

    def _function(self) -> Mapping[str, Any]:
        if isinstance(self.function, Mapping):
            return self.function
        return sync.run(self.resolved(Caller().principal, self.agent_name))._function()

    def __toolcrib__(self) -> Tool[..., Any]:
        """Return the tool for any workbench: the caller's principal is the client, and one call is a turn.

        A factory of the *function* is called for the client "local".
        """
        spec = self.spec
        home = getattr(self.call, "__module__", __name__)
        return from_work(spec, partial(_call_alone, self, spec), fn=self.call, home=home)


def require_function(function: Any, tool_name: str) -> Mapping[str, Any]:
    """Return *function*, if it can describe a tool. Raises DefinitionError."""
    label = f"Tool '{tool_name}'"
    if not isinstance(function, Mapping):
        raise DefinitionError(
            f"{label}: 'function' is a dictionary with name, description and parameters, or a function that returns "
            f"one for a client and an agent; not {type(function).__name__}."
        )
    try:
        require_name(function.get("name"))
    except DefinitionError as error:
        raise DefinitionError(f"{label}: function.name: {str(error).partition(' Give one')[0]}") from None
    if not isinstance(function.get("description") or "", str):
        raise DefinitionError(f"{label}: function.description is not a string.")
    try:
        require_schema(function.get("parameters") or {}, label=label)
    except DefinitionError as error:
        raise DefinitionError(str(error).replace("parameters=", "function.parameters")) from None
    return function


async def awaited(value: Any) -> Any:
    """Return *value*, awaited if it can be."""
    return await value if inspect.isawaitable(value) else value


async def _call_alone(tool: AgentTool, spec: ToolSpec, arguments: dict[str, Any], context: Context) -> Any:
    """Run one call of *tool* in a workbench: validation, callbacks and the work."""
    call_id = context.call.id
    call = ToolCall(
        tool,
        call_id,
        context.caller.principal,
        tool.agent_name,
        [{"id": call_id, "type": "function", "function": {"name": spec.name, "arguments": arguments}}],
        timeout_s=context.time_left_s,
    )
    call.release()  # no other call follows
    with call.under_way():
        await call.accept(arguments)
        await call.observe_call("on_before_call")
        try:
            output = await call.run(context)
        except asyncio.CancelledError:
            error = ToolError(f"Tool '{spec.name}' was cancelled before it ended.", "cancelled")
            await call.observe_call("on_call_error", error)
            raise
        except Exception as error:
            await call.observe_call("on_call_error", call.exception or error)
            raise
        await call.observe_call("on_after_call")
        return output


# The functions that commit have only these three of a call, so the calls under way are the program's.
_under_way: "dict[tuple[str, str, str], ToolCall]" = {}


@dataclass(eq=False)
class ToolCall:
    """One call of a tool. *on_event* is called with what happens to it, and its id; *previous* is the call before it.

    *on_stop* is called when the tool asks that no further call begins.
    """

    tool: AgentTool
    tool_id: str
    client_id: str
    agent_name: str
    tool_calls: Sequence[IToolCall]
    call_reason: str = ""
    is_last: bool = True
    timeout_s: float | None = None
    on_event: Callable[[Any, str], object] = lambda kind, tool_id: None
    on_stop: Callable[[], object] = lambda: None
    redaction: Redaction | None = None
    previous: "ToolCall | None" = None

    params: dict[str, Any] = field(default_factory=dict[str, Any])
    output: str | None = None
    """What was committed."""
    committed: asyncio.Event = field(default_factory=asyncio.Event)
    exception: Exception | None = None
    """What the tool raised, for its callbacks: the error of a Result is for models."""

    def __post_init__(self) -> None:
        self.signal = AbortSignal()
        self._set_committed, self._stop_turn = from_any_thread(self.committed.set), from_any_thread(self.on_stop)
        self._lock = threading.Lock()
        self._released: Future[None] = Future()
        self._released.set_running_or_notify_cancel()  # who stops waiting for it does not cancel it

    @contextmanager
    def under_way(self) -> Generator[None]:
        """Accept commits, from any thread. Raises ToolError for a second call with the same id."""
        key = (self.client_id, self.agent_name, self.tool_id)
        if _under_way.setdefault(key, self) is not self:
            raise ToolError(
                f"A call with the id '{self.tool_id}' is under way for this client and agent. Use an id only once.",
                "conflict",
            )
        try:
            yield
        finally:
            _under_way.pop(key, None)

    async def commit(self, content: Any) -> bool:
        """Make *content* the output, unless there is one. Returns when the next call has started, or none will."""
        text = self._redacted(content if isinstance(content, str) else serialize_any(self.tool.spec.name, content))
        with self._lock:
            if self.output is not None:
                _log.warning("The call '%s' has an output already; a later one was not committed.", self.tool_id)
                return False
            self.output = text
        self.on_event("commit", self.tool_id)
        self._set_committed()
        await asyncio.wrap_future(self._released)  # in any loop: a sync tool may run one of its own
        return True

    def release(self) -> None:
        """Let `commit` return."""
        with suppress(InvalidStateError):  # it was released before, perhaps by another thread
            self._released.set_result(None)

    def release_previous(self) -> None:
        """Let the previous call continue: this one has started, or will not."""
        if self.previous is not None:
            self.previous.release()

    def stop(self) -> None:
        """Abort the signal of the call, and let no further call of its turn begin. From any thread."""
        self.signal.cancel()
        self._stop_turn()

    async def run(self, context: Context) -> Any:
        """Call the tool, in a thread if it is sync. Returns its output: what it committed, or else what it returned."""
        context.cancellation.add_callback(self.signal.cancel)
        dto = IToolCallDto(
            self.tool_id,
            self.client_id,
            self.agent_name,
            self.tool.tool_name,
            self.params,
            self.tool_calls,
            self.signal,
            self.call_reason,
            self.is_last,
        )
        call = partial(self._begun, self._spelled(dto))
        try:
            value = await awaited(call() if returns_awaitable(self.tool.call) else await in_thread(call))
        except Exception as error:
            exception = error.error if isinstance(error, Escaped) else error
            self.exception = exception if isinstance(exception, Exception) else None
            raise
        return value if self.output is None else self.output

    def _begun(self, dto: Any) -> Any:
        self.release_previous()
        return self.tool.call(dto)

    async def accept(self, params: dict[str, Any]) -> None:
        """Validate *params*, which fit the schema. Raises ToolError where the tool does not accept them."""
        self.params = params
        await self._observe("on_validate", self.client_id, self.agent_name, params)
        self.on_event("validate", self.tool_id)
        if self.tool.validate is None:
            return
        dto = IToolValidateDto(self.client_id, self.agent_name, self.tool_calls, params)
        if not await awaited(self.tool.validate(self._spelled(dto))):
            raise ToolError(f"Tool '{self.tool.spec.name}' does not accept these arguments.", "invalid_arguments")

    async def observe_call(self, name: CallbackName, *error: Exception) -> None:
        await self._observe(name, self.tool_id, self.client_id, self.agent_name, self.params, *error)

    async def _observe(self, name: CallbackName, *arguments: Any) -> None:
        self.on_event(name, self.tool_id)
        callback = self.tool.callbacks.get(name)
        if callback is None:
            return
        try:
            async with asyncio.timeout(self.timeout_s):
                await awaited(callback(*arguments))
        except Exception:
            trace = self._redacted(traceback.format_exc())
            _log.error("The callback %s of '%s' failed; the call goes on:\n%s", name, self.tool.tool_name, trace)

    def _spelled(self, dto: Mapping[str, Any]) -> Any:
        return {camel(key): value for key, value in dto.items()} if self.tool.is_camel else dto

    def _redacted(self, text: str) -> str:
        return text if self.redaction is None else self.redaction.redact(text)


async def commit_tool_output(tool_id: str, content: Any, client_id: str, agent_name: str) -> bool:
    """Make *content* the output of a call that is under way, and let the next call of its turn begin.

    Content that is not text becomes JSON. A call has one output: returns whether this is it, and logs where it is not;
    returns when the next call has started, or none will.
    """
    call = _under_way.get((client_id, agent_name, tool_id))
    if call is not None:
        return await call.commit(content)
    ids = [call_id for client, agent, call_id in list(_under_way) if (client, agent) == (client_id, agent_name)]
    _log.warning(
        "An output for the call '%s' was not committed: it is not under way for this client and agent '%s'. Under way "
        "are: %s.",
        tool_id,
        agent_name,
        ", ".join(map(repr, ids)) or "none",
    )
    return False


async def commit_tool_output_force(tool_id: str, content: Any, client_id: str) -> bool:
    """Do the same as `commit_tool_output` for the call of any agent of the client."""
    agents = [agent for client, agent, call_id in list(_under_way) if (client, call_id) == (client_id, tool_id)]
    return await commit_tool_output(tool_id, content, client_id, agents[0] if agents else "any")


async def commit_stop_tools(client_id: str, agent_name: str) -> bool:
    """Let no further call of the agent's turn begin, and abort the signals of those under way, which end by themselves.

    Returns whether there were any.
    """
    calls = [
        call for (client, agent, _), call in list(_under_way.items()) if (client, agent) == (client_id, agent_name)
    ]
    for call in calls:
        call.stop()
    return bool(calls)


def camel(name: str) -> str:
    """Return *name* as agent-swarm-kit spells it: `toolName` for `tool_name`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
