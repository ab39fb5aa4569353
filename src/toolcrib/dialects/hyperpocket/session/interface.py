"""`hyperpocket.session.interface`: what a session is, and where sessions are kept."""

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from pydantic import BaseModel, Field

from ....core import Semaphore
from ..auth.context import AuthContext
from ..auth.provider import AuthProvider
from ..auth.schema import AuthenticateRequest
from ..config.session import SessionType

SESSION_NEAR_EXPIRE_SECONDS = 300
SESSION_KEY_DELIMITER = "__"


class BaseSessionValue(BaseModel):
    """A session: pending while it has an `auth_resolve_uid`, else active, with its context."""

    auth_provider_name: str = Field(description="the provider's name, in upper case")
    auth_context: AuthContext | None = Field(default=None, description="what was granted")
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
    ) -> Self:
        """The session that a storage is to keep: see `SessionStorageInterface.set`."""
        return cls(
            auth_provider_name=auth_provider.name,
            auth_scopes=set(auth_scopes),
            auth_context=auth_context,
            auth_resolve_uid=auth_resolve_uid,
            scoped=is_auth_scope_universal,
        )

    def make_superset_auth_scope(self, other_scopes: Iterable[str] | None = None) -> set[str]:
        """The scopes of the session, and *other_scopes*."""
        return {*(self.auth_scopes or ()), *(other_scopes or ())}

    def is_auth_applicable(self, auth_provider_name: str, auth_req: AuthenticateRequest) -> bool:
        """Whether the session is of that provider, and covers the scopes of *auth_req*."""
        wanted = set(auth_req.auth_scopes or ())
        return self.auth_provider_name == auth_provider_name and (
            not self.scoped or wanted <= (self.auth_scopes or set())
        )

    def is_near_expires(self) -> bool:
        """Whether its context ends within five minutes."""
        ends = None if self.auth_context is None else self.auth_context.expires_at
        if ends is None:
            return False
        ends = ends if ends.tzinfo is not None else ends.replace(tzinfo=UTC)
        return (ends - datetime.now(UTC)).total_seconds() < SESSION_NEAR_EXPIRE_SECONDS


K = TypeVar("K")
V = TypeVar("V", bound=BaseSessionValue)


class SessionStorageInterface(ABC, Generic[K, V]):
    """Sessions by provider, thread and profile: one for each."""

    @abstractmethod
    def get(self, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any) -> V | None:
        """The session, or None."""

    @abstractmethod
    def get_by_thread_id(self, thread_id: str, auth_provider: AuthProvider | None = None, **kwargs: Any) -> list[V]:
        """The sessions of exactly this thread, of all profiles."""

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
        """Store a session in place of what there is: pending with a uid, active with a context."""

    @abstractmethod
    def delete(self, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any) -> bool:
        """Whether there was a session, which is gone now."""

    @classmethod
    @abstractmethod
    def session_storage_type(cls) -> SessionType:
        """The type by which the settings name this storage."""

    @asynccontextmanager
    async def alone(self, auth_provider: AuthProvider, thread_id: str, profile: str) -> AsyncGenerator[None]:
        """One at a time for this session, over all threads and event loops of the process."""
        turn = _turn(type(self), session_key(auth_provider.name, thread_id, profile))
        permit = await turn.semaphore.acquire()
        try:
            yield
        finally:
            turn.semaphore.release(permit)


def session_key(provider: str, thread_id: str, profile: str) -> str:
    """`PROVIDER__thread__profile`. Parts in which the delimiter could be found are written so that it cannot."""
    return SESSION_KEY_DELIMITER.join(map(_written, (provider, thread_id, profile)))


def read_session_key(key: str) -> tuple[str, str, str] | None:
    """Provider, thread and profile of a *key*, or None for a text that is not one."""
    parts = [unquote(part) for part in key.split(SESSION_KEY_DELIMITER)]
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


def is_of_thread(key: str, thread_id: str, auth_provider: AuthProvider | None) -> bool:
    """Whether *key* is of exactly this thread, and of that provider, if one is given."""
    parts = read_session_key(key)
    return parts is not None and parts[1] == thread_id and (auth_provider is None or parts[0] == auth_provider.name)


def _written(part: str) -> str:
    # A part that ends in `_`, or has two, could end anywhere: `a___b`.
    if SESSION_KEY_DELIMITER in part or part.startswith("_") or part.endswith("_") or "%" in part:
        return quote(part, safe="").replace("_", "%5F")
    return part


class _Turn:
    """Whose turn it is at one session. It lives as long as somebody waits or works there."""

    def __init__(self) -> None:
        self.semaphore = Semaphore(1)


_turns: WeakValueDictionary[tuple[type, str], _Turn] = WeakValueDictionary()
_turns_lock = threading.Lock()


def _turn(storage: type, key: str) -> _Turn:
    with _turns_lock:
        return _turns.setdefault((storage, key), _Turn())
