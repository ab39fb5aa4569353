"""`hyperpocket.session.in_memory`: sessions of this process. `InMemorySessionStorage.storage` has all of them."""

import threading
from typing import Any, ClassVar

from ..auth.context import AuthContext
from ..auth.provider import AuthProvider
from ..config.session import SessionConfigInMemory, SessionType
from .interface import BaseSessionValue, SessionStorageInterface, is_of_thread, session_key

InMemorySessionKey = str
InMemorySessionValue = BaseSessionValue

_lock = threading.RLock()


class InMemorySessionStorage(SessionStorageInterface[InMemorySessionKey, InMemorySessionValue]):
    """Sessions in `storage`, which all of this class share: `storage.clear()` ends every session.

    So its methods are of the class: programs call them without an instance.
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
        with _lock:
            sessions = list(cls.storage.items())
        return [session for key, session in sessions if is_of_thread(key, thread_id, auth_provider)]

    @classmethod
    def set(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls,
        auth_provider: AuthProvider,
        thread_id: str,
        profile: str,
        auth_scopes: list[str],
        auth_resolve_uid: str | None,
        auth_context: AuthContext | None,
        is_auth_scope_universal: bool,
        **kwargs: Any,
    ) -> InMemorySessionValue:
        session = InMemorySessionValue.of(
            auth_provider, auth_scopes, auth_resolve_uid, auth_context, is_auth_scope_universal
        )
        with _lock:
            cls.storage[session_key(auth_provider.name, thread_id, profile)] = session
        return session

    @classmethod
    def delete(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, auth_provider: AuthProvider, thread_id: str, profile: str, **kwargs: Any
    ) -> bool:
        with _lock:
            return cls.storage.pop(session_key(auth_provider.name, thread_id, profile), None) is not None
