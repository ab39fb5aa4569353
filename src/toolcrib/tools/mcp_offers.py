"""The resources and prompts of an MCP server, as core has them, and how their changes are passed on."""

import base64
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence

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
from .mcp_tools import content_of_block, meta_of

_MOST = 10_000


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
                name=one.name,
                title=one.title,
                description=one.description,
                media_type=one.mime_type,
                size_bytes=one.size,
                meta=meta_of(one),
            )
            for one in (await session.resources())[:_MOST]
        ]

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        session = await self._reached()
        if session is None or session.capabilities.resources is None:
            return []
        return [
            ResourceTemplate(
                uri_template=one.uri_template,
                name=one.name,
                title=one.title,
                description=one.description,
                media_type=one.mime_type,
                meta=meta_of(one),
            )
            for one in (await session.resource_templates())[:_MOST]
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
                name=one.name,
                title=one.title,
                description=one.description,
                arguments=tuple(
                    PromptArgument(name=each.name, description=each.description, required=bool(each.required))
                    for each in one.arguments or ()
                ),
                meta=meta_of(one),
            )
            for one in (await session.prompts())[:_MOST]
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
