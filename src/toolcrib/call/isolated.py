"""Runs the work of a tool in a process of its own. Waiting for a turn is in its deadline; starting a worker is not.

What such a process is, and how it is spoken to, is said by the `Isolation` that the workbench hands in.
"""

from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from ..core import Call, CancellationToken, Needs, Runs, Tool, ToolError
from .bounded import Bounded
from .feed import Feed
from .scene import Scene, Seat

Work = Callable[
    [Tool, dict[str, Any], Call, Scene, Feed | None, float | None, CancellationToken], Coroutine[Any, Any, Any]
]

_CONTEXT = "the context"  # no name of a parameter, so none is taken


async def isolated(
    tool: Tool,
    arguments: dict[str, Any],
    call: Call,
    scene: Scene,
    feed: Feed | None,
    work: Work,
    limit_s: float | None,
    outer_s: float | None,
) -> Any:
    """The value of *tool*, whose own limit is *limit_s* seconds; *outer_s* is when the call it is a part of is due."""
    if scene.isolation is None:
        raise ToolError(f"Tool '{tool.spec.name}' runs in a process of its own, and there is none here.", "unavailable")
    cancellation = CancellationToken()

    def bounded(part: Coroutine[Any, Any, Any], deadline_s: float | None) -> Bounded:
        return Bounded(
            part,
            tool=tool.spec.name,
            deadline_s=deadline_s,
            given_up=call.cancellation,
            cancellation=cancellation,
            still_running=False,
        )

    deadline_s = _earliest(None if limit_s is None else monotonic() + limit_s, outer_s)
    seat = scene.isolation.seat(tool, scene)
    try:
        await bounded(seat.wait(), deadline_s)
        began_s = monotonic()
        await bounded(seat.prepare(), outer_s)
        if deadline_s is not None:
            deadline_s = _earliest(deadline_s + monotonic() - began_s, outer_s)
        seated: Any = _Seated(tool, seat)
        return await bounded(work(seated, arguments, call, scene, feed, deadline_s, cancellation), deadline_s)
    finally:
        seat.leave()


def _earliest(*times_s: float | None) -> float | None:
    return min((time_s for time_s in times_s if time_s is not None), default=None)


class _Seated:
    """A tool as whoever runs it here sees it: its work is a conversation with a worker."""

    runs: Runs = "async"
    needs = Needs(context=_CONTEXT)

    def __init__(self, tool: Tool, seat: Seat) -> None:
        self._tool = tool
        self._seat = seat

    async def work(self, **given: Any) -> Any:
        context = given.pop(_CONTEXT)
        return await self._seat.run(given, context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)
