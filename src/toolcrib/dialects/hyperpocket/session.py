"""`hyperpocket.session`: sessions, in memory or in Redis, which needs the extra `redis`."""

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, Self, TypeVar
from urllib.parse import quote, unquote

from pydantic import BaseModel, Field

from ...core import SetupError
from .._modules import also_as
from . import auth
from .auth.handler import AuthContext, AuthenticateRequest
from .auth.provider import AuthProvider
from .config import SessionConfig, SessionConfigInMemory, SessionConfigRedis, SessionType, config

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


InMemorySessionKey = str
InMemorySessionValue = BaseSessionValue


class InMemorySessionStorage(SessionStorageInterface[InMemorySessionKey, InMemorySessionValue]):
    """Sessions in `storage`, which all instances share: `storage.clear()` ends every session.

    Its methods belong to the class, since programs call them without an instance.
    """

    storage: ClassVar[dict[InMemorySessionKey, InMemorySessionValue]] = {}

    def __init__(self, session_config: SessionConfigInMemory | None = None) -> None:
        super().__init__()

    @classmethod
    def session_storage_type(cls) -> SessionType:
        return SessionType.IN_MEMORY

    @classmethod
    def get(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any
    ) -> InMemorySessionValue | None:
        return cls.storage.get(session_key(auth_provider.name, thread_id, profile))

    @classmethod
    def get_by_thread_id(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, thread_id: str, auth_provider: AuthProvider | None = None, **kwargs: Any
    ) -> list[InMemorySessionValue]:
        sessions = list(cls.storage.items())
        return [session for key, session in sessions if is_of_thread(key, thread_id, auth_provider)]

    @classmethod
    def set(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, auth_provider: AuthProvider, thread_id: str, profile: str, *args: Any, **kwargs: Any
    ) -> InMemorySessionValue:
        session = InMemorySessionValue.of(auth_provider, *args, **kwargs)
        cls.storage[session_key(auth_provider.name, thread_id, profile)] = session
        return session

    @classmethod
    def delete(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any
    ) -> bool:
        return cls.storage.pop(session_key(auth_provider.name, thread_id, profile), None) is not None


RedisSessionKey = str
RedisSessionValue = BaseSessionValue

_log = logging.getLogger("toolcrib")

_LEASE_TIMEOUT_S = 60.0


class RedisSessionStorage(SessionStorageInterface[RedisSessionKey, RedisSessionValue]):
    """Sessions in the server of *session_config*. Pending ones expire there by themselves."""

    def __init__(self, session_config: SessionConfigRedis | None = None) -> None:
        super().__init__()
        try:
            import redis
        except ModuleNotFoundError:
            raise SetupError(
                "Redis was chosen as the session store, but its package is missing: pip install 'toolcrib[redis]'"
            ) from None
        self.client: Any = redis.StrictRedis(**(session_config or SessionConfigRedis()).model_dump())
        self._fernet = _fernet(config().auth.auth_encryption_secret_key)

    @classmethod
    def session_storage_type(cls) -> SessionType:
        return SessionType.REDIS

    def get(self, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any) -> RedisSessionValue | None:
        return self._read(self.client.get(session_key(auth_provider.name, thread_id, profile)))

    def get_by_thread_id(
        self, thread_id: str, auth_provider: AuthProvider | None = None, **kwargs: Any
    ) -> list[RedisSessionValue]:
        keys = (key.decode() if isinstance(key, bytes) else key for key in self.client.scan_iter(match="*__*"))
        own = [key for key in keys if is_of_thread(key, thread_id, auth_provider)]
        sessions = map(self._read, self.client.mget(own) if own else [])
        return [session for session in sessions if session is not None]

    def set(
        self, auth_provider: AuthProvider, thread_id: str, profile: str, *args: Any, **kwargs: Any
    ) -> RedisSessionValue:
        session = RedisSessionValue.of(auth_provider, *args, **kwargs)
        lifetime_s = None if session.auth_resolve_uid is None else max(1, int(config().auth_timeout_s))
        content = self._fernet.encrypt(_to_json(session)) if self._fernet else _to_json(session)
        self.client.set(session_key(auth_provider.name, thread_id, profile), content, ex=lifetime_s)
        return session

    def delete(self, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any) -> bool:
        return bool(self.client.delete(session_key(auth_provider.name, thread_id, profile)))

    @asynccontextmanager
    async def alone(self, auth_provider: AuthProvider, thread_id: str, profile: str) -> AsyncGenerator[None]:
        """Hold this session alone, over all processes that share the server."""
        from redis.exceptions import LockError

        name = f"toolcrib:turn:{session_key(auth_provider.name, thread_id, profile)}"
        lock = self.client.lock(name, timeout=_LEASE_TIMEOUT_S, thread_local=False)
        while not lock.acquire(blocking=False):  # noqa: ASYNC110 - another process holds it
            await asyncio.sleep(POLL_INTERVAL_S)
        try:
            yield
        finally:
            with suppress(LockError):  # the lease has ended
                lock.release()

    def _read(self, content: str | bytes | None) -> RedisSessionValue | None:
        """Return the session in *content*. None for one that cannot be opened: the person is asked again."""
        if content is None or not self._fernet:
            return None if content is None else _from_json(content)
        from cryptography.fernet import InvalidToken

        try:
            return _from_json(self._fernet.decrypt(content))
        except InvalidToken:
            _log.warning("A session in Redis was not sealed with the key of these settings; it is ignored")
            return None


def _fernet(key: str | None) -> Any:
    if not key:
        return None
    from cryptography.fernet import Fernet

    try:
        return Fernet(key)
    except ValueError:
        raise SetupError(
            "'auth_encryption_secret_key' in [auth] must be 32 bytes in URL-safe Base64: Fernet.generate_key()."
        ) from None


def _to_json(session: BaseSessionValue) -> bytes:
    context = session.auth_context
    data: dict[str, Any] = session.model_dump(exclude={"auth_context"})
    data["auth_scopes"] = None if session.auth_scopes is None else sorted(session.auth_scopes)
    data["auth_context_value"] = None if context is None else context.model_dump(mode="json", warnings=False)
    data["auth_context_type"] = None if context is None else type(context).__name__
    return json.dumps(data).encode()


def _from_json(content: str | bytes) -> RedisSessionValue:
    data = json.loads(content)
    name, value = (data.pop(f"auth_context_{key}", None) for key in ("type", "value"))
    context = None if name is None else _context_class(name).model_validate(value)
    return RedisSessionValue(**data, auth_context=context)


def _context_class(name: str) -> type[AuthContext]:
    """Return the context *name* of the catalogue or of the program. Nothing is imported for it."""
    classes = {context.__name__: context for context in _subclasses(AuthContext)} | auth.AUTH_CONTEXT_MAP
    if name not in classes:
        raise SetupError(f"A stored session has a context '{name}', which this program does not have.")
    return classes[name]


def _subclasses(base: Any) -> list[type[AuthContext]]:
    return [context for child in base.__subclasses__() for context in (child, *_subclasses(child))]


SESSION_STORAGE_LIST: list[type[SessionStorageInterface[Any, Any]]] = [InMemorySessionStorage, RedisSessionStorage]


def open_storage(settings: SessionConfig) -> SessionStorageInterface[Any, Any]:
    """Return the storage that the settings name."""
    if settings.session_type is SessionType.REDIS:
        return RedisSessionStorage(settings.redis)
    return InMemorySessionStorage(settings.in_memory)


also_as(__name__, "in_memory", "interface", "redis")
