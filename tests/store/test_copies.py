"""Copies of a store: consistent while others write, for their owner alone, put back where no process has it open."""

import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from toolcrib import Pending, SetupError
from toolcrib.core import StoreError
from toolcrib.store import Store
from toolcrib.store.copies import back_up, restore

from .conftest import StartWorker, let_go, mode

NOW = datetime.fromtimestamp(1000, UTC)


def ignore(done: int, total: int) -> None:
    """Shows nothing."""


async def put(store: Store, name: str) -> None:
    pending = Pending(name, "approval", "?", name, "pay", name, "t", NOW + timedelta(seconds=60))
    await store.pendings.open(pending, now=NOW)


async def names(store: Store) -> list[str]:
    return [item.id for item in await store.pendings.waiting(now=NOW)]


async def test_a_copy_opens_with_the_keys_beside_it_and_both_are_for_their_owner(tmp_path: Path) -> None:
    store, file = Store(tmp_path / "store.db"), tmp_path / "copy.db"
    await put(store, "one")
    seen: list[tuple[int, int]] = []
    assert back_up(store, file, lambda done, total: seen.append((done, total))) == tmp_path / "copy.key"
    assert seen[-1][0] == seen[-1][1] > 0
    assert (mode(file), mode(tmp_path / "copy.key")) == (0o600, 0o600)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("store")) == [
        "copy.db",
        "copy.key",
    ]
    await put(store, "two")
    copy = Store(file)
    assert (await names(copy), await names(store)) == (["one"], ["one", "two"])
    copy.close()
    store.close()


async def test_nothing_is_written_over(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    await put(store, "one")
    for there in ("a.db", "a.key"):
        (tmp_path / there).write_text("mine")
        with pytest.raises(StoreError, match=f"{there} is there already"):
            back_up(store, tmp_path / "a.db", ignore)
        (tmp_path / there).unlink()
    (tmp_path / "a.db").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="is there already"):
        back_up(store, tmp_path / "a.db", ignore)
    with pytest.raises(SetupError, match="give the database another one"):
        back_up(store, tmp_path / "b.key", ignore)
    with pytest.raises(StoreError, match="cannot be written"):
        back_up(store, tmp_path / "no" / "b.db", ignore)
    with pytest.raises(StoreError, match="There is no store at"):
        back_up(Store(tmp_path / "none.db"), tmp_path / "b.db", ignore)
    assert not (tmp_path / "none.db").exists()
    store.close()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_copy_is_of_one_moment_while_another_process_writes(tmp_path: Path, start: StartWorker) -> None:
    """Also where the copy takes many steps: a copy by steps alone would begin again with each write, and never end."""
    store = Store(tmp_path / "store.db")
    blob = text("INSERT INTO toolcrib_leases VALUES (hex(zeroblob(3000000)) || :n, 'x', 1, 1)")
    await put(store, "first")
    for number in range(4):
        await store.transact(lambda connection, number=number: connection.execute(blob, {"n": number}).rowcount)
    worker = start("write", "w")
    let_go(worker)
    assert worker.stdout.readline() == "0\n"
    steps: list[int] = []

    def step(done: int, total: int) -> None:
        assert worker.stdout.readline()  # written since the last step
        steps.append(total)

    back_up(store, tmp_path / "copy.db", step)
    assert len(steps) > 2
    assert len({*steps}) == 1
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        count, last = copy.execute("SELECT count(*), max(number) FROM toolcrib_pendings").fetchone()
    assert count == last  # none is missing in between
    store.close()


async def test_a_copy_is_put_back_with_its_keys_where_nobody_has_the_store_open(tmp_path: Path) -> None:
    store, file = Store(tmp_path / "store.db"), tmp_path / "copy.db"
    await put(store, "one")
    back_up(store, file, ignore)
    await put(store, "two")
    await store.rotate_key()
    first = (tmp_path / "copy.key").read_text()
    with pytest.raises(StoreError, match=r"There is a store at .* --replace"):
        restore(store, file, ignore)
    with pytest.raises(StoreError, match=r"is in use. Stop every process"):
        restore(store, file, ignore, replace=True)
    assert await names(store) == ["one", "two"]
    store.close()
    assert restore(store, file, ignore, replace=True) == tmp_path / "store.key"
    assert await names(store) == ["one"]
    assert (tmp_path / "store.key").read_text().split()[1:] == first.split()
    store.close()
    # On another machine, whose key file is not there, or has others.
    for name, keys in (("new", None), ("other", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")):
        folder = tmp_path / name
        folder.mkdir()
        if keys is not None:
            (folder / "store.key").write_text(keys)
            (folder / "store.key").chmod(0o600)
        other = Store(folder / "store.db")
        restore(other, file, ignore)
        assert (await names(other), mode(folder / "store.db"), mode(folder / "store.key")) == (["one"], 0o600, 0o600)
        other.close()
        restore(other, file, ignore, replace=True)
        assert len((folder / "store.key").read_text().split()) == (1 if keys is None else 2)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_store_that_another_process_has_open_is_not_replaced(tmp_path: Path, start: StartWorker) -> None:
    store, file = Store(tmp_path / "store.db"), tmp_path / "copy.db"
    await put(store, "one")
    back_up(store, file, ignore)
    store.close()
    worker = start("hold", "me")
    let_go(worker)
    assert worker.stdout.readline() == "True\n"
    with pytest.raises(StoreError, match="is in use"):
        restore(store, file, ignore, replace=True)
    worker.kill()
    worker.communicate()
    restore(store, file, ignore, replace=True)
    assert await names(store) == ["one"]
    store.close()


async def test_what_is_not_a_store_or_newer_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    store, file = Store(tmp_path / "store.db"), tmp_path / "copy.db"
    await put(store, "one")
    back_up(store, file, ignore)
    store.close()
    for name, content in (("text.db", b"not a database" * 1000), ("empty.db", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(StoreError, match=r"not a database|is not a store of Toolcrib"):
            restore(store, tmp_path / name, ignore, replace=True)
    for path, message in ((tmp_path / "none.db", "There is no file"), (tmp_path / "store.db", "is the store itself")):
        with pytest.raises(StoreError, match=message):
            restore(store, path, ignore, replace=True)
    damaged = shutil.copy(file, tmp_path / "damaged.db")
    with damaged.open("r+b") as pages:
        pages.seek(4096 * 2)
        pages.write(os.urandom(4096 * 4))
    with pytest.raises(StoreError, match="damaged"):
        restore(store, damaged, ignore, replace=True)
    raised = "UPDATE toolcrib_versions SET version = version + 1"
    newer = shutil.copy(file, tmp_path / "newer.db")
    with closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute(raised)
    with pytest.raises(StoreError, match=r"newer\.db is of a newer Toolcrib"):
        restore(store, newer, ignore, replace=True)
    assert await names(store) == ["one"]
    store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute(raised)
    with pytest.raises(StoreError, match=r"is newer than .*copy.db: its 'store' tables were migrated since"):
        restore(store, file, ignore, replace=True)


@pytest.mark.full
async def test_of_postgresql_the_keys_are_copied_and_the_tools_are_named(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file = Store(postgres, key=tmp_path / "store.key"), tmp_path / "copy.db"
    with pytest.raises(StoreError, match=r"the database was not copied.* pg_dump --format=custom") as refused:
        back_up(store, file, ignore)
    assert "password" not in str(refused.value)
    assert ((tmp_path / "copy.key").read_text(), file.exists()) == ((tmp_path / "store.key").read_text(), False)
    (tmp_path / "store.key").unlink()
    with pytest.raises(StoreError, match=r"pg_restore .* The keys of .* were added"):
        restore(store, file, ignore)
    assert (tmp_path / "store.key").read_text() == (tmp_path / "copy.key").read_text()
    monkeypatch.setenv("TOOLCRIB_KEY", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")
    with pytest.raises(StoreError, match="The keys are in TOOLCRIB_KEY; the database was not copied"):
        back_up(Store(postgres), tmp_path / "again.db", ignore)


async def test_keys_that_are_not_in_a_file_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_KEY", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")
    store, file = Store(tmp_path / "store.db"), tmp_path / "copy.db"
    await put(store, "one")
    assert back_up(store, file, ignore) is None
    assert not (tmp_path / "copy.key").exists()
    store.close()
    assert restore(store, file, ignore, replace=True) is None
    assert await names(store) == ["one"]
    store.close()
    shutil.copy(file, tmp_path / "copy.key")
    with pytest.raises(SetupError, match="The keys come from TOOLCRIB_KEY"):
        restore(store, file, ignore, replace=True)
