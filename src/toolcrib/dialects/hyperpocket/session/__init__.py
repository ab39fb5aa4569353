"""`hyperpocket.session`: sessions in memory or in Redis."""

from typing import TYPE_CHECKING, Any

from ..config.session import SessionConfig, SessionType
from .interface import SessionStorageInterface

if TYPE_CHECKING:
    SESSION_STORAGE_LIST: list[type[SessionStorageInterface[Any, Any]]]

__all__ = ["SESSION_STORAGE_LIST", "open_storage"]


def open_storage(settings: SessionConfig) -> SessionStorageInterface[Any, Any]:
    """The storage that the settings name."""
    if settings.session_type is SessionType.REDIS:
        from .redis import RedisSessionStorage

        return RedisSessionStorage(settings.redis)
    from .in_memory import InMemorySessionStorage

    return InMemorySessionStorage(settings.in_memory)


def __getattr__(name: str) -> Any:
    if name == "SESSION_STORAGE_LIST":
        from .in_memory import InMemorySessionStorage
        from .redis import RedisSessionStorage

        return [InMemorySessionStorage, RedisSessionStorage]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
