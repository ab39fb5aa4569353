"""How long work takes, and holds its event loop: its own time, without the garbage of other tests."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from time import thread_time
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def without_garbage() -> Generator[None]:
    """Collect what other tests have left now, and nothing in the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def held(work: Awaitable[T]) -> tuple[float, T]:
    """Return for how many seconds of its own the loop did nothing else, at most, during *work*, and its value."""
    longest, last = 0.0, 0.0

    async def look() -> None:
        nonlocal longest, last
        while True:
            longest, last = max(longest, thread_time() - last), thread_time()
            await asyncio.sleep(0.001)

    with without_garbage():
        longest, last = 0.0, thread_time()
        looking = asyncio.create_task(look())
        await asyncio.sleep(0)
        try:
            value = await work
            await asyncio.sleep(0.002)
        finally:
            looking.cancel()
    return longest, value


def seconds_of(work: Callable[[], Any]) -> float:
    """Return how long *work* takes here."""
    with without_garbage():
        started_at = thread_time()
        work()
        return thread_time() - started_at
