"""Around a call: from the call to its result, with all of its life in between. For limits, idempotency and caches.

It is one of two places where a call can be wrapped; the other one is inside, around the work (`inside.py`). The chain
is composed once, when a workbench is made; without anything to wrap there is none.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from time import monotonic
from typing import Any

from ..core import Around, Call, Caller, Result, Tool
from .execute import due_s
from .fail import told
from .feed import Feed
from .keep import put_back
from .life import refuse, run
from .scene import Scene

Run = Callable[[Tool, Call, Feed | None], Awaitable[Result[Any]]]

_due: ContextVar[float | None] = ContextVar("toolcrib_due_s", default=None)


def around(wraps: Sequence[Around], scene: Scene) -> Run:
    """`run` on *scene* with *wraps* about it, the first of them outermost.

    The time of a call runs from before the first of them is asked, so that they and the work share it. What one of
    them raises is the result of the call.
    """

    def innermost(tool: Tool, call: Call, feed: Feed | None) -> Awaitable[Result[Any]]:
        left_s = time_left_s()
        return run(tool, call if left_s is None else replace(call, timeout_s=max(left_s, 0.001)), scene, feed)

    chain: Run = innermost
    for wrap in reversed(wraps):
        chain = _wrapped(wrap, chain, scene.caller)

    async def whole(tool: Tool, call: Call, feed: Feed | None) -> Result[Any]:
        before = _due.set(due_s(tool, call, scene))
        try:
            return await chain(tool, call, feed)
        except BaseException as raised:
            error = told(raised, tool.spec.name, show=scene.show_errors, redaction=scene.redaction)
            return refuse(call, error, scene)
        finally:
            put_back(_due, before)

    return whole


def time_left_s() -> float | None:
    """How long the running call may still take; None where it has no deadline."""
    due = _due.get()
    return None if due is None else due - monotonic()


def _wrapped(wrap: Around, chain: Run, caller: Caller) -> Run:
    def wrapped(tool: Tool, call: Call, feed: Feed | None) -> Awaitable[Result[Any]]:
        return wrap(tool, call, caller, lambda: chain(tool, call, feed))

    return wrapped
