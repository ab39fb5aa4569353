"""`hyperpocket.auth.handler`: what a handler has. Programs inherit from it for handlers of their own."""

from abc import ABC, abstractmethod
from typing import Any

from .context import AuthContext
from .provider import AuthProvider
from .schema import AuthenticateRequest

__all__ = ["AuthContext", "AuthHandlerInterface", "AuthProvider", "AuthenticateRequest"]


class AuthHandlerInterface(ABC):
    """One way to a provider's credentials. It is made without arguments, once for each PocketAuth."""

    name: str
    description: str
    scoped: bool

    @staticmethod
    def provider() -> AuthProvider:
        """The provider whose credentials these are."""
        raise NotImplementedError

    @staticmethod
    def provider_default() -> bool:
        """Whether this handler is used where a tool names none."""
        return False

    @staticmethod
    def recommended_scopes() -> set[str]:
        """The scopes that are asked for beside those of a tool."""
        return set()

    @abstractmethod
    def make_request(self, auth_scopes: list[str] | None = None, **kwargs: Any) -> AuthenticateRequest:
        """What a grant is asked for with: the scopes, and what the settings have for this provider."""

    @abstractmethod
    def prepare(
        self, auth_req: AuthenticateRequest, thread_id: str, profile: str, future_uid: str, *args: Any, **kwargs: Any
    ) -> str:
        """A text with the URL where somebody grants it, once `FutureStore` has the future *future_uid*."""

    @abstractmethod
    async def authenticate(
        self, auth_req: AuthenticateRequest, future_uid: str, *args: Any, **kwargs: Any
    ) -> AuthContext:
        """The grant, when the future *future_uid* is done."""

    @abstractmethod
    async def refresh(
        self, auth_req: AuthenticateRequest, context: AuthContext, *args: Any, **kwargs: Any
    ) -> AuthContext:
        """A new grant in place of *context*, which stays as it is. Raises where it cannot be had."""
