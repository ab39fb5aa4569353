"""Several calls, some of them side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from ..call import error_result
from ..core import Call, Result, ToolError


async def call_each(
    make: Callable[[Call], Awaitable[Result[Any]]], calls: Sequence[Call], limit: int, *, stop_on_error: bool
) -> list[Result[Any]]:
    """The results of *calls*, in their order, made at most *limit* at a time.

    With *stop_on_error* the first error cancels the calls that have not ended: their result is `cancelled`.
    """
    results: list[Result[Any] | None] = [None] * len(calls)
    waiting = iter(enumerate(calls))
    tasks: set[asyncio.Task[None]] = set()
    stopped = False

    async def work() -> None:
        nonlocal stopped
        for index, call in waiting:
            result = results[index] = await make(call)
            if stop_on_error and result.error is not None:
                stopped = True
                for task in tasks:
                    if task is not asyncio.current_task():
                        task.cancel()
            if stopped:
                return

    if limit == 1:
        await work()
    else:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(limit, len(calls))):
                tasks.add(group.create_task(work()))
    error = ToolError("This call was not finished, because another call failed before it.", "cancelled")
    return [results[index] or error_result(call, error, datetime.now(UTC)) for index, call in enumerate(calls)]
