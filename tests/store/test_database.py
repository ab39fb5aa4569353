"""A database is opened when it is first needed; an error names what is wrong with it, and quotes nothing of it."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, select, text

from toolcrib import Approve, Pending, SetupError
from toolcrib.core import StoreError
from toolcrib.store import DatabasePendings, DatabaseResults, Leases, Store, database
from toolcrib.store.events import LOG
from toolcrib.store.tables import STORE, Schema, table

from .conftest import MakeStore, Race, StartWorker, execute, let_go, mode

NOW = datetime.fromtimestamp(1000, UTC)
VERSIONS = Path(__file__).with_name("versions")
NOTES = table("toolcrib_notes", "id", "text", key=("id",))
V1 = Schema("notes", [("CREATE TABLE toolcrib_notes (id BIGINT PRIMARY KEY)", "INSERT INTO toolcrib_notes VALUES (1)")])
V2 = Schema("notes", [*V1.migrations, ("ALTER TABLE toolcrib_notes ADD COLUMN text TEXT DEFAULT 'new'",)])


async def test_it_is_in_the_users_data_folder_and_theirs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TOOLCRIB_KEY", raising=False)
    store = Store()
    pendings = DatabasePendings(store)
    assert list(tmp_path.iterdir()) == []
    try:
        await pendings.waiting(now=NOW)
        store.keys.seal(b"")
        folder = Path(store.place).parent
        assert tmp_path in folder.parents
        assert mode(folder) == 0o700
        files = {file.name: mode(file) for file in folder.iterdir()}
        assert files == dict.fromkeys(("store.db", "store.db-shm", "store.db-wal", "store.key"), 0o600)
    finally:
        store.close()


@pytest.mark.full
async def test_a_database_in_postgresql_may_have_no_encoding_of_its_own(postgres: str, tmp_path: Path) -> None:
    # What PostgreSQL makes where the system has no locale.
    admin = create_engine(postgres.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        made = "CREATE DATABASE without_encoding TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(text(made))
    admin.dispose()
    store = Store(postgres.replace("/postgres?", "/without_encoding?"), key=tmp_path / "store.key")
    await DatabasePendings(store).open(replace(waiting("1"), message="Löschen?"), now=NOW)
    assert [each.message for each in await DatabasePendings(store).waiting(now=NOW)] == ["Löschen?"]
    store.close()


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("postgresql://u:canary@host/x", "postgresql://host/x"),
        ("postgres://u@host/x?password=canary", "postgresql://host/x"),
        ("postgresql:///x?host=/run&password=canary", "postgresql:///x"),
        ("sqlite:////tmp/x.db", "/tmp/x.db"),
        ("sqlite:///x.db", f"{Path.cwd()}/x.db"),
        ("~/x.db", "~/x.db"),
        (Path("x.db"), f"{Path.cwd()}/x.db"),
    ],
)
def test_a_store_shows_where_it_is_and_no_password(where: str | Path, place: str) -> None:
    assert repr(Store(where, key=list)) == f"<Store {Path(place).expanduser() if place[0] == '~' else place}>"


@pytest.mark.parametrize(
    "where",
    [
        *("mysql://user:canary@host/db", "sqlite://", "sqlite:///:memory:", "postgresql://u:canary@h:port/x"),
        *("x://canary", "a\0canary", "canary\ud800"),
    ],
)
def test_what_is_not_a_store_is_refused(where: str) -> None:
    with pytest.raises(SetupError) as refused:
        Store(where)
    assert "canary" not in str(refused.value)


@pytest.mark.full
async def test_a_server_that_cannot_be_reached_is_an_error_without_the_password(tmp_path: Path) -> None:
    store = Store("postgresql://u:canary@127.0.0.1:1/x?application_name=canary", key=tmp_path / "key")
    with pytest.raises(StoreError, match="cannot be reached") as failed:
        await DatabasePendings(store).waiting(now=NOW)
    store.close()
    assert "canary" not in repr(store) + "".join(traceback.format_exception(failed.value))


async def test_an_older_one_is_migrated_and_a_newer_one_refused(make_store: MakeStore) -> None:
    old, new, late = make_store(), make_store(), make_store()
    for store, schema in ((old, V1), (new, V2), (late, V1)):
        store.use(schema)
    statement = text("SELECT * FROM toolcrib_notes")
    assert [tuple(row.values()) for row in await old.read(statement)] == [(1,)]
    assert [tuple(row.values()) for row in await new.read(statement)] == [(1, "new")]
    with pytest.raises(StoreError, match="newer Toolcrib: its 'notes' tables are at version 2, and 1 is"):
        await late.read(statement)
    # Another room comes when it is first used.
    assert await DatabasePendings(new).waiting(now=NOW) == []
    with pytest.raises(SetupError, match="declared twice"):
        new.use(V1)


async def test_a_migration_by_a_newer_version_is_noticed_by_those_who_have_it_open(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions run side by side during an upgrade. That a third room goes on is not in the report of this fault."""
    monkeypatch.setattr(database, "_LOOK_INTERVAL_S", 0.0)
    old, new, other = make_store(), make_store(), make_store()
    old.use(V1)
    reads = text("SELECT * FROM toolcrib_notes")
    assert len(await old.read(reads)) == 1
    await DatabasePendings(other).waiting(now=NOW)
    new.use(V2)
    await new.read(reads)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"newer Toolcrib: .* Update Toolcrib, or use another store"):
            await old.read(reads)
        with pytest.raises(StoreError, match="newer Toolcrib"):
            await old.transact(lambda connection: connection.execute(reads).fetchall())
    assert await DatabasePendings(other).waiting(now=NOW) == []
    assert len(await new.read(reads)) == 1


def move(file: Path) -> None:
    for part in file.parent.glob("store.db*"):
        part.rename(part.with_name(f"old-{part.name}"))


def delete(file: Path) -> None:
    for part in file.parent.glob("store.db*"):
        part.unlink()


def replace_file(file: Path) -> None:
    copy = file.with_name("copy.db")
    with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    copy.replace(file)


@pytest.mark.parametrize("change", [move, delete, replace_file])
async def test_a_file_that_is_not_the_one_that_was_opened_is_noticed(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    """Who tidies the disk, or restores a copy. That the file comes back is not in the report of this fault."""
    file = tmp_path / "only" / "store.db"
    store, kept = Store(file), file.with_name("kept.db")
    pendings = DatabasePendings(store)
    await pendings.open(waiting("first"), now=NOW)
    kept.hardlink_to(file)
    change(file)
    before = file.exists()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"moved, deleted or replaced .* or restart this process"):
            await pendings.waiting(now=NOW)
        with pytest.raises(StoreError, match="moved, deleted or replaced"):
            await pendings.open(waiting("second"), now=NOW)
    assert file.exists() is before  # nothing is made in its place
    kept.replace(file)
    if change is move:
        for part in ("-wal", "-shm"):
            file.with_name(f"old-store.db{part}").rename(file.with_name(f"store.db{part}"))
    if change is not delete:
        assert [pending.id for pending in await pendings.waiting(now=NOW)] == ["first"]
    store.close()


async def test_a_migration_happens_whole_or_not_at_all(make_store: MakeStore) -> None:
    good, bad, better = make_store(), make_store(), make_store()
    good.use(V1)
    await good.read(select(NOTES.c.id))
    bad.use(Schema("notes", [*V1.migrations, (*V2.migrations[1], "SELECT nothing FROM nowhere")]))
    with pytest.raises(StoreError):
        await bad.read(select(NOTES.c.id))
    better.use(V2)
    assert len(await better.read(select(NOTES.c.text))) == 1


@pytest.mark.full
async def test_several_processes_migrate_at_once(race: Race, store: Store) -> None:
    opened = race(*(("acquire", f"owner-{number}") for number in range(8)))
    assert sorted(opened) == ["", "", "", "", "", "", "", "1"]
    rows = await store.transact(lambda c: c.execute(text("SELECT room, version FROM toolcrib_versions")).fetchall())
    assert {tuple(row) for row in rows} == {(schema.room, len(schema.migrations)) for schema in (STORE, LOG)}


@pytest.mark.parametrize("version", range(1, len(STORE.migrations) + 1))
async def test_a_file_of_every_version_opens(version: int, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.executescript((VERSIONS / f"store-{version}.sql").read_text())
    connection.close()
    store = Store(tmp_path / "store.db", key=lambda: [b"k" * 32])
    pendings, results = DatabasePendings(store), DatabaseResults(store, clock=lambda: NOW)
    try:
        assert [p.arguments for p in await pendings.waiting(now=NOW)] == ['{"to": "ann"}']
        taken = await pendings.take("d2", "approval", "", now=NOW)
        assert (taken.answer, taken.by) == (Approve(), "alice")
        found = await results.find("result_1", "bob", "t")
        assert [part.text for part in found.content] == ["all of it"]
        assert (found.stored_at, taken.pending.expires_at) == (NOW, datetime.fromtimestamp(2000, UTC))
        lease = await Leases(store).acquire("github", "me", for_s=1)
        assert lease.fence == 2
    finally:
        store.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(lambda old: b"this is not a database" * 500, "not a database", id="another file"),
        pytest.param(lambda old: old[:100] + b"\xff" * 5000 + old[5100:], "damaged", id="overwritten"),
        pytest.param(lambda old: old[: len(old) // 2], "damaged", id="torn"),
    ],
)
async def test_a_damaged_file_is_named(content: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = Store(file)
    for number in range(50):
        await DatabasePendings(store).open(waiting(str(number)), now=NOW)
    store.close()
    file.write_bytes(content(file.read_bytes()))
    with pytest.raises(StoreError) as failed:
        await DatabasePendings(store).waiting(now=NOW)
        await DatabasePendings(store).open(waiting("new"), now=NOW)
    store.close()
    assert str(file) in str(failed.value)
    assert message in str(failed.value)


def waiting(name: str) -> Pending:
    return Pending(name, "approval", "?", name, "pay", "bob", "t", datetime.fromtimestamp(2000, UTC), "x" * 500)


async def test_a_full_disk_loses_nothing_that_was_stored(sqlite_store: Store) -> None:
    pendings = DatabasePendings(sqlite_store)
    await pendings.open(waiting("first"), now=NOW)
    # There is one connection that writes.
    await sqlite_store.transact(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 20").fetchall())
    stored = ["first"]
    with pytest.raises(StoreError, match="the disk is full"):
        for number in range(1000):
            await pendings.open(waiting(str(number)), now=NOW)
            stored.append(str(number))
    assert [p.id for p in await pendings.waiting(now=NOW)] == stored
    await sqlite_store.transact(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 2000").fetchall())
    await pendings.open(waiting("last"), now=NOW)
    assert (await pendings.get("last")) is not None


READ_ONLY = """
import asyncio, os, sys
from datetime import datetime, UTC
from toolcrib.core import StoreError
from toolcrib.store import DatabasePendings, Leases, Store

async def use(file):
    store = Store(file, key=lambda: [b"k" * 32])
    try:
        print(len(await DatabasePendings(store).waiting(now=datetime.fromtimestamp(1000, UTC))))
        await Leases(store).acquire("a", "b", for_s=1)
    except StoreError as error:
        print(error)

asyncio.run(use(sys.argv[1]))  # imports what is imported late
if os.geteuid() == 0:
    os.setuid(65534)
asyncio.run(use(sys.argv[2]))
"""


async def test_a_read_only_file_is_named(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp())  # which another user can get to
    file = folder / "store.db"
    store = Store(file, key=lambda: [b"k" * 32])
    await DatabasePendings(store).open(waiting("1"), now=NOW)
    store.close()
    file.chmod(0o444)
    folder.chmod(0o555)
    try:
        command = [sys.executable, "-c", READ_ONLY, str(tmp_path / "other.db"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)
    assert done.stdout.splitlines()[0] == "0", done.stderr
    assert f"The store {file} cannot be used: it may not be written to" in done.stdout.splitlines()[-1]


async def test_a_process_that_is_killed_loses_only_what_it_had_not_stored(store: Store, start: StartWorker) -> None:
    process = start("write", "p")
    let_go(process)
    stored = [process.stdout.readline() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    stored += process.stdout.readlines()
    pendings = DatabasePendings(store)
    ids = [p.id for p in await pendings.waiting(now=NOW)]
    assert ids[: len(stored)] == [f"p-{int(number)}" for number in stored if number.endswith("\n")][: len(ids)]
    assert len(ids) - len(stored) in (0, 1)
    # In the middle of a transaction:
    process = start("write slowly")
    let_go(process)
    assert process.stdout.readline() == "deleted\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert [p.id for p in await pendings.waiting(now=NOW)] == ids
    assert await pendings.answer(ids[0], Approve(), by="alice", now=NOW)


async def test_an_error_quotes_neither_statement_nor_value(store: Store) -> None:
    store.use(V2)
    insert = NOTES.insert().values(id=7, text="canary")
    await store.transact(lambda connection: connection.execute(insert).rowcount)
    with pytest.raises(StoreError) as failed:
        await store.transact(lambda connection: connection.execute(insert).rowcount)
    shown = "".join(traceback.format_exception(failed.value)) + repr(failed.value.__cause__)
    assert "canary" not in shown
    assert "IntegrityError" in str(failed.value) or "UniqueViolation" in str(failed.value)
    with pytest.raises(ZeroDivisionError):
        await store.transact(lambda connection: connection.execute(NOTES.delete()).rowcount // 0)
    assert len(await store.read(NOTES.select())) == 2


FORKS = """
import asyncio, os, sys
from toolcrib.store import Leases, Store
store = Store(sys.argv[1], key=lambda: [b"k" * 32])
leases = Leases(store)
say = lambda fence: os.write(1, f"{fence}\\n".encode())  # at once: two processes write
say(asyncio.run(leases.acquire("parent", "p", for_s=9)).fence)
child = os.fork()
say(asyncio.run(leases.acquire("child" if not child else "again", "p", for_s=9)).fence)
if child:
    assert os.waitpid(child, 0)[1] == 0
    say(asyncio.run(leases.acquire("child", "other", for_s=9)))
store.close()
"""


def test_a_child_process_opens_it_for_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path / "store.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("1\n1\n1\nNone\n", 0), done.stderr


async def test_a_change_by_another_process_is_seen(sqlite_store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "only" / "store.db")
    for store in (sqlite_store, other):
        store.use(V2)
    try:
        assert sqlite_store.changes() is None
        await sqlite_store.read(NOTES.select())
        before = sqlite_store.changes()
        assert sqlite_store.changes() == before
        for store, content in ((other, "first"), (sqlite_store, "second")):
            update = NOTES.update().values(text=content)
            await store.transact(partial(Connection.execute, statement=update))
            after = sqlite_store.changes()
            assert after != before
            before = after
    finally:
        other.close()


async def test_what_sqlalchemy_logs_has_no_values_in_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sqlalchemy.engine")
    store = Store(tmp_path / "store.db")
    await DatabasePendings(store).open(waiting("canary"), now=NOW)
    store.close()
    assert "INSERT INTO toolcrib_pendings" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.parametrize("version", ["'x'", "-1", "1.5"])
async def test_tables_of_a_version_that_cannot_be_are_refused(version: str, sqlite_store: Store) -> None:
    await DatabasePendings(sqlite_store).waiting(now=NOW)
    await execute(sqlite_store, f"UPDATE toolcrib_versions SET version = {version}")
    sqlite_store.close()
    with pytest.raises(StoreError, match="the version of its 'store' tables is damaged"):
        await DatabasePendings(sqlite_store).waiting(now=NOW)


BASE_INSTALL = """
import asyncio, sys
from toolcrib import SetupError

def report(package, use):
    sys.modules[package], module = None, sys.modules.pop(package, None)
    try:
        exec(use)
    except SetupError as error:
        print(error)
    if sys.modules.pop(package) is None and module is not None:
        sys.modules[package] = module

report("httpx2", "import toolcrib.net")
report("cryptography", "import toolcrib.store")
report("sqlalchemy", "import toolcrib.store")
report("psycopg", "from toolcrib.store import Leases, Store;"
       "asyncio.run(Leases(Store('postgresql://h/x', key=lambda: [])).acquire('a', 'b', for_s=1))")
"""


async def test_without_the_extra_the_error_names_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BASE_INSTALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
    missing = [("httpx2", "auth"), ("cryptography", "store"), ("sqlalchemy", "store"), ("psycopg", "store")]
    for line, (package, extra) in zip(done.stdout.splitlines(), missing, strict=True):
        assert f" the package '{package}', which is missing: pip install 'toolcrib[{extra}]'" in line
    assert os.listdir(tmp_path) == []
