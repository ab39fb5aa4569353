"""`hyperpocket.session.in_memory`: sessions of this process. `InMemorySessionStorage.storage` has all of them."""

from typing import Any, ClassVar

from ..auth.provider import AuthProvider
from ..config.session import SessionConfigInMemory, SessionType
from .interface import BaseSessionValue, SessionStorageInterface, is_of_thread, session_key

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
