"""The resources and prompts of an MCP server, as core has them, and how their changes are passed on."""

import base64
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as wire
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated, ServerEvent

from ..core import (
    Caller,
    OffersChange,
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceContent,
    ResourceTemplate,
    ToolError,
)
from ..schema.describe import display_name
from .mcp_session import Session
from .mcp_tools import LONGEST_TITLE, bounded, content_of_block, meta_of

_MOST, _MOST_TEMPLATES = 10_000, 1000
_LONGEST_URI = 8192


class MCPOffers:
    """What one session offers beside tools. `_reached` is that session; None where it offers this caller nothing."""

    def __init__(self) -> None:
        self._followed: Counter[str] = Counter()

    @abstractmethod
    async def _reached(self) -> Session | None: ...

    async def resources(self) -> Sequence[Resource]:
        session = await self._reached()
        if session is None or session.capabilities.resources is None:
            return []
        return [
            Resource(
                uri=one.uri,
                **_described(one),
                media_type=one.mime_type,
                size_bytes=one.size,
            )
            for one in (await session.resources(_MOST))[:_MOST]
            if _is_plain(one.uri)
        ]

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        session = await self._reached()
        if session is None or session.capabilities.resources is None:
            return []
        return [
            ResourceTemplate(uri_template=one.uri_template, **_described(one), media_type=one.mime_type)
            for one in (await session.resource_templates(_MOST_TEMPLATES))[:_MOST_TEMPLATES]
            if _is_plain(one.uri_template)
        ]

    async def read_resource(self, uri: str, /) -> Sequence[ResourceContent]:
        session = await self._reached()
        if session is None:
            raise ToolError(f"There is no resource at '{display_name(uri)}' for this caller.", "unknown_tool")
        try:
            result = await session.read_resource(uri)
        except ToolError as error:
            unknown = error.code in ("invalid_arguments", "failed")
            raise (ToolError(error.message, "unknown_tool") if unknown else error) from None
        return [_content(one) for one in result.contents]

    async def prompts(self) -> Sequence[Prompt]:
        session = await self._reached()
        if session is None or session.capabilities.prompts is None:
            return []
        return [
            Prompt(
                **_described(one),
                arguments=tuple(
                    PromptArgument(
                        name=each.name,
                        description=bounded(each.description or "") or None,
                        required=bool(each.required),
                    )
                    for each in one.arguments or ()
                ),
            )
            for one in (await session.prompts(_MOST))[:_MOST]
            if _is_plain(one.name)
        ]

    async def get_prompt(self, name: str, arguments: Mapping[str, str], /) -> Sequence[PromptMessage]:
        session = await self._reached()
        if session is None:
            raise ToolError(f"There is no prompt '{display_name(name)}' for this caller.", "unknown_tool")
        result = await session.get_prompt(name, arguments)
        return [PromptMessage(one.role, content_of_block(name, one.content)) for one in result.messages]

    # Updates

    async def follow_resource(self, uri: str, /) -> None:
        """Report updates of the resource at *uri*, until `unfollow_resource` was called as often. Raises ToolError."""
        self._followed[uri] += 1
        if self._followed[uri] == 1:
            await self._follow_all()

    async def unfollow_resource(self, uri: str, /) -> None:
        self._followed[uri] -= 1
        if self._followed[uri] <= 0:
            del self._followed[uri]
            await self._follow_all()

    async def _follow_all(self) -> None:
        """Have the session report what is followed, which a new session does not know of."""
        session = await self._reached()
        if session is not None and session.capabilities.resources is not None:
            await session.follow(frozenset(self._followed))


def _is_plain(name: str) -> bool:
    """Whether something can be asked for by *name*; what a server names otherwise is left out."""
    return 0 < len(name) <= _LONGEST_URI and name.isprintable()


def _described(one: wire.Resource | wire.ResourceTemplate | wire.Prompt) -> dict[str, Any]:
    return {
        "name": bounded(one.name, LONGEST_TITLE),
        "title": bounded(one.title or "", LONGEST_TITLE) or None,
        "description": bounded(one.description or "") or None,
        "meta": meta_of(one),
    }


def offers_change(event: ServerEvent, caller: Caller | None = None) -> OffersChange:
    """*event*, of resources or prompts, as core has it."""
    if isinstance(event, ResourceUpdated):
        return OffersChange("resources", event.uri, caller)
    return OffersChange("prompts" if isinstance(event, PromptsListChanged) else "resources", None, caller)


def _content(one: wire.TextResourceContents | wire.BlobResourceContents) -> ResourceContent:
    if isinstance(one, wire.TextResourceContents):
        return ResourceContent(uri=one.uri, data=one.text, media_type=one.mime_type)
    try:
        data = base64.b64decode(one.blob, validate=True)
    except ValueError:
        raise ToolError(f"What was read at '{display_name(one.uri)}' is not valid.", "invalid_result") from None
    return ResourceContent(uri=one.uri, data=data, media_type=one.mime_type)
