"""`hyperpocket.repository.lockfile`: `pocket.lock`, which pins where tools come from, one lock a line."""

import os
import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from .lock import GitLock, LocalLock, Lock

_MOST_BYTES = 1024**2
_THREADS = 10
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
        self._guard = threading.Lock()
        self._syncing: dict[tuple[str, ...], threading.Lock] = {}
        self._synced: set[tuple[str, ...]] = set()
        for number, line in enumerate(_lines_of(self.path), 1):
            if not line.strip():
                continue
            lock = _read(line, f"{self.path}:{number}")
            if lock.key() in self.locks:
                raise ValueError(f"{self.path}:{number}: this is locked above, too. Keep one of the lines.")
            self.locks[lock.key()] = lock

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
        what the others found is written all the same.
        """
        keys = self.referenced_locks if referenced_only else set(self.locks)
        try:
            self._sync([self.locks[key] for key in self.locks if key in keys], force_update)
        finally:
            self.write()

    def sync_once(self, lock: Lock, force_update: bool = False) -> None:
        """Add *lock*, and have it in place; once, however many threads ask for it."""
        key = lock.key()
        with self._guard:
            self.add_lock(lock)
            syncing = self._syncing.setdefault(key, threading.Lock())
        with syncing:
            if key not in self._synced:
                self.get_lock(key).sync(force_update=force_update)
                self._synced.add(key)

    def _sync(self, locks: Iterable[Lock], force_update: bool) -> None:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="repository-loader") as threads:
            for done in [threads.submit(lock.sync, force_update=force_update) for lock in locks]:
                done.result()

    def write(self) -> None:
        """Write the locks into the file, all at once: nobody reads half of it. A file that has them stays as it is."""
        text = "".join(f"{lock}\n" for lock in self.locks.values())
        with suppress(OSError, UnicodeDecodeError):
            if self.path.read_text("utf-8") == text:
                return
        with NamedTemporaryFile("w", encoding="utf-8", newline="\n", dir=self.path.parent, delete=False) as made:
            made.write(text)
        Path(made.name).replace(self.path)


def _lines_of(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES // 1024**2} MiB")
        return content.decode("utf-8-sig").split("\n")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not a lock file: it is not UTF-8 text.") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def _read(line: str, place: str) -> Lock:
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
