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
from .._providers import module_name
from ..auth.context import AuthContext
from ..auth.provider import AuthProvider
from ..config.session import SessionConfigRedis, SessionType
from ..config.settings import config
from .interface import BaseSessionValue, SessionStorageInterface, is_of_thread, session_key

RedisSessionKey = str
RedisSessionValue = BaseSessionValue

_log = logging.getLogger("toolcrib")

_LEASE_S = 60.0
_LOOK_S = 0.05
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]^"})


class RedisSessionStorage(SessionStorageInterface[RedisSessionKey, RedisSessionValue]):
    """Sessions in the server of *session_config*. What is pending expires there by itself."""

    def __init__(self, session_config: SessionConfigRedis | None = None) -> None:
        super().__init__()
        try:
            import redis
        except ModuleNotFoundError:
            raise SetupError(
                "Redis was chosen as the session store, but its package is missing: pip install 'toolcrib[redis]'"
            ) from None
        options = (session_config or SessionConfigRedis()).model_dump()
        self.client: Any = redis.StrictRedis(**options)
        self._fernet = _fernet(config().auth.auth_encryption_secret_key)

    @classmethod
    def session_storage_type(cls) -> SessionType:
        return SessionType.REDIS

    def get(self, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any) -> RedisSessionValue | None:
        written = self.client.get(session_key(auth_provider.name, thread_id, profile))
        return None if written is None else self._read(written)

    def get_by_thread_id(
        self, thread_id: str, auth_provider: AuthProvider | None = None, **kwargs: Any
    ) -> list[RedisSessionValue]:
        pattern = session_key("P", thread_id, "P").translate(_GLOB)[1:-1]
        name = "*" if auth_provider is None else auth_provider.name
        # The pattern finds too much: another's thread may end in this one's name. The key itself says whose it is.
        found = [
            key
            for key in self.client.scan_iter(match=f"{name}{pattern}*")
            if is_of_thread(key.decode() if isinstance(key, bytes) else key, thread_id, auth_provider)
        ]
        sessions = [self._read(written) for written in self.client.mget(found) if written is not None] if found else []
        return [session for session in sessions if session is not None]

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
    ) -> RedisSessionValue:
        session = RedisSessionValue.of(
            auth_provider, auth_scopes, auth_resolve_uid, auth_context, is_auth_scope_universal
        )
        lives_s = None if auth_resolve_uid is None else max(1, int(config().auth_timeout_s))
        written = self._fernet.encrypt(_write(session)) if self._fernet else _write(session)
        self.client.set(session_key(auth_provider.name, thread_id, profile), written, ex=lives_s)
        return session

    def delete(self, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any) -> bool:
        return bool(self.client.delete(session_key(auth_provider.name, thread_id, profile)))

    @asynccontextmanager
    async def alone(self, auth_provider: AuthProvider, thread_id: str, profile: str) -> AsyncGenerator[None]:
        """One at a time for this session, over all processes that share the server."""
        from redis.exceptions import LockError

        name = f"toolcrib:turn:{session_key(auth_provider.name, thread_id, profile)}"
        lock = self.client.lock(name, timeout=_LEASE_S, thread_local=False)
        async with super().alone(auth_provider, thread_id, profile):
            while not lock.acquire(blocking=False):  # noqa: ASYNC110 - another process holds it
                await asyncio.sleep(_LOOK_S)
            try:
                yield
            finally:
                with suppress(LockError):  # its lease ended before
                    lock.release()

    def _read(self, written: str | bytes) -> RedisSessionValue | None:
        """The session that was *written*. None for one that cannot be opened: somebody is asked again."""
        if not self._fernet:
            return _read(written)
        from cryptography.fernet import InvalidToken

        try:
            return _read(self._fernet.decrypt(written))
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


def _write(session: BaseSessionValue) -> bytes:
    context = session.auth_context
    return json.dumps(
        {
            "auth_context_value": None if context is None else context.model_dump(mode="json", warnings=False),
            "auth_context_type": None if context is None else type(context).__name__,
            "auth_context_module": None if context is None else type(context).__module__,
            "auth_provider_name": session.auth_provider_name,
            "scoped": session.scoped,
            "auth_scopes": None if session.auth_scopes is None else sorted(session.auth_scopes),
            "auth_resolve_uid": session.auth_resolve_uid,
        }
    ).encode()


def _read(written: str | bytes) -> RedisSessionValue:
    data = json.loads(written)
    # Sessions that hyperpocket wrote have no module.
    name, module, value = (data.pop(f"auth_context_{key}", None) for key in ("type", "module", "value"))
    context = None if name is None else _context_class(name, module, data["auth_provider_name"]).model_validate(value)
    return RedisSessionValue(**data, auth_context=context)


def _context_class(name: str, module: str | None, provider: str) -> type[AuthContext]:
    """The context *name* of *module*: one of the catalogue's for *provider*, or a class of the program."""
    from ..auth import _catalogue, _models

    key = module_name(provider)
    kinds = _catalogue.entry_of(key).handlers if _catalogue.is_provider(key) else ()
    made = [*(_models.models_of(key, kind).kind_context for kind in kinds), *_below(AuthContext)]
    named = [context for context in made if context.__name__ == name]
    found = next((context for context in named if context.__module__ == module), named[0] if named else None)
    if found is None:
        raise SetupError(f"A stored session has a context '{name}', which this program does not have.")
    return found


def _below(base: Any) -> list[type[AuthContext]]:
    return [each for child in base.__subclasses__() for each in (child, *_below(child))]
