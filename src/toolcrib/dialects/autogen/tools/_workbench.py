"""AutoGen's workbenches: their interface, and those of fixed tools, over a workbench of the core.

The first call of a tool adds it to that.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, Field

from ....core import Call, Content, Emitted, Image, Result, Source, ToolError
from ....formats import decode_picture
from ....machinery import Escaped
from ....tools import Tool as CoreTool
from ....workbench import Registry
from ....workbench import Workbench as CoreWorkbench
from .._cancellation_token import CancellationToken
from .._component_config import Component, ComponentBase, ComponentModel
from .._image import Image as AutoGenImage
from ._base import BaseTool, has_state
from ._core import (
    CALLED,
    STREAMED,
    Tool,
    ToolOverride,
    ToolSchema,
    ToolState,
    WorkbenchSource,
    called,
    core_names,
    error_as_text,
    native,
    work_of_json,
)

_log = logging.getLogger("toolcrib")


class TextResultContent(BaseModel):
    """Text result content of a tool execution."""

    type: Literal["TextResultContent"] = "TextResultContent"

    content: str


class ImageResultContent(BaseModel):
    """Image result content of a tool execution."""

    type: Literal["ImageResultContent"] = "ImageResultContent"

    content: AutoGenImage


ResultContent = Annotated[TextResultContent | ImageResultContent, Field(discriminator="type")]


if not TYPE_CHECKING and find_spec("autogen_core") is not None:
    from autogen_core.tools import ToolResult as _ResultBase  # an AssistantAgent asks for it, and models take no others
else:
    _ResultBase = BaseModel


class ToolResult(_ResultBase):
    """A result of a tool execution by a workbench."""

    type: Literal["ToolResult"] = "ToolResult"

    name: str
    result: list[ResultContent]
    is_error: bool = False

    def to_text(self, replace_image: str | None = None) -> str:
        """Return the parts as text, each on a line of its own.

        An image is *replace_image*, or by default `[Image: ...]` with a PNG in base64.
        """
        return "\n".join(
            part.content
            if isinstance(part, TextResultContent)
            else f"[Image: {part.content.to_base64()}]"
            if replace_image is None
            else replace_image
            for part in self.result
        )


class Workbench(ABC, ComponentBase[BaseModel]):
    """Tools that share resources and state. They may be other ones after every call.

    As an async context manager it starts and stops itself.
    """

    component_type = "workbench"

    @abstractmethod
    async def list_tools(self) -> list[ToolSchema]:
        """Return the current tools."""

    @abstractmethod
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call the tool *name*. *call_id* is for tracing."""

    @abstractmethod
    async def start(self) -> None:
        """Acquire resources."""

    @abstractmethod
    async def stop(self) -> None:
        """Release resources."""

    @abstractmethod
    async def reset(self) -> None:
        """Restore the state right after `start`."""

    @abstractmethod
    async def save_state(self) -> Mapping[str, Any]:
        """Return its state as JSON data, for `load_state`."""

    @abstractmethod
    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned."""

    def __toolcrib__(self) -> "Source | list[CoreTool[..., Any]]":
        """Return it as a source of Toolcrib, which starts and stops it, and saves its state."""
        source: Source = vars(self).setdefault("_toolcrib_source", WorkbenchSource(self))
        return source

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.stop()


class StreamWorkbench(Workbench, ABC):
    """A workbench whose tools may stream."""

    @abstractmethod
    def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        """Call the tool and yield what it streams, as it is; last comes the ToolResult."""


class StaticWorkbenchConfig(BaseModel):  # its docstring would stand in its schema, where AutoGen has none
    tools: list[ComponentModel] = []
    tool_overrides: dict[str, ToolOverride] = Field(default_factory=dict)


class StaticWorkbenchState(BaseModel):
    """The state of the tools, by their names."""

    type: Literal["StaticWorkbenchState"] = "StaticWorkbenchState"
    tools: dict[str, Mapping[str, Any]] = {}


StateicWorkbenchState = StaticWorkbenchState
"""As AutoGen spells it."""


class StaticWorkbench(Workbench, Component[StaticWorkbenchConfig]):
    """
    A workbench that provides a static set of tools that do not change after
    each tool execution.

    *tool_overrides* give tools other names or descriptions, by their own names; a tool can be called by both names.
    *timeout_s* is the longest a call may take, in seconds, and *secrets* are texts to redact in results; neither is
    written into a configuration.

    The first call starts the workbench if it is not started. Raises ValueError for two tools of one name, for
    overrides that share a name, and for an override of a tool that is not here.
    """

    component_provider_override = "autogen_core.tools.StaticWorkbench"
    component_config_schema = StaticWorkbenchConfig

    def __init__(
        self,
        tools: list[BaseTool[Any, Any]],
        tool_overrides: dict[str, ToolOverride] | None = None,
        *,
        timeout_s: float | None = None,
        secrets: Iterable[str] = (),
    ) -> None:
        self._tools = list(tools)
        self._tool_overrides = tool_overrides or {}
        self._by_name = _tools_by_name(tools)
        self._override_name_to_original = _original_names(self._by_name, self._tool_overrides)
        self._core_names = core_names([*self._by_name, *self._override_name_to_original])
        self._timeout_s = timeout_s
        self._secrets = tuple(secrets)
        self._states = [ToolState(tool) for tool in tools if has_state(tool)]
        self._renew()

    def _renew(self) -> None:
        self._bench = CoreWorkbench(
            Registry(),
            timeout_s=self._timeout_s,
            secrets=self._secrets,
            max_result_chars=None,
            error_message=_error_message,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name != "_bench"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._renew()

    # Calls

    async def list_tools(self) -> list[ToolSchema]:
        return [self._overridden(tool) for tool in self._tools]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call the tool *name*. Every failure is the text of a ToolResult, also a cancelled token.

        Raises CancelledError only where the task that waits is cancelled.
        """
        try:
            call = await self._core_call(name, arguments, cancellation_token, call_id, CALLED)
        except Exception as error:
            return _failed(name, error_as_text(error))
        return _tool_result(name, await self._bench.call(call))

    async def _core_call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        token: CancellationToken | None,
        call_id: str | None,
        data: Mapping[str, Any],
    ) -> Call:
        """Return the call of the tool *name* in the core, which has the tool then."""
        core_name, registry = self._core_names.get(name, ""), self._bench.registry
        if core_name not in registry:
            tool = self._tool(name)
            await self.start()
            if core_name not in registry:
                work = tool.toolcrib_work() if isinstance(tool, BaseTool) else work_of_json(tool)
                registry.add(called(tool, work, core_name))
        call = Call(core_name, arguments or {}, cancellation=token, data=data)
        call.id = call.id if call_id is None else call_id
        return call

    def _tool(self, name: str) -> Tool:
        tool = self._by_name.get(self._override_name_to_original.get(name, name))
        if tool is None:
            raise ToolError(f"Tool {name} not found.", "unknown_tool")
        return tool

    def _overridden(self, tool: Tool) -> ToolSchema:
        override = self._tool_overrides.get(tool.name, ToolOverride())
        return cast(ToolSchema, {**tool.schema, **override.model_dump(exclude_none=True)})

    # State

    async def start(self) -> None:
        """Remember the state of the tools for `reset`. Not needed before a call."""
        for state in self._states:
            await state.start()

    async def stop(self) -> None:
        """Release what calls have taken. A call after that starts it again."""
        bench = self._bench
        self._renew()
        await bench.stop()

    async def reset(self) -> None:
        """Restore the state that the tools had at the start, or before the first call."""
        await self._bench.reset()
        for state in self._states:
            await state.reset()

    async def save_state(self) -> Mapping[str, Any]:
        states = StaticWorkbenchState(tools={tool.name: await tool.save_state_json() for tool in self._tools})
        return states.model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned. Tools that it does not name keep their state."""
        states = StaticWorkbenchState.model_validate(state)
        await self.start()
        for tool in self._tools:
            if tool.name in states.tools:
                await tool.load_state_json(states.tools[tool.name])

    # Configurations, and Toolcrib's workbenches

    def _to_config(self) -> StaticWorkbenchConfig:
        return StaticWorkbenchConfig(
            tools=[tool.dump_component() for tool in self._tools], tool_overrides=self._tool_overrides
        )

    @classmethod
    def _from_config(cls, config: StaticWorkbenchConfig) -> Self:
        return cls(tools=[BaseTool.load_component(tool) for tool in config.tools], tool_overrides=config.tool_overrides)

    def __toolcrib__(self) -> list[CoreTool[..., Any]]:
        """Return its tools as those of Toolcrib, under the names and with the descriptions that it gives them."""
        return [self._native(tool) for tool in self._tools]

    def _native(self, tool: Tool) -> CoreTool[..., Any]:
        if isinstance(tool, BaseTool):
            core_tool = tool.__toolcrib__()
        else:
            core_tool = native(tool, work_of_json(tool)).offered_by(ToolState(tool))
        override = self._tool_overrides.get(tool.name)
        return core_tool if override is None else core_tool.named(override.name or tool.name, override.description)


class StaticStreamWorkbench(StaticWorkbench, StreamWorkbench):
    """
    A workbench that provides a static set of tools that do not change after
    each tool execution, and supports streaming results.
    """

    component_provider_override = "autogen_core.tools.StaticStreamWorkbench"

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        """Call the tool and yield what it streams, as it is; last comes the ToolResult. Leaving the stream cancels."""
        try:
            call = await self._core_call(name, arguments, cancellation_token, call_id, STREAMED)
        except Exception as error:
            yield _failed(name, error_as_text(error))
            return
        async with aclosing(cast("AsyncGenerator[Any, None]", self._bench.stream(call))) as events:
            async for event in events:
                if isinstance(event, Result):
                    yield _tool_result(name, event)
                elif isinstance(event, Emitted):
                    yield event.value


def _tools_by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return *tools* by name. Raises ValueError where two have the same."""
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if by_name.setdefault(tool.name, tool) is not tool:
            raise ValueError(
                f"Two tools are named '{tool.name}'. Give one of them another name: only the first could be called."
            )
    return by_name


def _original_names(names: Iterable[str], overrides: Mapping[str, ToolOverride]) -> dict[str, str]:
    """Return the tools' own *names*, by those that *overrides* give them. Raises ValueError for an ambiguous one."""
    names_in_use = set(names)
    originals: dict[str, str] = {}
    for original, override in overrides.items():
        if original not in names_in_use:
            raise ValueError(
                f"There is an override for the tool '{original}', and no such tool. The tools are: "
                f"{', '.join(sorted(names_in_use)) or 'none'}. An override goes by the tool's own name."
            )
        if not override.name or override.name == original:
            continue
        if override.name in names_in_use:
            raise ValueError(
                f"Tool override name '{override.name}' conflicts with existing tool name. "
                "Override names must not conflict with any tool names."
            )
        if override.name in originals:
            raise ValueError(
                f"Tool override name '{override.name}' is used by multiple tools: "
                f"'{originals[override.name]}' and '{original}'. Override names must be unique."
            )
        originals[override.name] = original
    return originals


def _error_message(error: ToolError, exception: BaseException, _call: Call) -> str:
    """Return AutoGen's message of an error: the text of the exception."""
    exception = exception.error if isinstance(exception, Escaped) else exception
    is_of_tool = isinstance(exception, Exception) and not isinstance(exception, ToolError)
    return error_as_text(exception) if is_of_tool else error.message


def _tool_result(name: str, result: Result[Any]) -> ToolResult:
    if result.error is not None or result.pending is not None:
        return _failed(name, result.text)
    return ToolResult(name=name, result=[_content(part) for part in result.content])


def _failed(name: str, text: str) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=True)


def _content(part: Content) -> TextResultContent | ImageResultContent:
    """Return *part* as AutoGen has it: as an image if Pillow reads it, else as text."""
    if isinstance(part, Image):
        try:
            return ImageResultContent(content=AutoGenImage(decode_picture(part.data)))
        except Exception:
            _log.info("An image (%s) cannot be read, so its description is returned", part.media_type, exc_info=True)
    return TextResultContent(content=part.text)
