"""The lists of an MCP server, from all their pages, item by item: one that is not as MCP says costs itself alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import mcp_types as wire
import pydantic_core
from mcp.client import ClientSession
from mcp_types.methods import validate_server_result
from pydantic import BaseModel, ValidationError

from ..core import ToolError
from ..schema.describe import display_name

ItemT = TypeVar("ItemT", bound=BaseModel)
Listed = list[ItemT | "Malformed"]

_MOST_PAGES = 200
_MOST_BYTES = 32 * 1024**2
"""How large all pages of a list may be together."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """What a server lists under *name*, and why it is not what it should be."""

    name: str
    reason: str


async def read_list(
    session: ClientSession, request: type[Any], item: type[ItemT], most: int
) -> list[ItemT | Malformed]:
    """What *session* answers to *request*, of which the first page with more than *most* items is the last.

    So is one without a cursor for the next, or with one that is empty or was there before. Raises MCPError,
    ValidationError, and ToolError `too_large`.
    """
    found: list[ItemT | Malformed] = []
    cursors: set[str] = set()
    cursor: str | None = None
    size = 0
    for _ in range(_MOST_PAGES):
        page = await _page(session, request(params=wire.PaginatedRequestParams(cursor=cursor)))
        following = page.get("nextCursor")
        found += _items(session, page, item, most + 1, is_whole=cursor is None and following is None)
        if not following or following in cursors or len(found) > most:
            return found
        cursors.add(cursor := following)
        if (size := size + len(pydantic_core.to_json(page))) > _MOST_BYTES:
            raise ToolError(f"A list has more than {_MOST_BYTES} bytes.", "too_large")
    raise ToolError(f"A list has more than {_MOST_PAGES} pages.", "too_large")


async def _page(session: ClientSession, request: Any) -> dict[str, Any]:
    # Not by `send_request`, which refuses the whole page where one item is wrong.
    data = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    options: Any = {}
    session._stamp(data, options)  # pyright: ignore[reportPrivateUsage]
    return await session._dispatcher.send_raw_request(  # pyright: ignore[reportPrivateUsage]
        data["method"], data.get("params"), options
    )


def _items(
    session: ClientSession, page: dict[str, Any], item: type[ItemT], most: int, *, is_whole: bool
) -> list[ItemT | Malformed]:
    method, member = _LISTS[item]
    version = session.protocol_version or "2025-11-25"
    listed = page.get(member)
    validate_server_result(method, version, {**page, member: []} if isinstance(listed, list) else page)
    found: list[ItemT | Malformed] = []
    for each in cast(list[Any], listed)[:most]:
        try:
            validate_server_result(method, version, {**page, member: [each]})
            found.append(item.model_validate(each, by_name=False))
        except ValidationError as error:
            known = each.get("name", each.get("uri")) if isinstance(each, dict) else None
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"][2:])) or "it"
            found.append(Malformed(display_name(str(known)), f"{display_name(place)}: {first['msg'][:200]}"))
    if item is wire.Tool:  # which arguments are sent as headers, too (2026-07-28)
        tools = wire.ListToolsResult(tools=[each for each in found if isinstance(each, wire.Tool)])
        kept = session._absorb_tool_listing(tools, complete=is_whole).tools  # pyright: ignore[reportPrivateUsage]
        found = [*cast(list[ItemT], kept), *(each for each in found if isinstance(each, Malformed))]
    return found


_LISTS: Mapping[Any, tuple[str, str]] = {
    wire.Tool: ("tools/list", "tools"),
    wire.Resource: ("resources/list", "resources"),
    wire.ResourceTemplate: ("resources/templates/list", "resourceTemplates"),
    wire.Prompt: ("prompts/list", "prompts"),
}
