"""`hyperpocket.session`: sessions in memory or in Redis."""

from typing import Any

from ..config.session import SessionConfig, SessionType
from .in_memory import InMemorySessionStorage
from .interface import SessionStorageInterface
from .redis import RedisSessionStorage

__all__ = ["SESSION_STORAGE_LIST", "open_storage"]

SESSION_STORAGE_LIST: list[type[SessionStorageInterface[Any, Any]]] = [InMemorySessionStorage, RedisSessionStorage]


def open_storage(settings: SessionConfig) -> SessionStorageInterface[Any, Any]:
    """Return the storage that the settings name."""
    if settings.session_type is SessionType.REDIS:
        return RedisSessionStorage(settings.redis)
    return InMemorySessionStorage(settings.in_memory)
