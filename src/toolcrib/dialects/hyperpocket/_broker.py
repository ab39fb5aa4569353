"""The broker of a Pocket's calls: they are authorized by its PocketAuth, for the thread and profile of the caller."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from typing import Any

from ...core import Broker, Call, Caller, Credential, Pending, Requirement, SetupError, ToolError
from .auth import AuthContext, secrets_of
from .config import config
from .pocket_auth import PocketAuth
from .server import needs_callback, start_callback_server
from .tool import Tool

_URL = re.compile(r"https?://\S+")
MIN_SECRET_CHARS = 4
"""A shorter one would be found in ordinary words, so it cannot be redacted."""


@dataclass(frozen=True, slots=True)
class PocketCredential(Credential):
    """An AuthContext as a credential: `envs` is its `to_dict()`."""

    envs: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    texts: Sequence[str] = field(default=(), repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(text for text in self.texts if len(text) >= MIN_SECRET_CHARS)


@dataclass(frozen=True, slots=True)
class PendingGrant(Pending):
    """A grant that a call waits for, with the *text* that hyperpocket gives for it."""

    text: str = ""


class PocketBroker(Broker):
    """Authorizes the calls of tools by *auth*; *tool_of* finds a tool by its name."""

    def __init__(self, auth: PocketAuth, tool_of: Callable[[str], Tool]) -> None:
        self._auth = auth
        self._tool_of = tool_of

    async def authorize(
        self, _: Sequence[Requirement], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        """Return PocketAuth's context as a credential, or the grant that is missing, with the URL."""
        tool = self._tool_of(call.tool)
        answer: Any = self._auth.invoke(tool, thread_id=caller.thread, profile=caller.profile, wait=False)
        answer = await answer if isawaitable(answer) else answer
        if answer is None:
            return ()
        if isinstance(answer, AuthContext):
            assert tool.auth is not None
            provider = str(tool.auth.auth_provider or tool.auth.auth_handler)
            envs, texts = answer.to_dict(), secrets_of(answer)
            return (
                PocketCredential(provider, answer.access_token, expires_at=answer.expires_at, envs=envs, texts=texts),
            )
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
        try:
            if needs_callback(text):
                start_callback_server(self)
        except SetupError as error:
            raise ToolError(str(error), "unavailable") from None
