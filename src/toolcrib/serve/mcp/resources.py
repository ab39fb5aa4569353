"""Resources, prompts and completion of an MCP server: what `bench.offers` has, in MCP's shapes, page by page.

The cursor of a page names the last item of the one before. So nothing is left out or sent twice when the list changes
between two pages. Where the item has gone, the list is to be read from the start.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import mcp_types as wire
from mcp.shared.exceptions import MCPError

from ...core import ToolError
from ...core.source import Prompt, PromptMessage, Resource, ResourceContent, ResourceTemplate
from ...formats import mcp as form
from ...workbench import Workbench

T = TypeVar("T")

_MAX_COMPLETIONS = 100
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


def resource(of: Resource) -> dict[str, Any]:
    return _without_none({"uri": of.uri, "size": of.size_bytes, **_described(of)})


def resource_template(of: ResourceTemplate) -> dict[str, Any]:
    return _without_none({"uriTemplate": of.uri_template, **_described(of)})


def prompt(of: Prompt) -> dict[str, Any]:
    arguments = [
        _without_none({"name": argument.name, "description": argument.description, "required": argument.required})
        for argument in of.arguments
    ]
    fields = {"name": of.name, "title": of.title, "description": of.description, "arguments": arguments or None}
    return _without_none({**of.meta, **fields})


def contents(of: Sequence[ResourceContent]) -> dict[str, Any]:
    """Return the result of `resources/read`."""
    return {"contents": [_content(content) for content in of], "ttlMs": 0, "cacheScope": "private"}


def messages(of: Sequence[PromptMessage]) -> dict[str, Any]:
    """Return the result of `prompts/get`."""
    return {
        "messages": [{"role": message.role, "content": form.content([message.content], "prompt")[0]} for message in of]
    }


def complete(bench: Workbench, params: wire.CompleteRequestParams) -> wire.CompleteResult:
    """Return the result of `completion/complete`: of arguments of our own prompts whose type lists their values."""
    values: list[str] = []
    if isinstance(params.ref, wire.PromptReference):
        values = list(bench.offers.complete(params.ref.name, params.argument.name, params.argument.value))
    more = len(values) > _MAX_COMPLETIONS
    completion = wire.Completion(values=values[:_MAX_COMPLETIONS], total=len(values), has_more=more)
    return wire.CompleteResult(completion=completion)


def error_of(error: ToolError, data: Mapping[str, Any]) -> MCPError:
    """Return *error* with *data*; that of a resource which is not there has its `uri` (SEP-2164)."""
    # What is not there, and arguments that are wrong, are the client's mistake; the rest is not.
    code = wire.INVALID_PARAMS if error.retry == "changed" else wire.INTERNAL_ERROR
    return MCPError(code, form.encodable(error.message), {**data, "toolcrib/error": form.error_data(error)})


def _described(of: Resource | ResourceTemplate) -> dict[str, Any]:
    return {
        **of.meta,
        "name": of.name,
        "title": of.title,
        "description": of.description,
        "mimeType": of.media_type,
    }


def _content(of: ResourceContent) -> dict[str, Any]:
    if isinstance(of.data, bytes):
        data = {"blob": base64.b64encode(of.data).decode()}
    else:
        data = {"text": form.encodable(of.data)}
    return _without_none({"uri": of.uri, "mimeType": of.media_type, **data, "_meta": dict(of.meta) or None})


def _without_none(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None}
