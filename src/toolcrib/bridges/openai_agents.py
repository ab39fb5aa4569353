"""OpenAI Agents SDK: a workbench as function tools, and its function tools as sources."""

import json
from collections.abc import Mapping
from dataclasses import replace
from inspect import isawaitable
from mimetypes import guess_type
from typing import Any

from agents import Agent, FunctionTool, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext
from agents.tool_guardrails import ToolInputGuardrailData, ToolOutputGuardrailData
from pydantic import BaseModel

from ..core import Approve, Context, File, Image, Result, ToolError, ToolSpec
from ..formats import RESPONSES, Offered, media_content
from ..tools import Tool as CoreTool
from ..workbench import Crib, Workbench
from .foreign import approve, closed, data_url, from_data_url, hints_of, promise, tool_of
from .host import CallerOf, Host

# Out


def tools(tools: Workbench | Crib, *, caller: CallerOf | None = None) -> list[FunctionTool]:
    """Return *tools* for the Agents SDK: `Agent(name="...", tools=tools(bench))`.

    Of a crib, *caller* gives the caller of a run by its context: `caller=lambda context: Caller(context.context.user)`.
    Where the policy asks, the run is interrupted, and goes on by `state.approve(...)` or `state.reject(...)`. The list
    has the tools that there are now, and follows their changes; a run is offered those of them that its caller may see
    at each step. Start a workbench first where its sources connect to something.
    """
    host = Host(tools, caller)
    offer: list[FunctionTool] = []

    def refresh() -> None:
        offer[:] = [_function_tool(host, tool) for tool in host.listed(RESPONSES, follows=True).tools]

    refresh()
    tools.registry.on_change(refresh)
    return offer


def _function_tool(host: Host, tool: Offered) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        is_approved = context.is_tool_approved(tool.name, context.tool_call_id) is True
        answer = Approve() if is_approved else None
        call_id = context.tool_call_id
        return _output(await host.call(context, tool.name, arguments, call_id, accepts=RESPONSES, answer=answer))

    async def needs_approval(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return await host.needs_approval(context, tool.name, arguments, accepts=RESPONSES)

    async def is_enabled(context: Any, agent: Any) -> bool:
        return await host.shows(context, tool.spec.name)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=json.loads(json.dumps(tool.schema)),
        on_invoke_tool=invoke,
        strict_json_schema=tool.strict,
        # The SDK has malformed JSON approved before anything else, where anything can be.
        needs_approval=needs_approval if host.has_policy else False,
        is_enabled=is_enabled,
    )


def _output(result: Result[Any]) -> Any:
    return [_part(part) for part in result.content] if result.shown().media else result.text


def _part(part: Any) -> Any:
    if isinstance(part, Image):
        return ToolOutputImage(image_url=data_url(part))
    if isinstance(part, File):
        return ToolOutputFileContent(file_data=data_url(part), filename=part.name or "file")
    return ToolOutputText(text=part.text)


# In


def read(value: Any) -> list[CoreTool[..., Any]] | None:
    """Return the tool of *value*, a function tool of the Agents SDK; None for anything else."""
    return [_tool(value)] if isinstance(value, FunctionTool) else None


def _tool(theirs: FunctionTool) -> CoreTool[..., Any]:
    # Its errors would come back as text that looks like a success.
    explain = None if theirs._use_default_failure_error_function else theirs._failure_error_function

    async def fail(context: Any, error: Exception) -> str:
        assert explain is not None
        text = explain(context, error)
        raise ToolError(await text if isawaitable(text) else text) from error

    raising = replace(
        theirs, _failure_error_function=fail if explain else None, _use_default_failure_error_function=False
    )

    async def work(arguments: dict[str, Any], context: Context) -> Any:
        text, name = json.dumps(arguments), theirs.name
        run: ToolContext[Any] = ToolContext(
            context.variables.get("context"), tool_name=name, tool_call_id=context.call.id, tool_arguments=text
        )
        agent: Agent[Any] = Agent(name="toolcrib")
        if not await _value(theirs.is_enabled, run, agent):
            raise ToolError(f"Tool '{name}' is not available now.", "unavailable")
        if await _value(theirs.needs_approval, run, arguments, context.call.id):
            await approve(context)
        for guardrail in theirs.tool_input_guardrails or ():
            _pass(name, (await guardrail.run(ToolInputGuardrailData(run, agent))).behavior)
        output = await raising.on_invoke_tool(run, text)
        for guard in theirs.tool_output_guardrails or ():
            _pass(name, (await guard.run(ToolOutputGuardrailData(run, agent, output))).behavior)
        return _content_of(output)

    spec = ToolSpec(
        theirs.name,
        theirs.description,
        closed(theirs.params_json_schema),
        promise(theirs.output_json_schema),
        hints=hints_of(theirs.mcp_annotations),
        strict=theirs.strict_json_schema or None,
        timeout_s=theirs.timeout_seconds,
    )
    return tool_of(spec, work, at_deadline="left_running")  # a function that is not async runs in a thread


async def _value(setting: Any, *args: Any) -> bool:
    value = setting(*args) if callable(setting) else setting
    return bool(await value if isawaitable(value) else value)


def _pass(tool: str, behavior: Mapping[str, Any]) -> None:
    """Raise ToolError where a guardrail does not let the call pass."""
    if behavior["type"] != "allow":
        raise ToolError(behavior.get("message") or f"A guardrail of the tool '{tool}' stopped this call.", "denied")


def _content_of(output: Any) -> Any:
    """Return the result of a function tool as a tool of ours returns it."""
    if isinstance(output, list):
        return [_content_of(part) for part in output]
    block = output.model_dump() if isinstance(output, BaseModel) else output
    if not isinstance(block, dict) or block.get("type") not in ("text", "image", "file"):
        return output
    return block.get("text") if block["type"] == "text" else _media_of(block)


def _media_of(block: dict[str, Any]) -> Any:
    url, name = str(block.get("image_url") or block.get("file_data") or ""), block.get("filename")
    if block.get("file_data") and not url.startswith("data:"):  # base64 alone, which the name says more of
        url = f"data:{guess_type(name or '')[0] or 'application/octet-stream'};base64,{url}"
    media = from_data_url(url)
    return block if media is None else media_content(*media, name)
