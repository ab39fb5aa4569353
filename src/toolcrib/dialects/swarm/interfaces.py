"""The interfaces of agent-swarm-kit: tool calls, the arguments of a tool's functions, and the events of a turn."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Required

# pydantic takes no other TypedDict before Python 3.12, and users put these into their own models.
from typing_extensions import TypedDict, TypeVar

from ...core import CancellationToken, Result, ToolError

ToolValue = str | int | float | bool | None
ToolName = str
AgentName = str

T = TypeVar("T", default=dict[str, ToolValue])
"""The type of a tool's parameters for type checkers; at run time they are a dictionary, as checked."""


class IToolProperty(TypedDict, total=False):
    """One parameter. Any other JSON Schema keyword is possible too."""

    type: str
    description: str
    enum: Sequence[str]


class IToolParameters(TypedDict, total=False):
    """The parameters of a function: a JSON Schema of an object."""

    type: str
    properties: Mapping[str, IToolProperty]
    required: Sequence[str]


class IToolFunction(TypedDict, total=False):
    """The description of a tool for a model, which calls it by `name`."""

    name: Required[str]
    description: str
    parameters: IToolParameters


class IToolCallFunction(TypedDict):
    name: str
    arguments: Any
    """A mapping, or JSON text."""


class IToolCall(TypedDict, total=False):
    """One call of a model. Without an `id` it gets one."""

    id: str
    type: Literal["function"]
    function: Required[IToolCallFunction]


Function = IToolFunction | Mapping[str, Any]
FunctionFactory = Callable[[str, str], Function | Awaitable[Function]]


class AbortSignal(CancellationToken):
    """Is `aborted` when the turn is aborted or the call's deadline has passed.

    Cancelling it has no other effect: who runs the turn cancels the token that was passed as `abort`.
    """

    __slots__ = ()

    @property
    def aborted(self) -> bool:
        return self.is_cancelled()


class _Dto(Mapping[str, Any]):
    """A value whose fields are also its keys."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()  # which a dataclass fills with the names of its fields

    def __getitem__(self, key: str) -> Any:
        if key not in self.__match_args__:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__match_args__)

    def __len__(self) -> int:
        return len(self.__match_args__)


@dataclass(frozen=True, slots=True, eq=False)
class IToolValidateDto(_Dto, Generic[T]):
    """The argument of `validate`; also a mapping, `dto["params"]`. `tool_calls` are all calls of the turn."""

    client_id: str
    agent_name: AgentName
    tool_calls: Sequence[IToolCall]
    params: T


@dataclass(frozen=True, slots=True, eq=False)
class IToolCallDto(_Dto, Generic[T]):
    """The argument of `call`; also a mapping, `dto["params"]`.

    `tool_calls` are all calls of the turn, and `is_last` is true for the last of them. `call_reason` is the model's
    text beside its calls.
    """

    tool_id: str
    client_id: str
    agent_name: AgentName
    tool_name: ToolName
    params: T
    tool_calls: Sequence[IToolCall]
    abort_signal: AbortSignal
    call_reason: str
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IAgentToolCallbacks(Generic[T]):
    """Observers of a tool, plain or async. They are awaited; an exception is logged and has no other effect.

    They take tool id, client id, agent name and parameters, in this order; `on_validate` takes no tool id, and
    `on_call_error` the error at the end.
    """

    on_before_call: Callable[[str, str, AgentName, T], Any] | None = None
    on_after_call: Callable[[str, str, AgentName, T], Any] | None = None
    on_validate: Callable[[str, AgentName, T], Any] | None = None
    on_call_error: Callable[[str, str, AgentName, T, Exception], Any] | None = None


# What happened in a turn

CallbackName = Literal["on_before_call", "on_after_call", "on_validate", "on_call_error"]
EventKind = CallbackName | Literal["dropped", "validate", "refused", "call", "commit", "return", "error", "skipped"]
"""What happened to a call. A callback's name is for its moment, also where the tool has no such callback."""

Outcome = Literal["success", "refused", "error", "aborted"]


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """Something that happened to one call. *function* is the name it was called by; *detail* may be a reason."""

    kind: EventKind
    tool_id: str
    function: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """What happened to the tool calls of one turn.

    - *status*: "success"; "refused", and then none ran; "error", and then those that had not started did not run; or
      "aborted".
    - *tool_calls*: the calls of the turn, each with its id, without those that were dropped.
    - *events*: what happened, in order.
    - *outputs*: what was committed or returned, as text, by tool id: only of calls that have an output.
    - *results*: the result of each call, by tool id, including those that were dropped or did not run.
    """

    status: Outcome
    tool_calls: tuple[IToolCall, ...]
    events: tuple[ToolEvent, ...]
    outputs: Mapping[str, str]
    results: Mapping[str, Result[Any]]

    @property
    def errors(self) -> dict[str, ToolError]:
        """Return why calls failed or did not run, by tool id."""
        return {tool_id: result.error for tool_id, result in self.results.items() if result.error is not None}

    def messages(self) -> list[dict[str, Any]]:
        """Return a message for the model for each call: its output, or else why there is none."""
        return [
            {"role": "tool", "tool_call_id": tool_id, "content": self.outputs.get(tool_id, result.text)}
            for tool_id, result in self.results.items()
        ]
