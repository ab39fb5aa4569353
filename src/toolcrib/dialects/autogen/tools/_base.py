"""AutoGen's base classes of tools."""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager
from functools import cached_property, partial
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel

from ....schema import ModelReader
from ....tools import Tool as CoreTool
from .._cancellation_token import CancellationToken
from .._component_config import ComponentBase
from .._function_utils import normalize_annotated_type
from ._core import (
    ParametersSchema,
    StreamTool,
    Tool,
    ToolSchema,
    ToolState,
    Work,
    is_plain,
    native,
    parameters_of,
    value_as_text,
    work_of_json,
    work_of_model,
)
from ._core import ToolOverride as ToolOverride  # AutoGen has it here

ArgsT = TypeVar("ArgsT", bound=BaseModel, contravariant=True)
ReturnT = TypeVar("ReturnT", bound=BaseModel, covariant=True)
StateT = TypeVar("StateT", bound=BaseModel)
StreamT = TypeVar("StreamT", bound=BaseModel, covariant=True)


class BaseTool(ABC, Tool, Generic[ArgsT, ReturnT], ComponentBase[BaseModel]):
    """The base class of a tool: subclass it and define `run`.

    *args_type* is a pydantic model, and `run` takes one, as its `model_validate` makes it. With *strict*, reading
    `schema` raises ValueError unless every argument is required and no others are allowed.
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
        self._home = _made_in(self)

    @property
    def schema(self) -> ToolSchema:
        """Return the tool as it is described to models, with `$ref`s inlined. Raises ValueError if not *strict*."""
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
        """Return *value* as a model sees it: text as it is, structured values as JSON, the `str` of other values."""
        return value_as_text(value)

    @abstractmethod
    async def run(self, args: ArgsT, cancellation_token: CancellationToken) -> ReturnT:
        """Do the work."""

    def run_json(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Run with *args* as JSON data. Raises pydantic's ValidationError, and what `run` raises.

        A name that is not in the schema is an error. *call_id* is for tracing. A call that is cancelled raises
        CallCancelledError.
        """
        return _Run(self._run_json(args, cancellation_token), partial(_translating_end, self._name, cancellation_token))

    async def _run_json(self, args: Mapping[str, Any], token: CancellationToken) -> Any:
        return await self.run(cast(ArgsT, self._read_args(args)), token)

    async def save_state_json(self) -> Mapping[str, Any]:
        """Return its state as JSON data; an empty mapping if it has none."""
        return {}

    async def load_state_json(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state_json` returned."""

    @cached_property
    def _read_args(self) -> ModelReader:
        return ModelReader(self._args_type)

    @cached_property
    def _native(self) -> CoreTool[..., Any]:
        tool = native(self, self.toolcrib_work(), home=self._home)
        return tool.offered_by(ToolState(self)) if has_state(self) else tool

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name != "_native"}  # which is of this object alone

    def toolcrib_work(self) -> Work:
        """Return what the core runs: `run`, or `run_json` where a subclass has its own."""
        if not is_plain(self, "run_json"):
            return work_of_json(self)
        return work_of_model(self._args_type, self._name, self.run)

    def __toolcrib__(self) -> CoreTool[..., Any]:
        """Return it as a tool of Toolcrib: for a `toolcrib.Workbench` or `Crib`, `toolcrib call` and `toolcrib serve`.

        Raises DefinitionError for a name that models cannot call, and what reading its schema raises.
        """
        return self._native


class BaseStreamTool(
    BaseTool[ArgsT, ReturnT], StreamTool, ABC, Generic[ArgsT, StreamT, ReturnT], ComponentBase[BaseModel]
):
    """A tool that streams what `run_stream` yields. The last value is the result."""

    component_type = "tool"

    @abstractmethod
    def run_stream(self, args: ArgsT, cancellation_token: CancellationToken) -> AsyncGenerator[StreamT | ReturnT, None]:
        """Do the work, and yield on the way; last comes a value of the return type."""

    async def run_json_stream(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> AsyncGenerator[StreamT | ReturnT, None]:
        """Stream with *args* as JSON data. Raises what `run_json` raises, and TypeError for a wrong last value."""
        with _translating_end(self._name, cancellation_token):
            async with aclosing(self._stream(cast(ArgsT, self._read_args(args)), cancellation_token)) as items:
                async for item in items:
                    yield item

    async def _stream(self, args: ArgsT, cancellation_token: CancellationToken) -> AsyncGenerator[Any, None]:
        """Yield from `run_stream`. Raises where the last value is missing or of a wrong type."""
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

    def toolcrib_work(self) -> Work:
        if not (is_plain(self, "run_json") and is_plain(self, "run_json_stream")):
            return work_of_json(self)
        return work_of_model(self._args_type, self._name, self.run, self._stream)


class BaseToolWithState(BaseTool[ArgsT, ReturnT], ABC, Generic[ArgsT, ReturnT, StateT], ComponentBase[BaseModel]):
    """A tool with state that can be saved and loaded, as a pydantic model *state_type*."""

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
        """Return its state."""

    @abstractmethod
    def load_state(self, state: StateT) -> None:
        """Restore *state*."""

    async def save_state_json(self) -> Mapping[str, Any]:
        return self.save_state().model_dump()

    async def load_state_json(self, state: Mapping[str, Any]) -> None:
        self.load_state(self._state_type.model_validate(state))


class CallCancelledError(asyncio.CancelledError, Exception):
    """The end of a call that its token or the tool itself cancels, while the task that waits for it goes on.

    It is a CancelledError, as of AutoGen, and an Exception: AutoGen's workbenches make a result of these alone, and an
    AssistantAgent that gets none waits for ever.
    """


class _Run(Coroutine[Any, Any, Any]):
    """The coroutine *run* inside of *translation*, which holds also where it is cancelled before its first step."""

    def __init__(self, run: Coroutine[Any, Any, Any], translation: Callable[[], AbstractContextManager[None]]) -> None:
        self._run, self._translation = run, translation

    def __await__(self) -> Generator[Any, Any, Any]:
        with self._translation():
            return (yield from self._run.__await__())

    def send(self, value: Any) -> Any:
        with self._translation():
            return self._run.send(value)

    def throw(self, *error: Any) -> Any:
        with self._translation():
            return self._run.throw(*error)

    def close(self) -> None:
        self._run.close()


@contextmanager
def _translating_end(name: str, token: CancellationToken) -> Generator[None]:
    """Raise CallCancelledError for a CancelledError, unless it only comes from outside: the task is cancelled."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling() and not token.is_cancelled():
            raise
        raise CallCancelledError(f"Tool '{name}' was cancelled.") from error


def has_state(tool: Tool) -> bool:
    """Return whether *tool* has state to save: it does not have the `save_state_json` of BaseTool."""
    return getattr(type(tool), "save_state_json", None) is not BaseTool.save_state_json


def _made_in(tool: Any) -> str:
    """Return the name of the module that makes *tool*: the first caller outside of the `__init__` of its classes."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - as in logging
    while frame.f_code.co_name == "__init__" and frame.f_back is not None:
        code = frame.f_code
        if not code.co_varnames or frame.f_locals.get(code.co_varnames[0]) is not tool:
            break
        frame = frame.f_back
    name: str = frame.f_globals.get("__name__", "")
    return name
