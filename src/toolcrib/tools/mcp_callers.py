"""The sessions of callers with a protected MCP server: one for each, with the credentials that are theirs.

What the server offers is known once somebody has been let in; until then there is one tool, by which a caller connects.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import mcp_types as wire
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged

from ..core import Caller, Context, Credential, OffersChange, Source, ToolAuth, ToolError, ToolSpec
from ..net.challenges import challenge_of, scopes_in
from .from_schema import from_work
from .function import Tool
from .mcp_offers import MCPOffers, offers_change
from .mcp_session import NeedsLogin, Refused, Session
from .mcp_transports import Address

AnyTool = Tool[..., Any]


class CallerSessions(Source):
    """What opens a session for each caller, of whom *auth* is required. The tools are those of *parent*."""

    required = False

    def __init__(self, parent: Any, target: Address, challenge: str) -> None:
        self.parent = parent
        self.target = target
        self.auth = ToolAuth(f"mcp:{target.url}", scopes=scopes_in(challenge_of(challenge).get("scope", "")))

    @property
    def connecting(self) -> str:
        """The name of the tool by which a caller connects."""
        host = "".join(c if c.isalnum() and c.isascii() else "_" for c in str(self.target).partition("//")[2])
        return f"connect_{host}"[:64].rstrip("_")

    def tools(self) -> Sequence[AnyTool]:
        return []

    def open(self, caller: Caller) -> "CallerSource":
        return CallerSource(self, caller)

    def require(self, challenge: str) -> None:
        """From now on, what *challenge* names has to be granted, too (RFC 6750, 3.1)."""
        scopes = scopes_in(challenge_of(challenge).get("scope", ""))
        wider = tuple(dict.fromkeys((*self.auth.scopes, *scopes)))
        if wider != self.auth.scopes:
            self.auth = ToolAuth(self.auth.provider, scopes=wider)
            self.parent.restrict()

    def __str__(self) -> str:
        return str(self.parent)


class CallerSource(MCPOffers, Source):
    """The server for *caller*: connected to as soon as their credentials are there, which a call brings."""

    required = False

    def __init__(self, sessions: CallerSessions, caller: Caller) -> None:
        super().__init__()
        self._sessions = sessions
        self._caller = caller
        self._may_offer = False
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._credential: Credential | None = None

    async def stop(self) -> None:
        session, self._session = self._session, None
        self._end_listing()
        if session is not None:
            await session.close()

    def tools(self) -> Sequence[AnyTool]:
        return self._sessions.parent.tools_by(self.call, self.connect)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return str(self._sessions)

    async def call(self, name: str, arguments: dict[str, Any], context: Context) -> wire.CallToolResult:
        try:
            return await (await self._connected(context.credentials)).call(name, arguments, context)
        except Refused as refused:
            await self._refused(refused.status, refused.challenge)
            raise

    async def connect(self, arguments: dict[str, Any], context: Context) -> str:
        """Take over what the server offers this caller."""
        try:
            session = await self._connected(context.credentials)
            await self._sessions.parent.take_over(await session.tools() if session.capabilities.tools else [])
        except Refused as refused:
            await self._refused(refused.status, refused.challenge)
            raise
        names = ", ".join(tool.spec.name for tool in self._sessions.parent.offered())
        return f"Connected to {self}. Its tools: {names or 'none'}."

    async def _connected(self, credentials: Mapping[str, Credential]) -> Session:
        self._credential = credentials[self._sessions.auth.provider]
        return await self._with_session()

    async def _with_session(self) -> Session:
        async with self._opening:
            if self._session is None:
                session = Session(
                    self._sessions.target,
                    on_lost=lambda: self._lost(session),
                    on_change=self._note_change,
                    authorization=self._authorization,
                )
                await self._open(session)
                self._session = session
                if self._followed and session.capabilities.resources is not None:
                    with suppress(ToolError):  # what it does not have any more costs that alone
                        await session.follow(frozenset(self._followed))
                for event in (ResourcesListChanged(), PromptsListChanged()):
                    self._note_change(event)
            return self._session

    # Resources and prompts

    @property
    def auth(self) -> ToolAuth:
        """Whose credentials `authorize` takes."""
        return self._sessions.auth

    def authorize(self, credential: Credential | None) -> None:
        """What the caller is offered is asked for with *credential* from now on; None where they have none now."""
        self._may_offer = credential is not None
        if credential is not None:
            self._credential = credential

    def _came_late(self, what: Literal["resources", "prompts"]) -> None:
        self._sessions.parent.offers_changed(OffersChange(what, caller=self._caller))

    async def _reached(self) -> Session | None:
        if not self._may_offer:
            return None
        try:
            return await self._with_session()
        except Refused as refused:
            await self._refused(refused.status, refused.challenge)
            raise

    def _note_change(self, event: ServerEvent) -> None:
        if isinstance(event, ToolsListChanged):
            self._sessions.parent.stale()
        else:
            self._sessions.parent.offers_changed(offers_change(event, self._caller))

    async def _open(self, session: Session) -> None:
        try:
            await session.open()
        except NeedsLogin as refused:
            await self._refused(refused.status, refused.challenge)
            raise Refused(str(self), refused.status, refused.challenge) from None
        except Exception as error:
            raise ToolError(f"'{self}' is not available: {error}", "unavailable") from None

    def _authorization(self) -> Mapping[str, str]:
        credential = self._credential
        return {} if credential is None else {credential.header: credential.header_value}

    def _lost(self, session: Session) -> None:
        if self._session is session:
            self._session = None

    async def _refused(self, status: int, challenge: str) -> None:
        """The credentials are not enough, or no longer: the next call asks for what is."""
        if status == 403 or challenge_of(challenge).get("error") == "insufficient_scope":
            self._sessions.require(challenge)
        elif self._credential is not None and self._credential.refused is not None:
            await self._credential.refused()


def connecting_tool(sessions: CallerSessions, work: Callable[[dict[str, Any], Context], Any]) -> AnyTool:
    """The tool by which a caller is let in."""
    spec = ToolSpec(
        name=sessions.connecting,
        description=f"Connect to the MCP server at {sessions.target}, which needs a login, to see its tools.",
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
        auth=sessions.auth,
    )
    made = from_work(spec, work, home=__name__)
    return made.offered_by(sessions)
