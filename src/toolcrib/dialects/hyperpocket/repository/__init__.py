"""`hyperpocket.repository`: where tools in folders and repositories come from, and the file that pins them."""

from .lock import GitLock, LocalLock, Lock
from .lockfile import Lockfile

__all__ = ["GitLock", "LocalLock", "Lock", "Lockfile"]
