"""Around the work of a call: from checked arguments to its value. For retries.

It is one of two places where a call can be wrapped; the other is around the whole of it (middleware). What is
repeated here is the work alone: nothing is checked, approved or counted twice.
"""

import asyncio
import copy
import logging
import random
import socket
from collections.abc import Iterator
from typing import Any

from ..core import (
    Call,
    CancellationToken,
    Deadline,
    Event,
    Progress,
    StillPending,
    Tool,
    ToolError,
    ToolSpec,
    current_deadline,
    leaves,
)
from .events import EventStream
from .execute import Asked, Credentials, execute
from .runtime import Retry, Runtime

_log = logging.getLogger("toolcrib")

_FOR_EVER_S = 1e9
_PASSING = frozenset({"unavailable", "lost", "limited", "failed"})
_CONNECTION = (ConnectionError, TimeoutError, socket.gaierror)


async def retry(
    failures: list[dict[str, Any]],
    tool: Tool,
    arguments: dict[str, Any],
    call: Call,
    runtime: Runtime,
    events: EventStream | None,
    credentials: Credentials,
    asked: Asked,
) -> Any:
    """Execute *call*, and again where that can do no harm and may help.

    The attempts that failed are added to *failures*.

    Only for a tool that is idempotent or read-only; only after an error that may pass by itself: a ToolError whose
    `retry` is "later", or a connection that failed. Never after a deadline, and never once the tool has emitted a part
    of its answer.
    """
    plan = _plan(tool, runtime)
    times = plan.times if tool.retries is None else tool.retries
    if not times or not may_be_repeated(tool.spec):
        return await execute(tool, arguments, call, runtime, events, credentials, asked)
    as_checked = copy.deepcopy(arguments)  # a tool may change what it is given
    observed = None if events is None else _Observed(events)
    deadline = current_deadline.get()
    while True:
        try:
            return await execute(tool, arguments, call, runtime, observed, credentials, asked)
        except Exception as error:
            if len(failures) >= times or (observed and observed.has_emitted) or not may_pass(error):
                raise
            pause_s = _pause_s(plan, len(failures), error)
            if _is_too_late(deadline, pause_s):
                raise
            name = error.code if isinstance(error, ToolError) else type(error).__name__
        _log.warning("Tool '%s' failed (%s) and is tried again in %.3f s", tool.spec.name, name, pause_s)
        failures.append({"error": name, "after_s": round(pause_s, 3)})
        await _pause(pause_s, tool.spec.name, call.cancellation)
        arguments = copy.deepcopy(as_checked)


def _plan(tool: Tool, runtime: Runtime) -> Retry:
    for plan in runtime.retries or ():
        if plan.names.fullmatch(tool.spec.name):
            return plan
    return Retry(times=0)


def _is_too_late(deadline: Deadline | None, pause_s: float) -> bool:
    return deadline is not None and deadline.left_s <= pause_s


def may_be_repeated(spec: ToolSpec) -> bool:
    """Return whether the tool is declared such that a second call with the same arguments changes nothing more."""
    return spec.hints.idempotent is True or spec.hints.read_only is True


def may_pass(error: BaseException) -> bool:
    """Return whether the same work may end better in a while."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(may_pass, leaves(error)))
    if isinstance(error, ToolError):
        return error.code in _PASSING and error.retry == "later" and not isinstance(error, StillPending)
    # HTTP clients have their own errors, raised from or while handling the one of the connection.
    return any(isinstance(cause, _CONNECTION) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _pause_s(plan: Retry, number: int, error: Exception) -> float:
    # "Full jitter": calls that failed together do not come back together.
    pause_s = random.uniform(0, min(plan.most_s, plan.first_s * 2.0**number))  # noqa: S311 - nothing is guarded by it
    asked_s = error.details.get("retry_after_s") if isinstance(error, ToolError) else None
    return max(pause_s, float(asked_s)) if isinstance(asked_s, int | float) and asked_s < _FOR_EVER_S else pause_s


async def _pause(wait_s: float, tool: str, cancellation: CancellationToken | None) -> None:
    if cancellation is None:
        await asyncio.sleep(wait_s)
        return
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    unlink = cancellation.add_callback(lambda: loop.call_soon_threadsafe(stopped.set))
    try:
        async with asyncio.timeout(wait_s):
            await stopped.wait()
    except TimeoutError:
        return
    finally:
        unlink()
    raise ToolError(f"Tool '{tool}' was cancelled.", "cancelled")


class _Observed(EventStream):
    """The events of a call, and whether any part of its answer was among them."""

    def __init__(self, events: EventStream) -> None:
        self._observed = events
        self.has_emitted = False

    async def put(self, event: Event, /) -> None:
        self.has_emitted = True
        await self._observed.put(event)

    def progress(self, progress: Progress) -> None:
        self._observed.progress(progress)
