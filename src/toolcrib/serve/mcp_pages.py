"""Pages of lists, by cursors that name the last item of a page.

So nothing is left out or sent twice when the list changes between two pages. Where the item has gone, the list is to be
read from the start.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar

import mcp_types as wire
from mcp.shared.exceptions import MCPError

T = TypeVar("T")

PAGE_SIZE = 1000
"""Many clients read the first page only."""


def page(
    items: Sequence[T], cursor: str | None, name: Callable[[T], str], *, size: int = PAGE_SIZE
) -> tuple[Sequence[T], str | None]:
    """Return the items after *cursor*, and the cursor of the next page. Raises MCPError for an unknown cursor."""
    start = 0
    if cursor is not None:
        try:
            last = base64.urlsafe_b64decode(cursor.encode()).decode()
            start = next(index for index, item in enumerate(items, 1) if name(item) == last)
        except (binascii.Error, ValueError, StopIteration):
            message = "This cursor is not known, or the list has changed. Read the list from the start."
            raise MCPError(wire.INVALID_PARAMS, message) from None
    page_items = items[start : start + size]
    more = start + size < len(items)
    return page_items, base64.urlsafe_b64encode(name(page_items[-1]).encode()).decode() if more else None
