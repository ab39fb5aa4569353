"""The lists of an MCP server, from all their pages, item by item: one that is not as MCP says costs itself alone.

The SDK refuses a whole page for one such item. So a page is repaired before the SDK sees it, and says in its `_meta`
what was taken out. What a page says of caching is not used here, and cannot make it wrong.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import mcp_types as wire
import pydantic_core
from mcp_types.methods import validate_server_result
from pydantic import BaseModel, ValidationError

from ...core import ToolError
from ...schema.describe import display_name
from .targets import MAX_BYTES

ItemT = TypeVar("ItemT", bound=BaseModel)

_NOTE = "toolcrib/page"
_HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class Page(Protocol):
    """A result of the SDK with a page of a list."""

    meta: Any
    next_cursor: str | None


PageT = TypeVar("PageT", bound=Page)


@dataclass(frozen=True, slots=True)
class Malformed:
    """What a server lists under *name*, and why it is not what it should be."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class List(Generic[PageT, ItemT]):
    """A list by its *method*, and the SDK's: the type of a page, the *member* with its items, and their limit."""

    method: str
    sdk_method: str
    page: type[PageT]
    member: str
    items: Callable[[PageT], list[ItemT]]
    max_items: int

    async def read(self, ask: Callable[[wire.PaginatedRequestParams], Awaitable[PageT]]) -> list[ItemT | Malformed]:
        """Return the items of what *ask* returns for each page.

        The first page with more than `max_items` items in all is the last; so is one without a cursor for the next,
        or with one that was there before. Raises what *ask* raises, and ToolError `too_large`.
        """
        items: list[ItemT | Malformed] = []
        cursors: set[str] = set()
        cursor: str | None = None
        size = 0
        while size <= MAX_BYTES:
            page = await ask(wire.PaginatedRequestParams(cursor=cursor))
            note = page.meta[_NOTE]
            items += [*self.items(page), *(Malformed(*item) for item in note["malformed"])]
            if not page.next_cursor or page.next_cursor in cursors or len(items) > self.max_items:
                return items
            cursors.add(cursor := page.next_cursor)
            size += note["size"]
        raise ToolError(f"A list has more than {MAX_BYTES} bytes.", "too_large")

    def repaired(self, page: Mapping[str, Any], version: str) -> dict[str, Any]:
        """Return *page*, as a server of *version* has sent it, without items that are malformed; these are noted."""
        page_items = page.get(self.member)
        malformed: list[tuple[str, str]] = []
        whole: dict[str, Any] = {**page, "ttlMs": 0, "cacheScope": "private"}
        if isinstance(page_items, list):
            items = whole[self.member] = page_items[: self.max_items + 1]
            if self._problem(whole, version) is not None:
                # What else the page has is not read again for each of its items.
                problems = [self._problem({**_HINTS, self.member: [item]}, version) for item in items]
                whole[self.member] = [item for item, problem in zip(items, problems, strict=True) if problem is None]
                malformed = [(_name(item), problem) for item, problem in zip(items, problems, strict=True) if problem]
        note = {"malformed": malformed, "size": len(pydantic_core.to_json(page))}
        meta = page.get("_meta")
        # What else is wrong is for the SDK to refuse.
        return {**whole, "_meta": {**(meta if isinstance(meta, dict) else {}), _NOTE: note}}

    def _problem(self, page: Mapping[str, Any], version: str) -> str | None:
        try:
            validate_server_result(self.method, version, page)
            self.page.model_validate(page, by_name=False)  # type: ignore[attr-defined]  # they are models
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"][2:])) or "it"
            return f"{display_name(place)}: {first['msg'][:200]}"
        return None


def _name(item: Any) -> str:
    return display_name(str(item.get("name", item.get("uri")) if isinstance(item, dict) else None))


TOOLS = List("tools/list", "list_tools", wire.ListToolsResult, "tools", lambda page: page.tools, 2000)
RESOURCES = List(
    "resources/list",
    "list_resources",
    wire.ListResourcesResult,
    "resources",
    lambda page: page.resources,
    10_000,
)
TEMPLATES = List(
    "resources/templates/list",
    "list_resource_templates",
    wire.ListResourceTemplatesResult,
    "resourceTemplates",
    lambda page: page.resource_templates,
    1000,
)
PROMPTS = List("prompts/list", "list_prompts", wire.ListPromptsResult, "prompts", lambda page: page.prompts, 10_000)

LISTS: Mapping[str, List[Any, Any]] = {of.method: of for of in (TOOLS, RESOURCES, TEMPLATES, PROMPTS)}
"""The lists by their methods."""
