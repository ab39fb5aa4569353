"""`hyperpocket.repository.lockfile`: `pocket.lock`, which pins where tools come from, one lock a line."""

import os
import re
from pathlib import Path
from tempfile import NamedTemporaryFile

from .lock import GitLock, LocalLock, Lock

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Lockfile:
    """The locks in the file *path*: `local`, a tab and a path, or `git`, URL, ref and commit with tabs between them.

    `write` makes the file; a missing one has no locks. Raises ValueError, with the line, for a damaged one.
    """

    path: Path
    locks: dict[tuple[str, ...], Lock]
    referenced_locks: set[tuple[str, ...]]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.locks = {}
        self.referenced_locks = set()
        self._synced: set[tuple[str, ...]] = set()
        for number, line in enumerate(self._read().split("\n"), 1):
            if line.strip():
                lock = _lock_of(line, f"{self.path}:{number}")
                if self.locks.setdefault(lock.key(), lock) is not lock:
                    raise ValueError(f"{self.path}:{number}: this is locked above, too. Keep one of the lines.")

    def add_lock(self, lock: Lock) -> None:
        """Add *lock*, and count it as referenced. One with the same key stays as it is, with its commit."""
        self.locks.setdefault(lock.key(), lock)
        self.referenced_locks.add(lock.key())

    def get_lock(self, key: tuple[str, ...]) -> Lock:
        """Return the lock of *key*, as `Lock.key` gives it. Raises KeyError."""
        return self.locks[key]

    def remove_lock(self, key: tuple[str, ...]) -> None:
        """Take the lock of *key* out. Raises KeyError."""
        self.locks.pop(key)
        self.referenced_locks.discard(key)

    def sync(self, force_update: bool = False, referenced_only: bool = False) -> None:
        """Have all locks in place, or those that were added, and write the file.

        A ref that has its commit keeps it, unless *force_update*. Raises what the first lock that cannot be had raises;
        the others are synced and written all the same.
        """
        errors: list[Exception] = []
        for key, lock in self.locks.items():
            if referenced_only and key not in self.referenced_locks:
                continue
            try:
                lock.sync(force_update=force_update)
            except Exception as error:
                errors.append(error)
        self.write()
        if errors:
            raise errors[0]

    def sync_once(self, lock: Lock, force_update: bool = False) -> None:
        """Add *lock*, and have it in place, once for this object."""
        self.add_lock(lock)
        if lock.key() not in self._synced:
            self.get_lock(lock.key()).sync(force_update=force_update)
            self._synced.add(lock.key())

    def write(self) -> None:
        """Write the file in one step, unless it has these locks already."""
        text = "".join(f"{lock}\n" for lock in self.locks.values())
        if self.path.exists() and self.path.read_bytes() == text.encode():
            return
        with NamedTemporaryFile("w", encoding="utf-8", newline="\n", dir=self.path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(self.path)

    def _read(self) -> str:
        try:
            return self.path.read_text("utf-8-sig")
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            raise ValueError(f"{self.path} is not a lock file: it is not UTF-8 text.") from None
        except OSError as error:
            raise ValueError(f"{self.path} cannot be read: {error.strerror}.") from None


def _lock_of(line: str, place: str) -> Lock:
    match line.rstrip("\r").split("\t"):
        case ["local", path] if path:
            return LocalLock(path)
        case ["git", url, ref, commit] if url and ref:
            if commit != "None" and not _COMMIT.fullmatch(commit):
                raise ValueError(f"{place}: '{commit[:80]}' is not a commit. Take the line out, and sync.")
            return GitLock(repository_url=url, git_ref=ref, ref_sha=None if commit == "None" else commit)
        case [source, *_] if source not in ("local", "git"):
            raise ValueError(f"{place}: Unknown tool source: {source[:80]!r}. A line begins with local or git.")
        case _:
            raise ValueError(
                f"{place}: expected 'local', a tab and a path, or 'git', URL, ref and commit with tabs between them."
            )
