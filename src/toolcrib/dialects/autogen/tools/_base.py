"""What a tool is to AutoGen's programs: a model of its arguments, and `run`."""

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NotRequired, Protocol, TypeVar, cast, runtime_checkable

from pydantic import BaseModel
from typing_extensions import TypedDict

from ....schema import ModelReader
from .._cancellation_token import CancellationToken
from .._component_config import ComponentBase
from .._function_utils import normalize_annotated_type
from ._core import Parts, is_plain, native, of_json, of_model
from ._events import say
from ._text import parameters_of, value_as_text

if TYPE_CHECKING:
    from ....tools import Tool as CoreTool


class ParametersSchema(TypedDict):
    """The arguments of a tool. Models that contain themselves bring `$defs` along."""

    type: str
    properties: dict[str, Any]
    required: NotRequired[Sequence[str]]
    additionalProperties: NotRequired[bool]


class ToolSchema(TypedDict):
    """A tool as models are told of it."""

    parameters: NotRequired[ParametersSchema]
    name: str
    description: NotRequired[str]
    strict: NotRequired[bool]


class ToolOverride(BaseModel):
    """Override configuration for a tool's name and/or description."""

    name: str | None = None
    description: str | None = None


@runtime_checkable
class Tool(Protocol):
    """What a workbench asks of a tool."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> ToolSchema: ...

    def args_type(self) -> type[BaseModel]: ...

    def return_type(self) -> type[Any]: ...

    def state_type(self) -> type[BaseModel] | None: ...

    def return_value_as_string(self, value: Any) -> str: ...

    async def run_json(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> Any: ...

    async def save_state_json(self) -> Mapping[str, Any]: ...

    async def load_state_json(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class StreamTool(Tool, Protocol):
    """A tool that tells something while it works."""

    def run_json_stream(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> AsyncGenerator[Any, None]: ...


ArgsT = TypeVar("ArgsT", bound=BaseModel, contravariant=True)
ReturnT = TypeVar("ReturnT", bound=BaseModel, covariant=True)
StateT = TypeVar("StateT", bound=BaseModel)
StreamT = TypeVar("StreamT", bound=BaseModel, covariant=True)


class BaseTool(ABC, Tool, Generic[ArgsT, ReturnT], ComponentBase[BaseModel]):
    """A tool as a class: subclass it and write `run`.

    *args_type* is a pydantic model; `run` gets one, read as its `model_validate` reads. With *strict*, reading
    `schema` raises ValueError unless every argument is required and no others are let in.
    """

    component_type = "tool"

    def __init__(
        self, args_type: type[ArgsT], return_type: type[ReturnT], name: str, description: str, strict: bool = False
    ) -> None:
        self._args_type = args_type
        self._return_type = normalize_annotated_type(return_type)
        self._name = name
        self._description = description
        self._strict = strict
        self.toolcrib_home = _made_in(self)

    @property
    def schema(self) -> ToolSchema:
        """The tool as models are told of it, `$ref`s put in place. Raises ValueError where *strict* is not kept."""
        parameters = cast(ParametersSchema, parameters_of(self._args_type))
        assert "required" in parameters
        assert "additionalProperties" in parameters
        if self._strict and set(parameters["required"]) != set(parameters["properties"]):
            raise ValueError(
                "Strict mode is enabled, but not all input arguments are marked as required. Default arguments are not "
                "allowed in strict mode."
            )
        if self._strict and parameters["additionalProperties"]:
            raise ValueError(
                "Strict mode is enabled but additional argument is also enabled. This is not allowed in strict mode."
            )
        return ToolSchema(name=self._name, description=self._description, parameters=parameters, strict=self._strict)

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return self._description

    def args_type(self) -> type[BaseModel]:
        return self._args_type

    def return_type(self) -> type[Any]:
        return self._return_type  # type: ignore[no-any-return]

    def state_type(self) -> type[BaseModel] | None:
        return None

    def return_value_as_string(self, value: Any) -> str:
        """*value* as a model is shown it: text as it is, structured values as JSON, the rest as `str` has it."""
        return value_as_text(value)

    @abstractmethod
    async def run(self, args: ArgsT, cancellation_token: CancellationToken) -> ReturnT:
        """Do the work."""

    async def run_json(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> Any:
        """`run`, with *args* as JSON data. Raises pydantic's ValidationError, and what `run` raises.

        A name that the tool does not take is an error, as its schema says. *call_id* is for those who follow calls.
        """
        value = await self.run(cast(ArgsT, self._toolcrib_reads(args)), cancellation_token)
        say(self, args, value)
        return value

    async def save_state_json(self) -> Mapping[str, Any]:
        """Its state as JSON data; nothing, for a tool without any."""
        return {}

    async def load_state_json(self, state: Mapping[str, Any]) -> None:
        """Go on from what `save_state_json` gave."""

    @cached_property
    def _toolcrib_reads(self) -> ModelReader:
        return ModelReader(self._args_type)

    @cached_property
    def _toolcrib_native(self) -> "CoreTool[..., Any]":
        return native(self, self.toolcrib_parts(by_name=True))

    def toolcrib_parts(self, *, by_name: bool) -> Parts:
        """What the core makes a Tool of: `run`, or `run_json` where a subclass has its own."""
        if not is_plain(self, "run_json"):
            return of_json(self, by_name=by_name)
        return of_model(self._args_type, self.run, None, tool=self._name, by_name=by_name)

    def __toolcrib__(self) -> "CoreTool[..., Any]":
        """It as a tool of Toolcrib's own: for a `toolcrib.Workbench` or `Crib`, `toolcrib call` and `toolcrib serve`.

        Raises DefinitionError for a name that models cannot call, and what reading its schema raises.
        """
        return self._toolcrib_native


class BaseStreamTool(
    BaseTool[ArgsT, ReturnT], StreamTool, ABC, Generic[ArgsT, StreamT, ReturnT], ComponentBase[BaseModel]
):
    """A tool that tells something while it works: what `run_stream` yields, its last value being the result."""

    component_type = "tool"

    @abstractmethod
    def run_stream(self, args: ArgsT, cancellation_token: CancellationToken) -> AsyncGenerator[StreamT | ReturnT, None]:
        """Do the work, telling of it; last comes a value of the return type."""
        ...

    async def run_json_stream(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> AsyncGenerator[StreamT | ReturnT, None]:
        """`run_stream`, with *args* as JSON data. Raises as `run_json` does, and TypeError for a wrong last value."""
        last: Any = None
        async with aclosing(self._stream(cast(ArgsT, self._toolcrib_reads(args)), cancellation_token)) as items:
            async for item in items:
                last = item
                yield item
        say(self, args, last)

    async def _stream(self, args: ArgsT, cancellation_token: CancellationToken) -> AsyncGenerator[Any, None]:
        """`run_stream`, and whether it ends as it should."""
        last: Any = None
        async with aclosing(self.run_stream(args, cancellation_token)) as items:
            async for item in items:
                last = item
                yield item
        if last is None:
            raise AssertionError("The tool must yield a final return value at the end of the stream.")
        if isinstance(self._return_type, type) and not isinstance(last, self._return_type):
            raise TypeError(
                f"Expected return value of type {self._return_type.__name__}, but got {type(last).__name__}"
            )

    def toolcrib_parts(self, *, by_name: bool) -> Parts:
        if not (is_plain(self, "run_json") and is_plain(self, "run_json_stream")):
            return of_json(self, by_name=by_name)
        return of_model(self._args_type, self.run, self._stream, tool=self._name, by_name=by_name)


class BaseToolWithState(BaseTool[ArgsT, ReturnT], ABC, Generic[ArgsT, ReturnT, StateT], ComponentBase[BaseModel]):
    """A tool with state that can be saved and loaded, as a model *state_type*."""

    component_type = "tool"

    def __init__(
        self,
        args_type: type[ArgsT],
        return_type: type[ReturnT],
        state_type: type[StateT],
        name: str,
        description: str,
    ) -> None:
        super().__init__(args_type, return_type, name, description)
        self._state_type = state_type

    @abstractmethod
    def save_state(self) -> StateT:
        """Its state."""

    @abstractmethod
    def load_state(self, state: StateT) -> None:
        """Go on from *state*."""

    async def save_state_json(self) -> Mapping[str, Any]:
        return self.save_state().model_dump()

    async def load_state_json(self, state: Mapping[str, Any]) -> None:
        self.load_state(self._state_type.model_validate(state))


def _made_in(tool: Any) -> str:
    """The name of the module that makes *tool*: the first one outside of what its classes do to that end."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - as in logging
    while frame.f_code.co_name == "__init__" and frame.f_back is not None:
        code = frame.f_code
        if not code.co_varnames or frame.f_locals.get(code.co_varnames[0]) is not tool:
            break
        frame = frame.f_back
    name: str = frame.f_globals.get("__name__", "")
    return name
