"""Folders of the user's cache that only the user can write to: what is in them is run.

Each has entries, files or folders, which are made again where they are missing. What was not used for long is removed,
and the least recently used where they are too large together; no folder that a process has in use. An entry's own time
of change is when it was last used.
"""

import os
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..machinery import raise_missing_extra

LIMITS = {"wasm": 2**30, "git": 2**30, "environments": 4 * 2**30, "python": 2**30}
"""The folders of the cache, and how many bytes each may have."""

_MAX_UNUSED_S = 90 * 86_400.0
_MIN_KEPT_S = 3600.0
"""What was used so lately is not removed for its size, nor as half made: it may be on its way to be used."""

_open_files: dict[Path, int] = {}
"""Of each folder that this process uses the open file by which others see that."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One *path* in a folder of the cache: how large it is, and when it was last used, in seconds since 1970."""

    path: Path
    size_bytes: int
    used_at_s: float


def private_folder(name: str) -> Path | None:
    """Return the folder *name* of our cache, made if it is not there; None where others could have written to it."""
    folder = cache_folder(name)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return folder if is_ours else None


def cache_folder(name: str) -> Path:
    """Return where the folder *name* of our cache is."""
    try:
        from platformdirs import user_cache_path
    except ModuleNotFoundError as missing:
        raise_missing_extra(missing, "The cache of the sandbox needs", "sandbox")
    return user_cache_path("toolcrib") / name


def touch(entry: Path) -> None:
    """Note that *entry* is used now."""
    with suppress(OSError):
        os.utime(entry, follow_symlinks=False)


def hold(folder: Path) -> bool:
    """Keep *folder*, an entry, from being removed while this process lives. False where it is not there."""
    import fcntl  # not on every system

    while True:
        try:
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return False
        with suppress(OSError):  # where a file system has no locks, nothing is removed
            fcntl.flock(file, fcntl.LOCK_SH)
        if _is_at(file, folder):
            touch(folder)
            if (before := _open_files.get(folder)) is not None:
                os.close(before)
            _open_files[folder] = file
            return True
        os.close(file)  # it was removed meanwhile, and perhaps made again


def entries(name: str) -> list[Entry]:
    """Return what is in the folder *name* of our cache, the most recently used first."""
    all_entries: list[Entry] = []
    with suppress(OSError), os.scandir(cache_folder(name)) as items:
        for item in items:
            with suppress(OSError):  # removed meanwhile
                status = item.stat(follow_symlinks=False)
                if not item.name.endswith(".lock"):  # held while an entry is made
                    size = size_of(Path(item)) if stat.S_ISDIR(status.st_mode) else status.st_size
                    all_entries.append(Entry(Path(item), size, status.st_mtime))
    return sorted(all_entries, key=lambda entry: -entry.used_at_s)


def trim(name: str) -> None:
    """Remove from the folder *name* what was not used for long, and the least recently used above its limit."""
    now, total = time.time(), 0
    for entry in entries(name):
        total += entry.size_bytes
        unused_s = now - entry.used_at_s
        most_s = _MIN_KEPT_S if _is_temporary(entry.path) else _MAX_UNUSED_S
        if unused_s > most_s or (total > LIMITS[name] and unused_s > _MIN_KEPT_S):
            remove(entry.path)


def clear(name: str) -> tuple[int, int]:
    """Remove from the folder *name* whatever is not in use: how many entries that were, and how many bytes."""
    lately = time.time() - _MIN_KEPT_S
    unused = [entry for entry in entries(name) if not _is_temporary(entry.path) or entry.used_at_s < lately]
    sizes = [entry.size_bytes for entry in unused if remove(entry.path)]
    return len(sizes), sum(sizes)


def remove(entry: Path) -> bool:
    """Remove *entry*; False where it is a folder in use, or cannot be removed."""
    import fcntl

    try:
        if not stat.S_ISDIR(entry.lstat().st_mode):
            entry.unlink()
            return True
        file = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        aside = entry.with_name(f".removed-{os.getpid()}-{entry.name}")
        if not _is_at(file, entry):
            return False
        entry.rename(aside)  # at once, so that no process finds half of it
    except OSError:
        return False
    finally:
        os.close(file)
    shutil.rmtree(aside, ignore_errors=True)
    return True


def size_of(folder: Path) -> int:
    """Return how many bytes all files in *folder* have."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118
    return total


def _is_temporary(entry: Path) -> bool:
    """Return whether it is something half made, of a process that perhaps died over it."""
    return entry.name.startswith((".", "tmp"))


def _is_at(opened: int, path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return os.path.samestat(os.fstat(opened), status)
