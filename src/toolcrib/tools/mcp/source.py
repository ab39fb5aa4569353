"""An MCP server as a source: its tools, resources and prompts, each call by one session that stays open.

    MCPUpstream       the server. Its own session is that of all callers, unless it wants to know who asks
    CallerSessions    takes that place where it does: what opens a session for each caller
    CallerUpstream    the session of one caller, with the credentials that are theirs

What a server says of itself is checked tool by tool: one that cannot be a tool is a problem, and the others load. What
a protected server offers is known once a caller has been let in; until then there is one tool, to connect by.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Literal, Protocol, TypeVar

import mcp_types as wire
from mcp.shared.subscriptions import ServerEvent, ToolsListChanged

from ...core import Caller, Context, Credential, LoadError, Source, ToolAuth, ToolcribError, ToolError, ToolSpec
from ...machinery import in_thread
from ...net.client import challenge_of, scopes_in
from ...schema import display_name
from ..function import Tool, from_work
from ..modules import LoadProblem
from .offers import MCPOffers, offers_change
from .session import Refused, Session
from .streams import TOOLS, Malformed
from .targets import Target
from .tools import RemoteCall, tool_of, without_secrets

R = TypeVar("R")
AnyTool = Tool[..., Any]
Listed = Sequence[wire.Tool | Malformed]


class Hold(Protocol):
    """Decides which of the tools that a server offers may be used; `problems` has why others may not."""

    @property
    def problems(self) -> Sequence[LoadProblem]: ...
    def __call__(self, tools: Sequence[AnyTool], /) -> Sequence[AnyTool]: ...


_LIST_INTERVAL_S = 0.2
"""How often a server is asked for its lists, at most."""
_SHARE = 20
"""A server that changes a long list all the time has one part of our time, and the others this many."""

_log = logging.getLogger("toolcrib.mcp")


class MCPUpstream(MCPOffers, Source):
    """The tools of an MCP server at *target*: a command that is started, or a URL of Streamable HTTP.

    Its tools are known once it has started. It speaks both eras of the protocol, follows changes of its lists, and is
    connected to again, with growing pauses, when it is lost. *required*: whether nothing starts without it.
    """

    listed_at_start = True
    """Whether `tools` is empty until it has started."""
    fallback_prefix = ""
    """What its tools are prefixed with where another source has their names."""

    def __init__(self, target: Target, *, name: str | None = None) -> None:
        super().__init__()
        self.target = replace(target, name=target.name or name or "")
        self.required = target.required
        self._id = name or target.url or target.label  # not shown
        self.problems: list[LoadProblem] = []
        self._unread: list[LoadProblem] = []
        self.hold: Hold | None = None
        """Decides which tools may be used, where a lock says so."""
        self.expected: Sequence[str] = ()
        """The names of its tools, as far as they are known before it has started."""
        self._sessions: CallerSessions | None = None
        self._offered: dict[str, tuple[wire.Tool, AnyTool]] = {}
        self._tools: list[AnyTool] = []
        self._relisting: asyncio.Task[None] | None = None
        self._is_stale = False
        self._take_s = 0.0

    @property
    def name(self) -> str:
        return self.target.shown_name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<MCPUpstream {self.name}>"

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
            self._session = session
            await self._read(await session.tools())
            await self._note_opened(session)
        except Refused as refused:
            await self.stop()
            self._require_login(refused)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._relisting is not None:
            self._relisting.cancel()
        await super().stop()

    async def _reached(self) -> Session | None:
        # Where each caller has a session of their own, and there is none without a login, it is those that offer.
        return None if self._session is None and self._sessions is not None else self._connected

    def _report(self, change: ServerEvent | Literal["resources", "prompts"]) -> None:
        self.offers_changed(offers_change(change))

    # Tools

    async def _call(self, name: str, arguments: dict[str, Any], context: Context) -> wire.CallToolResult:
        try:
            return await self._connected.call(name, arguments, context)
        except Refused as refused:  # it lets all see its tools, and not all call them
            self._require_login(refused)
            self.restrict()
            raise

    @property
    def _connected(self) -> Session:
        if self._session is None:
            raise ToolError(f"'{self}' is not connected now.", "unavailable")
        return self._session

    async def _read(self, listed: Listed) -> None:
        """Offer what a server has *listed*: a megabyte of schemas takes a second, so a thread reads them."""
        start_s = monotonic()
        self._take(*await in_thread(partial(self._tools_of, listed)))
        self._take_s = monotonic() - start_s

    def _tools_of(self, listed: Listed) -> tuple[dict[str, tuple[wire.Tool, AnyTool]], list[LoadProblem]]:
        """Return the tools that are *listed*, and why others are not. A definition as it was stays the tool it is."""
        problems: list[LoadProblem] = []
        current: dict[str, tuple[wire.Tool, AnyTool]] = {}
        if len(listed) > TOOLS.max_items:
            problems.append(
                LoadProblem(self.name, f"It has more than {TOOLS.max_items} tools; the others are left out.")
            )
        for definition in listed[: TOOLS.max_items]:
            name = definition.name
            key = name.replace("-", "_")  # as a workbench compares names
            before = self._offered.get(key)
            try:
                if isinstance(definition, Malformed):
                    raise ToolcribError(f"Tool '{name}' is not defined as MCP requires: {definition.reason}")
                definition = without_secrets(definition, self.redaction)
                if key in current:
                    raise ToolcribError(f"Two of its tools have the name '{display_name(name)}', with - and _ as one.")
                tool = before[1] if before and before[0] == definition else self._tool_of(definition)
            except ToolcribError as error:
                problems.append(LoadProblem(self.name, str(error)))
            else:
                current[key] = (definition, tool)
        return current, problems

    def _take(self, current: dict[str, tuple[wire.Tool, AnyTool]], problems: list[LoadProblem]) -> None:
        """Offer the tools that are *current*."""
        self._offered = current
        tools: Sequence[AnyTool] = [tool for _, tool in current.values()]
        self._unread = problems
        if self.hold is not None:
            tools = self.hold(tools)
            problems = [*problems, *self.hold.problems]
        for problem in problems:
            if problem not in self.problems:
                _log.warning("Not loaded: %s", problem)
        self._tools, self.problems = list(tools), problems

    def hold_again(self) -> None:
        """Offer what the hold lets through now."""
        self._take(self._offered, self._unread)
        self.changed()

    def _tool_of(self, definition: wire.Tool, call: RemoteCall | None = None, auth: ToolAuth | None = None) -> AnyTool:
        sessions = self._sessions
        auth = auth or (None if sessions is None else sessions.auth)
        tool = tool_of(definition, self._id, call or self._call, auth)
        return tool if sessions is None else tool.offered_by(sessions)

    def _note_change(self, event: ServerEvent) -> None:
        """Note a change that the server reports. Many of them while its tools are listed cost one list more."""
        if not isinstance(event, ToolsListChanged):
            self._report(event)
            return
        self._is_stale = True
        if self._relisting is None or self._relisting.done():
            self._relisting = asyncio.ensure_future(self._relist())

    async def _relist(self) -> None:
        while self._is_stale and self._session is not None:
            self._is_stale = False
            with suppress(ToolError):  # it stays what it was
                await self.take_over(await self._session.tools())
            await asyncio.sleep(max(_LIST_INTERVAL_S, _SHARE * self._take_s))

    # A server that lets no caller in without a login

    def _require_login(self, refused: Refused) -> None:
        """Give each caller a session of their own from now on. Raises *refused* where that would not help."""
        if not self.target.url or self.target.has_credentials:
            raise refused
        if self._sessions is None:
            self._sessions = CallerSessions(self, self.target, refused.challenge)
        if not self._offered:
            self._tools = [self._sessions.connecting_tool()]

    def tools_by(self, call: RemoteCall, auth: ToolAuth) -> Sequence[AnyTool]:
        """Return the tools that are known, with their work done by *call*, which needs *auth*."""
        return [self._tool_of(definition, call, auth) for definition, _ in self._offered.values()]

    def offered_names(self) -> list[str]:
        """Return the names of the tools of the server itself, as far as they are known."""
        return [tool.spec.name for tool in self._tools] if self._offered else []

    async def take_over(self, listed: Listed) -> None:
        """Offer what was *listed*, maybe to a caller who has been let in."""
        await self._read(listed)
        self.changed()

    def restrict(self) -> None:
        """Have the tools say that more has to be granted from now on."""
        assert self._sessions is not None
        if self._offered:
            self._take({name: (of, self._tool_of(of)) for name, (of, _) in self._offered.items()}, [])
        else:
            self._tools = [self._sessions.connecting_tool()]
        self.changed()

    def note_stale(self) -> None:
        """Have the next caller who connects see the list again, which has changed."""
        if self._sessions is not None and self._sessions.connecting not in [tool.spec.name for tool in self._tools]:
            self._tools.append(self._sessions.connecting_tool())
            self.changed()


class CallerSessions(Source):
    """The source of a session for each caller, who needs *auth*. The tools are those of *parent*."""

    required = False

    def __init__(self, parent: MCPUpstream, target: Target, challenge: str) -> None:
        self.parent = parent
        self.target = target
        self.auth = ToolAuth(f"mcp:{target.url}", scopes=_scopes(challenge))
        self.only = parent.only

    def __str__(self) -> str:
        return str(self.parent)

    @property
    def connecting(self) -> str:
        """The name of the tool by which a caller connects."""
        host = "".join(c if c.isalnum() and c.isascii() else "_" for c in self.target.label.partition("//")[2])
        return f"connect_{host}"[:64].rstrip("_")

    def connecting_tool(
        self, work: Callable[[dict[str, Any], Context], Any] | None = None, auth: ToolAuth | None = None
    ) -> AnyTool:
        """Return the tool by which a caller is let in."""
        spec = ToolSpec(
            name=self.connecting,
            description=f"Connect to the MCP server at {self.target.label}, which needs a login, to see its tools.",
            input_schema={"type": "object", "properties": {}, "additionalProperties": False},
            auth=auth or self.auth,
        )
        return from_work(spec, work or _connect_first, home=__name__).offered_by(self)

    def tools(self) -> Sequence[AnyTool]:
        return []

    def open(self, caller: Caller) -> "CallerUpstream":
        return CallerUpstream(self, caller)


class CallerUpstream(MCPOffers, Source):
    """The server for *caller*: connected to as soon as their credentials are there, which a call brings."""

    required = False

    def __init__(self, sessions: CallerSessions, caller: Caller) -> None:
        super().__init__()
        self._sessions = sessions
        self._parent = sessions.parent
        self.redaction = self._parent.redaction
        self._caller = caller
        self.auth = sessions.auth
        """Whose credentials are taken, with the scopes that the server wants of this caller."""
        self._may_offer = False
        self._opening = asyncio.Lock()
        self._credential: Credential | None = None

    def __str__(self) -> str:
        return str(self._sessions)

    def tools(self) -> Sequence[AnyTool]:
        connecting = self._sessions.connecting_tool(self.connect, self.auth)
        return [connecting, *self._parent.tools_by(self.call, self.auth)]

    async def call(self, name: str, arguments: dict[str, Any], context: Context) -> wire.CallToolResult:
        return await self._allowed(lambda session: session.call(name, arguments, context), context.credentials)

    async def connect(self, arguments: dict[str, Any], context: Context) -> str:
        """Take over what the server offers this caller."""
        await self._parent.take_over(await self._allowed(Session.tools, context.credentials))
        return f"Connected to {self}. Its tools: {', '.join(self._parent.offered_names()) or 'none'}."

    async def _allowed(self, work: Callable[[Session], Awaitable[R]], credentials: Mapping[str, Credential]) -> R:
        """Return what *work* does in the session with *credentials*. Where that is refused, the next call asks anew."""
        self._credential = credentials[self.auth.provider]
        try:
            return await work(await self._with_session())
        except Refused as refused:
            await self._note_refused(refused)
            raise

    async def _with_session(self) -> Session:
        async with self._opening:
            if self._session is None:
                session = Session(
                    self._sessions.target,
                    on_lost=lambda: self._lose(session),
                    on_change=self._note_change,
                    authorization=self._authorization,
                )
                try:
                    await session.open()
                except LoadError as error:
                    raise ToolError(f"'{self}' is not available: {error}", "unavailable") from None
                self._session = session
                await self._note_opened(session)
            return self._session

    def _authorization(self) -> Mapping[str, str]:
        credential = self._credential
        return {} if credential is None else {credential.header: credential.header_value}

    def _lose(self, session: Session) -> None:
        if self._session is session:
            self._session = None

    async def _note_refused(self, refused: Refused) -> None:
        """Have the next call ask for other credentials: these are not enough, or no longer."""
        if refused.status == 403 or challenge_of(refused.challenge).get("error") == "insufficient_scope":
            wider = tuple(dict.fromkeys((*self.auth.scopes, *_scopes(refused.challenge))))  # RFC 6750, 3.1
            if wider != self.auth.scopes:
                self.auth = ToolAuth(self.auth.provider, scopes=wider)
                self.changed()
        elif self._credential is not None and self._credential.refused is not None:
            await self._credential.refused()

    # Resources and prompts

    def authorize(self, credential: Credential | None) -> None:
        """Use *credential* from now on to ask for what the caller is offered; None where they have none now."""
        self._may_offer = credential is not None
        if credential is not None:
            self._credential = credential

    async def _reached(self) -> Session | None:
        if not self._may_offer:
            return None
        try:
            return await self._with_session()
        except Refused as refused:
            await self._note_refused(refused)
            raise

    def _report(self, change: ServerEvent | Literal["resources", "prompts"]) -> None:
        self._parent.offers_changed(offers_change(change, self._caller))

    def _note_change(self, event: ServerEvent) -> None:
        if isinstance(event, ToolsListChanged):
            self._parent.note_stale()
        else:
            self._report(event)


def _scopes(challenge: str) -> tuple[str, ...]:
    return tuple(scopes_in(challenge_of(challenge).get("scope", "")))


async def _connect_first(arguments: dict[str, Any], context: Context) -> str:
    raise ToolError("There is no session for this caller.", "unavailable")
