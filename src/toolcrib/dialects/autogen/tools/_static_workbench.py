"""AutoGen's workbench of given tools, over a workbench of the core, which is made at the first call."""

import copy
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, Field

from ....call import put_back
from ....core import Call, Content, Emitted, Image, Result, Text
from ....record import Redactor
from ....tools import Tool as CoreTool
from ....workbench import Registry
from ....workbench import Workbench as CoreWorkbench
from .._cancellation_token import CancellationToken
from .._component_config import Component, ComponentModel
from .._image import Image as AutoGenImage
from ._base import BaseTool, Tool, ToolOverride, ToolSchema
from ._core import Parts, called, is_plain, native, of_json, streamed
from ._events import known, listened, say_text, token
from ._names import by_name, carried, renamed
from ._text import error_as_text
from ._workbench import ImageResultContent, StreamWorkbench, TextResultContent, ToolResult, Workbench

_log = logging.getLogger("toolcrib")

_OF_CALLS = ("_bench", "_ready", "_streams", "_streaming")


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

    *tool_overrides* give tools other names or descriptions, by their own names; a tool can be called by both. Neither
    of what follows is written into a configuration: *timeout_s* is the longest a call may take, in seconds, and
    *secrets* are texts that no result and no event may show.

    A call starts the workbench if nobody has. Raises ValueError for two tools of one name, and for overrides that
    cannot be told apart or are of no tool.
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
        self._by_name = by_name(tools)
        self._override_name_to_original = renamed(self._by_name, self._tool_overrides)
        self._carried = carried([*self._by_name, *self._override_name_to_original])
        self._timeout_s = timeout_s
        self._secrets = tuple(secrets)
        self._redaction = Redactor(self._secrets) if self._secrets else None
        self._initial: dict[str, Mapping[str, Any]] | None = None
        self._begin()

    def _begin(self) -> None:
        self._bench = self._new_bench()
        self._ready: dict[str, str] = {}  # by the names that have been called: by which the core carries them

    def __getstate__(self) -> dict[str, Any]:
        """For a copy: all but what calls have taken, which is each workbench's own."""
        return {name: part for name, part in vars(self).items() if name not in _OF_CALLS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def _new_bench(self) -> CoreWorkbench:
        return CoreWorkbench(Registry(), timeout_s=self._timeout_s, secrets=self._secrets, max_result_chars=None)

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
        """Call the tool *name*. Whatever goes wrong is the text of a ToolResult, also that the token was cancelled.

        Raises CancelledError only where the task that waits is cancelled.
        """
        known_as = self._ready.get(name)
        if known_as is None:
            if (tool := self._find(name)) is None:
                return _failed(name, f"Tool {name} not found.")
            try:
                known_as = await self._prepare(name, tool)
            except Exception as error:
                return _failed(name, error_as_text(error))
        call = _call(known_as, arguments, cancellation_token, call_id)
        before, before_that = token.set(cancellation_token), known.set(self._redaction)
        try:
            return self._result(name, arguments, await self._bench.call(call))
        finally:
            known.reset(before_that)
            token.reset(before)

    def _find(self, name: str) -> Tool | None:
        """The tool of the name, or override, *name*."""
        return self._by_name.get(self._override_name_to_original.get(name, name))

    def _known_tool(self, name: str) -> Tool:
        tool = self._find(name)
        assert tool is not None
        return tool

    async def _prepare(self, name: str, tool: Tool) -> str:
        """The name by which the core carries *name*, when it is there."""
        if self._initial is None:
            await self._keep_initial()
        if name not in self._ready:
            self._bench.registry.add(called(tool, _parts_of(tool), self._carried[name]))
            self._ready[name] = self._carried[name]
        return self._ready[name]

    def _result(self, name: str, arguments: Mapping[str, Any] | None, result: Result[Any]) -> ToolResult:
        if result.error is not None or result.pending is not None:
            return _failed(name, result.text)
        if listened() and is_plain(tool := self._known_tool(name), "run_json"):  # else it tells of itself
            say_text(tool.name, arguments or {}, result.text)
        return ToolResult(name=name, result=[_content(part) for part in result.content])

    def _overridden(self, tool: Tool) -> ToolSchema:
        schema = tool.schema
        override = self._tool_overrides.get(tool.name)
        if override is None:
            return schema
        changed: ToolSchema = {**schema}
        if override.name is not None:
            changed["name"] = override.name
        if override.description is not None:
            changed["description"] = override.description
        return changed

    # Life and state

    async def start(self) -> None:
        """Make ready. Not needed before a call."""
        if self._initial is None:
            await self._keep_initial()

    async def stop(self) -> None:
        """Give up what calls have taken. A call after that starts it again."""
        bench = self._bench
        self._begin()
        await bench.stop()

    async def reset(self) -> None:
        """The state of the tools as it was at the start, or before the first call."""
        await self._bench.reset()
        for name, state in (self._initial or {}).items():
            await self._by_name[name].load_state_json(copy.deepcopy(state))

    async def save_state(self) -> Mapping[str, Any]:
        states = StaticWorkbenchState()
        for tool in self._tools:
            states.tools[tool.name] = await tool.save_state_json()
        return states.model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `save_state` gave. Tools that are not named in it stay as they are."""
        states = StaticWorkbenchState.model_validate(state)
        if self._initial is None:
            await self._keep_initial()
        for tool in self._tools:
            if tool.name in states.tools:
                await tool.load_state_json(states.tools[tool.name])

    async def _keep_initial(self) -> None:
        """Keep for `reset` what state the tools are in. One that cannot save it now is left as it is then."""
        self._initial = {}
        for tool in self._tools:
            if getattr(type(tool), "save_state_json", None) is not BaseTool.save_state_json:
                try:
                    self._initial[tool.name] = copy.deepcopy(await tool.save_state_json())
                except Exception:
                    _log.warning("The state of the tool '%s' cannot be saved, so `reset` leaves it", tool.name)

    # As data, and for the core

    def _to_config(self) -> StaticWorkbenchConfig:
        return StaticWorkbenchConfig(
            tools=[tool.dump_component() for tool in self._tools], tool_overrides=self._tool_overrides
        )

    @classmethod
    def _from_config(cls, config: StaticWorkbenchConfig) -> Self:
        return cls(tools=[BaseTool.load_component(tool) for tool in config.tools], tool_overrides=config.tool_overrides)

    def __toolcrib__(self) -> list[CoreTool[..., Any]]:
        """Its tools as Toolcrib's own, under the names and with the descriptions it gives them."""
        return [self._as_native(tool) for tool in self._tools]

    def _as_native(self, tool: Tool) -> CoreTool[..., Any]:
        made = tool.__toolcrib__() if isinstance(tool, BaseTool) else native(tool, of_json(tool, by_name=True))
        override = self._tool_overrides.get(tool.name)
        return made if override is None else made.named(override.name or tool.name, override.description)


class StaticStreamWorkbench(StaticWorkbench, StreamWorkbench):
    """
    A workbench that provides a static set of tools that do not change after
    each tool execution, and supports streaming results.
    """

    component_provider_override = "autogen_core.tools.StaticStreamWorkbench"

    def _begin(self) -> None:
        super()._begin()
        self._streams = self._new_bench()
        self._streaming: set[str] = set()

    async def stop(self) -> None:
        streams = self._streams
        await super().stop()
        await streams.stop()

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        """`call_tool`, and what the tool yields before its last value, as it is. To leave the stream is to cancel."""
        tool = self._find(name)
        if tool is None or not hasattr(type(tool), "run_json_stream"):
            yield await self.call_tool(name, arguments, cancellation_token, call_id)
            return
        if self._initial is None:
            await self._keep_initial()
        known_as = self._carried[name]
        try:
            if name not in self._streaming:
                self._streams.registry.add(streamed(tool, _parts_of(tool), known_as))
                self._streaming.add(name)
        except Exception as error:
            yield _failed(name, error_as_text(error))
            return
        call = _call(known_as, arguments, cancellation_token, call_id)
        stream = cast("AsyncGenerator[Any, None]", self._streams.stream(call))
        before = known.set(self._redaction)
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    if isinstance(event, Result):
                        yield self._result(name, arguments, event)
                    elif isinstance(event, Emitted):
                        yield event.value
        finally:
            put_back(known, before)


def _call(name: str, arguments: Mapping[str, Any] | None, token: CancellationToken | None, call_id: str | None) -> Call:
    if call_id is None:
        return Call(name, arguments or {}, cancellation=token)
    return Call(name, arguments or {}, call_id, cancellation=token)


def _parts_of(tool: Tool) -> Parts:
    return tool.toolcrib_parts(by_name=False) if isinstance(tool, BaseTool) else of_json(tool, by_name=False)


def _failed(name: str, text: str) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=True)


def _content(part: Content) -> TextResultContent | ImageResultContent:
    """*part* as AutoGen has it: images that Pillow reads, and the rest in words."""
    if type(part) is Text:
        return TextResultContent(content=part.text)
    if isinstance(part, Image):
        try:
            return ImageResultContent(content=AutoGenImage.from_base64(part.base64))
        except Exception:
            _log.info("An image (%s) is given in words, since it cannot be read", part.media_type, exc_info=True)
    return TextResultContent(content=part.text)
