"""`hyperpocket.session.redis`: sessions in Redis, for all processes that use it. Needs the extra `redis`.

A session is JSON. With `auth_encryption_secret_key` in `[auth]`, it is sealed with that key (Fernet).
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from ....core import SetupError
from .. import auth
from ..auth.context import AuthContext
from ..auth.provider import AuthProvider
from ..config.session import SessionConfigRedis, SessionType
from ..config.settings import config
from .interface import POLL_INTERVAL_S, BaseSessionValue, SessionStorageInterface, is_of_thread, session_key

RedisSessionKey = str
RedisSessionValue = BaseSessionValue

_log = logging.getLogger("toolcrib")

_LEASE_TIMEOUT_S = 60.0
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]^"})


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
        pattern = session_key("P", thread_id, "P").translate(_GLOB)[1:-1]
        name = "*" if auth_provider is None else auth_provider.name
        # The pattern matches too much: another thread's name may end in this one. The key itself says whose it is.
        keys = [
            key
            for key in self.client.scan_iter(match=f"{name}{pattern}*")
            if is_of_thread(key.decode() if isinstance(key, bytes) else key, thread_id, auth_provider)
        ]
        sessions = map(self._read, self.client.mget(keys) if keys else [])
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
    data["auth_context_module"] = None if context is None else type(context).__module__
    return json.dumps(data).encode()


def _from_json(content: str | bytes) -> RedisSessionValue:
    data = json.loads(content)
    # hyperpocket wrote no module.
    name, module, value = (data.pop(f"auth_context_{key}", None) for key in ("type", "module", "value"))
    context = None if name is None else _context_class(name, module).model_validate(value)
    return RedisSessionValue(**data, auth_context=context)


def _context_class(name: str, module: str | None) -> type[AuthContext]:
    """Return the context *name* of *module*, of the catalogue or of the program. Nothing is imported for it."""
    known = [*auth.AUTH_CONTEXT_MAP.values(), *_subclasses(AuthContext)]
    named = [context for context in known if context.__name__ == name]
    match = next((context for context in named if context.__module__ == module), named[0] if named else None)
    if match is None:
        raise SetupError(f"A stored session has a context '{name}', which this program does not have.")
    return match


def _subclasses(base: Any) -> list[type[AuthContext]]:
    return [context for child in base.__subclasses__() for context in (child, *_subclasses(child))]
