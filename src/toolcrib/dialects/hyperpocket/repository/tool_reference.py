"""`hyperpocket.repository.tool_reference`: the locks, by their other address."""

from .lock import GitLock, LocalLock, Lock

__all__ = ["GitLock", "LocalLock", "Lock"]
