"""What a Pocket's calls are authorized by: its PocketAuth, for the thread and the profile of the caller."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from typing import Any, Self

from ...core import Broker, Call, Caller, Credential, Pending, Requirement, SetupError, ToolError
from .auth import secrets_of
from .auth.context import AuthContext
from .config import config
from .pocket_auth import PocketAuth, needs_callback
from .server import start_callback_server
from .tool import Tool

_URL = re.compile(r"https?://\S+")
_LEAST_SECRET = 4
"""A shorter one would be found in ordinary words, so it cannot be redacted."""


@dataclass(frozen=True, slots=True)
class PocketCredential(Credential):
    """An AuthContext as a credential: `envs` is its `to_dict()`."""

    envs: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    texts: Sequence[str] = field(default=(), repr=False)

    @classmethod
    def of(cls, provider: str, context: AuthContext) -> Self:
        return cls(
            provider,
            context.access_token,
            expires_at=context.expires_at,
            envs=context.to_dict(),
            texts=secrets_of(context),
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(text for text in self.texts if len(text) >= _LEAST_SECRET)


@dataclass(frozen=True, slots=True)
class PendingGrant(Pending):
    """What a call waits for, with the *text* that hyperpocket gives for it."""

    text: str = ""


class PocketBroker(Broker):
    """Authorizes the calls of tools by *auth*; *tool_of* finds a tool by its name."""

    def __init__(self, auth: PocketAuth, tool_of: Callable[[str], Tool]) -> None:
        self._auth = auth
        self._tool_of = tool_of

    async def authorize(
        self, _: Sequence[Requirement], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        """What PocketAuth gives: a context, as a credential, or the text with the URL of the grant that is missing."""
        tool = self._tool_of(call.tool)
        answer: Any = self._auth.invoke(tool, thread_id=caller.thread, profile=caller.profile, wait=False)
        answer = await answer if isawaitable(answer) else answer
        if answer is None:
            return ()
        if isinstance(answer, AuthContext):
            assert tool.auth is not None
            return (PocketCredential.of(str(tool.auth.auth_provider or tool.auth.auth_handler), answer),)
        self.require_callback_server(answer)
        url = _URL.search(answer)
        return PendingGrant(
            id=call.id,
            kind="authorization",
            message=answer if url is None else answer.replace(url[0], "").strip().removesuffix(":"),
            digest="",
            tool=call.tool,
            principal=caller.principal,
            thread=caller.thread,
            expires_at=datetime.now(UTC) + timedelta(seconds=config().auth_timeout_s),
            url=None if url is None else url[0],
            text=answer,
        )

    def require_callback_server(self, text: str) -> None:
        """Start the callback server where the URL in *text* leads back to it. Raises ToolError where it cannot."""
        if not needs_callback(text):
            return
        try:
            start_callback_server(self)
        except SetupError as error:
            raise ToolError(str(error), "unavailable") from None
