"""Tools as a user writes them. They print, which over stdio must not disturb the protocol."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from toolcrib import Depends, tool

print("tools.py is imported")


async def get_stock() -> AsyncIterator[dict[str, int]]:
    yield {"bolt": 40, "nut": 60}
    Path("closed").touch()


@tool
def in_stock(part: str, stock: Annotated[dict[str, int], Depends(get_stock)]) -> int:
    """How many of a part are in stock."""
    print("looking for", part)
    return stock[part]


@tool
async def total(prices: list[int]) -> int:
    """Add prices up."""
    return sum(prices)
