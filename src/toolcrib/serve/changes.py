"""Tells connected clients that the list of tools has changed.

Through 2025-11-25 that is a notification to each session. From 2026-07-28 on it goes to those alone that have asked to
be told, on the stream of their `subscriptions/listen`. What the notice says is "ask again": a client that has not read
the last one yet needs no other.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from ..core import ToolSpec
from ..workbench import Workbench

_log = logging.getLogger("toolcrib")


class Changes:
    """The notices of one running server. `listen` answers `subscriptions/listen`."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._sessions: set[ServerSession] = set()
        self._telling: dict[ServerSession, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._told: Sequence[ToolSpec] = bench.specs()

    def greet(self, session: ServerSession) -> None:
        """Tell *session* of changes until its connection ends."""
        self._sessions.add(session)
        # The SDK hands its connection to nobody, and nothing else knows when it ends.
        session._connection.exit_stack.callback(self._sessions.discard, session)  # pyright: ignore[reportPrivateUsage]

    def look(self) -> None:
        """Tell of it, soon, if the list is another now. From any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._woken.set)

    async def follow(self) -> None:
        """Tell of changes until cancelled."""
        try:
            while await self._woken.wait():
                self._woken.clear()
                specs = self._bench.specs()
                if specs != self._told:
                    self._told = specs
                    await self._tell()
        finally:
            for task in [*self._telling.values()]:
                task.cancel()
            self.listen.close()

    async def _tell(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for session in self._sessions - self._telling.keys():
            # In a task of its own: a client that has stopped reading must not hold up the others.
            task = self._telling[session] = asyncio.create_task(self._notify(session))
            task.add_done_callback(partial(self._has_told, session))

    def _has_told(self, session: ServerSession, _: asyncio.Task[None]) -> None:
        del self._telling[session]

    async def _notify(self, session: ServerSession) -> None:
        try:
            await session.send_tool_list_changed()
        except Exception:
            _log.debug("A client could not be told of a change", exc_info=True)


@asynccontextmanager
async def following(bench: Workbench) -> AsyncGenerator[Changes]:
    """The notices of a server of *bench*, told while the block runs."""
    changes = Changes(bench)
    end = bench.registry.on_change(changes.look)
    task = asyncio.create_task(changes.follow())
    try:
        yield changes
    finally:
        end()
        task.cancel()
        await asyncio.wait([task])
