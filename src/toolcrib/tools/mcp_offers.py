"""The resources and prompts of an MCP server, as core has them, and how their changes are passed on."""

import asyncio
import base64
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Literal, TypeVar

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
    create_lasting_task,
)
from ..schema.describe import display_name
from .mcp_lists import PROMPTS, RESOURCES, TEMPLATES
from .mcp_session import Session
from .mcp_tools import LONGEST_TITLE, MEDIA_TYPE, bounded, content_of_block, meta_of

ListedT = TypeVar("ListedT")

PATIENCE_S = 2.0
"""How long anybody waits for a list."""
_LONGEST_URI = 8192


class LastListed(Generic[ListedT]):
    """What a server listed last. Where it takes longer than a moment to list it again, that is what there is.

    *on_late* is called when what it lists then is another.
    """

    def __init__(self, on_late: Callable[[], None]) -> None:
        self._on_late = on_late
        self._known: Sequence[ListedT] = ()
        self._listing: asyncio.Task[Sequence[ListedT]] | None = None

    async def get(self, listed: Callable[[], Coroutine[Any, Any, Sequence[ListedT]]]) -> Sequence[ListedT]:
        """What *listed* returns, or the last that it has returned. Raises what it raises in time."""
        if self._listing is not None and not self._listing.done():
            return self._known  # it is slow, and asked already
        task = create_lasting_task(listed())
        try:
            await asyncio.wait({task}, timeout=PATIENCE_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            self._known = task.result()
            return self._known
        self._listing = task
        task.add_done_callback(self._came_late)
        return self._known

    def _came_late(self, task: "asyncio.Task[Sequence[ListedT]]") -> None:
        if task.cancelled() or task.exception() is not None or self._known == task.result():
            return
        self._known = task.result()
        self._on_late()

    def end(self) -> None:
        if self._listing is not None:
            self._listing.cancel()


class MCPOffers:
    """What one session offers beside tools. `_reached` is that session; None where it offers this caller nothing.

    A server that is slow to list it keeps nobody waiting: there is what it listed last, and a change when that is new.
    """

    def __init__(self) -> None:
        self._followed: Counter[str] = Counter()
        self._resources: LastListed[Resource] = LastListed(partial(self._came_late, "resources"))
        self._templates: LastListed[ResourceTemplate] = LastListed(partial(self._came_late, "resources"))
        self._prompts: LastListed[Prompt] = LastListed(partial(self._came_late, "prompts"))

    @abstractmethod
    async def _reached(self) -> Session | None: ...

    @abstractmethod
    def _came_late(self, what: Literal["resources", "prompts"]) -> None:
        """Report that the list of these is another now."""

    def _end_listing(self) -> None:
        for each in (self._resources, self._templates, self._prompts):
            each.end()

    async def resources(self) -> Sequence[Resource]:
        return await self._resources.get(self._list_resources)

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        return await self._templates.get(self._list_templates)

    async def prompts(self) -> Sequence[Prompt]:
        return await self._prompts.get(self._list_prompts)

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

    async def get_prompt(self, name: str, arguments: Mapping[str, str], /) -> Sequence[PromptMessage]:
        session = await self._reached()
        if session is None:
            raise ToolError(f"There is no prompt '{display_name(name)}' for this caller.", "unknown_tool")
        result = await session.get_prompt(name, arguments)
        return [PromptMessage(one.role, content_of_block(name, one.content)) for one in result.messages]

    # Lists

    async def _list_resources(self) -> Sequence[Resource]:
        session = await self._reached()
        if session is None or session.capabilities.resources is None:
            return []
        return [
            Resource(
                uri=one.uri,
                **_described(one),
                media_type=_media_type(one.mime_type),
                size_bytes=one.size,
            )
            for one in (await session.resources())[: RESOURCES.most]
            if _is_plain(one.uri)
        ]

    async def _list_templates(self) -> Sequence[ResourceTemplate]:
        session = await self._reached()
        if session is None or session.capabilities.resources is None:
            return []
        return [
            ResourceTemplate(uri_template=one.uri_template, **_described(one), media_type=_media_type(one.mime_type))
            for one in (await session.resource_templates())[: TEMPLATES.most]
            if _is_plain(one.uri_template)
        ]

    async def _list_prompts(self) -> Sequence[Prompt]:
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
            for one in (await session.prompts())[: PROMPTS.most]
            if _is_plain(one.name)
        ]

    # Updates

    async def follow_resource(self, uri: str, /) -> None:
        """Report updates of the resource at *uri*, until `unfollow_resource` was called as often. Raises ToolError."""
        self._followed[uri] += 1
        if self._followed[uri] == 1:
            try:
                await self._follow_all()
            except BaseException:
                self._forget(uri)
                raise

    async def unfollow_resource(self, uri: str, /) -> None:
        self._forget(uri)
        if uri not in self._followed:
            await self._follow_all()

    def _forget(self, uri: str) -> None:
        self._followed[uri] -= 1
        if self._followed[uri] <= 0:
            del self._followed[uri]

    async def _follow_all(self) -> None:
        """Have the session report what is followed, which a new session does not know of."""
        session = await self._reached()
        if session is not None and session.capabilities.resources is not None:
            await session.follow(frozenset(self._followed))


def _is_plain(name: str) -> bool:
    """Whether something can be asked for by *name*; what a server names otherwise is left out."""
    return 0 < len(name) <= _LONGEST_URI and name.isprintable()


def _media_type(text: str | None) -> str | None:
    return text if text is not None and MEDIA_TYPE.fullmatch(text) else None


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
        return ResourceContent(uri=one.uri, data=one.text, media_type=_media_type(one.mime_type))
    try:
        data = base64.b64decode(one.blob, validate=True)
    except ValueError:
        raise ToolError(f"What was read at '{display_name(one.uri)}' is not valid.", "invalid_result") from None
    return ResourceContent(uri=one.uri, data=data, media_type=_media_type(one.mime_type))
