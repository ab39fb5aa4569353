"""A tool of an agent as a Tool of the core: the whole life of one call of it, for any workbench."""

import asyncio
from functools import partial
from time import monotonic
from typing import Any

from ...core import Context, ToolError
from ...schema import gives_awaitable
from ...tools import Tool, given
from .commits import CallUnderWay
from .reading import AgentTool, awaited

CONTEXT = "$context"
"""Under which name work is given its Context: no property of a schema is likely to be called so."""


def native(tool: AgentTool) -> Tool[..., Any]:
    """The Tool that *tool* is. The caller's principal is its client; one call is a turn of its own."""
    spec = tool.spec

    async def work(**arguments: Any) -> Any:
        context: Context = arguments.pop(CONTEXT)
        call = CallUnderWay(
            tool,
            tool_id=context.call.id,
            client_id=context.caller.principal,
            agent_name=tool.agent_name,
            tool_calls=(
                {"id": context.call.id, "type": "function", "function": {"name": spec.name, "arguments": arguments}},
            ),
            call_reason="",
            is_last=True,
            timeout_s=None if context.deadline_s is None else max(0.0, context.deadline_s - monotonic()),
            happened=lambda kind, tool_id, detail: None,
        )
        with call:
            await call.accept(arguments)
            await call.observe_call("on_before_call")
            try:
                value = await _called(call, context)
            except asyncio.CancelledError:
                error = ToolError(f"Tool '{spec.name}' was cancelled before it ended.", "cancelled")
                await call.observe_call("on_call_error", error)
                raise
            except Exception as error:
                await call.observe_call("on_call_error", error)
                raise
            await call.observe_call("on_after_call")
            return call.given(value)

    return given(spec, work, context=CONTEXT, home=getattr(tool.call, "__module__", None))


async def _called(call: CallUnderWay, context: Context) -> Any:
    dto = call.dto(context.cancellation)
    if gives_awaitable(call.tool.call):
        return await call.tool.call(dto)
    from ...call.keep import in_keeping_thread

    return await awaited(await in_keeping_thread(partial(call.tool.call, dto)))
