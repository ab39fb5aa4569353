"""Runs the work of a tool: inline or in a thread, with what it needs, within its deadline."""

import asyncio
import logging
from collections.abc import Awaitable
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..core import Call, Context, Needs, Tool, ToolError
from .depends import Provided
from .threads import in_thread

if TYPE_CHECKING:
    from .life import Scene


def execute(tool: Tool, arguments: dict[str, Any], call: Call, scene: "Scene") -> Awaitable[Any]:
    """The value of the work of *tool*. Raises what the work raises, and ToolError `timeout`."""
    needs = tool.needs
    limit_s = _shorter(tool.spec.timeout_s, scene.timeout_s)
    if needs is None and limit_s is None and tool.runs == "async":
        return tool.work(**arguments)  # type: ignore[no-any-return]
    if limit_s is None:
        return _work(tool, arguments, call, scene, needs, None)
    return _within(limit_s, tool, arguments, call, scene, needs)


async def _within(
    limit_s: float, tool: Tool, arguments: dict[str, Any], call: Call, scene: "Scene", needs: Needs | None
) -> Any:
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await _work(tool, arguments, call, scene, needs, monotonic() + limit_s)
    except TimeoutError:
        if not limit.expired():
            raise  # the tool's own
        still = " Its work may still be running." if tool.runs == "sync" else ""
        raise ToolError(
            f"Tool '{tool.spec.name}' did not answer within {limit_s:g} s.{still} Ask for less, or try again later.",
            "timeout",
        ) from None


async def _work(
    tool: Tool, arguments: dict[str, Any], call: Call, scene: "Scene", needs: Needs | None, deadline_s: float | None
) -> Any:
    if needs is None:
        return await _run(tool, arguments)
    context = None
    if needs.context is not None or needs.depends:
        log = logging.getLogger(f"toolcrib.tool.{tool.spec.name}")
        context = Context(call, scene.caller, scene.variables, deadline_s, log)
    if not needs.depends:
        return await _run(tool, {**arguments, needs.context: context})  # type: ignore[dict-item]
    of_call = Provided("call", overrides=scene.overrides, outer=scene.session())
    try:
        return await _run(tool, {**arguments, **await of_call.arguments(needs, context)})
    finally:
        await of_call.close()


async def _run(tool: Tool, arguments: dict[str, Any]) -> Any:
    if tool.runs == "async":
        return await tool.work(**arguments)
    work = tool.work
    value = await in_thread(lambda: work(**arguments))
    # A plain function may still hand out an awaitable: a wrapper around a coroutine function does.
    return await value if hasattr(type(value), "__await__") else value


def _shorter(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
