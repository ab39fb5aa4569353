"""Notifies connected clients that the list of tools has changed.

Through 2025-11-25 that is a notification to each session. From 2026-07-28 on it goes to those alone that have asked for
it, on the stream of their `subscriptions/listen`. The notice only says to list the tools again: a client that has not
read the last one yet needs no other.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from .callers import Callers

_log = logging.getLogger("toolcrib")


class Changes:
    """The notices of one running server. `listen` answers `subscriptions/listen`."""

    def __init__(self, callers: Callers) -> None:
        self.callers = callers
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._sessions: set[ServerSession] = set()
        self._notifying: dict[ServerSession, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._listed = self._lists()

    def add(self, session: ServerSession) -> None:
        """Notify *session* of changes until its connection ends."""
        self._sessions.add(session)
        # The SDK hands its connection to nobody, and nothing else knows when it ends.
        session._connection.exit_stack.callback(self._sessions.discard, session)  # pyright: ignore[reportPrivateUsage]

    def check(self) -> None:
        """Notify the clients, soon, if a list is another now. From any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._woken.set)

    async def follow(self) -> None:
        """Notify of changes until cancelled."""
        try:
            while await self._woken.wait():
                self._woken.clear()
                listed = self._lists()
                if any(specs != self._listed.get(caller, self._listed[None]) for caller, specs in listed.items()):
                    await self._notify_all()
                self._listed = listed
        finally:
            for task in [*self._notifying.values()]:
                task.cancel()
            self.listen.close()

    def _lists(self) -> dict[Any, Any]:
        """What is listed: of the crib, and for each caller that has been seen."""
        return {None: self.callers.crib.registry.specs()} | {bench.caller: bench.specs() for bench in self.callers}

    async def _notify_all(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for session in self._sessions - self._notifying.keys():
            # In a task of its own: a client that has stopped reading must not hold up the others.
            task = self._notifying[session] = asyncio.create_task(self._notify(session))
            task.add_done_callback(partial(self._notified, session))

    def _notified(self, session: ServerSession, _: asyncio.Task[None]) -> None:
        del self._notifying[session]

    async def _notify(self, session: ServerSession) -> None:
        try:
            await session.send_tool_list_changed()
        except Exception:
            _log.debug("A client could not be notified of a change", exc_info=True)


@asynccontextmanager
async def following(callers: Callers) -> AsyncGenerator[Changes]:
    """The notices of a server of *callers*, sent while the block runs."""
    changes = Changes(callers)
    unlink = callers.crib.registry.on_change(changes.check)
    task = asyncio.create_task(changes.follow())
    try:
        yield changes
    finally:
        unlink()
        task.cancel()
        await asyncio.wait([task])
