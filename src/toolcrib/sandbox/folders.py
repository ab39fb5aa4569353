"""The content of a file or a folder as one hash, and what in a tool's folder cannot run in the sandbox.

Nothing of a folder is imported.
"""

import hashlib
import os
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from ..core import LoadError

MAX_FILES = 10_000
MAX_BYTES = 64 * 1024**2
"""How much a folder of tools may have, of those that are fetched, locked or run in the sandbox."""

LOCK = "toolcrib.lock"

_LEFT_OUT = ("__pycache__", ".git")
_stamp = attrgetter("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
_NATIVE = (".so", ".pyd", ".dylib", ".dll")


def content_hash(path: Path) -> str:
    """Return the SHA-256 of the file or folder *path*. Caches of Python and git's own folder do not count.

    Raises LoadError for what cannot be read, and for a folder with more than a source may have.
    """
    if path.is_dir():
        files = _files(path, is_source=True)
        return _digest(path, [file for file in files if file != path / LOCK])  # it holds the hash
    if path.exists() and not path.is_file():  # reading a pipe would wait for its writer
        raise LoadError(f"{path} is not a file that can be read.")
    return _digest(path, [path])


def folder_digest(folder: Path) -> str:
    """Return a digest of the names and the contents of everything in *folder*.

    Raises LoadError where it is too large, or has something else than files and folders of its own.
    """
    return _digest(folder, _files(folder))


def folder_stamp(folder: Path) -> str:
    """Return what is another when a file in *folder* was changed since, without reading it."""
    try:
        stamps = [(str(file), *_stamp(file.lstat())) for file in _files(folder)]
    except OSError:
        return ""
    return hashlib.sha256(repr(stamps).encode("utf-8", "surrogateescape")).hexdigest()


def native_code_in(folder: Path) -> str | None:
    """Return the name of a file in *folder* that has native code, which nothing runs in the sandbox.

    None without one.
    """
    names = (file.relative_to(folder).as_posix() for file in _files(folder))
    return next((name for name in names if name.endswith(_NATIVE) or ".so." in name), None)


def _digest(path: Path, files: Iterator[Path] | list[Path]) -> str:
    digest = hashlib.sha256()
    size = 0
    try:
        for file in sorted(files):
            size += file.lstat().st_size
            if size > MAX_BYTES:
                raise LoadError(
                    f"{path} has more than {MAX_BYTES // 1024**2} MiB, which is the limit. Name a folder that has the "
                    "tools alone."
                )
            is_link = file.is_symlink()
            content = os.fsencode(file.readlink()) if is_link else file.read_bytes()
            if is_link and file.is_file():  # what is imported by it is what it leads to
                content += b"\0" + hashlib.sha256(file.read_bytes()).digest()
            name = "" if file == path else file.relative_to(path).as_posix()
            digest.update(f"{name}\0{'link' if is_link else 'file'}\0".encode(errors="surrogateescape"))
            digest.update(hashlib.sha256(content).digest())
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.hexdigest()


def _files(folder: Path, *, is_source: bool = False) -> Iterator[Path]:
    """Yield the files in *folder*, of a source with links, without caches. Raises LoadError for what else is in it."""
    count = 0
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    waiting += [] if is_source and entry.name in _LEFT_OUT else [Path(entry.path)]
                    continue
                if not (entry.is_file(follow_symlinks=False) or (is_source and entry.is_symlink())):
                    raise LoadError(f"{entry.path} is a link or a device. A tool's folder has files and folders only.")
                count += 1
                if count > MAX_FILES:
                    raise LoadError(
                        f"{folder} has more than {MAX_FILES} files, which is the limit. Name a folder that has the "
                        "tools alone."
                    )
                yield Path(entry.path)
