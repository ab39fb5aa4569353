"""Inside a call: from checked arguments to the value of the work. For retries.

It is one of two places where a call can be wrapped; the other one is around the whole of it (`around.py`). What is
repeated here is the work alone: nothing is checked, approved or paid for twice.
"""

import asyncio
import copy
import logging
import random
import socket
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic
from typing import Any

from ..core import (
    Call,
    CancellationToken,
    Emitted,
    Progress,
    StillPending,
    Tool,
    ToolError,
    ToolSpec,
)
from .execute import due_s, execute
from .feed import Feed
from .scene import Retries, Scene

_log = logging.getLogger("toolcrib")

_WORTH = frozenset({"unavailable", "lost", "limited", "failed"})
_CONNECTION = (ConnectionError, TimeoutError, socket.gaierror)


_NONE = Retries(times=0)


async def retried(
    tool: Tool, arguments: dict[str, Any], call: Call, scene: Scene, feed: Feed | None, tried: list[dict[str, Any]]
) -> Any:
    """`execute`, and again where that can do no harm and may help. Each new attempt is noted in *tried*.

    Only for a tool that says it is idempotent or reads only; only after an error that may pass by itself: a ToolError
    whose `retry` is "later", or a connection that failed. Never after a deadline, and never once the tool has given a
    part of its answer away.
    """
    plan, times = _plan(tool, scene)
    if not times:
        return await execute(tool, arguments, call, scene, feed)
    as_checked = copy.deepcopy(arguments)  # a tool may change what it is given
    heard = None if feed is None else _Heard(feed)
    due = due_s(tool, call, scene)
    while True:
        try:
            return await execute(tool, arguments, call, scene, heard)
        except Exception as error:
            if len(tried) >= times or (heard and heard.anything) or not is_worth_it(error):
                raise
            pause_s = _pause_s(plan, len(tried), error)
            if due is not None and monotonic() + pause_s >= due:
                raise
            name = error.code if isinstance(error, ToolError) else type(error).__name__
        _log.warning("Tool '%s' failed (%s) and is tried again in %.3f s", tool.spec.name, name, pause_s)
        tried.append({"error": name, "after_s": round(pause_s, 3)})
        await _pause(pause_s, tool.spec.name, call.cancellation)
        arguments = copy.deepcopy(as_checked)
        if due is not None:
            call = replace(call, timeout_s=max(due - monotonic(), 0.001))


def may_be_repeated(spec: ToolSpec) -> bool:
    """Whether the tool says that a second call with the same arguments changes nothing more."""
    return spec.hints.idempotent is True or spec.hints.read_only is True


def is_worth_it(error: BaseException) -> bool:
    """Whether the same work may end better in a while."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_worth_it(inner) for inner in error.exceptions)
    if isinstance(error, ToolError):
        return error.code in _WORTH and error.retry == "later" and not isinstance(error, StillPending)
    # HTTP clients have their own errors, raised from or while handling the one of the connection.
    return any(isinstance(cause, _CONNECTION) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _plan(tool: Tool, scene: Scene) -> tuple[Retries, int]:
    """When to try again, and how often."""
    plan = next((plan for plan in scene.retries or () if plan.names.fullmatch(tool.spec.name)), _NONE)
    times = plan.times if tool.retries is None else tool.retries
    return plan, times if may_be_repeated(tool.spec) else 0


def _pause_s(plan: Retries, number: int, error: Exception) -> float:
    # "Full jitter": calls that failed together do not come back together.
    pause_s = random.uniform(0, min(plan.most_s, plan.first_s * 2.0**number))  # noqa: S311 - nothing is guarded by it
    asked_s = error.details.get("retry_after_s") if isinstance(error, ToolError) else None
    return max(pause_s, float(asked_s)) if isinstance(asked_s, int | float) else pause_s


async def _pause(wait_s: float, tool: str, given_up: CancellationToken | None) -> None:
    if given_up is None:
        await asyncio.sleep(wait_s)
        return
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    unlink = given_up.add_callback(lambda: loop.call_soon_threadsafe(stopped.set))
    try:
        async with asyncio.timeout(wait_s):
            await stopped.wait()
    except TimeoutError:
        return
    finally:
        unlink()
    raise ToolError(f"Tool '{tool}' was cancelled.", "cancelled")


class _Heard(Feed):
    """The feed of a call, and whether anything of its answer was given to it."""

    def __init__(self, feed: Feed) -> None:
        self._heard = feed
        self.anything = False

    async def put(self, emitted: Emitted) -> None:
        self.anything = True
        await self._heard.put(emitted)

    def progress(self, progress: Progress) -> None:
        self._heard.progress(progress)
