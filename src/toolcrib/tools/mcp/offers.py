"""The resources and prompts of an MCP server, as core has them, and how their changes are passed on."""

import asyncio
import base64
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import mcp_types as wire
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated, ServerEvent

from ...core import Caller, Redaction, ToolError
from ...core.source import (
    OffersChange,
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceContent,
    ResourceTemplate,
)
from ...machinery import create_lasting_task
from ...schema import display_name
from .session import Session
from .streams import PROMPTS, RESOURCES, TEMPLATES, List
from .tools import MAX_TITLE, MEDIA_TYPE, bounded, content_of_block, meta_of, without_secrets

LIST_TIMEOUT_S = 2.0
"""How long a caller waits for a list."""
_MAX_URI = 8192


class MCPOffers:
    """What one session offers beside tools. `_reached` is that session; None where it offers this caller nothing.

    A server that is slow to list it keeps no caller waiting: there is what it listed last, and a change when that is
    new.
    """

    def __init__(self) -> None:
        self._followed: Counter[str] = Counter()
        self._known: dict[str, Sequence[Any]] = {}
        self._listing: dict[str, asyncio.Task[Sequence[Any]]] = {}
        self._session: Session | None = None
        self.redaction: Redaction | None = None
        """What the server lists is redacted by, as the crib has set it."""

    async def stop(self) -> None:
        session, self._session = self._session, None
        for task in self._listing.values():
            task.cancel()
        if session is not None:
            await session.close()

    @abstractmethod
    async def _reached(self) -> Session | None: ...

    @abstractmethod
    def _report(self, change: ServerEvent | Literal["resources", "prompts"]) -> None:
        """Report a change of resources or prompts to those who are offered them."""

    # Lists

    async def resources(self) -> Sequence[Resource]:
        return await self._listed("resources", RESOURCES, "uri", _resource)

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        return await self._listed("resources", TEMPLATES, "uri_template", _template)

    async def prompts(self) -> Sequence[Prompt]:
        return await self._listed("prompts", PROMPTS, "name", _prompt)

    async def _listed(
        self, kind: Literal["resources", "prompts"], of: List, key: str, convert: Callable[[Any], Any]
    ) -> Sequence[Any]:
        """Return the list *of* the server, or where that takes long, what it was last. Raises ToolError.

        What cannot be asked for by its *key* is left out.
        """
        method = of.method
        if method in self._listing:
            return self._known.get(method, ())

        async def read() -> Sequence[Any]:
            session = await self._reached()
            if session is None or getattr(session.capabilities, kind) is None:
                return []
            on_list = [without_secrets(item, self.redaction) for item in (await session.offered(of))[: of.max_items]]
            return [convert(item) for item in on_list if _is_plain(getattr(item, key))]

        task = create_lasting_task(read())
        try:
            await asyncio.wait({task}, timeout=LIST_TIMEOUT_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            self._known[method] = task.result()
            return self._known[method]

        def note(late: asyncio.Task[Sequence[Any]]) -> None:
            del self._listing[method]
            if not late.cancelled() and late.exception() is None and late.result() != self._known.get(method, ()):
                self._known[method] = late.result()
                self._report(kind)

        self._listing[method] = task
        task.add_done_callback(note)
        return self._known.get(method, ())

    # One by one

    async def read_resource(self, uri: str, /) -> Sequence[ResourceContent]:
        session = await self._reached()
        if session is None:
            raise ToolError(f"There is no resource at '{display_name(uri)}' for this caller.", "unknown_tool")
        try:
            result = await session.read_resource(uri)
        except ToolError as error:
            unknown = error.code in ("invalid_arguments", "failed")
            raise (ToolError(error.message, "unknown_tool") if unknown else error) from None
        return [_content(part) for part in result.contents]

    async def get_prompt(self, name: str, arguments: Mapping[str, str], /) -> Sequence[PromptMessage]:
        session = await self._reached()
        if session is None:
            raise ToolError(f"There is no prompt '{display_name(name)}' for this caller.", "unknown_tool")
        result = await session.get_prompt(name, arguments)
        return [PromptMessage(message.role, content_of_block(name, message.content)) for message in result.messages]

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

    async def _note_opened(self, session: Session) -> None:
        """Have a new *session* report what is followed, and say that there is something to list."""
        if self._followed and session.capabilities.resources is not None:
            with suppress(ToolError):  # what it does not have any more costs that alone
                await session.follow(frozenset(self._followed))
        self._report("resources")
        self._report("prompts")

    async def _follow_all(self) -> None:
        """Have the session report what is followed, which a new session does not know of."""
        session = await self._reached()
        if session is not None and session.capabilities.resources is not None:
            await session.follow(frozenset(self._followed))


def offers_change(change: ServerEvent | Literal["resources", "prompts"], caller: Caller | None = None) -> OffersChange:
    """Return *change*, of resources or prompts, as core has it."""
    if isinstance(change, ResourceUpdated):
        return OffersChange("resources", change.uri, caller)
    is_prompts = change == "prompts" or isinstance(change, PromptsListChanged)
    return OffersChange("prompts" if is_prompts else "resources", None, caller)


def _is_plain(name: str) -> bool:
    """Return whether something can be asked for by *name*."""
    return 0 < len(name) <= _MAX_URI and name.isprintable()


def _resource(item: wire.Resource) -> Resource:
    return Resource(uri=item.uri, **_about(item), media_type=_media_type(item.mime_type), size_bytes=item.size)


def _template(item: wire.ResourceTemplate) -> ResourceTemplate:
    return ResourceTemplate(uri_template=item.uri_template, **_about(item), media_type=_media_type(item.mime_type))


def _prompt(item: wire.Prompt) -> Prompt:
    return Prompt(**_about(item), arguments=tuple(map(_argument, item.arguments or ())))


def _media_type(text: str | None) -> str | None:
    return text if text is not None and MEDIA_TYPE.fullmatch(text) else None


def _about(item: wire.Resource | wire.ResourceTemplate | wire.Prompt) -> dict[str, Any]:
    return {
        "name": bounded(item.name, MAX_TITLE),
        "title": bounded(item.title or "", MAX_TITLE) or None,
        "description": bounded(item.description or "") or None,
        "meta": meta_of(item),
    }


def _argument(item: wire.PromptArgument) -> PromptArgument:
    description = bounded(item.description or "") or None
    return PromptArgument(name=item.name, description=description, required=bool(item.required))


def _content(part: wire.TextResourceContents | wire.BlobResourceContents) -> ResourceContent:
    if isinstance(part, wire.TextResourceContents):
        return ResourceContent(uri=part.uri, data=part.text, media_type=_media_type(part.mime_type))
    try:
        data = base64.b64decode(part.blob, validate=True)
    except ValueError:
        raise ToolError(f"What was read at '{display_name(part.uri)}' is not valid.", "invalid_result") from None
    return ResourceContent(uri=part.uri, data=data, media_type=_media_type(part.mime_type))
