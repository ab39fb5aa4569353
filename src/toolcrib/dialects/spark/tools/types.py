"""`spark.tools.types`: the shapes of tools, their uses and results, and the base class of all tools."""

import asyncio
import functools
import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NotRequired

# pydantic takes no other TypedDict before Python 3.12, and users put these into their own models.
from typing_extensions import TypedDict

if TYPE_CHECKING:
    from ....tools import Tool as CoreTool


class ToolRuntimeMetadata(TypedDict, total=False):
    """What a spec says of how its tool runs, under `x_spark`."""

    supports_async: bool
    long_running: bool


class ToolSpec(TypedDict):
    """What a tool promises. `parameters` is `{"json": <JSON Schema of an object>}`."""

    name: str
    description: str
    parameters: dict[str, Any]
    response_schema: NotRequired[dict[str, Any]]
    x_spark: NotRequired[ToolRuntimeMetadata]


class Tool(TypedDict):
    """A spec as a model request carries it."""

    toolSpec: ToolSpec


class ToolUse(TypedDict):
    """One request of a model: which tool, with which input, under which id."""

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
    """How a use ended, or how far it is. Times are ISO 8601; `progress` is between 0 and 1."""

    content: list[Any]
    status: Literal["success", "error", "in_progress"]
    toolUseId: str
    metadata: NotRequired[dict[str, Any]]
    started_at: NotRequired[str]
    completed_at: NotRequired[str]
    progress: NotRequired[float]


@dataclass
class ToolContext:
    """What a tool is told of its call: the ToolUse, and what the caller handed along (`agent`, if there is one).

    Called through a workbench, `invocation_state` is a copy of the workbench's variables.
    """

    tool_use: ToolUse
    invocation_state: dict[str, Any]


class BaseTool(ABC):
    """The base of all tools: a name, a spec, a kind, and what is called.

    Arguments are held against `tool_spec` before the tool runs, wherever toolcrib runs it.
    """

    # On the class: a subclass need not call `__init__`.
    _is_dynamic: bool = False
    _supports_async: bool = False
    _is_long_running: bool = False

    def __init__(self) -> None:
        self._is_dynamic = False
        self._supports_async = False
        self._is_long_running = False

    @property
    @abstractmethod
    def tool_name(self) -> str:
        """The name by which the tool is found and called."""

    @property
    @abstractmethod
    def tool_spec(self) -> ToolSpec:
        """What the tool promises."""

    @property
    @abstractmethod
    def tool_type(self) -> str:
        """The kind of tool, as 'function' or 'python'."""

    @property
    def supports_hot_reload(self) -> bool:
        """Whether a registry lets a newer version of the same function take its place."""
        return False

    @property
    def is_dynamic(self) -> bool:
        """Whether the tool was loaded while the program ran."""
        return self._is_dynamic

    def mark_dynamic(self) -> None:
        """Say that the tool was loaded while the program ran."""
        self._is_dynamic = True

    @property
    def supports_async(self) -> bool:
        """Whether `acall` is more than a way to wait for sync work."""
        return self._supports_async

    def mark_supports_async(self) -> None:
        """Say that the tool is to be run by `acall`."""
        self._supports_async = True

    @property
    def is_long_running(self) -> bool:
        """Whether the tool may take long. A hint: nothing runs otherwise because of it."""
        return self._is_long_running

    def mark_long_running(self) -> None:
        """Say that the tool may take long."""
        self._is_long_running = True

    def get_display_properties(self) -> dict[str, str]:
        """What an interface may show of the tool."""
        return {
            "Name": self.tool_name,
            "Type": self.tool_type,
            "Async": "yes" if self.supports_async else "no",
            "Long Running": "yes" if self.is_long_running else "no",
        }

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work."""

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """The same as calling it, for async code. Sync work is done in a thread, so that the event loop goes on."""
        if inspect.iscoroutinefunction(type(self).__call__):
            return await self(*args, **kwargs)
        value = await asyncio.to_thread(functools.partial(self, *args, **kwargs))
        return await value if inspect.isawaitable(value) else value

    def __toolcrib__(self) -> "CoreTool[..., Any]":
        from ._ours import tool_of

        return tool_of(self)


def update_tool_runtime_metadata(
    tool_spec: ToolSpec, *, supports_async: bool | None = None, long_running: bool | None = None
) -> None:
    """Write what is not None into the `x_spark` of *tool_spec*, which is changed."""
    if supports_async is None and long_running is None:
        return
    said = tool_spec.setdefault("x_spark", {})
    if supports_async is not None:
        said["supports_async"] = supports_async
    if long_running is not None:
        said["long_running"] = long_running
