"""`hyperpocket.repository.lock`: where one or more tools come from, a folder or a commit of a git repository."""

import abc
from pathlib import Path
from typing import Any

from pydantic import BaseModel, field_validator

from ....core import LoadError
from ....schema import display_name
from ....tools import GitSource, commit_of, fetch, parse_git_address


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
        folder = None if "\0" in rel_path else (root / rel_path).resolve()
        if folder is None or not folder.is_relative_to(root):
            raise ValueError(f"{rel_path[:200]!r} is not inside of {root}. Name the tool's folder in it.")
        if not folder.is_dir():
            raise ValueError(f"There is no folder {rel_path[:200]!r} in {root}, from which a tool is to be loaded.")
        return folder

    @field_validator("*")
    @classmethod
    def _fits_a_line(cls, value: Any) -> Any:
        if isinstance(value, str) and any(character in value for character in "\t\n\r\0"):
            raise ValueError("a tab, a line break or a NUL cannot be in a lock file")
        return value


class LocalLock(Lock):
    """A folder of this machine: used where it is, and as it is."""

    tool_source: str = "local"
    tool_path: str

    def __init__(self, tool_path: str) -> None:
        if "\0" in tool_path:
            raise ValueError("The path of a tool has a NUL in it.")
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
