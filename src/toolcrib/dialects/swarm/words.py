"""The words of agent-swarm-kit: a tool, a call of one, and what its functions are given. Nothing here runs."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Required

# pydantic takes no other TypedDict before Python 3.12, and users put these into their own models.
from typing_extensions import TypedDict, TypeVar

from ...core import CancellationToken

if TYPE_CHECKING:
    from ...tools import Tool

ToolValue = str | int | float | bool | None
ToolName = str
AgentName = str

T = TypeVar("T", default=dict[str, Any])
"""What the parameters of a tool are for the type checker; at run time they are a dictionary, as checked."""


class IToolProperty(TypedDict, total=False):
    """One parameter. Whatever else JSON Schema knows may stand beside these."""

    type: str
    description: str
    enum: Sequence[str]


class IToolParameters(TypedDict, total=False):
    """The parameters of a function: a JSON Schema of an object."""

    type: str
    properties: Mapping[str, IToolProperty]
    required: Sequence[str]


class IToolFunction(TypedDict, total=False):
    """What a model is told of a tool. `name` is what it calls it by."""

    name: Required[str]
    description: str
    parameters: IToolParameters


class IToolCallFunction(TypedDict):
    name: str
    arguments: Any
    """A mapping, or JSON text."""


class IToolCall(TypedDict, total=False):
    """One call, as a model asks for it. Without an `id` it is given one."""

    id: str
    type: Literal["function"]
    function: Required[IToolCallFunction]


Function = IToolFunction | Mapping[str, Any]
FunctionFactory = Callable[[str, str], Function | Awaitable[Function]]


class AbortSignal(CancellationToken):
    """Whether a call is given up, because its turn was aborted or its deadline has passed.

    Cancelling it changes nothing but itself: whoever runs the turn cancels the token that they gave as `abort`.
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
    """What `validate` is given: also a mapping, `dto["params"]`. `tool_calls` are all of the turn."""

    client_id: str
    agent_name: AgentName
    tool_calls: Sequence[IToolCall]
    params: T


@dataclass(frozen=True, slots=True, eq=False)
class IToolCallDto(_Dto, Generic[T]):
    """What `call` is given: also a mapping, `dto["params"]`.

    `tool_calls` are all of the turn, and `is_last` says whether this is the last of them. `call_reason` is what the
    model said beside its calls.
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
    """Observers of a tool, plain or async. They are waited for; what they raise is logged and changes nothing.

    They are given tool id, client id, agent name and parameters, in this order; `on_validate` no tool id, and
    `on_call_error` the error at the end.
    """

    on_before_call: Callable[[str, str, AgentName, T], Any] | None = None
    on_after_call: Callable[[str, str, AgentName, T], Any] | None = None
    on_validate: Callable[[str, AgentName, T], Any] | None = None
    on_call_error: Callable[[str, str, AgentName, T, Exception], Any] | None = None


class ITool:
    """What a model is told of a tool. `type` is "function": there is no other."""

    type: str = "function"
    function: Function | FunctionFactory


class IAgentTool(ITool, Generic[T]):
    """A tool of an agent: made with its parts, or a subclass that has them.

    - *tool_name*: its name in the swarm. The model calls it by the name in *function*.
    - *function*: a dictionary, or what gives one for a client and an agent, plain or async.
    - *call*: does the work, plain (in a thread) or async. Its output is what it commits, or else what it returns.
    - *validate*: whether arguments are accepted, once they are what the schema says; what it raises is a no.
    - *is_available*: whether a client and an agent have the tool; what it raises is a no.

    Raises DefinitionError for what cannot be a tool.
    """

    tool_name: ToolName
    doc_note: str | None = None
    callbacks: IAgentToolCallbacks[T] | Mapping[str, Callable[..., Any]] | None = None

    def __init__(
        self,
        *,
        tool_name: ToolName | None = None,
        function: Function | FunctionFactory | None = None,
        call: Callable[[IToolCallDto[T]], Any] | None = None,
        validate: Callable[[IToolValidateDto[T]], bool | Awaitable[bool]] | None = None,
        is_available: Callable[[str, AgentName, ToolName], bool | Awaitable[bool]] | None = None,
        callbacks: IAgentToolCallbacks[T] | Mapping[str, Callable[..., Any]] | None = None,
        doc_note: str | None = None,
        type: str | None = None,  # noqa: A002
    ) -> None:
        parts = {
            "tool_name": tool_name,
            "function": function,
            "call": call,
            "validate": validate,
            "is_available": is_available,
            "callbacks": callbacks,
            "doc_note": doc_note,
            "type": type,
        }
        vars(self).update({name: part for name, part in parts.items() if part is not None})
        from .reading import agent_tool

        agent_tool(self)  # so that what is wrong is said where it is written

    def call(self, dto: IToolCallDto[T], /) -> Any:
        """Do the work."""
        raise NotImplementedError

    def validate(self, dto: IToolValidateDto[T], /) -> bool | Awaitable[bool]:
        """Whether these arguments are accepted."""
        return True

    def is_available(self, client_id: str, agent_name: AgentName, tool_name: ToolName, /) -> bool | Awaitable[bool]:
        """Whether *client_id* and *agent_name* have this tool."""
        return True

    def __toolcrib__(self) -> "Tool[..., Any]":
        from .reading import agent_tool

        return agent_tool(self).__toolcrib__()
