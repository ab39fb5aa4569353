"""The content of a file or a folder as one hash: of all paths in it, and what is at each."""

import hashlib
import os
from pathlib import Path

from ..core import LoadError

MAX_FILES = 2000
MAX_BYTES = 64 * 1024**2
"""How much a source that is fetched or locked may have."""
MAX_TEXT_BYTES = 1024**2
"""How large a file of settings may be: a `tool.toml`, a schema, a client's list of servers."""

_LEFT_OUT = ("__pycache__", ".git")


def content_hash(path: Path) -> str:
    """Return the SHA-256 of the file or folder *path*. Caches of Python and git's own folder do not count.

    Raises LoadError for what cannot be read, and for a folder with more than a source may have.
    """
    digest = hashlib.sha256()
    count = size = 0
    try:
        for file in [path] if path.is_file() else _files_in(path):
            count, size = count + 1, size + file.lstat().st_size
            if count > MAX_FILES or size > MAX_BYTES:
                raise LoadError(
                    f"{path} has more than {MAX_FILES} files or {MAX_BYTES // 1024**2} MiB, so it cannot be locked. "
                    "Name a folder that has the tools alone."
                )
            is_link = file.is_symlink()
            content = os.fsencode(file.readlink()) if is_link else file.read_bytes()
            name = "" if file == path else file.relative_to(path).as_posix()
            digest.update(f"{name}\0{'link' if is_link else 'file'}\0".encode(errors="surrogateescape"))
            digest.update(hashlib.sha256(content).digest())
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.hexdigest()


def _files_in(folder: Path) -> list[Path]:
    files: list[Path] = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and name not in links)
        files += [Path(place) / name for name in (*names, *links)]
        if len(files) > MAX_FILES:
            break
    return sorted(files)


def bytes_of(file: Path, max_bytes: int) -> bytes:
    """Return what is in *file*. Raises LoadError where it cannot be read, or is larger than *max_bytes*."""
    try:
        if not file.is_file():
            raise LoadError(f"There is no file {file}.")
        with file.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it has no valid name'}."
        ) from None
    if len(content) > max_bytes:
        raise LoadError(f"{file} is larger than {max_bytes // 1024**2} MiB, which is the limit.")
    return content
