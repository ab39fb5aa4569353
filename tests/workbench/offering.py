"""A source whose tools a test decides, and what tests of changes wait for."""

import asyncio
from collections.abc import Callable
from typing import Any

from toolcrib import Source


class Offering(Source):
    """A source of *tools*, until others are offered."""

    def __init__(self, *tools: Any) -> None:
        self.offered = list(tools)

    def tools(self) -> list[Any]:
        return self.offered

    def offer(self, *tools: Any) -> None:
        self.offered = list(tools)
        self.changed()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)
