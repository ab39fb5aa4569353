"""Runs the work of a tool, with what it needs, within its deadline, and stoppable as far as its kind allows.

Work on the event loop is cancelled; work in a thread is left behind, and said to be. Either way the answer is on time.
"""

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from time import monotonic
from typing import Any

from ..core import Call, CancellationToken, Context, Port, Result, Tool
from .bounded import Bounded, deadline
from .depends import Provided
from .feed import CallPort, Feed
from .isolated import isolated
from .keep import in_keeping_thread, keep, let_go
from .scene import Scene
from .waiting import waits_for


def execute(tool: Tool, arguments: dict[str, Any], call: Call, scene: Scene, feed: Feed | None) -> Awaitable[Any]:
    """The value of the work of *tool*. Raises what the work raises, and ToolError `timeout` or `cancelled`."""
    deadline_s = due_s(tool, call, scene)
    if deadline_s is None and call.cancellation is None:
        if tool.needs is None:
            if tool.runs == "async":
                return tool.work(**arguments)  # type: ignore[no-any-return]
            if tool.runs == "sync":
                return _run_sync(tool, arguments)
        if tool.runs == "process":
            return isolated(tool, arguments, call, scene, feed, _work, None, None)
        return _work(tool, arguments, call, scene, feed, None, CancellationToken())
    if tool.runs == "process":
        limits = [each for each in (tool.spec.timeout_s, scene.timeout_s, call.timeout_s) if each is not None]
        return isolated(tool, arguments, call, scene, feed, _work, min(limits, default=None), deadline.get())
    cancellation = CancellationToken()
    work = _work(tool, arguments, call, scene, feed, deadline_s, cancellation)
    return Bounded(
        work,
        tool=tool.spec.name,
        deadline_s=deadline_s,
        given_up=call.cancellation,
        cancellation=cancellation,
        still_running=tool.runs in ("sync", "generator"),
    )


def due_s(tool: Tool, call: Call, scene: Scene) -> float | None:
    """When *call* has to be over, on the clock of `time.monotonic()`, if it begins now; None for at no time."""
    ambient, of_tool, of_scene, of_call = deadline.get(), tool.spec.timeout_s, scene.timeout_s, call.timeout_s
    if ambient is None and of_tool is None and of_scene is None and of_call is None:
        return None
    now = monotonic()
    dues = [now + limit_s for limit_s in (of_tool, of_scene, of_call) if limit_s is not None]
    return min(dues if ambient is None else (ambient, *dues))


async def _work(
    tool: Tool,
    arguments: dict[str, Any],
    call: Call,
    scene: Scene,
    feed: Feed | None,
    deadline_s: float | None,
    cancellation: CancellationToken,
) -> Any:
    kept = keep()
    try:
        needs = tool.needs
        if needs is None and tool.runs in ("async", "sync"):
            return await _run(tool, arguments, None)
        return await _with_needs(tool, arguments, call, scene, feed, deadline_s, cancellation)
    finally:
        let_go(kept)


async def _with_needs(
    tool: Tool,
    arguments: dict[str, Any],
    call: Call,
    scene: Scene,
    feed: Feed | None,
    deadline_s: float | None,
    cancellation: CancellationToken,
) -> Any:
    needs = tool.needs
    port = CallPort(tool, feed, scene.redaction, partial(scene.asking, tool, call))
    try:
        if needs is None:
            return await _run(tool, arguments, port, cancellation)
        log = logging.getLogger(f"toolcrib.tool.{tool.spec.name}")
        loop = asyncio.get_running_loop()
        context = Context(call, scene.caller, scene.variables, deadline_s, cancellation, log, port, loop)
        of_call = Provided("call", overrides=scene.overrides, outer=scene.session() if needs.depends else None)
        try:
            value = await _run(tool, {**arguments, **await of_call.arguments(needs, context)}, port, cancellation)
            if isinstance(value, Result) and value.pending is not None:
                value.unwrap()
            return value
        finally:
            await of_call.close()
    except BaseException as raised:
        if isinstance(raised, asyncio.CancelledError):
            cancellation.cancel()  # nobody else tells a thread where there is no deadline
        if waits_for(raised) is not None:
            await port.suspend()
        raise
    finally:
        await port.finish()


async def _run(
    tool: Tool, arguments: dict[str, Any], port: Port | None, cancellation: CancellationToken | None = None
) -> Any:
    work = tool.work
    match tool.runs:
        case "async":
            return await work(**arguments)
        case "sync":
            return await _run_sync(tool, arguments)
        case "async_generator":
            return await _last(work(**arguments), port)
        case "generator":
            loop = asyncio.get_running_loop()
            return await in_keeping_thread(lambda: _last_in_thread(work(**arguments), port, loop, cancellation))
        case "process":
            raise AssertionError("the work of a process is run by `isolated`")


async def _run_sync(tool: Tool, arguments: dict[str, Any]) -> Any:
    value = await in_keeping_thread(partial(tool.work, **arguments))
    # A plain function may still hand out an awaitable: a wrapper around a coroutine function does.
    return await value if hasattr(type(value), "__await__") else value


async def run_here(tool: Tool, given: dict[str, Any], port: Port, deadline_s: float | None) -> Any:
    """The value of the work of *tool*, *given* all it takes; what it calls is due at *deadline_s*.

    For a worker, whose host stops it: here nothing does.
    """
    before = deadline.set(deadline_s)
    try:
        return await _run(tool, given, port)
    finally:
        deadline.reset(before)


async def _last(items: Any, port: Port | None) -> Any:
    """The last of what an async generator yields; those before it are emitted."""
    last: Any = None
    first = True
    try:
        async for item in items:
            if not first and port is not None:
                await port.emit(last)
            last, first = item, False
    finally:
        await items.aclose()
    return last


def _last_in_thread(
    items: Any, port: Port | None, loop: asyncio.AbstractEventLoop, cancellation: CancellationToken | None
) -> Any:
    last: Any = None
    first = True
    try:
        for item in items:
            if cancellation is not None and cancellation.is_cancelled():
                break  # nobody waits for what is left of it
            if not first and port is not None:
                asyncio.run_coroutine_threadsafe(port.emit(last), loop).result()
            last, first = item, False
    finally:
        items.close()
    return last
