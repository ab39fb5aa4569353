"""Sources as a lock file has them: at their commit, with their content, and the tools that were accepted."""

from pathlib import Path
from typing import Any

from ..core import LoadError
from ..tools import LoadProblem, Permissions
from ..tools.loading import Loaded
from ..tools.lock import Lock, LockedSource, read_lock
from ..tools.permissions import Permitted
from ..tools.remote import MCPSource
from .views import View


def lock_in(file: str | Path) -> Lock:
    """Return what is in *file*. Raises LoadError; also where there is no such file."""
    lock = read_lock(Path(file))
    if lock is None:
        raise LoadError(f"There is no lock file {file}. Write it, in its folder: toolcrib lock SOURCE...")
    return lock


def pinned(source: Any, lock: Lock) -> tuple[Any, LockedSource | None]:
    """Return *source* as it was locked, for `load`, and what was locked of it. Raises LoadError as `Lock.pinned` does.

    What is not text, nor a path or a server, is as it was given.
    """
    target, permissions = source, Permissions()
    if isinstance(source, Permitted):
        target, permissions = source.source, source.permissions
    if isinstance(target, Path):
        target = str(target)
    if not isinstance(target, str | MCPSource) or hasattr(target, "__toolcrib__"):
        return source, None
    return permissions.to(lock.pinned(target)), lock.find(target)


def accepted(offered: Any, loaded: Loaded, locked: LockedSource | None, name: str) -> tuple[Any, list[LoadProblem]]:
    """Return *offered*, what *loaded* of the source *name* offers, without what was not accepted, and the problems."""
    if locked is None:
        return offered, []
    source: Any = loaded.source
    if getattr(source, "listed_at_start", False):
        source.hold = locked.held
        return offered, []
    return View(name, (offered,), locked.accepted), locked.problems(loaded.tools)
