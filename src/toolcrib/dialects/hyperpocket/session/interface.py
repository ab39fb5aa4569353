"""`hyperpocket.session.interface`: sessions, and the interface of their storages."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote, unquote

from pydantic import BaseModel, Field

from ..auth.context import AuthContext
from ..auth.provider import AuthProvider
from ..auth.schema import AuthenticateRequest
from ..config.session import SessionType

SESSION_NEAR_EXPIRE_SECONDS = 300
SESSION_KEY_DELIMITER = "__"
POLL_INTERVAL_S = 0.02

_holders: dict[tuple[type, str], object] = {}
"""Who holds a session of a storage: see `SessionStorageInterface.alone`."""


class BaseSessionValue(BaseModel):
    """A session: pending while it has an `auth_resolve_uid`, else active, with its context."""

    auth_provider_name: str = Field(description="the provider's name, in upper case")
    auth_context: AuthContext | None = Field(default=None, description="the grant")
    scoped: bool = Field(description="whether its handler takes scopes")
    auth_scopes: set[str] | None = Field(default=None, description="the scopes that were asked for")
    auth_resolve_uid: str | None = Field(default=None, description="the uid of a grant that is waited for", repr=False)

    @classmethod
    def of(
        cls,
        auth_provider: AuthProvider,
        auth_scopes: Iterable[str],
        auth_resolve_uid: str | None,
        auth_context: AuthContext | None,
        is_auth_scope_universal: bool,
        **kwargs: Any,
    ) -> Self:
        """Return the session that `SessionStorageInterface.set` stores."""
        return cls(
            auth_provider_name=auth_provider.name,
            auth_scopes=set(auth_scopes),
            auth_context=auth_context,
            auth_resolve_uid=auth_resolve_uid,
            scoped=is_auth_scope_universal,
        )

    def make_superset_auth_scope(self, other_scopes: Iterable[str] | None = None) -> set[str]:
        """Return the scopes of the session, and *other_scopes*."""
        return {*(self.auth_scopes or ()), *(other_scopes or ())}

    def is_auth_applicable(self, auth_provider_name: str, auth_req: AuthenticateRequest) -> bool:
        """Check whether the session is of that provider, and covers the scopes of *auth_req*."""
        is_covered = not self.scoped or set(auth_req.auth_scopes or ()) <= (self.auth_scopes or set())
        return self.auth_provider_name == auth_provider_name and is_covered

    def is_near_expires(self) -> bool:
        """Check whether its context ends within five minutes."""
        end = None if self.auth_context is None else self.auth_context.expires_at
        if end is None:
            return False
        end = end if end.tzinfo is not None else end.replace(tzinfo=UTC)
        return (end - datetime.now(UTC)).total_seconds() < SESSION_NEAR_EXPIRE_SECONDS


K = TypeVar("K")
V = TypeVar("V", bound=BaseSessionValue)


class SessionStorageInterface(ABC, Generic[K, V]):
    """Sessions by provider, thread and profile: one for each."""

    @abstractmethod
    def get(self, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any) -> V | None:
        """Return the session, or None."""

    @abstractmethod
    def get_by_thread_id(self, thread_id: str, auth_provider: AuthProvider | None = None, **kwargs: Any) -> list[V]:
        """Return the sessions of exactly this thread, of all profiles."""

    @abstractmethod
    def set(
        self,
        auth_provider: AuthProvider,
        thread_id: str,
        profile: str,
        auth_scopes: list[str],
        auth_resolve_uid: str | None,
        auth_context: AuthContext | None,
        is_auth_scope_universal: bool,
        **kwargs: Any,
    ) -> V:
        """Store a session in place of the old one: pending with a uid, active with a context."""

    @abstractmethod
    def delete(self, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any) -> bool:
        """Delete the session. False where there was none."""

    @classmethod
    @abstractmethod
    def session_storage_type(cls) -> SessionType:
        """Return the type by which the settings name this storage."""

    @asynccontextmanager
    async def alone(self, auth_provider: AuthProvider, thread_id: str, profile: str) -> AsyncGenerator[None]:
        """Hold this session alone, over all threads and event loops of the process."""
        key, holder = (type(self), session_key(auth_provider.name, thread_id, profile)), object()
        while _holders.setdefault(key, holder) is not holder:  # noqa: ASYNC110 - the holder may be on another loop
            await asyncio.sleep(POLL_INTERVAL_S)
        try:
            yield
        finally:
            del _holders[key]


def session_key(provider: str, thread_id: str, profile: str) -> str:
    """Return `PROVIDER__thread__profile`. Parts that could be read as the delimiter are quoted."""
    return SESSION_KEY_DELIMITER.join(map(_quoted, (provider, thread_id, profile)))


def read_session_key(key: str) -> tuple[str, str, str] | None:
    """Return provider, thread and profile of a *key*, or None for a text that is not one."""
    parts = [unquote(part) for part in key.split(SESSION_KEY_DELIMITER)]
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


def is_of_thread(key: str, thread_id: str, auth_provider: AuthProvider | None) -> bool:
    """Check whether *key* is of exactly this thread, and of *auth_provider*, if that is not None."""
    parts = read_session_key(key)
    return parts is not None and parts[1] == thread_id and (auth_provider is None or parts[0] == auth_provider.name)


def _quoted(part: str) -> str:
    # `a___b` could end anywhere, so a part with `__`, or `_` at an end, is quoted.
    if SESSION_KEY_DELIMITER in part or part.startswith("_") or part.endswith("_") or "%" in part:
        return quote(part, safe="").replace("_", "%5F")
    return part
