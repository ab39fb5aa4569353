"""Notifies connected clients that a list has changed, or a resource that they follow.

Through 2025-11-25 that is a notification to each session. From 2026-07-28 on it goes to those alone that have asked for
it, on the stream of their `subscriptions/listen`. The notice only says to list the tools again: a client that has not
read the last one yet needs no other. A resource is followed by its URI, in either era.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from ...core import Caller, Result
from ...core.source import OffersChange
from ...machinery import from_any_thread
from ...workbench import Workbench
from ..access.callers import Callers
from ..protocol.connection import Connection

_log = logging.getLogger("toolcrib")

_MAX_FOLLOWED = 1000
_MAX_OF_PRINCIPAL = 10_000
"""How many resources a connection follows, and all of a principal."""

_Addressed = tuple[ServerEvent, Caller | None]
"""An event, and the caller that it concerns; None for all."""


class Changes:
    """The notices of one running server."""

    def __init__(self, callers: Callers) -> None:
        self.callers = callers
        self._streams: dict[Caller, _Streams] = {}
        self._connections: dict[Connection, Caller] = {}
        self._events: dict[Connection, dict[ServerEvent, None]] = defaultdict(dict)
        self._notifying: dict[Connection, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()
        self._wake, self._note = from_any_thread(self._woken.set), from_any_thread(self._add)
        self._changed: dict[_Addressed, None] = {}
        self._listed = self._lists()
        self._follows: Counter[str] = Counter()

    def add(self, connection: Connection, caller: Caller) -> None:
        """Notify *connection*, which is of *caller*, of changes until it ends."""
        if connection in self._connections:
            return  # a client that says it twice is notified once
        self._connections[connection] = caller
        connection.closing["added"] = partial(self._drop, connection)

    async def _drop(self, connection: Connection) -> None:
        del self._connections[connection]

    async def subscribe(self, connection: Connection, bench: Workbench, uri: str) -> Result[Any] | None:
        """Notify *connection* when the resource at *uri* changes, if the caller may read it: see the
        result. None where it is notified already. Raises MCPError for too many.
        """
        uris = connection.followed
        if len(uris) >= _MAX_FOLLOWED:
            raise MCPError(wire.INVALID_REQUEST, f"A connection follows at most {_MAX_FOLLOWED} resources.")
        if uri in uris:
            return None
        connection.closing["followed"] = partial(self._unfollow_all, connection, bench)
        uris[uri] = None
        result = None
        try:
            result = await self._follow(bench, uri)
            return result
        finally:
            if result is None or result.status != "success":
                uris.pop(uri, None)

    async def unsubscribe(self, connection: Connection, bench: Workbench, uri: str) -> None:
        uris = connection.followed
        if uri in uris:
            del uris[uri]
            await self._unfollow(bench, uri)

    async def _follow(self, bench: Workbench, uri: str) -> Result[Any]:
        principal = bench.caller.principal
        if self._follows[principal] >= _MAX_OF_PRINCIPAL:
            raise MCPError(wire.INVALID_REQUEST, f"All your connections follow at most {_MAX_OF_PRINCIPAL} resources.")
        self._follows[principal] += 1
        is_followed = False
        try:
            result = await bench.offers.follow(uri)
            is_followed = result.status == "success"
        finally:
            if not is_followed:
                self._forget(principal)
        return result

    async def _unfollow_all(self, connection: Connection, bench: Workbench) -> None:
        for uri in [*connection.followed]:
            await self.unsubscribe(connection, bench, uri)

    async def _unfollow(self, bench: Workbench, uri: str) -> None:
        self._forget(bench.caller.principal)
        await bench.offers.unfollow(uri)

    def _forget(self, principal: str) -> None:
        self._follows[principal] -= 1
        if not self._follows[principal]:
            del self._follows[principal]

    async def listen(
        self, context: Any, params: wire.SubscriptionsListenRequestParams, bench: Workbench
    ) -> wire.SubscriptionsListenResult:
        """Answer `subscriptions/listen` of the caller of *bench*. Raises MCPError for too many resources."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(uris) > _MAX_FOLLOWED:  # before any is looked for: one request would hold up all others
            raise MCPError(wire.INVALID_REQUEST, f"A stream follows at most {_MAX_FOLLOWED} resources.")
        streams = self._streams.setdefault(bench.caller, _Streams())
        streams.count += 1
        open_uris: list[str] = []
        try:
            for uri in uris:
                if (await self._follow(bench, uri)).status == "success":
                    open_uris.append(uri)
            notifications = params.notifications.model_copy(update={"resource_subscriptions": open_uris or None})
            return await streams.handler(context, params.model_copy(update={"notifications": notifications}))
        finally:
            streams.count -= 1
            if not streams.count and self._streams.get(bench.caller) is streams:
                del self._streams[bench.caller]
            for uri in open_uris:
                await self._unfollow(bench, uri)

    def check(self) -> None:
        """Notify the clients, soon, if a list of tools is another now. From any thread."""
        self._wake()

    def changed(self, event: ServerEvent, caller: Caller | None = None) -> None:
        """Notify the clients, or those of *caller*, soon, of *event*. From any thread."""
        self._note(event, caller)

    def _add(self, event: ServerEvent, caller: Caller | None) -> None:
        self._changed[event, caller] = None
        self._woken.set()

    async def follow(self) -> None:
        """Notify of changes until cancelled."""
        try:
            while await self._woken.wait():
                self._woken.clear()
                changes, self._changed, lists = self._changed, {}, self._lists()
                if any(specs != self._listed.get(caller, self._listed[None]) for caller, specs in lists.items()):
                    changes[ToolsListChanged(), None] = None
                self._listed = lists
                for event, caller in changes:
                    await self._notify_all(event, caller)
        finally:
            for task in [*self._notifying.values()]:
                task.cancel()
            for streams in self._streams.values():
                streams.handler.close()

    def _lists(self) -> dict[Any, Any]:
        """Return what is listed: of the crib, and for each caller that has been seen."""
        return {None: self.callers.crib.registry.specs()} | {bench.caller: bench.specs() for bench in self.callers}

    async def _notify_all(self, event: ServerEvent, caller: Caller | None) -> None:
        for to, streams in list(self._streams.items()):
            if caller in (None, to):
                await streams.bus.publish(event)
        for connection, of in self._connections.items():
            if caller not in (None, of):
                continue
            if isinstance(event, ResourceUpdated) and event.uri not in connection.followed:
                continue
            self._events[connection][event] = None
            if connection not in self._notifying:
                # In a task of its own: a client that has stopped reading must not hold up the others.
                task = self._notifying[connection] = asyncio.create_task(self._notify(connection))
                task.add_done_callback(partial(self._notified, connection))

    def _notified(self, connection: Connection, _: asyncio.Task[None]) -> None:
        del self._notifying[connection]

    async def _notify(self, connection: Connection) -> None:
        try:
            while events := self._events.pop(connection, None):
                for event in events:
                    await connection.send_notification(_notice(event))
        except Exception:
            _log.debug("A client could not be notified of a change", exc_info=True)


class _Streams:
    """The streams of one caller who listens."""

    def __init__(self) -> None:
        # Here: a client of the older era, which most still are, never listens.
        from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

        self.bus = InMemorySubscriptionBus()
        self.handler = ListenHandler(self.bus)
        self.count = 0


def _notice(event: ServerEvent) -> wire.ServerNotification:
    match event:
        case ToolsListChanged():
            return wire.ToolListChangedNotification()
        case ResourcesListChanged():
            return wire.ResourceListChangedNotification()
        case PromptsListChanged():
            return wire.PromptListChangedNotification()
        case ResourceUpdated(uri=uri):
            return wire.ResourceUpdatedNotification(params=wire.ResourceUpdatedNotificationParams(uri=uri))


def _links(changes: Changes) -> list[Callable[[], None]]:
    """Have *changes* hear of what changes in its crib. Returns functions that end that."""
    crib = changes.callers.crib

    def resources(uri: str | None) -> None:
        changes.changed(ResourcesListChanged() if uri is None else ResourceUpdated(uri=uri))

    def of_source(*_: object) -> None:
        changes.changed(ResourcesListChanged())
        changes.changed(PromptsListChanged())

    def offers(change: OffersChange) -> None:
        if change.uri is not None:
            changes.changed(ResourceUpdated(uri=change.uri), change.caller)
        else:
            event = ResourcesListChanged() if change.what == "resources" else PromptsListChanged()
            changes.changed(event, change.caller)

    unlinks = [
        crib.registry.on_change(changes.check),
        crib.resources.on_change(resources),
        crib.prompts.on_change(lambda _: changes.changed(PromptsListChanged())),
    ]
    for source in crib.offering():
        if hasattr(source, "on_offers_change"):
            unlinks.append(source.on_offers_change(offers))
        elif hasattr(source, "on_change") and (hasattr(source, "resources") or hasattr(source, "prompts")):
            unlinks.append(source.on_change(of_source))
    return unlinks


@asynccontextmanager
async def following(callers: Callers) -> AsyncGenerator[Changes]:
    """Send the notices of a server of *callers* while the block runs."""
    changes = Changes(callers)
    unlinks = _links(changes)
    task = asyncio.create_task(changes.follow())
    try:
        yield changes
    finally:
        for unlink in unlinks:
            unlink()
        task.cancel()
        await asyncio.wait([task])
