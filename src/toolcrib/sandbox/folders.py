"""The content of a tool's folder, as a digest, and what in it cannot run in the sandbox. Nothing of it is imported."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from ..core import LoadError

_MAX_FILES = 10_000
_MAX_BYTES = 64 * 1024**2
_NATIVE = (".so", ".pyd", ".dylib", ".dll")


def folder_digest(folder: Path) -> str:
    """Return a digest of the names and the contents of everything in *folder*.

    Raises LoadError where it is too large, or has something else than files and folders of its own.
    """
    digest = hashlib.sha256()
    left = _MAX_BYTES
    try:
        for name, file in _files(folder):
            with file.open("rb") as stream:
                content = stream.read(left + 1)
            left -= len(content)
            if left < 0:
                raise LoadError(f"The folder {folder} has more than {_MAX_BYTES // 1024**2} MiB, which is the limit.")
            digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
    except OSError as error:
        raise LoadError(f"The folder {folder} cannot be read: {error.strerror}.") from None
    return digest.hexdigest()


def folder_stamp(folder: Path) -> str:
    """Return what is another when a file in *folder* was changed since, without reading it."""
    try:
        stamps = [(name, *_stamp(file)) for name, file in _files(folder)]
    except OSError:
        return ""
    return hashlib.sha256(repr(stamps).encode()).hexdigest()


def native_code_in(folder: Path) -> str | None:
    """Return the name of a file in *folder* that has native code, which nothing runs in the sandbox.

    None without one.
    """
    return next((name for name, _ in _files(folder) if name.endswith(_NATIVE) or ".so." in name), None)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files in *folder*, in order. Raises LoadError for what is neither a file nor a folder, and links."""
    count = 0
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif entry.is_file(follow_symlinks=False):
                    count += 1
                    yield path.relative_to(folder).as_posix(), path
                else:
                    raise LoadError(f"{path} is a link or a device. A tool's folder has files and folders only.")
                if count > _MAX_FILES:
                    raise LoadError(f"The folder {folder} has more than {_MAX_FILES} files, which is the limit.")


def _stamp(file: Path) -> tuple[int, ...]:
    status = file.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
