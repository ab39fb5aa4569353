"""A source whose tools a test decides, and what tests of changes wait for."""

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
