"""A tool for the loop."""

from toolcrib import tool

PRICES = {"bolt": 0.2, "nut": 0.1}


@tool(read_only=True)
def price(part: str, count: int = 1) -> float:
    """Return the price of some parts."""
    return PRICES[part] * count
