"""`hyperpocket.auth.handler`: handlers, from which programs inherit, and their requests, responses and contexts."""

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from .provider import AuthProvider


class AuthContext(BaseModel, ABC, hide_input_in_errors=True):
    """A grant. Its secrets are in no repr."""

    access_token: str = Field(description="user's access token", repr=False)
    description: str = Field(description="description of this authentication context")
    expires_at: datetime | None = Field(description="expiration datetime")
    detail: Any | None = Field(default=None, description="detailed information", repr=False)

    @abstractmethod
    def to_dict(self) -> dict[str, str]:
        """Return the variables that a tool reads: `{"SLACK_BOT_TOKEN": "..."}`."""

    @abstractmethod
    def to_profiled_dict(self, profile: str) -> dict[str, str]:
        """Return `to_dict()` with the profile before each name: `{"WORK_SLACK_BOT_TOKEN": "..."}`."""


class AuthenticateRequest(BaseModel, hide_input_in_errors=True):
    """The request for a grant. A handler of OAuth 2.0 has `client_id` and `client_secret` beside it."""

    auth_scopes: list[str] | None = Field(
        default_factory=list[str], description="authentication scopes, for a handler that takes them"
    )


class AuthenticateResponse(BaseModel, hide_input_in_errors=True):
    """The answer that a grant came with."""


class AuthHandlerInterface(ABC):
    """One way to a provider's credentials. It is made without arguments, once for each PocketAuth."""

    name: str
    description: str
    scoped: bool

    @staticmethod
    def provider() -> AuthProvider:
        """Return the provider whose credentials these are."""
        raise NotImplementedError

    @staticmethod
    def provider_default() -> bool:
        """Check whether this handler is used where a tool names none."""
        return False

    @staticmethod
    def recommended_scopes() -> set[str]:
        """Return the scopes to ask for beside those of a tool."""
        return set()

    @abstractmethod
    def make_request(self, auth_scopes: list[str] | None = None, **kwargs: Any) -> AuthenticateRequest:
        """Return the request for a grant: the scopes, and what the settings have for this provider."""

    @abstractmethod
    def prepare(
        self, auth_req: AuthenticateRequest, thread_id: str, profile: str, future_uid: str, *args: Any, **kwargs: Any
    ) -> str:
        """Create the future *future_uid* in `FutureStore`, and return a text with the URL where a person grants it."""

    @abstractmethod
    async def authenticate(
        self, auth_req: AuthenticateRequest, future_uid: str, *args: Any, **kwargs: Any
    ) -> AuthContext:
        """Return the grant, once the future *future_uid* is done."""

    @abstractmethod
    async def refresh(
        self, auth_req: AuthenticateRequest, context: AuthContext, *args: Any, **kwargs: Any
    ) -> AuthContext:
        """Return a new grant in place of *context*, which stays as it is. Raises where there is none."""
