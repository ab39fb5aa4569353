"""How long work holds its event loop."""

import asyncio
from collections.abc import Awaitable
from time import thread_time
from typing import Any, TypeVar

T = TypeVar("T")


async def held(work: Awaitable[T]) -> tuple[float, T]:
    """Return for how many seconds of its own the loop did nothing else, at most, during *work*, and its value."""
    longest, last = 0.0, thread_time()

    async def look() -> None:
        nonlocal longest, last
        while True:
            longest, last = max(longest, thread_time() - last), thread_time()
            await asyncio.sleep(0.001)

    looking = asyncio.create_task(look())
    await asyncio.sleep(0)
    try:
        value = await work
        await asyncio.sleep(0.002)
    finally:
        looking.cancel()
    return longest, value


def seconds_of(work: Any) -> float:
    """Return how long *work* takes here."""
    started_at = thread_time()
    work()
    return thread_time() - started_at
