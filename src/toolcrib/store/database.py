"""The database of a store, opened when it is first needed, by each process for itself.

SQLite reads on the thread that asks, since a thread costs more than the look-up; it writes on one thread of the
store's. PostgreSQL reads and writes on a few threads. Nothing here holds up an event loop for longer than a look-up.
"""

import asyncio
import os
import random
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Executable,
    TextClause,
    UpdateBase,
    create_engine,
    event,
    func,
    make_url,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ..core import SetupError, StoreError
from ..machinery import log_failure
from .events import LOG, Events
from .keys import VARIABLE, KeyFile, Keys, KeySource, environment_keys
from .tables import BATCH, STORE, Schema, Sealed, decode_bytes, hold_lock, migrate, missing
from .webhook import Topic, Webhook

T = TypeVar("T")

PROJECT_STORE = ".toolcrib/store.db"
"""The file of a project's own store, beside its settings."""

_BUSY_S = 10
_PATIENCE = {
    "connect_timeout": str(_BUSY_S),
    "tcp_user_timeout": str(_BUSY_S * 1000),
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
}
"""After how long PostgreSQL's connections are given up that get no answer: its host may be gone, with no word of it."""
MAX_IDLE_MS = 5_000
"""How long a transaction may stand still, whose locks hold up others: this process is frozen, or cut off."""
_THREADS = 8
_LOOK_INTERVAL_S = 10.0
"""How often a process that has the database open looks for a migration by a newer Toolcrib."""
_NOTIFY = text("SELECT pg_notify(:channel, :payload)")
_NOTHING: Mapping[str, Any] = {}
_NAMED = sqlite_dialect(paramstyle="named")

_REASONS = {
    "readonly": "it may not be written to; check the permissions of the file and its folder",
    "is full": "the disk is full",
    "malformed": "the file is damaged; restore it from a copy, or move it away to begin with an empty one",
    "not a database": "the file is not a database; move it away, or name another one",
    "locked": "another process has kept it locked for too long",
    "unable to open": "it cannot be opened; check its folder and permissions, or name another with url in [store]",
    "has no equivalent in encoding": "its encoding lacks a character; move it to a database in UTF-8",
    "54000": "a name is too long for its index, which takes about 2,700 bytes",
}
_REFUSED = ("22", "23", "54")
"""The classes of SQLSTATE that are about the values of a statement: data, constraints, limits."""
_REFUSALS = ("DataError", "IntegrityError", "UnicodeError", "OverflowError")
"""What drivers raise for them, by names that all drivers share."""

Row = Mapping[Any, Any]

_WORDS = {
    "sqlite": {
        "now": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
        "greatest": "max",
        "least": "min",
    },
    "postgresql": {
        "now": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
        "greatest": "greatest",
        "least": "least",
    },
}


class Now(FunctionElement[int]):
    """Now in microseconds since 1970, by the clock of the database."""

    name = "now"
    inherit_cache = True


@compiles(Now)
def _compile_now(_element: Now, compiler: Any, **_: Any) -> str:
    return _WORDS[compiler.dialect.name]["now"]


def by_dialect(sql: str) -> dict[str, TextClause]:
    """Return *sql* for each kind of database, with its words in place of {now}, {greatest} and {least}."""
    return {dialect: text(sql.format(**words)) for dialect, words in _WORDS.items()}


class Database:
    """The database of a `Store`, and its keys: rows that are read, and written in transactions."""

    def __init__(self, where: str | Path | None = None, *, key: str | Path | KeySource | None = None) -> None:
        self._url = _url_of(where)
        self.place = _place_of(self._url)
        self._schemas: dict[str, Schema] = {schema.room: schema for schema in (STORE, LOG)}
        self._processes: dict[int, _Process] = {}
        self._ends: list[Callable[[], None]] = []
        self.webhooks: dict[Topic, Webhook] = {}
        if key is None and not os.environ.get(VARIABLE, "").strip():
            key = (self.file or _data_folder() / "store").with_suffix(".key")
        if key is None:
            self.keys = Keys(environment_keys, place=VARIABLE)
        elif isinstance(key, str | Path):
            self.keys = Keys(KeyFile(Path(key)), place=str(key))
        else:
            self.keys = Keys(key, place="the function that gives the keys")
        self.events = Events(self.keys)

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a database of another kind."""
        return Path(self._url.database or "") if self._url.get_backend_name() == "sqlite" else None

    @property
    def schemas(self) -> Sequence[Schema]:
        """The tables that were declared by `use`, and those of this room."""
        return [*self._schemas.values()]

    def use(self, schema: Schema) -> None:
        """Have the tables of *schema*: made or migrated before the next use of the store."""
        if self._schemas.setdefault(schema.room, schema) is not schema:
            raise SetupError(f"The tables of '{schema.room}' are declared twice.")

    async def read(self, statement: Executable, values: Mapping[str, Any] = _NOTHING) -> Sequence[Row]:
        """Return the rows of a SELECT, by column.

        On SQLite without a change of threads, so *statement* is made once and kept.

        Raises StoreError.
        """
        process = self._process()
        if process.migrated != len(self._schemas):
            await process.run(process.open)
        return await self.fetch(statement, values) if process.reader is None else process.look_up(statement, values)

    async def fetch(self, statement: Executable, values: Mapping[str, Any] = _NOTHING) -> Sequence[Row]:
        """Return the rows of a SELECT that is made for this time, by column. Raises StoreError."""
        return await self.transact(lambda c: c.execute(statement, values).mappings().fetchall(), write=False)

    async def transact(self, work: Callable[[Connection], T], *, write: bool = True, lock: bytes = b"") -> T:
        """Return the value of *work* in a transaction, which is rolled back if it raises. Raises StoreError.

        *work* runs in a thread, must not wait for anything else, and, where the task is cancelled, runs to its end. On
        SQLite one may *write* at a time; on PostgreSQL those exclude each other that have the same *lock*, a name
        of at most seven bytes or of eight letters.
        """
        process = self._process()

        def transact() -> T:
            process.open()
            return process.transact(work, lock=lock, write=write)

        return await process.run(transact)

    async def notices(self, channel: str) -> AsyncGenerator[str]:
        """Yield once it listens to *channel*, and then what each `notify` of it says that any process has committed.

        For PostgreSQL alone. Raises StoreError where the connection breaks off.
        """
        from psycopg import AsyncConnection, sql

        with error_as_store_error(self.place):
            engine = _engine(self._url)
            _, options = engine.dialect.create_connect_args(engine.url)
            async with await AsyncConnection.connect(**options, autocommit=True) as connection:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                yield ""
                async for notice in connection.notifies():
                    yield notice.payload

    async def execute(self, statement: UpdateBase) -> int:
        """Execute *statement* in a transaction of its own. Return how many rows it changed. Raises StoreError."""
        return await self.transact(lambda c: c.execute(statement).rowcount)

    def write(self, work: Callable[[Connection], T], *, lock: bool = True, is_durable: bool = True) -> T:
        """Return `transact`, on the thread that asks, which waits: for a thread of its own that writes.

        Without *lock*, *work* only reads, and others write meanwhile. What is not *is_durable* survives the process
        once it is committed, but may be lost with the power. Raises StoreError.
        """
        process = self._process()
        process.open()
        return process.transact(work, write=lock, is_durable=is_durable)

    def sign_events(self) -> None:
        """Sign the events that this process has written, on the thread that asks. Raises StoreError."""
        if not self.events.are_signed:
            self.write(self.events.sign)

    def changes(self) -> int | None:
        """Return a number that is another one after any process has changed the store, or this one has opened it again:
        for those who cache what they read.

        None where that costs as much as a look-up (on PostgreSQL), and before the first `read`.
        """
        return None if (process := self._processes.get(os.getpid())) is None else process.changes()

    def was_away(self, within_s: float) -> bool:
        """Return whether this process has found that it cannot be used, in the last *within_s* seconds."""
        return time.monotonic() - self._process().away_at < within_s

    async def pending_migrations(self) -> Sequence[str]:
        """Return the rooms whose tables are not there or not the newest, which the next use of the store changes.

        Nothing is changed now, but for an SQLite file that does not exist. Raises StoreError, also for a newer one.
        """
        return await self._process().run(self._process().missing)

    async def has_sealed(self) -> bool:
        """Return whether anything in it needs a key to be read. Nothing is changed. Raises StoreError."""
        behind = await self.pending_migrations()
        columns = [
            envelope.table.c[envelope.column]
            for schema in self._schemas.values()
            if schema.room not in behind
            for envelope in schema.sealed
        ]
        process = self._process()

        def look(connection: Connection) -> bool:
            return any(
                connection.execute(select(column).where(column.is_not(None)).limit(1)).first() for column in columns
            )

        return await process.run(lambda: process.transact(look))

    async def rotate_key(self) -> int:
        """Seal everything with a new key, one batch of rows after the other. Returns how many were sealed again.

        Everything is what is in the tables of this room, and in those that were declared by `use`. The old key stays
        where it is, last: other processes may have rows in hand. Where the keys are in a variable or come from a
        function, put the new one first there, and this seals with it. Rows that do not open are logged and left as they
        are.
        """
        header = await self._process().run(self.keys.rotate)
        count = 0
        for column in [envelope for schema in self._schemas.values() for envelope in schema.sealed]:
            last: tuple[Any, ...] | None = None
            while True:
                done, last = await self.transact(partial(self._seal_again, column, header, last))
                count += done
                if last is None:
                    break
        return count

    def on_close(self, end: Callable[[], None]) -> None:
        """Call *end* before this process closes the database: for what uses it on a thread of its own."""
        self._ends.append(end)

    def close(self) -> None:
        """Close what this process has open. The next use opens it again."""
        for end in self._ends:
            end()
        with suppress(StoreError, SetupError):
            self.sign_events()
        process = self._processes.pop(os.getpid(), None)
        if process is not None:
            process.close()

    def __repr__(self) -> str:
        return f"<Store {self.place}>"

    def _process(self) -> "_Process":
        # By process: no connection survives a fork, and those of the parent must not be closed by the child.
        pid = os.getpid()
        return self._processes.get(pid) or self._processes.setdefault(
            pid, _Process(self._url, self.place, self._schemas, self.events)
        )

    def _seal_again(
        self, sealed: Sealed, header: bytes, after: tuple[Any, ...] | None, connection: Connection
    ) -> tuple[int, tuple[Any, ...] | None]:
        table, column = sealed.table, sealed.table.c[sealed.column]
        key = list(table.primary_key)
        old = column.is_not(None) & (func.substr(column, 1, len(header)) != header)
        rows = table.select().where(old).order_by(*key).limit(BATCH)
        if after is not None:
            rows = rows.where(tuple_(*key) > tuple_(*after))
        done, last = 0, None
        for row in map(dict, connection.execute(rows).mappings().fetchall()):
            last = tuple(row[part.name] for part in key)
            try:
                binding = sealed.binding(row)
                again = self.keys.seal(self.keys.unseal(decode_bytes(row[sealed.column]), *binding), *binding)
            except (StoreError, ValueError) as error:
                log_failure(f"A row of {table.name} could not be sealed again", error, None)
                continue
            key_matches = [part == row[part.name] for part in key]
            update = table.update().where(*key_matches, column == row[sealed.column])
            done += connection.execute(update.values({sealed.column: again})).rowcount
        return done, last


def notify(connection: Connection, channel: str, payload: str = "") -> None:
    """Let those who listen to *channel* know, once the transaction is committed. On SQLite nothing happens."""
    if connection.dialect.name == "postgresql":
        connection.execute(_NOTIFY, {"channel": channel, "payload": payload})


class _Process:
    """What one process has open of a store."""

    def __init__(self, url: URL, place: str, schemas: Mapping[str, Schema], events: Events) -> None:
        self._url = url
        self._place = place
        self._schemas = schemas
        self._events = events
        self._is_sqlite = url.get_backend_name() == "sqlite"
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._threads = ThreadPoolExecutor(1 if self._is_sqlite else _THREADS, "toolcrib-store")
        self._engine: Engine | None = None
        self._raw: Any = None
        self._version: Any = None
        self._first_version = secrets.randbits(62)  # each connection counts from 1
        self._compiled: dict[Executable, tuple[str, Mapping[str, Any]]] = {}
        self._identity: tuple[int, int] | None = None  # of the file that is open
        self._looked_at = 0.0
        self._writers: dict[bool, Connection] = {}  # of SQLite, by whether what they commit survives a loss of power
        self.reader: Connection | None = None
        self.migrated = -1
        self.away_at = float("-inf")  # when it failed last, on the monotonic clock

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def open(self) -> None:
        """Open the database, and bring its tables up to date, unless that is done."""
        if self.migrated == len(self._schemas):
            return
        with self._lock, error_as_store_error(self._place, self):
            schemas = list(self._schemas.values())
            self._connect()
            if self._transact(lambda connection: missing(connection, schemas, self._place)):
                self._transact(lambda connection: migrate(connection, schemas), lock=b"toolcrib", write=True)
            self.migrated = len(schemas)

    def missing(self) -> Sequence[str]:
        """Return the rooms whose tables are behind."""
        with self._lock, error_as_store_error(self._place, self):
            self._connect()
            return self._transact(lambda connection: missing(connection, self._schemas.values(), self._place))

    def _connect(self) -> None:
        if self._engine is None:
            self._engine = _engine(self._url)
            event.listen(self._engine, "invalidate", self._note_away)  # a connection of the pool that broke off
            self._looked_at = time.monotonic()
            if self._is_sqlite:
                self.reader = self._engine.connect()
                self._raw = self.reader.connection.dbapi_connection
                self._version = self._raw.cursor()
                self._identity = _identity_of(self._url)

    def _note_away(self, *_: object) -> None:
        self.away_at = time.monotonic()

    def _require_same(self) -> None:
        """Raise StoreError where the file was replaced, or a newer Toolcrib has migrated the tables, since the start.

        SQLite would go on with a file that no other process has any more.
        """
        if self._identity is not None and self._identity != _identity_of(self._url):
            failure = StoreError(
                f"The store {self._place} cannot be used: its file was moved, deleted or replaced while this process "
                "had it open. Put it back, or restart this process to begin with what is there now."
            )
            failure.is_away, self.away_at = True, time.monotonic()
            raise failure
        if (now := time.monotonic()) - self._looked_at > _LOOK_INTERVAL_S:
            self._looked_at = now
            try:
                self._transact(lambda connection: missing(connection, [*self._schemas.values()], self._place))
            except StoreError:
                self._looked_at = 0.0  # so does the next use
                raise

    def transact(
        self, work: Callable[[Connection], T], *, lock: bytes = b"", write: bool = False, is_durable: bool = True
    ) -> T:
        self._require_same()
        return self._transact(work, lock=lock, write=write, is_durable=is_durable)

    def _transact(
        self, work: Callable[[Connection], T], *, lock: bytes = b"", write: bool = False, is_durable: bool = True
    ) -> T:
        assert self._engine is not None
        # SQLite has one writer at a time, and lets others wait by looking again and again.
        is_kept = self._is_sqlite and write
        with (
            self._writing if is_kept else nullcontext(),
            error_as_store_error(self._place, self),
            nullcontext(self._writer(is_durable)) if is_kept else self._engine.connect() as connection,
        ):
            raw: Any = connection.connection.dbapi_connection
            try:
                if self._is_sqlite:
                    raw.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                else:
                    _begin_postgresql(connection, raw, lock, is_durable=is_durable)
                value = work(connection)
                with self._events.committed(connection):
                    connection.commit()
                    raw.commit()  # where all was done by the driver
            except BaseException:
                self._events.roll_back(connection)
                if is_kept:  # whatever is the matter with it, the next one is sound
                    self._writers.pop(is_durable).close()
                raise
            return value

    def _writer(self, is_durable: bool) -> Connection:
        """Return the connection that writes to SQLite, made once: that takes longer than what it writes."""
        assert self._engine is not None
        if (connection := self._writers.get(is_durable)) is None:
            connection = self._engine.connect()
            connection.detach()
            if not is_durable:
                connection.exec_driver_sql("PRAGMA synchronous = NORMAL")
                connection.commit()
            self._writers[is_durable] = connection
        return connection

    def look_up(self, statement: Executable, values: Mapping[str, Any]) -> Sequence[Row]:
        self._require_same()
        # By the driver: SQLAlchemy's own way to one row takes ten times as long.
        if (compiled := self._compiled.get(statement)) is None:
            sql = statement.compile(dialect=_NAMED)  # type: ignore[attr-defined]
            compiled = self._compiled[statement] = sql.string, sql.params
        with error_as_store_error(self._place, self), self._lock:
            cursor = self._raw.execute(compiled[0], {**compiled[1], **values})
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def changes(self) -> int | None:
        if self.reader is None:
            return None
        try:
            with self._lock:
                version: int = self._version.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:  # in place of `error_as_store_error`: each call with credentials comes here
            raise _store_error(error, self._place) from None
        return self._first_version + version

    def close(self) -> None:
        self._threads.shutdown()
        with self._writing:
            while self._writers:
                self._writers.popitem()[1].close()
        if self.reader is not None:
            self.reader.close()
        if self._engine is not None:
            self._engine.dispose()


class error_as_store_error:  # noqa: N801 - a context manager
    """Raises StoreError for what a database or its driver raises. (A class: a generator takes ten times as long.)"""

    __slots__ = ("_place", "_process")

    def __init__(self, place: str, process: "_Process | None" = None) -> None:
        self._place = place
        self._process = process

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        package = type(error).__module__.partition(".")[0]
        if isinstance(error, SQLAlchemyError | OSError) or package in ("sqlite3", "psycopg"):
            failure = _store_error(error, self._place)  # type: ignore[arg-type]
            if self._process is not None and failure.is_away:
                self._process.away_at = time.monotonic()
            raise failure from None  # without its cause, which quotes statements and values


def _store_error(error: Exception, place: str) -> StoreError:
    """Return what *error*, raised by SQLAlchemy or a driver, says of the database at *place*.

    No statement, value, password or key is quoted.
    """
    failure = StoreError(f"The store {place} cannot be used: {_reason_of(getattr(error, 'orig', None) or error)}.")
    failure.is_away = refusal(error) is None
    return failure


def _reason_of(original: BaseException) -> str:
    text = f"{original} {getattr(original, 'sqlstate', '')}"
    reason = next((reason for part, reason in _REASONS.items() if part in text), None)
    if reason is None:
        codes = (getattr(original, "sqlite_errorname", None), getattr(original, "sqlstate", None))
        code = next((f" ({code})" for code in codes if code), "")
        unreachable = type(original).__name__ == "OperationalError" and not code
        reason = "it cannot be reached" if unreachable else f"it failed with {type(original).__name__}{code}"
    return reason


def refusal(error: Exception) -> str | None:
    """Return why the database refuses the values of a statement; None where *error* is of another kind."""
    original = getattr(error, "orig", None) or error
    is_refused = str(getattr(original, "sqlstate", None) or "")[:2] in _REFUSED
    is_refused = is_refused or any(kind.__name__ in _REFUSALS for kind in type(original).__mro__)
    return _reason_of(original) if is_refused else None


def _url_of(where: str | Path | None) -> URL:
    if where is None:
        where = _data_folder() / "store.db"
    if re.search("[\0\ud800-\udc7f]", str(where)):  # other surrogates are of file names
        raise SetupError("The path of the store has characters that no file name has.")
    if isinstance(where, Path) or "://" not in where:
        return _sqlite_url(where)
    scheme = where.partition("://")[0]
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):
        raise SetupError(f"The URL of the store ({scheme}://...) cannot be read.") from None
    if scheme == "sqlite" and url.database not in (None, "", ":memory:"):
        return _sqlite_url(str(url.database)).set(query=url.query)
    if scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise SetupError(
        f"A store is the path of a file, 'sqlite:///PATH' or 'postgresql://USER@HOST/NAME'; this one is {scheme}://."
    )


def _sqlite_url(path: str | Path) -> URL:
    return URL.create("sqlite", database=str(Path(path).expanduser().absolute()))


def _identity_of(url: URL) -> tuple[int, int]:
    """Return which file it is; another number where none is there."""
    try:
        status = os.stat(url.database or "")  # noqa: PTH116 - each use of the store comes here
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def _place_of(url: URL) -> str:
    # Parameters of a URL can hold a password too.
    return url.database or "" if url.host is None and not url.query else f"postgresql://{url.host or ''}/{url.database}"


def _data_folder() -> Path:
    from platformdirs import user_data_path

    return user_data_path("toolcrib", appauthor=False)


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        make_file(Path(url.database or ""))
        engine = create_engine(url, hide_parameters=True, connect_args={"timeout": _BUSY_S, "check_same_thread": False})
        event.listen(engine, "connect", _prepare_sqlite)
        return engine
    try:
        # UTF-8 in any case: of a database in SQL_ASCII, psycopg would return bytes for text.
        url = url.set(query={**_PATIENCE, **url.query, "client_encoding": "utf8"})
        engine = create_engine(url, hide_parameters=True, pool_size=_THREADS, pool_pre_ping=True)
        event.listen(engine, "connect", _prepare_postgresql)
        return engine
    except ModuleNotFoundError:
        raise SetupError(
            "A store in PostgreSQL needs the package 'psycopg', which is missing: pip install 'toolcrib[store]'"
        ) from None


def _begin_postgresql(connection: Connection, raw: Any, lock: bytes, *, is_durable: bool) -> None:
    connection.begin()
    if not is_durable:
        raw.execute("SET LOCAL synchronous_commit = off")
    if lock:
        hold_lock(connection, lock)


def _prepare_postgresql(connection: Any, _: object) -> None:
    # Not among the parameters of the connection, of which PgBouncer takes a few.
    connection.execute(f"SET idle_in_transaction_session_timeout = {MAX_IDLE_MS}")
    connection.commit()


def make_file(path: Path) -> None:
    # For the owner alone, from the first moment; what SQLite puts beside it gets the same mode.
    with suppress(FileExistsError, PermissionError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.parent.name == Path(PROJECT_STORE).parent.name and not (ignore := path.parent / ".gitignore").exists():
            ignore.write_text("*\n")  # neither the store nor its key is for a repository
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin and end where the code says so
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    until = time.monotonic() + _BUSY_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Where several processes do this at once, SQLite fails at once, whatever the busy timeout is.
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311
    # An answer that was used must not come back after a loss of power.
    connection.execute("PRAGMA synchronous = FULL")
