"""An MCP server as a source: its tools, resources and prompts, each call by one session that stays open.

What a server says of itself is checked tool by tool: one that cannot be a tool is a problem, and the others load.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Literal

import mcp_types as wire
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged

from ..core import (
    Context,
    OffersChange,
    Source,
    ToolcribError,
    ToolError,
)
from ..schema.describe import display_name
from .function import Tool
from .mcp_callers import CallerSessions, connecting_tool
from .mcp_lists import TOOLS, Malformed
from .mcp_offers import MCPOffers, offers_change
from .mcp_session import NeedsLogin, Refused, Session
from .mcp_tools import RemoteCall, tool_of
from .mcp_transports import Address, Command
from .modules import LoadProblem

AnyTool = Tool[..., Any]
Held = Callable[[Sequence[AnyTool]], tuple[Sequence[AnyTool], Sequence[LoadProblem]]]
"""Of the tools that a server offers, those that may be used, and a problem for each other one."""


_log = logging.getLogger("toolcrib.mcp")


class MCPUpstream(MCPOffers, Source):
    """The tools of an MCP server at *target*: a Command that is started, or an Address of Streamable HTTP.

    Its tools are known once it has started. It speaks both eras of the protocol, follows changes of its lists, and is
    connected to again, with growing pauses, when it is lost. *required*: whether nothing starts without it.
    """

    listed_at_start = True
    """Whether `tools` is empty until it has started."""

    def __init__(self, target: Command | Address, *, required: bool = False, name: str | None = None) -> None:
        super().__init__()
        self.target = target
        self.required = required
        self.name = name or str(target)
        self._id = name or (target.url if isinstance(target, Address) else self.name)  # not shown
        self.problems: list[LoadProblem] = []
        self.hold: Held | None = None
        """Decides which tools may be used, where a lock says so."""
        self._session: Session | None = None
        self._offered: dict[str, tuple[wire.Tool, AnyTool]] = {}
        self._tools: list[AnyTool] = []
        self._listing: asyncio.Task[None] | None = None
        self._is_stale = False
        self._taken_s = 0.0
        self._sessions: CallerSessions | None = None

    @property
    def secrets(self) -> Sequence[str]:
        """What it is reached by and no model is shown, also where the server says it."""
        return self.target.secrets

    @property
    def state_key(self) -> str:
        return f"mcp:{self._id}"

    def tools(self) -> Sequence[AnyTool]:
        return self._tools

    async def start(self) -> None:
        session = Session(self.target, on_lost=self.lost, on_change=self._note_change)
        try:
            await session.open()
        except NeedsLogin as needed:
            self._require_login(needed)
            return
        self._session = session
        try:
            await self._list()
            if self._followed:
                with suppress(ToolError):  # what it does not have any more costs that alone
                    await self._follow_all()
        except Refused as refused:
            await self.stop()
            self._require_login(refused)
        except BaseException:
            await self.stop()
            raise
        for event in (ResourcesListChanged(), PromptsListChanged()):
            self._note_change(event)

    async def stop(self) -> None:
        session, self._session = self._session, None
        if self._listing is not None:
            self._listing.cancel()
        self._end_listing()
        if session is not None:
            await session.close()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<MCPUpstream {self.name}>"

    # Tools

    async def _call(self, name: str, arguments: dict[str, Any], context: Context) -> wire.CallToolResult:
        try:
            return await self._connected.call(name, arguments, context)
        except Refused as refused:  # it lets everybody see its tools, and not everybody call them
            self._require_login(refused)
            self.restrict()
            raise

    @property
    def _connected(self) -> Session:
        if self._session is None:
            raise ToolError(f"'{self}' is not connected now.", "unavailable")
        return self._session

    async def _list(self) -> None:
        session = self._connected
        self._take(await session.tools() if session.capabilities.tools is not None else [])

    def _take(self, listed: Sequence[wire.Tool | Malformed]) -> None:
        """Offer what is *listed*. A definition that is as it was stays the tool that it is."""
        begun = monotonic()
        problems: list[LoadProblem] = []
        offered: dict[str, tuple[wire.Tool, AnyTool]] = {}
        if len(listed) > TOOLS.most:
            problems.append(LoadProblem(self.name, f"It has more than {TOOLS.most} tools; the others are left out."))
        for definition in listed[: TOOLS.most]:
            name = definition.name
            if isinstance(definition, Malformed):
                problems.append(
                    LoadProblem(self.name, f"Tool '{name}' is not defined as MCP requires: {definition.reason}")
                )
                continue
            if name in offered:
                problems.append(LoadProblem(self.name, f"Two of its tools have the name '{display_name(name)}'."))
                continue
            before = self._offered.get(name)
            try:
                tool = before[1] if before and before[0] == definition else self._tool_of(definition)
            except ToolcribError as error:
                problems.append(LoadProblem(self.name, str(error)))
            else:
                offered[name] = (definition, tool)
        self._offered = offered
        tools: Sequence[AnyTool] = [tool for _, tool in offered.values()]
        if self.hold is not None:
            tools, held = self.hold(tools)
            problems += held
        for problem in problems:
            if problem not in self.problems:
                _log.warning("Not loaded: %s", problem)
        self._tools, self.problems = list(tools), problems
        self._taken_s = monotonic() - begun

    def _tool_of(self, definition: wire.Tool, call: RemoteCall | None = None) -> AnyTool:
        sessions = self._sessions
        tool = tool_of(definition, self._id, call or self._call, None if sessions is None else sessions.auth)
        return tool if sessions is None else tool.offered_by(sessions)

    # Of a server that lets nobody in without a login

    def _require_login(self, refused: NeedsLogin | Refused) -> None:
        """From now on, each caller has a session of their own. Raises *refused* where that would not help."""
        if not isinstance(self.target, Address) or self.target.has_credentials:
            raise refused
        if self._sessions is None:
            self._sessions = CallerSessions(self, self.target, refused.challenge)
        if not self._offered:
            self._tools = [connecting_tool(self._sessions, _connect_first)]

    def offered(self) -> Sequence[AnyTool]:
        """The tools of the server itself, as far as they are known."""
        return [] if not self._offered else self._tools

    def tools_by(self, call: RemoteCall, connect: Any) -> Sequence[AnyTool]:
        """The tools, with their work done by *call*, and that of connecting by *connect*."""
        assert self._sessions is not None
        made = [self._tool_of(definition, call) for definition, _ in self._offered.values()]
        return [connecting_tool(self._sessions, connect), *made]

    async def take_over(self, listed: Sequence[wire.Tool | Malformed]) -> None:
        """Offer what was *listed* to a caller who has been let in."""
        self._take(listed)
        self.changed()

    def restrict(self) -> None:
        """More has to be granted from now on: the tools say so."""
        assert self._sessions is not None
        if self._offered:
            self._offered = {name: (of, self._tool_of(of)) for name, (of, _) in self._offered.items()}
            self._take([definition for definition, _ in self._offered.values()])
        else:
            self._tools = [connecting_tool(self._sessions, _connect_first)]
        self.changed()

    def stale(self) -> None:
        """The list has changed: whoever is let in next sees it again."""
        if self._sessions is None:
            return
        connecting = connecting_tool(self._sessions, _connect_first)
        if all(tool.spec.name != connecting.spec.name for tool in self._tools):
            self._tools.append(connecting)
            self.changed()

    def _note_change(self, event: ServerEvent) -> None:
        """The server reports a change. Reported many times while its tools are listed, they are listed once more."""
        if not isinstance(event, ToolsListChanged):
            self.offers_changed(offers_change(event))
            return
        self._is_stale = True
        if self._listing is None or self._listing.done():
            self._listing = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        while self._is_stale and self._session is not None:
            self._is_stale = False
            with suppress(ToolError):  # it stays what it was
                await self._list()
                self.changed()
            await asyncio.sleep(max(_SETTLE_S, _SHARE * self._taken_s))

    # Resources and prompts

    def _came_late(self, what: Literal["resources", "prompts"]) -> None:
        self.offers_changed(OffersChange(what))

    async def _reached(self) -> Session | None:
        # Where each caller has a session of their own, and nobody has one without a login, it is those that offer.
        return None if self._session is None and self._sessions is not None else self._connected


async def _connect_first(arguments: dict[str, Any], context: Context) -> str:
    raise ToolError("There is no session for this caller.", "unavailable")


_SETTLE_S = 0.2
"""How often a server is asked for its lists, at most."""
_SHARE = 20
"""A server that changes a long list all the time has one part of our time, and the others this many."""
