"""Wait for what another task, thread or process does."""

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any


async def until(condition: Callable[[], Any]) -> Any:
    """Return the value of *condition*, which may be awaitable, as soon as it holds."""
    async with asyncio.timeout(120):
        while not (value := await value if isawaitable(value := condition()) else value):
            await asyncio.sleep(0.01)
    return value
