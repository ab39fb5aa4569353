"""Copies of a store in SQLite and of its keys: made while others write, put back where no process has it open."""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import SetupError, StoreError
from .database import error_as_store_error, make_file
from .keys import KeyFile

if TYPE_CHECKING:
    from .database import Database

_BATCH_PAGES = 2_000
"""How many pages are copied between two looks at the progress."""

Progress = Callable[[int, int], object]
"""Is called with the number of pages that are done, and of all."""


def back_up(store: "Database", file: Path, progress: Progress) -> Path | None:
    """Copy the database, as it is at one moment, to *file*, and the keys beside it. Both are for their owner alone.

    Return where the copy of the keys is; None where they are not in a file. Nothing is overwritten. Raises StoreError.
    """
    key_file = _key_file(file)
    for path in (file, key_file):
        if os.path.lexists(path):
            raise StoreError(f"{path} is there already, and no backup is written over it. Name another file.")
    if store.file is not None and not store.file.is_file():
        raise StoreError(f"There is no store at {store.place}.")
    if store.file is not None:
        with _new_file(file) as path, error_as_store_error(store.place), closing(_opened(store.file)) as source:
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from now on it sees this moment
            with closing(sqlite3.connect(path)) as target:
                source.backup(target, pages=_BATCH_PAGES, progress=lambda _, left, total: progress(total - left, total))
                target.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read where none can be made
    # After the database: a key that was added meanwhile is there.
    keys = store.keys.file
    if keys is not None:
        KeyFile(keys)()  # that it can be used, and is there
        with _new_file(key_file) as path:
            path.write_bytes(keys.read_bytes())
    if store.file is None:
        report = f"The keys were copied to {key_file}" if keys is not None else f"The keys are in {store.keys.place}"
        raise StoreError(
            f"{report}; the database was not copied. PostgreSQL has its own tool for that: "
            f"pg_dump --format=custom --file={file} {store.place}"
        )
    return None if keys is None else key_file


def restore(store: "Database", file: Path, progress: Progress, *, replace: bool = False) -> Path | None:
    """Put the copy in *file* in the place of the database, and add the keys beside it to those that are there.

    Return the file of the keys, if there was one. Raises StoreError where a store is there, unless with *replace*: then
    where any process has it open, or it is newer than the copy.
    """
    keys = _key_file(file)
    if store.file is None:
        note = "" if _add_keys(store, keys) is None else f" The keys of {keys} were added to {store.keys.place}."
        raise StoreError(f"PostgreSQL has its own tool for this: pg_restore --dbname={store.place} {file}.{note}")
    if not file.is_file():
        raise StoreError(f"There is no file {file}.")
    is_there = store.file.exists()
    if is_there and store.file.samefile(file):
        raise StoreError(f"{file} is the store itself.")
    with error_as_store_error(str(file)), closing(_opened(file, "ro")) as source:
        versions = _require_restorable(source, store, file)
        if is_there and not replace:
            raise StoreError(f"There is a store at {store.place}. Restore with --replace to lose what is in it.")
        with error_as_store_error(store.place):
            make_file(store.file)
            with closing(sqlite3.connect(store.file, timeout=0, isolation_level=None)) as target:
                if is_there:
                    _require_replaceable(target, store, file, versions)
                key_file = _add_keys(store, keys)
                source.backup(target, pages=_BATCH_PAGES, progress=lambda _, left, total: progress(total - left, total))
    return key_file


def _require_restorable(source: sqlite3.Connection, store: "Database", file: Path) -> dict[str, int]:
    """Return the versions of the tables in *file*."""
    versions = _versions(source, file)
    if any(versions.get(schema.room, 0) > len(schema.migrations) for schema in store.schemas):
        raise StoreError(f"{file} is of a newer Toolcrib. Update Toolcrib, then restore it.")
    if source.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise StoreError(f"{file} is damaged. Take another copy.")
    return versions


def _require_replaceable(target: sqlite3.Connection, store: "Database", file: Path, versions: dict[str, int]) -> None:
    target.execute("PRAGMA locking_mode = EXCLUSIVE")
    try:
        # Only a connection that is alone can leave the write-ahead log.
        is_alone = target.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete"
        target.execute("BEGIN EXCLUSIVE")
        target.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        is_alone = False
    if not is_alone:
        raise StoreError(f"The store {store.place} is in use. Stop every process that has it open, and try again.")
    for room, version in _versions(target, store.place, or_empty=True).items():
        if version > versions.get(room, 0):
            raise StoreError(
                f"The store {store.place} is newer than {file}: its '{room}' tables were migrated since. Move the "
                "store away first, to go back to the copy all the same."
            )


def _versions(connection: sqlite3.Connection, place: Any, *, or_empty: bool = False) -> dict[str, int]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "toolcrib_versions" not in tables:
        if or_empty and not tables:
            return {}
        raise StoreError(f"{place} is not a store of Toolcrib.")
    rows = connection.execute("SELECT room, version FROM toolcrib_versions")
    return {room: version for room, version in rows if isinstance(version, int)}


def _add_keys(store: "Database", file: Path) -> Path | None:
    """Add the keys in *file*, if it is there, to those of *store*. Return where they are."""
    if not file.is_file():
        return None
    if store.keys.file is None:
        raise SetupError(f"The keys come from {store.keys.place}: add those of {file} there, and move that file away.")
    KeyFile(store.keys.file).include(KeyFile(file))
    return store.keys.file


def _key_file(file: Path) -> Path:
    if file.suffix == ".key":
        raise SetupError("The copy of the keys is the file with the ending '.key': give the database another one.")
    return file.with_suffix(".key")


def _opened(file: Path, mode: str = "rw") -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=10)


@contextmanager
def _new_file(file: Path) -> Generator[Path]:
    """Give a path beside *file*, for its owner alone, which is *file* after the block. Raises StoreError where it is
    there by then.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent)  # with mode 0600
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror}.") from None
    os.close(descriptor)
    try:
        yield Path(name)
        with Path(name).open("rb") as copy:
            os.fsync(copy.fileno())
        os.link(name, file)
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror}.") from None
    finally:
        Path(name).unlink(missing_ok=True)
