"""What goes between the SDK and a server, message by message, bounded: a server must not make us hold ever more.

A request of the server is a task here until it is answered, so only so many are taken at a time.

The lists of a server come from all their pages, item by item: one that is not as MCP says costs itself alone. The SDK
refuses a whole page for one such item. So a page is repaired before the SDK sees it, and says in its `_meta` what was
taken out. What a page says of caching is not used here, and cannot make it wrong.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
import mcp_types as wire
import pydantic_core
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from ...core import ToolError
from ...machinery import create_lasting_task
from ...schema import display_name
from .questions import withheld
from .targets import MAX_BYTES

_NOTE = "toolcrib/page"
_HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_DECLARED = wire.CLIENT_CAPABILITIES_META_KEY
MAX_UNANSWERED = 50
"""How many requests a server may have here at once."""
_SEND_TIMEOUT_S, _LET_GO_TIMEOUT_S = 5.0, 0.5
"""How long a server may take to accept that a request was given up, and how long the caller waits for that."""

_log = logging.getLogger("toolcrib.mcp")


@dataclass(frozen=True, slots=True)
class Malformed:
    """What a server lists under *name*, and why it is not what it should be."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class List:
    """A list by its *method*, and as the SDK has it: *name*, type of a *page*, and the *member* with its items."""

    method: str
    name: str
    page: Any
    member: str
    max_items: int

    async def read(self, ask: Callable[[wire.PaginatedRequestParams], Awaitable[Any]]) -> list[Any]:
        """Return the items of what *ask* returns for each page, a Malformed for each that is not as MCP says.

        The first page with more than `max_items` items in all is the last; so is one without a cursor for the next,
        or with one that was there before. Raises what *ask* raises, and ToolError `too_large`.
        """
        items: list[Any] = []
        cursors: set[str] = set()
        cursor: str | None = None
        size = 0
        while size <= MAX_BYTES:
            page = await ask(wire.PaginatedRequestParams(cursor=cursor))
            note = page.meta[_NOTE]
            items += [*getattr(page, self.name), *(Malformed(*item) for item in note["malformed"])]
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
            self.page.model_validate(page, by_name=False)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"][2:])) or "it"
            return f"{display_name(place)}: {first['msg'][:200]}"
        return None


def _name(item: Any) -> str:
    return display_name(str(item.get("name", item.get("uri")) if isinstance(item, dict) else None))


TOOLS = List("tools/list", "tools", wire.ListToolsResult, "tools", 2000)
RESOURCES = List("resources/list", "resources", wire.ListResourcesResult, "resources", 10_000)
TEMPLATES = List(
    "resources/templates/list", "resource_templates", wire.ListResourceTemplatesResult, "resourceTemplates", 1000
)
PROMPTS = List("prompts/list", "prompts", wire.ListPromptsResult, "prompts", 10_000)

LISTS: Mapping[str, List] = {of.method: of for of in (TOOLS, RESOURCES, TEMPLATES, PROMPTS)}
"""The lists by their methods."""


# Messages


@dataclass(slots=True)
class _Open:
    """What waits for an answer: requests of the server, and our own for lists, each with its protocol version."""

    of_server: set[RequestId] = field(default_factory=set[RequestId])
    lists: dict[RequestId, tuple[List, str]] = field(default_factory=dict[RequestId, tuple[List, str]])
    sending: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])


def bounded(streams: tuple[Any, Any], on_given_up: Callable[[RequestId], None] = lambda _: None) -> tuple[Any, Any]:
    """Wrap *streams* of a transport, what the SDK reads and what it writes to.

    *on_given_up* is called with the id of a request of ours whose answer is not awaited any more.
    """
    requests = _Open()
    return _Incoming(streams[0], requests), _Outgoing(streams[1], requests, on_given_up)


class _Stream:
    def __init__(self, inner: Any, requests: _Open, on_given_up: Callable[[RequestId], None] = lambda _: None) -> None:
        self._inner, self._open, self._on_given_up = inner, requests, on_given_up

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._inner.__aexit__(*raised)


class _Incoming(_Stream):
    """What the server says. Of more requests than can be open at once, and of two with one id, it gets no answer."""

    @property
    def last_context(self) -> Any:
        """In which context the last message was sent, where the transport knows."""
        return getattr(self._inner, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while True:
            item = await self._inner.__anext__()
            if not isinstance(item, SessionMessage) or self._is_taken(item.message):
                return item

    def _is_taken(self, message: JSONRPCMessage) -> bool:
        match message:
            case JSONRPCResponse() if (of := self._open.lists.pop(coerce_request_id(message.id), None)) is not None:
                message.result = of[0].repaired(message.result, of[1])
            case JSONRPCError(id=int() | str() as request_id):
                self._open.lists.pop(coerce_request_id(request_id), None)
            case JSONRPCRequest():
                if message.id in self._open.of_server or len(self._open.of_server) >= MAX_UNANSWERED:
                    _log.debug("A request of an MCP server is not answered: too many are open, or one with its id is")
                    return False
                self._open.of_server.add(message.id)
            case JSONRPCNotification(method="notifications/cancelled"):
                if (cancelled_id := as_request_id((message.params or {}).get("requestId"))) is not None:
                    self._open.of_server.discard(cancelled_id)
            case _:
                pass
        return True


class _Outgoing(_Stream):
    """What is sent to the server."""

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        match message:
            case JSONRPCRequest() if (of := LISTS.get(message.method)) is not None:
                headers = getattr(item.metadata, "headers", None) or {}
                version = headers.get(MCP_PROTOCOL_VERSION_HEADER, LATEST_HANDSHAKE_VERSION)
                self._open.lists[message.id] = of, version
            case JSONRPCRequest(method="tools/call", params={"_meta": dict() as meta}) if _DECLARED in meta:
                # Those of the client whose call it is, of which the server is told with each request.
                lacking = withheld()
                declared = {name: value for name, value in meta[_DECLARED].items() if name not in lacking}
                meta[_DECLARED] = declared
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": int() | str() as given_up}):
                self._on_given_up(given_up)
                self._open.lists.pop(given_up, None)
                # The SDK (2.3.0) holds the caller who gives up until this is taken, up to 5 seconds.
                task = create_lasting_task(self._send_late(item))
                self._open.sending.add(task)
                task.add_done_callback(self._open.sending.discard)
                await asyncio.wait({task}, timeout=_LET_GO_TIMEOUT_S)  # else what comes next could overtake it
                return
            case _:
                pass
        try:
            await self._inner.send(item)
        finally:
            if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                self._open.of_server.discard(message.id)

    async def _send_late(self, item: SessionMessage) -> None:
        with suppress(TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                await self._inner.send(item)
