"""AutoGen: a workbench as one of its workbenches or as its tools, and its tools and workbenches as sources.

An AssistantAgent whose workbench raises waits for ever, so nothing here does.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from autogen_core import CancellationToken as TheirToken
from autogen_core import Image as TheirImage
from autogen_core.tools import (
    BaseTool,
    FunctionTool,
    ImageResultContent,
    StaticWorkbench,
    TextResultContent,
    ToolResult,
    ToolSchema,
)
from autogen_core.tools import Workbench as TheirWorkbench
from pydantic import BaseModel, ValidationError

from ..core import CancellationToken, Context, Image, Result, Source, ToolError, ToolSpec
from ..formats import Offered, decode_picture
from ..machinery import AtDeadline
from ..tools import Tool as CoreTool
from ..workbench import Workbench, sync
from .foreign import closed, one_or_all, png, problems, tool_of
from .host import Host

_log = logging.getLogger("toolcrib")

# Out


def workbench(bench: Workbench) -> TheirWorkbench:
    """Return *bench* for AgentChat: `AssistantAgent(..., workbench=workbench(bench))`.

    AutoGen has no context of a run: of a crib, give the workbench of the caller, `crib.workbench(Caller("alice"))`.
    """
    return _Workbench(Host(bench))


def tools(bench: Workbench) -> list[BaseTool[Any, Any]]:
    """Return the tools that *bench* has now, for AgentChat: `AssistantAgent(..., tools=tools(bench))`."""
    host = Host(bench)
    return [_Tool(host, tool) for tool in host.listed().tools]


class _Workbench(TheirWorkbench):
    component_config_schema = BaseModel

    def __init__(self, host: Host) -> None:
        self._host = host
        self._is_entered = False

    async def list_tools(self) -> list[ToolSchema]:
        return [_schema(tool) for tool in await self._host.shown()]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: TheirToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        result = await _call(self._host, name, arguments, cancellation_token, call_id)
        parts = [_part(part) for part in result.content]
        return ToolResult(name=name, result=parts, is_error=result.shown().is_error)

    async def start(self) -> None:
        if not self._is_entered:
            await self._host.enter()
            self._is_entered = True

    async def stop(self) -> None:
        if self._is_entered:
            self._is_entered = False
            await self._host.leave()

    async def reset(self) -> None:
        await (await self._host.bench()).reset()

    async def save_state(self) -> Mapping[str, Any]:
        return await (await self._host.bench()).save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        await (await self._host.bench()).load_state(state)


class _Tool(BaseTool[BaseModel, Any]):
    component_config_schema = BaseModel

    def __init__(self, host: Host, tool: Offered) -> None:
        super().__init__(BaseModel, object, tool.name, tool.description, bool(tool.spec.strict))
        self._host = host
        self._tool = tool

    @property
    def schema(self) -> ToolSchema:
        return _schema(self._tool)

    async def run(self, args: BaseModel, cancellation_token: TheirToken) -> Any:
        return await self.run_json(args.model_dump(), cancellation_token)

    async def run_json(
        self, args: Mapping[str, Any], cancellation_token: TheirToken, call_id: str | None = None
    ) -> Any:
        """Return the text of the result. Raises the ToolError of a call that failed, for the agent to tell."""
        view = (await _call(self._host, self.name, args, cancellation_token, call_id)).shown()
        if view.is_error:
            raise ToolError(view.text)
        return "\n".join([view.text, *(part.text for part in view.media)]) if view.media else view.text


async def _call(host: Host, name: str, arguments: Any, theirs: TheirToken | None, call_id: str | None) -> Result[Any]:
    token = CancellationToken()
    if theirs is not None:
        theirs.add_callback(token.cancel)
    text = arguments if arguments is None or isinstance(arguments, Mapping) else json.dumps(arguments, default=str)
    return await host.call(None, name, text, call_id, cancellation=token)


def _schema(tool: Offered) -> ToolSchema:
    parameters: Any = {"properties": {}, **tool.schema}
    strict = bool(tool.spec.strict)
    return ToolSchema(name=tool.name, description=tool.description, parameters=parameters, strict=strict)


def _part(part: Any) -> TextResultContent | ImageResultContent:
    if isinstance(part, Image):
        try:
            return ImageResultContent(content=TheirImage(decode_picture(part.data).convert("RGBA")))
        except Exception:
            return TextResultContent(content=f"{part.text} (it cannot be decoded)")
    return TextResultContent(content=part.text)


# In


def read(value: Any) -> Source | None:
    """Return *value*, a tool or a workbench of AutoGen, as a source; None for anything else."""
    if isinstance(value, TheirWorkbench):
        return WorkbenchSource(value)
    return ToolSource(value) if isinstance(value, BaseTool) else None


class WorkbenchSource(Source):
    """A workbench of AutoGen as a source: it starts and stops here, and keeps its state. Calls may change its tools."""

    def __init__(self, theirs: TheirWorkbench) -> None:
        self._theirs = theirs
        self._listed: list[Any] = []
        self._tools: list[CoreTool[..., Any]] = []
        if type(theirs).list_tools is StaticWorkbench.list_tools:  # which need not be started for that
            sync.run(self._list())

    @property
    def state_key(self) -> str:
        return type(self._theirs).__name__

    async def start(self) -> None:
        await self._theirs.start()
        try:
            await self._list()
        except BaseException:
            await self._theirs.stop()
            raise

    async def stop(self) -> None:
        await self._theirs.stop()

    async def reset(self) -> None:
        await self._theirs.reset()

    async def save_state(self) -> Any:
        return dict(await self._theirs.save_state())

    async def load_state(self, state: Any, /) -> None:
        await self._theirs.load_state(state)

    def tools(self) -> Sequence[CoreTool[..., Any]]:
        return self._tools

    async def _list(self) -> None:
        schemas = [dict(schema) for schema in await self._theirs.list_tools()]
        if schemas != self._listed:
            self._tools = [
                # Its tools may be functions that are not async, and go on in their threads.
                tool_of(_spec(schema), partial(self._call, schema["name"]), self, at_deadline="left_running")
                for schema in schemas
            ]
            self._listed = schemas
            self.changed()

    async def _call(self, name: str, arguments: dict[str, Any], context: Context) -> Any:
        result = await self._theirs.call_tool(name, arguments, _token(context), context.call.id)
        try:
            await self._list()
        except Exception:  # the call was carried out, whatever the list is
            _log.warning("The tools of %s are unchanged", type(self._theirs).__name__, exc_info=True)
        parts = [_content(part) for part in result.result]
        if result.is_error:
            text = "\n".join(part for part in parts if isinstance(part, str))
            raise ToolError(text or f"Tool '{name}' failed.")
        return one_or_all(parts)


class ToolSource(Source):
    """A tool of AutoGen as a source, which keeps its state."""

    def __init__(self, theirs: BaseTool[Any, Any]) -> None:
        self._theirs = theirs
        is_sync = isinstance(theirs, FunctionTool) and not iscoroutinefunction(theirs._func)
        at_deadline: AtDeadline = "left_running" if is_sync else "cancelled"
        self._tool = tool_of(_spec(dict(theirs.schema)), self._call, self, at_deadline=at_deadline)

    @property
    def state_key(self) -> str:
        return self._theirs.name

    async def save_state(self) -> Any:
        return dict(await self._theirs.save_state_json()) or None

    async def load_state(self, state: Any, /) -> None:
        await self._theirs.load_state_json(state)

    def tools(self) -> Sequence[CoreTool[..., Any]]:
        return [self._tool]

    async def _call(self, arguments: dict[str, Any], context: Context) -> Any:
        try:
            return await self._theirs.run_json(arguments, _token(context), context.call.id)
        except ValidationError as error:
            if error.title != self._theirs.args_type().__name__:
                raise
            raise ToolError(problems(self._theirs.name, error), "invalid_arguments") from None


def _spec(schema: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(
        schema["name"],
        schema.get("description", ""),
        closed(schema.get("parameters", {})),
        strict=schema.get("strict") or None,
    )


def _token(context: Context) -> TheirToken:
    token = TheirToken()
    context.cancellation.add_callback(token.cancel)
    return token


def _content(part: Any) -> Any:
    return png(part.content.image) if isinstance(part, ImageResultContent) else part.content
