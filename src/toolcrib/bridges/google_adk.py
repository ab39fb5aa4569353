"""Google's Agent Development Kit: a workbench as a toolset of its agents, and its tools and toolsets as sources."""

import asyncio
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction, isroutine
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.sessions import InMemorySessionService
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.genai.types import FunctionDeclaration, Part

from ..core import Approve, Context, Data, DefinitionError, Deny, Result, Source, ToolError, ToolSpec
from ..formats import GEMINI, Offered, json_value
from ..machinery import in_thread
from ..tools import Tool as CoreTool
from ..workbench import Crib, Workbench
from .foreign import ListedSource, approve, closed, hints_of, tool_of
from .host import CallerOf, Host, metadata

# Out


def toolset(tools: Workbench | Crib, *, caller: CallerOf | None = None) -> BaseToolset:
    """Return *tools* as a toolset: `LlmAgent(name="...", model=model, tools=[toolset(bench)])`.

    Of a crib, *caller* gives the caller of a run by its context: `caller=lambda context: Caller(context.user_id)`. A
    call that waits for an approval asks for a confirmation. A workbench that is not started starts when its tools
    are listed, and stops when the runner closes the toolset.
    """
    return _Toolset(Host(tools, caller))


class _Toolset(BaseToolset):
    def __init__(self, host: Host) -> None:
        super().__init__()
        self._use_invocation_cache = False  # a run may need a tool that it did not have before
        self._host = host
        self._is_entered = False

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        if not self._is_entered:
            await self._host.enter()
            self._is_entered = True
        return [_Tool(self._host, tool) for tool in await self._host.shown(readonly_context, GEMINI)]

    async def close(self) -> None:
        if self._is_entered:
            self._is_entered = False
            await self._host.leave()


class _Tool(BaseTool):
    def __init__(self, host: Host, tool: Offered) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._host = host
        self._tool = tool

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._tool.schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        confirmation = tool_context.tool_confirmation
        answer = None if confirmation is None else Approve() if confirmation.confirmed else Deny()
        call_id = tool_context.function_call_id
        result = await self._host.call(tool_context, self.name, args, call_id, accepts=GEMINI, answer=answer)
        pending = result.pending
        if pending is not None and pending.kind == "approval" and confirmation is None:
            tool_context.request_confirmation(hint=pending.message, payload=pending.to_dict())
            tool_context.actions.skip_summarization = True
        return _response(result)


def _response(result: Result[Any]) -> dict[str, Any]:
    """Return what a model reads of *result*. The ADK makes the media in it parts of the function response."""
    view = result.shown()
    if view.is_error:
        return {"error": view.text, "code": view.code}
    match result.content:
        case (Data() as only,):
            data: dict[str, Any] = {"result": json_value(only)}
        case _:
            data = {"result": view.text}
    if view.media:
        data["media"] = [Part.from_bytes(data=part.data, mime_type=part.media_type) for part in view.media]
    notes = metadata(result)
    return {**data, "repairs": notes["repairs"]} if "repairs" in notes else data


# In


def read(value: Any) -> Source | None:
    """Return *value*, a tool or a toolset of the ADK, as a source; None for anything else."""
    return ToolsetSource(value) if isinstance(value, BaseTool | BaseToolset) else None


class ToolsetSource(ListedSource):
    """A tool or a toolset as a source: listed at the start, closed at the stop.

    Tools get a ToolContext of a session in memory, of the caller; what needs the agent of a run, such as its model, is
    not there.
    """

    def __init__(self, theirs: BaseTool | BaseToolset) -> None:
        super().__init__(type(theirs).__name__)
        self._theirs = theirs
        self._sessions = InMemorySessionService()
        if isinstance(theirs, BaseTool):
            self.take([theirs], self._tool)

    async def start(self) -> None:
        if isinstance(self._theirs, BaseToolset):
            self.take(await self._theirs.get_tools_with_prefix(None), self._tool)
            self.changed()

    async def stop(self) -> None:
        if isinstance(self._theirs, BaseToolset):
            await self._theirs.close()

    def _tool(self, theirs: BaseTool) -> CoreTool[..., Any]:
        # The ADK calls such a function on the event loop, where no deadline holds.
        is_sync = isinstance(theirs, FunctionTool) and isroutine(theirs.func) and not iscoroutinefunction(theirs.func)

        async def value_of(arguments: dict[str, Any], run: ToolContext) -> Any:
            begin = partial(theirs.run_async, args=dict(arguments), tool_context=run)
            return await (in_thread(lambda: asyncio.run(begin())) if is_sync else begin())

        async def work(arguments: dict[str, Any], context: Context) -> Any:
            run = await self._context(context)
            value = await value_of(arguments, run)
            if run.actions.requested_tool_confirmations:
                (request,) = run.actions.requested_tool_confirmations.values()
                await approve(context, request.hint)
                run = await self._context(context, ToolConfirmation(confirmed=True, payload=request.payload))
                value = await value_of(arguments, run)
            if run.actions.requested_auth_configs:
                raise ToolError(f"Tool '{theirs.name}' needs credentials that its agent would ask for.", "unauthorized")
            if isinstance(value, dict) and set(value) == {"error"}:
                raise ToolError(str(value["error"]) or f"Tool '{theirs.name}' failed.")
            return value

        return tool_of(_spec(theirs), work, self, at_deadline="left_running" if is_sync else "cancelled")

    async def _context(self, context: Context, confirmation: ToolConfirmation | None = None) -> ToolContext:
        caller, app = context.caller, "toolcrib"
        session = await self._sessions.get_session(
            app_name=app, user_id=caller.principal, session_id=caller.thread
        ) or await self._sessions.create_session(app_name=app, user_id=caller.principal, session_id=caller.thread)
        invocation = InvocationContext(
            session_service=self._sessions,
            invocation_id=context.call.id,
            agent=LlmAgent(name=app),
            session=session,
        )
        return ToolContext(invocation, function_call_id=context.call.id, tool_confirmation=confirmation)


def _spec(theirs: BaseTool) -> ToolSpec:
    declaration = theirs._get_declaration()
    if declaration is None:
        raise DefinitionError(f"Tool '{theirs.name}' is one that Gemini runs itself.")
    schema: Any = declaration.parameters_json_schema
    if schema is None and declaration.parameters is not None:
        schema = declaration.parameters.json_schema.model_dump(mode="json", exclude_none=True)
    annotations = getattr(getattr(theirs, "raw_mcp_tool", None), "annotations", None)
    return ToolSpec(
        declaration.name or theirs.name,
        declaration.description or "",
        closed(schema or {}),
        hints=replace(hints_of(annotations), long_running=theirs.is_long_running or None),
    )
