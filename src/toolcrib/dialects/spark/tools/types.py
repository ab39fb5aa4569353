"""`spark.tools.types`: the shapes of tools, tool uses and results, and the base class of all tools."""

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict

# Before Python 3.12 pydantic accepts no other TypedDict, and users put these into their own models.
from typing_extensions import TypedDict

from ....core import Context
from ....machinery import Escaped, in_thread
from ....tools import Tool as CoreTool
from ._core_tool import build_tool, normalize_schema, schema_in, tool_use_of


class ToolArgsConfig(BaseModel):
    """Free keys and values, which are read as attributes."""

    model_config = ConfigDict(extra="allow")


class ParametersSpec(TypedDict):
    """The parameters of a tool."""

    type: Literal["object"]
    properties: dict[str, ToolArgsConfig]
    required: list[str]


class ToolRuntimeMetadata(TypedDict, total=False):
    """How a tool runs, under `x_spark` in its spec."""

    supports_async: bool
    long_running: bool


class ToolSpec(TypedDict):
    """A tool's name, description and schemas. `parameters` is `{"json": <JSON Schema of an object>}`."""

    name: str
    description: str
    parameters: dict[str, Any]
    response_schema: NotRequired[dict[str, Any]]
    x_spark: NotRequired[ToolRuntimeMetadata]


class Tool(TypedDict):
    """A spec as a model request carries it."""

    toolSpec: ToolSpec


class ToolUse(TypedDict):
    """A model's request to call a tool."""

    input: Any
    name: NotRequired[str]
    toolUseId: str


class ToolChoiceAuto(TypedDict):
    """The model decides whether to use tools."""


class ToolChoiceAny(TypedDict):
    """The model must use some tool."""


class ToolChoiceTool(TypedDict):
    """The model must use the tool of this name."""

    name: str


ToolChoiceAutoDict = dict[Literal["auto"], ToolChoiceAuto]
ToolChoiceAnyDict = dict[Literal["any"], ToolChoiceAny]
ToolChoiceToolDict = dict[Literal["tool"], ToolChoiceTool]

ToolChoice = ToolChoiceAutoDict | ToolChoiceAnyDict | ToolChoiceToolDict
"""How a model chooses tools: `{"auto": {}}`, `{"any": {}}` or `{"tool": {"name": ...}}`."""


class ToolResult(TypedDict):
    """The result of a tool use, or its progress. Times are ISO 8601; `progress` is between 0 and 1."""

    content: list[Any]
    status: Literal["success", "error", "in_progress"]
    toolUseId: str
    metadata: NotRequired[dict[str, Any]]
    started_at: NotRequired[str]
    completed_at: NotRequired[str]
    progress: NotRequired[float]


@dataclass
class ToolContext:
    """The ToolUse that a tool was called with, and its caller's state (with `agent`, if there is one).

    When a workbench makes the call, `invocation_state` is a copy of the workbench's variables.
    """

    tool_use: ToolUse
    invocation_state: dict[str, Any]


class BaseTool(ABC):
    """The base class of all tools.

    Arguments are checked against `tool_spec` before the tool runs, wherever Toolcrib runs it.
    """

    # On the class, because a subclass need not call `__init__`.
    _is_dynamic: bool = False
    _supports_async: bool = False
    _is_long_running: bool = False

    @property
    @abstractmethod
    def tool_name(self) -> str:
        """Return the name by which the tool is found and called."""

    @property
    @abstractmethod
    def tool_spec(self) -> ToolSpec:
        """Return the tool's name, description and schemas."""

    @property
    @abstractmethod
    def tool_type(self) -> str:
        """Return the kind of tool, such as 'function' or 'python'."""

    @property
    def supports_hot_reload(self) -> bool:
        """Return whether a newer version of the same function may replace the tool in a registry."""
        return False

    @property
    def is_dynamic(self) -> bool:
        """Return whether the tool was loaded while the program ran."""
        return self._is_dynamic

    def mark_dynamic(self) -> None:
        """Mark the tool as loaded while the program ran."""
        self._is_dynamic = True

    @property
    def supports_async(self) -> bool:
        """Return whether the tool is to be run by `acall`."""
        return self._supports_async

    def mark_supports_async(self) -> None:
        """Mark the tool as one to run by `acall`."""
        self._supports_async = True

    @property
    def is_long_running(self) -> bool:
        """Return whether the tool may take long. This is only a hint."""
        return self._is_long_running

    def mark_long_running(self) -> None:
        """Mark the tool as one that may take long."""
        self._is_long_running = True

    def get_display_properties(self) -> dict[str, str]:
        """Return labels and values that a user interface may show."""
        return {
            "Name": self.tool_name,
            "Type": self.tool_type,
            "Async": "yes" if self.supports_async else "no",
            "Long Running": "yes" if self.is_long_running else "no",
        }

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the tool."""

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Run the tool from async code. A sync tool runs in a thread and does not block the event loop."""
        is_async = inspect.iscoroutinefunction(type(self).__call__)
        return await run_call(functools.partial(self, *args, **kwargs), is_async=is_async)

    def __toolcrib__(self) -> CoreTool[..., Any]:
        # The same tool as long as these stay the same.
        key = (self.tool_name, self.tool_spec, self.is_long_running, self.supports_async)
        cached = vars(self).get("_built")
        if cached is None or cached[0] != key:
            cached = vars(self)["_built"] = copy.deepcopy(key), self._build()
        tool: CoreTool[..., Any] = cached[1]
        return tool

    def _build(self) -> CoreTool[..., Any]:
        parameters = self.tool_spec.get("parameters", {})
        prepare = getattr(self, "prepare_tool_kwargs", None)
        overrides_acall = type(self).acall is not BaseTool.acall
        is_async = self.supports_async or overrides_acall or inspect.iscoroutinefunction(type(self).__call__)

        def prepared(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
            tool_use, state = tool_use_of(context)
            return prepare({**tool_use, "input": arguments}, state) if prepare else arguments

        home = getattr(getattr(self, "tool_func", self), "__module__", type(self).__module__)
        schema = normalize_schema(schema_in(parameters))
        return build_tool(self, schema, self.acall if is_async else self, prepared, is_async=is_async, home=home)


async def run_call(call: Callable[[], Any], *, is_async: bool) -> Any:
    """Return the value of *call*, which runs on the event loop if it is async, else in a thread."""
    try:
        value = call() if is_async else await in_thread(call)
    except Escaped as escaped:
        raise escaped.error from None
    return await value if inspect.isawaitable(value) else value


def write_hints(tool: BaseTool, tool_spec: ToolSpec) -> None:
    """Set in the `x_spark` of *tool_spec*, in place, what *tool* says of how it runs."""
    update_tool_runtime_metadata(
        tool_spec, supports_async=tool.supports_async or None, long_running=tool.is_long_running or None
    )


def update_tool_runtime_metadata(
    tool_spec: ToolSpec, *, supports_async: bool | None = None, long_running: bool | None = None
) -> None:
    """Set the arguments that are not None in the `x_spark` of *tool_spec*, in place."""
    if supports_async is not None:
        tool_spec.setdefault("x_spark", {})["supports_async"] = supports_async
    if long_running is not None:
        tool_spec.setdefault("x_spark", {})["long_running"] = long_running
