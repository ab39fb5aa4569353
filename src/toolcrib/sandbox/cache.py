"""Folders of the user's cache that nobody else can write to: what is in them is run."""

import os
import stat
from pathlib import Path


def private_folder(name: str) -> Path | None:
    """The folder *name* of our cache, made if it is not there; None where nobody can vouch for it."""
    folder = cache_folder(name)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        seen = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077
    return folder if is_ours else None


def cache_folder(name: str) -> Path:
    """Where the folder *name* of our cache is."""
    from platformdirs import user_cache_path

    return user_cache_path("toolcrib") / name
