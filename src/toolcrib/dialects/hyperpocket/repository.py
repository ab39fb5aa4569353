"""`hyperpocket.repository`: where tools in folders and repositories come from, and the file that pins them."""

import abc
import os
import re
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from pydantic import BaseModel

from ...core import LoadError
from ...schema import display_name
from ...tools import GitSource, commit_of, fetch, parse_git_address
from .._modules import also_as


class Lock(BaseModel, abc.ABC):
    """Where tools come from. `str(lock)` is its line in the lock file."""

    tool_source: str

    @abc.abstractmethod
    def __str__(self) -> str:
        raise NotImplementedError

    @abc.abstractmethod
    def key(self) -> tuple[str, ...]:
        """Return what tells it from others in a lock file."""
        raise NotImplementedError

    @abc.abstractmethod
    def sync(self, force_update: bool = False, **kwargs: Any) -> None:
        """Have it in place."""
        raise NotImplementedError

    @abc.abstractmethod
    def toolpkg_path(self) -> Path:
        """Return the folder in which it is, once it is in place."""
        raise NotImplementedError

    def folder(self, rel_path: str) -> Path:
        """Return the folder *rel_path* of it. Raises ValueError where that is not a folder in it."""
        root = self.toolpkg_path().resolve()
        folder = (root / rel_path).resolve()
        if not folder.is_relative_to(root):
            raise ValueError(f"{rel_path[:200]!r} is not inside of {root}. Name the tool's folder in it.")
        if not folder.is_dir():
            raise ValueError(f"There is no folder {rel_path[:200]!r} in {root}, from which a tool is to be loaded.")
        return folder


class LocalLock(Lock):
    """A folder of this machine: used where it is, and as it is."""

    tool_source: str = "local"
    tool_path: str

    def __init__(self, tool_path: str) -> None:
        values: dict[str, Any] = {"tool_path": str(Path(tool_path).expanduser().resolve())}
        super().__init__(**values)

    def __str__(self) -> str:
        return f"local\t{self.tool_path}"

    def key(self) -> tuple[str, ...]:
        return self.tool_source, self.tool_path

    def sync(self, force_update: bool = False, **kwargs: Any) -> None:
        """Check that it is there. Raises ValueError."""
        if not Path(self.tool_path).is_dir():
            raise ValueError(f"There is no folder {self.tool_path}, from which a tool is to be loaded.")

    def toolpkg_path(self) -> Path:
        return Path(self.tool_path)


class GitLock(Lock):
    """A git repository at *git_ref*: a branch, a tag, or HEAD. `ref_sha` is its commit, once it is in place."""

    tool_source: str = "git"
    repository_url: str
    git_ref: str
    ref_sha: str | None = None

    def __str__(self) -> str:
        return f"git\t{self.repository_url}\t{self.git_ref}\t{self.ref_sha}"

    def key(self) -> tuple[str, ...]:
        return self.tool_source, self.repository_url.rstrip("/"), self.git_ref

    def sync(self, force_update: bool = False, **kwargs: Any) -> None:
        """Find the commit of `git_ref`, unless it is known; with *force_update*, again. Raises LoadError."""
        if self.ref_sha is None or force_update:
            self.ref_sha = commit_of(self._address(""))

    def toolpkg_path(self) -> Path:
        return self.folder("")

    def folder(self, rel_path: str) -> Path:
        """Return the folder *rel_path* of its commit, which is fetched alone, once. Raises ValueError and LoadError."""
        if self.ref_sha is None:
            raise ValueError(f"{self.repository_url} is not in place: sync its lock first.")
        return fetch(GitSource(self._address(rel_path), self.ref_sha)).path

    def _address(self, folder: str) -> Any:
        url = self.repository_url
        address = parse_git_address(f"git+{url}@{self.git_ref}#{folder}")
        if (address.repository, address.ref) != (url, self.git_ref):  # an `@` or `#` in either
            raise LoadError(f"'{display_name(url)}' and '{display_name(self.git_ref)}' are not a repository and a ref.")
        return address


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
        text = self.path.read_text("utf-8-sig") if self.path.exists() else ""
        for number, line in enumerate(text.split("\n"), 1):
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

        A ref that has its commit keeps it, unless *force_update*. Raises what a lock that cannot be had raises.
        """
        try:
            for key, lock in self.locks.items():
                if not referenced_only or key in self.referenced_locks:
                    lock.sync(force_update=force_update)
        finally:
            self.write()

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


def _lock_of(line: str, place: str) -> Lock:
    match line.rstrip("\r").split("\t"):
        case ["local", path] if path:
            return LocalLock(path)
        case ["git", url, ref, commit] if url and ref and (commit == "None" or _COMMIT.fullmatch(commit)):
            return GitLock(repository_url=url, git_ref=ref, ref_sha=None if commit == "None" else commit)
        case [source, *_] if source not in ("local", "git"):
            raise ValueError(f"{place}: Unknown tool source: {source[:80]!r}. A line begins with local or git.")
        case _:
            raise ValueError(
                f"{place}: expected 'local', a tab and a path, or 'git', URL, ref and commit with tabs between them."
            )


also_as(__name__, "lock", "lockfile", "tool_reference")
