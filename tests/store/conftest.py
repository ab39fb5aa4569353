"""Stores in real databases: SQLite files, and, in `make test-all`, a PostgreSQL server of this run."""

import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from toolcrib.record.database import RECORD
from toolcrib.record.verify import verify
from toolcrib.store import Store, audit
from toolcrib.store.tasks import DatabaseTasks

WORKER = Path(__file__).with_name("worker.py")

MakeStore = Callable[[], Store]


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file of its own, for what only SQLite can show."""
    store = Store(tmp_path / "only" / "store.db")
    yield store
    store.close()


@pytest.fixture
def make_store(url: str, tmp_path: Path) -> Iterator[MakeStore]:
    """Gives stores in the same database, as other processes would open them."""
    made: list[Store] = []

    def make() -> Store:
        made.append(Store(url, key=tmp_path / "store.key"))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    return make_store()


@pytest.fixture
def ledger(store: Store) -> DatabaseTasks:
    return store.ledger


StartWorker = Callable[..., "subprocess.Popen[str]"]
Race = Callable[..., list[str]]


@pytest.fixture
def start(url: str, tmp_path: Path, forked_python: str) -> Iterator[StartWorker]:
    """Starts a process of `worker.py` on the database; it is ready when it has printed a line.

    One that was killed is dead once `communicate` has returned.
    """
    started: list[subprocess.Popen[str]] = []

    def start(job: str, argument: str = "", python: str = forked_python) -> "subprocess.Popen[str]":
        command = [python, str(WORKER), job, url, str(tmp_path / "store.key"), argument]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def execute(store: Store, statement: str, **values: Any) -> int:
    """The number of rows that *statement* has changed, from outside."""
    return await store.transact(lambda connection: connection.execute(text(statement), values).rowcount)


async def verified(store: Store) -> audit.Audit:
    """What `toolcrib calls verify` says of *store*."""
    store.use(RECORD)
    keys = store.keys.public_keys()
    return await store.transact(lambda connection: verify(store, connection, keys), write=False)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def let_go(*processes: "subprocess.Popen[str]") -> None:
    """Have *processes* do their jobs, once all are ready."""
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


@pytest.fixture
def race(start: StartWorker) -> Race:
    """Does jobs, each in a process of its own, let go at once when all are ready: what each prints."""

    def race(*jobs: tuple[str, str]) -> list[str]:
        processes = [start(*job) for job in jobs]
        let_go(*processes)
        return [process.stdout.readline().rstrip("\n") for process in processes]

    return race
